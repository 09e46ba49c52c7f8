"""Blocks of a step: the points `w * (t // w)` to `w * (t // w) + w - 1`, and values that are the same at all points of a block."""

from __future__ import annotations

from dataclasses import fields

from tempo_core.ir import ops
from tempo_core.ir.axes import ROWS
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Index, Point, Range, is_own_point
from tempo_core.symbolic.expr import Expr, FloorDivide, Symbol, minimum

# Ops whose value at a point depends on nothing but their operands and their own expressions.
_BY_OPERANDS = (*ROWS, ops.Constant, ops.Eval, ops.Iota)


def block_of(index: Range, step: Symbol) -> Expr | None:
    """The size w of a block `t // w * w:min(t // w * w + w, T)`, also written with `t % w`; None for other ranges."""
    start, stop = index.start.without_modulo(), index.stop.without_modulo()
    divisions = [a for a in start.atoms if isinstance(a, FloorDivide)]
    if len(divisions) != 1 or divisions[0].numerator != step.expr:
        return None
    size = divisions[0].denominator
    if index.stride != 1 or start != Expr.of_atom(divisions[0]) * size or step in size.symbols:
        return None
    return size if stop in (start + size, minimum(start + size, step.bound_expr)) else None


def is_same_in_block(graph: Graph, edge: Edge, step: Symbol, size: Expr) -> bool:
    """Whether a value that readers over `step` read is the same for all readers in a block."""
    waiting, seen = [edge], {edge.source}
    while waiting:
        read = waiting.pop()
        source = graph[read.source]
        moving = [s for s, i in read.by_step(source.domain).items() if step in i.steps and not _by_blocks(i, step, size)]
        if not moving or (read.is_own_point(source.domain) and _takes_a_repeated_value(graph, source, step, size)):
            continue
        if (
            moving != [step]
            or not is_own_point(read.by_step(source.domain)[step], step)
            or not _is_by_operands(source, step, size)
        ):
            return False
        waiting += [
            inner for inner in source.inputs if inner.source not in seen or not inner.is_own_point(graph[inner.source].domain)
        ]
        seen.update(inner.source for inner in source.inputs)
    return True


def _takes_a_repeated_value(graph: Graph, node: Node, step: Symbol, size: Expr) -> bool:
    """Whether a node takes its point's element of values that are one a block, repeated along it: what a reduction of blocks becomes."""
    if not isinstance(node.op, ops.Gather) or node.op.batch:
        return False
    values, position = (graph[edge.source] for edge in node.inputs)
    axis = node.op.axis
    if not isinstance(position.op, ops.Eval) or position.op.value != step.expr or step in values.domain:
        return False
    if isinstance(values.op, ops.Slice) and values.op.axis == axis and values.op.start == 0:
        values = graph[values.inputs[0].source]
    if not isinstance(values.op, ops.Reshape):
        return False
    rows = graph[values.inputs[0].source]
    shape = rows.outputs[0].shape
    if not isinstance(rows.op, ops.Broadcast) or axis + 1 >= len(shape) or axis + 1 in rows.op.axes:
        return False
    return bool(shape[axis + 1] == size) and values.outputs[0].shape == (*shape[:axis], shape[axis] * size, *shape[axis + 2 :])


def _is_by_operands(node: Node, step: Symbol, size: Expr) -> bool:
    """Whether only the operands of a node may differ between the points of a block."""
    if not isinstance(node.op, _BY_OPERANDS) or node.domain.condition is not TRUE:
        return False
    values = [getattr(node.op, f.name) for f in fields(node.op)]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    if any(isinstance(part, Bool) and step in part.symbols for part in parts):
        return False
    return all(part.is_by_blocks(step, size) for part in parts if isinstance(part, Expr))


def _by_blocks(index: Index, step: Symbol, size: Expr) -> bool:
    expressions = (index.expr,) if isinstance(index, Point) else (index.start, index.stop)
    return all(expression.is_by_blocks(step, size) for expression in expressions)
