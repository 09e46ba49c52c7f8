"""The gradient of a recurrent network over many steps, written by hand in JAX: one scan, or a scan of scans with `jax.checkpoint`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


def make_gradient(segments: bool) -> Callable[[Array, Array, Array], tuple[Array, tuple[Array, Array]]]:
    """A jitted function from inputs [T, B], weights [D, D] and [D] to the loss and the gradients of both weights.

    With `segments`, the inner scan over about the square root of T steps is recomputed for its gradient; that root must divide T.
    """

    def loss(weights: tuple[Array, Array], x: Array) -> Array:
        w, v = weights

        def step(h: Array, each: Array) -> tuple[Array, None]:
            return jnp.tanh(h @ w + each[:, None] * v), None

        h = jnp.zeros((x.shape[1], w.shape[0]))
        if segments:
            count = next(n for n in range(math.isqrt(x.shape[0]), 0, -1) if x.shape[0] % n == 0)
            inner = jax.checkpoint(lambda h, part: lax.scan(step, h, part))
            h, _ = lax.scan(inner, h, x.reshape(count, -1, x.shape[1]))
        else:
            h, _ = lax.scan(step, h, x)
        return jnp.sum(h**2)

    return jax.jit(lambda x, w, v: jax.value_and_grad(loss)((w, v), x))
