"""Scans of which each position is read in part: `x[0:t].sum(0).index(0, k[t])`, or reduced: the loop of the scan does that, too.

A scan keeps all its elements at all positions. Where its readers take a few elements at each position, only these are kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array, lax

from tempo_core.backends import shared
from tempo_core.backends.base import Setting
from tempo_core.backends.xla_cpu.cumulative import least
from tempo_core.backends.xla_cpu.elementwise_scans import Element, Producers, carried_part, operand
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE, dropped
from tempo_core.prices import LEAST_SHRINKING
from tempo_core.symbolic.expr import Expr

Scan = ops.CumSum | ops.CumMax | ops.LinearScan
SCANS = (ops.CumSum, ops.CumMax, ops.LinearScan)
Values = dict[int, Array]  # by slot


@dataclass(frozen=True)
class Reader:
    """What computes a value from elements of the scan at one position: `op` on values of that position, in `sources`."""

    op: ops.Op
    sources: tuple[int, ...]
    target: int


@dataclass(frozen=True)
class Readers:
    """All that reads a scan, at each position.

    `neighbours` are the slots that hold the scan's elements of the position before, in the scan's direction; with True, the first
    position has its own elements there, else zeros. `steps` are the operations on both. `ends` are the slots of the results, with the
    dimension of the scan's positions in each. `outer` are the other operands.
    """

    scan: Scan
    sources: tuple[int, ...]
    slot: int
    neighbours: dict[int, bool]
    steps: tuple[Reader, ...]
    ends: dict[int, int]
    outer: tuple[int, ...]

    @property
    def inside(self) -> set[int]:
        """The slots of values that are computed in the loop."""
        return {self.slot, *self.neighbours, *(step.target for step in self.steps)}


@functools.lru_cache(maxsize=1024)
def readers(body: ops.Dataflowed) -> dict[int, Readers]:
    """By the slot of each scan whose readers all take parts of its elements at each position, or reduce them: these readers."""
    each = (_readers(body, number) for number, (op, _, _) in enumerate(body.instructions) if isinstance(op, SCANS))
    return {group.slot: group for group in each if group is not None}


def _readers(body: ops.Dataflowed, number: int) -> Readers | None:
    op, sources, (slot,) = body.instructions[number]
    assert isinstance(op, SCANS)
    inside = {slot}
    neighbours: dict[int, bool] = {}
    steps: list[Reader] = []
    ends: dict[int, int] = {}
    made_before_end: set[int] = set(range(len(body.input_types)))
    for _, _, targets in body.instructions[:number]:
        made_before_end.update(targets)
    for reader, used, targets in body.instructions[number + 1 :]:
        if not inside.intersection(used):
            if not ends:
                made_before_end.update(targets)
            continue
        if (clamped := _is_neighbour(body, op, reader, used, slot)) is not None:
            neighbours[targets[0]] = clamped
            inside.update(targets)
            continue
        at_position, axis = _at_position(reader, used, inside, op.axis)
        if at_position is None:
            return None
        steps.append(Reader(at_position, used, targets[0]))
        if isinstance(reader, ELEMENTWISE):
            inside.add(targets[0])
        else:
            ends[targets[0]] = axis
    outer = {s for step in steps for s in step.sources} - inside
    if not ends or inside.intersection(body.results) or not outer <= made_before_end:
        return None
    return Readers(op, sources, slot, neighbours, tuple(steps), ends, tuple(sorted(outer)))


def _at_position(op: ops.Op, sources: tuple[int, ...], inside: set[int], axis: int) -> tuple[ops.Op | None, int]:
    """The operation at one position along `axis`, and the dimension of the positions in its result; None for other operations."""
    if isinstance(op, ELEMENTWISE):
        return op, axis
    if isinstance(op, ops.Gather) and axis < op.batch and sources[1] not in inside:
        return replace(op, axis=op.axis - 1, batch=op.batch - 1), axis
    if isinstance(op, ops.Reduce) and axis not in op.axes:
        return replace(op, axes=dropped(op.axes, axis)), axis - sum(k < axis for k in op.axes)
    return None, axis


def _is_neighbour(body: ops.Dataflowed, scan: Scan, op: ops.Op, sources: tuple[int, ...], slot: int) -> bool | None:
    """Whether an operation gives the scan's elements of the position before, and the first one its own elements (False: zeros)."""
    if sources[0] != slot or slot in sources[1:]:
        return None
    length, by = body.slot_types[slot].shape[scan.axis], 1 if scan.reverse else -1
    if isinstance(op, ops.Slice) and op.axis == scan.axis and op.stride == 1:
        return False if op.start == Expr.of(by) and op.stop == length + by else None
    if isinstance(op, ops.Gather) and op.axis == scan.axis and not op.batch:
        return True if _distance(body, sources[1], length) == by else None
    return None


