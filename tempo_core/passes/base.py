"""The base class of passes, and the editing functions that passes share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tempo_core.ir.dependence import ancestors, forward_order
from tempo_core.ir.graph import Edge, Graph, Node, compose, is_identity
from tempo_core.ir.ops import Merge
from tempo_core.symbolic.condition import FALSE, Bool, conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Pass:
    """A transformation of the graph that keeps every value. Its fields are its options; `apply` returns a new graph."""

    name: str = field(default="", init=False)
    effect: ClassVar[str] = ""  # on a node that it changes, for `program.explain()`, where it notes no decision

    def apply(self, graph: Graph) -> Graph:
        raise AssertionError(f"{type(self).__name__} defines no apply")


def read_at(inner: Edge, inner_domain: Domain, outer: Edge) -> Edge | None:
    """The read that two reads make together: `outer` reads a node over `inner_domain`, and that node reads `inner`.

    None where no single edge says it (a slice of a slice).
    """
    combined = compose(inner, inner_domain.steps, outer.index)
    return None if combined is None else replace(combined, condition=outer.condition)


def redirect(graph: Graph, replacements: dict[int, Edge]) -> bool:
    """Replace reads of nodes: every reader of node `k` reads the edge `replacements[k]` instead.

    A replaced node has one output, and its edge is written in the node's steps. Readers whose read does not combine with that
    edge (a slice of a slice) keep reading the old node. Returns whether any read has changed.
    """
    changed = False
    _hand_over_names(graph, replacements)
    for node in graph:
        if replacements.keys().isdisjoint([edge.source for edge in node.inputs]):
            continue
        inputs = tuple(_redirected(graph, edge, replacements) for edge in node.inputs)
        if inputs != node.inputs:
            graph.put(node.reading(inputs))
            changed = True
    return changed


def take_over(graph: Graph, node: Node, value: Edge) -> None:
    """Make a node compute the value that was built in its place, at its own points."""
    graph.put(replace(graph[value.source], id=node.id, name=node.name, where=node.where))


def _hand_over_names(graph: Graph, replacements: dict[int, Edge]) -> None:
    """Give the name of a replaced node to the node that has its value at the same points, unless that node has a name."""
    for old, edge in replacements.items():
        node, source = graph[old], graph[edge.source]
        if node.name and not source.name and len(source.outputs) == 1 and is_identity(edge, source, node.domain):
            graph.put(replace(source, name=node.name))


def _redirected(graph: Graph, edge: Edge, replacements: dict[int, Edge]) -> Edge:
    seen = set()
    while edge.source in replacements and edge.source not in seen:
        seen.add(edge.source)
        target = replacements[edge.source]
        combined = read_at(target, graph[edge.source].domain, edge)
        if combined is None:
            return edge
        edge = combined
    return edge


def remove_dead(graph: Graph, roots: Iterable[Node] | None = None) -> Graph:
    """The graph of the nodes that `roots` need. By default the roots are outputs, sinks and stateful functions."""
    alive = ancestors(graph, [n.id for n in (graph.roots() if roots is None else roots)])
    live = graph.copy()
    live.nodes = {i: n for i, n in graph.nodes.items() if i in alive}
    return live


def renumbered(graph: Graph) -> Graph:
    """The same graph with nodes numbered 0, 1, ... in the order in which they can be read."""
    number = {old: new for new, old in enumerate(forward_order(graph))}
    fresh = Graph(graph.order, derived=dict(graph.derived), chosen=graph.chosen, decided_for=graph.decided_for)
    for old in number:
        node = graph[old]
        fresh.put(replace(node, id=number[old], inputs=tuple([e.of(number[e.source]) for e in node.inputs])))
    return fresh


def operand_domains(node: Node, domain: Domain) -> list[Domain]:
    """For each operand of a node over `domain`, the points at which it is needed.

    An operand of a `Merge` is needed only at the points that its branch defines. Elsewhere the branch's read may leave its
    source's domain. If a condition mentions steps that `domain` lacks (branches that are selected elementwise), all operands
    are needed everywhere.
    """
    conditions = [e.condition for e in node.inputs]
    if not isinstance(node.op, Merge) or any(not c.steps <= set(domain.steps) for c in conditions):
        return [domain] * len(conditions)
    return [Domain(domain.steps, domain.condition & condition) for condition in of_branches(conditions)]


def of_branches(conditions: Iterable[Bool]) -> Iterator[Bool]:
    """For each branch of a `Merge`, where it defines points: where its condition holds, and none of an earlier branch."""
    earlier: Bool = FALSE
    for condition in conditions:
        yield condition & ~earlier
        earlier = earlier | condition


def condition_without(condition: Bool, *steps: Symbol) -> Bool:
    """The parts of a condition that mention none of `steps`."""
    return conjunction(*(p for p in condition.parts if p.symbols.isdisjoint(steps)))
