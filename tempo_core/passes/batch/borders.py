"""Borders: branches of a `Merge` that apply before or after a point of a step, at all its points at once, as slices and padding."""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.symbolic.condition import Bool, limit_of
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import extreme

Span = tuple[
    Expr, Expr
]  # the points `start, ..., stop - 1` of a step, if there are any; both may lie outside of the step's bounds


def span_of(condition: Bool, step: Symbol) -> Span | None:
    """The points of a step at which a condition holds, if they are a range.

    >>> i = Symbol("i", "I")
    >>> span_of((i.expr >= 1) & (i.expr <= i.bound_expr - 3), i)
    (1, I - 2)
    """
    starts, stops = [Expr.of(0)], [step.bound_expr]
    for part in condition.parts:
        kind, limit = limit_of(part, step) or ("", step.expr)
        if kind == "!=" and limit == 0:
            kind, limit = ">=", limit + 1
        elif kind == "!=" and limit == step.bound_expr - 1:
            kind, limit = "<=", limit - 1
        if kind not in (">=", "<=", "=="):
            return None
        starts += [limit] if kind != "<=" else []
        stops += [limit + 1] if kind != ">=" else []
    return extreme(starts, 1), extreme(stops, -1)


def chosen(condition: Bool, step: Symbol, value: Edge, otherwise: Edge, build: Builder) -> Edge | None:
    """`value` at the points of the leading dimension at which a condition holds, `otherwise` elsewhere. One of both is zero.

    None where no range of points is left of the other one, or where it is the same at all points. XLA makes one operation of slices
    and padding with slices of neighbours around them. A selection would read a mask, and compute both values at each point.
    """
    is_zero, is_zero_elsewhere = (_is_zero(build.graph, edge) for edge in (value, otherwise))
    if is_zero == is_zero_elsewhere or (is_zero_elsewhere and _is_repeated(build.graph, value)):
        return otherwise if is_zero else None
    kept, span = (otherwise, span_of(~condition, step)) if is_zero else (value, span_of(condition, step))
    if span is None:
        return None
    start, stop = span[0], extreme([*span], 1)
    if start == 0 and stop == step.bound_expr:
        return kept
    return build.add(ops.Pad(0, start, step.bound_expr - stop), build.add(ops.Slice(0, start, stop), kept))


def _is_zero(graph: Graph, edge: Edge) -> bool:
    """Whether an edge reads zeros without a sign (in a float of 16 bits too), or what is false."""
    op = graph[edge.source].op
    if isinstance(op, ops.Broadcast):
        return _is_zero(graph, graph[edge.source].inputs[0])
    return isinstance(op, ops.Constant) and op.sizes == () and not any(op.data)


def _is_repeated(graph: Graph, edge: Edge) -> bool:
    """Whether an edge reads the same value at all points of the leading dimension."""
    op = graph[edge.source].op
    return isinstance(op, ops.Broadcast) and 0 not in op.axes
