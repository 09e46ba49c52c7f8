"""Dependences and steps: the loops that carry dependences, and the nodes that stay on a cycle inside those loops.

After Allen and Kennedy (1987): within a strongly connected component, a step on which every dependence reads the same or
an earlier point can be an outer loop. The loop carries the dependences that read strictly earlier points: they order
nothing inside the loop. Vertices that are still strongly connected when no step is left cannot run in parallel.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, Comparison
from tempo_core.symbolic.domain import Index, Point, is_own_point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.groups import Groups
from tempo_core.symbolic.proof import provably_nonnegative

V = TypeVar("V", bound=Hashable)


class Vertex(NamedTuple):
    """A node, or one branch of a `Merge`: a read of `w[i, 0]` does not need the branch that defines `w[i, t + 1]`."""

    node: int
    branch: int = -1


class Arc(NamedTuple):
    """A dependence: the reader's operand `slot` may come from `source`."""

    reader: Vertex
    slot: int
    source: Vertex


@functools.lru_cache(maxsize=65536)
def moved(index: Index, at: Expr) -> str:
    """Where an index reads for a reader `at` a point: "=" there, "<" earlier, "<=" no later, ">", ">=", or "*" anywhere."""
    first, last = (index.expr, index.expr) if isinstance(index, Point) else (index.start, index.last)
    before, after = at - last, first - at
    if isinstance(index, Point) and before == 0:
        return "="
    for sign, distance in (("<", before), (">", after)):
        if provably_nonnegative(distance):
            return sign if provably_nonnegative(distance - 1) else f"{sign}="
    return "*"


def direction(graph: Graph, reader: Node, edge: Edge, step: Symbol) -> str:
    """Where an edge reads along a step, in the signs of `moved`; "*" if the source or the reader lacks the step."""
    return _direction(reader, graph[edge.source], edge, step)


def _direction(reader: Node, source: Node, edge: Edge, step: Symbol) -> str:
    if step not in source.domain or step not in reader.domain:
        return "*"
    index = edge.index[source.domain.steps.index(step)]
    if is_own_point(index, step):
        return "="
    at = None if edge.condition is TRUE else fixed_point(edge.condition, step)
    return moved(index, step.expr) if at is None else moved(index.substitute({step: at}), at)


@functools.lru_cache(maxsize=65536)
def fixed_point(condition: Bool, step: Symbol) -> Expr | None:
    """The only point along a step at which a condition may hold: 0 for `(step == 0) & ...`. None if it has no such part."""
    for part in condition.parts:
        if isinstance(part, Comparison) and part.kind == "==" and abs(part.expr.coefficient(step)) == 1:
            rest = part.expr - step.expr * part.expr.coefficient(step)
            if step not in rest.symbols:
                return -rest * part.expr.coefficient(step)
    return None


def direction_of(graph: Graph, arc: Arc, step: Symbol) -> str:
    return _reads(graph, graph[arc.reader.node]).along(step)[arc.slot]


@dataclass(frozen=True)
class Nest:
    """Vertices inside one loop: `parts` are their strongly connected components, sources before readers.

    A part is a single vertex, or a nest of its own: vertices on a cycle, inside the loop over a step that carries some
    of their dependences. `arcs` are the dependences between the nest's vertices that no outer loop carries. In a `cyclic`
    nest no loop can carry them: its points must run in the order in which they depend on each other. `step` is the step of the
    innermost loop around the nest.
    """

    parts: tuple[Vertex | Nest, ...]
    arcs: tuple[Arc, ...]
    cyclic: bool = False
    step: Symbol | None = None

    @property
    def vertices(self) -> list[Vertex]:
        return [v for part in self.parts for v in (part.vertices if isinstance(part, Nest) else (part,))]

    @property
    def nodes(self) -> set[int]:
        return {vertex.node for vertex in self.vertices}

    def nests(self) -> Iterator[Nest]:
        """This nest and all inside it."""
        yield self
        for part in self.parts:
            if isinstance(part, Nest):
                yield from part.nests()


