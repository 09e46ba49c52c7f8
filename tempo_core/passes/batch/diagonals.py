"""Tables along their diagonals: nodes over two steps, i (the row) and j (the column), run over k = i + j and i.

This is a change of variables: in every condition and index, j is k - i. If the rows of a table begin with the last one, as those of the
intervals from i to j do, the diagonals count from there: k = (I - 1 - i) + j. A table reads only other diagonals than its own, so it becomes a
loop over k whose points i are computed at once (`passes/batch/leading.py`). Of a diagonal, only the rows with `0 <= j < J` have a
point. At the others, vectors hold values that nothing uses.
"""

from __future__ import annotations

from dataclasses import replace

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


class Skew:
    """Rewrites `nodes` of a graph, which run over the row and the column, and all that reads them. `number` is the step that counts diagonals.

    `added` are the nodes over diagonals and rows that reads of ranges need.

    `sign` is 1 if rows count from the first one, -1 if from the last one.
    """

    def __init__(self, graph: Graph, nodes: set[int], row: Symbol, column: Symbol, sign: int):
        self.old, self.nodes, self.row, self.column, self.sign = graph, nodes, row, column, sign
        self.number = graph.fresh_step("diagonal")
        count = row.bound_expr + column.bound_expr - 1
        self.graph = graph.with_step(self.number, count, graph.order.index(row))
        self.in_rows = {column: self.number.expr - self._before(row.expr)}
        self.margins: dict[int, tuple[int, int]] = {}  # of a node: how many diagonals it lacks at the start and at the end
        self.domains: dict[int, Domain] = {}
        # Tables with limits, and those that read ranges, keep to the diagonals on which they have points.
        limits = [(graph[n].op, graph[n].domain.condition) for n in nodes]
        self.has_limits = any(
            {row, column} <= part.steps or (isinstance(op, ops.Merge) and not part.steps.isdisjoint((row, column)))
            for op, condition in limits
            for part in condition.parts
        )
        self.lines = {
            (n, e) for n in nodes for e in graph[n].inputs if e.source in nodes and is_along_line(graph, e, row, column)
        }
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
        self.added = {n.id for n in self.graph if n.id not in self.old.nodes and {self.number, self.row} <= {*n.domain.steps}}
        return self.graph

    def _margins_of_read(self, edge: Edge) -> tuple[int, int]:
        """The first and the last diagonals, on which a read would leave those of its source: the reader has no point there."""
        if edge.source not in self.nodes or distances(self.old, edge, self.row, self.column) is None:
            return 0, 0
        (low, high), diagonals = self.margins[edge.source], self._distance(edge)
        return max(low - diagonals, 0), max(high + diagonals, 0)

    def _distance(self, edge: Edge) -> int:
        rows, columns = distances(self.old, edge, self.row, self.column) or (0, 0)
        return self.sign * rows + columns

    def _before(self, row: Expr) -> Expr:
        """The number of rows before one."""
        return row if self.sign > 0 else self.row.bound_expr - 1 - row

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
        condition, column = node.domain.condition.substitute(self.in_rows), self.in_rows[self.column]
        condition = condition & self._within(self.margins[node.id]) & (column >= 0) & (column < self.column.bound_expr)
        domain = Domain(self._steps(node), condition)
        return replace(domain, condition=condition & shadow(domain, self.row)) if self.lines else domain

    def _line(self, node: Node, edge: Edge) -> Edge:
        """A read of a range along a row or a column."""
        by_step, source = edge.by_step(self.old[edge.source].domain), self.domains[edge.source]
        row, column = (by_step[step].substitute(self.in_rows) for step in (self.row, self.column))
        if isinstance(row, Range) and isinstance(column, Point):
            first, stride = self._before(row.start) + column.expr, row.stride
            line = Line(self.number, self.row, first, self.sign * stride, row.start, stride, row)
        else:
            assert isinstance(row, Point) and isinstance(column, Range)
            first = self._before(row.expr) + column.start
            line = Line(self.number, self.row, first, column.stride, row.expr, 0, column)
        return line.elements(lambda at: self._skewed(edge, at), source, Builder(self.graph, node, self.domains[node.id]))

    def _within(self, margins: tuple[int, int]) -> Bool:
        (low, high), number, last = margins, self.number.expr, self.row.bound_expr + self.column.bound_expr - 2
        return conjunction(*([number >= low] if low else []), *([last - number >= high] if high else []))

    def _steps(self, node: Node) -> tuple[Symbol, ...]:
        return step_order({*node.domain.steps, self.number} - {self.column}, self.graph.order)

    def _skewed(self, edge: Edge, at: dict[Symbol, Index]) -> Edge:
        """A read of the table with other indices `at` some steps."""
        source = self.old[edge.source]
        by_step = edge.by_step(source.domain) | at
        return replace(edge, index=tuple(by_step[step] for step in self._steps(source)))

    def _from_outside(self, edge: Edge) -> Edge:
        """A single point lies on its diagonal. For other reads, the values at all points lie in a table of rows and columns."""
        by_step = edge.by_step(self.old[edge.source].domain)
        row, column = by_step[self.row], by_step[self.column]
        if isinstance(row, Point) and isinstance(column, Point) and not row.steps | column.steps:
            return self._skewed(edge, {self.number: Point(self._before(row.expr) + column.expr)})
        key = edge.source, edge.output
        if key not in self.tables:
            self.tables[key] = self._table(*key)
        return replace(edge, source=self.tables[key], output=0)

    def _table(self, node_id: int, output: int) -> int:
        node = self.old[node_id]
        domain = Domain(node.domain.steps, condition_without(node.domain.condition, self.row, self.column))
        build = Builder(self.graph, node, domain)
        ranges: dict[Symbol, Index] = {step: full_range(step) for step in (self.number, self.row)}
        every = self._skewed(Edge(node_id, identity(domain), output), ranges)
        shape = self.number.bound_expr * self.row.bound_expr, *node.outputs[output].shape
        flat = build.add(ops.Reshape(shape), every, domain=domain.without(self.row).without(self.column))
        place = (self._before(self.row.expr) + self.column.expr) * self.row.bound_expr + self.row.expr
        return build.add(ops.Gather(0), flat, build.add(ops.Eval(place))).source


