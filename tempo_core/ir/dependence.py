"""How dependences relate to steps: which loops carry them, and which nodes are left on a cycle inside those loops.

After Allen and Kennedy (1987): within a strongly connected component, a step on which every dependence reads the same or
an earlier point can be an outer loop; it then carries the dependences that read strictly earlier points, and those no
longer bind what happens inside. What is still strongly connected when no step is left cannot run in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Symbol


def direction(graph: Graph, reader: Node, edge: Edge, step: Symbol) -> str:
    """What an edge reads along a step: "=" the same point, "<" an earlier one, ">" a later one, "*" unknown or several."""
    source = graph[edge.source]
    if step not in source.domain or step not in reader.domain:
        return "*"
    index = edge.index[source.domain.steps.index(step)]
    if not isinstance(index, Point):
        return "*"
    distance = index.expr - step.expr
    if not distance.is_constant:
        return "*"
    return "=" if distance.constant == 0 else "<" if distance.constant < 0 else ">"


Arc = tuple[int, int]  # (reader id, slot)


@dataclass(frozen=True)
class Nest:
    """Nodes inside one loop: `parts` are its strongly connected components, sources before readers.

    A part is a single node's id, or a nest of its own: what is still connected in a circle, inside the loop over a step
    that carries some of its dependences. `arcs` are the dependences between the nest's nodes that no loop around carries.
    A `cyclic` nest has none that could: its nodes must run in the order in which points depend on each other.
    """

    parts: tuple[int | Nest, ...]
    arcs: tuple[Arc, ...]
    cyclic: bool = False

    @property
    def nodes(self) -> list[int]:
        return [n for part in self.parts for n in (part.nodes if isinstance(part, Nest) else (part,))]

    def nests(self) -> Iterator[Nest]:
        """This nest and all inside it."""
        yield self
        for part in self.parts:
            if isinstance(part, Nest):
                yield from part.nests()


def nest(graph: Graph, steps: Sequence[Symbol]) -> Nest:
    """The whole graph, after carrying what loops over `steps` can carry."""
    arcs = [(node.id, slot) for node in graph for slot in range(len(node.inputs))]
    return _nested(graph, [n.id for n in graph], arcs, tuple(steps))


def _nested(graph: Graph, nodes: list[int], arcs: list[Arc], steps: tuple[Symbol, ...]) -> Nest:
    parts: list[int | Nest] = []
    for members in strongly_connected(graph, nodes, arcs):
        inside = set(members)
        own = [(r, k) for r, k in arcs if r in inside and graph[r].inputs[k].source in inside]
        if not own:
            parts.append(members[0])
            continue
        carried = _carrying_step(graph, own, steps)
        if carried is None:
            parts.append(Nest(tuple(members), tuple(own), True))
        else:
            step, kept = carried
            parts.append(_nested(graph, members, kept, tuple(s for s in steps if s != step)))
    return Nest(tuple(parts), tuple(arcs))


def _carrying_step(graph: Graph, arcs: list[Arc], steps: tuple[Symbol, ...]) -> tuple[Symbol, list[Arc]] | None:
    """The first step whose loop, forwards or backwards, carries some of the dependences and violates none."""
    for step in steps:
        directions = [direction(graph, graph[r], graph[r].inputs[k], step) for r, k in arcs]
        for carried in "<>":
            if carried in directions and all(d in ("=", carried) for d in directions):
                return step, [arc for arc, d in zip(arcs, directions, strict=True) if d == "="]
    return None


def strongly_connected(graph: Graph, nodes: Sequence[int], arcs: Sequence[Arc]) -> list[list[int]]:
    """Tarjan's strongly connected components, sources before readers (iterative)."""
    sources: dict[int, list[int]] = {n: [] for n in nodes}
    for reader, slot in arcs:
        sources[reader].append(graph[reader].inputs[slot].source)
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for start in nodes:
        if start in number:
            continue
        work = [(start, iter(sources[start]))]
        number[start] = lowest[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            for source in rest:
                if source not in number:
                    number[source] = lowest[source] = len(number)
                    stack.append(source)
                    on_stack.add(source)
                    work.append((source, iter(sources[source])))
                    break
                if source in on_stack:
                    lowest[node] = min(lowest[node], number[source])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    members = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.append(member)
                        if member == node:
                            break
                    found.append(members)
    return found


def forward_order(graph: Graph) -> list[int]:
    """Node ids, sources before readers, where the operands of a `Merge` do not count: every cycle runs through one."""
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
