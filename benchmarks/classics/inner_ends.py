"""Loops inside of loops that end where data decide: each outer point has its own number of iterations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- an implicit method, with Newton's iteration to a tolerance -----------------------------------------------------------------

STEP, SMALL = 0.2, 1e-4


def stiff(random: Any, T: int, K: int, N: int) -> dict[str, Array]:
    return {
        "rate": random.uniform(0.1, 30.0, (N,)),
        "weight": 3 * random.normal(size=(N, N)) / np.sqrt(N),
        "force": 3 * random.normal(size=(T, N)),
        "start": random.normal(size=(N,)),
    }


def implicit_newton(T: int, K: int, N: int) -> Traced:
    """y' = force + tanh(y @ weight) - rate * y**3, the last part implicit, in K iterations at most."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, n_t), (k, n_k)):
        rate, weight, start = tp.input("rate", (N,)), tp.input("weight", (N, N)), tp.input("start", (N,))
        force = tp.input("force", (N,), domain=(t,))
        y = tp.recurrence((N,), domain=(t,), name="y")
        z = tp.recurrence((N,), domain=(t, k), name="z")
        explicit = y + STEP * (force + tp.tanh(y @ weight))
        rest = z + STEP * rate * z**3 - explicit
        z[t, 0] = y
        z[t, k + 1] = z - rest / (1 + 3 * STEP * rate * z**2)
        ctx.ends(k, when=abs(rest).max() < SMALL, each=t)
        y[0] = start
        y[t + 1] = z[t, n_k - 1]
        count = (tp.ones(()) * n_k)[0:n_t].sum(0)
    return Traced(ctx, {n_t: T, n_k: K}, [y[n_t - 1], count])


def implicit_newton_by_hand(rate: Array, weight: Array, force: Array, start: Array, K: int) -> Any:
    def solved(y: Array, force: Array) -> Any:
        explicit = y + STEP * (force + jnp.tanh(y @ weight))

        def rest_of(z: Array) -> Array:
            return z + STEP * rate * z**3 - explicit

        def goes_on(carry: Any) -> Array:
            k, _, rest = carry
            return (k < K - 1) & (jnp.abs(rest).max() >= SMALL)

        def step(carry: Any) -> Any:
            k, z, rest = carry
            z = z - rest / (1 + 3 * STEP * rate * z**2)
            return k + 1, z, rest_of(z)

        k, z, _ = lax.while_loop(goes_on, step, (0, y, rest_of(y)))
        return z, k + 1.0

    def step(carry: Any, force: Array) -> Any:
        y, count = carry
        following, k = solved(y, force)
        return (following, count + k), None

    (y, count), _ = lax.scan(step, (start, 0.0), force[:-1])
    return y, count + solved(y, force[-1])[1]


# -- the search for a pattern (Knuth, Morris and Pratt) -------------------------------------------------------------------------


def texts(random: Any, T: int, M: int) -> dict[str, Array]:
    pattern = random.integers(0, 2, M)
    text = np.where(random.uniform(size=T) < 0.05, random.integers(0, 2, T), np.resize(pattern, T))
    fail, q = [0, 0], 0
    for letter in pattern[1:]:
        while q and pattern[q] != letter:
            q = fail[q]
        q += int(pattern[q] == letter)
        fail.append(q)
    return {"text": text.astype(np.int32), "pattern": pattern.astype(np.int32), "fail": np.array(fail, np.int32)}


