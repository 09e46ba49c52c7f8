"""Lengths that each run chooses, a tenth of the capacity, and lengths that a run finds out.

By hand, a program is compiled for the lengths of its inputs, or it is a loop that ends early. Rows of fixed lengths stand beside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics import alignment, hidden_markov, returns, statistics
from benchmarks.classics.classic import Array, Classic, Traced

TIMES = 10  # the capacity is so many times the length


def chosen(program: Callable[..., Traced], *lengths: int, times: int = TIMES) -> Callable[..., Traced]:
    """The program with bounds that each run chooses: those at the places `lengths` of its context."""

    def with_capacities(**sizes: int) -> Traced:
        traced = program(**sizes)
        bounds = {
            bound: tp.upto(times * value, at_least=2) if place in lengths else value
            for place, (bound, value) in enumerate(traced.bounds.items())
        }
        return Traced(traced.context, bounds, traced.outputs)

    return with_capacities


# -- the longest common subsequence -----------------------------------------------------------------------------------------


def letters(random: Any, M: int, N: int) -> dict[str, Array]:
    return {"first": random.integers(0, 4, (M,)), "second": random.integers(0, 4, (N,))}


def common(M: int, N: int) -> Traced:
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        first, second = tp.input("first", (), "int32", domain=(i,)), tp.input("second", (), "int32", domain=(j,))
        same = tp.where(first == second, 1, 0)
        table = tp.recurrence((), "int32", domain=(i, j), name="table")
        table[0, 0] = same[0, 0]
        table[0, j] = tp.maximum(same[0, j], table[0, j - 1])
        table[i, 0] = tp.maximum(same[i, 0], table[i - 1, 0])
        table[i, j] = tp.maximum(table[i - 1, j - 1] + same, tp.maximum(table[i - 1, j], table[i, j - 1]))
        length = table[n_i - 1, n_j - 1]
    return Traced(ctx, {n_i: M, n_j: N}, [length])


def common_by_rows(first: Array, second: Array) -> Any:
    def row(above: Array, letter: Array) -> Any:
        corner = jnp.pad(above[:-1], (1, 0))
        return lax.cummax(jnp.maximum(above, corner + (letter == second))), None

    return (lax.scan(row, jnp.zeros_like(second), first)[0][-1],)


def common_by_diagonals(first: Array, second: Array) -> Any:
    M, N = len(first), len(second)
    same = alignment.diagonals((first[:, None] == second).astype(jnp.int32))
    number = jnp.arange(M + N - 1)[:, None] - jnp.arange(M)

    def diagonal(carry: Any, at: Any) -> Any:
        two_before, before = carry
        same, inside = at
        up, corner = jnp.pad(before[:-1], (1, 0)), jnp.pad(two_before[:-1], (1, 0))
        now = jnp.where(inside, jnp.maximum(corner + same, jnp.maximum(up, before)), 0)
        return (before, now), None

    nothing = jnp.zeros(M, jnp.int32)
    (_, last), _ = lax.scan(diagonal, (nothing, nothing), (same, (number >= 0) & (number < N)))
    return (last[-1],)


def batches(random: Any, B: int, M: int, N: int) -> dict[str, Array]:
    return {"first": random.integers(0, 4, (M, B)), "second": random.integers(0, 4, (N, B))}


def common_of_batches(B: int, M: int, N: int) -> Traced:
    """As above, for many pairs: an entry of the table is a vector."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        first, second = tp.input("first", (B,), "int32", domain=(i,)), tp.input("second", (B,), "int32", domain=(j,))
        same = tp.where(first == second, 1, 0)
        table = tp.recurrence((B,), "int32", domain=(i, j), name="table")
        table[0, 0] = same[0, 0]
        table[0, j] = tp.maximum(same[0, j], table[0, j - 1])
        table[i, 0] = tp.maximum(same[i, 0], table[i - 1, 0])
        table[i, j] = tp.maximum(table[i - 1, j - 1] + same, tp.maximum(table[i - 1, j], table[i, j - 1]))
        length = table[n_i - 1, n_j - 1]
    return Traced(ctx, {n_i: M, n_j: N}, [length])


def of_batches(form: Callable[..., Any], axis: int) -> Callable[..., Any]:
    """A form by hand for one pair, for all pairs at once: `axis` is theirs in the arrays of the form."""

    def of_all(first: Array, second: Array) -> Any:
        pairs = (jnp.moveaxis(each, 1, axis) for each in (first, second))
        return jax.vmap(form, in_axes=axis)(*pairs)

    return of_all


# -- causal attention -----------------------------------------------------------------------------------------------------------


def attended(random: Any, T: int, H: int, D: int) -> dict[str, Array]:
    return {name: random.normal(size=(T, H, D)) for name in ("query", "key", "value")}


