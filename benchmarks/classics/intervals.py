"""Tables over intervals, from a point of one step to a point of another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def pairs(random: Any, N: int) -> dict[str, Array]:
    return {"w": random.normal(size=(N, N))}


# -- what grows from the start of each interval ---------------------------------------------------------------------------------


def growing(N: int) -> Traced:
    """Each interval adds to the mean of those that begin where it does, and end before it; the gradient of the whole."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        w = tp.input("w", domain=(i, j))
        total = tp.recurrence((), domain=(i, j), name="total")
        total[i, j, i < j] = tp.tanh(w + total[i, i:j].mean(0))
        total[i, j, i == j] = w
        total[i, j] = 0.0
        (gradient,) = tp.grad((total**2)[0:n_i, 0:n_j].sum(), wrt=[w])
    return Traced(ctx, {n_i: N, n_j: N}, [total, gradient])


def growing_by_hand(w: Array) -> Any:
    """A loop over the ends, for all starts at once, with the sum of each start."""

    def loss_of(w: Array) -> Any:
        starts = jnp.arange(len(w))

        def step(whole: Array, at: Any) -> Any:
            j, w = at
            longer = jnp.tanh(w + whole / jnp.maximum(j - starts, 1))
            value = jnp.where(starts < j, longer, jnp.where(starts == j, w, 0.0))
            return whole + value, value

        _, rows = lax.scan(step, jnp.zeros(len(w)), (jnp.arange(w.shape[1]), w.T))
        return (rows**2).sum(), rows.T

    (_, total), gradient = jax.value_and_grad(loss_of, has_aux=True)(w)
    return total, gradient


# -- the longest palindrome in a sequence ----------------------------------------------------------------------------------------


def letters(random: Any, N: int) -> dict[str, Array]:
    letter = random.integers(0, 4, N)
    return {"first": letter, "last": letter}


def palindrome(N: int) -> Traced:
    """The letters i to j contain one that is longer by two than that of the letters between, if both ends are the same."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        first, last = tp.input("first", (), "int32", domain=(i,)), tp.input("last", (), "int32", domain=(j,))
        table = tp.recurrence((), "int32", domain=(i, j), name="table")
        table[i, j, i > j] = 0
        table[i, j, i == j] = 1
        shorter = tp.maximum(table[i + 1, j], table[i, j - 1])
        table[i, j] = tp.where(first == last, table[i + 1, j - 1] + 2, shorter)
        longest = table[0, n_j - 1]
    return Traced(ctx, {n_i: N, n_j: N}, [longest])


def palindrome_by_lengths(first: Array, last: Array) -> Any:
    """What begins too late for its length reads around the end: nothing reads it."""

    def next_length(before: tuple[Array, Array], length: Array) -> Any:
        shorter_by_two, shorter = before
        one_side = jnp.maximum(jnp.roll(shorter, -1), shorter)
        now = jnp.where(first == jnp.roll(last, -length), jnp.roll(shorter_by_two, -1) + 2, one_side)
        return (shorter, now), None

    start = jnp.zeros_like(first), jnp.ones_like(first)
    (_, whole), _ = lax.scan(next_length, start, jnp.arange(1, len(first)))
    return (whole[0],)


# -- the cheapest order of a chain of products of matrices ----------------------------------------------------------------------


def dimensions(random: Any, N: int) -> dict[str, Array]:
    return {"rows": random.uniform(1, 9, N), "columns": random.uniform(1, 9, N)}


def chain(N: int) -> Traced:
    """The products i to j cost what both parts cost, before and after the best place k, and one product more."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        rows, columns = tp.input("rows", domain=(i,)), tp.input("columns", domain=(j,))
        cost = tp.recurrence((), domain=(i, j), name="cost")
        cost[i, j, i >= j] = 0.0
        cost[i, j] = (cost[i, i:j] + cost[i + 1 : j + 1, j] + rows * columns * columns[i:j]).min(0)
        least = cost[0, n_j - 1]
    return Traced(ctx, {n_i: N, n_j: N}, [least])


