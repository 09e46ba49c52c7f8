"""Wavefronts: a table that neither of its two steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE
from tempo_core.ir.dependence import cycles, direction_of, feeding, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass, operand_domains
from tempo_core.passes.batch.boxes import with_shadows
from tempo_core.passes.batch.diagonals import Skew, distances, over_both_steps, with_carriers
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
    effect: ClassVar[str] = "computed by diagonals: all points with the same sum, or difference, of both steps at once"

    def apply(self, graph: Graph) -> Graph:
        numbers = dict(self.numbers)
        for row, column in combinations([s for s in graph.order if s.name not in self.but], 2):
            if _may_have_tables(graph, row, column):
                are_known = {row.bound_symbol, column.bound_symbol} <= numbers.keys()
                if are_known and numbers[column.bound_symbol] < numbers[row.bound_symbol]:
                    row, column = column, row
                for sign in (1, -1):
                    after = _by_diagonals(graph, row, column, sign)
                    if after is not None and are_known:
                        after.decided_for = after.decided_for & (row.bound_expr <= column.bound_expr)
                    graph = graph if after is None else after
        return graph


def _by_diagonals(graph: Graph, row: Symbol, column: Symbol, sign: int) -> Graph | None:
    """The graph with its tables over two steps run by diagonals; None if there are none, or if that does not pay.

    `sign` is 1 for diagonals with the same sum of both steps, -1 for those with the same difference.
    """
    nodes, cycles = _tables(graph, row, column, sign)
    reads = [edge for n in nodes for edge in graph[n].inputs if edge.source in nodes]
    has_ranges = any(is_along_line(graph, edge, row, column) for edge in reads)
    if not nodes or not is_worth_a_wavefront([graph[n] for n in nodes], _factors(graph, row, column, nodes), has_ranges):
        return None
    tables = over_both_steps(graph, nodes, row, column)
    if tables is None or not all(_is_known(tables, tables[n], nodes, row, column) for n in nodes):
        return None
    tables, nodes = with_carriers(*_with_operands(tables, nodes, row, column), cycles, row, column, sign)
    tables = _where_read(tables, nodes)
    try:
        skew = Skew(tables, nodes, row, column, sign)
        skewed, nodes = skew.run(), nodes | skew.added
        skewed = with_shadows(skewed, row, nodes, nodes) if skew.lines or skew.has_limits else skewed
    except NonAffineError:
        return None
    if not nodes <= legal_nodes(skewed, row, beside=(skew.number,)):
        return None
    note(skew.number.name, "it counts the diagonals of {} and {}, of which each is computed at once", row, column)
    return Vectorizer(skewed, row, nodes, beside=(skew.number,), innermost=bool(skew.lines)).run()


def _is_known(graph: Graph, reader: Node, nodes: set[int], row: Symbol, column: Symbol) -> bool:
    """Whether a node reads others of its table at known distances, or ranges of a row or a column."""
    return all(
        distances(graph, edge, row, column) is not None
        or (is_along_line(graph, edge, row, column) and not isinstance(reader.op, ops.Merge))
        for edge in reader.inputs
        if edge.source in nodes
    )


def _may_have_tables(graph: Graph, row: Symbol, column: Symbol) -> bool:
    """Whether some read between nodes over both steps moves along the row, and some read along the column: a quick test."""
    over_both = {node.id: node for node in graph if row in node.domain and column in node.domain}
    edges = [edge for node in over_both.values() for edge in node.inputs if edge.source in over_both]
    reads = [(step, at) for edge in edges for step, at in edge.by_step(graph[edge.source].domain).items()]
    points = {step for step, at in reads if isinstance(at, Point) and at.expr != step.expr and at.steps == {step}}
    return {row, column} <= points | {step for step, at in reads if isinstance(at, Range) and step in at.steps}


def _tables(graph: Graph, row: Symbol, column: Symbol, sign: int) -> tuple[set[int], Groups[int]]:
    """The nodes on cycles along both steps, which a loop over either leaves a cycle along the other, and those between; and all cycles.

    With `sign` 1, both are read backwards, or both forwards; with -1, one of them is. The branches of one `Merge` may lie on several
    cycles: they are one.
    """
    joined, on_cycles, along_both = Groups[int](), set[int](), set[int]()
    for cycle in cycles(graph, row, column):
        first, *_ = cycle.nodes
        on_cycles |= cycle.nodes
        for member in cycle.nodes:
            joined.join(member, first)
        signs = {(direction_of(graph, arc, row), direction_of(graph, arc, column)) for arc in cycle.arcs}
        if any(
            {("=", along_columns), (along_rows, "=")} <= signs
            for along_rows, along_columns in zip("<>", "<>"[::sign], strict=True)
        ):
            along_both.add(first)
    tables = {n for n in on_cycles if joined.of(n) in {joined.of(member) for member in along_both}}
    fitting = tables | {node.id for node in graph if node.id not in on_cycles and _fits(graph, node, row, column)}
    order = [graph[n] for n in forward_order(graph) if n in fitting]
    after, before = set(tables), set(tables)
    for node in order:
        after |= {node.id} if any(edge.source in after for edge in node.inputs) else set()
    for node in reversed(order):
        before |= {edge.source for edge in node.inputs} if node.id in before else set()
    return fitting & after & before, joined


def _fits(graph: Graph, node: Node, row: Symbol, column: Symbol) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points, or along rows and columns."""
    if row not in node.domain or column not in node.domain or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(
        all(isinstance(index, Point) for index in edge.index) or is_along_line(graph, edge, row, column) for edge in node.inputs
    )


def _factors(graph: Graph, row: Symbol, column: Symbol, nodes: set[int]) -> list[TensorType]:
    """What products in a table read from outside of it, at each row or column."""
    products = [graph[n] for n in nodes if isinstance(graph[n].op, (ops.Dot, ops.Conv))]
    reads = [edge for node in products for edge in node.inputs if edge.source not in nodes]
    return [graph.edge_type(edge) for edge in reads if not edge.steps.isdisjoint((row, column))]


def _with_operands(graph: Graph, nodes: set[int], row: Symbol, column: Symbol) -> tuple[Graph, set[int]]:
    """The graph and the nodes with copies of those operands that vary with both steps, but are computed from values that do not.

    A copy that runs by diagonals reads vectors. The operand itself, at all rows and columns, would have to be gathered by diagonals.
    """
    graph, before, copies = graph.copy(), feeding(graph, [graph[n] for n in nodes]), dict[int, int]()

    def copied(node: Node) -> Node:
        near = [edge.source in copies and distances(graph, edge, row, column) is not None for edge in node.inputs]
        edges = zip(node.inputs, near, strict=True)
        return node.reading(tuple(edge.of(copies[edge.source]) if is_near else edge for edge, is_near in edges))

    def is_gathered(edge: Edge) -> bool:
        is_near = edge.source in {*nodes, *copies.values()} and distances(graph, edge, row, column) is not None
        is_over_both = {row, column} <= {*graph[edge.source].domain.steps} or all(isinstance(i, Point) for i in edge.index)
        return {row, column} <= index_steps(edge.index) and is_over_both and not is_near

    for node in (graph[n] for n in forward_order(graph) if n in before - nodes):
        copy = replace(copied(node), id=graph.next_id, name="")
        if isinstance(node.op, _COPIED) and {row, column} <= set(node.domain.steps) and not any(map(is_gathered, copy.inputs)):
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
            parts = [part for part in conditions.pop().parts if isinstance(part, Comparison)]
            graph.put(replace(node, domain=replace(node.domain, condition=conjunction(node.domain.condition, *parts))))
    return graph
