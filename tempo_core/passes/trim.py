"""Dead points: an operation that nobody reads at the last point of a step does not run there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Pass
from tempo_core.prices import copy_weight
from tempo_core.symbolic.condition import Bool, Comparison
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative

NEVER_TRIMMED = (ops.Input, ops.Constant, ops.Output, ops.Sink)


@dataclass(frozen=True)
class Trim(Pass):
    """Do not compute a value at a step's last point if it is only needed before that point.

    In `x[t + 1] = f(x)`, f(x) is needed up to T - 2. If f reads an input at t + 1, its domain says so: it does not exist at
    T - 1. Its operands are then not needed at T - 1 either, unless something else reads them. Without this pass, the last
    iteration would run a part of the body, and would be compiled apart from the loop. A step is left alone if much of its
    work is needed at the last point: there, the trimmed operations would be the reason for a second copy of the body.

    Rewrite: `y[t] = g(x[t]); x[t + 1] = f(y[t], u[t + 1])` -> the same with `y` over `t where t <= T - 2`
    """

    name: str = field(default="trim", init=False)

    def apply(self, graph: Graph) -> Graph:
        for step in graph.order:
            graph = _trimmed(graph, step)
        return graph


def _trimmed(graph: Graph, step: Symbol) -> Graph:
    before_last = step.bound_expr - 2 - step.expr >= 0
    candidates = [n for n in graph if step in n.domain and not _must_run(n)]
    if not any(_implies(n.domain.condition, before_last) for n in candidates):
        return graph
    unneeded = {n.id for n in candidates}
    changed = True
    while changed:
        changed = False
        for reader in graph:
            for edge in reader.inputs:
                if edge.source in unneeded and not _ends_before(graph, reader, edge, step, reader.id in unneeded):
                    unneeded.discard(edge.source)
                    changed = True
    left = sum(copy_weight(n) for n in candidates if n.id not in unneeded and not _implies(n.domain.condition, before_last))
    if 4 * left > sum(copy_weight(graph[n]) for n in unneeded):
        return graph
    graph = graph.copy()
    for node_id in unneeded:
        node = graph[node_id]
        graph.put(replace(node, domain=Domain(node.domain.steps, node.domain.condition & before_last)))
    return graph


def _must_run(node: Node) -> bool:
    return isinstance(node.op, NEVER_TRIMMED) or (isinstance(node.op, ops.Udf) and (node.op.stateful or node.op.kind == "host"))


def _ends_before(graph: Graph, reader: Node, edge: Edge, step: Symbol, trimmed: bool) -> bool:
    """Whether a read stays below the last point of the step, for a reader that is itself trimmed or not."""
    index = edge.index[graph[edge.source].domain.steps.index(step)]
    last = index.expr if isinstance(index, Point) else index.last
    distance = step.bound_expr - 2 - last
    limits = [Expr.of(0), *_facts(reader.domain.condition), *_facts(edge.condition)]
    if trimmed and step in reader.domain:
        limits.append(step.bound_expr - 2 - step.expr)
    return any(provably_nonnegative(distance - fact) for fact in limits)


def _facts(condition: Bool) -> list[Expr]:
    """Expressions that are not negative where a condition holds."""
    return [part.expr for part in condition.parts if isinstance(part, Comparison) and part.kind == ">="]


def _implies(condition: Bool, conclusion: Bool) -> bool:
    assert isinstance(conclusion, Comparison)
    return any(provably_nonnegative(conclusion.expr - fact) for fact in _facts(condition))
