"""Lifted forms: what a node computes anew from a range at each point, as an element of what is computed once for the whole step.

`y[t] = sum(x[0:t + 1])` is element t of `cumsum(x[0:T])`. The pass `lift` rewrites nodes to these forms, and gradients are those of
these forms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tempo_core.ir import ops
from tempo_core.ir.axes import dropped
from tempo_core.ir.builder import NEUTRAL, Builder, literal, zeros_outside
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Elements, FlippedElements, Reads, range_of
from tempo_core.ir.ranges.scans import SCANS, positions_of_maxima, spread, take
from tempo_core.ir.ranges.step_blocks import block_of
from tempo_core.ir.ranges.sums import Summation
from tempo_core.ir.ranges.terms import Term, Terms
from tempo_core.ir.ranges.window_reductions import Window, of_blocks, of_windows, window_of
from tempo_core.symbolic.condition import conjunction
from tempo_core.symbolic.domain import Domain, Range, full_range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass
class Lifting:
    """A reduction of a range that moves with its readers. It reduces `each`, a value of each point, or sums a `term`.

    `sources` are the nodes that the elements read.
    """

    graph: Graph
    node: Node
    reads: Reads
    sources: set[int]
    each: Edge | None
    term: Term | None

    @property
    def is_scan(self) -> bool:
        """Whether the ranges are prefixes or suffixes."""
        return is_scan(self.reads.step, self.reads.index)

    @property
    def is_suffix(self) -> bool:
        return bool(self.reads.index.stop == self.reads.step.bound_expr)

    @property
    def order(self) -> str:
        """Whether each point adds its own element to the range of the one before ("<"), or of the one after (">"); else ""."""
        t, index, bound = self.reads.step.expr, self.reads.index, self.reads.step.bound_expr
        return "<" if (index.start, index.stop) == (Expr.of(0), t + 1) else ">" if (index.start, index.stop) == (t, bound) else ""

    @property
    def moving(self) -> frozenset[Symbol]:
        return self.reads.index.steps | {self.reads.step}

    def value(self) -> Edge | None:
        """What a point takes from the reductions of all ranges; None if the ranges are neither scans, windows nor blocks."""
        whole, point = everywhere(self.graph, self.node, self.moving), Builder(self.graph, self.node, self.node.domain)
        if self.each is None:
            return self._summed(whole, point)
        return self._taken(whole, point, *_all_points(self.each, self.reads.step))

    @property
    def _last(self) -> Expr:
        """The position of the scans at which the reader's range ends."""
        return self.reads.index.start if self.is_suffix else self.reads.index.stop - 1

    def _summed(self, whole: Builder, point: Builder) -> Edge:
        """What a point takes from sums whose terms depend on it too."""
        assert self.term is not None
        op, index = self.node.op, self.reads.index
        value = Summation(whole, point, self.term, self.reads.step, self.is_suffix, self._last, index.stop - index.start).value()
        value = empty_is_neutral(point, value, "sum", index)
        rest = dropped(op.axes, self.reads.axes[0]) if isinstance(op, ops.Reduce) else ()
        return point.add(ops.Reduce("sum", rest), value) if rest else value

    def _taken(self, whole: Builder, point: Builder, x: Edge, axis: int) -> Edge | None:
        step, index, op = self.reads.step, self.reads.index, self.node.op
        gamma = op.gamma if isinstance(op, ops.DiscountedSum) else None
        fn = op.fn if isinstance(op, ops.Reduce) else "sum"
        if self.is_scan and isinstance(op, ops.Argmax):
            element = take(point, positions_of_maxima(whole, x, axis, self.is_suffix), axis, step, self._last)
            if index.start != 0:
                element = point.add(ops.Binary("sub"), element, point.filled(point.type(element).shape, index.start))
            return empty_is_neutral(point, element, "sum", index)
        if self.is_scan:
            scan = SCANS[fn] if gamma is None else partial(_discounted, gamma)
            return empty_is_neutral(point, take(point, scan(whole, x, axis, self.is_suffix), axis, step, self._last), fn, index)
        if isinstance(op, ops.Argmax) or index.steps != {step}:
            return None
        window, block = window_of(index, step), block_of(index, step)
        if window is not None and (gamma is None or _has_constant_weights(window)):
            return take(point, of_windows(whole, fn, x, axis, window, gamma), axis, step, step.expr)
        if block is not None and gamma is None:
            return take(point, of_blocks(whole, fn, x, axis, block), axis, step, step.expr)
        return None


def lifting_of(graph: Graph, node: Node, reads: Reads, finite: bool = False) -> Lifting | None:
    """The reduction of a range by a node, if its elements are values of single points and it can be computed for all points at once.

    With `finite`, exponents are finite wherever the gradient is. The search adds nodes to the graph.
    """
    step, index = reads.step, reads.index
    if not index.steps or not index.steps <= set(node.domain.steps) or index.stride != 1 or index.size is not None:
        return None
    if not may_read_all_points(node.domain, index.steps | {step}):
        return None
    elements = Elements(graph, node, step, index)
    lifting = Lifting(graph, node, reads, elements.reads, elements.of_reduced(node, reads), None)
    if lifting.each is None and lifting.is_scan:
        terms = Terms(elements)
        term = terms.of_reduced(node, reads.axes)
        lifting.term = terms.without_infinities(term) if finite and term is not None else term
    is_known = lifting.each is not None or (lifting.term is not None and not _varies(graph, lifting.term, lifting.moving))
    return lifting if is_known else None


