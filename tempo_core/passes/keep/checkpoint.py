"""Checkpoints: a loop keeps its state every so often, and the loop that goes back over it runs the steps between again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import Nest, direction, loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.clean.narrow import at_points
from tempo_core.passes.decisions import note
from tempo_core.symbolic.condition import TRUE, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, identity, index_steps, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True)
class Checkpoint(Pass):
    """Cut the points of a step into segments: of a loop, only the values at their ends are kept for the loop that goes back.

    Before: back-propagation through time reads values of the forward loop, which keeps them for all points of the step. After: the loop
    back runs over segments. For each of them, the forward loop's operations run again from the last value before the segment; what they
    compute lives for that segment. So T / K + K values are kept in place of T (Chen et al. 2016). The same operands give the same bits again.

    `sizes` are the numbers of points in a segment, by step. Of several sizes for a step, the largest is first: its segments are cut into
    smaller ones (as in Griewank and Walther 2000). A step that is vectorized has no loops, so `vectorize` must leave it alone.

    Rewrite (segments of 10): `h[t] = f(h[t - 1]); g[t] = h[t] * g[t + 1]` -> `h[t] = f(h[t - 1]);
    r[n, k] = f(r[n, k - 1] if k >= 1 else h[10n - 1]); g[n, k] = r[n, k] * (g[n, k + 1] if k < 9 else g[n + 1, 0])`
    """

    sizes: tuple[tuple[str, int], ...] = ()
    name: str = field(default="checkpoint", init=False)

    def apply(self, graph: Graph) -> Graph:
        for step in graph.order:
            for size in [size for name, size in self.sizes if name == step.name]:
                cut = _Cut(graph, step, size)
                if cut.back:
                    graph, step = cut.run(), cut.within
        return graph


class _Cut:
    """A graph in which the loops back over a step run over segments of `size` points: `number` counts them, `within` their points."""

    def __init__(self, graph: Graph, step: Symbol, size: int):
        self.old, self.step, self.size = graph, step, size
        place = graph.order.index(step) + 1
        self.number = graph.fresh_step(f"{step.name}_segment")
        graph = graph.with_step(self.number, (step.bound_expr + (size - 1)) // size, place)
        self.within = graph.fresh_step(f"{step.name}_within")
        self.graph = graph.with_step(self.within, Expr.of(size), place + 1)
        self.here = self.number.expr * size + self.within.expr  # the point of the step
        self.back, self.after = loops_back(self.old, step)
        self.cut: dict[int, int] = {}  # for a node of the loops back, or one that runs again, the node over segments
        self.waiting: list[int] = []
        self.moved: dict[tuple[int, int, int], int] = {}  # nodes with values at a distance, by node, output and distance
        self.whole: dict[tuple[int, int], int] = {}  # nodes with the values at all points of the step

    def run(self) -> Graph:
        for node_id in self.back:
            self._over_segments(node_id)
        while self.waiting:
            self._fill(self.old[self.waiting.pop()])
        for node in self.old:
            if node.id not in self.back and any(edge.source in self.back for edge in node.inputs):
                inputs = (self._elsewhere(edge) if edge.source in self.back else edge for edge in node.inputs)
                self.graph.put(node.reading(tuple(inputs)))
        return remove_dead(self.graph)

    # -- nodes over segments --------------------------------------------------------------------------------------------

    def _over_segments(self, node_id: int) -> int:
        """The node over segments of a node over the step. It gets its operands later, as it may depend on itself."""
        if node_id not in self.cut:
            node = self.old[node_id]
            over = replace(at_points(node, {self.step: self.here}), id=self.graph.next_id, domain=self._domain(node.domain, 0))
            if node_id not in self.back:
                note(node_id, "computed again in segments of {} points of {}, so that it is not kept", self.size, self.step)
                over = replace(over, name="")
            self.cut[node_id] = self.graph.put(over).id
            self.waiting.append(node_id)
        return self.cut[node_id]

    def _domain(self, domain: Domain, distance: int) -> Domain:
        """The points over segments, so far before a point of a domain over the step."""
        there = self.here + distance
        steps = step_order({*domain.steps, self.number, self.within} - {self.step}, self.graph.order)
        ends = conjunction(there < self.step.bound_expr, *([there >= 0] if distance < 0 else []))
        return Domain(steps, domain.condition.substitute({self.step: there}) & ends)

    def _fill(self, node: Node) -> None:
        """Give a node over segments its operands. A branch of a recurrence that reads a value at a distance becomes two."""
        if isinstance(node.op, ops.Merge):
            inputs = [
                replace(part, condition=part.condition & edge.condition.substitute({self.step: self.here}))
                for edge in node.inputs
                for part in self._parts(replace(edge, condition=TRUE))
            ]
        else:
            inputs = [self._read(edge) for edge in node.inputs]
        self.graph.put(replace(self.graph[self.cut[node.id]], inputs=tuple(inputs)))

    # -- reads of nodes over segments -----------------------------------------------------------------------------------

    def _distance(self, edge: Edge) -> int | None:
        """How many points after its reader an edge reads a value that each segment has. None for other values, and for other reads."""
        source = self.old[edge.source]
        if self.step not in source.domain or not (source.id in self.back or self._can_repeat(source)):
            return None
        by_step = edge.by_step(source.domain)
        index = by_step.pop(self.step)
        moves = index.expr - self.step.expr if isinstance(index, Point) else self.step.expr
        is_near = moves.is_constant and abs(moves.constant) < self.size and self.step not in index_steps(by_step.values())
        return moves.constant if is_near else None

    def _can_repeat(self, node: Node) -> bool:
        """Whether a node may run again: before the loops back, and not where the host may give another value."""
        return not _calls_host(node) and node.id not in self.after

    def _read(self, edge: Edge) -> Edge:
        """A read of one operand, for a reader over segments."""
        distance = self._distance(edge)
        if not distance:
            return self._parts(edge)[0]
        key = edge.source, edge.output, distance
        source = self.old[edge.source]
        if key not in self.moved:
            index = tuple(Point(s.expr + distance) if s == self.step else Point(s.expr) for s in source.domain.steps)
            type = source.outputs[edge.output].substitute({self.step: self.here + distance})
            parts, domain = self._parts(Edge(source.id, index, edge.output)), self._domain(source.domain, distance)
            self.moved[key] = self.graph.add(ops.Merge(type), parts, domain=domain, where=source.where).id
        by_step = edge.by_step(source.domain) | {s: Point(s.expr) for s in (self.number, self.within)}
        return Edge(self.moved[key], tuple(by_step[s] for s in self.graph[self.moved[key]].domain.steps))

    def _parts(self, edge: Edge) -> list[Edge]:
        """The reads that make up a read, with conditions where there are two: in the same segment, and beyond its end."""
        distance = self._distance(edge)
        is_back, here = edge.source in self.back, edge.substitute({self.step: self.here})
        if distance is None:
            return [self._elsewhere(here) if is_back else here]
        inside = self._in_segment(edge, distance)
        if distance == 0:
            return [inside]
        is_inside = self.within.expr + distance < self.size if distance > 0 else self.within.expr + distance >= 0
        beyond = self._in_segment(edge, distance, 1 if distance > 0 else -1) if is_back else here
        return [replace(inside, condition=is_inside), replace(beyond, condition=~is_inside)]

    def _in_segment(self, edge: Edge, distance: int, segments: int = 0) -> Edge:
        """A read of a node over segments, so many segments after its reader."""
        at = {self.number: self.number.expr + segments, self.within: self.within.expr + distance - segments * self.size}
        return self._at(edge, at)

    def _at(self, edge: Edge, at: Mapping[Symbol, Expr]) -> Edge:
        """A read of a node over segments at a segment and a point in it."""
        over = self._over_segments(edge.source)
        by_step: dict[Symbol, Index] = edge.by_step(self.old[edge.source].domain) | {s: Point(e) for s, e in at.items()}
        return Edge(over, tuple(by_step[s] for s in self.graph[over].domain.steps), edge.output, edge.condition)

    # -- reads from outside ---------------------------------------------------------------------------------------------

    def _elsewhere(self, edge: Edge) -> Edge:
        """A read of any point of the loops back, or of several."""
        source = self.old[edge.source]
        index = edge.by_step(source.domain)[self.step]
        if isinstance(index, Point):
            return self._at(edge, {self.number: index.expr // self.size, self.within: index.expr % self.size})
        key = edge.source, edge.output
        if key not in self.whole:
            here = {self.number: self.step.expr // self.size, self.within: self.step.expr % self.size}
            read = self._at(Edge(source.id, identity(source.domain), edge.output), here)
            self.whole[key] = self.graph.add(
                ops.Identity(), [read], domain=source.domain, name=source.name, where=source.where
            ).id
        return replace(edge, source=self.whole[key], output=0)


def goes_back(graph: Graph, step: Symbol | str) -> bool:
    """Whether loops over a step, by itself or by name, run back over what other loops over it computed."""
    return any(loops_back(graph, each)[0] for each in graph.order if each == step or each.name == step)


def loops_back(graph: Graph, step: Symbol) -> tuple[set[int], set[int]]:
    """The nodes of loops over a step that run the other way than loops before them, with what is computed from these over the same step;
    and the nodes after them."""
    order = _Order(graph, step)
    order.sort(loop_nest(graph, graph.order))
    return {n for n, sign in order.turned.items() if sign}, {n for n, sign in order.turned.items() if not sign}


def _calls_host(node: Node) -> bool:
    """Whether it matters how often and in which order a node runs."""
    return isinstance(node.op, ops.Sink) or (isinstance(node.op, ops.Udf) and (node.op.kind != "jax" or node.op.stateful))


class _Order:
    """The nodes of a graph, sources before readers: before the loops that go back over a step, in them, or after them."""

    def __init__(self, graph: Graph, step: Symbol):
        self.graph, self.step = graph, step
        self.before: dict[int, set[str]] = {}  # for a node before the loops back, the directions of the loops that it depends on
        self.turned: dict[int, str] = {}  # for a node in a loop back, its direction; "" for a node after it

    def sort(self, nest: Nest) -> None:
        for part in nest.parts:
            nodes = {vertex.node for vertex in part.vertices} if isinstance(part, Nest) else {part.node}
            signs = self._signs(nodes)
            if len(signs) > 1 and isinstance(part, Nest):  # there are several loops inside of an outer one
                self.sort(part)
            else:
                self._place(nodes, "".join(signs))

    def _signs(self, nodes: set[int]) -> set[str]:
        """The directions in which nodes depend on each other along the step, at one point of the other steps."""
        return {
            direction(self.graph, reader, edge, self.step)[0]
            for reader in map(self.graph.__getitem__, nodes)
            for edge in reader.inputs
            if edge.source in nodes
            and all(s == self.step or is_own_point(index, s) for s, index in edge.by_step(self.graph[edge.source].domain).items())
        } & {"<", ">"}

    def _place(self, nodes: set[int], sign: str) -> None:
        sources = {edge.source for n in nodes for edge in self.graph[n].inputs} - nodes
        turned = {self.turned[n] for n in sources if n in self.turned}
        before = set[str]().union(*(self.before.get(n, ()) for n in sources))
        if turned:
            (back,) = turned if len(turned) == 1 and sign in ("", *turned) else ("",)
        elif sign and before - {sign}:
            back = sign
        else:
            self.before.update(dict.fromkeys(nodes, before | set(sign)))
            return
        moves = all(self.step in self.graph[n].domain and (sign or not _calls_host(self.graph[n])) for n in nodes)
        self.turned.update(
            dict.fromkeys(nodes, back if moves else "")
        )  # outside of loops, the host is called in the step's order
