"""Domain reduction: an operation runs only over the steps that its operands vary with, and only at points that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Eval, Input, Merge, Op, Output, Sink, Udf
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass
from tempo_core.passes.decisions import note
from tempo_core.symbolic.condition import FALSE, Bool, Connective, as_bool, conjunction
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True)
class Narrow(Pass):
    """Remove from a node's domain the steps that neither its operands nor its parameters vary with (loop-invariant code motion).

    A node keeps a step if some reader takes a range of it along that step. After this, from readers to sources: if all readers
    of a node read it at the same constant point of a step, the node is computed at that point alone. Conditions on the bounds that
    are `fixed`, which hold for all runs of the program, are dropped first: `Graph.decided_for` has them.

    Rewrite: `a[i, t] = exp(w[i]); b[i, t] = a[i, t] + x[t]` -> `a[i] = exp(w[i]); b[i, t] = a[i] + x[t]`
    Rewrite: `a[t] = exp(x[t]); b[] = a[T - 1]` -> `a[] = exp(x[T - 1]); b[] = a[]`
    """

    fixed: tuple[tuple[Symbol, int], ...] = ()
    name: str = field(default="narrow", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = _settled(graph, dict(self.fixed))
        readers = graph.reader_ids()  # narrowing changes domains and indices, and keeps readers
        for node_id in forward_order(graph):
            node = graph[node_id]
            free = self._free_steps(graph, node, readers[node_id])
            if free:
                note(node_id, "moved out of the loop over {}: it does not vary with it", free)
                _narrow(graph, node, free, readers[node_id])
        return pinned(graph)

    def _free_steps(self, graph: Graph, node: Node, readers: Sequence[int]) -> set[Symbol]:
        op = node.op
        if is_bound_to_its_points(op):
            return set()
        used = frozenset(s for s in op.symbols if s.is_step).union(*(e.steps for e in node.inputs))
        free = _free(graph, node, used)
        for reader in readers if free else ():
            for edge in graph[reader].inputs:
                if edge.source == node.id:
                    free &= set(edge.points(node.domain))
        return free


def _settled(graph: Graph, numbers: Mapping[Symbol, int]) -> Graph:
    """A copy in which what conditions say of known bounds alone is decided."""
    graph, held = graph.copy(), dict[Bool, None]()

    def decided(condition: Bool) -> Bool:
        if not condition.symbols or not condition.symbols <= numbers.keys():
            return condition.map(decided) if isinstance(condition, Connective) else condition
        holds = condition.evaluate(numbers)
        held[condition if holds else ~condition] = None
        return as_bool(holds)

    def rest(condition: Bool) -> Bool:
        result = decided(condition)
        return condition if result is FALSE else result  # what never runs stays: it has a domain

    for node in [*graph] if numbers else ():
        domain = replace(node.domain, condition=rest(node.domain.condition))
        inputs = tuple(replace(e, condition=rest(e.condition)) for e in node.inputs)
        is_asked = isinstance(node.op, Eval) and isinstance(node.op.value, Bool)
        op = replace(node.op, value=decided(node.op.value)) if is_asked else node.op
        graph.put(replace(node, op=op, domain=domain, inputs=inputs))
    graph.decided_for = conjunction(graph.decided_for, *held)
    return graph


def pinned(graph: Graph) -> Graph:
    """Compute a node at one point of a step alone, if all its readers read it at that constant point. Changes and returns `graph`."""
    readers = graph.reader_ids()
    for node_id in reversed(forward_order(graph)):
        values = _pinned_steps(graph, graph[node_id], readers[node_id])
        if values:
            note(node_id, "computed at {} alone: all its readers read that point", values)
            graph.put(at_points(graph[node_id], values))
            _narrow(graph, graph[node_id], set(values), readers[node_id])
    return graph


def _pinned_steps(graph: Graph, node: Node, readers: Sequence[int]) -> dict[Symbol, Expr]:
    """The steps along which all readers of a node read one constant point, with that point. Steps in its condition are left out."""
    if not node.domain.steps or is_bound_to_its_points(node.op):
        return {}
    reads = [edge.index for reader in readers for edge in graph[reader].inputs if edge.source == node.id]
    pins: dict[Symbol, Expr] = {}
    fixed = around(graph, node)
    for k, step in enumerate(node.domain.steps):
        if step in fixed:
            continue
        points = {index[k] for index in reads} if step not in node.domain.condition.steps else set()
        if len(points) == 1 and isinstance(point := points.pop(), Point) and not point.expr.steps:
            pins[step] = point.expr
    return pins


def _free(graph: Graph, node: Node, used: frozenset[Symbol]) -> set[Symbol]:
    """The steps that a value does not vary with, at the points of a node, if it uses these."""
    free = set(node.domain.steps) - used - around(graph, node)
    for part in node.domain.condition.parts:  # a condition on free steps alone does not change the value
        free -= part.steps if not part.steps <= free else set()
    return free


def without(graph: Graph, node: Node, used: frozenset[Symbol]) -> Domain:
    """The domain of a node without the steps that what uses only these does not vary with."""
    free = _free(graph, node, used)
    condition = conjunction(*(part for part in node.domain.condition.parts if not part.steps & free))
    return Domain(tuple(step for step in node.domain.steps if step not in free), condition)


def around(graph: Graph, node: Node) -> set[Symbol]:
    """The steps with which inner ends vary that a node uses, or the nodes that it reads."""
    outer = graph.outer()
    if not outer:
        return set()
    symbols = node.symbols.union(*(graph[edge.source].symbols for edge in node.inputs))
    return {step for bound, steps in outer.items() if bound in symbols for step in steps}


def _narrow(graph: Graph, node: Node, free: set[Symbol], readers: Sequence[int]) -> None:
    places = [k for k, s in enumerate(node.domain.steps) if s not in free]
    condition = conjunction(*(part for part in node.domain.condition.parts if not part.steps & free))
    domain = Domain(tuple(node.domain.steps[k] for k in places), condition)

    def shorter(edge: Edge) -> Edge:
        return replace(edge, index=tuple(edge.index[k] for k in places)) if edge.source == node.id else edge

    graph.put(replace(node, domain=domain))
    for reader in readers:
        graph.put(replace(graph[reader], inputs=tuple(map(shorter, graph[reader].inputs))))


def is_bound_to_its_points(op: Op) -> bool:
    """Whether it matters at which points an op runs, not only which values it gives."""
    return isinstance(op, (Merge, Sink, Output, Input)) or (isinstance(op, Udf) and (op.stateful or op.kind == "host"))


def at_points(node: Node, values: Mapping[Symbol, Expr]) -> Node:
    """The node with some of its steps replaced by `values` in parameters, operands and types. Its domain still has these steps."""

    def fixed(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(fixed, part))
        return part.substitute(values) if isinstance(part, (Expr, Bool, TensorType)) else part

    op = replace(node.op, **{f.name: fixed(getattr(node.op, f.name)) for f in fields(node.op) if f.init})
    return replace(node, op=op, inputs=tuple(e.substitute(values) for e in node.inputs), outputs=fixed(node.outputs))
