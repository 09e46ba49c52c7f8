"""Products of slices, part by part. XLA would copy what is sliced as a whole, where it is all points of a store but one."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from tempo_core.backends.base import Array, Setting, is_static
from tempo_core.backends.products import dot
from tempo_core.backends.xla_cpu.elementwise_scans import Producers
from tempo_core.ir import ops
from tempo_core.prices import BYTES_OF_A_STRIP, LEAST_BYTES_FOR_STRIPS


def in_parts(at: Setting, op: ops.Dot, sources: Sequence[int], slots: Sequence[Array], producers: Producers) -> Array | None:
    """A product that contracts the dimension along which an operand is a slice; None for others, and for small ones."""
    for axes in zip(op.left_contract, op.right_contract, strict=True):
        slices = [_slice(at, source, axis, slots, producers) for source, axis in zip(sources, axes, strict=True)]
        bytes = sum(slots[source].nbytes for source, cut in zip(sources, slices, strict=True) if cut is not None)
        if bytes >= LEAST_BYTES_FOR_STRIPS:
            break
    else:
        return None
    operands = [(slots[source], 0) if cut is None else cut for source, cut in zip(sources, slices, strict=True)]
    length = slots[sources[0]].shape[axes[0]]
    size = min(length, max(1, BYTES_OF_A_STRIP * length // bytes))

    def part(first: Array | int, count: int) -> Array:
        left, right = (lax.dynamic_slice_in_dim(x, s + first, count, axis) for (x, s), axis in zip(operands, axes, strict=True))
        return dot(at, op, left, right)

    rest = length % size or size
    return lax.fori_loop(0, (length - rest) // size, lambda k, total: total + part(rest + k * size, size), part(0, rest))


def _slice(at: Setting, source: int, axis: int, slots: Sequence[Array], producers: Producers) -> tuple[Array, int] | None:
    """The array of which a value is a part along an axis, and where the part begins; None if it is not."""
    slice, inputs = producers.get(source, (None, ()))
    if not isinstance(slice, ops.Slice) or slice.axis != axis or slice.stride != 1:
        return None
    whole, start = slots[inputs[0]], at.value(slice.start)
    is_inside = is_static(start) and start >= 0 and start + slots[source].shape[axis] <= whole.shape[axis]
    return (whole, start) if is_inside else None