@dataclass(frozen=True)
class MovingScan:
    """A prefix or suffix of a step that moves with its readers. `element` is its value at one point, which reads the nodes `sources`.

    `is_flipped`: the reader has it in reverse order.
    """

    step: Symbol
    index: Range
    element: Edge
    sources: frozenset[int]
    is_flipped: bool = False


def moving_scan(graph: Graph, node: Node, edge: Edge, axis: int, or_flipped: bool = False) -> MovingScan | None:
    """The moving prefix or suffix of which dimension `axis` of an operand consists; else None. The search adds nodes to the graph."""
    read = range_of(graph, edge, axis, or_flipped)
    if read is None or not is_scan(*read) or not read[1].steps or not read[1].steps <= set(node.domain.steps):
        return None
    if not may_read_all_points(node.domain, read[1].steps | {read[0]}):
        return None
    for kind in (Elements, FlippedElements) if or_flipped else (Elements,):
        elements = kind(graph, node, *read)
        element = elements.of(edge, axis)
        if element is not None and any(read[0] in at.steps for at in element.index):
            return MovingScan(*read, element, frozenset(elements.reads), kind is FlippedElements)
    return None


def picked(graph: Graph, node: Node) -> tuple[MovingScan, Edge] | None:
    """The prefix or suffix out of which a node picks elements, if it is never empty, and the same elements out of all points.

    `take(x[0:t + 1], i)` is `take(x[0:T], min(i, t))`. The search adds nodes to the graph.
    """
    op = node.op
    scan = moving_scan(graph, node, node.inputs[0], op.axis) if isinstance(op, ops.Gather) and not op.batch else None
    if scan is None or not provably_nonnegative(scan.index.length - 1):
        return None
    assert isinstance(op, ops.Gather)
    build, index, position = Builder(graph, node), scan.index, node.inputs[1]
    zero, start, last = (build.filled(build.type(position).shape, bound) for bound in (Expr.of(0), index.start, index.stop - 1))
    if index.start != 0:  # positions before the range are those of its first element
        position = build.add(ops.Binary("add"), build.add(ops.Binary("maximum"), position, zero), start)
    everything = all_elements(build, scan.element, scan.step, op.axis)
    return scan, build.add(op, everything, build.add(ops.Binary("minimum"), position, last))


def _has_constant_weights(window: Window) -> bool:
    """Whether powers of a factor are the weights of a window: one that is cut in front begins later."""
    return window.width.is_constant and bool(window.low == 0) and provably_nonnegative(window.first)


def is_scan(step: Symbol, index: Range) -> bool:
    """Whether a range of points is a prefix or a suffix of its step."""
    return index.stride == 1 and index.size is None and bool(index.start == 0 or index.stop == step.bound_expr)


def all_elements(build: Builder, element: Edge, step: Symbol, axis: int) -> Edge:
    """The values of an element at all points of its step, as dimension `axis`."""
    edge, first = _all_points(element, step)
    order = [k for k in range(build.graph.edge_rank(edge)) if k != first]
    order.insert(axis, first)
    return edge if order == sorted(order) else build.add(ops.Permute(tuple(order)), edge)


def _all_points(element: Edge, step: Symbol) -> tuple[Edge, int]:
    """The values of an element at all points of its step, and which dimension they are."""
    place = next(k for k, at in enumerate(element.index) if step in at.steps)
    edge = replace(element, index=(*element.index[:place], full_range(step), *element.index[place + 1 :]))
    return edge, sum(isinstance(at, Range) for at in element.index[:place])


def may_read_all_points(readers: Domain, moving: frozenset[Symbol]) -> bool:
    """Whether a read along the steps `moving` exists at all their points. Not if a condition ties them to the reader's other steps.

    Such a condition may be there for the points at which the other steps are read.
    """
    return not any(part.steps & moving and part.steps - moving for part in readers.condition.parts)


def everywhere(graph: Graph, node: Node, moving: frozenset[Symbol]) -> Builder:
    """Adds what is computed once for all points of the steps `moving`."""
    condition = conjunction(*(part for part in node.domain.condition.parts if not part.steps & moving))
    return Builder(graph, node, Domain(tuple(s for s in node.domain.steps if s not in moving), condition))


def _varies(graph: Graph, term: Term, steps: frozenset[Symbol]) -> bool:
    """Whether the shape of what is summed varies with some steps: no one array has its values at all points."""
    return any(size.steps & steps for factor in term.factors for size in graph.edge_type(factor).shape)


def empty_is_neutral(point: Builder, element: Edge, fn: str, index: Range) -> Edge:
    """`element`, or the neutral element where the range is empty."""
    if provably_nonnegative(index.stop - index.start - 1):
        return element
    return zeros_outside(point, element, point.add(ops.Eval(index.stop - index.start >= 1)), (), NEUTRAL[fn])


def _discounted(gamma: float, build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    """A suffix carries on what it has; an element of a prefix has the weight `gamma**position` in all of them."""
    if suffixes:
        return build.add(ops.LinearScan(axis, reverse=True), spread(build, x, gamma), x)
    type = build.type(x)
    exponents = build.add(ops.Cast("float32"), build.add(ops.Iota(type.shape[axis])))
    base = build.add(ops.Broadcast((type.shape[axis],), ()), literal(build, "float32", gamma))
    weights = build.add(ops.Cast(type.dtype), build.add(ops.Binary("pow"), base, exponents))
    weighted = build.add(ops.Binary("mul"), x, build.add(ops.Broadcast(type.shape, (axis,)), weights))
    return build.add(ops.CumSum(axis, reverse=False), weighted)
