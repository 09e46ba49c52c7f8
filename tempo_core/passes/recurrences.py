"""First-order linear recurrences: `a[t] = b[t] + c[t] * a[t ± 1]` becomes a `LinearScan`."""

from __future__ import annotations

from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import Nest, loop_nest
from tempo_core.ir.graph import Edge, Graph, Node, is_identity
from tempo_core.ir.types import is_float
from tempo_core.passes.base import Builder, literal, read_at
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, full_range
from tempo_core.symbolic.expr import Symbol

Linear = tuple[Edge | None, Edge | None]  # (coefficient, term): coefficient * previous + term; None stands for zero


def lift_recurrences(graph: Graph) -> None:
    """Rewrite, in place, each recurrence that is linear in its neighbour along one step."""
    for step in graph.order:
        cycles = _cycles(graph, step)
        for merge_id in list(cycles):
            merge = graph[merge_id]
            if not is_float(merge.outputs[0].dtype) or merge.domain.condition is not TRUE or step not in merge.domain:
                continue
            branch = _recurrent_branch(merge, cycles[merge_id])
            if branch is not None:
                _rewrite(graph, merge, step, branch, cycles[merge_id])


def _cycles(graph: Graph, step: Symbol) -> dict[int, Nest]:
    """For each recurrence that is alone on its cycle, inside of loops over the other steps: that cycle."""
    cycles: dict[int, Nest] = {}
    for inner in loop_nest(graph, [s for s in graph.order if s != step]).nests():
        if inner.cyclic:
            merges = {v.node for v in inner.vertices if isinstance(graph[v.node].op, ops.Merge)}
            if len(merges) == 1:
                cycles[merges.pop()] = inner
    return cycles


def _recurrent_branch(merge: Node, cycle: Nest) -> int | None:
    """The only branch on the cycle."""
    branches = {v.branch for v in cycle.vertices if v.node == merge.id}
    return branches.pop() if len(branches) == 1 else None


def _rewrite(graph: Graph, merge: Node, step: Symbol, branch: int, cycle: Nest) -> bool:
    edge = merge.inputs[branch]
    domain = merge.domain
    value = graph[edge.source]
    if value.domain.steps != domain.steps or edge.condition.steps - {step}:
        return False
    if any(e.condition.steps - {step} for e in merge.inputs):
        return False  # conditions on other steps would have to stay branches
    delay = _shift(edge, value, step)  # the branch reads its value at t + delay
    if delay is None:
        return False
    build = Builder(graph, value, value.domain)
    linear = _linear(graph, build, value, merge, step, {v.node for v in cycle.vertices})
    if linear is None:
        return False
    coefficient, term, distance = linear
    if coefficient is None or delay + distance not in (-1, 1):
        return False
    reverse = delay + distance == 1
    if not reverse and any(e is not None and comes_in_order(graph, e.source, step) for e in (coefficient, term)):
        return False
    wide = Domain(domain.steps)
    place = Builder(graph, merge, wide)
    zero = place.add(ops.Broadcast(merge.outputs[0].shape, ()), literal(place, merge.outputs[0].dtype, 0.0))
    if term is None:
        term = build.add(ops.Broadcast(merge.outputs[0].shape, ()), literal(build, merge.outputs[0].dtype, 0.0))
    at_branch = [read_at(e, value.domain, edge) for e in (coefficient, term)]
    if any(e is None for e in at_branch):
        return False
    coefficients = _merged(graph, merge, branch, at_branch[0], zero)
    terms = _merged(graph, merge, branch, at_branch[1], None)
    outer = Builder(graph, merge, Domain(tuple(s for s in domain.steps if s != step)))
    index = tuple(full_range(step) if s == step else Point(s.expr) for s in domain.steps)
    scan = outer.add(ops.LinearScan(0, reverse), Edge(coefficients, index), Edge(terms, index))
    element = place.add(ops.Gather(0), scan, place.add(ops.Eval(step.expr)))
    graph.put(replace(graph[element.source], id=merge.id, name=merge.name, where=merge.where))
    return True


def comes_in_order(graph: Graph, node_id: int, step: Symbol) -> bool:
    """Whether a value depends on stateful functions or streamed inputs, which give one timestep after the other.

    A loop uses such values as they come. A scan would have to keep them all first.
    """
    waiting, seen = [node_id], {node_id}
    while waiting:
        node = graph[waiting.pop()]
        if step not in node.domain:
            continue
        if isinstance(node.op, ops.Udf) and node.op.stateful:
            return True
        for edge in node.inputs:
            source = graph[edge.source]
            at = edge.by_step(source.domain).get(step)
            if source.id not in seen and isinstance(at, Point) and step in at.steps:
                seen.add(source.id)
                waiting.append(source.id)
    return False


