"""Domain reduction: an operation runs only over the steps that its operands vary with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Input, Merge, Output, Sink, Udf
from tempo_core.passes.base import Pass
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Narrow(Pass):
    """Take steps out of a node's domain that neither its operands nor its parameters vary with (loop-invariant code motion).

    A node keeps a step along which some reader takes a range of it.

    Rewrite: `a[i, t] = exp(w[i]); b[i, t] = a[i, t] + x[t]` -> `a[i] = exp(w[i]); b[i, t] = a[i] + x[t]`
    """

    name: str = field(default="narrow", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        for node_id in forward_order(graph):
            node = graph[node_id]
            free = self._free_steps(graph, node)
            if free:
                self._narrow(graph, node, free)
        return graph

    def _free_steps(self, graph: Graph, node: Node) -> set[Symbol]:
        op = node.op
        if isinstance(op, (Merge, Sink, Output, Input)) or (isinstance(op, Udf) and (op.stateful or op.kind == "host")):
            return set()
        used = frozenset(s for s in op.symbols if s.is_step).union(node.domain.condition.steps, *(e.steps for e in node.inputs))
        free = set(node.domain.steps) - used
        for reader in graph if free else ():
            for edge in reader.inputs:
                if edge.source == node.id:
                    free -= {s for s, i in zip(node.domain.steps, edge.index, strict=True) if not isinstance(i, Point)}
        return free

    def _narrow(self, graph: Graph, node: Node, free: set[Symbol]) -> None:
        kept = [k for k, s in enumerate(node.domain.steps) if s not in free]
        domain = Domain(tuple(node.domain.steps[k] for k in kept), node.domain.condition)

        def shorter(edge: Edge) -> Edge:
            return replace(edge, index=tuple(edge.index[k] for k in kept)) if edge.source == node.id else edge

        graph.put(replace(node, domain=domain))
        for reader in graph:
            inputs = tuple(map(shorter, reader.inputs))
            if inputs != reader.inputs:
                graph.put(replace(reader, inputs=inputs))
