"""What a graph says of itself stays right while passes change it."""

from __future__ import annotations

from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.symbolic.expr import Expr, Symbol

T, S = Symbol("T"), Symbol("S")


def test_ends_are_those_of_the_present_nodes() -> None:
    graph = Graph(())
    assert graph.ends() == {}
    end = graph.put(replace(graph.add(ops.Random("bits", 0, ())), op=ops.End(bound=Expr.of(T)), inputs=()))
    assert graph.ends() == {T: end}
    other = graph.put(replace(end, op=ops.End(bound=Expr.of(S))))
    assert graph.ends() == {S: other}
    graph.ends().clear()  # the caller's own
    assert graph.ends() == {S: other} == graph.copy().ends()
    del graph.nodes[end.id]
    assert graph.ends() == {}
