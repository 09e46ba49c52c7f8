"""Rules of functions of repeated values: a function of a value that is repeated is the function of the value, repeated."""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge
from tempo_core.passes.base import read_at
from tempo_core.passes.clean.view import View
from tempo_core.symbolic.domain import Range


def of_repeated(view: View) -> Edge | None:
    """An elementwise function of values that are repeated in the same way, such as the sum of a block at each point of the block.

    XLA does the same where a broadcast is read directly. The other operands are single numbers.
    """
    slots = range(len(view.node.inputs))
    if not any(isinstance(view.operand(slot), (ops.Slice, ops.Reshape)) for slot in slots):
        return None
    repeated = [_repeated(view, slot) for slot in slots]
    first = next((each for each in repeated if each is not None), None)
    if first is None:
        return None
    value, views = first
    shape = view.graph.edge_type(value).shape
    operands = []
    for slot, each in enumerate(repeated):
        if each is not None and each[1] == views and view.graph.edge_type(each[0]).shape == shape:
            operands.append(each[0])
        elif (number := _number(view, slot)) is not None:
            operands.append(view.build.add(ops.Broadcast(shape, ()), number))
        else:
            return None
    result = view.build.add(view.op, *operands)
    for each_view in reversed(views):
        result = view.build.add(each_view, result)
    return result


def _number(view: View, slot: int) -> Edge | None:
    """The single number that an operand is, at all of its elements."""
    node = view.graph[view.edge(slot).source]
    while isinstance(node.op, ops.Broadcast):
        node = view.graph[node.inputs[0].source]
    return Edge(node.id, ()) if isinstance(node.op, ops.Constant) and not node.op.sizes else None


def _repeated(view: View, slot: int) -> tuple[Edge, tuple[ops.Op, ...]] | None:
    """The value that an operand repeats, and the views that do it, the last one first; None if no reshape follows the broadcast."""
    edge, views = view.edge(slot), list[ops.Op]()
    while not any(isinstance(index, Range) for index in edge.index):
        source = view.graph[edge.source]
        if not isinstance(source.op, (ops.Slice, ops.Reshape, ops.Broadcast)) or any(s.is_step for s in source.op.symbols):
            return None
        inner = read_at(source.inputs[0], source.domain, edge)
        if inner is None:
            return None
        views.append(source.op)
        if isinstance(source.op, ops.Broadcast):
            return (inner, tuple(views)) if any(isinstance(op, ops.Reshape) for op in views) else None
        edge = inner
    return None