def _distance(body: ops.Dataflowed, slot: int, length: Expr) -> int | None:
    """d, for positions that are `arange(length) + d`."""
    made = {targets[0]: (op, sources) for op, sources, targets in body.instructions}
    op, sources = made.get(slot, (None, ()))
    if not isinstance(op, ops.Binary) or op.fn != "add":
        return None
    for counted, repeated in (sources, sources[::-1]):
        (iota, _), (broadcast, numbers) = made.get(counted, (None, ())), made.get(repeated, (None, ()))
        if isinstance(iota, ops.Iota) and iota.size == length and isinstance(broadcast, ops.Broadcast):
            constant, _ = made.get(numbers[0], (None, ()))
            if isinstance(constant, ops.Constant) and constant.sizes == ():
                return int.from_bytes(constant.data, "little", signed=True)
    return None


class PickedScans:
    """The scans of an island whose readers are computed in their loops: at the first result of each, for all of its readers."""

    def __init__(self, at: Setting, body: ops.Dataflowed):
        self.at = at
        groups: list[Readers] = []
        self.in_loop: set[int] = set()
        for group in readers(body).values():  # what reads elements of two scans is computed in the loop of the first
            if _pays(at, group, body) and not self.in_loop.intersection((*group.inside, *group.outer)):
                groups.append(group)
                self.in_loop |= group.inside
        self.by_end = {end: group for group in groups for end in group.ends}

    def results(self, slot: int, slots: list[Array], producers: Producers) -> Values:
        """The results of all readers of a scan, `slot` among them; none if it is a value inside of the loop, or a later result."""
        if slot not in self.by_end or slots[slot] is not None:
            return {}
        return _picked(self.at, self.by_end[slot], slots, producers)


def _pays(at: Setting, group: Readers, body: ops.Dataflowed) -> bool:
    """Whether the readers of a scan should be computed in its loop."""
    sizes = at.shape(body.slot_types[group.slot].shape)
    kept = sum(math.prod(at.shape(body.slot_types[end].shape)) for end in group.ends)
    length = sizes[group.scan.axis]
    return length > 0 and LEAST_SHRINKING * (kept // length) <= math.prod(sizes) // length


def _picked(at: Setting, group: Readers, slots: list[Array], producers: Producers) -> Values:
    """The results of a scan's readers."""
    scan = group.scan
    like = slots[group.sources[-1]]
    length, neutral = like.shape[scan.axis], 0
    operands = [operand(at, slots, producers, slot, scan.axis) for slot in group.sources]
    outer = {slot: operand(at, slots, producers, slot, scan.axis) for slot in group.outer}
    if isinstance(scan, ops.CumMax):
        neutral = least(jnp.int8 if like.dtype == jnp.bool_ else like.dtype)
    combine = _combination(scan, operands)

    def ends(position: Array, own: Array, before: Array) -> tuple[Array, ...]:
        values = {group.slot: own, **dict.fromkeys(group.neighbours, before)}
        return _results(at, group, values, outer, position)

    def step(before: Array, position: Array) -> tuple[Array, tuple[Array, ...]]:
        own = combine(before, position)
        return own, ends(position, own.astype(like.dtype), before.astype(like.dtype))

    wide = jnp.int8 if like.dtype == jnp.bool_ else shared.wide(like).dtype
    shape = (*like.shape[: scan.axis], *like.shape[scan.axis + 1 :])
    start, positions = jnp.full(shape, neutral, wide), jnp.arange(length, dtype=jnp.int32)
    _, results = lax.scan(step, start, positions, reverse=scan.reverse)
    if group.neighbours:
        first = jnp.int32(length - 1 if scan.reverse else 0)
        own = combine(start, first).astype(like.dtype)
        values = {group.slot: own} | {slot: own if clamped else jnp.zeros_like(own) for slot, clamped in group.neighbours.items()}
        fixed = _results(at, group, values, outer, first)
        results = tuple(lax.dynamic_update_index_in_dim(all, one, first, 0) for all, one in zip(results, fixed, strict=True))
    return {slot: jnp.moveaxis(result, 0, axis) for (slot, axis), result in zip(group.ends.items(), results, strict=True)}


def _combination(scan: Scan, operands: list[Element]) -> Callable[[Array, Array], Array]:
    """The scan's element at a position, from the one before."""

    def combine(before: Array, position: Array) -> Array:
        values = [element(position).astype(before.dtype) for element in operands]
        if isinstance(scan, ops.LinearScan):
            coefficient, term = values
            return term + carried_part(coefficient, before)
        return before + values[0] if isinstance(scan, ops.CumSum) else jnp.maximum(before, values[0])

    return combine


def _results(at: Setting, group: Readers, values: Values, outer: dict[int, Element], position: Array) -> tuple[Array, ...]:
    values = values | {slot: element(position) for slot, element in outer.items()}
    for step in group.steps:
        (values[step.target],) = at.backend.kernel(step.op, [values[s] for s in step.sources], at.env, at.seed)
    return tuple(values[end] for end in group.ends)
