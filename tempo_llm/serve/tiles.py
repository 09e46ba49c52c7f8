"""Attention to a cache that lies in tiles: each query reads the tiles that some row needs, one after the other.

A softmax is summed as it comes (Milakov and Gimelshein, 2018, arXiv:1805.02867). A tile of which a query needs nothing adds exact zeros to its
sums, so the result of a row is the same in one program, bit for bit, whatever tiles the other rows need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = np.ndarray  # or JAX's, which has the same methods

TILE = 64  # positions
_UNREACHED = -1e30


@dataclass(frozen=True)
class TiledAttention:
    """The values that queries attend to: a function for `tp.udf`, with `batch` as its rule for many points.

    Of one query: `query` [key heads, queries, head width]; the keys and values [points, key heads, head width] of the points that are computed
    now, of which it needs those of `near` bool [points]; `far` bool [positions], what it needs of the cache; `tiles` int32, the tiles that are
    read, the first `count` of them; `layer` and `row` int32, of the caches [layers, rows, key heads, positions, head width]. `rest`
    [key heads, queries, 1] is a further score of the softmax, whose share is dropped.

    With `each_row`, each point of a batch has a `row` of its own; a batch of as many points as the cache has rows has them in their order.
    Else all points are of one row.
    """

    scale: float
    cap: float | None
    each_row: bool

    def __call__(self, *operands: Array) -> tuple[Array]:
        (mixed,) = replace(self, each_row=False).batch(1, [False] * len(operands), *operands)
        return (mixed[0],)

    def batch(self, size: int, batched: Sequence[bool], *operands: Array) -> tuple[Array]:
        query, keys, values, near, far, tiles, count, layer, row, cached_keys, cached_values, *rest = operands
        query, near, far = (
            x if has else jnp.broadcast_to(x, (size, *x.shape))
            for x, has in zip((query, near, far), (*batched[:1], *batched[3:5]), strict=True)
        )
        at = "b" if batched[1] else ""
        scores = self._scores(jnp.einsum(f"bkqw,{at}pkw->bkqp", query, keys), near)
        top = scores.max(-1, keepdims=True)
        further = [x if has else x[None] for x, has in zip(rest, batched[11:], strict=True)]
        for score in further:
            top = jnp.maximum(top, score)
        shares = jnp.where(near[:, None, None], jnp.exp(scores - top), 0)
        total = shares.sum(-1, keepdims=True)
        for score in further:
            total += jnp.exp(score - top)
        mixed = jnp.einsum(f"bkqp,{at}pkw->bkqw", shares.astype(values.dtype), values).astype(jnp.float32)

        def tile(number: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            top, total, mixed = sums
            first = tiles[number] * TILE
            inside = jax.lax.dynamic_slice_in_dim(far, first, TILE, 1)
            near_keys, near_values = (self._read(cache, layer, row, first, size) for cache in (cached_keys, cached_values))
            at = "b" if self.each_row else ""
            scores = self._scores(jnp.einsum(f"bkqw,{at}kpw->bkqp", query, near_keys), inside)
            higher = jnp.maximum(top, scores.max(-1, keepdims=True))
            shares = jnp.where(inside[:, None, None], jnp.exp(scores - higher), 0)
            shrink = jnp.exp(top - higher)
            weighed = jnp.einsum(f"bkqp,{at}kpw->bkqw", shares.astype(near_values.dtype), near_values).astype(jnp.float32)
            return higher, total * shrink + shares.sum(-1, keepdims=True), mixed * shrink + weighed

        _, total, mixed = jax.lax.fori_loop(0, count, tile, (top, total, mixed))
        return ((mixed / total).astype(query.dtype),)

    def _read(self, cache: Array, layer: Array, row: Array, first: Array, size: int) -> Array:
        """A tile of a layer: [key heads, positions, head width] of a row, or of the row of each of `size` points."""
        _, rows, heads, _, width = cache.shape

        def tile(row: Array | int, count: int = 1) -> Array:
            return jax.lax.dynamic_slice(cache, (layer, row, 0, first, 0), (1, count, heads, TILE, width))[0]

        if not self.each_row:
            return tile(row)[0]
        if size == rows:
            return tile(0, rows)
        return tile(row[0]) if size == 1 else jax.lax.map(tile, row)[:, 0]

    def _scores(self, products: Array, inside: Array) -> Array:
        scores = products.astype(jnp.float32) * self.scale
        scores = scores if self.cap is None else self.cap * jnp.tanh(scores / self.cap)
        return jnp.where(inside[:, None, None], scores, _UNREACHED)