def attention(with_gradients: bool) -> Callable[..., Traced]:
    def program(T: int, H: int, D: int) -> Traced:
        ctx = tp.Context("t")
        with ctx as ((t, n_t),):
            query, key, value = (tp.input(name, (H, D), domain=(t,)) for name in ("query", "key", "value"))
            scores = tp.einsum("hd,shd->hs", query, key[0 : t + 1]) / D**0.5
            y = tp.einsum("hs,shd->hd", scores.softmax(-1), value[0 : t + 1])
            gradients = tp.grad((y**2)[0:n_t].mean(), wrt=[query, key, value]) if with_gradients else ()
        return Traced(ctx, {n_t: T}, [y, *gradients])

    return program


def attention_by_mask(query: Array, key: Array, value: Array) -> Array:
    """Heads come first: then XLA's products of matrices are its fast ones."""
    T, _, D = query.shape
    query, key, value = (each.swapaxes(0, 1) for each in (query, key, value))
    past = jnp.tril(jnp.ones((T, T), bool))
    scores = jnp.where(past, query @ key.swapaxes(1, 2) / D**0.5, -jnp.inf)
    return (jax.nn.softmax(scores) @ value).swapaxes(0, 1)


BLOCK = 256


def attention_by_tiles(query: Array, key: Array, value: Array) -> Array:
    """A block of queries against the blocks up to it, with a running maximum and sum."""
    T, H, D = query.shape
    size = -(-T // BLOCK) * BLOCK
    query, key, value = (jnp.pad(each, ((0, size - T), (0, 0), (0, 0))) for each in (query / D**0.5, key, value))
    places = jnp.arange(BLOCK)

    def row(number: Array) -> Array:
        queries = lax.dynamic_slice_in_dim(query, number * BLOCK, BLOCK)

        def tile(other: Array, carry: Any) -> Any:
            most, mass, total = carry
            keys, values = (lax.dynamic_slice_in_dim(each, other * BLOCK, BLOCK) for each in (key, value))
            is_past = (number * BLOCK + places)[:, None] >= other * BLOCK + places
            scores = jnp.where(is_past, jnp.einsum("thd,shd->hts", queries, keys), -1e30)
            following = jnp.maximum(most, scores.max(-1))
            weights, kept = jnp.exp(scores - following[..., None]), jnp.exp(most - following)
            total = kept[..., None] * total + jnp.einsum("hts,shd->htd", weights, values)
            return following, kept * mass + weights.sum(-1), total

        nothing = jnp.zeros((H, BLOCK))
        _, mass, total = lax.fori_loop(0, number + 1, tile, (nothing - 1e30, nothing, jnp.zeros((H, BLOCK, D))))
        return (total / mass[..., None]).swapaxes(0, 1)

    return lax.map(row, jnp.arange(size // BLOCK)).reshape(size, H, D)[:T]


def attention_gradients_by_mask(query: Array, key: Array, value: Array) -> Any:
    def mean_square(*inputs: Array) -> Any:
        y = attention_by_mask(*inputs)
        return (y**2).mean(), y

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(query, key, value)
    return y, *gradients


def one(form: Callable[..., Array]) -> Callable[..., Any]:
    return lambda query, key, value: (form(query, key, value),)


# -- a network that reads until its text ends, and the gradient of what it read -------------------------------------------------


def texts(random: Any, T: int, B: int, H: int) -> dict[str, Array]:
    """Room for T points; the text ends after a tenth of them."""
    scale = 1 / np.sqrt(H)
    return {
        "x": random.normal(size=(T, B, H)),
        "is_end": np.arange(T) == max(2, T // TIMES) - 1,
        "weight": random.uniform(-scale, scale, (H, H)),
    }


def reader(T: int, B: int, H: int) -> Traced:
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, is_end = tp.input("x", (B, H), domain=(t,)), tp.input("is_end", (), "bool", domain=(t,))
        weight = tp.input("weight", (H, H))
        h = tp.recurrence((B, H), domain=(t,), name="h")
        h[0] = tp.tanh(x[0])
        h[t] = tp.tanh(h[t - 1] @ weight + x)
        ctx.ends(t, when=is_end)
        loss = (h**2).mean((0, 1))[0:n_t].sum(0)
        (gradient,) = tp.grad(loss, wrt=[weight])
    return Traced(ctx, {n_t: T}, [loss, h[n_t - 1], gradient])


def reader_by_loops(x: Array, is_end: Array, weight: Array) -> Any:
    """A loop that ends early and keeps its states, and one backwards from there."""
    T, B, H = x.shape

    def read(carry: Any) -> Any:
        t, h, states, loss = carry
        h = jnp.tanh(h @ weight + x[t])
        return t + 1, h, states.at[t].set(h), loss + (h**2).mean()

    goes_on = lambda carry: (carry[0] == 0) | (carry[0] < T) & ~is_end[carry[0] - 1]  # noqa: E731
    length, last, states, loss = lax.while_loop(goes_on, read, (0, jnp.zeros((B, H)), jnp.zeros_like(x), 0.0))

    def back(carry: Any) -> Any:
        t, by_h, gradient = carry
        h = states[t]
        by_sum = (by_h + 2 * h / (B * H)) * (1 - h**2)
        before = jnp.where(t > 0, states[t - 1], 0.0)
        return t - 1, by_sum @ weight.T, gradient + before.T @ by_sum

    start = length - 1, jnp.zeros((B, H)), jnp.zeros((H, H))
    _, _, gradient = lax.while_loop(lambda carry: carry[0] >= 0, back, start)
    return loss, last, gradient


PAIR = {
    "tiny": {"M": 4, "N": 5},
    "small": {"M": 20, "N": 25},
    "full": {"M": 200, "N": 250},
    "long": {"M": 4, "N": 100_000},
}
TABLE = {size: row | {"B": 1} for size, row in PAIR.items()}
PAIRS = {"tiny": {"B": 2, "M": 3, "N": 5}, "small": {"B": 4, "M": 20, "N": 30}, "full": {"B": 32, "M": 300, "N": 400}}
QUERIES = {
    "tiny": {"T": 6, "H": 2, "D": 3},
    "small": {"T": 50, "H": 2, "D": 8},
    "full": {"T": 400, "H": 4, "D": 64},
}
TEN = {"tiny": {"T": 3, "H": 1, "D": 3}, "small": {"T": 10, "H": 1, "D": 16}, "full": {"T": 10, "H": 4, "D": 64}}
TIME = {
    "tiny": {"B": 2, "T": 5},
    "small": {"B": 1, "T": 500},
    "full": {"B": 8, "T": 1000},
    "long": {"B": 1, "T": 100_000},
}
MARKOV = {size: row | {"S": {"tiny": 3, "full": 32}.get(size, 4)} for size, row in TIME.items()}
PREFIX = {
    "tiny": {"T": 5, "D": 3},
    "small": {"T": 500, "D": 1},
    "full": {"T": 1000, "D": 10},
    "long": {"T": 100_000, "D": 1},
}
TEXT = {
    "tiny": {"T": 20, "B": 2, "H": 3},
    "small": {"T": 500, "B": 1, "H": 8},
    "full": {"T": 10_000, "B": 8, "H": 32},
    "long": {"T": 100_000, "B": 1, "H": 8},
}
prefix_softmax = statistics.prefix(statistics.softmax_average)
prefix_forms = {"scan": statistics.with_gradient(statistics.prefix_softmax_by_scan)}
common_forms = {"rows": common_by_rows, "diagonals": common_by_diagonals}
pairs_forms = {
    f"{name}, {place}": of_batches(form, axis)
    for name, form in common_forms.items()
    for axis, place in enumerate(("pairs first", "pairs last"))
}
soft_dtw_forms = {"diagonals": alignment.soft_dtw_by_hand}
forward_forms = {"scan": hidden_markov.forward_by_hand}
attention_forms = {"mask": one(attention_by_mask), "tiles": one(attention_by_tiles)}
gradient_forms = {"mask": attention_gradients_by_mask}
ROUNDED = 5e-3, alignment.ROUNDED_SUMS
td_forms = {"scan": returns.td_lambda_by_hand}
CLASSICS = [
    Classic("common subsequence, two chosen lengths", chosen(common, 0, 1), common_forms, letters, PAIR),
    Classic("common subsequence, fixed lengths", common, common_forms, letters, PAIR),
    Classic("common subsequence, many pairs", common_of_batches, pairs_forms, batches, PAIRS),
    Classic("soft-DTW, two chosen lengths", chosen(alignment.soft_dtw, 1, 2), soft_dtw_forms, alignment.series, TABLE, *ROUNDED),
    Classic("soft-DTW, fixed lengths", alignment.soft_dtw, soft_dtw_forms, alignment.series, TABLE, *ROUNDED),
    Classic("HMM forward, a chosen length", chosen(hidden_markov.forward, 1), forward_forms, hidden_markov.inputs, MARKOV),
    Classic("TD(lambda), a chosen length", chosen(returns.td_lambda, 1), td_forms, returns.play, TIME),
    Classic("prefix softmax, a chosen length", chosen(prefix_softmax, 0), prefix_forms, statistics.values, PREFIX),
    Classic("attention, a chosen length", chosen(attention(False), 0), attention_forms, attended, QUERIES),
    Classic("attention, 10 of 4,000", chosen(attention(False), 0, times=400), attention_forms, attended, TEN),
    Classic("attention, a fixed length", attention(False), attention_forms, attended, QUERIES),
    Classic("attention with gradients, a chosen length", chosen(attention(True), 0), gradient_forms, attended, QUERIES),
    Classic("reader until an end", reader, {"loops": reader_by_loops}, texts, TEXT),
]
