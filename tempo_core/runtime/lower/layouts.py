"""The order in which the dimensions of a store lie: the one in which the most readers need no transposition.

A store has a dimension for each step with several slots, then those of a value. `keys[0:t + 1]`, a range of values [heads, width], is
contracted over `width` for each head: its store lies [heads, slots, width]. A range of values [rows, width] that is contracted over
slots and rows, as for the gradient of a weight, lies [slots, rows, width].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tempo_core.ir.axes import ELEMENTWISE, Shape, sources
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.ops import Broadcast, Dataflow, Dot, LinearScan, Op, Permute
from tempo_core.symbolic.domain import Range

Reader = tuple[Node, int]  # a node and the position of an operand
Dimensions = tuple[int | None, ...]  # of a value in an island: the operand's dimension, or None if there is none


@dataclass(frozen=True)
class Use:
    """The order in which an operation wants the dimensions of an operand: group after group, the `contracted` ones in any order."""

    groups: tuple[tuple[int, ...], ...]
    contracted: frozenset[int] = frozenset()

    def is_met(self, order: Sequence[int]) -> bool:
        """Whether an operand whose dimensions lie in this order needs no transposition. Dimensions that do not lie at all are free."""
        wanted = [k for group in self.groups for k in group if k in order]
        mixed = [-1 if k in self.contracted else k for k in order]
        return mixed == [-1 if k in self.contracted else k for k in wanted]


def order(slots: Sequence[int], rank: int, readers: Sequence[Reader]) -> tuple[int, ...]:
    """The dimensions of a store in the order in which they lie. `slots` are those along each step, `rank` is that of a value.

    `readers` are the reads of ranges. Of orders that are equally good, the one with slots first is taken: then a value is one piece.
    """
    leading = [k for k, count in enumerate(slots) if count > 1]
    uses = [
        (use, _dimensions(node.inputs[position], leading, rank)) for node, position in readers for use in _uses(node, position)
    ]

    def transpositions(lying: tuple[int, ...]) -> int:
        return sum(not use.is_met([of_operand[k] for k in lying if k in of_operand]) for use, of_operand in uses)

    return min(_orders(len(leading), rank), key=transpositions)


def _orders(leading: int, rank: int) -> Iterator[tuple[int, ...]]:
    """The orders to choose from, the preferred ones first: slots before values, then the slots of one step within values."""
    values = tuple(range(leading, leading + rank))
    for slots in itertools.permutations(range(leading)):
        yield (*slots, *values)
    for inner in range(leading):
        others = [k for k in range(leading) if k != inner]
        for place in range(1, rank):
            yield (*others, *values[:place], inner, *values[place:])


def _dimensions(edge: Edge, leading: Sequence[int], rank: int) -> dict[int, int]:
    """By dimension of a store, the dimension of an operand. An operand has its ranges first, and no dimension for a point."""
    ranges = [k for k, index in enumerate(edge.index) if isinstance(index, Range)]
    of_slots = {place: ranges.index(k) for place, k in enumerate(leading) if k in ranges}
    return of_slots | {len(leading) + k: len(ranges) + k for k in range(rank)}


# -- what operations want ---------------------------------------------------------------------------------------------


def _uses(node: Node, position: int) -> Iterator[Use]:
    """What the operations of a node want of its operand, through elementwise operations, permutations and repetitions."""
    if not isinstance(node.op, Dataflow):
        return
    body = node.op.body
    dimensions: dict[int, Dimensions] = {position: tuple(range(body.slot_types[position].rank))}
    for op, slots, targets in body.instructions:
        operands = [dimensions.get(slot) for slot in slots]
        if not any(slot in dimensions for slot in slots):
            continue
        yield from _wanted(op, operands)
        result = _result(op, operands, [body.slot_types[slot].shape for slot in (*slots, *targets)])
        if result is not None:
            dimensions[targets[0]] = result


def _wanted(op: Op, operands: Sequence[Dimensions | None]) -> Iterator[Use]:
    """The order that the kernel of an op gives its operands: see `dot` and `linear_scan` of `backends/jax_backend.py`."""
    if isinstance(op, Dot):
        sides = ((op.left_batch, op.left_contract), (op.right_batch, op.right_contract))
        for dimensions, (batch, contract) in zip(operands, sides, strict=True):
            if dimensions is not None:
                free = tuple(k for k in range(len(dimensions)) if k not in batch + contract)
                last = len(dimensions) - 1 in contract
                groups = (tuple(sorted(batch)), free, contract) if last else (tuple(sorted(batch)), contract, free)
                yield _of_operand(groups, contract, dimensions)
    elif isinstance(op, LinearScan):
        for dimensions in operands:
            if dimensions is not None:
                others = tuple(k for k in range(len(dimensions)) if k != op.axis)
                yield _of_operand(((op.axis,), others), (), dimensions)


def _of_operand(groups: Sequence[tuple[int, ...]], contract: tuple[int, ...], dimensions: Dimensions) -> Use:
    """A use in terms of the island's operand."""

    def named(axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(k for k in (dimensions[axis] for axis in axes) if k is not None)

    return Use(tuple(map(named, groups)), frozenset(named(contract)))


def _result(op: Op, operands: Sequence[Dimensions | None], shapes: Sequence[Shape]) -> Dimensions | None:
    """The operand's dimensions in the result of an op; None if it is not the operand in another form. `shapes` has the result's last."""
    if not isinstance(op, (*ELEMENTWISE, Permute, Broadcast)):
        return None
    slot, dimensions = next((slot, each) for slot, each in enumerate(operands) if each is not None)
    axes = (None if source is None else source[slot] for source in sources(op, shapes[:-1], shapes[-1]))
    return tuple(None if axis is None else dimensions[axis] for axis in axes)
