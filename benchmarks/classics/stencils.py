"""Stencils: a grid whose points are steps, each of which reads its neighbours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- heat on a rod -----------------------------------------------------------------------------------------------------------


def heat(K: int, N: int) -> Traced:
    """The ends keep their heat."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        start = tp.input("start", domain=(i,))
        u = tp.recurrence((), domain=(k, i), name="u")
        u[0, i] = start
        u[k, 0] = u[k - 1, 0]
        u[k, n_i - 1] = u[k - 1, n_i - 1]
        u[k, i] = u[k - 1, i] + 0.2 * (u[k - 1, i - 1] - 2 * u[k - 1, i] + u[k - 1, i + 1])
        last = u[n_k - 1, i]
        (gradient,) = tp.grad((last**2)[0:n_i].sum(0), wrt=[start])
    return Traced(ctx, {n_k: K, n_i: N}, [last, gradient])


def rod(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.normal(size=(N,))}


def heat_by_hand(start: Array, K: int) -> Any:
    def energy(start: Array) -> Any:
        def step(u: Array, _: None) -> Any:
            inner = u[1:-1] + 0.2 * (u[:-2] - 2 * u[1:-1] + u[2:])
            return jnp.concatenate([u[:1], inner, u[-1:]]), None

        last, _ = lax.scan(step, start, None, length=K - 1)
        return (last**2).sum(), last

    (_, last), gradient = jax.value_and_grad(energy, has_aux=True)(start)
    return last, gradient


# -- a wave on a ring -----------------------------------------------------------------------------------------------------------


def wave(K: int, N: int) -> Traced:
    """Two times back; the string's ends are fixed, and its speed differs from place to place."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        start, speed = tp.input("start", domain=(i,)), tp.input("speed", domain=(i,))
        u = tp.recurrence((), domain=(k, i), name="u")
        u[0, i] = start
        u[1, i] = start
        u[k, 0] = 0.0
        u[k, n_i - 1] = 0.0
        bend = u[k - 1, i - 1] - 2 * u[k - 1, i] + u[k - 1, i + 1]
        u[k, i] = 2 * u[k - 1, i] - u[k - 2, i] + speed * bend
        last = u[n_k - 1, i]
        gradients = tp.grad((last**2)[0:n_i].sum(0), wrt=[start, speed])
    return Traced(ctx, {n_k: K, n_i: N}, [last, *gradients])


def string(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.normal(size=(N,)), "speed": random.uniform(0.1, 0.5, (N,))}


def wave_by_hand(start: Array, speed: Array, K: int) -> Any:
    def energy(start: Array, speed: Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            before, now = carry
            bend = now[:-2] - 2 * now[1:-1] + now[2:]
            return (now, jnp.pad(2 * now[1:-1] - before[1:-1] + speed[1:-1] * bend, 1)), None

        (_, last), _ = lax.scan(step, (start, start), None, length=K - 2)
        return (last**2).sum(), last

    (_, last), gradients = jax.value_and_grad(energy, (0, 1), has_aux=True)(start, speed)
    return last, *gradients


# -- Poisson's equation on a square: Jacobi, and Gauss and Seidel -----------------------------------------------------------------


def square(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"source": random.normal(size=(N, N))}


def jacobi(K: int, N: int) -> Traced:
    """Zero at the border."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        source = tp.input("source", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j), name="u")
        u[0, i, j] = 0.0
        u[k, 0, j] = 0.0
        u[k, n_i - 1, j] = 0.0
        u[k, i, 0] = 0.0
        u[k, i, n_j - 1] = 0.0
        around = u[k - 1, i - 1, j] + u[k - 1, i + 1, j] + u[k - 1, i, j - 1] + u[k - 1, i, j + 1]
        u[k, i, j] = 0.25 * (around + source)
        last = u[n_k - 1, i, j]
        (gradient,) = tp.grad((last**2)[0:n_i, 0:n_j].sum(), wrt=[source])
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [last, gradient])


def jacobi_by_hand(source: Array, K: int) -> Any:
    def energy(source: Array) -> Any:
        def step(u: Array, _: None) -> Any:
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            return jnp.pad(0.25 * (around + source[1:-1, 1:-1]), 1), None

        last, _ = lax.scan(step, jnp.zeros_like(source), None, length=K - 1)
        return (last**2).sum(), last

    (_, last), gradient = jax.value_and_grad(energy, has_aux=True)(source)
    return last, gradient


