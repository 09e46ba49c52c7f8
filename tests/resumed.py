"""Seven programs that tests stop, save and resume: `python -m tests.resumed NAME STATE RESULTS` resumes one in a process of its own.

Each is small, and of another kind: environments in JAX and on the host, training, filtering with a gradient, decoding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.classics import filters, returns
from benchmarks.classics.classic import Classic
from benchmarks.decode import random_model
from tempo_llm.attention import Attention
from tempo_llm.generate import LOOPS
from tempo_llm.llama import trace_decoder
from tempo_llm.sampling import Sampling, uniform_draws
from tempo_rl.agents import build_agent
from tempo_rl.recipe import load_recipe

Arrays = dict[str, np.ndarray]


class Reports(list[Arrays]):
    """An agent's monitor, which keeps what it is told after each iteration."""

    def finished(self, iteration: int, metrics: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> None:
        values = {"iteration": np.int32(iteration), **metrics, **parameters}
        self.append({name: np.array(value) for name, value in values.items()})


@dataclass
class Live:
    """A compiled program that can be started and resumed, and what its sink has seen, if it has one."""

    program: tp.Program[Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    reports: Reports = field(default_factory=Reports)
    close: Callable[[], None] = lambda: None

    def finish(self, run: tp.Run[Any]) -> Arrays:
        """The outputs of a run, which goes on to its end, by name."""
        values = run.finish()
        named = values if isinstance(values, dict) else {str(k): value for k, value in enumerate(values)}
        return {name: np.array(value) for name, value in named.items()}


def agent(name: str, *overrides: str, of_runs: bool = False) -> Live:
    """A recipe with few and short iterations, whose number each run chooses if it is a program `of_runs`."""
    reports = Reports()
    built = build_agent(load_recipe(name, ["num_envs=2", "hidden=[4]", *overrides]), reports)
    program = (built.compile_for_runs if of_runs else built.compile)(tp.Config(seed=3))
    return Live(program, {}, reports, built.environment.close)


PPO = ("num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=48")


def lstm(iterations: int | tp.UpTo = 4) -> Live:
    """An LSTM that learns the next number of a sequence by Adam, with noise on its inputs."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, target = tp.input("x", (2,), domain=(t,)), tp.input("target", (1,), domain=(t,))
        cell, head = tp.nn.LSTMCell(2, 3, (i,)), tp.nn.Linear(3, 1, (i,))
        noisy = x + 0.1 * tp.random.normal((2,), domain=(i, t))
        h, _ = cell.recurrence(noisy, over=t)
        loss = ((head(h) - target) ** 2)[i, 0:T].mean()
        loss.backward()
        updated = tp.optim.Adam(dict(ctx.parameters), lr=0.05).step()
    random = np.random.default_rng(0)
    inputs = {"x": random.normal(size=(5, 2)), "target": random.normal(size=(5, 1))}
    outputs = {"loss": loss, **{name: value[I - 1] for name, value in updated.items()}}
    program = ctx.compile({I: iterations, T: 5}, outputs, tp.Config(disable=("capacities",)))
    return Live(program, {name: value.astype("float32") for name, value in inputs.items()})


def classic(row: Classic) -> Live:
    inputs = {name: np.asarray(value) for name, value in row.fed("tiny").items()}
    return Live(row.program(**row.sizes["tiny"]).compile(), inputs)


def decoding() -> Live:
    """Two rows of a Llama with random weights, whose tokens are drawn."""
    config, weights = random_model("tiny")
    decoder = trace_decoder(config, Attention(), Sampling(1.5).features())
    bounds = {**decoder.bounds(1, 7, 2), decoder.blocks: 1, decoder.copies: 1, decoder.length: 7}
    prompt = {
        "prompt": np.array([[5, 7], [9, 1], [0, 3], *[[0, 0]] * 13], "int32")[None],
        "start": np.array([2, 3], "int32"),
        "limit": np.array([9, 10], "int32"),
        "ends": np.zeros(config.vocab_size, bool),
        "draw": np.stack([uniform_draws(0, [row], 0, 7) for row in range(2)], 1)[:, :, None],
    }
    inputs = {**weights, **prompt, "temperature": np.float32(1.5)}
    return Live(decoder.context.compile(bounds, decoder.outputs, tp.Config(disable=LOOPS)), inputs)


PROGRAMS: dict[str, Callable[[], Live]] = {
    "PPO, environment in JAX": lambda: agent("ppo_functional", *PPO),
    "PPO, environment on the host": lambda: agent("ppo", *PPO),
    "REINFORCE": lambda: agent("reinforce", "num_steps=12", "total_timesteps=96"),
    "LSTM": lstm,
    "Kalman filter": lambda: classic(next(row for row in filters.CLASSICS if row.name == "Kalman filter")),
    "Q-learning with a replay window": lambda: classic(next(row for row in returns.CLASSICS if row.name.startswith("n-step Q"))),
    "decoding": decoding,
}


def main(name: str, state: Path, results: Path) -> None:
    live = PROGRAMS[name]()
    outputs = live.finish(live.program.resume(state))
    np.savez(results, **outputs, **(live.reports[-1] if live.reports else {}))
    live.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
