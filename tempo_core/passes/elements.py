"""The elements of a range as values of single points: `exp(x[0:t + 1])` has the element `exp(x[s])` at position s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Symbol

ELEMENTWISE = (ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast, ops.Identity)


@dataclass
class Elements:
    """The elements along one dimension of a value, where that dimension is a range read `x[start:stop]` of step `step`.

    An element must be a function of the point that the range reads there, and of nothing that varies with the range: then it can be
    computed once at that point, for all ranges that contain the point. `reads` holds the nodes that ranges read.
    """

    graph: Graph
    like: Node
    step: Symbol
    span: Range
    reads: set[int] = field(default_factory=set)
    _elements: dict[tuple[int, int], Edge | None] = field(default_factory=dict)

    def of(self, edge: Edge, axis: int) -> Edge | None:
        """The element of an edge along dimension `axis`: an edge that reads a value at the point `step`; None if it has none.

        The value of the edge lacks the dimension.
        """
        source = self.graph[edge.source]
        ranges = [k for k, index in enumerate(edge.index) if isinstance(index, Range)]
        sizes = self.graph.edge_type(edge).shape
        if self._moves(frozenset(s for size in (*sizes[:axis], *sizes[axis + 1 :]) for s in size.steps)):
            return None
        if axis < len(ranges):
            return self._of_read(edge, source, ranges[axis])
        if ranges or source.domain.condition is not TRUE or not edge.is_own_point(source.domain):
            return None
        if (edge.source, axis) not in self._elements:
            element = self._of_node(source, axis)
            self._elements[edge.source, axis] = None if element is None else Edge(element.id, _own_points(element))
        return self._elements[edge.source, axis]

    def _of_read(self, edge: Edge, source: Node, place: int) -> Edge | None:
        """`x[start:stop]` has the element `x[s]`."""
        others = (*edge.index[:place], *edge.index[place + 1 :])
        if source.domain.steps[place] != self.step or edge.index[place] != self.span or source.domain.condition is not TRUE:
            return None
        if self._moves(frozenset().union(*(index.steps for index in others))):
            return None
        self.reads.add(edge.source)
        return replace(edge, index=(*edge.index[:place], Point(self.step.expr), *edge.index[place + 1 :]))

    def _moves(self, steps: frozenset[Symbol]) -> bool:
        """Whether a value over these steps varies with the range, or with the reader's own point of the range's step."""
        return bool(steps & (self.span.steps | {self.step}))

    def _of_node(self, node: Node, axis: int) -> Node | None:
        op = node.op
        if isinstance(op, ELEMENTWISE):
            return self._add(op, node, [self.of(edge, axis) for edge in node.inputs])
        if isinstance(op, ops.Reduce):
            inner = _kept(node, op)[axis]
            return self._add(ops.Reduce(op.fn, without(op.axes, inner)), node, [self.of(node.inputs[0], inner)])
        if isinstance(op, ops.Broadcast):
            shape, (edge,) = (*op.shape[:axis], *op.shape[axis + 1 :]), node.inputs
            if axis in op.axes:
                return self._add(ops.Broadcast(shape, without(op.axes, axis)), node, [self.of(edge, op.axes.index(axis))])
            if self._moves(edge.steps):
                return None
            return self._add(ops.Broadcast(shape, without(op.axes, axis)), node, [edge])
        if isinstance(op, ops.Iota) and self.span.start == 0 and self.span.stride == 1:
            return self.graph.add(ops.Eval(self.step.expr), where=node.where)
        return None

    def _add(self, op: ops.Op, node: Node, operands: Sequence[Edge | None]) -> Node | None:
        edges = [edge for edge in operands if edge is not None]
        return None if len(edges) < len(operands) else self.graph.add(op, edges, where=node.where)


def without(axes: Sequence[int], axis: int) -> tuple[int, ...]:
    """Axes of a value, renamed for the value without `axis`."""
    return tuple(a - (a > axis) for a in axes if a != axis)


def _own_points(node: Node) -> tuple[Point, ...]:
    return tuple(Point(step.expr) for step in node.domain.steps)


def range_of(graph: Graph, edge: Edge, axis: int) -> tuple[Symbol, Range] | None:
    """The step and the range of which dimension `axis` of an edge's value consists, if it consists of the elements of a range."""
    waiting, seen = [(edge, axis)], {(edge.source, axis)}
    while waiting:
        edge, axis = waiting.pop()
        source = graph[edge.source]
        ranges = [(step, index) for step, index in edge.by_step(source.domain).items() if isinstance(index, Range)]
        if axis < len(ranges):
            return ranges[axis]
        if ranges or not edge.is_own_point(source.domain):
            continue
        for operand in _operands_with(source, axis):
            if (operand[0].source, operand[1]) not in seen or operand[0].index != _own_points(graph[operand[0].source]):
                seen.add((operand[0].source, operand[1]))
                waiting.append(operand)
    return None


def _operands_with(node: Node, axis: int) -> list[tuple[Edge, int]]:
    """The operands that have dimension `axis` of a node's value, and which of their dimensions it is."""
    op = node.op
    if isinstance(op, ELEMENTWISE):
        return [(edge, axis) for edge in node.inputs]
    if isinstance(op, ops.Reduce):
        return [(node.inputs[0], _kept(node, op)[axis])]
    if isinstance(op, ops.Broadcast) and axis in op.axes:
        return [(node.inputs[0], op.axes.index(axis))]
    return []


def _kept(node: Node, op: ops.Reduce) -> list[int]:
    """The axes of the operand that a reduction keeps."""
    return [a for a in range(node.outputs[0].rank + len(op.axes)) if a not in op.axes]
