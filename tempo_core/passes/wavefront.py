"""Wavefronts: a table that neither of its two steps can be vectorized over becomes a loop over its diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from tempo_core.ir import ops
from tempo_core.ir.dependence import Nest, direction_of, loop_nest
from tempo_core.ir.graph import Graph, Node
from tempo_core.passes.base import Pass
from tempo_core.passes.diagonals import Diagonals, NotATable
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Wavefront(Pass):
    """Run the points (i, j) of a table by diagonals: all points with the same i + j at once, one diagonal after the other.

    Before: shapes are static. A table is a cycle of dependences that read both `[i - 1, j]` and `[i, j - 1]` (or both `[i + 1, j]`
    and `[i, j + 1]`): a loop over either step leaves a cycle along the other. After: the table's nodes run over a new step, the
    number of the diagonal, and their values have a leading dimension for the points of a diagonal (`passes/diagonals.py`).
    Tables that read each other, such as a recurrence and its gradient, share their diagonals. `but` names steps that stay loops.

    Rewrite: `d[i, j] = f(d[i - 1, j], d[i, j - 1], c[i, j])` -> `e[k] = f(roll(e[k - 1], 1), e[k - 1], c at row + column == k)`
    """

    name: str = field(default="wavefront", init=False)
    but: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        for row, column in combinations([s for s in graph.order if s.name not in self.but], 2):
            if _may_have_tables(graph, row, column):
                cycles = _cycles(graph, row, column)
                if cycles:
                    try:
                        graph = Diagonals(graph, row, column, _between(graph, row, column, set().union(*cycles)), cycles).run()
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


def _cycles(graph: Graph, row: Symbol, column: Symbol) -> list[set[int]]:
    """The nodes of each cycle along both steps, which a loop over either of them leaves a cycle along the other."""
    cycles: dict[frozenset[int], None] = {}
    for nest in loop_nest(graph, [s for s in graph.order if s not in (row, column)]).nests():
        if nest.cyclic and _needs_both(graph, nest, row, column):
            cycles[frozenset(vertex.node for vertex in nest.vertices)] = None
    merged: list[set[int]] = []
    for cycle in cycles:  # the branches of one Merge may lie on several cycles: they are one
        joined = set(cycle).union(*(other for other in merged if other & cycle))
        merged = [other for other in merged if not other & cycle] + [joined]
    return merged


def _needs_both(graph: Graph, nest: Nest, row: Symbol, column: Symbol) -> bool:
    signs = {(direction_of(graph, arc, row), direction_of(graph, arc, column)) for arc in nest.arcs}
    return any({("=", sign), (sign, "=")} <= signs for sign in "<>")


def _between(graph: Graph, row: Symbol, column: Symbol, cyclic: set[int]) -> set[int]:
    """The nodes over both steps between the cyclic nodes, along reads of nodes over both steps."""
    users = graph.users()

    def reached(after: bool) -> set[int]:
        nodes, stack = set(cyclic), list(cyclic)
        while stack:
            node = graph[stack.pop()]
            near = [reader.id for reader, _ in users[node.id]] if after else [edge.source for edge in node.inputs]
            for other in near:
                if other not in nodes and _fits(graph, graph[other], row, column):
                    nodes.add(other)
                    stack.append(other)
        return nodes

    return reached(True) & reached(False)


def _fits(graph: Graph, node: Node, row: Symbol, column: Symbol) -> bool:
    """Whether a node on no cycle may run by diagonals: it reads everything at points."""
    if row not in node.domain or column not in node.domain or isinstance(node.op, (ops.Merge, ops.Udf, ops.Output, ops.Sink)):
        return False
    return all(isinstance(index, Point) for edge in node.inputs for index in edge.index)
