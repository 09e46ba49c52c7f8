"""An environment of pictures, written in JAX: a place on a ring of 1,024 places, seen as 3 x 64 x 64 bytes that depend on it."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

Array = Any
PLACES, SHAPE = 1024, (3, 64, 64)
PIXELS = math.prod(SHAPE)


def picture(place: Array, shape: tuple[int, ...] = SHAPE) -> Array:
    """Places (int32 [B]) as bytes [B, *shape]."""
    pixel = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    return ((place[:, None, None, None] * (pixel % 61) + 7 * pixel) >> 4).astype(jnp.uint8)


def move(place: Array, action: Array) -> tuple[Array, Array]:
    """The next places, and the rewards [B]. Action 1 goes further than action 0."""
    following = (place + 5 + 8 * action) % PLACES
    return following, jnp.cos(following.astype(jnp.float32) * (2 * math.pi / PLACES))


def policy(place: Array) -> Array:
    """A policy whose value can be learned: fast on one half of the ring."""
    return (place < PLACES // 2).astype(jnp.int32)
