"""Grids that change as wholes: automata, reactions that diffuse, filters, sweeps along rows and columns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- Conway's game of life, its places as steps ---------------------------------------------------------------------------------


def board(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.integers(0, 2, (N, N))}


def life(K: int, N: int) -> Traced:
    """On a torus."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        alive = tp.recurrence((), "int32", domain=(k, i, j), name="alive")
        alive[0, i, j] = tp.input("start", (), "int32", domain=(i, j))
        before = alive[k - 1, i, j]
        up, down = (i - 1) % N, (i + 1) % N
        left, right = (j - 1) % N, (j + 1) % N
        count = sum(alive[k - 1, row, column] for row in (up, i, down) for column in (left, j, right)) - before
        alive[k, i, j] = tp.where(tp.logical_or(count == 3, tp.logical_and(count == 2, before == 1)), 1, 0)
        total = alive[k, 0:n_i, 0:n_j].sum((0, 1))
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [total, alive[n_k - 1, i, j]])


def life_by_hand(start: Array, K: int) -> Any:
    def step(alive: Array, _: None) -> Any:
        rows = jnp.roll(alive, 1, 0) + alive + jnp.roll(alive, -1, 0)
        count = jnp.roll(rows, 1, 1) + rows + jnp.roll(rows, -1, 1) - alive
        after = jnp.where((count == 3) | ((count == 2) & (alive == 1)), 1, 0)
        return after, after.sum()

    last, totals = lax.scan(step, start, None, length=K - 1)
    return jnp.concatenate([start.sum()[None], totals]), last


# -- an automaton of one row ------------------------------------------------------------------------------------------------------


def row(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.integers(0, 2, (N,)), "rule": np.array([0, 1, 1, 1, 0, 1, 1, 0])}


def automaton(K: int, N: int) -> Traced:
    """Rule 110 on a ring."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        rule = tp.input("rule", (8,), "int32")
        cells = tp.recurrence((N,), "int32", domain=(k,), name="cells")
        left = tp.concatenate([cells.spatial[N - 1 :], cells.spatial[: N - 1]])
        right = tp.concatenate([cells.spatial[1:], cells.spatial[:1]])
        cells[0] = tp.input("start", (N,), "int32")
        cells[k + 1] = rule.take(4 * left + 2 * cells + right)
        alive = cells.sum(0)
    return Traced(ctx, {n_k: K}, [alive, cells[n_k - 1]])


def automaton_by_hand(start: Array, rule: Array, K: int) -> Any:
    def step(cells: Array, _: None) -> Any:
        left = jnp.concatenate([cells[-1:], cells[:-1]])
        right = jnp.concatenate([cells[1:], cells[:1]])
        after = rule[4 * left + 2 * cells + right]
        return after, after.sum()

    last, alive = lax.scan(step, start, None, length=K - 1)
    return jnp.concatenate([start.sum()[None], alive]), last


# -- a reaction that diffuses: Gray and Scott -------------------------------------------------------------------------------------

FEED, KILL = 0.04, 0.06


def dish(random: Any, K: int, N: int) -> dict[str, Array]:
    seeds = random.uniform(size=(N, N)) < 0.1
    return {"u": 1.0 - 0.5 * seeds, "v": 0.25 * seeds + 0.01 * random.uniform(size=(N, N))}


def diffusion(x: Any, package: Any) -> Any:
    """What flows in from the four neighbours, in either language."""
    around = package.roll(x, 1, 0) + package.roll(x, -1, 0) + package.roll(x, 1, 1) + package.roll(x, -1, 1)
    return around - 4 * x


def gray_scott(K: int, N: int) -> Traced:
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        u, v = tp.recurrence((N, N), domain=(k,), name="u"), tp.recurrence((N, N), domain=(k,), name="v")
        reacts = u * v * v
        tp.carry(u, tp.input("u", (N, N)), u + 0.16 * diffusion(u, tp) - reacts + FEED * (1 - u))
        tp.carry(v, tp.input("v", (N, N)), v + 0.08 * diffusion(v, tp) + reacts - (FEED + KILL) * v)
    return Traced(ctx, {n_k: K}, [u[n_k - 1], v[n_k - 1]])


def gray_scott_by_hand(u: Array, v: Array, K: int) -> Any:
    def step(carry: Any, _: None) -> Any:
        u, v = carry
        reacts = u * v * v
        following = u + 0.16 * diffusion(u, jnp) - reacts + FEED * (1 - u)
        return (following, v + 0.08 * diffusion(v, jnp) + reacts - (FEED + KILL) * v), None

    return lax.scan(step, (u, v), None, length=K - 1)[0]


# -- a box of 3 x 3 points, averaged again and again --------------------------------------------------------------------------------


def picture(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.normal(size=(N, N))}


def box(K: int, N: int) -> Traced:
    """The border keeps its values; and the gradient of the sum of squares."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        start = tp.input("start", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j), name="u")
        u[0, i, j] = start
        u[k, 0, j] = u[k - 1, 0, j]
        u[k, n_i - 1, j] = u[k - 1, n_i - 1, j]
        u[k, i, 0] = u[k - 1, i, 0]
        u[k, i, n_j - 1] = u[k - 1, i, n_j - 1]
        u[k, i, j] = u[k - 1, i - 1 : i + 2, j - 1 : j + 2].mean((0, 1))
        last = u[n_k - 1, i, j]
        (gradient,) = tp.grad((last**2)[0:n_i, 0:n_j].sum(), wrt=[start])
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [last, gradient])


