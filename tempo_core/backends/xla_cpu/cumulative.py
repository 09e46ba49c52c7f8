"""Cumulative sums and maxima on a CPU: a few elements of each block written out, and the blocks one after the other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core.backends import shared
from tempo_core.ir import ops
from tempo_core.prices import MOST_WRITTEN_OUT

Array = Any


def start_of_scan(op: ops.Op, dtype: np.dtype[Any]) -> np.generic:
    """What changes no element of a scan, in the dtype in which elements of a dtype are accumulated."""
    wide = np.dtype(np.int8) if dtype == np.bool_ else shared.wide(np.empty(0, dtype)).dtype
    return wide.type(shared.least(wide) if isinstance(op, ops.CumMax) else 0)


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))  # outside of a program, each operation would be a launch
def in_blocks(combine: Callable[[Array, Array], Array], x: Array, axis: int, reverse: bool, neutral: Any) -> Array:
    """The cumulative result of an associative function along an axis; `neutral` changes nothing.

    Position k of all blocks is computed at once, from position k - 1 of all blocks. Then the results of the blocks are combined in
    their order, and each block takes over what the blocks before it give.
    """
    length = x.shape[axis]
    blocks = -(-length // MOST_WRITTEN_OUT)
    missing = [(0, blocks * MOST_WRITTEN_OUT - length if k == axis else 0, 0) for k in range(x.ndim)]
    whole = lax.pad(x, jnp.asarray(neutral, x.dtype), missing)
    rows = jnp.reshape(whole, (*x.shape[:axis], blocks, MOST_WRITTEN_OUT, *x.shape[axis + 1 :]))
    order = range(MOST_WRITTEN_OUT)[::-1] if reverse else range(MOST_WRITTEN_OUT)
    parts = [lax.index_in_dim(rows, k, axis + 1, keepdims=False) for k in order]
    inner = list(itertools.accumulate(parts, combine))

    def step(before: Array, block: Array) -> tuple[Array, Array]:
        return combine(before, block), before

    totals = jnp.moveaxis(inner[-1], axis, 0)
    start = jnp.full(totals.shape[1:], neutral, x.dtype)
    before = jnp.moveaxis(lax.scan(step, start, totals, reverse=reverse)[1], 0, axis)
    results = [combine(before, part) for part in inner]
    stacked = jnp.stack(results[::-1] if reverse else results, axis + 1)
    return lax.slice_in_dim(jnp.reshape(stacked, whole.shape), 0, length, axis=axis)