def gauss_seidel(K: int, N: int) -> Traced:
    """As Jacobi, but each point reads the new values above and to the left."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        source = tp.input("source", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j), name="u")
        u[0, i, j] = 0.0
        u[k, 0, j] = 0.0
        u[k, n_i - 1, j] = 0.0
        u[k, i, 0] = 0.0
        u[k, i, n_j - 1] = 0.0
        around = u[k, i - 1, j] + u[k - 1, i + 1, j] + u[k, i, j - 1] + u[k - 1, i, j + 1]
        u[k, i, j] = 0.25 * (around + source)
        last = u[n_k - 1, i, j]
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [last])


def gauss_seidel_by_rows(source: Array, K: int) -> Any:
    """A row is a linear recurrence along j: an associative scan."""
    n = len(source) - 2
    powers = jnp.full((n,), 0.25)

    def row(above: Array, at: Any) -> Any:
        known, below = at
        inner = 0.25 * (above[1:-1] + below[1:-1] + known)
        _, now = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (powers, inner))
        now = jnp.pad(now, 1)
        return now, now[1:-1]

    def sweep(u: Array, _: None) -> Any:
        right = u[1:-1, 2:]
        _, inner = lax.scan(row, u[0], (right + source[1:-1, 1:-1], u[2:]))
        return jnp.pad(inner, 1), None

    return (lax.scan(sweep, jnp.zeros_like(source), None, length=K - 1)[0],)


def gauss_seidel_by_wavefronts(source: Array, K: int) -> Any:
    """Point (i, j) of sweep k at time 2 k + i + j: every second diagonal at once, for all sweeps: a red and black order in place."""
    N = len(source)
    i, j = jnp.arange(N)[:, None], jnp.arange(N)
    inner = (i > 0) & (i < N - 1) & (j > 0) & (j < N - 1)
    number = i + j

    def front(u: Array, time: Array) -> Any:
        left = time - number  # 2 k
        active = inner & (left % 2 == 0) & (left >= 2) & (left <= 2 * (K - 1))
        around = jnp.pad(u[:-1], ((1, 0), (0, 0))) + jnp.pad(u[1:], ((0, 1), (0, 0)))
        around += jnp.pad(u[:, :-1], ((0, 0), (1, 0))) + jnp.pad(u[:, 1:], ((0, 0), (0, 1)))
        return jnp.where(active, 0.25 * (around + source), u), None

    return (lax.scan(front, jnp.zeros_like(source), jnp.arange(4, 2 * (K - 1) + 2 * (N - 2) + 1))[0],)


# -- Conway's game of life ---------------------------------------------------------------------------------------------------------


def life(K: int, N: int) -> Traced:
    """On a torus; the board is a dimension."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        board = tp.recurrence((N, N), "int32", domain=(k,), name="board")
        board[0] = tp.input("start", (N, N), "int32")
        rows = board.roll(1, 0) + board + board.roll(-1, 0)
        count = rows.roll(1, 1) + rows + rows.roll(-1, 1) - board
        board[k + 1] = tp.where(tp.logical_or(count == 3, tp.logical_and(count == 2, board == 1)), 1, 0)
        alive = board.sum()
    return Traced(ctx, {n_k: K}, [alive, board[n_k - 1]])


def board(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.integers(0, 2, (N, N))}


def life_by_hand(start: Array, K: int) -> Any:
    def step(board: Array, _: None) -> Any:
        rows = jnp.roll(board, 1, 0) + board + jnp.roll(board, -1, 0)
        count = jnp.roll(rows, 1, 1) + rows + jnp.roll(rows, -1, 1) - board
        after = jnp.where((count == 3) | ((count == 2) & (board == 1)), 1, 0)
        return after, after.sum()

    last, alive = lax.scan(step, start, None, length=K - 1)
    return jnp.concatenate([start.sum()[None], alive]), last


LINE = {
    "tiny": {"K": 5, "N": 6},
    "small": {"K": 10, "N": 32},
    "full": {"K": 1000, "N": 16_000},
    "long": {"K": 100_000, "N": 8},
}
GRID = {
    "tiny": {"K": 4, "N": 5},
    "small": {"K": 5, "N": 12},
    "full": {"K": 200, "N": 200},
    "long": {"K": 100_000, "N": 4},
}
SWEEP = GRID | {"full": {"K": 50, "N": 200}}
BOARD = {
    "tiny": {"K": 3, "N": 8},
    "small": {"K": 10, "N": 12},
    "full": {"K": 500, "N": 128},
    "long": {"K": 100_000, "N": 8},
}
CLASSICS = [
    Classic("heat", heat, {"scan": heat_by_hand}, rod, LINE),
    Classic("wave", wave, {"scan": wave_by_hand}, string, LINE),
    Classic("Jacobi", jacobi, {"scan": jacobi_by_hand}, square, GRID),
    Classic(
        "Gauss-Seidel", gauss_seidel, {"rows": gauss_seidel_by_rows, "wavefronts": gauss_seidel_by_wavefronts}, square, SWEEP
    ),
    Classic("game of life", life, {"scan": life_by_hand}, board, BOARD),
]
