"""Linear recurrences of sequence models: selective scan, linear attention, the delta rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced
from benchmarks.classics.decaying_states import by_chunks, with_gradients

# -- selective scan: the recurrence of Mamba ------------------------------------------------------------------------------------


def selective_inputs(random: Any, B: int, T: int, D: int, N: int) -> dict[str, Array]:
    return {
        "x": random.normal(size=(B, T, D)),
        "rate": random.uniform(0.01, 0.2, (B, T, D)),
        "enter": random.normal(size=(B, T, N)),
        "leave": random.normal(size=(B, T, N)),
        "decay": -random.uniform(0.5, 2.0, (D, N)),
    }


def selective(B: int, T: int, D: int, N: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x, rate = tp.input("x", (D,), domain=(b, t)), tp.input("rate", (D,), domain=(b, t))
        enter, leave = tp.input("enter", (N,), domain=(b, t)), tp.input("leave", (N,), domain=(b, t))
        decay = tp.input("decay", (D, N))
        state = tp.recurrence((D, N), domain=(b, t), name="state")
        keep = tp.exp(rate.expand_dims(1) * decay)
        new = (rate * x).expand_dims(1) * enter
        state[b, 0] = new[b, 0]
        state[b, t] = keep * state[b, t - 1] + new
        y = state @ leave
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[x, rate, decay])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def selective_by_scan(x: Array, rate: Array, enter: Array, leave: Array, decay: Array) -> Any:
    enter, leave = enter.swapaxes(0, 1), leave.swapaxes(0, 1)

    def mean_square(x: Array, rate: Array, decay: Array) -> Any:
        def step(state: Array, at: Any) -> Any:
            x, rate, enter, leave = at
            state = jnp.exp(rate[:, :, None] * decay) * state + (rate * x)[:, :, None] * enter[:, None, :]
            return state, jnp.einsum("bdn,bn->bd", state, leave)

        nothing = jnp.zeros((x.shape[0], *decay.shape))
        _, y = lax.scan(step, nothing, (x.swapaxes(0, 1), rate.swapaxes(0, 1), enter, leave))
        return (y**2).mean(), y.swapaxes(0, 1)

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(x, rate, decay)
    return y, *gradients


def selective_by_associative_scan(x: Array, rate: Array, enter: Array, leave: Array, decay: Array) -> Any:
    def mean_square(x: Array, rate: Array, decay: Array) -> Any:
        keep = jnp.exp(rate[..., None] * decay)
        new = (rate * x)[..., None] * enter[:, :, None, :]
        _, state = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (keep, new), axis=1)
        y = jnp.einsum("btdn,btn->btd", state, leave)
        return (y**2).mean(), y

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(x, rate, decay)
    return y, *gradients


# -- linear attention ---------------------------------------------------------------------------------------------------------------


def attention_inputs(random: Any, B: int, T: int, D: int) -> dict[str, Array]:
    return {name: random.normal(size=(B, T, D)) / np.sqrt(D) for name in ("query", "key", "value")}


def linear_attention(B: int, T: int, D: int) -> Traced:
    """As a state that grows by an outer product at each point."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        query, key, value = (tp.input(name, (D,), domain=(b, t)) for name in ("query", "key", "value"))
        state = tp.recurrence((D, D), domain=(b, t), name="state")
        new = key.expand_dims(1) * value
        state[b, 0] = new[b, 0]
        state[b, t] = state[b, t - 1] + new
        y = query @ state
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[query, key, value])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def causal_attention(B: int, T: int, D: int) -> Traced:
    """As a sum over the past, weighted by products of query and key."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        query, key, value = (tp.input(name, (D,), domain=(b, t)) for name in ("query", "key", "value"))
        y = (key[b, 0 : t + 1] @ query) @ value[b, 0 : t + 1]
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[query, key, value])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def linear_attention_by_scan(query: Array, key: Array, value: Array) -> Any:
    def mean_square(query: Array, key: Array, value: Array) -> Any:
        def step(state: Array, at: Any) -> Any:
            query, key, value = at
            state = state + key[:, :, None] * value[:, None, :]
            return state, jnp.einsum("bk,bkv->bv", query, state)

        B, _, D = query.shape
        _, y = lax.scan(step, jnp.zeros((B, D, D)), tuple(each.swapaxes(0, 1) for each in (query, key, value)))
        return (y**2).mean(), y.swapaxes(0, 1)

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(query, key, value)
    return y, *gradients


def linear_attention_by_mask(query: Array, key: Array, value: Array) -> Any:
    """All pairs of points at once."""

    def mean_square(query: Array, key: Array, value: Array) -> Any:
        scores = jnp.tril(jnp.einsum("btd,bsd->bts", query, key))
        y = jnp.einsum("bts,bsd->btd", scores, value)
        return (y**2).mean(), y

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(query, key, value)
    return y, *gradients


def linear_attention_by_chunks(query: Array, key: Array, value: Array) -> Any:
    """Pairs of points within a chunk, and a state between chunks."""

    def outputs(*inputs: Array) -> Array:
        query, key, value = (each[:, :, None] for each in inputs)
        return by_chunks(query, key, value, jnp.ones((*key.shape[:3], 1)))[:, :, 0]

    return with_gradients(outputs, query, key, value)


# -- the delta rule -------------------------------------------------------------------------------------------------------------------


def delta_inputs(random: Any, B: int, T: int, D: int) -> dict[str, Array]:
    values = {name: random.normal(size=(B, T, D)) for name in ("query", "key", "value")}
    values["key"] /= np.linalg.norm(values["key"], axis=-1, keepdims=True)
    return values | {"rate": random.uniform(0.1, 0.9, (B, T))}


def delta_rule(B: int, T: int, D: int) -> Traced:
    """What the state recalls for a key moves towards the value."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        query, key, value = (tp.input(name, (D,), domain=(b, t)) for name in ("query", "key", "value"))
        rate = tp.input("rate", domain=(b, t))
        state = tp.recurrence((D, D), domain=(b, t), name="state")
        after = state + (rate * key).expand_dims(1) * (value - key @ state)
        tp.carry(state, tp.zeros((D, D)), after, kept=(b,))
        y = query @ after
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[query, key, value, rate])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def delta_rule_by_hand(query: Array, key: Array, value: Array, rate: Array) -> Any:
    def mean_square(query: Array, key: Array, value: Array, rate: Array) -> Any:
        def step(state: Array, at: Any) -> Any:
            query, key, value, rate = at
            change = value - jnp.einsum("bk,bkv->bv", key, state)
            state = state + (rate[:, None] * key)[:, :, None] * change[:, None, :]
            return state, jnp.einsum("bk,bkv->bv", query, state)

        B, _, D = query.shape
        _, y = lax.scan(step, jnp.zeros((B, D, D)), tuple(each.swapaxes(0, 1) for each in (query, key, value, rate)))
        return (y**2).mean(), y.swapaxes(0, 1)

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2, 3), has_aux=True)(query, key, value, rate)
    return y, *gradients


