"""The elements of a range as values of single points: `exp(x[0:t + 1])` has the element `exp(x[s])` at position s."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tempo_core.ir import ops
from tempo_core.ir.axes import Source, left_out, reduced, source_of, without, without_reduced
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.step_blocks import block_of, is_same_in_block
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range, identity
from tempo_core.symbolic.expr import Symbol

Value = TypeVar("Value")


class Along(ABC, Generic[Value]):
    """A value at one position along a dimension that is a range read `x[start:stop]`: what computed the value, done for that position.

    `step` and `span` are those of the range. Subclasses say what the range has at the position, and compute the rest from that.
    """

    needs_all_points = True  # of what the reader reads

    def __init__(self, graph: Graph, step: Symbol, span: Range):
        self.graph, self.step, self.span = graph, step, span
        self._values: dict[tuple[int, int], Value | None] = {}

    def of(self, edge: Edge, axis: int) -> Value | None:
        """What an edge reads at the position along dimension `axis`, which the result lacks; None if that is no value of its own."""
        source = self.graph[edge.source]
        ranges = [k for k, index in enumerate(edge.index) if isinstance(index, Range)]
        sizes = left_out(self.graph.edge_type(edge).shape, axis)
        if self.moves(frozenset().union(*(size.steps for size in sizes))):
            return None
        if self.needs_all_points and source.domain.condition is not TRUE:
            return None
        if axis < len(ranges):
            return self._of_range(edge, source, ranges[axis])
        if ranges or not edge.is_own_point(source.domain):
            return None
        if (edge.source, axis) not in self._values:
            self._values[edge.source, axis] = self._of_node(source, axis)
        return self._values[edge.source, axis]

    def _of_range(self, edge: Edge, source: Node, place: int) -> Value | None:
        others = frozenset().union(*(index.steps for index in left_out(edge.index, place)))
        is_range = source.domain.steps[place] == self.step and edge.index[place] == self.span
        return self.of_range(edge, place) if is_range and not self.moves(others) else None

    def _of_node(self, node: Node, axis: int) -> Value | None:
        if isinstance(node.op, ops.Iota):
            return self.position(node)
        source = source_of(self.graph, node, axis)
        if source is None:
            return self.along_its_axis(node, node.op, axis)
        op = without(node.op, axis, source)
        if op is None or self.moves(op.symbols) or not self.may_compute(op, source):
            return None
        operands = []
        for edge, inner in zip(node.inputs, source, strict=True):
            operand = self.at_all_positions(edge) if inner is None else self.of(edge, inner)
            if operand is None:
                return None
            operands.append(operand)
        return self.computed(node, op, operands)

    def moves(self, steps: frozenset[Symbol]) -> bool:
        """Whether a value over these steps varies with the range, or with the reader's own point of the range's step."""
        return bool(steps & (self.span.steps | {self.step}))

    @abstractmethod
    def of_range(self, edge: Edge, place: int) -> Value | None:
        """What the range `edge.index[place]` has at the position."""

    @abstractmethod
    def position(self, counter: Node) -> Value | None:
        """The position, as a value."""

    @abstractmethod
    def at_all_positions(self, edge: Edge) -> Value | None:
        """What does not vary along the dimension."""

    @abstractmethod
    def computed(self, node: Node, op: ops.Op, operands: list[Value]) -> Value | None:
        """What `op` computes for the position in place of a node."""

    def may_compute(self, op: ops.Op, source: Source) -> bool:
        return True

    def along_its_axis(self, node: Node, op: ops.Op, axis: int) -> Value | None:
        """What an op has at the position if it works along the dimension."""
        return None


class Elements(Along[Edge]):
    """The elements along one dimension of a value: edges that read, at the point `step`, what lacks the dimension.

    An element must be a function of the point that the range reads there, and of nothing that varies with the range: then it can be
    computed once at that point, for all ranges that contain the point. If the range is a block of its step, what is the same for all
    readers in the block is as good: `exp(x[block] - m[t])` has the element `exp(x[s] - m[s])`, if m is the same in each block.
    `reads` holds the nodes that ranges read, and those nodes.
    """

    def __init__(self, graph: Graph, like: Node, step: Symbol, span: Range):
        super().__init__(graph, step, span)
        self.like, self.reads = like, set[int]()

    def of_reduced(self, node: Node, reads: Reads) -> Edge | None:
        """The value of each point in a range that a node reduces. Other dimensions that it reduces are reduced already."""
        each = [self.of(edge, axis) for edge, axis in zip(node.inputs, reads.axes, strict=True)]
        parts = [edge for edge in each if edge is not None]
        if len(parts) < len(each):
            return None
        is_single = not isinstance(node.op, ops.Dot) and len(reduced(node.op)) == 1
        return parts[0] if is_single else self.computed(node, without_reduced(node.op, reads.axes), parts)

    def of_range(self, edge: Edge, place: int) -> Edge | None:
        """`x[start:stop]` has the element `x[s]`."""
        self.reads.add(edge.source)
        return replace(edge, index=(*edge.index[:place], Point(self.step.expr), *edge.index[place + 1 :]))

    def position(self, counter: Node) -> Edge | None:
        is_whole = self.span.start == 0 and self.span.stride == 1
        return self.computed(counter, ops.Eval(self.step.expr), []) if is_whole else None

    def at_all_positions(self, edge: Edge) -> Edge | None:
        if self.moves(edge.steps):
            block = block_of(self.span, self.step)
            if block is None or not is_same_in_block(self.graph, edge, self.step, block):
                return None
            self.reads.add(edge.source)
        return edge

    def computed(self, node: Node, op: ops.Op, operands: Sequence[Edge]) -> Edge:
        value = self.graph.add(op, operands, where=node.where)
        return Edge(value.id, identity(value.domain))


class FlippedElements(Elements):
    """The elements of what is flipped along the dimension: `x[0:t + 1].flip(0)` has the element `x[s]`, from the end on."""

    def of_range(self, edge: Edge, place: int) -> Edge | None:
        return None

    def position(self, counter: Node) -> Edge | None:
        return None

    def along_its_axis(self, node: Node, op: ops.Op, axis: int) -> Edge | None:
        inner = Elements(self.graph, self.like, self.step, self.span)
        inner.reads = self.reads
        return inner.of(node.inputs[0], axis) if isinstance(op, ops.Flip) else None


@dataclass(frozen=True)
class Reads:
    """A range of `step` that a node reduces: dimension `axes[k]` of its operand k."""

    step: Symbol
    index: Range
    axes: tuple[int, ...]

    def element_types(self, graph: Graph, node: Node) -> list[TensorType]:
        """The types of the node's operands without that dimension."""
        types = zip(graph.input_types(node), self.axes, strict=True)
        return [replace(type, shape=left_out(type.shape, axis)) for type, axis in types]


def reduced_ranges(graph: Graph, node: Node) -> Iterator[Reads]:
    """The dimensions over which a node reduces, where they are ranges that it, or its operands, read."""
    for axes in reduced(node.op):
        operands = (range_of(graph, edge, axis) for edge, axis in zip(node.inputs, axes, strict=True))
        read = next((read for read in operands if read is not None), None)
        if read is not None:
            yield Reads(*read, axes)


def range_of(graph: Graph, edge: Edge, axis: int, or_flipped: bool = False) -> tuple[Symbol, Range] | None:
    """The step and the range of which dimension `axis` of an edge's value consists, if it consists of the elements of a range.

    They are in the order of the range, or perhaps also `or_flipped`.
    """
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
        is_flipped = or_flipped and isinstance(source.op, ops.Flip) and source.op.axis == axis
        for operand, inner in zip(source.inputs, (axis,) if is_flipped else source_of(graph, source, axis) or (), strict=False):
            is_new = (operand.source, inner) not in seen or not operand.is_own_point(graph[operand.source].domain)
            if inner is not None and is_new:
                seen.add((operand.source, inner))
                waiting.append((operand, inner))
    return None
