"""Recurrent networks: one iteration of training, with the gradient of a loss over time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

KEEP = 16  # gradients flow back to the last multiple of it


# -- an LSTM, whose gradient is truncated ---------------------------------------------------------------------------------------


def weights(random: Any, inner: int, H: int, gates: int) -> dict[str, Array]:
    scale = 1 / np.sqrt(H)
    shapes = {"w": (inner, gates * H), "v": (H, gates * H), "bias": (gates * H,)}
    return {name: random.uniform(-scale, scale, shape) for name, shape in shapes.items()}


def sequences(random: Any, B: int, T: int, H: int) -> dict[str, Array]:
    return {"x": random.normal(size=(B, T, H)), "target": random.normal(size=(B, T, H))}


def lstm_inputs(random: Any, B: int, T: int, H: int) -> dict[str, Array]:
    return weights(random, H, H, 4) | sequences(random, B, T, H)


def lstm(B: int, T: int, H: int) -> Traced:
    """The batch is a dimension, so each input is a matrix."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        w, v, bias = tp.input("w", (H, 4 * H)), tp.input("v", (H, 4 * H)), tp.input("bias", (4 * H,))
        x, target = tp.input("x", (B, H), domain=(t,)), tp.input("target", (B, H), domain=(t,))
        h = tp.recurrence((B, H), domain=(t,), name="h")
        c = tp.recurrence((B, H), domain=(t,), name="c")
        kept_h = tp.where(t % KEEP == 0, h[t - 1].detach(), h[t - 1])
        kept_c = tp.where(t % KEEP == 0, c[t - 1].detach(), c[t - 1])
        new_h, new_c = lstm_cell(x, kept_h, kept_c, w, v, bias, tp)
        first_h, first_c = lstm_cell(x[0], tp.zeros((B, H)), tp.zeros((B, H)), w, v, bias, tp)
        h[0], c[0] = first_h, first_c
        h[t], c[t] = new_h, new_c
        loss = ((h - target) ** 2)[0:n_t].mean()
        gradients = tp.grad(loss, wrt=[w, v, bias])
    return Traced(ctx, {n_t: T}, [loss, *gradients])


def lstm_cell(x: Any, h: Any, c: Any, w: Any, v: Any, bias: Any, package: Any) -> tuple[Any, Any]:
    """The next h and c, in either language; `package` is `tempo_core`, or JAX's functions of the same names."""
    gates = x @ w + h @ v + bias
    i, f, g, o = package.split(gates, 4, -1)
    c = package.sigmoid(f) * c + package.sigmoid(i) * package.tanh(g)
    return package.sigmoid(o) * package.tanh(c), c


class Functions:
    """JAX's functions under Tempo's names."""

    split, sigmoid, tanh = staticmethod(jnp.split), staticmethod(jax.nn.sigmoid), staticmethod(jnp.tanh)


