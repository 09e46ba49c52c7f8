"""The elements of a range as values of single points: `exp(x[0:t + 1])` has the element `exp(x[s])` at position s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.step_blocks import block_of, is_same_in_block
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range, identity
from tempo_core.symbolic.expr import Symbol

ELEMENTWISE = (ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast, ops.Identity)
ALONG_AN_AXIS = (ops.Slice, ops.Pad, ops.Flip, ops.CumSum, ops.CumMax, ops.Argsort, ops.Gather)  # all dimensions before it stay


@dataclass
class Elements:
    """The elements along one dimension of a value, where that dimension is a range read `x[start:stop]` of step `step`.

    An element must be a function of the point that the range reads there, and of nothing that varies with the range: then it can be
    computed once at that point, for all ranges that contain the point. If the range is a block of its step, what is the same for all
    readers in the block is as good: `exp(x[block] - m[t])` has the element `exp(x[s] - m[s])`, if m is the same in each block.
    `reads` holds the nodes that ranges read, and those nodes.
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
            self._elements[edge.source, axis] = None if element is None else Edge(element.id, identity(element.domain))
        return self._elements[edge.source, axis]

    def of_reduced(self, node: Node, reads: Reads) -> Edge | None:
        """The value of each point in a range that a node reduces. Other dimensions that it reduces are reduced already."""
        each = [self.of(edge, axis) for edge, axis in zip(node.inputs, reads.axes, strict=True)]
        parts = [edge for edge in each if edge is not None]
        if len(parts) < len(each):
            return None
        op = node.op
        if isinstance(op, ops.Dot):
            left, right = reads.axes
            batch = without(op.left_batch, left), without(op.right_batch, right)
            op = ops.Dot(without(op.left_contract, left), without(op.right_contract, right), *batch)
        elif isinstance(op, ops.Reduce) and len(op.axes) > 1:
            op = ops.Reduce(op.fn, without(op.axes, reads.axes[0]))
        else:
            return parts[0]
        value = self.graph.add(op, parts, where=node.where)
        return Edge(value.id, identity(value.domain))

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

    def _is_same_in_block(self, edge: Edge) -> bool:
        """Whether the range is a block of its step, in which all readers read the same value by this edge."""
        block = block_of(self.span, self.step)
        return block is not None and is_same_in_block(self.graph, edge, self.step, block)

    def _of_node(self, node: Node, axis: int) -> Node | None:
        op = node.op
        if isinstance(op, ELEMENTWISE):
            return self._add(op, node, [self.of(edge, axis) for edge in node.inputs])
        if isinstance(op, ops.Reduce):
            inner = kept_axes(node, op)[axis]
            return self._add(ops.Reduce(op.fn, without(op.axes, inner)), node, [self.of(node.inputs[0], inner)])
        if isinstance(op, ops.Broadcast):
            shape, (edge,) = (*op.shape[:axis], *op.shape[axis + 1 :]), node.inputs
            if axis in op.axes:
                return self._add(ops.Broadcast(shape, without(op.axes, axis)), node, [self.of(edge, op.axes.index(axis))])
            if self._moves(edge.steps):
                if not self._is_same_in_block(edge):
                    return None
                self.reads.add(edge.source)
            return self._add(ops.Broadcast(shape, without(op.axes, axis)), node, [edge])
        if isinstance(op, ALONG_AN_AXIS):
            return self._along_another(node, op, axis)
        if isinstance(op, ops.Dot):
            return self._of_dot(node, op, axis)
        if isinstance(op, ops.Iota) and self.span.start == 0 and self.span.stride == 1:
            return self.graph.add(ops.Eval(self.step.expr), where=node.where)
        return None

    def _along_another(self, node: Node, op: ops.Slice | ops.Gather | Any, axis: int) -> Node | None:
        """An op along an axis, computed without another dimension, which it leaves as it is."""
        inner = _before(node, op, axis)
        index = [edge for edge in node.inputs[1:] if not self._moves(edge.steps)]
        if inner is None or self._moves(op.symbols) or len(index) + 1 < len(node.inputs):
            return None
        return self._add(replace(op, axis=op.axis - (inner < op.axis)), node, [self.of(node.inputs[0], inner), *index])

    def _of_dot(self, node: Node, op: ops.Dot, axis: int) -> Node | None:
        """A contraction for one position of a free dimension: it contracts that element of one operand with the other operand."""
        place = _free_axis(self.graph, node, op, axis)
        if place is None or self._moves(node.inputs[1 - place[0]].steps):
            return None
        slot, inner = place
        left, right = (op.left_contract, op.left_batch), (op.right_contract, op.right_batch)
        if slot == 0:
            left = without(op.left_contract, inner), without(op.left_batch, inner)
        else:
            right = without(op.right_contract, inner), without(op.right_batch, inner)
        operands: list[Edge | None] = list(node.inputs)
        operands[slot] = self.of(node.inputs[slot], inner)
        return self._add(ops.Dot(left[0], right[0], left[1], right[1]), node, operands)

    def _add(self, op: ops.Op, node: Node, operands: Sequence[Edge | None]) -> Node | None:
        edges = [edge for edge in operands if edge is not None]
        return None if len(edges) < len(operands) else self.graph.add(op, edges, where=node.where)


