"""The fifteen programs of the ledger, at small sizes: what is counted does not depend on them, except where the bytes say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tempo_core as tp

PROGRAMS: dict[str, Callable[[], tp.Program[Any]]] = {}


def program(name: str) -> Callable[[Callable[[], tp.Program[Any]]], Callable[[], tp.Program[Any]]]:
    def register(make: Callable[[], tp.Program[Any]]) -> Callable[[], tp.Program[Any]]:
        PROGRAMS[name] = make
        return make

    return register


class _Silent:
    def finished(self, iteration: int, metrics: Any, parameters: Any) -> None: ...


def _recipe(name: str, steps: int) -> tp.Program[Any]:
    from tempo_rl.agents import build_agent
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    sizes = {"num_envs": 8, "num_steps": steps, "total_timesteps": 3 * 8 * steps}
    recipe = load_recipe(name, [f"{key}={value}" for key, value in sizes.items()])
    agent = build_agent(recipe, _Silent())
    compiled = agent.compile(compile_config(recipe))
    agent.environment.close()
    return compiled


@program("ppo functional")
def ppo_functional() -> tp.Program[Any]:
    """PPO with its environment in JAX: an iteration is one device program."""
    return _recipe("ppo_functional", 16)


@program("ppo host")
def ppo_host() -> tp.Program[Any]:
    """PPO with Gymnasium's environments."""
    return _recipe("ppo", 16)


@program("reinforce")
def reinforce() -> tp.Program[Any]:
    """REINFORCE with Gymnasium's environments."""
    return _recipe("reinforce", 16)


def _decoder(rows: int) -> tp.Program[Any]:
    from benchmarks.decode import random_model
    from tempo_llm.attention import Attention
    from tempo_llm.generate import LOOPS
    from tempo_llm.llama import trace_decoder

    config, _ = random_model("tiny")
    decoder = trace_decoder(config, Attention())
    bounds = {**decoder.bounds(4, 64, rows), decoder.blocks: 4, decoder.copies: 4, decoder.length: 64}
    return decoder.context.compile(bounds, decoder.outputs, tp.Config(disable=LOOPS))


@program("llama 1 row")
def llama_of_one_row() -> tp.Program[Any]:
    """Greedy decoding of one row: a prompt of 4 blocks, and 64 new tokens."""
    return _decoder(1)


@program("llama 4 rows")
def llama_of_four_rows() -> tp.Program[Any]:
    return _decoder(4)


@program("rnn gradient")
def rnn_gradient() -> tp.Program[Any]:
    """The gradient of a loss at each step of an RNN, in its two matrices and its bias."""
    context = tp.Context("t")
    with context as ((t, T),):
        x, target = tp.input("x", (4, 8), domain=(t,)), tp.input("target", (4, 16), domain=(t,))
        w, v, b = tp.input("w", (8, 16)), tp.input("v", (16, 16)), tp.input("b", (16,))
        h = tp.recurrence((4, 16), domain=(t,), name="h")
        h[0] = tp.tanh(x[0] @ w + b)
        h[t] = tp.tanh(x @ w + h[t - 1] @ v + b)
        loss = ((h - target) ** 2).mean()[0:T].sum(0)
        return context.compile({T: 32}, outputs=list(tp.grad(loss, [w, v, b])))


@program("kalman filter")
def kalman_filter() -> tp.Program[Any]:
    """Position and speed from measured positions: the mean and the covariance of each step."""
    context = tp.Context("t")
    with context as ((t, T),):
        z = tp.input("z", domain=(t,))
        f, q, position = tp.input("f", (2, 2)), tp.input("q", (2, 2)), tp.constant([1.0, 0.0])
        mean = tp.recurrence((2,), domain=(t,), name="mean")
        spread = tp.recurrence((2, 2), domain=(t,), name="spread")
        mean[0], spread[0] = tp.zeros((2,)), tp.eye(2)
        predicted = f @ mean[t - 1]
        prior = f @ spread[t - 1] @ f.transpose() + q
        column = prior @ position
        gain = column / (column @ position + 1.0)
        mean[t] = predicted + gain * (z - predicted @ position)
        spread[t] = prior - gain.reshape((2, 1)) @ column.reshape((1, 2))
        return context.compile({T: 64}, outputs=[mean, spread])


@program("window attention")
def window_attention() -> tp.Program[Any]:
    """Queries over the last eight keys, and the gradient of it in queries, keys and values."""
    context = tp.Context("t")
    with context as ((t, T),):
        q, k, v = (tp.input(name, (16,), domain=(t,)) for name in "qkv")
        window = slice(tp.max(t - 7, 0), t + 1)
        y = (k[window] @ q).softmax(0) @ v[window]
        return context.compile({T: 64}, outputs=list(tp.grad((y * y).sum()[0:T].sum(0), [q, k, v])))


@program("stencil")
def stencil() -> tp.Program[Any]:
    """Heat in a rod, with the points of the rod as a step."""
    context = tp.Context("k", "i")
    with context as ((k, K), (i, I)):
        first = tp.input("first", domain=(i,))
        u = tp.recurrence((), domain=(k, i), name="u")
        u[0, i] = first
        u[k, 0] = 0.0
        u[k, I - 1] = 0.0
        u[k, i] = u[k - 1, i] + 0.1 * (u[k - 1, i - 1] - 2.0 * u[k - 1, i] + u[k - 1, i + 1])
        return context.compile({K: 32, I: 64}, outputs=[u[K - 1, i]])


@program("window max gradient")
def window_max_gradient() -> tp.Program[Any]:
    """The gradient of the sum of the squares of the maxima of ten values."""
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = x[tp.max(t - 9, 0) : t + 1].max(0)
        return context.compile({T: 256}, outputs=list(tp.grad((y * y)[0:T].sum(0), [x])))


def _classic(name: str) -> None:
    """A classic of those that were furthest behind the best form by hand, at its small size."""

    def make() -> tp.Program[Any]:
        from benchmarks.classics.table import load

        classic = load()[name]
        return classic.program(**classic.sizes["small"]).compile()

    program(name)(make)


for _name in (
    "stack machine",
    "Q table, by one-hot product",
    "average of products",
    "attention, a chosen length",
    "weather on a ring",
):
    _classic(_name)