def distances(graph: Graph, edge: Edge, row: Symbol, column: Symbol) -> tuple[int, int] | None:
    """How many rows and columns after its reader an edge reads, if that is the same at all points."""
    by_step = edge.by_step(graph[edge.source].domain)
    at = [by_step.pop(step, full_range(step)) for step in (row, column)]
    after = [index.expr - step.expr for index, step in zip(at, (row, column), strict=True) if isinstance(index, Point)]
    if len(after) < 2 or not all(distance.is_constant for distance in after) or index_steps(by_step.values()) & {row, column}:
        return None
    return after[0].constant, after[1].constant


# -- before: nodes over both steps --------------------------------------------------------------------------------------


def over_both_steps(graph: Graph, nodes: set[int], row: Symbol, column: Symbol) -> Graph | None:
    """The graph with `nodes` over both steps: a node that lacks one runs at the only point of it at which they read the node.

    Reads at that point become reads at the reader's own: `x[0, j]` for `i == 0` is `x[i, j]`. None if there are several such points.
    """
    graph, users = graph.copy(), graph.users()
    places: dict[int, dict[Symbol, Expr]] = {}
    for node in (graph[n] for n in reversed(forward_order(graph)) if n in nodes):  # readers first
        places[node.id] = {}
        readers = [(graph[reader.id], slot) for reader, slot in users[node.id] if reader.id in nodes]
        for step in {row, column} - set(node.domain.steps):
            points = {fixed_point(reader.domain.condition & reader.inputs[slot].condition, step) for reader, slot in readers}
            if len(points) != 1 or (point := points.pop()) is None:
                return None
            places[node.id][step] = point
        condition = conjunction(node.domain.condition, *(equal(step.expr, at) for step, at in places[node.id].items()))
        graph.put(replace(node, domain=Domain(step_order({*node.domain.steps, row, column}, graph.order), condition)))
    for reader in graph:
        inputs = []
        for edge in reader.inputs:
            steps, index, added = graph[edge.source].domain.steps, iter(edge.index), places.get(edge.source, {})
            by_step: dict[Symbol, Index] = {step: Point(added[step]) if step in added else next(index) for step in steps}
            for step in by_step.keys() & {row, column} if reader.id in nodes else ():
                here, at = fixed_point(reader.domain.condition & edge.condition, step), by_step[step]
                distance = at.expr.substitute({step: here}) - here if here is not None and isinstance(at, Point) else step.expr
                by_step[step] = Point(step.expr + distance) if distance.is_constant else at
            inputs.append(replace(edge, index=tuple(by_step.values())))
        graph.put(reader.reading(tuple(inputs)))
    return graph


def with_carriers(
    graph: Graph, nodes: set[int], cycles: Groups[int], row: Symbol, column: Symbol, sign: int
) -> tuple[Graph, set[int]]:
    """The graph and the nodes with reads of points two diagonals away, on a cycle, through nodes that pass on the values of the last one.

    So no iteration reads more than the last one wrote, and XLA does not copy the store that keeps a whole table.
    """
    graph, carriers = graph.copy(), dict[tuple[int, int, int, int], int]()

    def carried(reader: Node, edge: Edge) -> Edge:
        rows, columns = distances(graph, edge, row, column) or (0, 0)
        diagonals, down = sign * rows + columns, sign * rows
        if cycles.of(reader.id) != cycles.of(edge.source) or not rows or abs(diagonals) < 2:
            return edge
        source, last = graph[edge.source], 1 if diagonals > 0 else -1
        key = edge.source, edge.output, rows, last
        if key not in carriers:
            domain = Domain(source.domain.steps, condition_without(source.domain.condition, row, column))
            at = {row: row.expr + rows, column: column.expr + last - down}
            read = Edge(source.id, identity(domain), edge.output).substitute(at)
            carriers[key] = graph.add(ops.Identity(), [read], domain=domain, where=source.where).id
        moved = edge.substitute({row: row.expr - rows, column: column.expr - last + down})
        return replace(moved, source=carriers[key], output=0, condition=edge.condition)

    for node in [graph[n] for n in sorted(nodes)]:
        graph.put(node.reading(tuple(carried(node, edge) for edge in node.inputs)))
    return graph, nodes | set(carriers.values())