def box_by_hand(start: Array, K: int) -> Any:
    """Rows first, then columns."""

    def energy(start: Array) -> Any:
        def step(u: Array, _: None) -> Any:
            rows = u[:-2] + u[1:-1] + u[2:]
            inner = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9
            return u.at[1:-1, 1:-1].set(inner), None

        last, _ = lax.scan(step, start, None, length=K - 1)
        return (last**2).sum(), last

    (_, last), gradient = jax.value_and_grad(energy, has_aux=True)(start)
    return last, gradient


# -- heat by alternating directions: a tridiagonal system for each row, then one for each column -----------------------------------

HEAT = 0.5  # of a half step


def ratios(N: int) -> Any:
    """What elimination does to the entries above the diagonal: those of -HEAT, 1 + 2 HEAT, -HEAT; they do not depend on data."""
    values = [-HEAT / (1 + 2 * HEAT)]
    for _ in range(N - 1):
        values.append(-HEAT / (1 + 2 * HEAT + HEAT * values[-1]))
    return np.array(values, np.float32)


def alternating(K: int, N: int) -> Traced:
    """Peaceman and Rachford; zero beside the grid. A half step is explicit along one direction, and implicit along the other."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        u = tp.recurrence((), domain=(k, i, j), name="u")
        half, half_rest = (tp.recurrence((), domain=(k, i, j), name=name) for name in ("half", "half_rest"))
        full, full_rest = (tp.recurrence((), domain=(k, i, j), name=name) for name in ("full", "full_rest"))
        ratio = tp.recurrence((), domain=(i,), name="ratio")
        ratio[0] = -HEAT / (1 + 2 * HEAT)
        ratio[i] = -HEAT / (1 + 2 * HEAT + HEAT * ratio[i - 1])
        pivot = -HEAT / ratio  # 1 + 2 HEAT + HEAT * ratio[i - 1]

        above, below = u[k, tp.max(i - 1, 0), j], u[k, tp.min(i + 1, n_i - 1), j]
        source = u + HEAT * (tp.where(i > 0, above, 0.0) - 2 * u + tp.where(i < n_i - 1, below, 0.0))
        half_rest[k, i, 0] = source[k, i, 0] / pivot[0]
        half_rest[k, i, j] = (source + HEAT * half_rest[k, i, j - 1]) / pivot[j]
        half[k, i, n_j - 1] = half_rest[k, i, n_j - 1]
        half[k, i, j] = half_rest - ratio[j] * half[k, i, j + 1]

        left, right = half[k, i, tp.max(j - 1, 0)], half[k, i, tp.min(j + 1, n_j - 1)]
        source = half + HEAT * (tp.where(j > 0, left, 0.0) - 2 * half + tp.where(j < n_j - 1, right, 0.0))
        full_rest[k, 0, j] = source[k, 0, j] / pivot[0]
        full_rest[k, i, j] = (source + HEAT * full_rest[k, i - 1, j]) / pivot[i]
        full[k, n_i - 1, j] = full_rest[k, n_i - 1, j]
        full[k, i, j] = full_rest - ratio[i] * full[k, i + 1, j]
        u[0, i, j] = tp.input("start", domain=(i, j))
        u[k + 1, i, j] = full
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [u[n_k - 1, i, j]])


def alternating_by_hand(start: Array, K: int) -> Any:
    ratio = ratios(len(start))
    pivot = -HEAT / ratio

    def solve(source: Array) -> Array:
        """Along the first dimension."""

        def forwards(rest: Array, at: Any) -> Any:
            source, pivot = at
            rest = (source + HEAT * rest) / pivot
            return rest, rest

        def backwards(x: Array, at: Any) -> Any:
            rest, ratio = at
            x = rest - ratio * x
            return x, x

        nothing = jnp.zeros_like(source[0])
        _, rest = lax.scan(forwards, nothing, (source, pivot))
        return lax.scan(backwards, nothing, (rest, ratio), reverse=True)[1]

    def explicit(u: Array) -> Array:
        """Along the first dimension."""
        wide = jnp.pad(u, ((1, 1), (0, 0)))
        return u + HEAT * (wide[:-2] - 2 * u + wide[2:])

    def step(u: Array, _: None) -> Any:
        half = solve(explicit(u).T).T
        return solve(explicit(half.T).T), None

    return (lax.scan(step, start, None, length=K - 1)[0],)


# -- a ring of places: Lorenz's model of the weather -------------------------------------------------------------------------------


PACE = 1e-4  # short: the model is chaotic, and rounding errors grow


def ring(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": 8.0 + random.normal(size=(N,)), "force": 8.0 + 0.1 * random.normal(size=(N,))}


def weather(K: int, N: int) -> Traced:
    """x' = (x[i + 1] - x[i - 2]) x[i - 1] - x + force, on a ring of steps."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        start, force = tp.input("start", domain=(i,)), tp.input("force", domain=(i,))
        x = tp.recurrence((), domain=(k, i), name="x")
        x[0, i] = start
        before, following = x[k - 1, (i - 1) % N], x[k - 1, (i + 1) % N]
        change = (following - x[k - 1, (i - 2) % N]) * before - x[k - 1, i] + force
        x[k, i] = x[k - 1, i] + PACE * change
        last = x[n_k - 1, i]
        energy = (x**2)[k, 0:n_i].mean(0)
    return Traced(ctx, {n_k: K, n_i: N}, [last, energy])


