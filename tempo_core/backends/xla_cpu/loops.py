"""Scans that compute in their loops what they take, and what reads them.

    $1 = Broadcast(shape=(T, 8, 9), axes=(0, 1))($0)      $4 = scanned(...)($0), at each position $6, where $5 is the result before:
    $2 = Unary(fn="exp")($1)                                  $7 = element(0)($0, $6)
    $3 = LinearScan(axis=0)($2, $1)                  ->       $8 = Broadcast(shape=(8, 9), axes=(0,))($7)
    $4 = Reduce(fn="sum", axes=(1,))($3)                      $9 = Unary(fn="exp")($8)
                                                              $10, $11 = combined(...)($5, $9, $8)
                                                              $12 = Reduce(fn="sum", axes=(0,))($11)

The coefficients `exp(rate[t] * decay)` of a scan may be many times as large as `rate` and `decay`: XLA would write them to memory before
the loop of the scan, and read them in it. A scan keeps all its elements at all positions: where its readers take a few elements at each
position (`x[0:t].sum(0).index(0, k[t])`), or reduce them, only these are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core import prices
from tempo_core.backends.base import Array, Call, Setting, numpy_dtype
from tempo_core.backends.island import NUMBER, Instruction, Island, run
from tempo_core.backends.xla_cpu.cumulative import start_of_scan
from tempo_core.backends.xla_cpu.slices import constant, start_of
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE, Source, left_out, sources, without
from tempo_core.ir.types import ITEM_SIZE, TensorType
from tempo_core.target import Target

Scan = ops.CumSum | ops.CumMax | ops.LinearScan
Body = Sequence[Instruction]
Slots = Sequence[int]
Ends = Sequence[tuple[int, int]]
_COMPUTED = (*ELEMENTWISE, ops.Broadcast, ops.Permute, ops.Slice, ops.Dot)
_READERS = (*ELEMENTWISE, ops.Gather, ops.Reduce)


@dataclass(frozen=True)
class Group:
    """A scan, and all that reads it, at each position.

    `ends` are the slots of the results, with the dimension of the scan's positions in each. `inside` are all slots that are computed in the
    loop, and `outer` the other ones that these need. Of those inside, `neighbours` hold the scan's elements of the position before, in the
    scan's direction; with True, the first position has its own elements there, else zeros.
    """

    scan: Scan
    operands: tuple[int, ...]
    slot: int
    ends: Mapping[int, int]
    inside: frozenset[int]
    outer: frozenset[int] = frozenset()
    neighbours: Mapping[int, bool] = field(default_factory=dict)


def compute_in_loops(island: Island) -> None:
    """Scans whose readers take less than all, and linear recurrences, are loops over one position at a time."""
    paying = [group for group in groups(island) if _pays(island, group)]
    each = ((op, operands, slot) for _, op, operands, (slot, *_) in island.instructions if isinstance(op, ops.LinearScan))
    alone = [Group(op, operands, slot, {slot: op.axis}, frozenset({slot})) for op, operands, slot in each]
    loops: dict[int, Group] = {}  # by the first of the results
    inside: set[int] = set()
    for group in [*paying, *alone]:  # what reads elements of two scans is computed in the loop of the first
        if island.size(group.slot) and inside.isdisjoint(group.inside | group.outer):
            loops[min(group.ends)] = group
            inside |= group.inside
    for _, op, operands, targets in island.rewriting():
        if targets[0] in loops:
            _Loop(island, loops[targets[0]])
        elif inside.isdisjoint(targets):
            island.add(op, operands, targets=targets)


def groups(island: Island) -> list[Group]:
    """The scans whose readers all take parts of the elements at each position, or reduce them."""
    each = (_group(island, place) for place, each in enumerate(island.instructions) if isinstance(each.op, Scan))
    return [group for group in each if group is not None]


def _group(island: Island, place: int) -> Group | None:
    _, scan, operands, (slot,) = island.instructions[place]
    assert isinstance(scan, Scan)
    inside: set[int] = {slot}
    read: set[int] = set()
    late: set[int] = set()  # what is made after the first result
    neighbours: dict[int, bool] = {}
    ends: dict[int, int] = {}
    for _, op, used, targets in island.instructions[place + 1 :]:
        if inside.isdisjoint(used):
            late.update(targets if ends else ())
            continue
        if (clamped := _is_neighbour(island, scan, op, used, slot)) is not None:
            neighbours[targets[0]] = clamped
        else:
            every = _sources(island, op, used, targets[0]) if isinstance(op, _READERS) else []
            axis = next((k for k, source in enumerate(every) if source == (scan.axis,) * len(used)), None)
            if axis is None or (isinstance(op, ops.Gather) and used[1] in inside):
                return None
            read.update(used)
            if not isinstance(op, ELEMENTWISE):
                ends[targets[0]] = axis
                continue
        inside.update(targets)
    outer = read - inside
    if not ends or not inside.isdisjoint(island.results) or not outer.isdisjoint(late):
        return None
    return Group(scan, operands, slot, ends, frozenset(inside | ends.keys()), frozenset(outer), neighbours)


def _sources(island: Island, op: ops.Op, operands: Sequence[int], target: int) -> Sequence[Source | None]:
    return sources(op, [island.types[slot].shape for slot in operands], island.types[target].shape)


def _is_neighbour(island: Island, scan: Scan, op: ops.Op, operands: Sequence[int], slot: int) -> bool | None:
    """Whether an operation gives the scan's elements of the position before, and the first one its own elements (False: zeros)."""
    if operands[0] != slot or slot in operands[1:] or not isinstance(op, (ops.Slice, ops.Gather)) or op.axis != scan.axis:
        return None
    length, by = island.shape(slot)[op.axis], 1 if scan.reverse else -1
    if isinstance(op, ops.Slice):
        return False if op.stride == 1 and (island.value(op.start), island.value(op.stop)) == (by, length + by) else None
    start, sign = start_of(island, operands[1]) or (-1, 0)
    is_before = constant(island, start) == sign * by and island.size(operands[1]) == length and not op.batch
    return True if is_before else None


