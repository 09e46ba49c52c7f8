"""A change of basis: nodes over several steps run over one new step, which numbers the planes of their points, and all these but one.

The planes of the steps i and j are the diagonals with the same k = i + j. In every condition and index, the column j is then k - i; with
more rows, k minus all of them. If a row counts from its last point, as the starts of the intervals from i to j do, the planes do too:
k = (I - 1 - i) + j. Nodes that read only other planes than their own become a loop over k, whose points i are computed at once
(`passes/batch/leading.py`). Of a plane, only the rows with `0 <= j < J` have a point. At the others, vectors hold values that nothing uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import condition_without
from tempo_core.passes.batch.boxes import inside
from tempo_core.passes.batch.lines import Line, is_along_line, is_near
from tempo_core.passes.clean.narrow import at_points
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, conjunction, equal, hull
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, identity, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import shadow
from tempo_core.symbolic.proof import within


@dataclass(frozen=True)
class Basis:
    """The new step `number` in place of the `column`, and the `rows`, which stay. A sign is 1 if a row counts from its first point, or -1."""

    number: Symbol
    rows: tuple[Symbol, ...]
    column: Symbol
    signs: tuple[int, ...]

    @property
    def steps(self) -> tuple[Symbol, ...]:
        return *self.rows, self.column

    def plane(self, at: Mapping[Symbol, Expr]) -> Expr:
        """The number of the plane of a point."""
        signed = zip(self.steps, (*self.signs, 1), strict=True)
        return sum((at[step] if sign > 0 else step.bound_expr - 1 - at[step] for step, sign in signed), Expr.of(0))

    @property
    def planes(self) -> Expr:
        """How many planes there are."""
        return sum((step.bound_expr - 1 for step in self.steps), Expr.of(1))

    @property
    def old(self) -> dict[Symbol, Expr]:
        """The old step in terms of the new ones."""
        return {self.column: self.number.expr - self.plane({row: row.expr for row in self.rows} | {self.column: Expr.of(0)})}


class ChangeOfBasis:
    """Rewrites `nodes` of a graph, which run over the steps of a basis, and all that reads them.

    `of_cycle` has a number for the cycle of each node that lies on one. `has_ranges` tells whether some nodes read ranges of others along
    a row or a column (`passes/batch/lines.py`). After `run`, `nodes` has those over planes and rows that were added too.
    """

    def __init__(self, graph: Graph, nodes: set[int], basis: Basis, of_cycle: Mapping[int, int], has_ranges: bool):
        self.source, self.nodes, self.basis, self.of_cycle, self.has_ranges = graph, nodes, basis, of_cycle, has_ranges
        self.graph = graph.with_step(basis.number, basis.planes, min(map(graph.order.index, basis.rows)))
        self.domains: dict[int, Domain] = {}
        self.carriers: dict[tuple[object, ...], int] = {}  # for a read of a plane beside, the node that passes its values on
        self.tables: dict[tuple[int, int], int] = {}  # for an output of a node, the node with its values over the old steps

    def run(self) -> Graph:
        """The rewritten graph. Raises NonAffineError if it is not known which planes a read between the nodes needs."""
        for node in map(self.source.__getitem__, forward_order(self.source)):
            if node.id in self.nodes:
                self.domains[node.id] = self._domain(node)
        for node in self.source:
            is_inside = node.id in self.nodes
            moved = self._moved if is_inside else self._from_outside
            edges = tuple(moved(node, edge) if edge.source in self.nodes else edge for edge in node.inputs)
            if is_inside:
                self.graph.put(replace(at_points(node.reading(edges), self.basis.old), domain=self.domains[node.id]))
            elif edges != node.inputs:
                self.graph.put(node.reading(edges))
        steps = {self.basis.number, *self.basis.rows}
        self.nodes = self.nodes | {n.id for n in self.graph if n.id not in self.source.nodes and steps <= {*n.domain.steps}}
        return self.graph

    def _domain(self, node: Node) -> Domain:
        """The points of a node. What is left of its condition without the rows keeps its reads inside of their sources, in all rows.

        Where there are limits on several steps, or ranges are read, a node keeps to the planes that have points. So do recurrences.
        """
        basis, is_merge = self.basis, isinstance(node.op, ops.Merge)
        has_limits = any(len(part.steps.intersection(basis.steps)) > 1 for part in node.domain.condition.parts)
        reads = (self._inside(edge) for edge in node.inputs if not is_merge)
        column = within(Point(basis.old[basis.column]), basis.column)
        domain = Domain(self._steps(node), _shorter(conjunction(node.domain.condition.substitute(basis.old), column, *reads)))
        if is_merge or has_limits or self.has_ranges:
            limits = shadow(domain, basis.rows, equal(basis.number.bound_expr, basis.planes))
            domain = replace(domain, condition=self._counted(domain.condition & limits))
        return domain

    def _inside(self, edge: Edge) -> Bool:
        """The planes in which a read of one of the nodes stays inside of it, in all rows."""
        number, at = self.basis.number, edge.points(self.source[edge.source].domain)
        if edge.source not in self.nodes or not {*self.basis.steps} <= at.keys():
            return TRUE
        read = self._read(edge, {number: Point(self.basis.plane(at).substitute(self.basis.old))})
        return self._counted(inside(read, self.domains[edge.source], {number}))

    def _counted(self, condition: Bool) -> Bool:
        """A condition in terms of the bounds of the old steps."""
        return condition.substitute({self.basis.number.bound_symbol: self.basis.planes})

    def _steps(self, node: Node) -> tuple[Symbol, ...]:
        return step_order({*node.domain.steps, self.basis.number} - {self.basis.column}, self.graph.order)

    def _read(self, edge: Edge, at: Mapping[Symbol, Index]) -> Edge:
        """A read of one of the nodes with other indices `at` some steps."""
        source = self.source[edge.source]
        by_step = {**edge.by_step(source.domain), **at}
        return replace(edge, index=tuple(by_step[step] for step in self._steps(source)))

    def _moved(self, node: Node, edge: Edge) -> Edge:
        """A read between two of the nodes. The elements of a range of a row or a column lie in several planes."""
        is_merge, steps = isinstance(node.op, ops.Merge), self.basis.steps
        if not is_near(self.source, edge, steps) and (is_merge or not is_along_line(self.source, edge, steps)):
            raise NonAffineError("a table reads points at known distances, and ranges along one row or column")
        planes = self._inside(edge) if is_merge else TRUE
        edge = edge.substitute(self.basis.old)
        by_step = edge.by_step(self.source[edge.source].domain)
        at = {step: by_step[step] for step in steps}
        start = {step: index.start if isinstance(index, Range) else index.expr for step, index in at.items()}
        first = self.basis.plane(start)
        span = next((index for index in at.values() if isinstance(index, Range)), None)
        if span is None:
            return self._carried(node, replace(edge, condition=edge.condition & planes), start, first - self.basis.number.expr)
        (row,), second = self.basis.rows, {step: start[step] + (span.stride if at[step] is span else 0) for step in at}
        across, down = self.basis.plane(second) - first, second[row] - start[row]
        line = Line(self.basis.number, row, first, across.constant, start[row], down.constant, span)
        build = Builder(self.graph, node, self.domains[node.id])
        return line.elements(lambda at: self._read(edge, at), self.domains[edge.source], build)

    def _carried(self, node: Node, edge: Edge, start: Mapping[Symbol, Expr], ahead: Expr) -> Edge:
        """A read of the plane that lies `ahead`: on a cycle, if it is further back, through a node that passes on the values of the last one.

        So no iteration reads more than the last one wrote, and XLA does not copy the store that keeps a whole table.
        """
        number, rows = self.basis.number, {row: start[row] for row in self.basis.rows}
        is_on_cycle = self.of_cycle.get(node.id, -1) == self.of_cycle.get(edge.source)
        if not is_on_cycle or abs(ahead.constant) < 2 or all(start.single_atom == row for row, start in rows.items()):
            return self._read(edge, {number: Point(number.expr + ahead)})
        last, source = (1 if ahead.constant > 0 else -1), self.source[edge.source]
        at = {**rows, number: number.expr + last}
        key = edge.source, edge.output, *at.values()
        if key not in self.carriers:
            domain = self.domains[edge.source]
            read = Edge(edge.source, identity(domain), edge.output).substitute(at)
            domain = replace(domain, condition=self._counted(inside(read, domain, {*domain.steps})))
            self.carriers[key] = self.graph.add(ops.Identity(), [read], domain=domain, where=source.where).id
        own = {row: Point(row.expr) for row in rows}
        read = self._read(edge, {**own, number: Point(number.expr + ahead - last)})
        return replace(read, source=self.carriers[key], output=0)

    def _from_outside(self, node: Node, edge: Edge) -> Edge:
        """A single point lies in its plane. For other reads, the values at all points lie in a table over the old steps."""
        by_step = edge.by_step(self.source[edge.source].domain)
        at = {step: index.expr for step in self.basis.steps if isinstance(index := by_step[step], Point) and not index.steps}
        if len(at) == len(self.basis.steps):
            return self._read(edge, {self.basis.number: Point(self.basis.plane(at))})
        key = edge.source, edge.output
        if key not in self.tables:
            self.tables[key] = self._table(*key)
        return replace(edge, source=self.tables[key], output=0)

    def _table(self, node_id: int, output: int) -> int:
        node, basis = self.source[node_id], self.basis
        domain = Domain(node.domain.steps, condition_without(node.domain.condition, *basis.steps))
        points = Domain(tuple(step for step in domain.steps if step not in basis.steps), domain.condition)
        build = Builder(self.graph, node, domain)
        ranges = {step: full_range(step) for step in (basis.number, *basis.rows)}
        every = self._read(Edge(node_id, identity(node.domain), output), ranges)
        place, size = basis.plane({step: step.expr for step in basis.steps}), basis.number.bound_expr
        for row in (step for step in self._steps(node) if step in basis.rows):
            place, size = place * row.bound_expr + row.expr, size * row.bound_expr
        flat = build.add(ops.Reshape((size, *node.outputs[output].shape)), every, domain=points)
        return build.add(ops.Gather(0), flat, build.add(ops.Eval(place))).source


def _shorter(condition: Bool) -> Bool:
    """A condition without limits that others imply: `k >= 2` for `(k >= 1) & (k >= 2)`."""
    limits = [part for part in condition.parts if isinstance(part, Comparison) and part.kind == ">="]
    return conjunction(hull(conjunction(*limits)), *(part for part in condition.parts if part not in limits))
