"""Gathers that are slices, and products of slices: a slice moves whole pieces of memory, where a gather computes each address.

    $3 = Broadcast(shape=(n,), axes=())($2)           $3 = Broadcast(shape=(n,), axes=())($2)
    $4 = Binary(fn="add")($1, $3)                     $4 = Binary(fn="add")($1, $3)            $1: arange(n)
    $5 = Gather(axis=0)($0, $4)               ->      $5 = window(0, 1)($0, $4, $2)

Positions that follow each other from a start among the data, `x[k], x[k + 1], ...`, clamped to the ends of the axis, are one slice. They are
computed in the same island: `arange(n) + k`, `arange(n) - k`, perhaps not below 0.

A few elements at any positions, such as a diagonal of a table with few rows, are a slice each. XLA makes one kernel of a whole loop whose
operations read little, and counts a gather as if it read all of its operand.

A product of a slice runs part by part: XLA would copy what is sliced as a whole, where it is all points of a store but one.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Call, Setting
from tempo_core.backends.island import Island
from tempo_core.backends.products import dot
from tempo_core.ir import ops
from tempo_core.prices import LEAST_BYTES_TO_SLICE, MOST_WRITTEN_OUT, SHORT_AXIS
from tempo_core.target import Target

Operation = tuple[ops.Op, tuple[int, ...]]  # with the slots of its operands


def take_slices(island: Island) -> None:
    """Gathers become slices, and products of slices run part by part."""
    for _, op, sources, targets in island.rewriting():
        if isinstance(op, ops.Gather):
            op, sources = _of_gather(island, op, *sources)
        elif isinstance(op, ops.Dot):
            op, sources = _of_product(island, op, sources)
        island.add(op, sources, targets=targets)


# -- gathers ------------------------------------------------------------------------------------------------------------


def _of_gather(island: Island, op: ops.Gather, x: int, positions: int) -> Operation:
    start = None if op.batch else start_of(island, positions)
    if start is not None and min(island.shape(x)[op.axis], island.size(positions)) >= SHORT_AXIS:
        return Call(window, (op.axis, start[1])), (x, positions, start[0])
    is_few = island.is_in_loop and has_few_elements(island, op, x, positions)
    return Call(pieces, (op,)) if is_few else op, (x, positions)


def start_of(island: Island, positions: int) -> tuple[int, int] | None:
    """The start of positions that follow each other: the slot of a scalar, and its sign. Positions below 0 may be clamped to 0."""
    makers = island.makers
    op, operands = makers.get(positions, (None, ()))
    if not isinstance(op, ops.Binary) or island.types[positions].rank != 1 or island.types[positions].dtype != "int32":
        return None
    for counted, other in (operands, operands[::-1]):
        spread, scalar = makers.get(other, (None, ()))
        if not isinstance(spread, ops.Broadcast) or spread.axes:
            continue
        if isinstance(makers.get(counted, (None,))[0], ops.Iota) and (
            op.fn == "add" or (op.fn == "sub" and counted == operands[0])
        ):
            return scalar[0], 1 if op.fn == "add" else -1
        if op.fn == "maximum" and (number := constant(island, scalar[0])) is not None and number <= 0:
            return start_of(island, counted)
    return None


def constant(island: Island, slot: int) -> int | None:
    """The integer in a slot, if it is written in the program."""
    op, _ = island.makers.get(slot, (None, ()))
    return int.from_bytes(op.data, "little", signed=True) if isinstance(op, ops.Constant) else None


def window(at: Setting, axis: int, sign: int, x: Array, positions: Array, start: Array) -> Array:
    """Elements at `positions`, which follow each other from `sign * start` on, clamped to the ends of the axis."""
    count, length = positions.shape[0], x.shape[axis]
    widths = [(count, count, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), widths)
    inside = lax.dynamic_slice_in_dim(padded, jnp.clip(sign * start, -count, length) + count, count, axis)
    places = lax.broadcast_in_dim(positions, inside.shape, (axis,))
    first, last = lax.slice_in_dim(x, 0, 1, axis=axis), lax.slice_in_dim(x, length - 1, length, axis=axis)
    return jnp.where(places <= 0, first, jnp.where(places >= length - 1, last, inside))


def has_few_elements(island: Island, op: ops.Gather, x: int, positions: int) -> bool:
    """Whether a gather takes so few elements of a larger value that each is a slice: one of each row, or some along an axis."""
    if op.batch > 1 or island.types[positions].rank != 1 or island.types[x].size_in_bytes(island.at.env) < LEAST_BYTES_TO_SLICE:
        return False
    rest = math.prod(n for axis, n in enumerate(island.shape(x)) if axis != op.axis and axis >= op.batch)
    return 0 < island.size(positions) * rest <= MOST_WRITTEN_OUT


def pieces(at: Setting, op: ops.Gather, x: Array, positions: Array) -> Array:
    """The elements of a gather, clamped to the ends of the axis, as one slice each."""
    places = jnp.clip(positions, 0, x.shape[op.axis] - 1)
    sizes = [1 if axis == op.axis or axis < op.batch else n for axis, n in enumerate(x.shape)]
    each = []
    for number in range(len(places)):
        start = [jnp.int32(number if axis < op.batch else 0) for axis in range(x.ndim)]
        start[op.axis] = places[number]
        each.append(lax.dynamic_slice(x, start, sizes, allow_negative_indices=False))
    together = lax.concatenate(each, 0 if op.batch else op.axis)
    return lax.squeeze(together, (op.axis,)) if op.batch else together


# -- products -----------------------------------------------------------------------------------------------------------


def _of_product(island: Island, op: ops.Dot, sources: tuple[int, ...]) -> Operation:
    """A product that contracts the dimension along which an operand is a slice runs in parts, unless it is small."""
    for axes in zip(op.left_contract, op.right_contract, strict=True):
        wholes = [_whole(island, source, axis) for source, axis in zip(sources, axes, strict=True)]
        cut = [source for source, (slot, _) in zip(sources, wholes, strict=True) if slot != source]
        bytes = sum(island.types[source].size_in_bytes(island.at.env) for source in cut)
        cache = int(Target.at_hand().cache_bytes)
        if bytes >= 2 * cache:
            length = island.shape(sources[0])[axes[0]]
            size = min(length, max(1, cache * length // (3 * bytes)))
            slots, firsts = zip(*wholes, strict=True)
            return Call(in_parts, (op, axes, firsts, length, size)), slots
    return op, sources


def _whole(island: Island, source: int, axis: int) -> tuple[int, int]:
    """The slot of which a value is a part along an axis, and where the part begins."""
    op, operands = island.makers.get(source, (None, ()))
    if not isinstance(op, ops.Slice) or op.axis != axis or op.stride != 1 or (start := island.value(op.start)) is None:
        return source, 0
    is_inside = 0 <= start <= island.shape(operands[0])[axis] - island.shape(source)[axis]
    return (operands[0], start) if is_inside else (source, 0)


def in_parts(
    at: Setting, op: ops.Dot, axes: tuple[int, int], firsts: tuple[int, int], length: int, size: int, *operands: Array
) -> Array:
    """A product of `length` positions of each operand along an axis, of which `firsts` are the first, by parts of so many positions."""

    def part(position: Array | int, count: int) -> Array:
        places = zip(operands, firsts, axes, strict=True)
        left, right = (lax.dynamic_slice_in_dim(x, first + position, count, axis) for x, first, axis in places)
        return dot(at, op, left, right)

    rest = length % size or size
    return lax.fori_loop(0, (length - rest) // size, lambda k, total: total + part(rest + k * size, size), part(0, rest))