def _pays(island: Island, group: Group) -> bool:
    """Whether the readers of a scan should be computed in its loop."""
    size, length = island.size(group.slot), island.shape(group.slot)[group.scan.axis]
    return length > 0 and prices.TIMES_SMALLER * (sum(map(island.size, group.ends)) // length) <= size // length


class _Loop:
    """The loop of a scan, put into an island: each instruction gives a value at one position, without the dimension of the positions."""

    def __init__(self, island: Island, group: Group):
        self.island, self.group = island, group
        self.outside, island.instructions = island.instructions, []
        scan, element = group.scan, self._type(group.slot, group.scan.axis)
        self.before, self.position = island.slot(element), island.slot(NUMBER)
        self.values: dict[int, int] = {}  # by slot of the island: that of the value at the position
        operands = [self._value(slot, scan.axis) for slot in group.operands]
        combine = Call(combined, (scan, numpy_dtype(element.dtype)))
        result, self.values[group.slot] = island.add(combine, (self.before, *operands), element, element)
        ends = tuple((self._value(slot, axis), axis) for slot, axis in group.ends.items())
        body, island.instructions = tuple(island.instructions), self.outside
        made = {self.before, self.position, *(target for each in body for target in each.targets)}
        read = sorted({slot for each in body for slot in each.sources} - made)
        inputs = (*read, self.before, self.position)
        loop = Call(scanned, (scan, island.types[group.slot], body, inputs, result, ends))
        island.add(loop, read, targets=tuple(group.ends))

    def _value(self, slot: int, axis: int) -> int:
        """A value at the position."""
        group = self.group
        if slot in self.values:
            return self.values[slot]
        if slot in group.neighbours:
            first = self.island.shape(group.slot)[axis] - 1 if group.scan.reverse else 0
            step = Call(neighbour, (first, group.neighbours[slot]))
            operands = (self.values[group.slot], self.before, self.position)
            (self.values[slot],) = self.island.add(step, operands, self._type(slot, axis))
        elif slot in group.inside:
            inner = [self._value(each, group.scan.axis) for each in self.island.makers[slot][1]]
            self.values[slot] = self._one(slot, axis, (group.scan.axis,) * len(inner), inner)
        else:
            self.values[slot] = self._operand(slot, axis)
        return self.values[slot]

    def _one(self, slot: int, axis: int, source: Source, inner: Sequence[int]) -> int:
        op = without(self.island.makers[slot][0], axis, source)
        assert op is not None
        return self.island.add(op, inner, self._type(slot, axis))[0]

    def _operand(self, slot: int, axis: int) -> int:
        """A value at the position: computed there if this reads much less, else read from the array."""
        island, count = self.island, len(self.island.instructions)
        computed = self._computed(slot, axis, self.position)
        new = island.instructions[count:]
        made = {self.position, *(target for each in new for target in each.targets)}
        read = sum(map(island.size, {source for each in new for source in each.sources} - made))
        operations = [each.op for each in new if not isinstance(each.op, Call)]
        is_fast = all(op.cost_class in prices.FAST for op in operations)
        if not operations or prices.pays_to_compute_in_scan(island.size(slot), read, len(operations), is_fast):
            return computed
        del island.instructions[count:]
        return self._element(slot, axis, self.position)

    def _computed(self, slot: int, axis: int, position: int) -> int:
        """A value at a position, as far as possible computed from its operands at theirs."""
        island, (op, operands) = self.island, self.island.makers.get(slot, (None, ()))
        source = _sources(island, op, operands, slot)[axis] if isinstance(op, _COMPUTED) else None
        if isinstance(op, ops.Iota):
            return position
        if isinstance(op, (ops.Slice, ops.Pad)) and op.axis == axis and getattr(op, "stride", 1) == 1:
            (start,) = island.add(ops.Eval(op.start if isinstance(op, ops.Slice) else -op.low), (), NUMBER)
            shift = Call(shifted, (island.shape(operands[0])[axis],))
            place, is_inside = island.add(shift, (position, start), NUMBER, TensorType("bool"))
            value = self._computed(operands[0], axis, place)
            return island.add(Call(masked), (is_inside, value), island.types[value])[0]
        if source is None or (isinstance(op, ops.Dot) and (op.left_contract or None in source)):
            return self._element(slot, axis, position)
        places = zip(operands, source, strict=True)
        return self._one(slot, axis, source, [each if k is None else self._computed(each, k, position) for each, k in places])

    def _element(self, slot: int, axis: int, position: int) -> int:
        """An element of an array. If few numbers lie together at each position, the array is transposed first.

        Every number would come in a cache line of its own, and the neighbours that come with it would be read again.
        """
        shape, type = self.island.shape(slot), self._type(slot, axis)
        pieces, together = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        target = Target.at_hand()
        lines = 4 * pieces * target.line  # of two operands, the result and what follows them, one for each piece
        if lines >= target.first_cache and together * ITEM_SIZE[type.dtype] < target.line:
            order = (axis, *(k for k in range(len(shape)) if k != axis))
            moved = self.island.slot(TensorType(type.dtype, tuple(self.island.types[slot].shape[k] for k in order)))
            self.outside.append(Instruction(self.island.number, ops.Permute(order), (slot,), (moved,)))
            slot, axis = moved, 0
        return self.island.add(Call(element, (axis,)), (slot, position), type)[0]

    def _type(self, slot: int, axis: int) -> TensorType:
        type = self.island.types[slot]
        return TensorType(type.dtype, left_out(type.shape, axis))


# -- what runs ----------------------------------------------------------------------------------------------------------


def scanned(
    at: Setting, scan: Scan, type: TensorType, body: Body, inputs: Slots, result: int, ends: Ends, *operands: Array
) -> tuple[Array, ...]:
    """What reads a scan of values of a type, by a loop with these instructions at one position.

    `inputs` are the slots of the operands, of the scan's result before and of the position. `ends` are the slots of the results at the
    position, each with the dimension of the positions in the whole.
    """
    neutral, length = start_of_scan(scan, numpy_dtype(type.dtype)), at.size(type.shape[scan.axis])

    def step(before: Array, position: Array) -> tuple[Array, list[Array]]:
        slots = dict(zip(inputs, (*operands, before, position), strict=True))
        run(at, body, slots)
        return slots[result], [slots[slot] for slot, _ in ends]

    start = jnp.full(at.shape(left_out(type.shape, scan.axis)), neutral)
    _, results = lax.scan(step, start, jnp.arange(length, dtype=jnp.int32), reverse=scan.reverse)
    return tuple(jnp.moveaxis(each, 0, axis) for each, (_, axis) in zip(results, ends, strict=True))


def combined(at: Setting, scan: Scan, dtype: np.dtype[np.generic], before: Array, *operands: Array) -> tuple[Array, Array]:
    """The scan's element at a position, from the one before and the operands there; and the same as it is read."""
    first, *terms = (operand.astype(before.dtype) for operand in operands)
    if isinstance(scan, ops.LinearScan):
        result = terms[0] + carried_part(first, before)
    else:
        result = before + first if isinstance(scan, ops.CumSum) else jnp.maximum(before, first)
    return result, result.astype(dtype)


def carried_part(coefficient: Array, before: Array) -> Array:
    """`coefficient * before`. A coefficient of zero gives zero even if `before` is infinite or NaN: it is a reset."""
    return jnp.where(coefficient == 0, jnp.zeros_like(before), coefficient * before)


def neighbour(at: Setting, first: int, is_clamped: bool, own: Array, before: Array, position: Array) -> Array:
    """The scan's element of the position before; that of the first position is its own, or zeros."""
    return jnp.where(position == first, own if is_clamped else jnp.zeros_like(own), before.astype(own.dtype))


def element(at: Setting, axis: int, x: Array, position: Array) -> Array:
    return lax.dynamic_index_in_dim(x, position, axis, keepdims=False)


def shifted(at: Setting, length: int, position: Array, by: Array) -> tuple[Array, Array]:
    """A position that much further on, clamped to the ends of an axis, and whether it lies inside of it."""
    place = position + by
    return jnp.clip(place, 0, length - 1), (place >= 0) & (place < length)


def masked(at: Setting, is_inside: Array, value: Array) -> Array:
    """A value at a position inside of an axis, else zeros."""
    return jnp.where(is_inside, value, jnp.zeros_like(value))