def loop_nest(graph: Graph, steps: Sequence[Symbol], joined: frozenset[int] = frozenset()) -> Nest:
    """The nest of the whole graph, with loops over `steps`. A `Merge` in `joined` is one vertex, not one per branch.

    Several passes ask for the same nest, or for nests that differ in their steps alone. So what they share is kept with the graph.
    """
    dependences = _dependences(graph, joined)
    key = tuple(steps)
    nest = dependences.nests.get(key)
    if nest is None:
        nest = dependences.nests[key] = _nested(dependences.reads, dependences.components, dependences.arcs, key)
    return nest


def cycles(graph: Graph, *steps: Symbol, joined: frozenset[int] = frozenset()) -> list[Nest]:
    """The cycles of dependences that loops over all other steps leave: loops over `steps` must follow them."""
    nest = loop_nest(graph, [s for s in graph.order if s not in steps], joined)
    return [inner for inner in nest.nests() if inner.cyclic]


def cycle_sign(graph: Graph, cycle: Nest, step: Symbol) -> str:
    """Whether all dependences of a cycle go from earlier points of a step ("<"), or from later ones (">"); "" if there are both."""
    signs = {direction_of(graph, arc, step) for arc in cycle.arcs}
    return next((sign for sign in "<>" if signs <= {"=", sign, f"{sign}="}), "")


@dataclass(eq=False)
class _Reads:
    """What a node reads: its arcs, and by step the directions of its operands. `nodes` are the node and its sources by operand."""

    nodes: tuple[Node, ...]
    arcs: list[Arc]
    directions: dict[Symbol, list[str]] = field(default_factory=dict)

    def along(self, step: Symbol) -> list[str]:
        """The direction of each operand along a step."""
        signs = self.directions.get(step)
        if signs is None:
            reader, *sources = self.nodes
            signs = [_direction(reader, source, edge, step) for source, edge in zip(sources, reader.inputs, strict=True)]
            self.directions[step] = signs
        return signs


@dataclass(eq=False)
class _Component:
    """Strongly connected vertices, and the arcs between them. By step: what stays inside the step's loop, for all nests with it."""

    members: list[Vertex]
    arcs: list[Arc] = field(default_factory=list)
    loops: dict[Symbol, tuple[list[_Component], list[Arc]] | None] = field(default_factory=dict)

    def inside(self, step: Symbol, reads: Mapping[int, _Reads]) -> tuple[list[_Component], list[Arc]] | None:
        """The components and arcs inside a loop over `step`; None if that loop carries no arc, or violates one."""
        if step not in self.loops:
            along = {node: reads[node].along(step) for node in {vertex.node for vertex in self.members}}
            signs = [along[reader.node][slot] for reader, slot, _ in self.arcs]
            if "*" in signs and ("<" in signs) != (">" in signs) and (places := self._places(step, reads)):
                signs = [
                    sign if sign != "*" else _placed(reads, arc, step, places) for arc, sign in zip(self.arcs, signs, strict=True)
                ]
            sign = next((sign for sign in "<>" if sign in signs and set(signs) <= {"=", sign, f"{sign}="}), None)
            remaining = [arc for arc, d in zip(self.arcs, signs, strict=True) if d != sign]
            self.loops[step] = None if sign is None else (_components(self.members, remaining), remaining)
        return self.loops[step]

    def _places(self, step: Symbol, reads: Mapping[int, _Reads]) -> dict[int, Expr]:
        """The only points of a step at which the members without it meet the members with it: there they are in its loop.

        Empty if they meet at other points too.
        `first[t]`, of which `h[l, t]` is made where l == 0, and which reads `h[0, t - 1]`, is made at l == 0.
        """
        without = {vertex.node for vertex in self.members if step not in reads[vertex.node].nodes[0].domain}
        points: dict[int, Expr] = {}
        together: list[tuple[int, int]] = []
        for (reader, _), slot, (source, _) in self.arcs:
            if (reader in without) == (source in without):
                if reader in without:
                    together.append((reader, source))
                continue
            edge = reads[reader].nodes[0].inputs[slot]
            if reader in without:
                index = edge.index[reads[source].nodes[0].domain.steps.index(step)]
                node, point = reader, index.expr if isinstance(index, Point) else None
            else:
                node, point = source, fixed_point(edge.condition, step)
            if point is None or points.setdefault(node, point) != point:
                return {}
        groups: Groups[int] = Groups(without)
        for reader, source in together:
            groups.join(reader, source)
        met: dict[int, Expr] = {}
        for node, point in points.items():
            if met.setdefault(groups.of(node), point) != point:
                return {}
        return {node: met[groups.of(node)] for node in without if groups.of(node) in met}


