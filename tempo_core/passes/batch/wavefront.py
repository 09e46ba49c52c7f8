"""Wavefronts: a table that none of its steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import ClassVar

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE
from tempo_core.ir.dependence import cycles, direction_of, feeding, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass, operand_domains
from tempo_core.passes.batch.boxes import with_shadows
from tempo_core.passes.batch.diagonals import Diagonals, Skew, distances, over_all_steps, with_carriers
from tempo_core.passes.batch.leading import Vectorizer
from tempo_core.passes.batch.lines import is_along_line
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.passes.decisions import note
from tempo_core.prices import is_worth_a_wavefront
from tempo_core.symbolic.condition import Comparison, conjunction
from tempo_core.symbolic.domain import Point, Range, index_steps
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.groups import Groups

# Operands of a table that are computed by diagonals: each element needs few others.
_COPIED = (*ELEMENTWISE, ops.Merge, ops.Constant, ops.Eval, ops.Iota, ops.Broadcast, ops.Slice, ops.Reshape, ops.Permute)


@dataclass(frozen=True)
class Wavefront(Pass):
    """Run the points (i, j) of a table by diagonals: all points with the same i + j, or j - i, at once, one diagonal after the other.

    So are those of a table over three steps or more, which have the same i + j + k, all at once.

    Before: shapes are static. A table is a cycle of dependences that read both `[i - 1, j]` and `[i, j - 1]` (or both `[i + 1, j]`
    and `[i, j + 1]`): a loop over either step leaves a cycle along the other. The intervals from i to j read `[i + 1, j]` and
    `[i, j - 1]`: their diagonals have the same j - i. Ranges of a row and a column, `[i, i:j]` and `[i + 1:j + 1, j]`, do as such points
    (`passes/batch/lines.py`). After: the table's nodes run over a new step, the
    number of the diagonal, and their values have a leading dimension for the points of a diagonal (`passes/batch/diagonals.py`).
    Tables that read each other, such as a recurrence and its gradient, share their diagonals. Elementwise operands of a table, such as
    `(x[i] - y[j])**2`, are computed by diagonals too. `but` names steps that stay loops. The vectors lie along the step with fewer points
    by `numbers`, the bounds that are known; for bounds in another order, the passes run again (`Graph.decided_for`).

    Rewrite: `d[i, j] = f(d[i - 1, j], d[i, j - 1], c[i, j])` -> `e[k, i] = f(e[k - 1, i - 1], e[k - 1, i], c[i, k - i])`, at all i at once
    """

    numbers: tuple[tuple[Symbol, int], ...] = ()
    but: tuple[str, ...] = ()
    name: str = field(default="wavefront", init=False)
    effect: ClassVar[str] = "computed by diagonals: all points with the same sum, or difference, of its steps at once"

    def apply(self, graph: Graph) -> Graph:
        moving = [s for s in graph.order if s.name not in self.but and may_have_tables(graph, (s,))]
        for count in range(len(moving), 1, -1):
            for steps in combinations(moving, count):
                graph = self._by_diagonals(graph, steps) if may_have_tables(graph, steps) else graph
        return graph

    def _by_diagonals(self, graph: Graph, steps: tuple[Symbol, ...]) -> Graph:
        """The graph with its tables over some steps run by diagonals. The column is the last of the steps with most points."""
        numbers, column = dict(self.numbers), steps[-1]
        are_known = {step.bound_symbol for step in steps} <= numbers.keys()
        if are_known:
            column = max(reversed(steps), key=lambda step: numbers[step.bound_symbol])
        rows = tuple(step for step in steps if step != column)
        for signs in product((1, -1), repeat=len(rows)):
            after = _by_diagonals(graph, Diagonals(rows, column, signs))
            if after is not None and are_known:
                widest = conjunction(*(row.bound_expr <= column.bound_expr for row in rows))
                after.decided_for = after.decided_for & widest
            graph = graph if after is None else after
        return graph


def _by_diagonals(graph: Graph, by: Diagonals) -> Graph | None:
    """The graph with its tables over some steps run by diagonals; None if there are none, or if that does not pay."""
    nodes, cycles = _tables(graph, by)
    reads = [edge for n in nodes for edge in graph[n].inputs if edge.source in nodes]
    has_ranges = any(is_along_line(graph, edge, by.steps) for edge in reads)
    worth = is_worth_a_wavefront([graph[n] for n in nodes], _factors(graph, by, nodes), has_ranges, len(by.steps))
    tables = over_all_steps(graph, nodes, by.steps) if nodes and worth else None
    if tables is None or not all(_is_known(tables, tables[n], nodes, by) for n in nodes):
        return None
    tables, nodes = with_carriers(*_with_operands(tables, nodes, by), cycles, by)
    tables = _where_read(tables, nodes)
    try:
        skew = Skew(tables, nodes, by)
        skewed, nodes = skew.run(), nodes | skew.added
        for row in reversed(by.rows):  # the last one becomes the last dimension
            beside = (skew.number, *(other for other in by.rows if other != row))
            skewed = with_shadows(skewed, row, nodes, nodes) if skew.lines or skew.has_limits else skewed
            if not nodes <= legal_nodes(skewed, row, beside=beside):
                return None
            skewed = Vectorizer(skewed, row, nodes, beside=beside, innermost=bool(skew.lines)).run()
            nodes = {node.id for node in skewed if {skew.number, *by.rows[:1]} <= {*node.domain.steps}}
    except NonAffineError:
        return None
    steps = " and ".join(map(str, by.steps))
    note(skew.number.name, "it counts the diagonals of {}, of which each is computed at once", steps)
    return skewed


def _is_known(graph: Graph, reader: Node, nodes: set[int], by: Diagonals) -> bool:
    """Whether a node reads others of its table at known distances, or ranges of a row or a column."""
    return all(
        distances(graph, edge, by.steps) is not None
        or (is_along_line(graph, edge, by.steps) and not isinstance(reader.op, ops.Merge))
        for edge in reader.inputs
        if edge.source in nodes
    )


def may_have_tables(graph: Graph, steps: tuple[Symbol, ...]) -> bool:
    """Whether some read between nodes over all of some steps moves along each of them: a quick test."""
    over_all = {node.id: node for node in graph if set(steps) <= {*node.domain.steps}}
    edges = [edge for node in over_all.values() for edge in node.inputs if edge.source in over_all]
    reads = [(step, at) for edge in edges for step, at in edge.by_step(graph[edge.source].domain).items()]
    points = {step for step, at in reads if isinstance(at, Point) and at.expr != step.expr and at.steps == {step}}
    return {*steps} <= points | {step for step, at in reads if isinstance(at, Range) and step in at.steps}


def _tables(graph: Graph, by: Diagonals) -> tuple[set[int], Groups[int]]:
    """The nodes on cycles along each of some steps alone, which a loop over any other leaves, and those between; and all cycles.

    A step with the sign of the column's, which is 1, is read in the column's direction, backwards or forwards; one with -1 in the other
    direction. The branches of one `Merge` may lie on several cycles: they are one.
    """
    joined, on_cycles, along_all = Groups[int](), set[int](), set[int]()
    alone = [
        {
            tuple(arrow[::sign][0] if k == moved else "=" for k in range(len(by.steps)))
            for moved, sign in enumerate((*by.signs, 1))
        }
        for arrow in ("<>", "><")
    ]
    for cycle in cycles(graph, *by.steps):
        first, *_ = cycle.nodes
        on_cycles |= cycle.nodes
        for member in cycle.nodes:
            joined.join(member, first)
        signs = {tuple(direction_of(graph, arc, step) for step in by.steps) for arc in cycle.arcs}
        if any(reads <= signs for reads in alone):
            along_all.add(first)
    tables = {n for n in on_cycles if joined.of(n) in {joined.of(member) for member in along_all}}
    fitting = tables | {node.id for node in graph if node.id not in on_cycles and _fits(graph, node, by)}
    order = [graph[n] for n in forward_order(graph) if n in fitting]
    after, before = set(tables), set(tables)
    for node in order:
        after |= {node.id} if any(edge.source in after for edge in node.inputs) else set()
    for node in reversed(order):
        before |= {edge.source for edge in node.inputs} if node.id in before else set()
    return fitting & after & before, joined


def _fits(graph: Graph, node: Node, by: Diagonals) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points, or along rows and columns."""
    if not {*by.steps} <= {*node.domain.steps} or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(
        all(isinstance(index, Point) for index in edge.index) or is_along_line(graph, edge, by.steps) for edge in node.inputs
    )


