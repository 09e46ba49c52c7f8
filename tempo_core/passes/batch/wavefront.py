"""Wavefronts: a table that none of its steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import ClassVar

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE
from tempo_core.ir.dependence import cycles, direction_of, feeding, fixed_point, forward_order, reached
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass, operand_domains
from tempo_core.passes.batch.basis import Basis, ChangeOfBasis
from tempo_core.passes.batch.leading import Vectorizer
from tempo_core.passes.batch.lines import is_along_line, is_near
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.passes.decisions import note
from tempo_core.prices import is_worth_a_wavefront
from tempo_core.symbolic.condition import Comparison, conjunction, equal
from tempo_core.symbolic.domain import Domain, Index, Point, Range, index_steps, step_order
from tempo_core.symbolic.expr import Expr, Symbol

# Operands of a table that are computed by diagonals: each element needs few others.
_COPIED = (*ELEMENTWISE, ops.Merge, ops.Constant, ops.Eval, ops.Iota, ops.Broadcast, ops.Slice, ops.Reshape, ops.Permute)


@dataclass(frozen=True)
class Wavefront(Pass):
    """Run the points (i, j) of a table by diagonals: all points with the same i + j, or j - i, at once, one diagonal after the other.

    So are those of a table over three steps or more, which have the same i + j + k, all at once.

    Before: shapes are static. A table is a cycle of dependences that read both `[i - 1, j]` and `[i, j - 1]` (or both `[i + 1, j]`
    and `[i, j + 1]`): a loop over either step leaves a cycle along the other. The intervals from i to j read `[i + 1, j]` and
    `[i, j - 1]`: their diagonals have the same j - i. Ranges of a row and a column, `[i, i:j]` and `[i + 1:j + 1, j]`, do as such points
    (`passes/batch/lines.py`). After: the table's nodes run over a new step, the number of the diagonal (`passes/batch/basis.py`), and
    their values have a leading dimension for its points (`passes/batch/leading.py`). Tables that read each other, such as a recurrence
    and its gradient, share their diagonals. Elementwise operands of a table, such as `(x[i] - y[j])**2`, are computed by diagonals too.
    `but` names steps that stay loops. The vectors lie along the step with fewer points by `numbers`, the bounds that are known; for
    bounds in another order, the passes run again (`Graph.decided_for`).

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
            after = _by_diagonals(graph, Basis(graph.fresh_step("diagonal"), rows, column, signs))
            if after is not None and are_known:
                widest = conjunction(*(row.bound_expr <= column.bound_expr for row in rows))
                after.decided_for = after.decided_for & widest
            graph = graph if after is None else after
        return graph


def _by_diagonals(graph: Graph, basis: Basis) -> Graph | None:
    """The graph with its tables over some steps run by diagonals; None if there are none, or if that does not pay."""
    (nodes, of_cycle), steps = _tables(graph, basis), basis.steps
    reads = [edge for n in nodes for edge in graph[n].inputs if edge.source in nodes]
    has_ranges = any(is_along_line(graph, edge, steps) for edge in reads)
    worth = is_worth_a_wavefront([graph[n] for n in nodes], _factors(graph, steps, nodes), has_ranges, len(steps))
    tables = over_all_steps(graph, nodes, steps) if nodes and worth else None
    if tables is None:
        return None
    tables, nodes = _with_operands(tables, nodes, steps)
    try:
        change = ChangeOfBasis(_where_read(tables, nodes), nodes, basis, of_cycle, has_ranges)
        graph, nodes = change.run(), change.nodes
        for row in reversed(basis.rows):  # the last one becomes the last dimension
            beside = (basis.number, *(other for other in basis.rows if other != row))
            if not nodes <= legal_nodes(graph, row, beside=beside):
                return None
            graph = Vectorizer(graph, row, nodes, beside=beside, innermost=has_ranges).run()
            nodes = {node.id for node in graph if {basis.number, *basis.rows[:1]} <= {*node.domain.steps}}
    except NonAffineError:
        return None
    note(basis.number.name, "it counts the diagonals of {}, of which each is computed at once", " and ".join(map(str, steps)))
    return graph


def may_have_tables(graph: Graph, steps: tuple[Symbol, ...]) -> bool:
    """Whether some read between nodes over all of some steps moves along each of them: a quick test."""
    over_all = {node.id: node for node in graph if set(steps) <= {*node.domain.steps}}
    edges = [edge for node in over_all.values() for edge in node.inputs if edge.source in over_all]
    reads = [(step, at) for edge in edges for step, at in edge.by_step(graph[edge.source].domain).items()]
    points = {step for step, at in reads if isinstance(at, Point) and at.expr != step.expr and at.steps == {step}}
    return {*steps} <= points | {step for step, at in reads if isinstance(at, Range) and step in at.steps}


def _tables(graph: Graph, basis: Basis) -> tuple[set[int], dict[int, int]]:
    """The nodes on cycles along each of some steps alone, which a loop over any other leaves, and those between; and the cycle of each node.

    A step with the sign of the column's, which is 1, is read in the column's direction, backwards or forwards; one with -1 in the other
    direction. The branches of one `Merge` may lie on several cycles: they are one.
    """
    signed = list(enumerate((*basis.signs, 1)))
    alone = [
        {tuple(arrow[::sign][0] if k == moved else "=" for k, _ in signed) for moved, sign in signed} for arrow in ("<>", "><")
    ]
    tables, of_cycle = set[int](), dict[int, int]()
    for number, cycle in enumerate(
        cycles(graph, *basis.steps, joined=frozenset(node.id for node in graph if isinstance(node.op, ops.Merge)))
    ):
        of_cycle |= dict.fromkeys(cycle.nodes, number)
        signs = {tuple(direction_of(graph, arc, step) for step in basis.steps) for arc in cycle.arcs}
        tables |= cycle.nodes if any(reads <= signs for reads in alone) else set()
    beside = {node.id for node in graph if node.id not in of_cycle and _fits(graph, node, basis.steps)}
    readers = graph.reader_ids()
    after = reached(tables, lambda n: beside.intersection(readers[n]))
    before = reached(tables, lambda n: beside.intersection([edge.source for edge in graph[n].inputs]))
    return after & before, of_cycle


