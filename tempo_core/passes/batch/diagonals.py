"""Tables by diagonals: nodes over two steps, i (the row) and j (the column), run over k = i + j with vectors for the points of a diagonal.

A diagonal of I rows and J columns has at most R = min(I, J) points, in rows that follow each other. The point of row i lies at place
i % R of the vector. So the point one row above is one place before it (the vector is rolled by one), on every diagonal.
Places where a diagonal has no point hold values that nothing uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal, repeated
from tempo_core.ir.dependence import fixed_point, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import condition_without, operand_domains, remove_dead
from tempo_core.passes.batch.batching import RULES, batched, evaluated_along
from tempo_core.passes.batch.regions import Region, regions
from tempo_core.prices import MOST_REGIONS
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, full_range, identity, index_steps, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, Symbol, minimum
from tempo_core.symbolic.isl.relation import never


class NotATable(Exception):
    """Some node cannot run by diagonals."""


class Diagonals:
    """Rewrites the nodes of some tables, and all that reads them.

    `nodes` are the nodes to rewrite; `cycles` are the sets of those that depend on each other.
    """

    def __init__(self, graph: Graph, nodes: set[int], row: Symbol, column: Symbol, cycles: Sequence[set[int]]):
        self.row, self.column, self.nodes, self.cycles = row, column, nodes, cycles
        self.old = graph
        self.fixed = self._fixed_steps()
        self._check_nodes()
        for cycle in cycles:
            self._check_order(cycle)
        number, place = _fresh(graph, "diagonal"), _fresh(graph, "place")
        self.number, self.place = number, place
        self.size = place.bound_expr
        fresh = graph.with_step(number, row.bound_expr + column.bound_expr - 1)
        self.graph = fresh.with_step(place, minimum(row.bound_expr, column.bound_expr))
        self.margins = self._margins()
        self.regions = {n: self._regions(graph[n]) for n in nodes if isinstance(graph[n].op, ops.Merge)}
        self.neighbours: dict[tuple[int, int, int], int] = {}
        self.tables: dict[int, int] = {}  # for a node, the one with its values over rows and columns, for readers outside

    def run(self) -> Graph:
        for node_id in self.nodes:  # types first: the values have one more leading dimension
            node = self.old[node_id]
            outputs = tuple(replace(type, shape=(self.size, *type.shape)) for type in node.outputs)
            self.graph.put(replace(node, domain=self._domain(node), outputs=outputs))
        self.rows, self.columns = self._coordinates()
        for node in self.old:
            if node.id in self.nodes:
                self._rewrite(node)
            elif any(edge.source in self.nodes for edge in node.inputs):
                reads = zip(node.inputs, operand_domains(node, node.domain), strict=True)
                inputs = tuple(self._read_from_outside(node, e, domain) if e.source in self.nodes else e for e, domain in reads)
                self.graph.put(replace(node, inputs=inputs))
        return remove_dead(self.graph)

    # -- what is a table ----------------------------------------------------------------------------------------------

    def _fixed_steps(self) -> dict[int, dict[Symbol, Expr]]:
        """For each node without the row (or the column), the only row at which the tables read it: `d[0, j] = f(d[0, j - 1])`."""
        fixed: dict[int, dict[Symbol, Expr]] = {n: {} for n in self.nodes}
        users = self.old.users()
        waiting = [n for n in reversed(forward_order(self.old)) if n in self.nodes]  # readers first
        for node_id in waiting:
            for step in (self.row, self.column):
                if step in self.old[node_id].domain:
                    continue
                places = {
                    self._place_of(reader, reader.inputs[slot], step, fixed)
                    for reader, slot in users[node_id]
                    if reader.id in self.nodes
                }
                if len(places) != 1 or None in places:
                    raise NotATable
                (at,) = places
                assert at is not None
                fixed[node_id][step] = at
        return fixed

    def _place_of(self, reader: Node, edge: Edge, step: Symbol, fixed: dict[int, dict[Symbol, Expr]]) -> Expr | None:
        """The only point of a step at which a reader may use an edge."""
        if step not in reader.domain:
            return fixed[reader.id].get(step)
        return fixed_point(edge.condition, step)

    def _check_nodes(self) -> None:
        """Nodes have one result, of the same shape at all points, and read the tables at points, and all else at points or fixed ranges."""
        for node in map(self.old.__getitem__, self.nodes):
            shapes = [size for type in (*node.outputs, *self.old.input_types(node)) for size in type.shape]
            if any(size.steps for size in shapes) or len(node.outputs) != 1 or not self._has_rule(node):
                raise NotATable
            if any(
                not self._lacks(part.symbols) and part.steps - {self.row, self.column} for part in node.domain.condition.parts
            ):
                raise NotATable
            for edge in node.inputs:
                if edge.source in self.nodes:
                    self._check_read(node, edge)
                elif not self._lacks(index_steps(edge.index)) and not all(isinstance(index, Point) for index in edge.index):
                    raise NotATable

    def _has_rule(self, node: Node) -> bool:
        if isinstance(node.op, ops.Merge):
            return True
        return type(node.op) in RULES and not isinstance(node.op, ops.Udf) and self._lacks(node.op.symbols)

    def _check_read(self, node: Node, edge: Edge) -> None:
        """A read of a table's node lies at a constant distance. Those of a cycle lie on other diagonals than their reader, or at its point."""
        by_step = edge.by_step(self.old[edge.source].domain)
        others = [index for step, index in by_step.items() if step not in (self.row, self.column)]
        if not all(isinstance(i, Point) for i in by_step.values()) or not self._lacks(index_steps(others)):
            raise NotATable
        rows, columns = self._distances(node, edge)
        if self._at_own_others(edge) and self._on_a_cycle(node, edge) and rows + columns == 0 and rows != 0:
            raise NotATable

    def _at_own_others(self, edge: Edge) -> bool:
        """Whether an edge reads the reader's own point along all steps but the row and the column."""
        by_step = edge.by_step(self.old[edge.source].domain)
        return all(is_own_point(index, step) for step, index in by_step.items() if step not in (self.row, self.column))

    def _check_order(self, cycle: set[int]) -> None:
        """Every way around a cycle leads to earlier diagonals, or every way to later ones. `x[i, j] = f(x[i + 1, j - 1])` does neither."""
        reads = [
            (edge.source, n, sum(self._distances(self.old[n], edge)))
            for n in cycle
            for edge in self.old[n].inputs
            if edge.source in cycle and self._at_own_others(edge)
        ]
        if not any(_all_positive(cycle, [(a, b, sign * distance) for a, b, distance in reads]) for sign in (1, -1)):
            raise NotATable

    def _on_a_cycle(self, reader: Node, edge: Edge) -> bool:
        return any(reader.id in cycle and edge.source in cycle for cycle in self.cycles)

    def _lacks(self, symbols: frozenset[Symbol]) -> bool:
        return symbols.isdisjoint((self.row, self.column))

    def _distances(self, reader: Node, edge: Edge) -> tuple[int, int]:
        """How many rows and columns a read of a table's node lies before its reader."""
        at = edge.points(self.old[edge.source].domain)
        distances = []
        for step in (self.row, self.column):
            here = self._place_of(reader, edge, step, self.fixed)
            there = at.get(step, self.fixed[edge.source].get(step))
            assert there is not None
            distance = step.expr - there
            if not distance.is_constant and here is not None:
                distance = here - there.substitute({step: here})
            if not distance.is_constant:
                raise NotATable
            distances.append(distance.constant)
        return distances[0], distances[1]

    # -- on which diagonals a node can be computed ------------------------------------------------------------------------------

    def _margins(self) -> dict[int, tuple[int, int]]:
        """For each node, the number of diagonals at the start and at the end on which it is not computed: its reads would leave the table.

        None of its points lies there, for the same reason. A `Merge` is computed on all diagonals.
        """
        margins: dict[int, tuple[int, int]] = {}
        for node_id in forward_order(self.old):
            if node_id in self.nodes:
                node = self.old[node_id]
                margins[node_id] = (0, 0) if isinstance(node.op, ops.Merge) else self._margin(node, node.inputs, margins)
        return margins

    def _margin(self, node: Node, edges: Sequence[Edge], margins: dict[int, tuple[int, int]]) -> tuple[int, int]:
        low, high = 0, 0
        for edge in edges:
            if edge.source in self.nodes:
                before = sum(self._distances(node, edge))
                low = max(low, margins[edge.source][0] + before)
                high = max(high, margins[edge.source][1] - before)
        return low, high

    def _within(self, low: int, high: int, next_low: int | None = None, next_high: int | None = None) -> Bool:
        """The diagonals from `low` (before `next_low`) to `high` from the end (no closer than `next_high`)."""
        number, left = self.number.expr, self.number.bound_expr - 1 - self.number.expr
        parts = [number >= low] if low else []
        parts += [left >= high] if high else []
        parts += [number < next_low] if next_low is not None else []
        parts += [left < next_high] if next_high is not None else []
        return conjunction(*parts)

    def _domain(self, node: Node) -> Domain:
        others = [s for s in node.domain.steps if s not in (self.row, self.column)]
        rest = condition_without(node.domain.condition, self.row, self.column)
        return Domain(step_order({*others, self.number}, self.graph.order), rest & self._within(*self.margins[node.id]))

    def _regions(self, merge: Node) -> list[Region]:
        """The regions of a `Merge`, cut further at the diagonals from which each branch can be computed."""
        by_others = regions(merge, self.row, self.column)
        if by_others is None:
            raise NotATable
        margins = [self._margin(merge, [edge], self.margins) for edge in merge.inputs]
        cut: list[Region] = []
        for region in by_others:
            lows = sorted({0, *(margins[number][0] for number, _ in region.branches)})
            highs = sorted({0, *(margins[number][1] for number, _ in region.branches)})
            for low, next_low in zip(lows, [*lows[1:], None], strict=True):
                for high, next_high in zip(highs, [*highs[1:], None], strict=True):
                    diagonals = self._within(low, high, next_low, next_high)
                    branches = [b for b in region.branches if margins[b[0]][0] <= low and margins[b[0]][1] <= high]
                    branches = [
                        b for b in branches if self._may_apply(merge, merge.inputs[b[0]].condition & region.condition, diagonals)
                    ]
                    cut.append(Region(region.condition & diagonals, tuple(branches)))
        if len(cut) > MOST_REGIONS:
            raise NotATable
        return cut

    def _may_apply(self, merge: Node, condition: Bool, diagonals: Bool) -> bool:
        """Whether a condition may hold at a point on some diagonals."""
        number, count = self.row.expr + self.column.expr, self.row.bound_expr + self.column.bound_expr - 1
        return not never(merge.domain, condition & diagonals.substitute({self.number: number, self.number.bound_symbol: count}))

    # -- nodes of the tables ----------------------------------------------------------------------------------------------------

    def _coordinates(self) -> tuple[Edge, Edge]:
        """The row and the column of each place on a diagonal.

        The row is the last one with this place that has a point on the diagonal: i = place + R * n, where i <= k and i < I.
        """
        like = self.graph[min(self.nodes)]
        build = Builder(self.graph, like, Domain((self.number,)))
        places = build.add(ops.Iota(self.size))

        def spread(value: Expr) -> Edge:
            return build.add(ops.Broadcast((self.size,), ()), build.add(ops.Eval(value)))

        def rounds(last: Expr) -> Edge:
            """The greatest n with place + R * n <= last."""
            beyond = build.add(ops.Compare("gt"), places, spread(last % self.size))
            return build.add(ops.Binary("sub"), spread(last // self.size), build.add(ops.Cast("int32"), beyond))

        count = build.add(ops.Binary("minimum"), rounds(self.number.expr), rounds(self.row.bound_expr - 1))
        rows = build.add(ops.Binary("add"), places, build.add(ops.Binary("mul"), count, spread(self.size)))
        return rows, build.add(ops.Binary("sub"), spread(self.number.expr), rows)

    def _rewrite(self, node: Node) -> None:
        domain = self._domain(node)
        build = Builder(self.graph, node, domain)
        if isinstance(node.op, ops.Merge):
            self._merge(node, build, domain)
            return
        operands = [self._value(node, edge, build) for edge in node.inputs]
        value = batched(node.op, operands, self.old.input_types(node), node.outputs, self.place, build)
        assert value is not None, "functions are not part of tables"
        final = self.graph[value.source]
        self.graph.put(replace(final, id=node.id, name=node.name, where=node.where, domain=domain))

    def _merge(self, node: Node, build: Builder, domain: Domain) -> None:
        """A selection for each region."""
        type = replace(node.outputs[0], shape=(self.size, *node.outputs[0].shape))
        edges: list[Edge] = []
        for region in self.regions[node.id]:
            inside = replace(build, domain=Domain(domain.steps, domain.condition & region.condition))
            wide = [self._wide(node, node.inputs[number], inside) for number, _ in region.branches]
            value = wide[-1] if wide else inside.add(ops.Broadcast(type.shape, ()), literal(inside, type.dtype, 0.0))
            for (_, condition), other in reversed(list(zip(region.branches[:-1], wide[:-1], strict=True))):
                test = inside.add(ops.Broadcast(type.shape, (0,)), self._vector(condition, inside))
                value = inside.add(ops.Where(), test, other, value)
            edges.append(replace(value, condition=region.condition))
        self.graph.put(replace(self.graph[node.id], op=ops.Merge(type), inputs=tuple(edges)))

    def _vector(self, value: Expr | Bool, build: Builder) -> Edge:
        """An expression or condition at the points of a diagonal. It varies with the steps that it mentions, not with all of the node's."""
        steps = step_order({self.number, *(value.steps - {self.row, self.column})}, self.graph.order)
        along = replace(build, domain=Domain(steps))
        return evaluated_along(value, self.size, {self.row: lambda: self.rows, self.column: lambda: self.columns}, along)

    def _wide(self, reader: Node, edge: Edge, build: Builder) -> Edge:
        value, leads = self._value(reader, edge, build)
        shape = (self.size, *self.old.edge_type(edge).shape)
        return value if leads else repeated(value, shape, build)

    def _value(self, reader: Node, edge: Edge, build: Builder) -> tuple[Edge, bool]:
        """The value of an operand on a diagonal, and whether it has the leading dimension for the places."""
        read = replace(edge, condition=TRUE)
        if edge.source in self.nodes:
            rows, columns = self._distances(reader, edge)
            distance = rows + columns
            if rows and distance and self._on_a_cycle(reader, edge):
                last = 1 if distance > 0 else -1
                point = self._on_diagonal(read, Point(self.number.expr - distance + last))
                return replace(point, source=self._neighbour(read, rows, last)), True
            return self._rolled(self._on_diagonal(read, Point(self.number.expr - distance)), rows, build), True
        index = list(edge.index)
        for k, step in enumerate(self.old[edge.source].domain.steps):
            here = self._place_of(reader, edge, step, self.fixed) if step in (self.row, self.column) else None
            if here is not None and index[k] == Point(here):
                index[k] = Point(step.expr)  # `c[0, j]`, read at row 0 only, is `c[i, j]`
        moving = [k for k, part in enumerate(index) if not self._lacks(part.steps)]
        return (self._gathered(replace(read, index=tuple(index)), moving, build), True) if moving else (read, False)

    def _neighbour(self, edge: Edge, rows: int, distance: int) -> int:
        """The node with the points of the last diagonal that lie so many rows before those of a diagonal.

        A point two diagonals before is read from this node's value on the last diagonal. So no iteration reads more than the
        last one wrote, and XLA does not copy the store that keeps the whole table.
        """
        key = edge.source, rows, distance
        if key not in self.neighbours:
            source = self.graph[edge.source]
            low, high = self.margins[source.id]
            rest = condition_without(source.domain.condition, self.number)
            domain = Domain(source.domain.steps, rest & self._within(max(low + distance, 0), max(high - distance, 0)))
            at = {self.number: Point(self.number.expr - distance)}
            index = tuple(at.get(step, Point(step.expr)) for step in source.domain.steps)
            build = Builder(self.graph, self.old[edge.source], domain)
            self.neighbours[key] = self._rolled(Edge(source.id, index), rows, build).source
        return self.neighbours[key]

    def _on_diagonal(self, edge: Edge, number: Index) -> Edge:
        """A read of a rewritten node at `number`, in place of its row and column."""
        source = self.old[edge.source]
        by_step = edge.by_step(source.domain) | {self.number: number}
        return replace(edge, index=tuple(by_step[step] for step in self.graph[source.id].domain.steps))

    def _rolled(self, value: Edge, rows: int, build: Builder) -> Edge:
        """The points so many rows before those of a diagonal."""
        if rows == 0:
            return value
        start = Expr.of(-rows) % self.size
        parts = build.add(ops.Slice(0, start, self.size), value), build.add(ops.Slice(0, Expr.of(0), start), value)
        return build.add(ops.Concat(0), *parts)

    def _gathered(self, edge: Edge, moving: list[int], build: Builder) -> Edge:
        """The elements of a value outside of the tables that the points of a diagonal read."""
        steps = self.old[edge.source].domain.steps
        index: list[Index] = [
            full_range(step) if k in moving else part for k, (step, part) in enumerate(zip(steps, edge.index, strict=True))
        ]
        value = replace(edge, index=tuple(index))
        place, count = Expr.of(0), Expr.of(1)
        for k in moving:
            at = edge.index[k]
            assert isinstance(at, Point)
            place, count = place * steps[k].bound_expr + at.expr, count * steps[k].bound_expr
        if len(moving) > 1:
            value = build.add(ops.Reshape((count, *self.old.edge_type(edge).shape)), value)
        return build.add(ops.Gather(0), value, self._vector(place, build))

    # -- readers outside of the tables ------------------------------------------------------------------------------------------

    def _read_from_outside(self, reader: Node, edge: Edge, domain: Domain) -> Edge:
        """A single point is taken from its diagonal. For other reads, the values at all points lie in a table of rows and columns."""
        source = self.old[edge.source]
        by_step: dict[Symbol, Index] = {step: Point(at) for step, at in self.fixed[source.id].items()}
        by_step |= edge.by_step(source.domain)
        row, column = by_step[self.row], by_step[self.column]
        if all(isinstance(part, Point) for part in edge.index) and not row.steps and not column.steps:
            assert isinstance(row, Point) and isinstance(column, Point)
            build = Builder(self.graph, reader, domain)
            diagonal = self._on_diagonal(replace(edge, condition=TRUE), Point(row.expr + column.expr))
            element = build.add(ops.Gather(0), diagonal, build.add(ops.Eval(row.expr % self.size)))
            return replace(element, condition=edge.condition)
        if source.id not in self.tables:
            self.tables[source.id] = self._table(source)
        table = self.graph[self.tables[source.id]]
        return Edge(table.id, tuple(by_step[step] for step in table.domain.steps), condition=edge.condition)

    def _table(self, source: Node) -> int:
        """The node with a table's values over its rows and columns."""
        node, order = self.graph[source.id], self.graph.order
        others = [s for s in node.domain.steps if s != self.number]
        rest = condition_without(node.domain.condition, self.number)
        build = Builder(self.graph, source, Domain(tuple(others), rest))
        computed = self._within(*self.margins[source.id])
        values = Edge(source.id, identity(node.domain))
        if computed is not TRUE:
            everywhere = Domain(node.domain.steps, rest)
            merge = self.graph.add(ops.Merge(node.outputs[0]), (), domain=everywhere, where=source.where)
            inner = replace(build, domain=Domain(everywhere.steps, rest & ~computed))
            nothing = inner.add(ops.Broadcast(node.outputs[0].shape, ()), literal(inner, node.outputs[0].dtype, 0.0))
            self.graph.put(replace(merge, inputs=(replace(values, condition=computed), nothing)))
            values = Edge(merge.id, values.index)
        index = tuple(full_range(step) if step == self.number else Point(step.expr) for step in node.domain.steps)
        shape = source.outputs[0].shape
        flat = build.add(ops.Reshape((self.number.bound_expr * self.size, *shape)), replace(values, index=index))
        every = replace(build, domain=Domain(step_order({*others, self.row, self.column}, order), rest))
        place = (self.row.expr + self.column.expr) * self.size + self.row.expr % self.size
        return every.add(ops.Gather(0), flat, every.add(ops.Eval(place))).source


def _all_positive(nodes: set[int], reads: list[tuple[int, int, int]]) -> bool:
    """Whether the distances (source, reader, distance) add up to more than 0 around every cycle: Bellman and Ford's search for one that does not."""
    scale = len(nodes) + 1  # a cycle has at most as many reads as nodes, so 1 less each makes a sum of 0 negative, and no other
    least = dict.fromkeys(nodes, 0)
    for _ in nodes:
        changed = False
        for source, reader, distance in reads:
            reached = least[source] + distance * scale - 1
            if reached < least[reader]:
                least[reader], changed = reached, True
        if not changed:
            return True
    return not any(least[source] + distance * scale - 1 < least[reader] for source, reader, distance in reads)


def _fresh(graph: Graph, name: str) -> Symbol:
    """A new step, with a name that no step or bound has."""
    names = {s.name for s in graph.order} | {b.name for b in graph.bounds()}
    count = next(n for n in range(1, len(names) + 2) if not {_numbered(name, n), _numbered(name, n).upper()} & names)
    return Symbol(_numbered(name, count), _numbered(name, count).upper())


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}{count}"
