"""Fusion: islands of operations with one domain and identity edges between them become one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.costs import CHEAP, FREE
from tempo_core.ir.dependence import Nest, Vertex, deciding, forward_order, latest_levels, loop_nest
from tempo_core.ir.graph import Dataflowed, Edge, Graph, Node, is_identity
from tempo_core.ir.names.naming import exact_names, label
from tempo_core.passes.base import Pass, read_at, remove_dead
from tempo_core.passes.clean.narrow import pinned
from tempo_core.passes.decisions import note
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range, identity
from tempo_core.symbolic.groups import Groups

NEVER_FUSED = (ops.Merge, ops.Input, ops.Output, ops.Sink)


@dataclass(frozen=True)
class Fuse(Pass):
    """Merge connected operations of one domain into `Dataflow` nodes, so that few statements are scheduled and launched.

    Before: any graph. After: every island is one node; readers of its values read the island's outputs.
    Two operations may share an island if every dependence between them stays inside the island. A path through an outside
    operation would make the island wait for itself. *Levels* rule that out: inside the cycles that nodes share
    (`ir/dependence.py`), a level rises by one across each edge that cannot be fused. Operations on one level cannot reach
    each other through such an edge.

    Rewrite: `a = exp(x); b = a + y; c = b * a` -> `(b, c) = dataflow(x, y)`
    """

    name: str = field(default="fuse", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = pinned(_with_copied_sources(graph))  # after copying, a value may have readers at one point only
        exact, joined = exact_names(graph), _Joined(graph)
        islands, readers = _islands(graph, joined), graph.reader_ids()
        for island in islands:
            _Island(graph, island, exact, joined).replace(readers)
        return remove_dead(graph)


class _Joined:
    """Which nodes are cheap, and which operands may be in the island of their reader. All stages ask for it, so it is computed once.

    The answers stay right for the nodes of an island until that island is replaced.
    """

    def __init__(self, graph: Graph):
        decide = frozenset().union(*(deciding(graph, end) for end in graph.ends().values()))
        fusable = {node.id for node in graph if _fusable(node)}
        self.cheap = {node.id for node in graph if _is_cheap(graph, node)}
        self._operands = {
            node.id: [node.id in fusable and edge.source in fusable and _joins(graph, node, edge, decide) for edge in node.inputs]
            for node in graph
        }

    def of(self, reader: int, slot: int) -> bool:
        """Whether a reader and its operand in a slot may be in one island."""
        return self._operands[reader][slot]

    def sources(self, graph: Graph, reader: Node) -> Iterator[int]:
        """The nodes that a node reads at its own point. Cheap operations belong to their reader: what they read counts in their place."""
        for edge, joins in zip(reader.inputs, self._operands[reader.id], strict=True):
            if joins and edge.source in self.cheap:
                yield from self.sources(graph, graph[edge.source])
            elif joins:
                yield edge.source


def _fusable(node: Node) -> bool:
    op = node.op
    if isinstance(op, ops.Udf):
        return op.kind == "jax" and not op.stateful
    return not isinstance(op, NEVER_FUSED) and all(t.is_static for t in node.outputs)


def _with_copied_sources(graph: Graph) -> Graph:
    """A copy in which every fusable reader has a private copy of its cheap sources, in its own domain."""
    graph = graph.copy()
    copies: dict[tuple[int, object], int] = {}
    for node_id in forward_order(graph):
        node = graph[node_id]
        if not _fusable(node):
            continue
        inputs = []
        for edge in node.inputs:
            source = graph[edge.source]
            if _is_cheap(graph, source) and not _has_ranges(edge):
                edge = _copied(graph, edge, node, copies)
            elif isinstance(source.op, ops.Broadcast) and _has_ranges(edge):
                edge = _repeated_range(graph, edge, source, node) or edge
            inputs.append(edge)
        if tuple(inputs) != node.inputs:
            graph.put(node.reading(tuple(inputs)))
    return remove_dead(graph)


def _is_cheap(graph: Graph, node: Node) -> bool:
    """Whether a node costs so little that each reader gets a copy.

    Cheap are constants, counters, expressions of steps, broadcasts, single elements of inputs, and masks of positions.
    """
    if isinstance(node.op, (ops.Binary, ops.Compare)) and node.op.cost_class == CHEAP:
        return node.outputs[0].dtype in ("bool", "int32") and all(_is_cheap(graph, graph[edge.source]) for edge in node.inputs)
    if isinstance(node.op, ops.Broadcast):
        return node.outputs[0].is_static
    if isinstance(node.op, ops.Cast):
        return _is_cheap(graph, graph[node.inputs[0].source])
    if isinstance(node.op, ops.Gather):  # one element of an input: read in place, not copied to a store
        return isinstance(graph[node.inputs[0].source].op, ops.Input) and graph.edge_type(node.inputs[1]).rank == 0
    if isinstance(node.op, ops.Constant):
        return len(node.op.data) <= 64
    return isinstance(node.op, FREE)


def _repeated_range(graph: Graph, edge: Edge, source: Node, reader: Node) -> Edge | None:
    """A read of a range of a `Broadcast`, as a `Broadcast` of a range of its operand, which is smaller. None if no edge reads that range."""
    (operand,) = source.inputs
    inner = read_at(operand, source.domain, edge)
    ranges = [step for step, at in edge.by_step(source.domain).items() if isinstance(at, Range)]
    kept = [
        step for step, at in operand.by_step(graph[operand.source].domain).items() if step in ranges and at == Point(step.expr)
    ]
    moving = {step for step in ranges if step in operand.steps}
    if inner is None or edge.condition is not TRUE or set(kept) != moving or kept != [s for s in ranges if s in moving]:
        return None
    assert isinstance(source.op, ops.Broadcast)
    type = graph.edge_type(edge)
    axes = (*(ranges.index(step) for step in kept), *(len(ranges) + axis for axis in source.op.axes))
    node = graph.add(ops.Broadcast(type.shape, axes), [inner], domain=reader.domain, name=source.name, where=source.where)
    return Edge(node.id, identity(reader.domain))


def _has_ranges(edge: Edge) -> bool:
    return any(isinstance(i, Range) for i in edge.index)


def _copied(graph: Graph, edge: Edge, reader: Node, copies: dict[tuple[int, object], int]) -> Edge:
    """A copy of a cheap source, with the reader's domain. Cheap sources of the source are copied too."""
    source = graph[edge.source]
    at = edge.points(source.domain)
    op = source.op
    if isinstance(op, ops.Eval):
        op = ops.Eval(op.value.substitute(at))
    inputs = tuple(
        _copied(graph, moved, reader, copies) if _is_cheap(graph, graph[moved.source]) and not _has_ranges(moved) else moved
        for moved in (read_at(e, source.domain, edge) or e for e in source.inputs)
    )
    key = (reader.id, (op, inputs))
    if key not in copies:
        copies[key] = graph.add(op, inputs, domain=reader.domain, name=source.name, where=source.where).id
        note(source.id, "copied to its readers, as computing it costs no more than reading it", into=copies[key])
    return Edge(copies[key], identity(reader.domain))


