"""Lifting: reductions over prefixes, suffixes and windows, and linear recurrences, become scans over the whole step."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.builder import COMBINE, Builder
from tempo_core.ir.dependence import cycle_sign, cycles
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.convolutions import Convolution, convolution_of
from tempo_core.ir.ranges.elements import Reads, reduced_ranges
from tempo_core.ir.ranges.lifted import MovingScan, lifting_of, may_read_all_points, picked
from tempo_core.ir.ranges.past_convolutions import PastConvolution, past_convolution_of
from tempo_core.passes.base import Pass, remove_dead, take_over
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.linear_attention import Blocks, in_blocks
from tempo_core.passes.ranges.outer import outer_products
from tempo_core.passes.ranges.recurrences import Scan, comes_in_order, lift_recurrences
from tempo_core.passes.ranges.running import contracted_sums
from tempo_core.passes.ranges.whole import whole_steps
from tempo_core.prices import pays_to_convolve, window_width, worth_scanning
from tempo_core.symbolic.domain import Domain, Point, Range, identity
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Lift(Pass):
    """Compute a reduction or recurrence once over the whole step, not anew at each point.

    Reductions of prefixes and suffixes become scans, also sums whose terms depend on the reader, such as those of a variance or a softmax
    (`ir/ranges/lifted.py`). Discounted suffix sums and linear recurrences become
    `LinearScan`. A sum of products with the past in reverse order is one convolution (`past_convolutions.py`).
    A reduction over windows of w points becomes log2(w) shifted operations; blocks are reduced once a block.
    Functions of the elements are computed once a point (`ir/ranges/elements.py`). If a loop computes the elements, in the
    order in which they are reduced, it carries the reduction from one point to the next. Three kinds stay as they are: other
    reductions whose operands depend on their results, windows whose operands a loop over the step computes (the loop can
    reduce them as it goes), and recurrences over values that the host gives one timestep after the other.

    Recurrences along steps that stay loops (`but`) stay in these loops.

    Contractions of a prefix or suffix with values of the reader become contractions of the whole step (`whole.py`, `outer.py`).
    Contractions of running sums of outer products, perhaps with decay, are computed in blocks of points, without the sums (`running.py`,
    `linear_attention.py`).

    Rewrite: `y[t] = sum(x[0:t + 1])` -> `s = cumsum(x[0:T]); y[t] = s[t]`
    Rewrite: `y[t] = k[0:t + 1] @ q[t]` -> `s[t] = k[0:T] @ q[t]; y[t] = s[t].spatial[0:t + 1]`
    Rewrite: `a[t] = b[t] + c[t] * a[t + 1]` -> `s = linear_scan(c[0:T], b[0:T], reversed); a[t] = s[t]`
    Rewrite: `a[t] = c * a[t - 1] + outer(x[t], y[t]); a[T - 1]` -> `(c ** (T - 1 - t) * x[t])[0:T].T @ y[0:T]` (`geometric.py`)
    """

    name: str = field(default="lift", init=False)
    but: tuple[str, ...] = ()  # steps that stay loops: these compute their recurrences as they go

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        scans = lift_recurrences(graph, self.but)
        graph = remove_dead(graph)
        visited: set[int] = set()
        while new := [node for node in graph if node.id not in visited]:
            visited.update(node.id for node in new)
            lifting = _Lifting(graph)
            for node in new:
                lifting.lift(node)
            scans += lifting.scans
            graph = remove_dead(graph)  # what is left of the new nodes: the elements of a range may reduce another range
        _lift_contracted_sums(graph, scans)
        return remove_dead(graph)


def _lift_contracted_sums(graph: Graph, scans: list[Scan]) -> None:
    """Rewrite, in place, contractions of running sums of outer products."""
    lifting = _Lifting(graph)
    sums, readers = contracted_sums(graph, scans, lifting.is_there)
    blocks = {number: Blocks(graph, running) for number, running in sums.items()}
    for reader in readers:
        take_over(graph, reader.node, in_blocks(graph, blocks, reader))
        note(reader.node.id, "computed in blocks of points, without the running sums that it reads")


def streamed(graph: Graph, step: Symbol) -> dict[int, str]:
    """The nodes that a loop over `step` computes as it goes, and in which direction they read along it (`dependence.direction`).

    These are the nodes on the loop's cycles, and those that read them point by point. Nodes of several loops have no direction.
    """
    directions: dict[int, str] = {}
    for cycle in cycles(graph, step):
        directions.update(dict.fromkeys(cycle.nodes, cycle_sign(graph, cycle, step)))
    users, waiting = graph.users() if directions else {}, list(directions)
    while waiting:
        source = graph[waiting.pop()]
        for reader, slot in users[source.id]:
            along = [i for s, i in zip(source.domain.steps, reader.inputs[slot].index, strict=True) if s == step]
            if not along or not isinstance(along[0], Point) or step not in along[0].steps:
                continue
            sign = directions[source.id]
            sign = sign if directions.get(reader.id, sign) == sign else ""
            if directions.get(reader.id) != sign:
                directions[reader.id] = sign
                waiting.append(reader.id)
    return directions


class _Lifting:
    """Lifts the reductions of a graph, one after the other."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.scans: list[Scan] = []  # the sums of all prefixes or suffixes
        self._numbers: dict[frozenset[Symbol], dict[int, int]] = {}
        self._streams: dict[Symbol, dict[int, str]] = {}
        self.has_sources = any(isinstance(node.op, ops.Udf) and node.op.stateful for node in graph)

    def cycles(self, steps: frozenset[Symbol]) -> dict[int, int]:
        """For each node on a cycle that loops over `steps` must follow, the number of that cycle."""
        if steps not in self._numbers:
            self._numbers[steps] = {n: k for k, cycle in enumerate(cycles(self.graph, *steps)) for n in cycle.nodes}
        return self._numbers[steps]

    def streams(self, step: Symbol) -> dict[int, str]:
        if step not in self._streams:
            self._streams[step] = streamed(self.graph, step)
        return self._streams[step]

    def lift(self, node: Node) -> None:
        """Replace a reduction of ranges by an element, or a sum, of what is computed once for all points of a step."""
        for value, how, *of in self._forms(node):
            if value is not None:
                take_over(self.graph, node, value)
                note(node.id, how, *of)
                return

    def _forms(self, node: Node) -> Iterator[tuple[Any, ...]]:
        """What takes the place of a node, if anything does, and how it is computed: a text, and what that names."""
        graph = self.graph
        for reads in reduced_ranges(graph, node):
            value = self._lifted(node, reads)
            is_carried = value is not None and value.source == node.id
            way = "carried from point to point by a loop" if is_carried else "reduced once for all points"
            yield value, "{} over {}, not reduced anew over {} at each point", way, reads.step, reads.index
        convolution = convolution_of(graph, node)
        if convolution is not None and self._is_convolved(convolution):
            yield convolution.value(), "computed as one convolution over {}", convolution.step
        past = past_convolution_of(graph, node)
        if past is not None and self._is_over_the_past(past):
            yield past.value(), "computed as one convolution with the whole past over {}", past.operands[0].step
        pick = picked(graph, node)
        for scan, value in (*([] if pick is None else [pick]), *whole_steps(graph, node)):
            if self._is_whole(node, scan):
                yield value, "computed with all points of {}, of which each point takes {}", scan.step, scan.index
        outer = outer_products(graph, node)
        if outer and all(self.is_there(products.products.id, products.step) for products in outer):
            add = functools.partial(Builder(graph, node).add, ops.Binary("add"))
            yield functools.reduce(add, [products.summed() for products in outer]), "computed as a sum of outer products"

    def _is_whole(self, node: Node, scan: MovingScan) -> bool:
        """Whether all points of a prefix or suffix are there, and it grows with the step."""
        is_there = all(self.is_there(each, scan.step) for each in (node.id, *scan.sources))
        return is_there and window_width(scan.index, scan.step, node.domain) is None

    def _is_convolved(self, of: Convolution) -> bool:
        """Whether a contraction of windows is one convolution: all points are there, and the windows are too wide to be written out."""
        moving = frozenset({of.step})
        is_there = may_read_all_points(of.node.domain, moving) and all(self.is_there(each, of.step) for each in of.sources)
        return pays_to_convolve(of.window.width) and is_there and of.node.id not in self.cycles(moving)

    def _is_over_the_past(self, of: PastConvolution) -> bool:
        """Whether all points of both operands are there, and ranges have more than a few."""
        is_there = pays_to_convolve(of.operands[0].step.bound_expr) and all(self._is_whole(of.node, each) for each in of.operands)
        return is_there and of.node.id not in self.cycles(of.moving)

    def is_there(self, node_id: int, step: Symbol) -> bool:
        """Whether a value is there at all points of a step at once. A loop gives one point after the other, and so does the host."""
        return node_id not in self.streams(step) and not (self.has_sources and comes_in_order(self.graph, node_id, step))

    def _lifted(self, node: Node, reads: Reads) -> Edge | None:
        step, index = reads.step, reads.index
        if isinstance(node.op, ops.Dot) and not worth_scanning(node.outputs[0], reads.element_types(self.graph, node)):
            return None
        lifting = lifting_of(self.graph, node, reads)
        if lifting is None:
            return None
        is_streamed = bool(lifting.sources & self.streams(step).keys())
        if is_streamed and lifting.is_scan and window_width(index, step, node.domain) is not None:
            return None  # the loop keeps these few elements; a scan would keep all
        signs = {self.streams(step)[source] for source in lifting.sources & self.streams(step).keys()}
        if lifting.each is not None and isinstance(node.op, ops.Reduce) and lifting.order and signs == {lifting.order}:
            return (
                None if lifting.moving & node.domain.condition.steps else self._carried(node, step, lifting.each, lifting.order)
            )
        cycle = self.cycles(lifting.moving)
        if node.id in cycle and any(cycle.get(source) == cycle[node.id] for source in lifting.sources):
            return None
        if is_streamed and not lifting.is_scan:
            return None
        is_sum = isinstance(node.op, ops.Dot) or (isinstance(node.op, ops.Reduce) and node.op.fn == "sum")
        if lifting.each is not None and is_sum and lifting.order and not any(isinstance(at, Range) for at in lifting.each.index):
            self.scans.append(Scan(node, step, lifting.is_suffix, None, lifting.each))
        return lifting.value()

    def _carried(self, node: Node, step: Symbol, each: Edge, order: str) -> Edge:
        """The reduction as a recurrence: that of the neighbour, and the reader's own element, which a loop computes in this order."""
        t, bound = step.expr, step.bound_expr
        has_neighbour, neighbour = (t >= 1, t - 1) if order == "<" else (t <= bound - 2, t + 1)
        at = tuple(Point(neighbour if s == step else s.expr) for s in node.domain.steps)
        build = Builder(self.graph, node, Domain(node.domain.steps, node.domain.condition & has_neighbour))
        value = build.add(ops.Binary(COMBINE[node.op.fn]), Edge(node.id, at), each)  # type: ignore[attr-defined]
        branches = replace(value, condition=has_neighbour), each
        self.graph.put(replace(node, op=ops.Merge(node.outputs[0]), inputs=branches))
        self._numbers.clear()
        self._streams.clear()
        return Edge(node.id, identity(node.domain))