def lstm_by_hand(w: Array, v: Array, bias: Array, x: Array, target: Array) -> Any:
    """`x` [T, B, H]. Blocks of time in a scan over the blocks, between which no gradient flows; inputs are projected at once."""
    T, B, H = x.shape
    blocks = -(-T // KEEP)
    padded = jnp.pad(x, ((0, blocks * KEEP - T), (0, 0), (0, 0)))

    def loss_of(w: Array, v: Array, bias: Array) -> Array:
        def step(carry: Any, projected: Array) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(projected + h @ v, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        def block(carry: Any, projected: Array) -> Any:
            return lax.scan(step, lax.stop_gradient(carry), projected)

        nothing = jnp.zeros((B, H))
        projected = (padded @ w + bias).reshape(blocks, KEEP, B, 4 * H)
        _, h = lax.scan(block, (nothing, nothing), projected)
        return ((h.reshape(-1, B, H)[:T] - target) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(w, v, bias)
    return loss, *gradients


def lstm_by_hand_in_one_scan(w: Array, v: Array, bias: Array, x: Array, target: Array) -> Any:
    """`x` [T, B, H]. One scan, which stops gradients by a selection."""
    T, B, H = x.shape

    def loss_of(w: Array, v: Array, bias: Array) -> Array:
        def step(carry: Any, at: Any) -> Any:
            cut, projected, target = at
            h, c = (jnp.where(cut, lax.stop_gradient(part), part) for part in carry)
            i, f, g, o = jnp.split(projected + h @ v, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), ((h - target) ** 2).mean()

        nothing = jnp.zeros((B, H))
        _, losses = lax.scan(step, (nothing, nothing), (jnp.arange(T) % KEEP == 0, x @ w + bias, target))
        return losses.mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(w, v, bias)
    return loss, *gradients


def time_first(inputs: Any) -> Any:
    """The inputs of a program whose batch is a dimension: [T, B, ...]."""

    def swapped(random: Any, **sizes: int) -> dict[str, Array]:
        values = inputs(random, **sizes)
        return values | {name: values[name].swapaxes(0, 1) for name in ("x", "target")}

    return swapped


# -- a GRU with the batch as a step -----------------------------------------------------------------------------------------------


def gru_inputs(random: Any, B: int, T: int, H: int) -> dict[str, Array]:
    return weights(random, H, H, 3) | sequences(random, B, T, H)


def gru(B: int, T: int, H: int) -> Traced:
    """The gradient is truncated; the batch is a step."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        w, v, bias = tp.input("w", (H, 3 * H)), tp.input("v", (H, 3 * H)), tp.input("bias", (3 * H,))
        x, target = tp.input("x", (H,), domain=(b, t)), tp.input("target", (H,), domain=(b, t))
        h = tp.recurrence((H,), domain=(b, t), name="h")
        after = gru_cell(x @ w + bias, tp.where(t % KEEP == 0, h.detach(), h), v, tp)
        tp.carry(h, tp.zeros((H,)), after, kept=(b,))
        loss = ((after - target) ** 2)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=[w, v, bias])
    return Traced(ctx, {n_b: B, n_t: T}, [loss, *gradients])


def gru_cell(projected: Any, h: Any, v: Any, package: Any) -> Any:
    """The next h, in either language."""
    r, z, n = package.split(projected, 3, -1)
    by_r, by_z, by_n = package.split(h @ v, 3, -1)
    update = package.sigmoid(z + by_z)
    return (1 - update) * package.tanh(n + package.sigmoid(r + by_r) * by_n) + update * h


def gru_by_hand(w: Array, v: Array, bias: Array, x: Array, target: Array) -> Any:
    B, T, H = x.shape
    x, target = x.swapaxes(0, 1), target.swapaxes(0, 1)

    def loss_of(w: Array, v: Array, bias: Array) -> Array:
        def step(h: Array, at: Any) -> Any:
            cut, projected = at
            h = gru_cell(projected, jnp.where(cut, lax.stop_gradient(h), h), v, Functions)
            return h, h

        _, h = lax.scan(step, jnp.zeros((B, H)), (jnp.arange(T) % KEEP == 0, x @ w + bias))
        return ((h - target) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(w, v, bias)
    return loss, *gradients


# -- layers as a step ---------------------------------------------------------------------------------------------------------------


def stacked_inputs(random: Any, B: int, L: int, T: int, H: int) -> dict[str, Array]:
    scale = 1 / np.sqrt(H)
    matrices = {name: random.uniform(-scale, scale, (L, H, H)) for name in ("w", "v")}
    return matrices | {"bias": random.uniform(-scale, scale, (L, H))} | sequences(random, B, T, H)


def stacked(B: int, L: int, T: int, H: int) -> Traced:
    """h[l, t] = tanh(w[l] h[l - 1, t] + v[l] h[l, t - 1] + bias[l]): batch, layers and time are steps."""
    ctx = tp.Context("b", "l", "t")
    with ctx as ((b, n_b), (l, n_l), (t, n_t)):
        w, v, bias = tp.input("w", (H, H), domain=(l,)), tp.input("v", (H, H), domain=(l,)), tp.input("bias", (H,), domain=(l,))
        x, target = tp.input("x", (H,), domain=(b, t)), tp.input("target", (H,), domain=(b, t))
        h = tp.recurrence((H,), domain=(b, l, t), name="h")
        h[b, 0, 0] = tp.tanh(x[b, 0] @ w[0] + bias[0])
        h[b, 0, t] = tp.tanh(x @ w[0] + h[b, 0, t - 1] @ v[0] + bias[0])
        h[b, l, 0] = tp.tanh(h[b, l - 1, 0] @ w + bias)
        h[b, l, t] = tp.tanh(h[b, l - 1, t] @ w + h[b, l, t - 1] @ v + bias)
        loss = ((h[b, n_l - 1, t] - target) ** 2)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=[w, v, bias])
    return Traced(ctx, {n_b: B, n_l: L, n_t: T}, [loss, *gradients])


def stacked_by_layers(w: Array, v: Array, bias: Array, x: Array, target: Array) -> Any:
    """Layer by layer, written out; the inputs of a layer are projected at once."""

    def loss_of(w: Array, v: Array, bias: Array) -> Array:
        h = x.swapaxes(0, 1)
        for l in range(len(w)):

            def step(h: Array, projected: Array, l: int = l) -> Any:
                h = jnp.tanh(projected + h @ v[l])
                return h, h

            _, h = lax.scan(step, jnp.zeros_like(h[0]), h @ w[l] + bias[l])
        return ((h.swapaxes(0, 1) - target) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(w, v, bias)
    return loss, *gradients


FULL = {"B": 32, "T": 128, "H": 64}
TIME = {
    "tiny": {"B": 2, "T": 20, "H": 3},
    "small": {"B": 1, "T": 20, "H": 8},
    "full": FULL,
    "long": {"B": 1, "T": 100_000, "H": 8},
}
LAYERS = {
    "tiny": {"B": 2, "L": 3, "T": 4, "H": 3},
    "small": {"B": 1, "L": 2, "T": 10, "H": 8},
    "full": {"B": 32, "L": 4, "T": 64, "H": 64},
    "long": {"B": 1, "L": 2, "T": 100_000, "H": 4},
}
CLASSICS = [
    Classic("LSTM", lstm, {"blocks": lstm_by_hand, "one scan": lstm_by_hand_in_one_scan}, time_first(lstm_inputs), TIME),
    Classic("GRU, batch a step", gru, {"scan": gru_by_hand}, gru_inputs, TIME),
    Classic("stacked RNN, layers a step", stacked, {"layers": stacked_by_layers}, stacked_inputs, LAYERS),
]
