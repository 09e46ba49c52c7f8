"""Gathers at positions that follow each other, from a start among the data: `x[k], x[k + 1], ...`, clamped to the ends of the axis.

The positions are computed in the same island: `arange(n) + k`, `arange(n) - k`, perhaps not below 0. Such a gather is a slice. A slice moves
whole pieces of memory, where a gather computes each address.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array
from tempo_core.ir import ops

Start = tuple[int, int]  # the slot of a scalar, and its sign


@functools.lru_cache(maxsize=1024)
def starts(body: ops.Dataflowed) -> dict[int, Start]:
    """By the slot of each vector of positions that follow each other: the start. Positions below 0 may be clamped to 0."""
    made = {targets[0]: (op, sources) for op, sources, targets in body.instructions}

    def spread(slot: int) -> int | None:
        """The scalar that a vector repeats."""
        op, sources = made.get(slot, (None, ()))
        return sources[0] if isinstance(op, ops.Broadcast) and not op.axes else None

    def is_number(slot: int | None) -> bool:
        op, _ = made.get(-1 if slot is None else slot, (None, ()))
        return isinstance(op, ops.Constant) and int.from_bytes(op.data, "little", signed=True) <= 0

    found: dict[int, Start] = {}
    for op, sources, (target, *_) in body.instructions:
        if not isinstance(op, ops.Binary) or body.slot_types[target].rank != 1 or body.slot_types[target].dtype != "int32":
            continue
        for counted, other in (sources, sources[::-1]):
            scalar = spread(other)
            if isinstance(made.get(counted, (None,))[0], ops.Iota) and scalar is not None:
                if op.fn == "add" or (op.fn == "sub" and counted == sources[0]):
                    found[target] = (scalar, 1 if op.fn == "add" else -1)
            elif op.fn == "maximum" and counted in found and is_number(scalar):
                found[target] = found[counted]
    return found


def sliced(x: Array, axis: int, positions: Array, start: Array) -> Array:
    """`x` at `positions`, which are `start, start + 1, ...`, clamped to the ends of the axis."""
    count, length = positions.shape[0], x.shape[axis]
    widths = [(count, count, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), widths)
    window = lax.dynamic_slice_in_dim(padded, jnp.clip(start, -count, length) + count, count, axis)
    places = lax.broadcast_in_dim(positions, window.shape, (axis,))
    first, last = lax.slice_in_dim(x, 0, 1, axis=axis), lax.slice_in_dim(x, length - 1, length, axis=axis)
    return jnp.where(places <= 0, first, jnp.where(places >= length - 1, last, window))
