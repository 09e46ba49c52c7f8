"""From a graph to the scheduler's input: statements with exact domains, all dependences, and points that should run close.

A node is one statement. A `Merge` is one statement per branch, because only one branch runs at a point: without the exact
regions the scheduler would see cycles that do not exist. `Input` and `Constant` are not statements: their values always exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import islpy as isl

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Constant, End, Input, Merge, Sink, Udf
from tempo_core.prices import MOST_PIECES
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, conjunction, hull
from tempo_core.symbolic.domain import Domain, Index, Point, last_needed
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, Frame, bounds_of, coalesced, dependence, domain_set


@dataclass(frozen=True, eq=False)
class Statement:
    """The unit of scheduling: a node, or branch `branch` of a `Merge`. `points` has the statement's name as tuple name."""

    name: str
    node: Node
    branch: int | None
    points: isl.Set
    is_piece: bool = False  # of a statement that was cut (`pieces.py`)

    @property
    def conditions(self) -> tuple[Bool, ...]:
        """The conditions of the statement's branch and of those before it, which decide where in its domain it runs."""
        return () if self.branch is None else tuple(edge.condition for edge in self.node.inputs[: self.branch + 1])

    @property
    def edges(self) -> tuple[tuple[int, Edge], ...]:
        """The (slot, edge) pairs that this statement reads."""
        slots = range(len(self.node.inputs)) if self.branch is None else (self.branch,)
        return tuple((slot, self.node.inputs[slot]) for slot in slots)


@dataclass(frozen=True, eq=False)
class Read:
    """An edge: `relation` leads from points of the reading statement to points of node `edge.source`, named by `value_name`."""

    reader: Statement
    slot: int
    edge: Edge
    relation: isl.Map


class Dependence(NamedTuple):
    """`relation` leads from the points of `reader` to those of `source` that they need.

    `read` is None for the order of a stateful function's calls.
    """

    reader: Statement
    source: Statement
    read: Read | None
    relation: isl.Map


def value_name(node_id: int) -> str:
    """The tuple name of a node's points, the same for all statements that compute them."""
    return f"n{node_id}"


def is_statement(node: Node) -> bool:
    return not isinstance(node.op, (Input, Constant))


