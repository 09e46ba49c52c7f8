"""Wavefronts: a table that neither of its two steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar

from tempo_core.ir import ops
from tempo_core.ir.dependence import Nest, direction_of, loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.diagonals import Diagonals, NotATable
from tempo_core.prices import is_worth_a_wavefront
from tempo_core.symbolic.domain import Point, index_steps
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Wavefront(Pass):
    """Run the points (i, j) of a table by diagonals: all points with the same i + j at once, one diagonal after the other.

    Before: shapes are static. A table is a cycle of dependences that read both `[i - 1, j]` and `[i, j - 1]` (or both `[i + 1, j]`
    and `[i, j + 1]`): a loop over either step leaves a cycle along the other. After: the table's nodes run over a new step, the
    number of the diagonal, and their values have a leading dimension for the points of a diagonal (`passes/batch/diagonals.py`).
    Tables that read each other, such as a recurrence and its gradient, share their diagonals. Elementwise operands of a table, such as
    `(x[i] - y[j])**2`, are computed by diagonals too. `but` names steps that stay loops.

    Rewrite: `d[i, j] = f(d[i - 1, j], d[i, j - 1], c[i, j])` -> `e[k] = f(roll(e[k - 1], 1), e[k - 1], c at row + column == k)`
    """

    name: str = field(default="wavefront", init=False)
    effect: ClassVar[str] = "computed by diagonals: all points with the same sum of both steps at once"
    but: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        for row, column in combinations([s for s in graph.order if s.name not in self.but], 2):
            if _may_have_tables(graph, row, column):
                cycles, others = _cycles(graph, row, column)
                nodes = _between(graph, row, column, set().union(*cycles), others)
                factors = _factors(graph, row, column, nodes)
                if not cycles or not is_worth_a_wavefront([graph[n] for n in nodes], factors):
                    continue
                try:
                    graph = Diagonals(*_with_operands(graph, row, column, nodes), row, column, cycles).run()
                except NotATable:
                    continue
        return graph


def _may_have_tables(graph: Graph, row: Symbol, column: Symbol) -> bool:
    """Whether some read between nodes over both steps moves along the row, and some read along the column: a quick test."""
    moving = set()
    for node in graph:
        if row in node.domain and column in node.domain:
            for edge in node.inputs:
                source = graph[edge.source]
                if row in source.domain and column in source.domain:
                    for step, index in edge.by_step(source.domain).items():
                        if isinstance(index, Point) and index.expr != step.expr and index.expr.steps == {step}:
                            moving.add(step)
    return {row, column} <= moving


def _cycles(graph: Graph, row: Symbol, column: Symbol) -> tuple[list[set[int]], set[int]]:
    """The nodes of each cycle along both steps, which a loop over either of them leaves a cycle along the other; and all nodes of other cycles.

    The branches of one `Merge` may lie on several cycles: they are one.
    """
    cycles: list[tuple[set[int], bool]] = []  # with whether it needs both steps
    for nest in loop_nest(graph, [s for s in graph.order if s not in (row, column)]).nests():
        if nest.cyclic:
            nodes = {vertex.node for vertex in nest.vertices}
            touching = [cycle for cycle in cycles if cycle[0] & nodes]
            needs_both = _needs_both(graph, nest, row, column) or any(both for _, both in touching)
            joined = nodes.union(*(cycle for cycle, _ in touching))
            cycles = [*(cycle for cycle in cycles if cycle not in touching), (joined, needs_both)]
    return [nodes for nodes, both in cycles if both], set().union(*(nodes for nodes, both in cycles if not both))


def _needs_both(graph: Graph, nest: Nest, row: Symbol, column: Symbol) -> bool:
    signs = {(direction_of(graph, arc, row), direction_of(graph, arc, column)) for arc in nest.arcs}
    return any({("=", sign), (sign, "=")} <= signs for sign in "<>")


def _between(graph: Graph, row: Symbol, column: Symbol, cyclic: set[int], others: set[int]) -> set[int]:
    """The nodes over both steps between the cyclic nodes, along reads of nodes over both steps. Those of `others` stay as they are."""
    users = graph.users()

    def reached(after: bool) -> set[int]:
        nodes, stack = set(cyclic), list(cyclic)
        while stack:
            node = graph[stack.pop()]
            near = [reader.id for reader, _ in users[node.id]] if after else [edge.source for edge in node.inputs]
            for other in near:
                if other not in nodes | others and _fits(graph, graph[other], row, column):
                    nodes.add(other)
                    stack.append(other)
        return nodes

    return reached(True) & reached(False)


def _fits(graph: Graph, node: Node, row: Symbol, column: Symbol) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points."""
    if row not in node.domain or column not in node.domain or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(isinstance(index, Point) for edge in node.inputs for index in edge.index)


def _factors(graph: Graph, row: Symbol, column: Symbol, nodes: set[int]) -> list[TensorType]:
    """What products in a table read from outside of it, at each row or column."""
    products = [graph[n] for n in nodes if isinstance(graph[n].op, (ops.Dot, ops.Conv))]
    reads = [edge for node in products for edge in node.inputs if edge.source not in nodes]
    return [graph.edge_type(edge) for edge in reads if not edge.steps.isdisjoint((row, column))]


ELEMENTWISE = (ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast)


def _with_operands(graph: Graph, row: Symbol, column: Symbol, nodes: set[int]) -> tuple[Graph, set[int]]:
    """The graph and the nodes with copies of those operands that vary with both steps, but are computed from values that do not.

    A copy that runs by diagonals reads vectors. The operand itself, at all rows and columns, would have to be gathered by diagonals.
    """
    graph, nodes = graph.copy(), set(nodes)
    copies: dict[int, int | None] = {}

    def copied(edge: Edge) -> Edge:
        if edge.source not in nodes and {row, column} <= edge.steps - edge.condition.steps:
            copy = copy_of(edge.source)
            return edge if copy is None else replace(edge, source=copy)
        return edge

    def copy_of(node_id: int) -> int | None:
        if node_id not in copies:
            copies[node_id] = None
            node = graph[node_id]
            if _is_computed_from_vectors(graph, node, row, column):
                inputs = tuple(map(copied, node.inputs))
                if all(edge.source in nodes or not {row, column} <= edge.steps - edge.condition.steps for edge in inputs):
                    copy = graph.put(replace(node, id=graph.next_id, inputs=inputs, name=""))
                    copies[node_id] = copy.id
                    nodes.add(copy.id)
        return copies[node_id]

    for node_id in sorted(nodes):
        node = graph[node_id]
        graph.put(replace(node, inputs=tuple(map(copied, node.inputs))))
    return graph, nodes


def _is_computed_from_vectors(graph: Graph, node: Node, row: Symbol, column: Symbol) -> bool:
    """Whether a node is elementwise, or chooses between values that vary with neither step."""
    if not {row, column} <= set(node.domain.steps):
        return False
    if isinstance(node.op, ops.Merge):
        return all(index_steps(edge.index).isdisjoint((row, column)) for edge in node.inputs)
    return isinstance(node.op, ELEMENTWISE) and bool(node.inputs)