def _islands(graph: Graph, joined: _Joined) -> list[list[int]]:
    """Groups of nodes to fuse, each connected by identity edges and on one level of one loop nest."""
    place: dict[int, tuple[tuple[int, ...], int]] = {}  # node -> (the nests around it, its level in the innermost)
    _place(loop_nest(graph, graph.order), (), place, joined)
    islands: Groups[int] = Groups(node.id for node in graph)
    for node in graph:
        if node.id not in joined.cheap:
            for source in joined.sources(graph, node):
                if place[node.id] == place[source]:
                    islands.join(source, node.id)
    order = forward_order(graph)
    _absorb(graph, order, islands, joined)
    members: dict[int, list[int]] = {}
    for node_id in order:
        members.setdefault(islands.of(node_id), []).append(node_id)
    return [nodes for nodes in members.values() if len(nodes) > 1]


def _absorb(graph: Graph, order: list[int], islands: Groups[int], joined: _Joined) -> None:
    """Join an island with the island that reads its values, if only one does, and only at the same point."""
    users = graph.users()
    readers: dict[int, list[tuple[Node, int]]] = {}  # the reads of each island's values, by the island's representative
    for node_id in order:
        readers.setdefault(islands.of(node_id), []).extend(users[node_id])
    joins = 0
    checked: dict[int, int] = {}  # the number of joins before an island's last check: without a further join, nothing changes
    for node_id in reversed(order):
        island = islands.of(node_id)
        if checked.get(island) == joins:
            continue
        checked[island] = joins
        target = _only_reader(islands, island, readers[island])
        if target is not None and all(joined.of(reader.id, slot) for reader, slot in readers[island]):
            islands.join(island, target)
            joins += 1