@dataclass(frozen=True, eq=False)
class Constraints:
    """Everything about a graph that its schedule depends on; bounds are parameters. Statements that never run are left out."""

    graph: Graph
    bounds: tuple[Symbol, ...]  # the bounds that occur, by name: the order of isl's parameters
    statements: dict[str, Statement]
    reads: tuple[Read, ...]
    assumptions: isl.Set  # every bound is at least 1

    @cached_property
    def of_node(self) -> dict[int, tuple[Statement, ...]]:
        """The statements that compute a node."""
        statements: dict[int, tuple[Statement, ...]] = {}
        for statement in self.statements.values():
            statements[statement.node.id] = (*statements.get(statement.node.id, ()), statement)
        return statements

    def assuming(self, least: Mapping[Symbol, int], exact: bool = False) -> Constraints:
        """The same constraints for bounds that are at least `least` (with `exact`: equal to it)."""
        assumptions = self.assumptions
        for k, bound in enumerate(self.bounds):
            value = isl.Val(least[bound], CONTEXT)
            assumptions = assumptions.lower_bound_val(isl.dim_type.param, k, value)
            if exact:
                assumptions = assumptions.upper_bound_val(isl.dim_type.param, k, value)
        narrowed = [replace(s, points=s.points.intersect_params(assumptions)) for s in self.statements.values()]
        statements = {s.name: s for s in narrowed if not s.points.is_empty()}
        reads = tuple(
            replace(r, reader=statements[r.reader.name], relation=r.relation.intersect_params(assumptions))
            for r in self.reads
            if r.reader.name in statements
        )
        return Constraints(self.graph, self.bounds, statements, reads, assumptions)

    @property
    def is_simple(self) -> bool:
        """Whether no statement has its points in many pieces."""
        return all(s.points.n_basic_set() <= MOST_PIECES for s in self.statements.values())

    def around(self) -> Constraints:
        """The same constraints, for more points: a statement whose points are in many pieces gets all points around them.

        What orders those points orders the statement's own points too. isl needs seconds for statements with some ten pieces each.
        """
        statements = {s.name: _around(s) for s in self.statements.values()}
        reads = []
        for read in self.reads:
            reader, source = statements[read.reader.name], self.graph[read.edge.source]
            many = read.relation.n_basic_map() > MOST_PIECES
            relation = _relation(reader, read.edge.index, source) if many else read.relation
            reads.append(replace(read, reader=reader, relation=relation))
        return Constraints(self.graph, self.bounds, statements, tuple(reads), self.assumptions)

    def divided(self, pieces: Mapping[str, Sequence[Statement]]) -> Constraints:
        """The same constraints with statements replaced by their pieces. `pieces` holds them by the name of the whole statement."""
        statements = {p.name: p for s in self.statements.values() for p in pieces.get(s.name, (s,))}
        reads = []
        for read in self.reads:
            for piece in pieces.get(read.reader.name, (read.reader,)):
                relation = read.relation.set_tuple_name(isl.dim_type.in_, piece.name).intersect_domain(piece.points)
                reads.append(replace(read, reader=piece, relation=relation))
        return Constraints(self.graph, self.bounds, statements, tuple(reads), self.assumptions)

    def waiting(self, names: Iterable[str], last: Symbol) -> Constraints:
        """The same constraints, with statements that also wait until the run knows where a step ends."""
        waits = (_wait(self.graph, self.statements[name], last, last.expr) for name in names)
        return replace(self, reads=(*self.reads, *waits))

    def waits(self, statement: Statement, last: Symbol) -> bool:
        """Whether a statement runs only when it is known where a step ends."""
        end = self.graph.ends()[last]
        index = _condition_at(self.graph, end, last.expr)
        return any(r.reader.name == statement.name and r.edge == Edge(end.id, index) for r in self.reads)

    def between_statements(self, read: Read, relation: isl.Map) -> Iterator[tuple[Statement, isl.Map]]:
        """`relation` of a read, split by the statement that computes the source point; empty parts are left out."""
        for source in self.of_node.get(read.edge.source, ()):
            part = relation.set_tuple_name(isl.dim_type.out, source.name).intersect_range(source.points)
            if not part.is_empty():
                yield source, part

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """All dependences between statements."""
        dependences: list[Dependence] = []
        for read in self.reads:
            parts = self.between_statements(read, read.relation)
            dependences += (Dependence(read.reader, source, read, part) for source, part in parts)
        for statement in self.statements.values():
            if runs_in_order(statement.node) and statement.node.domain.steps:
                before = statement.points.lex_gt_set(statement.points)
                if not before.is_empty():
                    dependences.append(Dependence(statement, statement, None, before))
        return tuple(dependences)

    @cached_property
    def near(self) -> tuple[tuple[Statement, Statement, isl.Map], ...]:
        """(reader, source, relation): points that should run close together, one affine source point per reader point.

        Of several reads of one source only the farthest counts. With both `r[t]` and `r[t + 4]`, isl gives up on a common
        loop for reader and source, although a loop with the reader 4 iterations late suits both.
        """
        farthest: dict[tuple[str, str], tuple[float, Statement, Statement, isl.Map]] = {}
        for read in self.reads:
            index = tuple(Point(last_needed(i)) for i in read.edge.index)
            source_node = self.graph[read.edge.source]
            relation = _relation(read.reader, index, source_node)
            ahead = sum(_ahead(i.expr, s) for i, s in zip(index, source_node.domain.steps, strict=True))
            for source, part in self.between_statements(read, relation):
                key = (read.reader.name, source.name)
                if key not in farthest or ahead > farthest[key][0]:
                    farthest[key] = (ahead, read.reader, source, part)
        return tuple((reader, source, relation) for _, reader, source, relation in farthest.values())


def _ahead(point: Expr, step: Symbol) -> float:
    """How far ahead of the reader a point lies along a step; infinity for a point that does not move with the step."""
    distance = point - step.expr
    return float(distance.constant) if distance.is_constant else math.inf


def used_bounds(graph: Graph) -> frozenset[Symbol]:
    """The bounds that occur in domains, indices and conditions: a schedule needs numbers for them."""
    bounds: frozenset[Symbol] = frozenset()
    for node in graph:
        bounds |= bounds_of(node.domain, *(part for edge in node.inputs for part in (*edge.index, edge.condition)))
    return bounds


def constraints_of(graph: Graph) -> Constraints:
    """The statements of a verified graph and their reads. Raises NonAffineError."""
    bounds = tuple(sorted(used_bounds(graph), key=lambda b: b.name))
    assumptions = Frame((), bounds).box().params()
    statements: dict[str, Statement] = {}
    for node in graph:
        for statement in _statements(node):
            if not statement.points.is_empty():
                statements[statement.name] = statement
    reads: list[Read] = []
    for statement in statements.values():
        for slot, edge in statement.edges:
            source = graph[edge.source]
            if is_statement(source):
                relation = _relation(statement, edge.index, source)
                source_points = domain_set(value_name(source.id), source.domain)
                reads.append(Read(statement, slot, edge, relation.intersect_range(source_points)))
    return Constraints(graph, bounds, statements, (*reads, *_waits(graph, statements.values())), assumptions)


