"""Decoding with a layer of attention by hand in JAX: a cache as long as the longest request, and a mask for what the pattern does not reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


def cache_bytes(rows: int, width: int, longest: int) -> int:
    """Of the keys and the values, in float32."""
    return 2 * rows * width * longest * 4


def make_decoder(longest: int, heads: int, reach: int, sinks: int) -> Callable[[Sequence[Array], Array, Array], Array]:
    """A jitted function from weights (queries, keys, values, output; each [D, D]), the first token's vector [B, D] and the number of
    tokens to the last vector [B, D]. A position reads the last `reach` positions and the first `sinks`."""

    def decode(weights: Sequence[Array], first: Array, tokens: Array) -> Array:
        query, key, value, output = weights
        rows, width = first.shape
        by_head = (rows, heads, width // heads)
        position = jnp.arange(longest)

        def token(t: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, keys, values = state
            keys = keys.at[:, :, t].set((x @ key).reshape(by_head))
            values = values.at[:, :, t].set((x @ value).reshape(by_head))
            scores = jnp.einsum("bhw,bhtw->bht", (x @ query).reshape(by_head), keys) / math.sqrt(width // heads)
            is_read = (position <= t) & ((position > t - reach) | (position < sinks))
            mixed = jnp.einsum("bht,bhtw->bhw", jax.nn.softmax(jnp.where(is_read, scores, -jnp.inf)), values)
            return jnp.tanh(x + mixed.reshape(rows, width) @ output), keys, values

        empty = jnp.zeros((rows, heads, longest, width // heads))
        return lax.fori_loop(0, tokens - 1, token, (first, empty, empty))[0]

    return jax.jit(decode)
