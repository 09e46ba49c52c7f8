"""Needed points: the interval of a step in which each node is needed, computed from the results back to what they read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.symbolic.condition import Bool, limit_of
from tempo_core.symbolic.domain import Domain, Index, Point, is_own_point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import maximum_over, minimum_over
from tempo_core.symbolic.proof import provably_nonnegative

MOST_ROUNDS = 4  # an end that moves in a later round becomes the end of the step: a recurrence needs all earlier points


@dataclass(frozen=True)
class Interval:
    """The points `first <= t <= last` of a step, in bounds."""

    first: Expr
    last: Expr

    def is_same(self, other: Interval) -> bool:
        return self is other or (self.first.terms == other.first.terms and self.last.terms == other.last.terms)

    def joined(self, other: Interval, step: Symbol) -> Interval:
        """The least interval around both; up to the ends of the step where no order is provable."""
        if self.is_same(other):
            return self
        ends = step.bound_expr - 1
        return Interval(-_greatest(-self.first, -other.first, Expr.of(0)), _greatest(self.last, other.last, ends))

    def widened(self, other: Interval, whole: Interval) -> Interval:
        """`other`, in which an end that differs from this interval's is moved to the end of the step."""
        first = other.first if other.first.terms == self.first.terms else whole.first
        return Interval(first, other.last if other.last.terms == self.last.terms else whole.last)


def _greatest(a: Expr, b: Expr, otherwise: Expr) -> Expr:
    if provably_nonnegative(a - b):
        return a
    return b if provably_nonnegative(b - a) else otherwise


def needed_points(graph: Graph, step: Symbol) -> dict[int, Interval]:
    """By node over `step`, an interval that contains all its needed points. Nodes that nothing reads are left out."""
    whole = Interval(Expr.of(0), step.bound_expr - 1)
    intervals = {node.id: whole for node in graph if step in node.domain and must_run(node)}
    order = [graph[node_id] for node_id in reversed(forward_order(graph))]
    moved = {node.id for node in graph if step not in node.domain} | set(intervals)  # the readers whose sources may need more
    for rounds in range(3 * MOST_ROUNDS):
        readers, moved = moved, set()
        for reader in order:
            if reader.id not in readers and reader.id not in moved:
                continue
            for edge in reader.inputs:
                source = graph[edge.source]
                old = intervals.get(source.id)
                if old is whole or step not in source.domain:
                    continue
                interval = read_points(graph, reader, edge, step, intervals.get(reader.id))
                if interval is None:
                    continue
                if old is not None:
                    interval = old.joined(interval, step)
                    interval = old.widened(interval, whole) if rounds >= MOST_ROUNDS else interval
                if old is None or not interval.is_same(old):
                    intervals[source.id] = whole if interval.is_same(whole) else interval
                    moved.add(source.id)
        if not moved:
            return intervals
    return {node.id: whole for node in graph if step in node.domain}


def must_run(node: Node) -> bool:
    """Whether a node runs at all its points, read or not."""
    always = isinstance(node.op, (ops.Input, ops.Constant, ops.Output, ops.Sink))
    return always or (isinstance(node.op, ops.Udf) and (node.op.stateful or node.op.kind == "host"))


def read_points(graph: Graph, reader: Node, edge: Edge, step: Symbol, interval: Interval | None) -> Interval | None:
    """The points of a source that a reader needs along the step, if the reader runs at the points of `interval`. None for none."""
    index = edge.index[graph[edge.source].domain.steps.index(step)]
    return _read_points(reader.domain, edge.condition, index, step, interval)


@functools.lru_cache(maxsize=65536)
def _read_points(domain: Domain, condition: Bool, index: Index, step: Symbol, interval: Interval | None) -> Interval | None:
    """As `read_points`, for a reader over `domain` that reads under a condition. Many nodes of a program read in the same way."""
    if interval is not None:
        interval = _narrowed(interval, (*domain.condition.parts, *condition.parts), step)
        if provably_nonnegative(interval.first - interval.last - 1):
            return None
    if interval is not None and is_own_point(index, step):
        return interval
    start, stop = (index.expr, index.expr) if isinstance(index, Point) else (index.start, index.last)
    end = step.bound_expr - 1
    first = _at(start, domain, step, interval, minimum_over, Expr.of(0))
    last = _at(stop, domain, step, interval, maximum_over, end)
    if provably_nonnegative(-1 - last) or provably_nonnegative(first - step.bound_expr):
        return None
    return Interval(Expr.of(0) if provably_nonnegative(-first) else first, end if provably_nonnegative(last - end) else last)


def _at(
    expr: Expr, domain: Domain, step: Symbol, interval: Interval | None, extreme: Callable[[Expr, Domain], Expr], otherwise: Expr
) -> Expr:
    """The extreme value of an index over a reader's needed points; `otherwise` if no formula gives it."""
    if not expr.steps:
        return expr
    if interval is not None and not (expr - step.expr).steps:
        return expr.substitute({step: interval.first if extreme is minimum_over else interval.last})
    try:
        return extreme(expr, domain)
    except NonAffineError:
        return otherwise


def _narrowed(interval: Interval, parts: tuple[Bool, ...], step: Symbol) -> Interval:
    """The interval, without the points at its ends that conditions exclude."""
    first, last = interval.first, interval.last
    for part in parts:
        kind, limit = limit_of(part, step) or ("", first)
        if kind in (">=", "=="):
            first = _greatest(first, limit, first)
        if kind in ("<=", "=="):
            last = -_greatest(-last, -limit, -last)
    narrowed = Interval(first, last)
    return interval if narrowed.is_same(interval) else narrowed