# -- a diagonal state space with constant coefficients: one long convolution, or a recurrence ----------------------------------------


def diagonal_inputs(random: Any, T: int, D: int, N: int) -> dict[str, Array]:
    return {
        "x": random.normal(size=(T, D)),
        "keep": random.uniform(0.5, 0.99, (D, N)),
        "enter": random.normal(size=(D, N)),
        "leave": random.normal(size=(D, N)),
    }


def diagonal(T: int, D: int, N: int) -> Traced:
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x = tp.input("x", (D,), domain=(t,))
        keep, enter, leave = (tp.input(name, (D, N)) for name in ("keep", "enter", "leave"))
        state = tp.recurrence((D, N), domain=(t,), name="state")
        state[0] = enter * x[0].expand_dims(1)
        state[t] = keep * state[t - 1] + enter * x.expand_dims(1)
        y = (state * leave).sum(1)
        gradients = tp.grad((y**2)[0:n_t].mean(), wrt=[x, keep, enter, leave])
    return Traced(ctx, {n_t: T}, [y, *gradients])


def diagonal_by_scan(x: Array, keep: Array, enter: Array, leave: Array) -> Any:
    def mean_square(x: Array, keep: Array, enter: Array, leave: Array) -> Any:
        def step(state: Array, x: Array) -> Any:
            state = keep * state + enter * x[:, None]
            return state, (state * leave).sum(1)

        _, y = lax.scan(step, jnp.zeros_like(keep), x)
        return (y**2).mean(), y

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2, 3), has_aux=True)(x, keep, enter, leave)
    return y, *gradients


SELECTIVE = {
    "tiny": {"B": 2, "T": 5, "D": 3, "N": 2},
    "small": {"B": 1, "T": 20, "D": 4, "N": 4},
    "full": {"B": 2, "T": 500, "D": 128, "N": 16},
    "long": {"B": 1, "T": 100_000, "D": 4, "N": 2},
}
ATTENTION = {
    "tiny": {"B": 2, "T": 5, "D": 3},
    "small": {"B": 1, "T": 20, "D": 4},
    "full": {"B": 8, "T": 500, "D": 32},
    "long": {"B": 1, "T": 100_000, "D": 4},
}
PAIRS = {size: row for size, row in ATTENTION.items() if size != "long"}  # all pairs of points: T^2 by hand too
DIAGONAL = {
    "tiny": {"T": 5, "D": 3, "N": 2},
    "small": {"T": 20, "D": 4, "N": 4},
    "full": {"T": 1000, "D": 64, "N": 16},
    "long": {"T": 100_000, "D": 4, "N": 2},
}
CLASSICS = [
    Classic(
        "selective scan",
        selective,
        {"scan": selective_by_scan, "associative scan": selective_by_associative_scan},
        selective_inputs,
        SELECTIVE,
    ),
    Classic(
        "linear attention, a state",
        linear_attention,
        {"scan": linear_attention_by_scan, "chunks": linear_attention_by_chunks},
        attention_inputs,
        ATTENTION,
    ),
    Classic("linear attention, the past", causal_attention, {"mask": linear_attention_by_mask}, attention_inputs, PAIRS),
    Classic("delta rule", delta_rule, {"scan": delta_rule_by_hand}, delta_inputs, ATTENTION),
    Classic("diagonal state space", diagonal, {"scan": diagonal_by_scan}, diagonal_inputs, DIAGONAL),
]