def without(axes: Sequence[int], axis: int) -> tuple[int, ...]:
    """Axes of a value, renamed for the value without `axis`."""
    return tuple(a - (a > axis) for a in axes if a != axis)


@dataclass(frozen=True)
class Reads:
    """A range of `step` that a node reduces: dimension `axes[k]` of its operand k."""

    step: Symbol
    index: Range
    axes: tuple[int, ...]

    def element_types(self, graph: Graph, node: Node) -> list[TensorType]:
        """The types of the node's operands without that dimension."""
        types = zip(graph.input_types(node), self.axes, strict=True)
        return [replace(type, shape=(*type.shape[:axis], *type.shape[axis + 1 :])) for type, axis in types]


def reduced_ranges(graph: Graph, node: Node) -> Iterator[Reads]:
    """The dimensions over which a node reduces, where they are ranges that it, or its operands, read."""
    for axes in _reduced(node.op):
        operands = (range_of(graph, edge, axis) for edge, axis in zip(node.inputs, axes, strict=True))
        read = next((read for read in operands if read is not None), None)
        if read is not None:
            yield Reads(*read, axes)


def _reduced(op: ops.Op) -> list[tuple[int, ...]]:
    """For each dimension that an op reduces, its axis in each operand."""
    if isinstance(op, ops.Reduce):
        return [(axis,) for axis in op.axes]
    if isinstance(op, (ops.Argmax, ops.DiscountedSum)):
        return [(op.axis,)]
    if isinstance(op, ops.Dot):
        return list(zip(op.left_contract, op.right_contract, strict=True))
    return []


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
        if source.outputs[edge.output].shape[axis] not in graph.range_lengths:
            return None  # the dimension keeps its size on the way to the range
        for operand in _operands_with(graph, source, axis):
            if (operand[0].source, operand[1]) not in seen or not operand[0].is_own_point(graph[operand[0].source].domain):
                seen.add((operand[0].source, operand[1]))
                waiting.append(operand)
    return None


def _operands_with(graph: Graph, node: Node, axis: int) -> list[tuple[Edge, int]]:
    """The operands that have dimension `axis` of a node's value, and which of their dimensions it is."""
    op = node.op
    if isinstance(op, ELEMENTWISE):
        return [(edge, axis) for edge in node.inputs]
    if isinstance(op, ops.Reduce):
        return [(node.inputs[0], kept_axes(node, op)[axis])]
    if isinstance(op, ops.Broadcast) and axis in op.axes:
        return [(node.inputs[0], op.axes.index(axis))]
    if isinstance(op, ALONG_AN_AXIS) and _before(node, op, axis) is not None:
        return [(node.inputs[0], _before(node, op, axis) or 0)]
    if isinstance(op, ops.Dot):
        place = _free_axis(graph, node, op, axis)
        return [] if place is None else [(node.inputs[place[0]], place[1])]
    return []


def _before(node: Node, op: Any, axis: int) -> int | None:
    """The dimension of the operand that is dimension `axis` of the result of an op along an axis; None if the op changes it."""
    if not isinstance(op, ops.Gather):
        return None if axis == op.axis else axis
    if op.batch:
        return None
    return axis if axis < op.axis else None


def _free_axis(graph: Graph, node: Node, op: ops.Dot, axis: int) -> tuple[int, int] | None:
    """The operand, and its dimension, that is dimension `axis` of a contraction's result; None for a batch dimension."""
    left, right = (graph.edge_rank(edge) for edge in node.inputs)
    free = [(0, a) for a in op.left_free(left)] + [(1, a) for a in op.right_free(right)]
    return free[axis - len(op.left_batch)] if axis >= len(op.left_batch) else None


def kept_axes(node: Node, op: ops.Reduce) -> list[int]:
    """The axes of the operand that a reduction keeps."""
    return [a for a in range(node.outputs[0].rank + len(op.axes)) if a not in op.axes]
