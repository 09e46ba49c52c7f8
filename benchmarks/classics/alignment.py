"""Alignment of two sequences: a table over the positions of both, in which each entry depends on three neighbours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def diagonals(values: Array) -> Array:
    """[..., M, N] as [M + N - 1, ..., M]: entry (d, i) is that of (i, d - i). Outside of the table entries repeat its edge."""
    M, N = values.shape[-2:]
    column = jnp.clip(jnp.arange(M + N - 1)[:, None] - jnp.arange(M), 0, N - 1)
    return jnp.moveaxis(values[..., jnp.arange(M), column], -2, 0)


# -- edit distance ----------------------------------------------------------------------------------------------------------


def words(random: Any, B: int, M: int, N: int) -> dict[str, Array]:
    return {"first": random.integers(0, 4, (B, M)), "second": random.integers(0, 4, (B, N))}


def edit_distance(B: int, M: int, N: int) -> Traced:
    """The table has a border: entry (i, j) is the distance of the first i letters from the first j letters."""
    ctx = tp.Context("b", "i", "j")
    with ctx as ((b, n_b), (i, n_i), (j, n_j)):
        first = tp.input("first", (M,), "int32", domain=(b,))
        second = tp.input("second", (N,), "int32", domain=(b,))
        table = tp.recurrence((), "int32", domain=(b, i, j), name="table")
        table[b, 0, j] = j
        table[b, i, 0] = i
        change = tp.where(first.index(0, i - 1) == second.index(0, j - 1), 0, 1)
        one_side = tp.minimum(table[b, i - 1, j], table[b, i, j - 1]) + 1
        table[b, i, j] = tp.minimum(one_side, table[b, i - 1, j - 1] + change)
        distance = table[b, n_i - 1, n_j - 1]
    return Traced(ctx, {n_b: B, n_i: M + 1, n_j: N + 1}, [distance])


def edit_distance_by_rows(first: Array, second: Array) -> Any:
    """Rows in a scan. Within a row, min over k <= j of (value[k] + j - k) is a running minimum."""
    columns = jnp.arange(second.shape[1] + 1)

    def row(before: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
        i, letter = at
        change = (letter[:, None] != second).astype(jnp.int32)
        inner = jnp.minimum(before[:, 1:] + 1, before[:, :-1] + change)
        edge = jnp.broadcast_to(i, (len(first), 1))
        return lax.cummin(jnp.concatenate([edge, inner], 1) - columns, 1) + columns, None

    start = jnp.broadcast_to(columns, (len(first), columns.size))
    last, _ = lax.scan(row, start, (jnp.arange(1, first.shape[1] + 1), first.T))
    return (last[:, -1],)


def edit_distance_by_diagonals(first: Array, second: Array) -> Any:
    B, M = first.shape
    N = second.shape[1]
    change = diagonals((first[:, :, None] != second[:, None, :]).astype(jnp.int32))  # entry (d, i): letters i and d - i
    rows = jnp.arange(M + 1)

    def diagonal(carry: Any, at: Any) -> Any:
        two_before, before = carry
        d, change = at
        side = jnp.minimum(before[:, 1:], before[:, :-1]) + 1
        inner = jnp.minimum(side, two_before[:, :-1] + change)
        now = jnp.concatenate([jnp.broadcast_to(d, (B, 1)), inner], 1)
        return (before, jnp.where(rows == d, d, now)), None

    start = jnp.zeros((B, M + 1), jnp.int32)
    second_diagonal = jnp.broadcast_to(jnp.where(rows < 2, 1, 0), (B, M + 1)).astype(jnp.int32)
    (_, last), _ = lax.scan(diagonal, (start, second_diagonal), (jnp.arange(2, M + N + 1), change))
    return (last[:, M],)


# -- Smith and Waterman: the best local alignment ---------------------------------------------------------------------------


def scores(random: Any, B: int, M: int, N: int) -> dict[str, Array]:
    return {"score": random.normal(size=(B, M, N))}


GAP = 0.4


def local_alignment(B: int, M: int, N: int) -> Traced:
    """The table has a border of zeros; the scores there are not read."""
    ctx = tp.Context("b", "i", "j")
    with ctx as ((b, n_b), (i, n_i), (j, n_j)):
        score = tp.input("score", domain=(b, i, j))
        table = tp.recurrence((), domain=(b, i, j), name="table")
        table[b, 0, j] = 0.0
        table[b, i, 0] = 0.0
        aligned = tp.maximum(table[b, i - 1, j - 1] + score, 0.0)
        table[b, i, j] = tp.maximum(aligned, tp.maximum(table[b, i - 1, j], table[b, i, j - 1]) - GAP)
        best = table[b, 0:n_i, 0:n_j].max((0, 1))
        (gradient,) = tp.grad(best[0:n_b].sum(0), wrt=[score])
    return Traced(ctx, {n_b: B, n_i: M, n_j: N}, [best, gradient])


def local_alignment_by_hand(score: Array) -> Any:
    """Diagonals of the table without its border in a scan. Beside the table entries are zero."""
    B, M, N = score.shape[0], score.shape[1] - 1, score.shape[2] - 1
    number = jnp.arange(M + N - 1)[:, None] - jnp.arange(M)
    inside = (number >= 0) & (number < N)

    def total(score: Array) -> Any:
        def diagonal(carry: Any, at: Any) -> Any:
            two_before, before = carry
            score, inside = at
            up = jnp.pad(before[:, :-1], ((0, 0), (1, 0)))
            corner = jnp.pad(two_before[:, :-1], ((0, 0), (1, 0)))
            now = jnp.maximum(jnp.maximum(corner + score, 0.0), jnp.maximum(up, before) - GAP)
            now = jnp.where(inside, now, 0.0)
            return (before, now), now

        nothing = jnp.zeros((B, M))
        _, table = lax.scan(diagonal, (nothing, nothing), (diagonals(score[:, 1:, 1:]), inside))
        best = table.max((0, 2))
        return best.sum(), best

    (_, best), gradient = jax.value_and_grad(total, has_aux=True)(score)
    return best, gradient


# -- dynamic time warping with a soft minimum ------------------------------------------------------------------------------


def series(random: Any, B: int, M: int, N: int) -> dict[str, Array]:
    return {"first": random.normal(size=(B, M)), "second": random.normal(size=(B, N))}


def softmin(a: Any, b: Any, c: Any, package: Any) -> Any:
    return -package.logaddexp(package.logaddexp(-a, -b), -c)


def soft_dtw(B: int, M: int, N: int) -> Traced:
    ctx = tp.Context("b", "i", "j")
    with ctx as ((b, n_b), (i, n_i), (j, n_j)):
        first, second = tp.input("first", domain=(b, i)), tp.input("second", domain=(b, j))
        cost = (first - second) ** 2
        table = tp.recurrence((), domain=(b, i, j), name="table")
        table[b, 0, 0] = cost[b, 0, 0]
        table[b, 0, j] = cost[b, 0, j] + table[b, 0, j - 1]
        table[b, i, 0] = cost[b, i, 0] + table[b, i - 1, 0]
        table[b, i, j] = cost + softmin(table[b, i - 1, j - 1], table[b, i - 1, j], table[b, i, j - 1], tp)
        distance = table[b, n_i - 1, n_j - 1]
        gradients = tp.grad(distance[0:n_b].sum(0), wrt=[first, second])
    return Traced(ctx, {n_b: B, n_i: M, n_j: N}, [distance, *gradients])


FAR = 1e10


def soft_dtw_by_hand(first: Array, second: Array) -> Any:
    B, M = first.shape
    N = second.shape[1]
    number = jnp.arange(M + N - 1)[:, None] - jnp.arange(M)
    inside = (number >= 0) & (number < N)

    def total(first: Array, second: Array) -> Any:
        costs = diagonals((first[:, :, None] - second[:, None, :]) ** 2)

        def diagonal(carry: Any, at: Any) -> Any:
            two_before, before = carry
            cost, inside = at
            up = jnp.pad(before[:, :-1], ((0, 0), (1, 0)), constant_values=FAR)
            corner = jnp.pad(two_before[:, :-1], ((0, 0), (1, 0)), constant_values=FAR)
            now = jnp.where(inside, cost + softmin(corner, up, before, jnp), FAR)
            return (before, now), None

        far = jnp.full((B, M), FAR)
        start = jnp.where(jnp.arange(M) == 0, costs[0], FAR)
        (_, last), _ = lax.scan(diagonal, (far, start), (costs[1:], inside[1:]))
        distance = last[:, M - 1]
        return distance.sum(), distance

    (_, distance), gradients = jax.value_and_grad(total, (0, 1), has_aux=True)(first, second)
    return distance, *gradients


TABLE = {
    "tiny": {"B": 2, "M": 4, "N": 5},
    "small": {"B": 1, "M": 8, "N": 10},
    "full": {"B": 8, "M": 200, "N": 300},
    "long": {"B": 1, "M": 4, "N": 100_000},
}
WORDS = TABLE | {"full": {"B": 32, "M": 400, "N": 500}}
ROUNDED_SUMS = "gradients are exponentials of sums of 1e5 at 100,000 points: by hand off by 3e-3 from float64, Tempo's by 3e-5"
CLASSICS = [
    Classic(
        "edit distance", edit_distance, {"rows": edit_distance_by_rows, "diagonals": edit_distance_by_diagonals}, words, WORDS
    ),
    Classic("local alignment", local_alignment, {"diagonals": local_alignment_by_hand}, scores, TABLE),
    Classic("soft-DTW", soft_dtw, {"diagonals": soft_dtw_by_hand}, series, TABLE, 5e-3, ROUNDED_SUMS),
]