def search(T: int, M: int) -> Traced:
    """How much of the pattern each place of the text ends, and how often all of it."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, n_t), (k, n_k)):
        text = tp.input("text", (), "int32", domain=(t,))
        pattern, fail = tp.input("pattern", (M,), "int32"), tp.input("fail", (M + 1,), "int32")
        state = tp.recurrence((), "int32", domain=(t,), name="state")
        q = tp.recurrence((), "int32", domain=(t, k), name="q")
        fits = (q < M) & (pattern.index(0, q) == text)
        q[t, 0] = state
        q[t, k + 1] = fail.index(0, q)
        ctx.ends(k, when=fits | (q == 0), each=t)
        following = q[t, n_k - 1] + fits[t, n_k - 1].astype("int32")
        state[0] = 0
        state[t + 1] = following
        found = (following == M)[0:n_t].astype("int32").sum(0)
    return Traced(ctx, {n_t: T, n_k: M + 1}, [following, found])


def search_by_hand(text: Array, pattern: Array, fail: Array, M: int) -> Any:
    def step(state: Array, letter: Array) -> Any:
        def fits(q: Array) -> Array:
            return (q < M) & (pattern[jnp.minimum(q, M - 1)] == letter)

        q = lax.while_loop(lambda q: ~(fits(q) | (q == 0)), lambda q: fail[q], state)
        state = q + fits(q).astype(jnp.int32)
        return state, state

    _, states = lax.scan(step, jnp.int32(0), text)
    return states, (states == M).sum(dtype=jnp.int32)


# -- descent, with steps that are halved until they are short enough ------------------------------------------------------------


def valleys(random: Any, T: int, K: int, N: int) -> dict[str, Array]:
    return {
        "matrix": random.normal(size=(N, N)) / np.sqrt(N),
        "target": 3 * random.normal(size=(T, N)),
        "start": random.normal(size=(N,)),
    }


def line_search(T: int, K: int, N: int) -> Traced:
    """A step of descent on the sum of (x @ matrix - target)**2 and x**4 for each target, halved K times at most."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, n_t), (k, n_k)):
        matrix, start = tp.input("matrix", (N, N)), tp.input("start", (N,))
        target = tp.input("target", (N,), domain=(t,))
        x = tp.recurrence((N,), domain=(t,), name="x")
        size = tp.recurrence((), domain=(t, k), name="size")

        def height(x: tp.Tensor) -> tp.Tensor:
            return ((x @ matrix - target) ** 2).sum() + (x**4).sum()

        here, slope = height(x), 2 * (matrix @ (x @ matrix - target)) + 4 * x**3
        size[t, 0] = 1.0
        size[t, k + 1] = size * 0.5
        trial = x - size * slope
        ctx.ends(k, when=height(trial) <= here - 0.3 * size * (slope * slope).sum(), each=t)
        x[0] = start
        x[t + 1] = trial[t, n_k - 1]
    return Traced(ctx, {n_t: T, n_k: K}, [here])


def line_search_by_hand(matrix: Array, target: Array, start: Array, K: int) -> Any:
    def step(x: Array, target: Array) -> Any:
        def height(x: Array) -> Array:
            return ((x @ matrix - target) ** 2).sum() + (x**4).sum()

        here, slope = height(x), 2 * (matrix @ (x @ matrix - target)) + 4 * x**3
        square = (slope * slope).sum()

        def goes_on(carry: Any) -> Array:
            k, size = carry
            return (k < K - 1) & (height(x - size * slope) > here - 0.3 * size * square)

        _, size = lax.while_loop(goes_on, lambda carry: (carry[0] + 1, carry[1] * 0.5), (0, jnp.float32(1.0)))
        return x - size * slope, here

    return (lax.scan(step, start, target)[1],)


SOLVERS = {
    "tiny": {"T": 4, "K": 6, "N": 3},
    "small": {"T": 50, "K": 30, "N": 8},
    "full": {"T": 1000, "K": 30, "N": 256},
    "long": {"T": 100_000, "K": 30, "N": 4},
}
CLASSICS = [
    Classic(
        "implicit Newton until converged",
        implicit_newton,
        {"scan of while": implicit_newton_by_hand},
        stiff,
        SOLVERS,
        tolerance=1e-3,
        reason="one iteration more or less",
    ),
    Classic(
        "pattern search",
        search,
        {"scan of while": search_by_hand},
        texts,
        {
            "tiny": {"T": 12, "M": 3},
            "small": {"T": 500, "M": 8},
            "full": {"T": 1_000_000, "M": 64},
            "long": {"T": 100_000, "M": 8},
        },
        tolerance=0.0,
        reason="integers",
    ),
    Classic(
        "descent with a line search",
        line_search,
        {"scan of while": line_search_by_hand},
        valleys,
        SOLVERS,
        tolerance=1e-2,
        reason="a step is halved once more or less where the height hardly changes",
    ),
]
