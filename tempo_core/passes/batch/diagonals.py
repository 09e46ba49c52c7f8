"""Tables along their diagonals: nodes over several steps, say i (a row) and j (the column), run over k = i + j and i.

This is a change of variables: in every condition and index, j is k - i; with more rows, k minus all of them. If the rows of a table begin
with the last one, as those of the intervals from i to j do, the diagonals count from there: k = (I - 1 - i) + j. A table reads only other
diagonals than its own, so it becomes a loop over k whose points i are computed at once (`passes/batch/leading.py`). Of a diagonal, only
the rows with `0 <= j < J` have a point. At the others, vectors hold values that nothing uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.dependence import fixed_point, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import condition_without
from tempo_core.passes.batch.lines import Line, is_along_line
from tempo_core.passes.clean.narrow import at_points
from tempo_core.symbolic.condition import TRUE, Bool, conjunction, equal
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, identity, index_steps, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.groups import Groups
from tempo_core.symbolic.isl.relation import shadow


@dataclass(frozen=True)
class Diagonals:
    """The steps of a table, the rows first and the column last. A sign is 1 if a row counts from the first one, -1 if from the last one."""

    rows: tuple[Symbol, ...]
    column: Symbol
    signs: tuple[int, ...]

    @property
    def steps(self) -> tuple[Symbol, ...]:
        return *self.rows, self.column

    def across(self, distances: Sequence[int]) -> int:
        """How many diagonals after its reader a read at these distances along the steps lies."""
        return sum(sign * distance for sign, distance in zip((*self.signs, 1), distances, strict=True))

    def before(self, rows: Iterable[Expr]) -> Expr:
        """The number of the diagonal of these rows and the first column."""
        signed = zip(rows, self.signs, self.rows, strict=True)
        return sum((at if sign > 0 else row.bound_expr - 1 - at for at, sign, row in signed), Expr.of(0))


class Skew:
    """Rewrites `nodes` of a graph, which run over the steps of `by`, and all that reads them. `number` is the step that counts diagonals.

    `added` are the nodes over diagonals and rows that reads of ranges need.
    """

    def __init__(self, graph: Graph, nodes: set[int], by: Diagonals):
        self.old, self.nodes, self.by = graph, nodes, by
        self.number = graph.fresh_step("diagonal")
        self.last = sum((step.bound_expr - 1 for step in by.steps), Expr.of(0))
        self.graph = graph.with_step(self.number, self.last + 1, min(map(graph.order.index, by.rows)))
        self.in_rows = {by.column: self.number.expr - by.before(row.expr for row in by.rows)}
        self.margins: dict[int, tuple[int, int]] = {}  # of a node: how many diagonals it lacks at the start and at the end
        self.domains: dict[int, Domain] = {}
        # Tables with limits, and those that read ranges, keep to the diagonals on which they have points.
        limits = [(graph[n].op, graph[n].domain.condition) for n in nodes]
        self.has_limits = any(
            len(along := part.steps.intersection(by.steps)) > 1 or (isinstance(op, ops.Merge) and along)
            for op, condition in limits
            for part in condition.parts
        )
        self.lines = {(n, e) for n in nodes for e in graph[n].inputs if e.source in nodes and is_along_line(graph, e, by.steps)}
        self.tables: dict[tuple[int, int], int] = {}  # for an output of a node, the node with its values over rows and columns

    def run(self) -> Graph:
        """The rewritten graph. Raises NonAffineError if it is not known which diagonals a read of a range needs."""
        for node in map(self.old.__getitem__, forward_order(self.old)):
            if node.id in self.nodes:
                reads = [] if isinstance(node.op, ops.Merge) else [self._margins_of_read(edge) for edge in node.inputs]
                self.margins[node.id] = max((low for low, _ in reads), default=0), max((high for _, high in reads), default=0)
                self.domains[node.id] = self._domain(node)
        for node in self.old:
            if node.id in self.nodes:
                self._skew(node)
            elif any(edge.source in self.nodes for edge in node.inputs):
                edges = (self._from_outside(edge) if edge.source in self.nodes else edge for edge in node.inputs)
                self.graph.put(node.reading(tuple(edges)))
        self.added = {
            n.id for n in self.graph if n.id not in self.old.nodes and {self.number, *self.by.rows} <= {*n.domain.steps}
        }
        return self.graph

    def _margins_of_read(self, edge: Edge) -> tuple[int, int]:
        """The first and the last diagonals, on which a read would leave those of its source: the reader has no point there."""
        if edge.source not in self.nodes or distances(self.old, edge, self.by.steps) is None:
            return 0, 0
        (low, high), diagonals = self.margins[edge.source], self._distance(edge)
        return max(low - diagonals, 0), max(high + diagonals, 0)

    def _distance(self, edge: Edge) -> int:
        return self.by.across(distances(self.old, edge, self.by.steps) or [0] * len(self.by.steps))

    def _skew(self, node: Node) -> None:
        inputs = []
        for edge in node.inputs:
            within = self._within(self._margins_of_read(edge)) if isinstance(node.op, ops.Merge) else TRUE
            if (node.id, edge) in self.lines:
                edge = self._line(node, edge)
            elif edge.source in self.nodes:
                edge = self._skewed(edge, {self.number: Point(self.number.expr + self._distance(edge))})
            inputs.append(replace(edge, condition=edge.condition & within))
        self.graph.put(replace(at_points(node.reading(tuple(inputs)), self.in_rows), domain=self.domains[node.id]))

    def _domain(self, node: Node) -> Domain:
        """The points of a node. If ranges are read, a node without rows keeps to the diagonals on which some row has a point."""
        condition, column = node.domain.condition.substitute(self.in_rows), self.in_rows[self.by.column]
        condition = condition & self._within(self.margins[node.id]) & (column >= 0) & (column < self.by.column.bound_expr)
        domain = Domain(self._steps(node), condition)
        return replace(domain, condition=condition & shadow(domain, self.by.rows[0])) if self.lines else domain

    def _line(self, node: Node, edge: Edge) -> Edge:
        """A read of a range along a row or a column."""
        by_step, source = edge.by_step(self.old[edge.source].domain), self.domains[edge.source]
        row, column = (by_step[step].substitute(self.in_rows) for step in self.by.steps)
        ((rows, sign),) = zip(self.by.rows, self.by.signs, strict=True)
        if isinstance(row, Range) and isinstance(column, Point):
            first, stride = self.by.before([row.start]) + column.expr, row.stride
            line = Line(self.number, rows, first, sign * stride, row.start, stride, row)
        else:
            assert isinstance(row, Point) and isinstance(column, Range)
            first = self.by.before([row.expr]) + column.start
            line = Line(self.number, rows, first, column.stride, row.expr, 0, column)
        return line.elements(lambda at: self._skewed(edge, at), source, Builder(self.graph, node, self.domains[node.id]))

    def _within(self, margins: tuple[int, int]) -> Bool:
        (low, high), number = margins, self.number.expr
        return conjunction(*([number >= low] if low else []), *([self.last - number >= high] if high else []))

    def _steps(self, node: Node) -> tuple[Symbol, ...]:
        return step_order({*node.domain.steps, self.number} - {self.by.column}, self.graph.order)

    def _skewed(self, edge: Edge, at: dict[Symbol, Index]) -> Edge:
        """A read of the table with other indices `at` some steps."""
        source = self.old[edge.source]
        by_step = edge.by_step(source.domain) | at
        return replace(edge, index=tuple(by_step[step] for step in self._steps(source)))

    def _from_outside(self, edge: Edge) -> Edge:
        """A single point lies on its diagonal. For other reads, the values at all points lie in a table of rows and columns."""
        by_step = edge.by_step(self.old[edge.source].domain)
        at = [by_step[step] for step in self.by.steps]
        points = [index.expr for index in at if isinstance(index, Point) and not index.steps]
        if len(points) == len(at):
            return self._skewed(edge, {self.number: Point(self.by.before(points[:-1]) + points[-1])})
        key = edge.source, edge.output
        if key not in self.tables:
            self.tables[key] = self._table(*key)
        return replace(edge, source=self.tables[key], output=0)

    def _table(self, node_id: int, output: int) -> int:
        node, rows = self.old[node_id], [row.expr for row in self.by.rows]
        domain = Domain(node.domain.steps, condition_without(node.domain.condition, *self.by.steps))
        build = Builder(self.graph, node, domain)
        ranges: dict[Symbol, Index] = {step: full_range(step) for step in (self.number, *self.by.rows)}
        every = self._skewed(Edge(node_id, identity(domain), output), ranges)
        place, size = self.by.before(rows) + self.by.column.expr, self.number.bound_expr
        for row in (step for step in self._steps(node) if step in self.by.rows):
            place, size = place * row.bound_expr + row.expr, size * row.bound_expr
        points = Domain(tuple(step for step in domain.steps if step not in self.by.steps), domain.condition)
        flat = build.add(ops.Reshape((size, *node.outputs[output].shape)), every, domain=points)
        return build.add(ops.Gather(0), flat, build.add(ops.Eval(place))).source


def distances(graph: Graph, edge: Edge, steps: Sequence[Symbol]) -> list[int] | None:
    """How far after its reader along each of some steps an edge reads, if that is the same at all points."""
    by_step = edge.by_step(graph[edge.source].domain)
    at = [by_step.pop(step, None) for step in steps]
    after = [index.expr - step.expr for index, step in zip(at, steps, strict=True) if isinstance(index, Point)]
    if len(after) < len(at) or not all(distance.is_constant for distance in after):
        return None
    return None if index_steps(by_step.values()) & {*steps} else [distance.constant for distance in after]


# -- before: nodes over all steps ---------------------------------------------------------------------------------------


def over_all_steps(graph: Graph, nodes: set[int], table: Sequence[Symbol]) -> Graph | None:
    """The graph with `nodes` over all steps of a table: a node that lacks one runs at the only point of it at which they read the node.

    Reads at that point become reads at the reader's own: `x[0, j]` for `i == 0` is `x[i, j]`. None if there are several such points.
    """
    graph, users = graph.copy(), graph.users()
    places: dict[int, dict[Symbol, Expr]] = {}
    for node in (graph[n] for n in reversed(forward_order(graph)) if n in nodes):  # readers first
        places[node.id] = {}
        readers = [(graph[reader.id], slot) for reader, slot in users[node.id] if reader.id in nodes]
        for step in {*table} - {*node.domain.steps}:
            points = {fixed_point(reader.domain.condition & reader.inputs[slot].condition, step) for reader, slot in readers}
            if len(points) != 1 or (point := points.pop()) is None:
                return None
            places[node.id][step] = point
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


def with_carriers(graph: Graph, nodes: set[int], cycles: Groups[int], by: Diagonals) -> tuple[Graph, set[int]]:
    """The graph and the nodes with reads of points two diagonals away, on a cycle, through nodes that pass on the values of the last one.

    So no iteration reads more than the last one wrote, and XLA does not copy the store that keeps a whole table.
    """
    graph, carriers = graph.copy(), dict[tuple[object, ...], int]()

    def carried(reader: Node, edge: Edge) -> Edge:
        *rows, columns = distances(graph, edge, by.steps) or [0] * len(by.steps)
        diagonals, down = by.across([*rows, columns]), by.across([*rows, 0])
        if cycles.of(reader.id) != cycles.of(edge.source) or not any(rows) or abs(diagonals) < 2:
            return edge
        source, last = graph[edge.source], 1 if diagonals > 0 else -1
        key = edge.source, edge.output, *rows, last
        if key not in carriers:
            domain = Domain(source.domain.steps, condition_without(source.domain.condition, *by.steps))
            at = {row: row.expr + distance for row, distance in zip(by.rows, rows, strict=True)}
            read = Edge(source.id, identity(domain), edge.output).substitute(at | {by.column: by.column.expr + last - down})
            carriers[key] = graph.add(ops.Identity(), [read], domain=domain, where=source.where).id
        at = {row: row.expr - distance for row, distance in zip(by.rows, rows, strict=True)}
        moved = edge.substitute(at | {by.column: by.column.expr - last + down})
        return replace(moved, source=carriers[key], output=0, condition=edge.condition)

    for node in [graph[n] for n in sorted(nodes)]:
        graph.put(node.reading(tuple(carried(node, edge) for edge in node.inputs)))
    return graph, nodes | set(carriers.values())
