"""Expressions that are linear in a neighbour of a recurrence: `c[t] * a[t - 1] + b[t]`."""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.graph import Edge, Graph, Node, constant_number
from tempo_core.symbolic.domain import Point, identity
from tempo_core.symbolic.expr import Symbol

Linear = tuple[Edge | None, Edge | None]  # (coefficient, term): coefficient * previous + term; None stands for zero


def shift_of(edge: Edge, source: Node, step: Symbol) -> int | None:
    """By how much an edge moves along `step`; None if it does anything else."""
    moved = 0
    for source_step, index in edge.by_step(source.domain).items():
        if not isinstance(index, Point):
            return None
        distance = index.expr - source_step.expr
        if not distance.is_constant or (source_step != step and distance.constant != 0):
            return None
        if source_step == step:
            moved = distance.constant
    return moved


def linear_form(
    graph: Graph, build: Builder, root: Node, value: Node, step: Symbol, depends: set[int]
) -> tuple[Edge | None, Edge | None, int] | None:
    """`root`, which may be the value itself, as coefficient * value[t + distance] + term; None if it is not linear in one neighbour.

    `depends` are the nodes on the recurrence's cycle. All other nodes are constants for it.
    """
    distances: set[int] = set()

    def of_edge(reader: Node, edge: Edge) -> Linear | None:
        if edge.source == value.id:
            distance = shift_of(edge, value, step)
            if distance is None:
                return None
            distances.add(distance)
            one = build.add(ops.Broadcast(value.outputs[0].shape, ()), literal(build, value.outputs[0].dtype, 1.0))
            return one, None
        if edge.source not in depends:
            return None, None if constant_number(graph, edge.source) == 0 else edge
        source = graph[edge.source]
        is_own = reader.domain.steps == source.domain.steps and edge.is_own_point(source.domain)
        return of_node(source) if is_own else None

    def of_node(node: Node) -> Linear | None:
        """A negation, a sum, a selection by what does not depend on the recurrence, or a multiple of a linear expression."""
        op, fn = node.op, getattr(node.op, "fn", "where")
        if not isinstance(op, (ops.Unary, ops.Binary, ops.Where)) or fn not in ("neg", "add", "sub", "mul", "div", "where"):
            return None
        if fn == "where" and node.inputs[0].source in depends:
            return None
        left, right = (of_edge(node, edge) for edge in (node.inputs[0], *node.inputs)[-2:])
        if left is None or right is None:
            return None
        if fn in ("neg", "add", "sub", "where"):
            return _together(build, node, left[0], right[0]), _together(build, node, left[1], right[1])
        if fn == "mul" and right[0] is not None and left[0] is None:
            left, right = right, left
        if right[0] is not None or right[1] is None:
            return None
        return _scaled(build, fn, left[0], right[1]), _scaled(build, fn, left[1], right[1])

    result = of_edge(root, Edge(root.id, identity(root.domain))) if root.id == value.id else of_node(root)
    if result is None or len(distances) != 1:
        return None
    return result[0], result[1], distances.pop()


def _together(build: Builder, node: Node, left: Edge | None, right: Edge | None) -> Edge | None:
    """What a negation, sum or selection makes of the coefficients, or of the terms, of its operands."""
    op = node.op
    if left is None and right is None:
        return None
    if isinstance(op, ops.Where):
        zero = build.add(ops.Broadcast(node.outputs[0].shape, ()), literal(build, node.outputs[0].dtype, 0.0))
        return build.add(op, node.inputs[0], left or zero, right or zero)
    if right is None:
        return left
    if left is None or isinstance(op, ops.Unary):
        return right if op.fn == "add" else build.add(ops.Unary("neg"), right)  # type: ignore[attr-defined]
    return build.add(op, left, right)


def _scaled(build: Builder, fn: str, edge: Edge | None, factor: Edge) -> Edge | None:
    if edge is not None and fn == "mul" and constant_number(build.graph, edge.source) == 1:
        return factor
    return None if edge is None else build.add(ops.Binary(fn), edge, factor)