def _factors(graph: Graph, by: Diagonals, nodes: set[int]) -> list[TensorType]:
    """What products in a table read from outside of it, at each row or column."""
    products = [graph[n] for n in nodes if isinstance(graph[n].op, (ops.Dot, ops.Conv))]
    reads = [edge for node in products for edge in node.inputs if edge.source not in nodes]
    return [graph.edge_type(edge) for edge in reads if not edge.steps.isdisjoint(by.steps)]


def _with_operands(graph: Graph, nodes: set[int], by: Diagonals) -> tuple[Graph, set[int]]:
    """The graph and the nodes with copies of those operands that vary with all steps, but are computed from values that do not.

    A copy that runs by diagonals reads vectors. The operand itself, at all rows and columns, would have to be gathered by diagonals.
    """
    steps, copies, before = {*by.steps}, dict[int, int](), feeding(graph, [graph[n] for n in nodes])
    graph = graph.copy()

    def copied(node: Node) -> Node:
        near = [edge.source in copies and distances(graph, edge, by.steps) is not None for edge in node.inputs]
        edges = zip(node.inputs, near, strict=True)
        return node.reading(tuple(edge.of(copies[edge.source]) if is_near else edge for edge, is_near in edges))

    def is_gathered(edge: Edge) -> bool:
        is_near = edge.source in {*nodes, *copies.values()} and distances(graph, edge, by.steps) is not None
        is_over_all = steps <= {*graph[edge.source].domain.steps} or all(isinstance(i, Point) for i in edge.index)
        return steps <= index_steps(edge.index) and is_over_all and not is_near

    for node in (graph[n] for n in forward_order(graph) if n in before - nodes):
        copy = replace(copied(node), id=graph.next_id, name="")
        if isinstance(node.op, _COPIED) and steps <= {*node.domain.steps} and not any(map(is_gathered, copy.inputs)):
            copies[node.id] = graph.put(copy).id
    for n in nodes:
        graph.put(copied(graph[n]))
    return graph, nodes | set(copies.values())


def _where_read(graph: Graph, nodes: set[int]) -> Graph:
    """The graph, in which nodes that only one branch of their table reads, or one node, at their own points, run where it does."""
    graph, users = graph.copy(), graph.users()
    for node in (graph[n] for n in reversed(forward_order(graph)) if n in nodes):  # readers first
        reads = [(graph[reader.id], slot) for reader, slot in users[node.id]]
        if isinstance(node.op, ops.Merge) or not all(
            reader.id in nodes and reader.inputs[slot].is_own_point(node.domain) for reader, slot in reads
        ):
            continue
        conditions = {operand_domains(reader, reader.domain)[slot].condition for reader, slot in reads}
        if len(conditions) == 1:
            steps = {*node.domain.steps}
            parts = [part for part in conditions.pop().parts if isinstance(part, Comparison) and part.steps <= steps]
            graph.put(replace(node, domain=replace(node.domain, condition=conjunction(node.domain.condition, *parts))))
    return graph
