"""Recomputation: a loop that runs backwards computes cheap values of the loop before it again, so that they need not be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tempo_core.errors import NonAffineError
from tempo_core.ir.dependence import Nest, direction, forward_order, loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge
from tempo_core.passes.base import Pass, operand_domains, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.passes.keep.cut import worth_repeating
from tempo_core.passes.ranges.linear_forms import shift_of
from tempo_core.prices import is_cheap_to_repeat, price_of_keeping
from tempo_core.symbolic.domain import Index, Point, Range
from tempo_core.symbolic.isl.relation import uncovered

_Value = tuple[int, tuple[Index, ...]]  # a node's value; without an index, it is the one at the reader's point


@dataclass(frozen=True)
class Recompute(Pass):
    """Copy cheap operations from a loop to a later loop over the same step in the other direction, if less has to be kept then.

    Before: back-propagation through time reads values of the forward loop, which keeps them for all points of the step. After:
    the backward loop computes some of them from others. Cheap operations lead from the values that are kept to all that are read. They
    are the cheapest such set: a minimum cut (`passes/keep/cut.py`). Comparisons, selections and sums are cheap (`prices.py`). The same
    operands give the same bits again. What is read becomes a read of the state that it becomes, if that is kept in any case.

    Rewrite: `h[t + 1] = n[t]; ...; g[t] = g[t + 1] * n[t] @ h[0:T]` -> `g[t] = g[t + 1] * h[t + 1]`
    Rewrite: `m[t] = h[t - 1] > x[t]; ...; g[t] = where(m[t], g[t + 1], 0)` -> `g[t] = where(h[t - 1] > x[t], g[t + 1], 0)`
    """

    name: str = field(default="recompute", init=False)

    def apply(self, graph: Graph) -> Graph:
        loops = loop_nest(graph, graph.order)
        copied = graph.copy()
        for nest in loops.nests():
            nodes = nest.nodes
            inner = [part for part in nest.parts if isinstance(part, Nest) and part.step is not None]
            signs = [_sign(graph, part) for part in inner]
            if "<" in signs and ">" in signs:
                for part in inner:
                    _Loop(copied, part, inner, nodes).rewrite()
        return graph if copied.nodes == graph.nodes else remove_dead(copied)


def _sign(graph: Graph, nest: Nest) -> str:
    """Whether a nest's loop reads earlier points of its step ("<"), or later ones (">")."""
    nodes = nest.nodes
    assert nest.step is not None
    for reader in (graph[n] for n in nodes):
        for edge in reader.inputs:
            if edge.source in nodes:
                sign = direction(graph, reader, edge, nest.step)
                if sign[0] in "<>":
                    return sign[0]
    return "="


def _own(node_id: int) -> _Value:
    return node_id, ()


