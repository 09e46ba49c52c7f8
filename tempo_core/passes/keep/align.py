"""Alignment: two spellings of a recurrence, `v[t] = f(v[t - 1])` and `v[t + 1] = f(v)`, give one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeGuard

from tempo_core.ir.dependence import cycle_sign, cycles, forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Merge
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.wavefront import may_have_tables
from tempo_core.passes.clean.narrow import at_points, is_bound_to_its_points
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.linear_forms import shift_of
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Align(Pass):
    """Count the points of an operation as its readers do, or as what it reads.

    Before: an operation runs at the points at which it was written. After: if all its readers are operations that read it at one distance,
    it runs at their points, so that they may be one statement. Else the latest point of a recurrence that it reads is its own. Recurrences and
    results keep their points. So do tables over two steps, which run by diagonals (`wavefront`). What reads recurrences is aligned before
    anything is vectorized; with `fed`, what they read and stays in their loops.

    Rewrite: `n[t] = f(v[t - 1]) where t >= 1; v[t] = n[t]` -> `n[t] = f(v[t]) where t + 1 < T; v[t] = n[t - 1]`
    """

    fed: bool = False
    name: str = field(default="align", init=False)

    def apply(self, graph: Graph) -> Graph:
        tables = [{*pair} for pair in combinations(graph.order, 2) if may_have_tables(graph, pair)]
        in_tables = {node.id for node in graph if any(pair <= {*node.domain.steps} for pair in tables)}
        ending = {step for steps in graph.outer().values() for step in steps}  # with what they end, each point has its own number
        for step in graph.order:
            if step.bound_symbol not in graph.ends() and step not in ending:
                graph = _aligned(graph, step, in_tables, self.fed)
        return graph


def _aligned(graph: Graph, step: Symbol, in_tables: set[int], fed: bool) -> Graph:
    moves = _moves(graph, step, in_tables, fed)
    if not moves:
        return graph
    graph = graph.copy()

    def moved(reader: Node, edge: Edge) -> Edge:
        if edge.source not in moves and not (isinstance(reader.op, Merge) and edge.condition is TRUE):
            return edge
        steps, by = graph[edge.source].domain.steps, moves.get(edge.source, 0)
        if step not in steps:
            return edge
        place = steps.index(step)
        was = edge.index[place]
        if not isinstance(was, Point):
            at: Point | Range = replace(was, start=was.start - by, stop=was.stop - by)
            return replace(edge, index=(*edge.index[:place], at, *edge.index[place + 1 :]))
        at = Point(was.expr - by)
        is_later = isinstance(reader.op, Merge) and edge.condition is TRUE and provably_nonnegative(step.expr - at.expr - 1)
        condition = at_least_zero(at.expr) if is_later else edge.condition  # what else it would read does not exist
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
    reads = [(edge, graph[edge.source].domain) for edge in node.inputs]
    shifts = [shift_of(edge, graph[edge.source], step) for edge in node.inputs if step in edge.steps]
    limits = [part.substitute({step: there}) for part in node.domain.condition.parts]
    if by < 0 or step in node.op.symbols or None in shifts:
        limits.append(at_least_zero(last - there if by > 0 else there))
    else:
        limits += [at_least_zero(last - step.expr - shift) for shift in shifts if shift]
        limits += [part.substitute(edge.points(domain)) for edge, domain in reads for part in domain.condition.parts]
    exprs = dict.fromkeys(part.expr for part in limits if _is_limit(part))
    others = [part for part in limits if not _is_limit(part)]
    least = [e for e in exprs if not any(provably_nonnegative(e - other) for other in (Expr.of(0), *exprs) if other is not e)]
    return replace(node.domain, condition=conjunction(*others, *map(at_least_zero, least)))


def _is_limit(part: Bool) -> TypeGuard[Comparison]:
    return isinstance(part, Comparison) and part.kind == ">="


def _moves(graph: Graph, step: Symbol, in_tables: set[int], fed: bool) -> dict[int, int]:
    """By how many points the numbering of each operation over a step moves."""
    users, moves = graph.users(), dict[int, int]()
    backward = (
        set[int]() if fed else {n for cycle in cycles(graph, step) if cycle_sign(graph, cycle, step) == ">" for n in cycle.nodes}
    )
    latest: dict[
        int, int | None
    ] = {}  # by node that reads recurrences: the distance of the latest point of those that run forwards
    for node in (graph[n] for n in forward_order(graph)):
        if step in node.domain:
            reads = [
                (shift_of(edge, graph[edge.source], step) or 0, latest[edge.source])
                for edge in node.inputs
                if edge.source in latest
            ]
            if isinstance(node.op, Merge):
                latest[node.id] = None if node.id in backward else 0
            elif reads:
                latest[node.id] = max((shift + at for shift, at in reads if at is not None), default=None)
    for node in (graph[n] for n in reversed(forward_order(graph))):
        stays = (node.id in latest) == fed or node.id in in_tables or is_bound_to_its_points(node.op)
        if stays or step not in node.domain:
            continue
        reads_of = [(reader, reader.inputs[slot]) for reader, slot in users[node.id]]
        distances = {_distance(node, reader, edge, step, moves) for reader, edge in reads_of}
        by = distances.pop() if len(distances) == 1 else None
        if by is None and not fed:
            by = _by_reads(node, reads_of, step, latest[node.id])
        ranges = [at for _, edge in reads_of if isinstance(at := edge.by_step(node.domain)[step], Range)]
        if by and all(provably_nonnegative(at.start - by) for at in ranges):
            moves[node.id] = by
    return moves


def _by_reads(node: Node, reads: Sequence[tuple[Node, Edge]], step: Symbol, latest: int | None) -> int:
    """By how much an operation moves so that the latest point that it reads is its own, if the recurrences that read it run forwards."""
    starts = [
        first.constant for part in node.domain.condition.parts if _is_limit(part) and (first := step.expr - part.expr).is_constant
    ]
    after = [shift_of(edge, node, step) or 0 for reader, edge in reads if isinstance(reader.op, Merge)]
    if latest is None or latest < 0:
        least = max((0, *starts))
        return least if latest is None else min(least, -latest)
    return -min(latest, max(0, -max(after, default=0)))


def _distance(node: Node, reader: Node, edge: Edge, step: Symbol, moves: dict[int, int]) -> int | None:
    """At which distance from its own point a reader reads a node; None if the reader's points do not say where to compute that."""
    shift = shift_of(edge, node, step) if step in reader.domain else None
    if is_bound_to_its_points(reader.op):
        return shift if isinstance(reader.op, Merge) and shift and shift > 0 else None  # v[t - 1] = f(v), where v runs backwards
    return None if shift is None else shift + moves.get(reader.id, 0)
