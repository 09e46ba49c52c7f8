"""Dead points: an operation does not run at points of a step that no result needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import reached
from tempo_core.ir.graph import Graph, Node
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.passes.keep.needed import Interval, must_run, needed_points, read_points
from tempo_core.prices import MOST_PIECES, copy_weight
from tempo_core.symbolic.condition import Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Trim(Pass):
    """Compute values of a step only between the first and the last point that is needed for a result.

    If only `h[5]` is a result, its recurrence ends there. If only `h[0]` is one, the recurrence is not needed at all.

    In `x[t + 1] = f(x)`, f(x) is needed up to T - 2. (An end that is a number of points before that counts as T - 2 too.) If f(x) is not
    computed at the last point, the last iteration runs a part of the body, which is compiled a second time. So f(x) is only trimmed
    if little other work is needed at the last point, or if it is an update: the value before it would be copied in each iteration, as
    the last one needs it. It is not trimmed if a run finds out the end of the step.

    Rewrite: `y[t] = g(x[t]); x[t + 1] = f(y[t], u[t + 1])` -> the same with `y` over `t where t <= T - 2`
    """

    name: str = field(default="trim", init=False)

    def apply(self, graph: Graph) -> Graph:
        for step in graph.order:
            graph = _trimmed(graph, step)
        return graph


def _trimmed(graph: Graph, step: Symbol) -> Graph:
    intervals = needed_points(graph, step)
    conditions = _far_ends(graph, step, intervals)
    if len(set(conditions.values())) > MOST_PIECES:  # then these nodes run at all points, and read what they read there
        whole = Interval(Expr.of(0), step.bound_expr - 1)
        intervals = {node_id: whole if node_id in conditions else interval for node_id, interval in intervals.items()}
        conditions = {}
    ends = step.bound_symbol in graph.ends()  # then no iteration knows that it is the last one before it looks at the condition
    near = {} if ends else _before_last(graph, step, intervals)
    graph = graph.copy()
    for node in graph:
        if step not in node.domain or must_run(node):
            continue
        part = conditions.get(node.id, near.get(node.id))
        if part is not None:
            note(node.id, "computed only where {}: no result needs its other points", part)
            node = replace(node, domain=Domain(node.domain.steps, node.domain.condition & part))
        if isinstance(node.op, ops.Merge):
            interval = intervals.get(node.id)
            read = tuple(
                e for e in node.inputs if step not in graph[e.source].domain or read_points(graph, node, e, step, interval)
            )
            node = replace(node, inputs=read) if len(read) < len(node.inputs) else node
        graph.put(node)
    return remove_dead(graph)


def _far_ends(graph: Graph, step: Symbol, intervals: Mapping[int, Interval]) -> dict[int, Bool]:
    """The conditions on nodes whose needed points end far before the end of the step, or begin far after its start.

    A distance is far if it depends on a bound, as for `h[5]`, `h[T // 2]`, and a start at T - 5.
    """
    conditions: dict[int, Bool] = {}
    for node_id, interval in intervals.items():
        parts = []
        if not (step.bound_expr - interval.last).is_constant:
            parts.append(at_least_zero(interval.last - step.expr))
        if not interval.first.is_constant:
            parts.append(at_least_zero(step.expr - interval.first))
        if parts and not must_run(graph[node_id]):
            conditions[node_id] = conjunction(*parts)
    return conditions


def _before_last(graph: Graph, step: Symbol, intervals: Mapping[int, Interval]) -> dict[int, Bool]:
    """The condition `t <= T - 2` on the nodes that are not needed at the last point, if they are most of the work there."""
    before_last = at_least_zero(step.bound_expr - 2 - step.expr)
    unneeded: set[int] = set()
    recurrences = [node.id for node in graph if isinstance(node.op, ops.Merge) and step in node.domain]
    later = reached(recurrences, graph.reader_ids().__getitem__)  # what they only read may run in a loop of its own
    left = 0
    for node_id, interval in intervals.items():
        node = graph[node_id]
        if must_run(node):
            continue
        if (step.bound_expr - interval.last).is_constant and provably_nonnegative(step.bound_expr - 2 - interval.last):
            unneeded.add(node_id)
        elif node_id in later and not any(_implies(node.domain.condition, part) for part in (before_last, step.expr - 1 >= 0)):
            # What begins at the second point runs in a rotated loop, without a copy (`schedule/loop_parts.py`).
            left += copy_weight(node.op)
    if 4 * left > sum(copy_weight(graph[n].op) for n in unneeded):
        unneeded = {n for n in unneeded if isinstance(graph[n].op, ops.Update)}
    return dict.fromkeys((n for n in unneeded if not _moves_on(graph, graph[n], step, unneeded)), before_last)


def _moves_on(graph: Graph, node: Node, step: Symbol, unneeded: set[int]) -> bool:
    """Whether a node is a recurrence that takes over values of earlier points. One more move costs less than a condition on each."""
    if not isinstance(node.op, ops.Merge):
        return False
    whole = Interval(Expr.of(0), step.bound_expr - 1)
    for edge in node.inputs:
        read = read_points(graph, node, edge, step, whole) if edge.source in unneeded else None
        if read is not None and not provably_nonnegative(step.bound_expr - 2 - read.last):
            return False
    return True


def _facts(condition: Bool) -> list[Expr]:
    """Expressions that are not negative where a condition holds."""
    return [part.expr for part in condition.parts if isinstance(part, Comparison) and part.kind == ">="]


def _implies(condition: Bool, conclusion: Bool) -> bool:
    assert isinstance(conclusion, Comparison)
    return any(provably_nonnegative(conclusion.expr - fact) for fact in _facts(condition))