class _Loop:
    """A loop, and what it reads of the loops `beside` it in the same outer loop. `around` are the nodes of the outer loop."""

    def __init__(self, graph: Graph, nest: Nest, beside: list[Nest], around: set[int]):
        assert nest.step is not None
        self.graph, self.step, self.around = graph, nest.step, around
        self.users = graph.users()
        self.order = [n for n in forward_order(graph) if n in around]
        sign = _sign(graph, nest)
        self.loop_of = {v.node: k for k, part in enumerate(beside) for v in part.vertices}
        other = [part for part in beside if part.step == self.step and _sign(graph, part) not in ("=", sign)]
        self.crossing = self._crossing({vertex.node for part in other for vertex in part.vertices})
        self.members = self._with_followers(nest.nodes)

    def rewrite(self) -> None:
        """Let the loop read what is kept in any case, and copies of what it computes again."""
        self._read_states()
        again = self._again()
        copies: dict[int, int] = {}

        def moved(edge: Edge) -> Edge:
            return replace(edge, source=copies[edge.source]) if edge.source in copies and self._is_own(edge) else edge

        for node_id in (n for n in self.order if n in again):
            node = self.graph[node_id]
            note(node_id, "computed again in the loop over {} that runs the other way, so that it is not kept", self.step)
            copies[node_id] = self.graph.put(
                replace(node, id=self.graph.next_id, inputs=tuple(map(moved, node.inputs)), name="")
            ).id
        if copies:
            for reader in (self.graph[n] for n in self.members):
                self.graph.put(replace(reader, inputs=tuple(map(moved, reader.inputs))))

    def _read_states(self) -> None:
        """Read a state that is kept in any case, `h[t + 1]`, in place of the value that it is there, `next h[t]`."""
        for value in (self.graph[n] for n in sorted({edge.source for edge in self._reads()} & self.crossing)):
            users = [] if self._is_kept(value) else self.users[value.id]
            reads = [(reader.id, slot) for reader, slot in users if reader.id in self.members]
            states = (
                self._state(*user, reads) for user in users if isinstance(user[0].op, Merge) and user[0].id in self.crossing
            )
            state = next((edge for edge in states if edge is not None), None)
            if state is None:
                continue
            why = "not kept for the loop over {} that runs the other way, which reads the state that it becomes"
            note(value.id, why, self.step)
            for reader, slot in reads:
                inputs = list(self.graph[reader].inputs)
                inputs[slot] = replace(state, condition=inputs[slot].condition)
                self.graph.put(replace(self.graph[reader], inputs=tuple(inputs)))
        self.users = self.graph.users()

    def _state(self, state: Node, branch: int, reads: Sequence[tuple[int, int]]) -> Edge | None:
        """The read of a state that gives the value of a branch to all of its `reads`; None unless the state is kept in any case."""
        edge = state.inputs[branch]
        moved = shift_of(edge, self.graph[edge.source], self.step)
        is_kept = self._is_kept(state) or any(reader.id in self.members for reader, _ in self.users[state.id])
        is_same = all(self.graph[reader].inputs[slot].output == edge.output for reader, slot in reads)
        has_same_steps = self.graph[edge.source].domain.steps == state.domain.steps
        if not (moved and is_kept and is_same and has_same_steps):
            return None
        place = self.step.expr - moved
        there = operand_domains(state, state.domain)[branch].condition.substitute({self.step: place})
        there = there & (place >= 0) & (place < self.step.bound_expr)
        needed = [operand_domains(self.graph[reader], self.graph[reader].domain)[slot] for reader, slot in reads]
        try:
            if any(uncovered(domain, [there]) is not None for domain in needed):
                return None
        except NonAffineError:
            return None
        return Edge(state.id, tuple(Point(place if step == self.step else step.expr) for step in state.domain.steps))

    def _again(self) -> set[int]:
        """The nodes to compute again."""
        sinks = sorted({edge.source for edge in self._reads() if edge.source in self.crossing})
        again = worth_repeating([_own(node_id) for node_id in sinks], self._price, self._operands)
        return {node_id for node_id, index in again if not index}

    def _operands(self, value: _Value) -> list[_Value] | None:
        """The values of loops over the step from which a value is computed. The value of another point stays a read."""
        node = self.graph[value[0]]
        if value[1] or not self._can_repeat(node):
            return None
        edges = [edge for edge in node.inputs if self.step in self.graph[edge.source].domain]
        return [_own(e.source) if e.source in self.around and self._is_own(e) else (e.source, e.index) for e in edges]

    def _reads(self) -> Iterator[Edge]:
        """The reads of the loop, at its own point, of nodes outside of it."""
        for reader in self.members:
            for edge in self.graph[reader].inputs:
                if edge.source not in self.members and edge.source in self.around and self._is_own(edge):
                    yield edge

    def _crossing(self, other: set[int]) -> set[int]:
        """The nodes of the loops that run the other way, and the nodes outside of loops that these need. Their values would be kept."""
        crossing = set(other)
        for node_id in reversed(self.order):
            if node_id not in self.loop_of and any(reader.id in crossing for reader, _ in self.users[node_id]):
                crossing.add(node_id)
        return crossing

    def _can_repeat(self, node: Node) -> bool:
        if isinstance(
            node.op, Merge
        ):  # it reads values again that are kept in any case: `x[t - 1]`, or its value before the start
            sources = [self.graph[edge.source] for edge in node.inputs]
            return all(self._is_kept(source) for source in sources if self.step in source.domain)
        points = all(not isinstance(index, Range) for edge in node.inputs for index in edge.index)
        return points and is_cheap_to_repeat(node, self.graph.input_types(node))

    def _is_own(self, edge: Edge) -> bool:
        source = self.graph[edge.source]
        return self.step in source.domain and edge.is_own_point(source.domain)

    def _price(self, value: _Value) -> int:
        node = self.graph[value[0]]
        return price_of_keeping(node.outputs, node.domain, self._is_kept(node))

    def _is_kept(self, node: Node) -> bool:
        """Whether a value is kept in any case: something reads a range of it, or the loop another point of it."""
        reads = [(reader, reader.inputs[slot]) for reader, slot in self.users[node.id]]
        return any(
            isinstance(edge.by_step(node.domain)[self.step], Range) or (reader.id in self.members and not self._is_own(edge))
            for reader, edge in reads
        )

    def _with_followers(self, members: set[int]) -> set[int]:
        """The nodes of the loop, and nodes outside of loops: those that read such nodes at their own point, or that only such nodes read."""
        members = set(members)
        plain = [n for n in self.order if n not in self.loop_of and self.step in self.graph[n].domain]
        for node_id in plain:
            if any(edge.source in members and self._is_own(edge) for edge in self.graph[node_id].inputs):
                members.add(node_id)
        for node_id in reversed(plain):
            readers = self.users[node_id]
            if readers and all(reader.id in members and self._is_own(reader.inputs[slot]) for reader, slot in readers):
                members.add(node_id)
        return members
