"""Whether the zeros past the end of a padded range matter: `keys[0:t + 1 to T]`.

A read that puts the zeros there copies the whole range. Often each operation masks the padding before it is summed, so that anything
may stand there: attention's scores are masked after the product with the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Binary, Broadcast, Cast, Compare, Dataflow, Dot, Identity, Op, Permute, Reduce, Unary, Where
from tempo_core.symbolic.expr import Expr

ELEMENTWISE = (Unary, Binary, Compare, Where, Cast, Identity)


def matters(node: Node, position: int, dimension: int, length: Expr) -> bool:
    """Whether a result of a node depends on the elements of an operand past `length` along a dimension. True in doubt."""
    if not isinstance(node.op, Dataflow):
        return True
    padded: dict[int, frozenset[int]] = {position: frozenset((dimension,))}  # by slot: its dimensions with undefined elements
    for op, sources, targets in node.op.body.instructions:
        operands = [padded.get(source, frozenset()) for source in sources]
        if not any(operands):
            continue
        result = _padded_result(op, operands, [node.op.body.slot_types[source].rank for source in sources], length)
        if result is None:
            return True
        padded[targets[0]] = result
    return any(padded.get(slot) for slot in node.op.body.results)


def _padded_result(op: Op, operands: Sequence[frozenset[int]], ranks: Sequence[int], length: Expr) -> frozenset[int] | None:
    """The dimensions of a result with undefined elements past `length`. None if undefined elements may stand in other places too."""
    dimensions = operands[0]
    if isinstance(op, Where) and op.length == length and not operands[0] and not operands[2]:
        return operands[1] - {op.axis}
    if isinstance(op, ELEMENTWISE):
        return frozenset().union(*operands)
    if isinstance(op, Permute):
        return frozenset(op.order.index(k) for k in dimensions)
    if isinstance(op, Broadcast):
        return frozenset(op.axes[k] for k in dimensions)
    if isinstance(op, Reduce) and not dimensions & set(op.axes):
        return frozenset(k - sum(axis < k for axis in op.axes) for k in dimensions)
    if isinstance(op, Dot) and not operands[0] & set(op.left_contract) and not operands[1] & set(op.right_contract):
        left, right = op.left_free(ranks[0]), op.right_free(ranks[1])
        places = [{k: n for n, k in enumerate((*op.left_batch, *left))}]
        places.append(
            {k: n for n, k in enumerate(op.right_batch)} | {k: n + ranks[0] - len(op.left_contract) for n, k in enumerate(right)}
        )
        return frozenset(of[k] for of, dims in zip(places, operands, strict=True) for k in dims)
    return None