def _placed(reads: Mapping[int, _Reads], arc: Arc, step: Symbol, places: Mapping[int, Expr]) -> str:
    """The direction of a dependence along a step, if the nodes without the step are at these places in its loop."""
    (reader, _), slot, (source, _) = arc
    node, edge = reads[reader].nodes[0], reads[reader].nodes[0].inputs[slot]
    at = places.get(reader)
    if step in node.domain:
        at = fixed_point(edge.condition, step)
        at = step.expr if at is None else at
    if step in reads[source].nodes[0].domain:
        index = edge.index[reads[source].nodes[0].domain.steps.index(step)]
    elif source in places:
        index = Point(places[source])
    else:
        return "*"
    return "*" if at is None else moved(index, at)


@dataclass(eq=False)
class _Dependences:
    """The dependences between some nodes, and their nests by steps."""

    nodes: tuple[Node, ...]
    reads: dict[int, _Reads]
    arcs: list[Arc]
    components: list[_Component]
    nests: dict[tuple[Symbol, ...], Nest] = field(default_factory=dict)


def _dependences(graph: Graph, joined: frozenset[int]) -> _Dependences:
    """The dependences of a graph. The graph and its copies keep them until a node is another object."""
    nodes = tuple(graph.nodes.values())
    kept: _Dependences | None = graph.facts.get(joined)
    if kept is not None and same_objects(kept.nodes, nodes):
        return kept
    reads = {node.id: _reads(graph, node) for node in nodes}
    vertices = [vertex for node in nodes for vertex in ([Vertex(node.id)] if node.id in joined else vertices_of(node))]
    arcs = [arc for each in reads.values() for arc in each.arcs]
    if joined:
        arcs = [Arc(_joined(reader, joined), slot, _joined(source, joined)) for reader, slot, source in arcs]
    dependences = graph.facts[joined] = _Dependences(nodes, reads, arcs, _components(vertices, arcs))
    return dependences


def _reads(graph: Graph, node: Node) -> _Reads:
    """What a node reads. The graph and its copies keep it until the node or one of its sources is another object."""
    kept: _Reads | None = graph.facts.get(node.id)
    nodes = (node, *[graph.nodes[edge.source] for edge in node.inputs])
    if kept is not None and same_objects(kept.nodes, nodes):
        return kept
    reads = graph.facts[node.id] = _Reads(nodes, list(_arcs(graph, node)))
    return reads


