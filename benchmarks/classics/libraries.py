"""Programs of the libraries: training by PPO and by REINFORCE, decoding by a Llama."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks.classics.classic import Sides, Sizes


@dataclass(frozen=True)
class Library:
    """A row as `Classic`, whose sides are built from a library. `build(**sizes)` gives both, compiled."""

    name: str
    build: Callable[..., Sides]
    sizes: Mapping[str, Sizes]
    tolerance: float = 0.0
    reason: str = ""

    def sides(self, size: str) -> Sides:
        return self.build(**self.sizes[size])


class Monitor:
    """The host's side of training: it receives metrics and parameters, and drops them."""

    def finished(self, iteration: int, metrics: Any, parameters: Any) -> None:
        pass


def trained(algorithm: str, envs: int, steps: int, iterations: int) -> Sides:
    """A run of training on CartPole in JAX. Random numbers differ, so there are no results to compare."""
    from tempo_rl.agents import build_agent
    from tempo_rl.env.functional_env import make_single
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    sizes = {"num_envs": envs, "num_steps": steps, "total_timesteps": envs * steps * iterations}
    changes = [*(f"{key}={value}" for key, value in sizes.items()), "env.id=phys2d/CartPole-v1"]
    recipe = load_recipe("ppo_functional" if algorithm == "ppo" else algorithm, changes)
    start = time.perf_counter()
    program = build_agent(recipe, Monitor()).compile(compile_config(recipe))
    program.run({})
    seconds = {"tempo": time.perf_counter() - start}
    make_training = importlib.import_module(f"benchmarks.peers.jax_{algorithm}").make_training
    start = time.perf_counter()
    train = make_training(recipe, make_single(recipe.env.id), iterations).lower(np.uint32(0)).compile()

    def by_hand() -> list[Any]:
        jax.device_get(train(np.uint32(recipe.seed)))
        return []

    by_hand()
    seconds["one jit"] = time.perf_counter() - start
    return Sides(lambda: program.run({}), {"one jit": by_hand}, seconds)


def decoded(model: str, rows: int, length: int) -> Sides:
    """The tokens of greedy decoding by a Llama with random weights, after a prompt of 8 tokens."""
    from benchmarks.decode import PROMPT, random_model
    from benchmarks.peers.jax_llama import make_decoder, split_layers
    from tempo_core.nn import inverse_frequencies
    from tempo_llm.generate import Generator

    config, weights = random_model(model)
    prompts = np.random.default_rng(1).integers(3, config.vocab_size, (rows, PROMPT)).astype(np.int32)
    generator = Generator(config, {name: jax.device_put(value) for name, value in weights.items()})

    def tempo() -> list[Any]:
        generation = generator.generate(prompts.tolist(), length - PROMPT, max_context=length)
        return [np.asarray([completion.token_ids for completion in generation.completions], np.int32)]

    start = time.perf_counter()
    tempo()
    seconds = {"tempo": time.perf_counter() - start}
    padded, lengths = np.zeros((rows, length), np.int32), np.full(rows, PROMPT, np.int32)
    padded[:, :PROMPT] = prompts
    operands = jax.device_put((split_layers(weights, config.num_hidden_layers), padded, lengths))
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    start = time.perf_counter()
    decode = make_decoder(config, frequencies, length).lower(*operands).compile()

    def by_hand() -> list[Any]:
        return [np.asarray(decode(*operands))[:, PROMPT:]]

    by_hand()
    seconds["static cache"] = time.perf_counter() - start
    return Sides(tempo, {"static cache": by_hand}, seconds)


ROLLOUT = {
    "tiny": {"envs": 4, "steps": 8, "iterations": 2},
    "small": {"envs": 2, "steps": 16, "iterations": 1},
    "full": {"envs": 32, "steps": 128, "iterations": 10},
}
CLASSICS = [
    Library("PPO", lambda **sizes: trained("ppo", **sizes), ROLLOUT),
    Library("REINFORCE", lambda **sizes: trained("reinforce", **sizes), ROLLOUT),
    Library(
        "Llama",
        decoded,
        {
            "tiny": {"model": "tiny", "rows": 2, "length": 16},
            "small": {"model": "tiny", "rows": 1, "length": 64},
            "full": {"model": "5M", "rows": 1, "length": 256},
        },
    ),
]
