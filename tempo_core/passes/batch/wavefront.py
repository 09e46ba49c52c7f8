"""Wavefronts: a table that neither of its two steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar

from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE
from tempo_core.ir.dependence import cycles, direction_of, feeding, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.diagonals import Skew, distances, over_both_steps, with_carriers
from tempo_core.passes.batch.leading import Vectorizer
from tempo_core.passes.batch.vectorize import legal_nodes
from tempo_core.prices import is_worth_a_wavefront
from tempo_core.symbolic.domain import Point, index_steps
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.groups import Groups


@dataclass(frozen=True)
class Wavefront(Pass):
    """Run the points (i, j) of a table by diagonals: all points with the same i + j, or j - i, at once, one diagonal after the other.

    Before: shapes are static. A table is a cycle of dependences that read both `[i - 1, j]` and `[i, j - 1]` (or both `[i + 1, j]`
    and `[i, j + 1]`): a loop over either step leaves a cycle along the other. The intervals from i to j read `[i + 1, j]` and
    `[i, j - 1]`: their diagonals have the same j - i. After: the table's nodes run over a new step, the
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
    if not nodes or not is_worth_a_wavefront([graph[n] for n in nodes], _factors(graph, row, column, nodes)):
        return None
    tables = over_both_steps(graph, nodes, row, column)
    reads = [edge for n in nodes for edge in tables[n].inputs if edge.source in nodes] if tables is not None else []
    if tables is None or any(distances(tables, edge, row, column) is None for edge in reads):
        return None
    tables, nodes = with_carriers(*_with_operands(tables, nodes, row, column), cycles, row, column, sign)
    skew = Skew(tables, nodes, row, column, sign)
    skewed = skew.run()
    if not nodes <= legal_nodes(skewed, row, beside=(skew.number,)):
        return None
    return Vectorizer(skewed, row, nodes, beside=(skew.number,)).run()


def _may_have_tables(graph: Graph, row: Symbol, column: Symbol) -> bool:
    """Whether some read between nodes over both steps moves along the row, and some read along the column: a quick test."""
    over_both = {node.id: node for node in graph if row in node.domain and column in node.domain}
    edges = [edge for node in over_both.values() for edge in node.inputs if edge.source in over_both]
    reads = [(step, at) for edge in edges for step, at in edge.points(graph[edge.source].domain).items()]
    return {row, column} <= {step for step, at in reads if at != step.expr and at.steps == {step}}


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
    fitting = tables | {node.id for node in graph if node.id not in on_cycles and _fits(node, row, column)}
    order = [graph[n] for n in forward_order(graph) if n in fitting]
    after, before = set(tables), set(tables)
    for node in order:
        after |= {node.id} if any(edge.source in after for edge in node.inputs) else set()
    for node in reversed(order):
        before |= {edge.source for edge in node.inputs} if node.id in before else set()
    return fitting & after & before, joined


def _fits(node: Node, row: Symbol, column: Symbol) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points."""
    if row not in node.domain or column not in node.domain or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(isinstance(index, Point) for edge in node.inputs for index in edge.index)


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
        return {row, column} <= index_steps(edge.index) and not is_near

    for node in (graph[n] for n in forward_order(graph) if n in before - nodes):
        copy = replace(copied(node), id=graph.next_id, name="")
        if (
            isinstance(node.op, (*ELEMENTWISE, ops.Merge))
            and {row, column} <= set(node.domain.steps)
            and not any(map(is_gathered, copy.inputs))
        ):
            copies[node.id] = graph.put(copy).id
    for n in nodes:
        graph.put(copied(graph[n]))
    return graph, nodes | set(copies.values())
