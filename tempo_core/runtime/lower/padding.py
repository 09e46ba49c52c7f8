"""Whether the zeros past the end of a padded range matter: `keys[0:t + 1 to T]`.

A read that puts the zeros there copies the whole range. Often each operation masks the padding before it is summed, so that anything
may stand there: attention's scores are masked after the product with the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.ir.axes import Shape, sources
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Dataflow, Gather, Op, Reshape, Where
from tempo_core.symbolic.expr import Expr


def matters(node: Node, position: int, dimension: int, length: Expr) -> bool:
    """Whether a result of a node depends on the elements of an operand past `length` along a dimension. True in doubt."""
    if not isinstance(node.op, Dataflow):
        return True
    padded: dict[int, frozenset[int]] = {position: frozenset((dimension,))}  # by slot: its dimensions with undefined elements
    for op, slots, targets in node.op.body.instructions:
        operands = [padded.get(slot, frozenset()) for slot in slots]
        if not any(operands):
            continue
        shapes = [node.op.body.slot_types[slot].shape for slot in (*slots, *targets)]
        result = _padded_result(op, operands, shapes, length)
        if result is None:
            return True
        padded[targets[0]] = result
    return any(padded.get(slot) for slot in node.op.body.results)


def _padded_result(op: Op, operands: Sequence[frozenset[int]], shapes: Sequence[Shape], length: Expr) -> frozenset[int] | None:
    """The dimensions of a result with undefined elements past `length`. None if undefined elements may stand in other places too.

    `shapes` are those of the operands and of the result.
    """
    if isinstance(op, Where) and op.length == length and not operands[0] and not operands[2]:
        return operands[1] - {op.axis}
    if isinstance(op, Gather) and op.length is not None and operands[0] == {op.axis} and not operands[1]:
        return frozenset()
    if isinstance(op, Reshape) and operands[0] == {0}:
        (_, *before), (_, *after) = shapes
        if before[len(before) - len(after) :] == after:  # the first dimensions as one: the padding still comes last
            return operands[0]
    padded = {(slot, axis) for slot, axes in enumerate(operands) for axis in axes}
    places = [(k, set(enumerate(source))) for k, source in enumerate(sources(op, shapes[:-1], shapes[-1])) if source is not None]
    stays = set().union(*(of for _, of in places))
    return frozenset(k for k, of in places if of & padded) if padded <= stays else None