def weather_by_hand(start: Array, force: Array, K: int) -> Any:
    def step(x: Array, _: None) -> Any:
        change = (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + force
        x = x + PACE * change
        return x, (x**2).mean()

    last, energy = lax.scan(step, start, None, length=K - 1)
    return last, jnp.concatenate([(start**2).mean()[None], energy])


BOARD = {
    "tiny": {"K": 3, "N": 8},
    "small": {"K": 10, "N": 8},
    "full": {"K": 200, "N": 128},
    "long": {"K": 100_000, "N": 4},
}
ROW = {
    "tiny": {"K": 4, "N": 7},
    "small": {"K": 20, "N": 32},
    "full": {"K": 1000, "N": 10_000},
    "long": {"K": 100_000, "N": 16},
}
PICTURE = {
    "tiny": {"K": 3, "N": 5},
    "small": {"K": 5, "N": 12},
    "full": {"K": 100, "N": 200},
    "long": {"K": 100_000, "N": 4},
}
CLASSICS = [
    Classic("game of life, places as steps", life, {"scan": life_by_hand}, board, BOARD),
    Classic("automaton", automaton, {"scan": automaton_by_hand}, row, ROW),
    Classic("Gray-Scott", gray_scott, {"scan": gray_scott_by_hand}, dish, BOARD),
    Classic("box filter", box, {"scan": box_by_hand}, picture, PICTURE),
    Classic("alternating directions", alternating, {"scans": alternating_by_hand}, picture, PICTURE),
    Classic(
        "weather on a ring",
        weather,
        {"scan": weather_by_hand},
        ring,
        ROW,
        tolerance=1e-3,
        reason="the model is chaotic",
    ),
]