def by_lengths(start: Array, longer: Any) -> Array:
    """The values of all intervals of the greatest length, by one length after the other: those of length 1 are `start`.

    `longer(length, starts, ends)` are all intervals that are longer by one than `length`: `starts[m]` are those of length m + 1 with their
    first point, `ends[m]` those that begin after these end, with their last point.
    """
    N = len(start)
    parts = jnp.arange(N - 1)

    def next_length(charts: tuple[Array, Array], length: Array) -> Any:
        by_start, by_end = charts
        ends = jnp.roll(by_end[jnp.clip(length - 1 - parts, 0)], -length, axis=1)
        value = longer(length, by_start[:-1], ends)
        by_start = by_start.at[length].set(value)
        return (by_start, by_end.at[length].set(jnp.roll(value, length, axis=0))), None

    empty = jnp.zeros((N, *start.shape)).at[0].set(start)
    (by_start, _), _ = lax.scan(next_length, (empty, empty), jnp.arange(1, N))
    return by_start[-1, 0]


def chain_by_lengths(rows: Array, columns: Array) -> Any:
    N = len(rows)
    at = jnp.arange(N)
    middle = columns[jnp.minimum(at[:-1, None] + at, N - 1)]

    def longer(length: Array, starts: Array, ends: Array) -> Array:
        product = rows * columns[jnp.minimum(at + length, N - 1)] * middle
        return jnp.where(at[:-1, None] < length, starts + ends + product, jnp.inf).min(0)

    return (by_lengths(jnp.zeros(N), longer),)


# -- the probability of a sentence by a grammar: Cocke, Younger and Kasami -------------------------------------------------------


def sentence(random: Any, N: int, S: int) -> dict[str, Array]:
    return {"word": random.uniform(0.5, 1, (N, S)), "rule": random.uniform(0, 2 / 3 / S**2, (S, S, S))}


def chart(N: int, S: int) -> Traced:
    """The words i to j are of a kind, if those up to k and those after k are of kinds that a rule joins; the gradient of the whole."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        word, rule = tp.input("word", (S,), domain=(i,)), tp.input("rule", (S, S, S))
        inside = tp.recurrence((S,), domain=(i, j), name="inside")
        inside[i, j, i == j] = word
        inside[i, j, i > j] = 0.0
        pairs = tp.einsum("kb,kc->bc", inside[i, i:j], inside[i + 1 : j + 1, j])
        inside[i, j] = tp.einsum("abc,bc->a", rule, pairs)
        whole = inside[0, n_j - 1].sum()
        (gradient,) = tp.grad(whole, wrt=[rule])
    return Traced(ctx, {n_i: N, n_j: N}, [whole, gradient])


def chart_by_lengths(word: Array, rule: Array) -> Any:
    def whole(rule: Array) -> Array:
        parts = jnp.arange(len(word) - 1)

        def longer(length: Array, starts: Array, ends: Array) -> Array:
            starts = jnp.where((parts < length)[:, None, None], starts, 0.0)
            return jnp.einsum("ibc,abc->ia", jnp.einsum("kib,kic->ibc", starts, ends), rule)

        return by_lengths(word, longer).sum()

    return jax.value_and_grad(whole)(rule)


CLASSICS = [
    Classic(
        "growing intervals",
        growing,
        {"scan": growing_by_hand},
        pairs,
        {"tiny": {"N": 5}, "small": {"N": 16}, "full": {"N": 1200}},
    ),
    Classic(
        "longest palindrome",
        palindrome,
        {"lengths": palindrome_by_lengths},
        letters,
        {"tiny": {"N": 5}, "small": {"N": 25}, "full": {"N": 2000}},
    ),
    Classic(
        "matrix chain",
        chain,
        {"lengths": chain_by_lengths},
        dimensions,
        {"tiny": {"N": 6}, "small": {"N": 16}, "full": {"N": 150}},
    ),
    Classic(
        "parsing by a grammar",
        chart,
        {"lengths": chart_by_lengths},
        sentence,
        {"tiny": {"N": 5, "S": 2}, "small": {"N": 12, "S": 4}, "full": {"N": 60, "S": 16}},
    ),
]