def _merged(graph: Graph, merge: Node, branch: int, inside: Edge | None, elsewhere: Edge | None) -> int:
    """A recurrence like `merge` with `inside` in its recurrent branch, and `elsewhere` (by default its own values) in the others."""
    assert inside is not None
    edges = []
    for number, edge in enumerate(merge.inputs):
        if number == branch:
            edges.append(replace(inside, condition=edge.condition))
        else:
            edges.append(edge if elsewhere is None else replace(elsewhere, condition=edge.condition))
    return graph.add(merge.op, edges, domain=merge.domain, name=merge.name, where=merge.where).id


def _shift(edge: Edge, source: Node, step: Symbol) -> int | None:
    """By how much an edge moves along `step`; None if it does anything else."""
    moved = 0
    for source_step, index in edge.by_step(source.domain).items():
        if not isinstance(index, Point):
            return None
        distance = index.expr - source_step.expr
        if not distance.is_constant or (source_step != step and distance.constant != 0):
            return None
        if source_step == step:
            moved = distance.constant
    return moved


def _linear(
    graph: Graph, build: Builder, root: Node, merge: Node, step: Symbol, depends: set[int]
) -> tuple[Edge | None, Edge | None, int] | None:
    """`root` as coefficient * merge[t + distance] + term; None if it is not linear in one neighbour.

    `depends` are the nodes on the recurrence's cycle. All other nodes are constants for it.
    """
    distances: set[int] = set()

    def of_edge(reader: Node, edge: Edge) -> Linear | None:
        if edge.source == merge.id:
            distance = _shift(edge, merge, step)
            if distance is None:
                return None
            distances.add(distance)
            one = build.add(ops.Broadcast(merge.outputs[0].shape, ()), literal(build, merge.outputs[0].dtype, 1.0))
            return one, None
        if edge.source not in depends:
            return None, edge
        source = graph[edge.source]
        return of_node(source) if is_identity(edge, source, reader.domain) else None

    def of_node(node: Node) -> Linear | None:
        op = node.op
        if isinstance(op, ops.Unary) and op.fn == "neg":
            inner = of_edge(node, node.inputs[0])
            return None if inner is None else (_applied(build, "neg", inner[0]), _applied(build, "neg", inner[1]))
        if isinstance(op, ops.Where):
            return of_where(node)
        if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub", "mul", "div"):
            return None
        left, right = of_edge(node, node.inputs[0]), of_edge(node, node.inputs[1])
        if left is None or right is None:
            return None
        if op.fn in ("add", "sub"):
            return _sum(build, op.fn, left[0], right[0]), _sum(build, op.fn, left[1], right[1])
        if op.fn == "mul" and right[0] is not None and left[0] is None:
            left, right = right, left
        if right[0] is not None or right[1] is None:
            return None
        return _scaled(build, op.fn, left[0], right[1]), _scaled(build, op.fn, left[1], right[1])

    def of_where(node: Node) -> Linear | None:
        """where(p, c1 a + b1, c2 a + b2) is linear with the selected coefficients; p must not depend on the recurrence."""
        if node.inputs[0].source in depends:
            return None
        left, right = of_edge(node, node.inputs[1]), of_edge(node, node.inputs[2])
        if left is None or right is None:
            return None
        return tuple(_selected(build, node, a, b) for a, b in zip(left, right, strict=True))  # type: ignore[return-value]

    result = of_node(root)
    if result is None or len(distances) != 1:
        return None
    return result[0], result[1], distances.pop()


def _applied(build: Builder, fn: str, edge: Edge | None) -> Edge | None:
    return None if edge is None else build.add(ops.Unary(fn), edge)


def _sum(build: Builder, fn: str, left: Edge | None, right: Edge | None) -> Edge | None:
    if right is None:
        return left
    if left is None:
        return right if fn == "add" else build.add(ops.Unary("neg"), right)
    return build.add(ops.Binary(fn), left, right)


def _scaled(build: Builder, fn: str, edge: Edge | None, factor: Edge) -> Edge | None:
    return None if edge is None else build.add(ops.Binary(fn), edge, factor)


def _selected(build: Builder, node: Node, left: Edge | None, right: Edge | None) -> Edge | None:
    if left is None and right is None:
        return None
    type = node.outputs[0]
    zero = build.add(ops.Broadcast(type.shape, ()), literal(build, type.dtype, 0.0))
    return build.add(ops.Where(), node.inputs[0], left or zero, right or zero)
