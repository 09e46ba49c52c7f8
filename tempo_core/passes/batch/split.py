"""Splitting: the points of a step before the place where a branch's condition changes become a step of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core import prices
from tempo_core.ir import ops
from tempo_core.ir.dependence import cycles, moved
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.passes.base import Pass, condition_without, of_branches, remove_dead
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.passes.clean.narrow import at_points, pinned
from tempo_core.passes.decisions import note
from tempo_core.passes.keep.needed import needed_points
from tempo_core.passes.shapes.ended import without_waiting
from tempo_core.symbolic.condition import Bool, at_least_zero, conjunction, equal, limit_of
from tempo_core.symbolic.domain import Domain, Index, Point, identity, is_own_point
from tempo_core.symbolic.expr import Expr, Symbol, minimum
from tempo_core.symbolic.isl.relation import never
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Split(Pass):
    """Split a step t at a place c, if a recurrence depends on its earlier points only from c on.

    An example is the prefill of a language model: `token[t] = prompt[t]` for t < P, and after that the model chooses the token. Before
    the place P, `token` does not depend on the model, and the model needs no loop over t. Nodes like the model's are copied to a new
    step, `t_first < min(c, T)`, which is then vectorized like any other. The nodes themselves keep the other points, `t >= T_FIRST`.
    A read that may reach both sides reads a new recurrence: its value is the copy's where `t < T_FIRST`, and then the node's.
    If t ends early, the copies do not wait for its end. What they compute past the end is not read. A step stays whole if its points
    before c need the end, or points of the step from c on. `but` names other steps that stay whole.

    Rewrite: `x[t] = a[t] if t < P else g(y[t - 1]); y[t] = f(x[0:t + 1])` ->
    `y'[p] = f(a[0:p + 1]) for p < min(P, T); x[t] = a[t] if t < min(P, T) else g(y[t - 1]);`
    `y[t] = y'[t] if t < min(P, T) else f(x[0:t + 1])`
    """

    name: str = field(default="split", init=False)
    but: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        for step in graph.order:
            if step.name not in self.but:
                choices = [(len(nodes), place, nodes) for place in _places(graph, step) if (nodes := _freed(graph, step, place))]
                if choices:
                    _, place, nodes = max(choices, key=lambda choice: choice[0])
                    splitting = _Splitting(graph, step, place, nodes)
                    graph = splitting.run() if splitting.copied else graph
        return graph


def _places(graph: Graph, step: Symbol) -> list[Expr]:
    """The places c at which a branch over a step ends or begins: a part of its condition is `t < c` or `t >= c`.

    A place does not mention bounds that a run finds out: it has to be a number before the step begins.
    """
    places: dict[Expr, None] = {}
    ends = graph.ends().keys()
    for node in graph:
        if isinstance(node.op, ops.Merge) and step in node.domain and len(node.inputs) > 1:
            for edge in node.inputs:
                for kind, limit in filter(None, (limit_of(part, step) for part in edge.condition.parts)):
                    place = limit + 1 if kind == "<=" else limit
                    is_near = place.is_constant and place.constant < prices.WORTH_OWN_CODE
                    is_inside = kind in ("<=", ">=") and provably_nonnegative(place - 1)
                    if is_inside and not is_near and place.symbols.isdisjoint(ends):
                        places[place] = None
    return list(places)


def _freed(graph: Graph, step: Symbol, place: Expr) -> set[int]:
    """The nodes that can leave the loop over a step at the points before a place, but not after it.

    A node that can leave the loop everywhere is among them if it shares a cycle with one of them (over another step). The set is empty
    if none multiplies matrices, or if some node needs a value that is not there before the place.
    """
    before = at_least_zero(place - 1 - step.expr)
    restricted = _before_only(graph, step, before)
    always, there = legal_nodes(graph, step, ragged_too=True), legal_nodes(restricted, step, ragged_too=True)
    there = {n for n in there if not never(graph[n].domain, before)}
    freed = there - always
    if not any(isinstance(graph[n].op, (ops.Dot, ops.Conv)) for n in freed):
        return set()
    for cycle in cycles(graph, *graph.order):
        if cycle.nodes & freed:
            freed |= cycle.nodes & there

    def is_there(edge: Edge) -> bool:
        """Whether a value exists before the place, for a reader before it."""
        source = graph[edge.source]
        if step not in source.domain or isinstance(source.op, ops.Input):
            return True
        if edge.source in freed:
            return _is_before(edge.by_step(source.domain)[step], step, place)
        return edge.source in always

    return freed if all(is_there(edge) for n in freed for edge in restricted[n].inputs) else set()


def _before_only(graph: Graph, step: Symbol, before: Bool) -> Graph:
    """The graph without the branches that define no point where `before` holds, and without waiting for the end of a step."""
    graph = graph.copy()
    for node in list(graph):
        if node != (free := without_waiting(node)):
            graph.put(free)
        if isinstance(node.op, ops.Merge) and step in node.domain:
            inputs = tuple(node.inputs[k] for k in _branches(node, before))
            if inputs and len(inputs) < len(node.inputs):
                graph.put(replace(node, inputs=inputs))
    return graph


def _branches(merge: Node, where: Bool) -> list[int]:
    """The branches of a `Merge` that define some point at which a condition holds."""
    places = enumerate(of_branches(edge.condition for edge in merge.inputs))
    return [number for number, place in places if not never(merge.domain, where & place)]


def _is_before(index: Index, step: Symbol, place: Expr) -> bool:
    """Whether a reader at a point before a place reads only points before it."""
    last = index.expr if isinstance(index, Point) else index.last
    return moved(index, step.expr) in ("=", "<", "<=") or (not last.steps and provably_nonnegative(place - 1 - last))


class _Splitting:
    """Splits a step at one place: `nodes` are computed apart before it."""

    def __init__(self, graph: Graph, step: Symbol, place: Expr, nodes: set[int]):
        self.step, self.place = step, place
        self.first = graph.fresh_step(f"{step.name}_first")
        self.ends = step.bound_symbol in graph.ends()  # a run finds out the end of the step: the copies do not wait for it
        is_inside = self.ends or provably_nonnegative(step.bound_expr - place)
        end = place if is_inside else minimum(place, step.bound_expr)
        self.graph = graph.with_step(self.first, end, graph.order.index(step) + 1)
        self.nodes = {node_id: graph[node_id] for node_id in graph.nodes if node_id in nodes}
        self.before = at_least_zero(self.first.bound_expr - 1 - step.expr)
        self.after = at_least_zero(step.expr - self.first.bound_expr)
        # The same two conditions in terms of the program's bounds, for comparisons with conditions of the program.
        self.told_before, self.told_after = at_least_zero(place - 1 - step.expr), at_least_zero(step.expr - place)
        self.copied = self._with_fed() if self.ends else list(self.nodes)
        self.copies: dict[int, int] = {}  # node -> its copy, over the points before the place
        self.both: dict[Key, int] = {}  # a node's value -> the recurrence that joins the copy's values and the node's

    def run(self) -> Graph:
        graph = self.graph
        readers = [n for n in graph if n.id not in self.nodes and any(e.source in self.nodes for e in n.inputs)]
        self.copies = {node_id: graph.next_id + number for number, node_id in enumerate(self.copied)}
        for node_id in self.copied:
            graph.put(self._copy(graph[node_id]))
        for node in self.nodes.values():
            note(node.id, "computed apart where {}: there, it is in no loop over {}", self.before, self.step)
            graph.put(self._rest(node))
        for reader in readers:
            graph.put(replace(reader, inputs=tuple(self._of_both(edge) for edge in reader.inputs)))
        self._needed_alone()
        return pinned(remove_dead(graph))

    def _with_fed(self) -> list[int]:
        """The nodes to copy if a run finds out the end of the step: all that the copies read over it, as their own points only exist
        as the run goes on. Empty if one needs the end, or a point that may be from the place on.
        """
        bound, copied = self.step.bound_symbol, dict.fromkeys(self.nodes)
        waiting = list(copied)
        while waiting:
            node = without_waiting(self.graph[waiting.pop()])
            reads = self._read(node, self.told_before)
            if bound in node.op.symbols or any(bound in edge.symbols for edge in reads):
                return []
            for edge in reads:
                source = self.graph[edge.source]
                if self.step not in source.domain or isinstance(source.op, ops.Input):
                    continue
                if not _is_before(edge.by_step(source.domain)[self.step], self.step, self.place):
                    return []
                if source.id not in copied:
                    copied[source.id] = None
                    waiting.append(source.id)
        return list(copied)

    def _copy(self, node: Node) -> Node:
        """A copy of the node over the new step. If a run finds out the end, points past the end are computed too."""
        number, node, copy_at = node.id, without_waiting(node), {self.step: self.first.expr}
        inputs = tuple(replace(e, source=self.copies.get(e.source, e.source)) for e in self._read(node, self.told_before))
        condition = _undecided(node, node.domain.condition, self.told_before)
        condition = condition_without(condition, self.step.bound_symbol) if self.ends else condition
        steps = tuple(self.first if step == self.step else step for step in node.domain.steps)
        copy = at_points(replace(node, inputs=inputs), copy_at)
        return replace(copy, id=self.copies[number], domain=Domain(steps, condition.substitute(copy_at)))

    def _rest(self, node: Node) -> Node:
        """The node at the points from the place on. A source that is read at the same point is on the same side of the place."""
        condition = _undecided(node, node.domain.condition, self.told_after)
        inputs = [edge if self._is_at_own_point(edge) else self._of_both(edge) for edge in self._read(node, self.told_after)]
        return replace(node, domain=Domain(node.domain.steps, condition & self.after), inputs=tuple(inputs))

    def _read(self, node: Node, where: Bool) -> list[Edge]:
        """The operands of a node at the points at which a condition holds."""
        if not isinstance(node.op, ops.Merge):
            return list(node.inputs)
        branches = [node.inputs[number] for number in _branches(node, where)]
        return [replace(edge, condition=_undecided(node, edge.condition, where)) for edge in branches]

    def _is_at_own_point(self, edge: Edge) -> bool:
        if edge.source not in self.nodes:
            return True
        return is_own_point(edge.index[self.nodes[edge.source].domain.steps.index(self.step)], self.step)

    def _of_both(self, edge: Edge) -> Edge:
        """The same read of a recurrence that has the points on both sides of the place."""
        if edge.source not in self.nodes:
            return edge
        key = edge.source, edge.output
        if key not in self.both:
            node = self.nodes[edge.source]
            at = identity(node.domain)
            branches = Edge(self.copies[node.id], at, edge.output, self.before), Edge(node.id, at, edge.output, self.after)
            type = node.outputs[edge.output]
            merge = self.graph.add(ops.Merge(type), branches, domain=node.domain, name=node.name, where=node.where)
            self.both[key] = merge.id
        return replace(edge, source=self.both[key], output=0)

    def _needed_alone(self) -> None:
        """Read the copy at the last point before the place alone, where no other is needed: a prefill needs one choice of a token."""
        graph, last = self.graph, self.first.bound_expr - 1
        intervals = needed_points(graph, self.step)
        for merge in [graph[node_id] for node_id in self.both.values()]:
            interval = intervals.get(merge.id)
            if interval is not None and interval.first == last:
                copy, rest = merge.inputs
                index = (Point(last) if step == self.step else Point(step.expr) for step in merge.domain.steps)
                edge = replace(copy, index=tuple(index), condition=equal(self.step.expr, last))
                domain = Domain(merge.domain.steps, merge.domain.condition & at_least_zero(self.step.expr - last))
                graph.put(replace(merge, inputs=(edge, rest), domain=domain))


def _undecided(node: Node, condition: Bool, where: Bool) -> Bool:
    """A condition on a node's points without the parts that hold wherever `where` does."""
    domain = Domain(node.domain.steps)
    return conjunction(*(part for part in condition.parts if not never(domain, where & ~part)))
