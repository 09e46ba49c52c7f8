"""Fewer values from one iteration to the next: what follows cheaply from a value that is kept anyway is computed by its reader."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Pass, operand_domains, read_at, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.prices import MOST_DERIVED_OPERATIONS
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Index, Point, identity, is_own_point
from tempo_core.symbolic.expr import Symbol

Shift = tuple[Symbol, int]  # (step, distance): the read `x[k + distance]` at point k
CHEAP = {ops.Unary: ("neg", "not"), ops.Binary: ("add", "sub", "mul")}
VIEWS = (ops.Broadcast, ops.Slice, ops.Pad, ops.Reshape)


@dataclass(frozen=True)
class Derive(Pass):
    """Compute a value where it is read, at a neighbour of its point, if all its operands are read at that neighbour too.

    Before: any graph. After: a sum, product or part of values is not kept from one iteration to the next, if these values are.
    Each value that is kept is a store, which the loop writes and reads.

    Rewrite: `s[k] = 2 * g[k]; g[k - 1] = g[k] + s[k].roll()` -> `g[k - 1] = g[k] + (2 * g[k]).roll()`
    """

    name: str = field(default="derive", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        shifts = _shifts(graph)
        for shift in dict.fromkeys(shift for each in shifts.values() for shift in each if shift is not None):
            values = {node_id for node_id, each in shifts.items() if shift in each}
            single = {node_id for node_id in values if len(shifts[node_id]) == 1}
            while derived := _derived(graph, single, values, shift[0]):
                values.remove(derived)
                single.remove(derived)
                note(derived, "computed again where a neighbour of {} reads it, from values that are kept anyway", shift[0])
                _Deriving(graph, derived, values, shift[0]).run()
        return remove_dead(graph)


def _shifts(graph: Graph) -> dict[int, dict[Shift | None, None]]:
    """The shifts with which each node is read elsewhere than at the reader's own point. None stands for all other reads."""
    shifts: dict[int, dict[Shift | None, None]] = {}
    for node in graph:
        for edge in node.inputs:
            source = graph[edge.source]
            if not edge.is_own_point(source.domain):
                shifts.setdefault(edge.source, {})[_shift(source, edge.index)] = None
    return shifts


def _shift(source: Node, index: tuple[Index, ...]) -> Shift | None:
    """The only step along which a read is not at the reader's own point, and its constant distance."""
    (step, at), *others = [(s, i) for s, i in zip(source.domain.steps, index, strict=True) if not is_own_point(i, s)]
    if others or not isinstance(at, Point) or not (at.expr - step.expr).is_constant:
        return None
    return step, (at.expr - step.expr).constant


def _derived(graph: Graph, candidates: set[int], values: set[int], step: Symbol) -> int | None:
    """A candidate that follows from the other values."""
    for node_id in sorted(candidates, reverse=True):
        operations = _operations(graph, graph[node_id], values, step)
        if operations is not None and len(operations) <= MOST_DERIVED_OPERATIONS:
            return node_id
    return None


def _operations(graph: Graph, node: Node, values: set[int], step: Symbol) -> list[int] | None:
    """The operations from `values` to a node. None if one of them is not cheap, or needs another value of the step."""
    if not _is_cheap(node):
        return None
    operations = [node.id]
    for edge in node.inputs:
        source = graph[edge.source]
        if step not in source.domain:
            continue
        if not edge.is_own_point(source.domain):
            return None
        if edge.source in values:
            continue
        further = _operations(graph, source, values, step)
        if further is None:
            return None
        operations += further
    return operations


def _is_cheap(node: Node) -> bool:
    if any(symbol.is_step for symbol in node.op.symbols):
        return False
    return isinstance(node.op, VIEWS) or getattr(node.op, "fn", None) in CHEAP.get(type(node.op), ())


class _Deriving:
    """Computes one value anew where it is read at a neighbour's point."""

    def __init__(self, graph: Graph, node_id: int, values: set[int], step: Symbol):
        self.graph, self.node_id, self.values, self.step = graph, node_id, values, step
        self.copies: dict[tuple[int, tuple[Index, ...], Domain], Edge] = {}

    def run(self) -> None:
        for reader in list(self.graph):
            if any(self._is_moved(edge) for edge in reader.inputs):
                domains = operand_domains(reader, reader.domain)
                inputs = [
                    replace(self._copied(replace(edge, condition=TRUE), domain), condition=edge.condition)
                    if self._is_moved(edge)
                    else edge
                    for edge, domain in zip(reader.inputs, domains, strict=True)
                ]
                self.graph.put(replace(reader, inputs=tuple(inputs)))

    def _is_moved(self, edge: Edge) -> bool:
        return edge.source == self.node_id and not edge.is_own_point(self.graph[edge.source].domain)

    def _copied(self, outer: Edge, domain: Domain) -> Edge:
        """The value that `outer` reads, computed over `domain`."""
        key = outer.source, outer.index, domain
        if key not in self.copies:
            source = self.graph[outer.source]
            inputs = []
            for edge in source.inputs:
                moved = read_at(edge, source.domain, outer)
                assert moved is not None, "all reads are points"
                is_base = edge.source in self.values or self.step not in self.graph[edge.source].domain
                inputs.append(moved if is_base else self._copied(moved, domain))
            node = self.graph.add(source.op, inputs, domain=domain, where=source.where)
            self.copies[key] = Edge(node.id, identity(domain))
        return self.copies[key]
