"""Dead points: the last point of a step goes from the domains of operations that nobody reads there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Pass
from tempo_core.symbolic.condition import Bool, Comparison
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative

KEPT = (ops.Input, ops.Constant, ops.Output, ops.Sink)
CHEAP = (ops.Merge, ops.Eval, ops.Iota, ops.Broadcast, ops.Gather, ops.Reshape, ops.Identity, ops.Cast, ops.Constant)
HEAVY = (ops.Dot, ops.Conv, ops.Udf, ops.Argsort)


@dataclass(frozen=True)
class Trim(Pass):
    """Do not compute at a step's last point what is only needed before it.

    `x[t + 1] = f(x)` needs f(x) up to T - 2, and where it reads an input at t + 1, it is known not to exist at T - 1. What it
    is made of is then not needed there either, unless something else reads it: without this pass the last iteration, which
    runs a part of the body, would be compiled apart from the loop. Steps where much stays needed at the last point are left
    alone, because there the cut would have to be made for what is trimmed.

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
    left = sum(_weight(n) for n in candidates if n.id not in unneeded and not _implies(n.domain.condition, before_last))
    if 4 * left > sum(_weight(graph[n]) for n in unneeded):
        return graph
    graph = graph.copy()
    for node_id in unneeded:
        node = graph[node_id]
        graph.put(replace(node, domain=Domain(node.domain.steps, node.domain.condition & before_last)))
    return graph


def _must_run(node: Node) -> bool:
    return isinstance(node.op, KEPT) or (isinstance(node.op, ops.Udf) and (node.op.stateful or node.op.kind == "host"))


def _weight(node: Node) -> int:
    """What a second copy of a node costs, roughly."""
    return 0 if isinstance(node.op, CHEAP) else 10 if isinstance(node.op, HEAVY) else 1


def _ends_before(graph: Graph, reader: Node, edge: Edge, step: Symbol, trimmed: bool) -> bool:
    """Whether a read stays below the last point of the step, for a reader that is itself trimmed or not."""
    index = edge.index[graph[edge.source].domain.steps.index(step)]
    last = index.expr if isinstance(index, Point) else index.last
    distance = step.bound_expr - 2 - last
    known = [Expr.of(0), *_facts(reader.domain.condition), *_facts(edge.condition)]
    if trimmed and step in reader.domain:
        known.append(step.bound_expr - 2 - step.expr)
    return any(provably_nonnegative(distance - fact) for fact in known)


def _facts(condition: Bool) -> list[Expr]:
    """Expressions that are not negative where a condition holds."""
    return [part.expr for part in condition.parts if isinstance(part, Comparison) and part.kind == ">="]


def _implies(condition: Bool, wanted: Bool) -> bool:
    assert isinstance(wanted, Comparison)
    return any(provably_nonnegative(wanted.expr - fact) for fact in _facts(condition))