def _fits(graph: Graph, node: Node, steps: Sequence[Symbol]) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points, or along rows and columns."""
    if not {*steps} <= {*node.domain.steps} or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(all(isinstance(at, Point) for at in edge.index) or is_along_line(graph, edge, steps) for edge in node.inputs)


def _factors(graph: Graph, steps: Sequence[Symbol], nodes: set[int]) -> list[TensorType]:
    """What products in a table read from outside of it, at each row or column."""
    products = [graph[n] for n in nodes if isinstance(graph[n].op, (ops.Dot, ops.Conv))]
    reads = [edge for node in products for edge in node.inputs if edge.source not in nodes]
    return [graph.edge_type(edge) for edge in reads if not edge.steps.isdisjoint(steps)]


def over_all_steps(graph: Graph, nodes: set[int], table: Sequence[Symbol]) -> Graph | None:
    """The graph with `nodes` over all steps of a table: a node that lacks one runs at the only point of it at which they read the node.

    Reads at that point become reads at the reader's own: `x[0, j]` for `i == 0` is `x[i, j]`. None if there are several such points.
    """
    graph, users = graph.copy(), graph.users()
    places: dict[int, dict[Symbol, Expr]] = {}
    for node in (graph[n] for n in reversed(forward_order(graph)) if n in nodes):  # readers first
        reads = [(graph[reader.id], slot) for reader, slot in users[node.id] if reader.id in nodes]
        conditions = [reader.domain.condition & reader.inputs[slot].condition for reader, slot in reads]
        lacking = [step for step in table if step not in node.domain]
        points = {step: {fixed_point(condition, step) for condition in conditions} for step in lacking}
        places[node.id] = {step: at for step, each in points.items() if len(each) == 1 for at in each if at is not None}
        if len(places[node.id]) < len(lacking):
            return None
        condition = conjunction(node.domain.condition, *(equal(step.expr, at) for step, at in places[node.id].items()))
        graph.put(replace(node, domain=Domain(step_order({*node.domain.steps, *table}, graph.order), condition)))
    for reader in graph:
        inputs = []
        for edge in reader.inputs:
            steps, index, added = graph[edge.source].domain.steps, iter(edge.index), places.get(edge.source, {})
            by_step: dict[Symbol, Index] = {step: Point(added[step]) if step in added else next(index) for step in steps}
            for step in by_step.keys() & {*table} if reader.id in nodes else ():
                here, at = fixed_point(reader.domain.condition & edge.condition, step), by_step[step]
                distance = at.expr.substitute({step: here}) - here if here is not None and isinstance(at, Point) else step.expr
                by_step[step] = Point(step.expr + distance) if distance.is_constant else at
            inputs.append(replace(edge, index=tuple(by_step.values())))
        graph.put(reader.reading(tuple(inputs)))
    return graph


def _with_operands(graph: Graph, nodes: set[int], table: Sequence[Symbol]) -> tuple[Graph, set[int]]:
    """The graph and the nodes with copies of those operands that vary with all steps, but are computed from values that do not.

    A copy that runs by diagonals reads vectors. The operand itself, at all rows and columns, would have to be gathered by diagonals.
    """
    graph, steps, copies = graph.copy(), {*table}, {n: n for n in nodes}
    before = feeding(graph, [graph[n] for n in nodes])

    def copied(edge: Edge) -> Edge:
        return edge.of(copies[edge.source]) if edge.source in copies and is_near(graph, edge, table) else edge

    def is_gathered(edge: Edge) -> bool:
        is_over_all = steps <= {*graph[edge.source].domain.steps} or all(isinstance(i, Point) for i in edge.index)
        is_copied = edge.source in copies and is_near(graph, edge, table)
        return steps <= index_steps(edge.index) and is_over_all and not is_copied

    for node in (graph[n] for n in forward_order(graph) if n in before - nodes):
        if isinstance(node.op, _COPIED) and steps <= {*node.domain.steps} and not any(map(is_gathered, node.inputs)):
            copy = replace(node.reading(tuple(map(copied, node.inputs))), id=graph.next_id, name="")
            copies[node.id] = graph.put(copy).id
    for n in nodes:
        graph.put(graph[n].reading(tuple(map(copied, graph[n].inputs))))
    return graph, {*copies.values()}


def _where_read(graph: Graph, nodes: set[int]) -> Graph:
    """The graph, in which nodes that only one branch of their table reads, or one node, at their own points, run where it does."""
    graph, users = graph.copy(), graph.users()
    for node in (graph[n] for n in reversed(forward_order(graph)) if n in nodes and not isinstance(graph[n].op, ops.Merge)):
        reads = [(graph[reader.id], slot) for reader, slot in users[node.id]]  # of readers that were looked at before
        is_alone = all(reader.id in nodes and reader.inputs[slot].is_own_point(node.domain) for reader, slot in reads)
        conditions = {operand_domains(reader, reader.domain)[slot].condition for reader, slot in reads if is_alone}
        if len(conditions) == 1:
            parts = (
                part for part in conditions.pop().parts if isinstance(part, Comparison) and part.steps <= {*node.domain.steps}
            )
            graph.put(replace(node, domain=Domain(node.domain.steps, conjunction(node.domain.condition, *parts))))
    return graph