def same_objects(some: Sequence[Node | None], others: Sequence[Node | None]) -> bool:
    """Whether two tuples hold the same objects. Equal nodes would do, but take time to compare."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _joined(vertex: Vertex, joined: frozenset[int]) -> Vertex:
    return Vertex(vertex.node) if vertex.node in joined else vertex


def vertices_of(node: Node) -> list[Vertex]:
    return [Vertex(node.id, k) for k in range(len(node.inputs))] if isinstance(node.op, Merge) else [Vertex(node.id)]


def _arcs(graph: Graph, node: Node) -> Iterator[Arc]:
    for slot, edge in enumerate(node.inputs):
        reader = Vertex(node.id, slot) if isinstance(node.op, Merge) else Vertex(node.id)
        for vertex in _defining(graph[edge.source], edge):
            yield Arc(reader, slot, vertex)


def _defining(source: Node, edge: Edge) -> Iterator[Vertex]:
    """The vertices of a source that may define what an edge reads: of a `Merge`, no branch after one that certainly does."""
    if not isinstance(source.op, Merge):
        yield Vertex(source.id)
        return
    for branch, each in enumerate(source.inputs):
        condition = _read_under(each.condition, source.domain.steps, edge.index)
        if condition is not FALSE:
            yield Vertex(source.id, branch)
        if condition is TRUE:
            return


@functools.lru_cache(maxsize=65536)
def _read_under(condition: Bool, steps: tuple[Symbol, ...], index: tuple[Index, ...]) -> Bool:
    """A condition on steps at the points of an index. Unchanged if the index is a range along one of the condition's steps."""
    points = {step: part.expr for step, part in zip(steps, index, strict=True) if isinstance(part, Point)}
    return condition.substitute(points) if all(s in points for s in condition.steps) else condition


def innermost_steps(graph: Graph) -> dict[int, Symbol]:
    """For each node on a cycle of dependences, the step of the innermost loop that carries it."""
    steps: dict[int, Symbol] = {}
    for inner in loop_nest(graph, graph.order).nests():  # from the outside in
        if inner.step is not None:
            steps.update(dict.fromkeys(inner.nodes, inner.step))
    return steps


def innermost_nests(graph: Graph) -> dict[int, frozenset[int]]:
    """For each node on a cycle of dependences, the nodes in the innermost loop that carries it."""
    nests: dict[int, frozenset[int]] = {}
    for inner in loop_nest(graph, graph.order).nests():
        if inner.step is not None:
            nests.update(dict.fromkeys(inner.nodes, frozenset(inner.nodes)))
    return nests


def _nested(
    reads: Mapping[int, _Reads],
    components: Sequence[_Component],
    arcs: Sequence[Arc],
    steps: tuple[Symbol, ...],
    around: Symbol | None = None,
) -> Nest:
    """The nest of some components. The loop around a component is over the first step that can carry some of its arcs."""
    parts: list[Vertex | Nest] = []
    for component in components:
        if not component.arcs:
            parts.append(component.members[0])
            continue
        step = next((s for s in steps if component.inside(s, reads) is not None), None)
        loop = None if step is None else component.inside(step, reads)
        if loop is None:
            parts.append(Nest(tuple(component.members), tuple(component.arcs), True, around))
        else:
            parts.append(_nested(reads, *loop, tuple(s for s in steps if s != step), step))
    return Nest(tuple(parts), tuple(arcs), step=around)


def _components(vertices: list[Vertex], arcs: list[Arc]) -> list[_Component]:
    """Strongly connected vertices with the arcs between them, sources before readers."""
    components = [_Component(members) for members in strongly_connected(vertices, [(arc.reader, arc.source) for arc in arcs])]
    component_of = {vertex: component for component in components for vertex in component.members}
    for arc in arcs:
        if component_of[arc.reader] is component_of[arc.source]:
            component_of[arc.reader].arcs.append(arc)
    return components