def _only_reader(islands: Groups[int], island: int, readers: list[tuple[Node, int]]) -> int | None:
    """The only other island that reads an island's values; None if there are several, or none. Drops the reads inside the island."""
    targets: set[int] = set()
    for position in reversed(range(len(readers))):
        target = islands.of(readers[position][0].id)
        if target == island:
            readers.pop(position)
            continue
        targets.add(target)
        if len(targets) > 1:
            return None
    return targets.pop() if targets else None


def _place(inner: Nest, path: tuple[int, ...], place: dict[int, tuple[tuple[int, ...], int]], joined: _Joined) -> None:
    """Note for each node of a nest the nests around it and its level. Nodes of a cycle never share a place."""
    if inner.cyclic:
        place |= {v.node: ((*path, v.node), 0) for v in inner.vertices}
        return
    place |= {v.node: (path, level) for v, level in _levels(inner, joined).items()}
    for position, part in enumerate(inner.parts):
        if isinstance(part, Nest):
            _place(part, (*path, -1 - position), place, joined)


def _joins(graph: Graph, reader: Node, edge: Edge, decide: frozenset[int]) -> bool:
    """Whether reader and source of an edge, both fusable, may be in one island. Nodes in `decide` tell where a step ends."""
    if (reader.id in decide) != (edge.source in decide):
        return False  # what an end waits for may not wait for the end
    return edge.condition is TRUE and is_identity(edge, graph[edge.source], reader.domain)


def _levels(inner: Nest, joined: _Joined) -> dict[Vertex, int]:
    """The levels of the vertices that stand directly in a nest, as late as readers allow.

    An edge that can be fused costs nothing, any other edge costs 1. A nested cycle counts as one vertex.
    """
    place = {v: k for k, part in enumerate(inner.parts) for v in (part.vertices if isinstance(part, Nest) else (part,))}
    costs: dict[int, dict[int, int]] = {k: {} for k in range(len(inner.parts))}  # parts are in topological order
    for arc in inner.arcs:
        here, there = place[arc.reader], place[arc.source]
        if here != there:
            single = isinstance(inner.parts[here], Vertex) and isinstance(inner.parts[there], Vertex)
            cost = 0 if single and joined.of(arc.reader.node, arc.slot) else 1
            costs[here][there] = max(cost, costs[here].get(there, 0))
    level = latest_levels(costs)
    return {part: level[k] for k, part in enumerate(inner.parts) if isinstance(part, Vertex)}


