"""Modules in plain NumPy, by the papers' formulas and with loops over time. `p` has the parameters by their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Array = np.ndarray
Params = Mapping[str, Array]


def within(p: Params, name: str) -> dict[str, Array]:
    """The parameters of an inner module."""
    return {key.removeprefix(f"{name}."): value for key, value in p.items() if key.startswith(f"{name}.")}


def linear(p: Params, x: Array) -> Array:
    return x @ p["weight"] + p.get("bias", 0.0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def layer_norm(p: Params, x: Array) -> Array:
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / spread * p["weight"] + p.get("bias", 0.0)


def rms_norm(p: Params, x: Array) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5) * p["weight"]


def swiglu(p: Params, x: Array) -> Array:
    return linear(within(p, "down"), silu(linear(within(p, "gate"), x)) * linear(within(p, "up"), x))


def gru(p: Params, x: Array, initial: Array | None = None) -> Array:
    """[T, ..., n_in] to [T, ..., hidden]."""
    hidden = p["state.weight"].shape[0]
    h = np.zeros((*x.shape[1:-1], hidden)) if initial is None else initial
    states = []
    for now in x:
        r_in, z_in, n_in = np.split(linear(within(p, "input"), now), 3, axis=-1)
        r_h, z_h, n_h = np.split(linear(within(p, "state"), h), 3, axis=-1)
        r, z = sigmoid(r_in + r_h), sigmoid(z_in + z_h)
        h = (1 - z) * np.tanh(n_in + r * n_h) + z * h
        states.append(h)
    return np.stack(states)


def lstm(p: Params, x: Array) -> tuple[Array, Array]:
    hidden = p["state.weight"].shape[0]
    h = c = np.zeros((*x.shape[1:-1], hidden))
    states = []
    for now in x:
        i, f, g, o = np.split(linear(within(p, "input"), now) + linear(within(p, "state"), h), 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append((h, c))
    return np.stack([h for h, _ in states]), np.stack([c for _, c in states])


def ssm(p: Params, x: Array) -> Array:
    """[T, ..., width], by the complex recurrence."""
    oscillating = "frequency" in p
    a = -np.exp(p["log_rate"]) + (1j * p["frequency"] if oscillating else 0)
    c = p["output"] + (1j * p["output_imaginary"] if oscillating else 0)
    held = np.exp(a * np.exp(p["log_step"])[:, None])
    state = np.zeros((*x.shape[1:], a.shape[1]), complex)
    outputs = []
    for u in x:
        state = held * state + (held - 1) / a * u[..., None]
        outputs.append((2 if oscillating else 1) * (c * state).sum(-1).real + p["skip"] * u)
    return np.stack(outputs)


def rope(x: Array, position: Array, theta: float = 10000.0) -> Array:
    """Pairs (k, k + width / 2) as complex numbers, times exp(i angle)."""
    half = x.shape[-1] // 2
    turn = np.exp(1j * np.asarray(position)[..., None] * theta ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], -1)


def attention(p: Params, x: Array, reached: Sequence[Sequence[int]], heads: int, key_heads: int, rotary: bool = False) -> Array:
    """x [length, width]; position t attends to the positions reached[t]."""
    length = len(x)
    q, k, v = (
        linear(within(p, name), x).reshape(length, n, -1)
        for name, n in (("query", heads), ("key", key_heads), ("value", key_heads))
    )
    if rotary:
        q, k = rope(q, np.arange(length)[:, None]), rope(k, np.arange(length)[:, None])
    mixed = np.zeros(q.shape)
    for t in range(length):
        for head in range(heads):
            shared = head // (heads // key_heads)
            past = list(reached[t])
            weights = softmax(k[past, shared] @ q[t, head] / math.sqrt(q.shape[-1]))
            mixed[t, head] = weights @ v[past, shared]
    return linear(within(p, "output"), mixed.reshape(length, -1))


def conv(p: Params, x: Array, stride: int, low: int, high: int, dilation: int = 1, groups: int = 1) -> Array:
    """x [*spatial, n_in], weights [*kernel, n_in / groups, n_out]; the same numbers for each spatial dimension."""
    w = p["weight"]
    n = w.ndim - 2
    padded = np.pad(x, [(low, high)] * n + [(0, 0)])
    out = tuple((padded.shape[k] - dilation * (w.shape[k] - 1) - 1) // stride + 1 for k in range(n))
    block_in, block_out = w.shape[-2], w.shape[-1] // groups
    y = np.zeros((*out, w.shape[-1]))
    for at in np.ndindex(*out):
        for tap in np.ndindex(*w.shape[:n]):
            seen = padded[tuple(a * stride + k * dilation for a, k in zip(at, tap, strict=True))]
            for g in range(groups):
                features = slice(g * block_out, (g + 1) * block_out)
                y[at][features] += seen[g * block_in : (g + 1) * block_in] @ w[tap][:, features]
    return y + p.get("bias", 0.0)
