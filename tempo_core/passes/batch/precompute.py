"""Precomputation: the part of a function in a loop that needs nothing from the loop becomes a function of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import innermost_nests
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.partial import parts
from tempo_core.ir.udf import Custom
from tempo_core.passes.base import Pass
from tempo_core.passes.decisions import note
from tempo_core.prices import WORTH_OWN_CODE
from tempo_core.symbolic.domain import identity


@dataclass(frozen=True)
class Precompute(Pass):
    """Divide JAX functions on a cycle of dependences: into what their operands from outside the cycle decide, and the rest.

    An environment with a reset inside of its step draws a new start at each step, from random bits that do not depend on the
    state. As a function of its own, this draw can leave the loop (`vectorize`). Shapes must be numbers, and the part that
    leaves must be worth a function. A function with a batch rule or a cost of its own stays whole: they are those of the whole.

    Rewrite: `y[t] = step(s[t], bits[t]); s[t + 1] = y[t]` -> `r[t] = early(bits[t]); y[t] = late(s[t], bits[t], r[t]); ...`
    """

    name: str = field(default="precompute", init=False)

    def apply(self, graph: Graph) -> Graph:
        functions = [n for n in graph if isinstance(n.op, ops.Udf) and n.op.kind == "jax" and not n.op.stateful]
        if not functions:
            return graph
        graph, nests = graph.copy(), innermost_nests(graph)
        for node in functions:
            if node.id in nests:
                _divide(graph, node, nests[node.id])
        return graph


def _divide(graph: Graph, node: Node, cycle: frozenset[int]) -> None:
    op = node.op
    assert isinstance(op, ops.Udf)
    if op.cost or (isinstance(op.fn, Custom) and op.fn.batch is not None):
        return
    outside = [k for k, edge in enumerate(node.inputs) if edge.source not in cycle]
    types = graph.input_types(node)
    if not 0 < len(outside) < len(types) or any(not size.is_constant for type in (*types, *op.types) for size in type.shape):
        return
    divided = parts(op.fn, types, op.types, outside)
    if divided is None or divided.operations < WORTH_OWN_CODE:
        return
    note(node.id, "divided: what it computes of values from outside the cycle is a function of its own")
    early = replace(op, fn=divided.early, types=divided.between, results=())
    computed = graph.add(early, [node.inputs[k] for k in outside], domain=node.domain, where=node.where)
    reads = tuple(Edge(computed.id, identity(node.domain), output) for output in range(len(divided.between)))
    graph.put(replace(node, op=replace(op, fn=divided.late), inputs=(*node.inputs, *reads)))
