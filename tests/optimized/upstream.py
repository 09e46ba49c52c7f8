"""Programs in which known faults of XLA's CPU compiler would show: each names the report, and what it would do here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import tempo_core as tp


def random_numbers() -> Mapping[str, Any]:
    """Draws over every combination of steps, next to operations that LLVM would vectorize together with them.

    LLVM's vectorizer takes time exponential in the rounds of the cipher where neighbours share a value; XLA's simplifier reorders sums
    without end, and says so.
    """
    return {backend: drawn(backend) for backend in ("jax", "numpy")}


def drawn(backend: str) -> np.ndarray:
    context = tp.Context("i", "t", "b")
    with context as ((i, I), (t, T), (b, B)):
        w = tp.recurrence((), "float32", domain=(i,))
        w[0] = tp.ones(())
        total = w * 0
        for domain in ((i,), (t,), (b,), (i, t), (i, b), (t, b), (i, t, b)):
            at = {i: i, t: slice(0, T), b: slice(0, B)}
            first, single = tp.random.uniform((1, 2), domain=domain), tp.random.uniform((), domain=domain)
            for logarithms in (tp.log(-tp.log(x * 0.5 + 1e-20) + 1e-20) for x in (first, single)):
                total = total + logarithms[tuple(at[step] for step in domain)].mean()
            normal = tp.random.normal((3,), domain=domain)
            chosen = tp.where(normal > 0, normal, normal * w).sum(0)  # over i too
            total = total + chosen[tuple(at[step] for step in (i, t, b) if step in domain or step is i)].mean()
        order = tp.random.permutation(16, domain=(i, t))
        total = total + 1e-3 * (order.astype("float32") * tp.arange(16).astype("float32")).sum(0)[i, 0:T].mean(0)
        w[i + 1] = tp.tanh(total * 0.1)
        program = context.compile({I: 4, T: 64, B: 32}, outputs=[w], config=tp.Config(seed=3, backend=backend))
    return program.run()[0]


def equal(values: Mapping[str, Any]) -> dict[str, float | str]:
    np.testing.assert_allclose(values["jax"], values["numpy"], rtol=1e-5)
    return {"last": float(values["jax"][-1])}


def point_stores() -> Mapping[str, Any]:
    """A scalar and three numbers written at each of 100,000 points.

    With jaxlib 0.11.1 each write of fewer than 256 bytes in a loop costs the whole store (https://github.com/jax-ml/jax/issues/40101).
    """
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", shape=(), domain=(t,))
        h = tp.recurrence((), "float32", domain=(t,))
        h[0] = x[0]
        h[t + 1] = tp.tanh(h * 0.5 + x[t + 1])
        k = tp.recurrence((3,), "float32", domain=(t,))
        k[0] = tp.ones((3,))
        k[t + 1] = tp.sin(k * 0.9) + h[t + 1]
        program = context.compile({T: 100_000}, outputs=[h, k])
    x = np.random.default_rng(0).standard_normal(100_000, np.float32)
    return dict(zip(("h", "k"), program.run({"x": x}), strict=True))


def shift_register() -> Mapping[str, Any]:
    """A store that takes over a shifted part of itself, and is read in another shape.

    XLA writes such an update in place while it reads what it has overwritten (https://github.com/openxla/xla/issues/49176).
    """
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", shape=(16,), domain=(t,))
        down, up = (tp.recurrence((8, 16), "float32", domain=(t,)) for _ in range(2))
        down[0], up[0] = tp.zeros((8, 16)), tp.zeros((8, 16))
        down[t + 1] = tp.concatenate([x.reshape((1, 16)), down.spatial[:-1]], 0)
        up[t + 1] = tp.concatenate([up.spatial[1:], x.reshape((1, 16))], 0)
        last = [register[T - 1].reshape((1, 128)) for register in (down, up)]
        window = x[tp.max(t - 6, 0) : t + 1].sum(0)  # of a circular store, where t stays a loop
        config = tp.Config(disable=("vectorize(t)", "lift"))
        program = context.compile({T: 50}, outputs=[down, up, *last, window], config=config)
    x = np.random.default_rng(0).standard_normal((50, 16), np.float32)
    return {"x": x, **dict(zip(("down", "up", "last_down", "last_up", "window"), program.run({"x": x}), strict=True))}


def as_shifted(values: Mapping[str, Any]) -> dict[str, float | str]:
    x = values["x"]
    down, up = np.zeros((50, 8, 16), np.float32), np.zeros((50, 8, 16), np.float32)
    for t in range(1, 50):
        down[t] = np.concatenate([x[t - 1 : t], down[t - 1, :-1]])
        up[t] = np.concatenate([up[t - 1, 1:], x[t - 1 : t]])
    np.testing.assert_array_equal(values["down"], down)
    np.testing.assert_array_equal(values["up"], up)
    np.testing.assert_array_equal(values["last_down"], down[-1].reshape(1, 128))
    np.testing.assert_array_equal(values["last_up"], up[-1].reshape(1, 128))
    np.testing.assert_allclose(values["window"], [x[max(t - 6, 0) : t + 1].sum(0) for t in range(50)], rtol=1e-4, atol=1e-5)
    return {}


_CACHED = """
import numpy as np, tempo_core as tp
context = tp.Context("t")
with context as ((t, T),):
    h = tp.recurrence((4,), "float32", domain=(t,))
    h[0] = tp.random.normal((4,))
    h[t + 1] = tp.tanh(h * 0.9) + tp.random.normal((4,), domain=(t,))
    program = context.compile({T: 100}, outputs=[h], config=tp.Config(cache="cache"))
values = program.run()[0]
print(program.compiles, float(np.abs(values).mean()))
"""


def second_process() -> list[str]:
    """The same program in two processes with one cache.

    Some hosts refuse executables that they compiled themselves (https://github.com/jax-ml/jax/issues/38445); there, every start compiles,
    and this program fails.
    """
    command = [sys.executable, "-c", _CACHED]
    return [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]


def as_kept(printed: list[str]) -> dict[str, float | str]:
    (first, value), (second, same) = (text.split() for text in printed)
    assert int(first) > 0 and second == "0", f"{first} programs compiled, then {second}"
    assert value == same
    return {"mean": float(value)}
