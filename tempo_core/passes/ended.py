"""Recurrences that decide where a step ends stay in the loop that ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass, constant_op, operand_domains
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, identity
from tempo_core.symbolic.expr import Symbol


def after(value: Any, *ended: Any) -> tuple[Any, ...]:
    """The value. It is there after it is known whether the step has ended."""
    return (value,)


@dataclass(frozen=True)
class Ended(Pass):
    """Let the recurrences that decide where a step ends wait, at each point, for the condition at the point before.

    Before: the graph as written. After: the condition, the recurrences and all between them are on one cycle through the step, so that no
    pass computes some of them for all points at once: which points there are is known in the loop only.

    Rewrite: `h[t + 1] = f(h[t]); end(t, h[t] < 1)` -> `h[t + 1] = after(f(h[t]), ended[t + 1]); ended[t + 1] = h[t] < 1`
    """

    name: str = field(default="ended", init=False)
    effect: ClassVar[str] = "waits for the condition of the step's end at the point before"

    def apply(self, graph: Graph) -> Graph:
        ends = [node for node in graph if isinstance(node.op, ops.End)]
        graph = graph.copy() if ends else graph
        for end in ends:
            _wait(graph, end)
        return graph


def _wait(graph: Graph, end: Node) -> None:
    (step,) = end.domain.steps
    deciding = feeding(graph, [end])
    waiting = [n for n in graph if n.id in deciding and isinstance(n.op, ops.Merge) and step in n.domain and n.op.type.is_static]
    if not waiting:
        return
    ended = _ended(graph, end, step)
    for merge in waiting:
        inputs = []
        for edge, domain in zip(merge.inputs, operand_domains(merge, merge.domain), strict=True):
            op = ops.Udf(after, merge.outputs, name="after")
            node = graph.add(
                op, [replace(edge, condition=TRUE), Edge(ended.id, (Point(step.expr),))], domain=domain, where=merge.where
            )
            inputs.append(Edge(node.id, identity(domain), condition=edge.condition))
        graph.put(replace(merge, inputs=tuple(inputs)))


def _ended(graph: Graph, end: Node, step: Symbol) -> Node:
    """Whether the condition held at the point before: a recurrence over the step."""
    start = graph.add(constant_op("bool", False), (), domain=Domain(), where=end.where)
    (condition,) = end.inputs
    before = condition.substitute({step: step.expr - 1})
    branches = [Edge(start.id, (), condition=step.expr == 0), replace(before, condition=step.expr >= 1)]
    return graph.add(ops.Merge(TensorType("bool")), branches, domain=Domain((step,)), name="ended", where=end.where)


def feeding(graph: Graph, ends: Sequence[Node]) -> frozenset[int]:
    """The nodes that ends depend on."""
    stack, deciding = [end.id for end in ends], set()
    while stack:
        for edge in graph[stack.pop()].inputs:
            if edge.source not in deciding:
                deciding.add(edge.source)
                stack.append(edge.source)
    return frozenset(deciding)
