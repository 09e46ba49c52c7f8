"""Alignment: two spellings of a recurrence, `v[t] = f(v[t - 1])` and `v[t + 1] = f(v)`, give one program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.wavefront import may_have_tables
from tempo_core.passes.clean.narrow import around, at_points, is_bound_to_its_points
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.linear_forms import shift_of
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Align(Pass):
    """Count the points of an operation as its readers do, or from 0.

    Before: an operation runs at the points at which it was written. After: if all its readers are operations that read it at one distance,
    it runs at their points, so that they may be one statement. Else, if it begins at a later point, it is counted from 0. Recurrences and
    results keep their points. So do tables over two steps, which run by diagonals (`wavefront`). What reads recurrences is aligned before
    anything is vectorized; with `fed`, what they read and stays in their loops.

    Rewrite: `n[t] = f(v[t - 1]) where t >= 1; v[t] = n[t]` -> `n[t] = f(v[t]) where t + 1 < T; v[t] = n[t - 1]`
    """

    fed: bool = False
    name: str = field(default="align", init=False)

    def apply(self, graph: Graph) -> Graph:
        tables = [{*pair} for pair in combinations(graph.order, 2) if may_have_tables(graph, pair)]
        in_tables = {node.id for node in graph if any(pair <= {*node.domain.steps} for pair in tables)}
        for step in graph.order:
            if step.bound_symbol not in graph.ends():
                graph = _aligned(graph, step, in_tables, self.fed)
        return graph


def _aligned(graph: Graph, step: Symbol, in_tables: set[int], fed: bool) -> Graph:
    moves, graph = _moves(graph, step, in_tables, fed), graph.copy()
    places = {n: graph[n].domain.steps.index(step) for n in moves}

    def moved(reader: Node, edge: Edge) -> Edge:
        if edge.source not in moves:
            return edge
        place, by = places[edge.source], moves[edge.source]
        was = edge.index[place]
        at = Point(was.expr - by) if isinstance(was, Point) else replace(was, start=was.start - by, stop=was.stop - by)
        is_later = by > 0 and edge.condition is TRUE and isinstance(reader.op, Merge)
        condition = at_least_zero(at.expr) if is_later and isinstance(at, Point) else edge.condition
        return replace(edge, index=(*edge.index[:place], at, *edge.index[place + 1 :]), condition=condition)

    for node in [graph[n] for n in forward_order(graph)]:
        by = moves.get(node.id, 0)
        if by:
            note(node.id, "its points of {} are counted as those of its readers", step)
            node = at_points(node, {step: step.expr + by})
        node = replace(node, inputs=tuple(moved(node, edge) for edge in node.inputs))
        graph.put(replace(node, domain=_moved(graph, node, step, by)) if by else node)
    return graph


def _moved(graph: Graph, node: Node, step: Symbol, by: int) -> Domain:
    """Where an operation that moves runs: at the points that it had, and at others where all that it reads exists."""
    there, last = step.expr + by, step.bound_expr - 1
    limits = [part.substitute({step: there}) for part in node.domain.condition.parts]
    sources = [graph[edge.source] for edge in node.inputs]
    shifts = [shift_of(edge, source, step) for edge, source in zip(node.inputs, sources, strict=True) if step in edge.steps]
    if by < 0 or step in node.op.symbols or None in shifts:
        limits.append(at_least_zero(last - there if by > 0 else there))
    else:
        limits += [at_least_zero(last - step.expr - shift) for shift in shifts if shift]
        limits += [
            part.substitute(edge.points(s.domain))
            for edge, s in zip(node.inputs, sources, strict=True)
            for part in s.domain.condition.parts
        ]
    parts = list(dict.fromkeys(conjunction(*limits).parts))
    return replace(node.domain, condition=conjunction(*(part for k, part in enumerate(parts) if not _follows(part, parts, k))))


def _follows(part: Bool, parts: list[Bool], position: int) -> bool:
    """Whether a limit holds everywhere, or wherever another one does."""
    exprs = [
        Expr.of(0) if k == position else other.expr
        for k, other in enumerate(parts)
        if isinstance(other, Comparison) and other.kind == ">="
    ]
    return isinstance(part, Comparison) and part.kind == ">=" and any(provably_nonnegative(part.expr - other) for other in exprs)


def _moves(graph: Graph, step: Symbol, in_tables: set[int], fed: bool) -> dict[int, int]:
    """By how many points the numbering of each operation over a step moves."""
    users, moves = graph.users(), dict[int, int]()
    later: set[int] = set()
    for node in (graph[n] for n in forward_order(graph)):
        if step in node.domain and (isinstance(node.op, Merge) or not later.isdisjoint(edge.source for edge in node.inputs)):
            later.add(node.id)
    for node in (graph[n] for n in reversed(forward_order(graph))):
        if (
            step not in node.domain
            or (node.id in later) == fed
            or node.id in in_tables
            or is_bound_to_its_points(node.op)
            or step in around(graph, node)
        ):
            continue
        distances = {_distance(graph, reader, slot, step, moves) for reader, slot in users[node.id]}
        by = distances.pop() if len(distances) == 1 else None
        if by is None and not fed:
            starts = [
                step.expr - part.expr
                for part in node.domain.condition.parts
                if isinstance(part, Comparison) and part.kind == ">="
            ]
            by = max(first.constant for first in (*starts, Expr.of(0)) if first.is_constant)
        if by and not any(_begins_before(graph, reader.inputs[slot], step, by) for reader, slot in users[node.id]):
            moves[node.id] = by
    return moves


def _distance(graph: Graph, reader: Node, slot: int, step: Symbol, moves: dict[int, int]) -> int | None:
    """At which distance from its own point a node reads one; None if its own points do not say where to compute that."""
    edge = reader.inputs[slot]
    shift = shift_of(edge, graph[edge.source], step) if step in reader.domain else None
    if is_bound_to_its_points(reader.op):
        return shift if isinstance(reader.op, Merge) and shift and shift > 0 else None  # v[t - 1] = f(v), where v runs backwards
    return None if shift is None else shift + moves.get(reader.id, 0)


def _begins_before(graph: Graph, edge: Edge, step: Symbol, first: int) -> bool:
    """Whether an edge may read a range that begins before a point."""
    at = edge.by_step(graph[edge.source].domain)[step]
    return isinstance(at, Range) and not provably_nonnegative(at.start - first)
