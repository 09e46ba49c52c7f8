"""Fusion: islands of operations with one domain and identity edges between them become one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import Nest, Vertex, forward_order, loop_nest
from tempo_core.ir.graph import Dataflowed, Edge, Graph, Node, is_identity
from tempo_core.passes.base import Pass, read_at, remove_dead
from tempo_core.passes.narrow import pinned
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, identity

NEVER_FUSED = (ops.Merge, ops.Input, ops.Output, ops.Sink)
DUPLICATED = (ops.Constant, ops.Iota, ops.Eval)  # cheap sources: each reader gets its own


@dataclass(frozen=True)
class Fuse(Pass):
    """Merge connected operations of one domain into `Dataflow` nodes, so that few statements are scheduled and launched.

    Two operations may share an island if no dependence leads from one to the other through something outside of it.
    To see that, nodes get a *level* inside the cycles that they share (`ir/dependence.py`): one more than their sources'
    across every edge that cannot be fused. Operations of one level cannot reach each other from outside.

    Rewrite: `a = exp(x); b = a + y; c = b * a` -> `(b, c) = dataflow(x, y)`
    """

    name: str = field(default="fuse", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = pinned(_with_own_sources(graph))  # what had readers at other points too may be read at one of them now
        for island in _islands(graph):
            _replace(graph, island)
        return remove_dead(graph)


def _fusable(node: Node) -> bool:
    op = node.op
    if isinstance(op, ops.Udf):
        return op.kind == "jax" and not op.stateful
    return not isinstance(op, NEVER_FUSED) and all(t.is_static for t in node.outputs)


def _with_own_sources(graph: Graph) -> Graph:
    """A copy in which every fusable reader of a constant has it in its own domain, read at the identity."""
    graph = graph.copy()
    made: dict[tuple[int, object], int] = {}
    for node_id in forward_order(graph):
        node = graph[node_id]
        if not _fusable(node) or isinstance(node.op, DUPLICATED):
            continue
        inputs = []
        for edge in node.inputs:
            source = graph[edge.source]
            if _is_cheap(graph, source) and not _has_ranges(edge):
                edge = _copied(graph, edge, node, made)
            inputs.append(edge)
        graph.put(replace(node, inputs=tuple(inputs)))
    return remove_dead(graph)


def _is_cheap(graph: Graph, node: Node) -> bool:
    """Constants, counters, expressions of steps, repetitions of anything, elements of inputs."""
    if isinstance(node.op, ops.Broadcast):
        return node.outputs[0].is_static
    if isinstance(node.op, ops.Cast):
        return _is_cheap(graph, graph[node.inputs[0].source])
    if isinstance(node.op, ops.Gather):  # one element of what is fed: read in place, not copied to a store
        return isinstance(graph[node.inputs[0].source].op, ops.Input) and graph.edge_type(node.inputs[1]).rank == 0
    if isinstance(node.op, ops.Constant):
        return len(node.op.data) <= 64
    return isinstance(node.op, DUPLICATED)


def _has_ranges(edge: Edge) -> bool:
    return any(isinstance(i, Range) for i in edge.index)


def _copied(graph: Graph, edge: Edge, reader: Node, made: dict[tuple[int, object], int]) -> Edge:
    """A copy of a cheap source at the reader's points."""
    source = graph[edge.source]
    at = edge.points(source.domain)
    op = source.op
    if isinstance(op, ops.Eval):
        op = ops.Eval(op.value.substitute(at))
    inputs = tuple(
        _copied(graph, moved, reader, made) if _is_cheap(graph, graph[moved.source]) and not _has_ranges(moved) else moved
        for moved in (read_at(e, source.domain, edge) or e for e in source.inputs)
    )
    key = (reader.id, (op, inputs))
    if key not in made:
        made[key] = graph.add(op, inputs, domain=reader.domain, name=source.name, where=source.where).id
    return Edge(made[key], identity(reader.domain))


