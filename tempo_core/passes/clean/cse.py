"""Common subexpression elimination."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Input, Merge, Op, Output, Sink, Udf
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.passes.decisions import Ref, note
from tempo_core.symbolic.domain import Domain


@dataclass(frozen=True)
class Cse(Pass):
    """Compute equal operations once. Equal operations agree in op, parameters, domain, and every operand *with its index*.

    Rewrite: `a = exp(x[t - 1]); b = exp(x[t - 1]); c = exp(x[t])` -> `a = exp(x[t - 1]); c = exp(x[t])`, b's readers read a
    """

    name: str = field(default="cse", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        while True:
            first: dict[tuple[Op, Domain, tuple[Edge, ...]], int] = {}
            duplicates: dict[int, int] = {}
            for node in graph:
                if isinstance(node.op, (Merge, Input, Sink, Output)) or (isinstance(node.op, Udf) and node.op.stateful):
                    continue
                original = first.setdefault((node.op, node.domain, node.inputs), node.id)
                if original != node.id:
                    duplicates[node.id] = original
                    note(node.id, "merged with the equal operation {}", Ref(original), into=original)
                    if node.name and not graph[original].name:
                        graph.put(replace(graph[original], name=node.name, where=node.where))
            if not duplicates:
                return remove_dead(graph)
            for node in graph:
                if not duplicates.keys().isdisjoint([e.source for e in node.inputs]):
                    graph.put(node.reading(tuple([e.of(duplicates.get(e.source, e.source)) for e in node.inputs])))
            for duplicate in duplicates:
                del graph.nodes[duplicate]
