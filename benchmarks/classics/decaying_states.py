"""Linear attention whose state decays: RetNet (a number a head), Mamba-2 (a gate a head), gated linear attention (a gate an element)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

CHUNK = 64  # points of a chunk by hand

# -- by hand: one point after the other, and in chunks. All are called with [B, T, heads, width] ----------------------------------


def by_scan(query: Array, key: Array, value: Array, keep: Array) -> Array:
    """`keep` has the shape [B, T, heads, 1], or that of the keys."""

    def step(state: Array, at: Any) -> Any:
        query, key, value, keep = at
        state = keep[..., None] * state + key[..., :, None] * value[..., None, :]
        return state, jnp.einsum("bhk,bhkv->bhv", query, state)

    start = jnp.zeros((query.shape[0], *query.shape[2:], value.shape[-1]))
    return lax.scan(step, start, tuple(each.swapaxes(0, 1) for each in (query, key, value, keep)))[1].swapaxes(0, 1)


def by_chunks(query: Array, key: Array, value: Array, keep: Array) -> Array:
    """With gates a head: decays are exponentials of sums of logarithms, so gates must be positive."""
    B, T, H, _ = query.shape
    size = -(-T // CHUNK) * CHUNK
    cut = lambda x, fill: jnp.pad(x, ((0, 0), (0, size - T), (0, 0), (0, 0)), constant_values=fill).reshape(  # noqa: E731
        B, size // CHUNK, CHUNK, H, -1
    )
    query, key, value = (cut(each, 0.0) for each in (query, key, value))
    total = jnp.cumsum(jnp.log(cut(keep, 1.0)[..., 0]), 2)  # [B, chunks, points, heads]
    points = jnp.arange(CHUNK)
    is_past = (points[:, None] >= points)[..., None]
    decay = jnp.exp(jnp.where(is_past, total[:, :, :, None] - total[:, :, None], -jnp.inf))
    inside = jnp.einsum("bnthk,bnrhk,bntrh,bnrhv->bnthv", query, key, decay, value)
    sums = jnp.einsum("bnrhk,bnrh,bnrhv->bnhkv", key, jnp.exp(total[:, :, -1:] - total), value)

    def step(state: Array, at: Any) -> Any:
        sums, decay = at
        return decay[..., None, None] * state + sums, state

    over = (sums.swapaxes(0, 1), jnp.exp(total[:, :, -1]).swapaxes(0, 1))
    before = lax.scan(step, jnp.zeros_like(sums[:, 0]), over)[1].swapaxes(0, 1)
    earlier = jnp.einsum("bnthk,bnth,bnhkv->bnthv", query, jnp.exp(total), before)
    return (inside + earlier).reshape(B, size, H, -1)[:, :T]


def with_gradients(outputs: Callable[..., Array], *inputs: Array) -> Any:
    """The outputs, and the gradients of their mean square by all inputs."""

    def mean_square(*inputs: Array) -> Any:
        y = outputs(*inputs)
        return (y**2).mean(), y

    (_, y), gradients = jax.value_and_grad(mean_square, tuple(range(len(inputs))), has_aux=True)(*inputs)
    return y, *gradients


# -- RetNet -------------------------------------------------------------------------------------------------------------------------


def kept_by_heads(heads: int) -> Any:
    return (1.0 - 2.0 ** (-5.0 - np.arange(heads))).astype("float32")


def retention_inputs(random: Any, B: int, T: int, H: int, D: int) -> dict[str, Array]:
    return {name: random.normal(size=(B, T, H, D)) / np.sqrt(D) for name in ("query", "key", "value")}


def retention(B: int, T: int, H: int, D: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        query, key, value = (tp.input(name, (H, D), domain=(b, t)) for name in ("query", "key", "value"))
        keep = tp.constant(kept_by_heads(H)).reshape((H, 1, 1))
        state = tp.recurrence((H, D, D), domain=(b, t), name="state")
        new = key.expand_dims(2) * value.expand_dims(1)
        state[b, 0] = new[b, 0]
        state[b, t] = keep * state[b, t - 1] + new
        y = (query.expand_dims(2) * state).sum(1)
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[query, key, value])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def retention_by_hand(form: Callable[..., Array]) -> Callable[..., Any]:
    def run(query: Array, key: Array, value: Array) -> Any:
        keep = jnp.broadcast_to(kept_by_heads(query.shape[2])[:, None], (*query.shape[:3], 1))
        return with_gradients(lambda *inputs: form(*inputs, keep), query, key, value)

    return run


# -- Mamba-2: keys and queries of all heads in common -------------------------------------------------------------------------------


def mamba_inputs(random: Any, B: int, T: int, H: int, D: int, N: int) -> dict[str, Array]:
    return {
        "x": random.normal(size=(B, T, H, D)),
        "rate": random.uniform(0.01, 0.2, (B, T, H)),
        "enter": random.normal(size=(B, T, N)) / np.sqrt(N),
        "leave": random.normal(size=(B, T, N)) / np.sqrt(N),
        "decay": -random.uniform(0.5, 2.0, (H,)),
    }


def mamba(B: int, T: int, H: int, D: int, N: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x, rate = tp.input("x", (H, D), domain=(b, t)), tp.input("rate", (H,), domain=(b, t))
        enter, leave = tp.input("enter", (N,), domain=(b, t)), tp.input("leave", (N,), domain=(b, t))
        decay = tp.input("decay", (H,))
        before = tp.recurrence((H, N, D), domain=(b, t), name="before")
        keep = tp.exp(rate * decay).reshape((H, 1, 1))
        state = keep * before + enter.expand_dims(1) * (rate.expand_dims(1) * x).expand_dims(1)
        tp.carry(before, tp.zeros((H, N, D)), state, kept=(b,))
        y = leave @ state
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[x, rate, enter, leave, decay])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def mamba_by_hand(form: Callable[..., Array]) -> Callable[..., Any]:
    def outputs(x: Array, rate: Array, enter: Array, leave: Array, decay: Array) -> Array:
        enter, leave = (jnp.broadcast_to(each[:, :, None], (*x.shape[:3], each.shape[-1])) for each in (enter, leave))
        return form(leave, enter, rate[..., None] * x, jnp.exp(rate * decay)[..., None])

    def run(x: Array, rate: Array, enter: Array, leave: Array, decay: Array) -> Any:
        return with_gradients(outputs, x, rate, enter, leave, decay)

    return run


# -- gated linear attention -----------------------------------------------------------------------------------------------------------


def gated_inputs(random: Any, B: int, T: int, H: int, D: int) -> dict[str, Array]:
    return retention_inputs(random, B, T, H, D) | {"gate": random.normal(size=(B, T, H, D)) + 3.0}


def gated(B: int, T: int, H: int, D: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        query, key, value, gate = (tp.input(name, (H, D), domain=(b, t)) for name in ("query", "key", "value", "gate"))
        before = tp.recurrence((H, D, D), domain=(b, t), name="before")
        state = tp.sigmoid(gate).expand_dims(2) * before + key.expand_dims(2) * value.expand_dims(1)
        tp.carry(before, tp.zeros((H, D, D)), state, kept=(b,))
        y = (query.expand_dims(2) * state).sum(1)
        gradients = tp.grad((y**2)[0:n_b, 0:n_t].mean(), wrt=[query, key, value, gate])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def gated_by_hand(query: Array, key: Array, value: Array, gate: Array) -> Any:
    outputs = lambda query, key, value, gate: by_scan(query, key, value, jax.nn.sigmoid(gate))  # noqa: E731
    return with_gradients(outputs, query, key, value, gate)


SIZES = {
    "tiny": {"B": 2, "T": 5, "H": 2, "D": 3},
    "small": {"B": 1, "T": 20, "H": 2, "D": 4},
    "full": {"B": 2, "T": 500, "H": 4, "D": 32},
    "long": {"B": 1, "T": 100_000, "H": 1, "D": 4},
}
CLASSICS = [
    Classic(
        "retention",
        retention,
        {"scan": retention_by_hand(by_scan), "chunks": retention_by_hand(by_chunks)},
        retention_inputs,
        SIZES,
    ),
    Classic(
        "Mamba-2",
        mamba,
        {"scan": mamba_by_hand(by_scan), "chunks": mamba_by_hand(by_chunks)},
        mamba_inputs,
        {name: sizes | {"N": sizes["D"]} for name, sizes in SIZES.items()},
    ),
    Classic("gated linear attention", gated, {"scan": gated_by_hand}, gated_inputs, SIZES),
]
