"""Recurrences that decide where a step ends stay in the loop that ends."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.builder import constant_op
from tempo_core.ir.dependence import deciding
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import innermost
from tempo_core.passes.base import Pass, operand_domains
from tempo_core.passes.decisions import note
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, identity
from tempo_core.symbolic.expr import Symbol


def after(value: Any, *ended: Any) -> tuple[Any, ...]:
    """The value. It is there after it is known whether the step has ended."""
    return (value,)


@dataclass(frozen=True)
class Ended(Pass):
    """Let what decides where a step ends wait, at each point, for the condition at the point before: recurrences, and values of functions
    that are called one by one.

    Before: the graph as written. After: the condition, the recurrences and all between them are on one cycle through the step, so that no
    pass computes some of them for all points at once: which points there are is known in the loop only.

    Rewrite: `h[t + 1] = f(h[t]); end(t, h[t] < 1)` -> `h[t + 1] = after(f(h[t]), ended[t + 1]); ended[t + 1] = h[t] < 1`
    """

    name: str = field(default="ended", init=False)

    def apply(self, graph: Graph) -> Graph:
        ends = [node for node in graph if isinstance(node.op, ops.End)]
        graph = graph.copy() if ends else graph
        for end in ends:
            _wait(graph, end)
        for bound in graph.outer():
            step = graph.ends()[bound].domain.steps[-1]
            for node in [n for n in graph if bound in n.symbols and step not in n.domain]:
                if all(type.is_static and type.substitute({bound: 1}) == type for type in node.outputs):
                    _stay(graph, node)
        return graph


def _wait(graph: Graph, end: Node) -> None:
    *_, step = end.domain.steps
    before = deciding(graph, end)
    over = [
        n
        for n in graph
        if n.id in before and set(end.domain.steps) <= set(n.domain.steps) and all(type.is_static for type in n.outputs)
    ]
    merges = [n for n in over if isinstance(n.op, ops.Merge)]
    functions = [n for n in over if isinstance(n.op, ops.Udf) and n.op.stateful]
    if not merges and not functions:
        return
    ended = _ended(graph, end, step)
    for node in (*merges, *functions):
        note(node.id, "waits for the condition of the end of {} at the point before", step)
    at_point = Edge(ended.id, identity(end.domain))
    for function in functions:  # those of streamed inputs are among them: their values come one by one
        _wait_for_values(graph, function, at_point, before | {end.id, ended.id})
    for merge in (graph[each.id] for each in merges):
        reads = zip(merge.inputs, operand_domains(merge, merge.domain), strict=True)
        graph.put(merge.reading(tuple(_waiting(graph, merge, edge, at_point, domain) for edge, domain in reads)))


def _stay(graph: Graph, node: Node) -> None:
    """Let readers at other points of the outer steps read a value that uses an inner end: no pass computes it at their points then."""
    values = {}
    for output, type in enumerate(node.outputs):
        value = Edge(node.id, identity(node.domain), output)
        op = ops.Udf(after, (type,), name="after")
        values[output] = graph.add(op, [value], domain=node.domain, where=node.where).id
    _read_instead(graph, node, values, [n for n in graph if n.id not in values.values()])


def _waiting(graph: Graph, node: Node, value: Edge, ended: Edge, domain: Domain, output: int = 0) -> Edge:
    """A value of the type of a node's output, once it is known whether the step has ended."""
    op = ops.Udf(after, (node.outputs[output],), name="after")
    waiting = graph.add(op, [replace(value, condition=TRUE), ended], domain=domain, where=node.where)
    return Edge(waiting.id, identity(domain), condition=value.condition)


def without_waiting(node: Node) -> Node:
    """The node; if it is one that waits, as the identity of its value."""
    if not isinstance(node.op, ops.Udf) or innermost(node.op.fn) is not after:
        return node
    return replace(node, op=ops.Identity(), inputs=node.inputs[:1])


def _wait_for_values(graph: Graph, function: Node, ended: Edge, readers: Container[int]) -> None:
    """Let what decides the end read the values of a function when it is known whether the step has ended."""
    domain, values = function.domain, dict[int, int]()
    for output in range(len(function.outputs)):
        value = Edge(function.id, identity(domain), output)
        values[output] = _waiting(graph, function, value, ended, domain, output).source
    _read_instead(graph, function, values, [reader for reader in graph if reader.id in readers])


def _read_instead(graph: Graph, node: Node, values: Mapping[int, int], readers: Iterable[Node]) -> None:
    """Let some readers of a node read other nodes, by its outputs."""
    for reader in readers:
        if any(edge.source == node.id for edge in reader.inputs):
            inputs = (
                replace(edge, source=values[edge.output], output=0) if edge.source == node.id else edge for edge in reader.inputs
            )
            graph.put(replace(reader, inputs=tuple(inputs)))


def _ended(graph: Graph, end: Node, step: Symbol) -> Node:
    """Whether the condition held at the point before: a recurrence over the step."""
    start = graph.add(constant_op("bool", False), (), domain=Domain(), where=end.where)
    (condition,) = end.inputs
    before = condition.substitute({step: step.expr - 1})
    branches = [Edge(start.id, (), condition=step.expr == 0), replace(before, condition=step.expr >= 1)]
    return graph.add(ops.Merge(TensorType("bool")), branches, domain=end.domain, name="ended", where=end.where)