def _islands(graph: Graph) -> list[list[int]]:
    """Groups of nodes to fuse, each connected by identity edges and on one level of one nest."""
    place: dict[int, tuple[tuple[int, ...], int]] = {}  # node -> (the nests around it, its level in the innermost)
    _place(graph, loop_nest(graph, graph.order), (), place)
    parent = {n.id: n.id for n in graph}

    def find(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for node in graph:
        if not _is_cheap(graph, node):
            for source in _joined_sources(graph, node):
                if place[node.id] == place[source]:
                    parent[find(source)] = find(node.id)
    order = forward_order(graph)
    _absorb(graph, order, parent, find)
    islands_of: dict[int, list[int]] = {}
    for node_id in order:
        islands_of.setdefault(find(node_id), []).append(node_id)
    return [members for members in islands_of.values() if len(members) > 1]


def _joined_sources(graph: Graph, node: Node) -> Iterator[int]:
    """What a node reads at its own point, looking through cheap operations: each of those belongs to its reader."""
    for edge in node.inputs:
        if _joins(graph, node, edge):
            source = graph[edge.source]
            if _is_cheap(graph, source):
                yield from _joined_sources(graph, source)
            else:
                yield source.id


def _absorb(graph: Graph, order: list[int], parent: dict[int, int], find: Callable[[int], int]) -> None:
    """Put each group that only one other group reads, at its own point, into that one: its reader needs it there anyway."""
    users = graph.users()
    members: dict[int, set[int]] = {}
    for n in order:
        members.setdefault(find(n), set()).add(n)
    for n in reversed(order):
        group = find(n)
        readers = [(r, k) for m in members[group] for r, k in users[m] if find(r.id) != group]
        targets = {find(r.id) for r, _ in readers}
        if len(targets) == 1 and all(_joins(graph, r, r.inputs[k]) for r, k in readers):
            target = targets.pop()
            parent[group] = target
            members[target] |= members.pop(group)


def _place(graph: Graph, inner: Nest, path: tuple[int, ...], place: dict[int, tuple[tuple[int, ...], int]]) -> None:
    if inner.cyclic:
        place |= {v.node: ((*path, v.node), 0) for v in inner.vertices}
        return
    place |= {v.node: (path, level) for v, level in _levels(graph, inner).items()}
    for number, part in enumerate(inner.parts):
        if isinstance(part, Nest):
            _place(graph, part, (*path, -1 - number), place)


def _joins(graph: Graph, reader: Node, edge: Edge) -> bool:
    source = graph[edge.source]
    return edge.condition is TRUE and _fusable(reader) and _fusable(source) and is_identity(edge, source, reader.domain)


def _levels(graph: Graph, inner: Nest) -> dict[Vertex, int]:
    """Levels of the vertices that stand directly in a nest: the longest path, as late as readers allow, where an edge that
    can be fused costs nothing and any other one costs 1. A nested cycle is one vertex, with whatever leads through it.
    """
    place = {v: number for number, part in enumerate(inner.parts) for v in (part.vertices if isinstance(part, Nest) else (part,))}
    reads: dict[int, dict[int, int]] = {number: {} for number in range(len(inner.parts))}  # reader -> source -> cost
    for arc in inner.arcs:
        here, there = place[arc.reader], place[arc.source]
        if here != there:
            reader = graph[arc.reader.node]
            single = isinstance(inner.parts[here], Vertex) and isinstance(inner.parts[there], Vertex)
            cost = 0 if single and _joins(graph, reader, reader.inputs[arc.slot]) else 1
            reads[here][there] = max(cost, reads[here].get(there, 0))
    level = dict.fromkeys(reads, 0)
    for here in reads:  # parts are in topological order
        for there, cost in reads[here].items():
            level[here] = max(level[here], level[there] + cost)
    latest: dict[int, int] = {}
    for here in reversed(reads):
        level[here] = max(level[here], latest.get(here, level[here]))
        for there, cost in reads[here].items():
            latest[there] = min(latest.get(there, level[here] - cost), level[here] - cost)
    return {part: level[number] for number, part in enumerate(inner.parts) if isinstance(part, Vertex)}


def _replace(graph: Graph, members: list[int]) -> None:
    """Put one `Dataflow` node in place of an island's nodes; its outputs are the values read from outside."""
    inside = set(members)
    first = graph[members[-1]]
    operands: dict[tuple[int, int, object], int] = {}
    edges: list[Edge] = []
    for n in members:
        for edge in graph[n].inputs:
            if not (edge.source in inside and _joins(graph, graph[n], edge)):
                key = (edge.source, edge.output, edge.index)
                if key not in operands:
                    operands[key] = len(edges)
                    edges.append(edge)
    slots = [graph.edge_type(e) for e in edges]
    place: dict[tuple[int, int], int] = {}
    instructions = []
    for n in members:
        node = graph[n]
        arguments = tuple(
            place[(e.source, e.output)]
            if e.source in inside and _joins(graph, node, e)
            else operands[(e.source, e.output, e.index)]
            for e in node.inputs
        )
        results = tuple(range(len(slots), len(slots) + len(node.outputs)))
        for output, slot in enumerate(results):
            place[(n, output)] = slot
        slots += node.outputs
        instructions.append((node.op, arguments, results))
    read: dict[tuple[int, int], int] = {}
    for reader in graph:
        for edge in reader.inputs:
            if edge.source in inside and not (reader.id in inside and _joins(graph, reader, edge)):
                read.setdefault((edge.source, edge.output), len(read))
    body = Dataflowed(tuple(t for t in slots[: len(edges)]), tuple(instructions), tuple(place[k] for k in read), tuple(slots))
    named = [n for n in members if not _is_cheap(graph, graph[n])] or list(members)
    given = [n for n in members if any(n == source for source, _ in read)]
    names = [graph[n].name for n in (*named, *given) if graph[n].name]  # of a result, or else of a part
    island = graph.add(ops.Dataflow(body), edges, domain=first.domain, name=names[-1] if names else "", where=first.where)
    for reader in graph:
        inputs = tuple(
            replace(e, source=island.id, output=read[(e.source, e.output)]) if (e.source, e.output) in read else e
            for e in reader.inputs
        )
        if inputs != reader.inputs:
            graph.put(replace(reader, inputs=inputs))
    for n in members:
        graph.nodes.pop(n, None)