def strongly_connected(vertices: Sequence[V], reads: Iterable[tuple[V, V]]) -> list[list[V]]:
    """Tarjan's strongly connected components for (reader, source) pairs: sources before readers, otherwise in the given order."""
    place = {vertex: k for k, vertex in enumerate(vertices)}  # lists by place are faster than dicts by vertex
    sources: list[list[int]] = [[] for _ in vertices]
    for reader, read in reads:
        sources[place[reader]].append(place[read])
    done = len(vertices) + 1  # in place of the lowest number, once a vertex has its component
    count = 0
    number, lowest = [0] * len(vertices), [0] * len(vertices)
    stack: list[int] = []
    components: list[list[V]] = []
    for start in range(len(vertices)):
        if number[start]:
            continue
        count += 1
        number[start] = lowest[start] = count
        stack.append(start)
        work = [(start, iter(sources[start]))]
        while work:
            vertex, rest = work[-1]
            for source in rest:
                if not number[source]:
                    count += 1
                    number[source] = count
                    if not sources[source]:
                        lowest[source] = done
                        components.append([vertices[source]])
                        continue
                    lowest[source] = count
                    stack.append(source)
                    work.append((source, iter(sources[source])))
                    break
                if lowest[source] != done and number[source] < lowest[vertex]:
                    lowest[vertex] = number[source]
            else:
                work.pop()
                if work and lowest[vertex] < lowest[work[-1][0]]:
                    lowest[work[-1][0]] = lowest[vertex]
                if lowest[vertex] == number[vertex]:
                    members: list[V] = []
                    while True:
                        member = stack.pop()
                        lowest[member] = done
                        members.append(vertices[member])
                        if member == vertex:
                            break
                    components.append(members)
    return components


def latest_levels(costs: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Levels that rise by at least the given costs from source to reader, each as high as the readers allow.

    `costs[reader][source]` is the cost of a dependence; sources come before their readers. The highest level is the length of
    the longest path. A vertex without readers stays as low as its sources allow.

    >>> latest_levels({0: {}, 1: {}, 2: {0: 1}, 3: {2: 1, 1: 1}})
    {0: 0, 1: 1, 2: 1, 3: 2}
    """
    level = dict.fromkeys(costs, 0)
    for reader, sources in costs.items():
        level[reader] = max((level[source] + cost for source, cost in sources.items()), default=0)
    latest: dict[int, int] = {}
    for reader in reversed(list(costs)):
        level[reader] = max(level[reader], latest.get(reader, level[reader]))
        for source, cost in costs[reader].items():
            latest[source] = min(latest.get(source, level[reader] - cost), level[reader] - cost)
    return level


def forward_order(graph: Graph) -> list[int]:
    """Node ids, sources before readers. The operands of a `Merge` do not count, because every cycle runs through a `Merge`."""
    order: list[int] = []
    seen: set[int] = set()
    for start in graph.nodes:
        stack = [(start, False)]
        while stack:
            node_id, ready = stack.pop()
            if ready:
                order.append(node_id)
            elif node_id not in seen:
                seen.add(node_id)
                stack.append((node_id, True))
                if not isinstance(graph[node_id].op, Merge):
                    stack += [(e.source, False) for e in graph[node_id].inputs if e.source not in seen]
    return order


def feeding(graph: Graph, nodes: Sequence[Node]) -> frozenset[int]:
    """The nodes that some nodes depend on, directly or through others."""
    return frozenset(ancestors(graph, [edge.source for node in nodes for edge in node.inputs]))


def deciding(graph: Graph, end: Node) -> frozenset[int]:
    """The nodes that an end depends on; of an inner one, through values at the same point of the outer steps."""
    outer = [step for step in end.domain.steps[:-1] if step not in graph.chosen]

    def sources(node: Node) -> list[int]:
        return [
            edge.source for edge in node.inputs if not any(direction(graph, node, edge, step) in ("<", ">") for step in outer)
        ]

    return frozenset(reached(sources(end), lambda node_id: sources(graph[node_id])))


def ancestors(graph: Graph, starts: Iterable[int]) -> set[int]:
    """Some nodes, and all on which they depend."""
    return reached(starts, lambda node_id: [edge.source for edge in graph[node_id].inputs])


def reached(starts: Iterable[V], following: Callable[[V], Iterable[V]]) -> set[V]:
    """The starts, and all that follows from them."""
    waiting = list(starts)
    seen = set(waiting)
    while waiting:
        for each in following(waiting.pop()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen
