"""Lifting: reductions over prefixes, suffixes and windows, and linear recurrences, become scans over the whole step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import loop_nest
from tempo_core.ir.elements import Elements, Reads, reduced_ranges, without
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.terms import Term, Terms
from tempo_core.passes.base import NEUTRAL, Builder, Pass, remove_dead
from tempo_core.passes.recurrences import lift_recurrences
from tempo_core.passes.scans import SCANS, positions_of_maxima, spread
from tempo_core.passes.sums import Summation
from tempo_core.passes.windows import block_of, of_blocks, of_windows, window_of
from tempo_core.prices import worth_scanning
from tempo_core.symbolic.domain import Point, Range, full_range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Lift(Pass):
    """Compute a reduction or recurrence once over the whole step, not anew at each point.

    Reductions of prefixes and suffixes become scans (`scans.py`). Discounted suffix sums and linear recurrences become
    `LinearScan`. A reduction over windows of w points becomes log2(w) shifted operations; blocks are reduced once a block
    (`windows.py`). Functions of the elements are computed once a point (`elements.py`). Three kinds stay as they are: reductions
    whose operands depend on their results (those are loops), windows whose operands a loop over the step computes (the loop can
    reduce them as it goes), and recurrences over values that the host gives one timestep after the other.

    Rewrite: `y[t] = sum(x[0:t + 1])` -> `s = cumsum(x[0:T]); y[t] = s[t]`
    Rewrite: `a[t] = b[t] + c[t] * a[t + 1]` -> `s = linear_scan(c[0:T], b[0:T], reversed); a[t] = s[t]`
    """

    name: str = field(default="lift", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        lift_recurrences(graph)
        lifting = _Lifting(graph)
        for node in graph:
            lifting.lift(node)
        return remove_dead(graph)


def _on_cycles(graph: Graph, steps: frozenset[Symbol]) -> dict[int, int]:
    """For each node on a cycle that loops over `steps` must follow, the number of that cycle."""
    cycles: dict[int, int] = {}
    for number, inner in enumerate(loop_nest(graph, [s for s in graph.order if s not in steps]).nests()):
        if inner.cyclic:
            cycles.update((v.node, number) for v in inner.vertices)
    return cycles


def _streamed(graph: Graph, step: Symbol, cycle: dict[int, int]) -> set[int]:
    """The nodes that a loop over `step` computes as it goes: the nodes on its cycles, and those that read them point by point."""
    nodes, users = set(cycle), graph.users() if cycle else {}
    waiting = list(nodes)
    while waiting:
        source = graph[waiting.pop()]
        for reader, slot in users[source.id]:
            along = [i for s, i in zip(source.domain.steps, reader.inputs[slot].index, strict=True) if s == step]
            if reader.id not in nodes and along and isinstance(along[0], Point) and step in along[0].steps:
                nodes.add(reader.id)
                waiting.append(reader.id)
    return nodes


class _Lifting:
    """Lifts the reductions of a graph, one after the other."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._numbers: dict[frozenset[Symbol], dict[int, int]] = {}
        self._streams: dict[Symbol, set[int]] = {}

    def cycles(self, steps: frozenset[Symbol]) -> dict[int, int]:
        """For each node on a cycle that loops over `steps` must follow, the number of that cycle."""
        if steps not in self._numbers:
            self._numbers[steps] = _on_cycles(self.graph, steps)
        return self._numbers[steps]

    def streams(self, step: Symbol) -> set[int]:
        if step not in self._streams:
            self._streams[step] = _streamed(self.graph, step, self.cycles(frozenset({step})))
        return self._streams[step]

    def lift(self, node: Node) -> None:
        """Replace a reduction of ranges by a scan over a whole step, whose element each point takes."""
        for reads in reduced_ranges(self.graph, node):
            lifted = self._lifted(node, reads)
            if lifted is not None:
                final = self.graph[lifted.source]
                self.graph.put(replace(final, id=node.id, name=node.name, where=node.where))
                return

    def _lifted(self, node: Node, reads: Reads) -> Edge | None:
        step, index = reads.step, reads.index
        if not index.steps or not index.steps <= set(node.domain.steps) or index.stride != 1 or index.size is not None:
            return None
        if (index.steps | {step}) & node.domain.condition.steps:
            return None
        if isinstance(node.op, ops.Dot) and not worth_scanning(node.outputs[0], reads.element_types(self.graph, node)):
            return None
        elements = Elements(self.graph, node, step, index)
        each = elements.of_reduced(node, reads)
        is_scan = index.start == 0 or index.stop == step.bound_expr
        term = Terms(elements).of_sum(node, reads.axes) if each is None and is_scan else None
        if each is None and term is None:
            return None
        cycle = self.cycles(index.steps | {step})
        if node.id in cycle and any(cycle.get(source) == cycle[node.id] for source in elements.reads):
            return None
        domain = node.domain.without(step)
        for moving in index.steps:
            domain = domain.without(moving)
        whole = Builder(self.graph, node, domain)
        if each is None:
            assert term is not None
            return self._summed(node, reads, whole, term)
        place = next(k for k, at in enumerate(each.index) if step in at.steps)
        values = replace(each, index=(*each.index[:place], full_range(step), *each.index[place + 1 :]))
        axis = sum(isinstance(at, Range) for at in each.index[:place])
        return self._taken(node, reads, whole, values, axis, elements.reads)

    def _summed(self, node: Node, reads: Reads, whole: Builder, term: Term) -> Edge:
        """What a point takes from sums whose terms depend on it too."""
        index = reads.index
        suffixes = bool(index.stop == reads.step.bound_expr)
        point = Builder(self.graph, node, node.domain)
        last = index.start if suffixes else index.stop - 1
        value = Summation(whole, point, term, reads.step, suffixes, last, index.stop - index.start).value()
        value = _or_neutral(point, value, "sum", index)
        rest = without(node.op.axes, reads.axes[0]) if isinstance(node.op, ops.Reduce) else ()
        return point.add(ops.Reduce("sum", rest), value) if rest else value

    def _taken(self, node: Node, reads: Reads, whole: Builder, x: Edge, axis: int, sources: set[int]) -> Edge | None:
        """What a point takes from the reductions of all ranges; None if they are no scan."""
        step, index, op = reads.step, reads.index, node.op
        gamma = op.gamma if isinstance(op, ops.DiscountedSum) else None
        fn = op.fn if isinstance(op, ops.Reduce) else "sum"
        point = Builder(self.graph, node, node.domain)
        if index.start == 0 or index.stop == step.bound_expr:
            suffixes = bool(index.stop == step.bound_expr)
            last = index.start if suffixes else index.stop - 1
            if isinstance(op, ops.Argmax):
                taken = _at(point, positions_of_maxima(whole, x, axis, suffixes), axis, last)
                start = point.add(ops.Broadcast(point.type(taken).shape, ()), point.add(ops.Eval(index.start)))
                return _or_neutral(point, point.add(ops.Binary("sub"), taken, start), "sum", index)
            if gamma is not None and not suffixes:
                return None
            scan = _discounted(whole, x, axis, gamma) if gamma is not None else SCANS[fn](whole, x, axis, suffixes)
            taken = _at(point, scan, axis, last)
            return _or_neutral(point, taken, fn, index)
        if isinstance(op, ops.Argmax) or index.steps != {step} or sources & self.streams(step):
            return None
        window, block = window_of(index, step), block_of(index, step)
        if window is not None and (gamma is None or window.first >= 0):  # a window that is cut in front begins later
            return _at(point, of_windows(whole, fn, x, axis, window, gamma), axis, step.expr)
        if block is not None and gamma is None:
            return _at(point, of_blocks(whole, fn, x, axis, block), axis, step.expr // block)
        return None


def _at(point: Builder, values: Edge, axis: int, position: Expr) -> Edge:
    return point.add(ops.Gather(axis), values, point.add(ops.Eval(position)))


def _or_neutral(point: Builder, taken: Edge, fn: str, index: Range) -> Edge:
    """`taken`, or the neutral element where the range is empty."""
    if provably_nonnegative(index.stop - index.start - 1):
        return taken
    is_nonempty = point.add(ops.Broadcast(point.type(taken).shape, ()), point.add(ops.Eval(index.stop - index.start >= 1)))
    return point.add(ops.Where(), is_nonempty, taken, spread(point, taken, NEUTRAL[fn]))


def _discounted(build: Builder, x: Edge, axis: int, gamma: float) -> Edge:
    return build.add(ops.LinearScan(axis, reverse=True), spread(build, x, gamma), x)
