"""Narrow windows written out: a reduction of a window of w points becomes w reads of single points."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace

from tempo_core import prices
from tempo_core.ir import ops
from tempo_core.ir.axes import Source, without_reduced
from tempo_core.ir.builder import COMBINE, NEUTRAL, Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Along, Reads, reduced_ranges
from tempo_core.ir.ranges.scans import spread
from tempo_core.ir.ranges.window_reductions import window_of
from tempo_core.ir.types import ROUNDED_ONCE
from tempo_core.passes.base import Pass, remove_dead, take_over
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.lift import streamed
from tempo_core.symbolic.condition import TRUE, Bool, at_least_zero, conjunction
from tempo_core.symbolic.domain import Point, Range, full_range, identity
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol
from tempo_core.symbolic.proof import provably_nonnegative

_OF_POSITIONS = {"add": operator.add, "sub": operator.sub}


@dataclass(frozen=True)
class Shift(Pass):
    """Reduce a window by its points, each read on its own: at all points of the step at once, these reads are shifted slices.

    Before: a reduction reads a window of a constant number of points, and is more than a scan (`lift`). After: the elements of the
    window are values of the reader's point, and are combined one after the other. Points outside of the step's bounds give the
    neutral element. A window of all points at once would be a gather of w values for each point, which XLA computes one address
    at a time. A window of values that a loop over the step computes stays as it is: there it is a slice. `but` names steps that stay loops.

    Rewrite: `y[t] = sum(f(x[t:min(t + 2, T)], m[t]))` -> `y[t] = f(x[t], m[t]) + where(t + 1 < T, f(x[t + 1], m[t]), 0)`
    """

    name: str = field(default="shift", init=False)
    but: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        streams: dict[Symbol, dict[int, str]] = {}
        for node in graph:
            for reads in _windows(graph, node):
                if reads.step.name in self.but:
                    continue
                if reads.step not in streams:
                    streams[reads.step] = streamed(graph, reads.step)
                if _write_out(graph, node, reads, streams[reads.step].keys()):
                    break
        return remove_dead(graph)


def _windows(graph: Graph, node: Node) -> Iterator[Reads]:
    """The windows that a node reduces, if only their sum or extreme is needed."""
    op, type = node.op, node.outputs[0] if node.outputs else None
    if node.domain.condition is not TRUE or type is None or not type.is_static:
        return
    is_product = isinstance(op, ops.Dot) and len(op.left_contract) == 1 and not op.left_batch
    if not is_product and not isinstance(op, ops.Reduce):
        return
    fn = op.fn if isinstance(op, ops.Reduce) else "sum"
    if fn in ("sum", "prod") and type.dtype in ROUNDED_ONCE:
        return
    yield from reduced_ranges(graph, node)


def _write_out(graph: Graph, node: Node, reads: Reads, streams: Set[int]) -> bool:
    """Write the reduction out, if that pays. Returns whether it did."""
    window = window_of(reads.index, reads.step) if reads.index.stride == 1 else None
    if window is None or not (window.first.is_constant and window.width.is_constant):
        return False
    first_distance, width = window.first.constant, window.width.constant
    if width < 2 or reads.step not in node.domain or node.id in streams:
        return False
    distances = range(first_distance, first_distance + width)
    before, after = max(-distances[0], 0), max(distances[-1], 0)
    first = _Shifted(graph, node, reads, distances[0], before, after)
    values = first.of_reduced()
    if values is None or first.reads & streams or width > prices.MOST_SHIFTS:
        return False
    if width * len(first.nodes) > prices.MOST_SHIFTED_OPERATIONS:
        return False
    build = Builder(graph, node)
    total = first.element(values)
    for distance in distances[1:]:
        shifted = _Shifted(graph, node, reads, distance, before, after)
        values = shifted.of_reduced()
        assert values is not None
        total = build.add(ops.Binary(COMBINE[shifted.fn]), total, shifted.element(values))
    take_over(graph, node, total)
    note(node.id, "its window of {} points of {} is written out, point by point", width, reads.step)
    return True


class _Shifted(Along[Edge]):
    """The elements of a window at one distance from the reader's point: position `t + distance` of the step.

    At all points together, the distances are `-before` to `after`, so that all elements are read from one padded value: XLA computes
    slices of one array in vectors of several elements, and slices that are padded one by one with a branch an element.
    `reads` holds the nodes that windows read.
    """

    def __init__(self, graph: Graph, node: Node, window: Reads, distance: int, before: int, after: int):
        super().__init__(graph, window.step, window.index)
        self.node, self.axes, self.before, self.after, self.reads = node, window.axes, before, after, set[int]()
        self.build = Builder(graph, node)
        self.place = window.step.expr + distance

    @property
    def fn(self) -> str:
        return self.node.op.fn if isinstance(self.node.op, ops.Reduce) else "sum"

    @property
    def nodes(self) -> set[int]:
        """The nodes that are repeated for each distance."""
        return {source for source, _ in self._values}

    def of_reduced(self) -> list[Edge] | None:
        """The element of each operand of the reduction."""
        edges = [self.of(edge, axis) for edge, axis in zip(self.node.inputs, self.axes, strict=True)]
        present = [edge for edge in edges if edge is not None]
        if len(present) < len(edges) or (isinstance(self.node.op, ops.Dot) and all(self.build.type(e).rank for e in present)):
            return None  # a product of two matrices is left to the one operation that is made for it
        return present

    def element(self, values: list[Edge]) -> Edge:
        """What the reduction takes from this distance; the neutral element where the window has no such point."""
        op, value = self.node.op, values[0]
        if isinstance(op, ops.Reduce) and len(op.axes) > 1:
            value = self.build.add(without_reduced(op, self.axes), value)
        if isinstance(op, ops.Dot):
            shape = self.node.outputs[0].shape
            factors = [self.build.add(ops.Broadcast(shape, tuple(range(self.build.type(v).rank))), v) for v in values]
            value = self.build.add(ops.Binary("mul"), *factors)
        return self._where(_inside(self.place, self.span), value, NEUTRAL[self.fn])

    def of_range(self, edge: Edge, place: int) -> Edge:
        """`x[window]` has the element x[t + distance], read from x with zeros around all its points: outside of them it is not used."""
        self.reads.add(edge.source)
        number = self._position(replace(edge, index=(*edge.index[:place], Point(self.place), *edge.index[place + 1 :])))
        if number is not None:
            return self._added(ops.Eval(number))
        whole = replace(edge, index=(*edge.index[:place], full_range(self.step), *edge.index[place + 1 :]))
        axis = sum(isinstance(index, Range) for index in edge.index[:place])
        padded = self._added(ops.Pad(axis, Expr.of(self.before), Expr.of(self.after)), whole)
        return self._added(ops.Gather(axis), padded, self._added(ops.Eval(self.place + self.before)))

    def position(self, counter: Node) -> Edge:
        return self._added(ops.Eval(self.place - self.span.start))

    def at_all_positions(self, edge: Edge) -> Edge:
        return edge

    def may_compute(self, op: ops.Op, source: Source) -> bool:
        """Sums of products stay the one operation that is made for them. Outer products, one for each point of the window, do not."""
        return not isinstance(op, ops.Conv) and not (isinstance(op, ops.Dot) and (op.left_contract or None in source))

    def along_its_axis(self, node: Node, op: ops.Op, axis: int) -> Edge | None:
        """A slice has the element of what it is taken from."""
        if not isinstance(op, ops.Slice) or op.stride != 1:
            return None
        return self._added(ops.Gather(axis), node.inputs[0], self._added(ops.Eval(op.start + self.place - self.span.start)))

    def computed(self, node: Node, op: ops.Op, operands: list[Edge]) -> Edge:
        if isinstance(op, ops.Broadcast) and len(op.axes) == len(op.shape):
            return operands[0]
        positions = [position for position in map(self._position, operands) if position is not None]
        if isinstance(op, ops.Binary) and op.fn in _OF_POSITIONS and len(positions) == 2:
            return self._added(ops.Eval(_OF_POSITIONS[op.fn](*positions)))  # the difference of two positions is often a constant
        return self._added(op, *operands)

    def _position(self, edge: Edge) -> Expr | None:
        """The expression of which an edge reads the value, if it does."""
        source = self.graph[edge.source]
        points = edge.points(source.domain)
        if not isinstance(source.op, ops.Eval) or not isinstance(source.op.value, Expr) or len(points) < len(edge.index):
            return None
        return source.op.value.substitute(points)

    def _added(self, op: ops.Op, *edges: Edge) -> Edge:
        """A new node, over the steps with which it varies."""
        node = self.graph.add(op, edges, where=self.node.where)
        return Edge(node.id, identity(node.domain))

    def _where(self, condition: Bool, value: Edge, otherwise: float | str) -> Edge:
        if condition is TRUE:
            return value
        shape = self.build.type(value).shape
        test = self._added(ops.Broadcast(shape, ()), self._added(ops.Eval(condition)))
        return self.build.add(ops.Where(), test, value, spread(self.build, value, otherwise))


def _inside(place: Expr, span: Range) -> Bool:
    """Where a range contains a point; the parts of the condition that always hold are left out."""
    atoms = span.start.single_atom, span.stop.single_atom
    starts = atoms[0].args if isinstance(atoms[0], Maximum) else (span.start,)
    stops = atoms[1].args if isinstance(atoms[1], Minimum) else (span.stop,)
    margins = [*(place - start for start in starts), *(stop - 1 - place for stop in stops)]
    return conjunction(*(at_least_zero(margin) for margin in margins if not provably_nonnegative(margin)))