class _Island:
    """Nodes that become one `Dataflow` node. Its operands are what they read from outside, its outputs what is read outside of it.

    `exact` has the names of the user's tensors, of which the island's name lists those in it.
    """

    def __init__(self, graph: Graph, members: list[int], exact: Mapping[int, str], joined: _Joined):
        self.graph, self.members, self.inside = graph, members, set(members)
        self.exact, self.joined = exact, joined
        self.operands: dict[tuple[int, int, object], int] = {}  # (source, output, index) -> slot
        self.edges: list[Edge] = []
        for n, slot, edge in self._reads(members):
            key = (edge.source, edge.output, edge.index)
            if not self._is_inner(n, slot, edge) and key not in self.operands:
                self.operands[key] = len(self.edges)
                self.edges.append(edge)

    def replace(self, readers: dict[int, list[int]]) -> None:
        """Put the island in place of its nodes. `readers` has the readers of each node, also afterwards."""
        outside = sorted({reader for n in self.members for reader in readers[n]} - self.inside)
        outputs: dict[tuple[int, int], int] = {}
        for n, slot, edge in self._reads(sorted((*outside, *self.members))):
            if edge.source in self.inside and not self._is_inner(n, slot, edge):
                outputs.setdefault((edge.source, edge.output), len(outputs))
        graph, first = self.graph, self.graph[self.members[-1]]
        op = ops.Dataflow(self._body(outputs))
        island = graph.add(op, self.edges, domain=first.domain, name=self._name(outputs), where=first.where)
        for reader in (graph[n] for n in (*outside, island.id)):
            inputs = tuple(
                replace(e, source=island.id, output=outputs[e.source, e.output]) if (e.source, e.output) in outputs else e
                for e in reader.inputs
            )
            graph.put(reader.reading(inputs))
        of_node = {n: output for (n, _), output in outputs.items()}
        readers[island.id] = outside
        for source in {edge.source for edge in graph[island.id].inputs}:
            readers[source] = [*(n for n in readers[source] if n not in self.inside), island.id]
        for n in self.members:
            note(n, "fused with its neighbours in one statement", into=island.id, output=of_node.get(n, -1))
            graph.nodes.pop(n, None)

    def _reads(self, nodes: Iterable[int]) -> Iterator[tuple[int, int, Edge]]:
        return ((n, slot, edge) for n in nodes for slot, edge in enumerate(self.graph[n].inputs))

    def _is_inner(self, reader: int, slot: int, edge: Edge) -> bool:
        """Whether a read is of a value of the island, by the island."""
        return reader in self.inside and edge.source in self.inside and self.joined.of(reader, slot)

    def _body(self, outputs: Iterable[tuple[int, int]]) -> Dataflowed:
        """The nodes as instructions on slots: first the operands, then the results of each node."""
        if any(isinstance(self.graph[n].op, ops.Update) for n in self.members):
            self.members = self._updates_late()
        types = [self.graph.edge_type(e) for e in self.edges]
        place: dict[tuple[int, int], int] = {}  # (node, output) -> slot
        instructions = []
        for node in (self.graph[n] for n in self.members):
            arguments = tuple(
                place[e.source, e.output] if self._is_inner(node.id, slot, e) else self.operands[e.source, e.output, e.index]
                for slot, e in enumerate(node.inputs)
            )
            results = tuple(range(len(types), len(types) + len(node.outputs)))
            place.update({(node.id, output): slot for output, slot in enumerate(results)})
            types += node.outputs
            instructions.append((node.op, arguments, results))
        origins, lines = (
            tuple((self.exact.get(n, ""), self.graph[n].where) for n in nodes)
            for nodes in ([n for n, _ in outputs], self.members)
        )
        results = tuple(place[key] for key in outputs)
        origins = origins if any(map(any, origins)) else ()
        return Dataflowed(tuple(types[: len(self.edges)]), tuple(instructions), results, tuple(types), origins, lines)

    def _updates_late(self) -> list[int]:
        """The nodes, sources first, where an update comes after all that do not wait for it: they may read what it writes into."""
        waits = {n: {e.source for slot, e in enumerate(self.graph[n].inputs) if self._is_inner(n, slot, e)} for n in self.members}
        order: list[int] = []
        while waits:
            ready = [n for n, sources in waits.items() if sources.isdisjoint(waits)]
            early = [n for n in ready if not isinstance(self.graph[n].op, ops.Update)]
            order += early or ready[:1]
            for n in early or ready[:1]:
                del waits[n]
        return order

    def _name(self, outputs: Iterable[tuple[int, int]]) -> str:
        computed = [n for n in self.members if n in self.exact and n not in self.joined.cheap]
        read = {n for n, _ in outputs}
        input_names = {node.name for node in self.graph.inputs()}  # an element picked from an input is not computed here
        names = [self.exact[n] for n in computed if self.exact[n] not in input_names]
        return label(names or [self.exact[n] for n in computed or [n for n in self.members if n in self.exact and n in read]])