def _waits(graph: Graph, statements: Iterable[Statement]) -> Iterator[Read]:
    """What statements wait for, because the run finds out where a step ends: a point exists if no condition held before it.

    A statement in whose expressions the end itself stands waits for all conditions; these run in order.
    """
    for last in graph.ends():
        if last not in graph.chosen:
            continue
        for statement in statements:
            if last in statement.node.domain:
                for point in sorted(_awaited(graph, statement, last), key=str):
                    yield _wait(graph, statement, last, point)


def _wait(graph: Graph, statement: Statement, last: Symbol, point: Expr) -> Read:
    """A statement runs after the condition of the end of a step at a point."""
    end = graph.ends()[last]
    index = _condition_at(graph, end, point)
    relation = _relation(statement, index, end).intersect_range(domain_set(value_name(end.id), end.domain))
    return Read(statement, -1, Edge(end.id, index), relation)


def _condition_at(graph: Graph, end: Node, point: Expr) -> tuple[Point, ...]:
    return (*(Point(s.expr) for s in end.domain.steps[:-1]), Point(point))


def _awaited(graph: Graph, statement: Statement, last: Symbol) -> set[Expr]:
    """The last points of a step whose conditions of the end a statement waits for."""
    node, points = statement.node, set()
    uses = False if isinstance(node.op, End) else last in node.op.symbols
    for _, edge in statement.edges:
        for step, index in edge.by_step(graph[edge.source].domain).items():
            uses = uses or (step != last and last in index.symbols)
    for part in (part for condition in (node.domain.condition, *statement.conditions) for part in condition.parts):
        if last in part.symbols:
            inside = isinstance(part, Comparison) and part.kind == ">=" and last not in (part.expr - last.expr).symbols
            if inside:
                points.add(last.expr - part.expr - 1)  # type: ignore[attr-defined]
            else:
                uses = True
    return {last.expr} if uses else points


def _statements(node: Node) -> Iterator[Statement]:
    """The statements of a node."""
    if not is_statement(node):
        return
    if not isinstance(node.op, Merge):
        yield Statement(value_name(node.id), node, None, domain_set(value_name(node.id), node.domain))
        return
    earlier: Bool = TRUE  # no earlier branch holds
    for branch, edge in enumerate(node.inputs):
        name = f"{value_name(node.id)}_b{branch}"
        points = coalesced(domain_set(name, node.domain, edge.condition & earlier))
        earlier = earlier & ~edge.condition
        yield Statement(name, node, branch, points)


def at_capacity(statement: Statement, graph: Graph, ends: Mapping[Symbol, Expr] = MappingProxyType({})) -> isl.Set:
    """The points of a statement in a run that chooses the greatest bounds; or of the chosen steps, the points `ends`."""
    steps = [step for step in statement.node.domain.steps if step in graph.chosen]
    if not steps:
        return statement.points
    last = {step: ends.get(step, step.bound_expr - 1) for step in steps}
    bounds = frozenset().union(*(end.symbols for end in last.values()))
    frame = Frame(statement.node.domain.steps, bounds, statement.name)
    return statement.points.intersect(frame.condition(conjunction(*(step.expr == end for step, end in last.items()))))


def outer_domain(statement: Statement) -> Domain:
    """A domain in one piece around a statement's points."""
    domain = statement.node.domain
    branch: Bool = TRUE if statement.branch is None else statement.node.inputs[statement.branch].condition
    return Domain(domain.steps, hull(domain.condition & branch))


def _around(statement: Statement) -> Statement:
    if statement.points.n_basic_set() <= MOST_PIECES:
        return statement
    return replace(statement, points=domain_set(statement.name, outer_domain(statement)))


def _relation(reader: Statement, index: tuple[Index, ...], source: Node) -> isl.Map:
    """The points of a source that are read, which may lie outside of its domain."""
    steps = Domain(reader.node.domain.steps)
    return dependence(reader.name, steps, value_name(source.id), Domain(source.domain.steps), index).intersect_domain(
        reader.points
    )


def runs_in_order(node: Node) -> bool:
    """Whether a node's points run in lexicographic order: true for stateful functions, and for sinks, which get values in order."""
    return isinstance(node.op, Sink) or (isinstance(node.op, Udf) and node.op.stateful)
