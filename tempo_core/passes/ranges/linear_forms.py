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
        op = node.op
        if isinstance(op, ops.Unary) and op.fn == "neg":
            inner = of_edge(node, node.inputs[0])
            return None if inner is None else (_applied(build, "neg", inner[0]), _applied(build, "neg", inner[1]))
        if isinstance(op, ops.Where):
            return of_where(node)
        if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub", "mul", "div"):
            return None
        left, right = of_edge(node, node.inputs[0]), of_edge(node, node.inputs[1])
        if left is None or right is None:
            return None
        if op.fn in ("add", "sub"):
            return _sum(build, op.fn, left[0], right[0]), _sum(build, op.fn, left[1], right[1])
        if op.fn == "mul" and right[0] is not None and left[0] is None:
            left, right = right, left
        if right[0] is not None or right[1] is None:
            return None
        return _scaled(build, op.fn, left[0], right[1]), _scaled(build, op.fn, left[1], right[1])

    def of_where(node: Node) -> Linear | None:
        """where(p, c1 a + b1, c2 a + b2) is linear with the selected coefficients; p must not depend on the recurrence."""
        if node.inputs[0].source in depends:
            return None
        left, right = of_edge(node, node.inputs[1]), of_edge(node, node.inputs[2])
        if left is None or right is None:
            return None
        return tuple(_selected(build, node, a, b) for a, b in zip(left, right, strict=True))  # type: ignore[return-value]

    result = of_edge(root, Edge(root.id, identity(root.domain))) if root.id == value.id else of_node(root)
    if result is None or len(distances) != 1:
        return None
    return result[0], result[1], distances.pop()


def _applied(build: Builder, fn: str, edge: Edge | None) -> Edge | None:
    return None if edge is None else build.add(ops.Unary(fn), edge)


def _sum(build: Builder, fn: str, left: Edge | None, right: Edge | None) -> Edge | None:
    if right is None:
        return left
    if left is None:
        return right if fn == "add" else build.add(ops.Unary("neg"), right)
    return build.add(ops.Binary(fn), left, right)


def _scaled(build: Builder, fn: str, edge: Edge | None, factor: Edge) -> Edge | None:
    if edge is not None and fn == "mul" and constant_number(build.graph, edge.source) == 1:
        return factor
    return None if edge is None else build.add(ops.Binary(fn), edge, factor)


def _selected(build: Builder, node: Node, left: Edge | None, right: Edge | None) -> Edge | None:
    if left is None and right is None:
        return None
    type = node.outputs[0]
    zero = build.add(ops.Broadcast(type.shape, ()), literal(build, type.dtype, 0.0))
    return build.add(ops.Where(), node.inputs[0], left or zero, right or zero)
