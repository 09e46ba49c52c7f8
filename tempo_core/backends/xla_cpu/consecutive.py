"""Gathers that are slices: a slice moves whole pieces of memory, where a gather computes each address.

Positions that follow each other from a start among the data, `x[k], x[k + 1], ...`, clamped to the ends of the axis, are one slice. They are
computed in the same island: `arange(n) + k`, `arange(n) - k`, perhaps not below 0.

A few elements at any positions, such as a diagonal of a table with few rows, are a slice each. XLA makes one kernel of a whole loop whose
operations read little, and counts a gather as if it read all of its operand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array
from tempo_core.ir import ops
from tempo_core.prices import LEAST_BYTES_TO_SLICE, MOST_ELEMENTS_TO_SLICE

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


def has_few_elements(op: ops.Gather, x: Array, positions: Array) -> bool:
    """Whether a gather takes so few elements of a larger value that each is a slice: one of each row, or some along an axis."""
    if op.batch > 1 or positions.ndim != 1 or x.nbytes < LEAST_BYTES_TO_SLICE:
        return False
    rest = math.prod(n for axis, n in enumerate(x.shape) if axis != op.axis and axis >= op.batch)
    return x.shape[op.axis] > 0 and 0 < len(positions) * rest <= MOST_ELEMENTS_TO_SLICE


def in_slices(op: ops.Gather, x: Array, positions: Array) -> Array:
    """The elements of a gather, clamped to the ends of the axis, as one slice each."""
    places = jnp.clip(positions, 0, x.shape[op.axis] - 1)

    def start(number: int) -> Iterator[Array]:
        for axis in range(x.ndim):
            yield places[number] if axis == op.axis else jnp.asarray(number if axis < op.batch else 0, jnp.int32)

    sizes = [1 if axis == op.axis or axis < op.batch else n for axis, n in enumerate(x.shape)]
    slices = [lax.dynamic_slice(x, list(start(k)), sizes, allow_negative_indices=False) for k in range(len(places))]
    together = lax.concatenate(slices, 0 if op.batch else op.axis)
    return lax.squeeze(together, (op.axis,)) if op.batch else together
