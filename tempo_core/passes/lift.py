"""Lifting: reductions over prefixes, suffixes and windows, and linear recurrences, become scans over the whole step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Builder, Pass, literal, remove_dead
from tempo_core.passes.recurrences import lift_recurrences
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range, full_range
from tempo_core.symbolic.expr import Expr, Minimum, Symbol, minimum


@dataclass(frozen=True)
class Lift(Pass):
    """Compute a reduction or recurrence once over the whole step, not anew at each point.

    Prefix and suffix sums become `CumSum`. Discounted suffix sums and linear recurrences become `LinearScan`. A sum over a
    window of w points becomes log2(w) shifted additions. Three kinds stay as they are: reductions whose operands depend on
    their results (those are loops), windows whose operands a loop over the step computes (the loop can reduce them as it
    goes), and recurrences over values that the host gives one timestep after the other.

    Rewrite: `y[t] = sum(x[0:t + 1])` -> `s = cumsum(x[0:T]); y[t] = s[t]`
    Rewrite: `a[t] = b[t] + c[t] * a[t + 1]` -> `s = linear_scan(c[0:T], b[0:T], reversed); a[t] = s[t]`
    """

    name: str = field(default="lift", init=False)

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        lift_recurrences(graph)
        cycles = {step: _on_cycles(graph, step) for step in graph.order}
        streams = {step: _streamed(graph, step, cycles[step]) for step in graph.order}
        for node in graph:
            if isinstance(node.op, ops.DiscountedSum) or (isinstance(node.op, ops.Reduce) and node.op.fn == "sum"):
                _lift_reduction(graph, node, cycles, streams)
        return remove_dead(graph)


def _on_cycles(graph: Graph, step: Symbol) -> dict[int, int]:
    """For each node on a cycle that a loop over `step` must follow, the number of that cycle."""
    cycles: dict[int, int] = {}
    for number, inner in enumerate(loop_nest(graph, [s for s in graph.order if s != step]).nests()):
        if inner.cyclic:
            cycles.update((v.node, number) for v in inner.vertices)
    return cycles


def _streamed(graph: Graph, step: Symbol, cycle: dict[int, int]) -> set[int]:
    """The nodes that a loop over `step` computes as it goes: the nodes on its cycles, and those that read them point by point."""
    nodes, users = set(cycle), graph.users() if cycle else {}
    waiting = list(nodes)
    while waiting:
        source = graph[waiting.pop()]
        for reader, slot in users[source.id]:
            along = [i for s, i in zip(source.domain.steps, reader.inputs[slot].index, strict=True) if s == step]
            if reader.id not in nodes and along and isinstance(along[0], Point) and step in along[0].steps:
                nodes.add(reader.id)
                waiting.append(reader.id)
    return nodes


def _lift_reduction(graph: Graph, node: Node, cycles: dict[Symbol, dict[int, int]], streams: dict[Symbol, set[int]]) -> None:
    (edge,) = node.inputs
    source = graph[edge.source]
    axes = node.op.axes if isinstance(node.op, ops.Reduce) else (node.op.axis,)  # type: ignore[attr-defined]
    axis = -1
    for step, index in edge.by_step(source.domain).items():
        if not isinstance(index, Range):
            continue
        axis += 1
        if axis not in axes or step not in node.domain or index.stride != 1:
            continue
        others = [i for i in edge.index if i is not index]
        if index.steps != {step} or any(step in i.steps for i in others) or source.domain.condition is not TRUE:
            continue
        cycle = cycles[step]
        if node.id in cycle and cycle[node.id] == cycle.get(source.id):
            continue
        if _lifted(graph, node, edge, step, index, axis, axes, streamed=source.id in streams[step]):
            return


def _lifted(
    graph: Graph, node: Node, edge: Edge, step: Symbol, index: Range, axis: int, axes: tuple[int, ...], streamed: bool
) -> bool:
    """Replace the node by a scan over the whole step. Each point takes its element of the scan. Returns whether a scan fits."""
    t, bound = step.expr, step.bound_expr
    gamma = node.op.gamma if isinstance(node.op, ops.DiscountedSum) else None
    if step in node.domain.condition.steps:
        return False
    build = Builder(graph, node, node.domain.without(step))
    operand = replace(edge, index=tuple(full_range(step) if i is index else i for i in edge.index))
    scan: Edge | None = None
    if index.start == 0 and index.stop == t + 1 and gamma is None:
        scan = build.add(ops.CumSum(axis), operand)
    elif index.start == t and index.stop == bound:
        scan = _suffix(build, operand, axis, gamma)
    elif index.start == t and not streamed:
        width = _window(index, t, bound)
        scan = None if width is None else _window_sum(build, operand, axis, width, gamma)
    if scan is None:
        return False
    inner = Builder(graph, node, node.domain)
    element = inner.add(ops.Gather(axis), scan, inner.add(ops.Eval(t)))
    rest = tuple(a - (a > axis) for a in axes if a != axis)
    result = inner.add(ops.Reduce("sum", rest), element) if rest else element
    final = graph[result.source]
    graph.put(replace(final, id=node.id, name=node.name, where=node.where))
    return True


def _suffix(build: Builder, operand: Edge, axis: int, gamma: float | None) -> Edge:
    if gamma is None:
        return build.add(ops.CumSum(axis, reverse=True), operand)
    return build.add(ops.LinearScan(axis, reverse=True), _number(build, operand, gamma), operand)


def _number(build: Builder, like: Edge, value: float) -> Edge:
    """`value`, repeated to the type of `like`."""
    type = build.type(like)
    return build.add(ops.Broadcast(type.shape, ()), literal(build, type.dtype, value))


def _window(index: Range, t: Expr, bound: Expr) -> int | None:
    """The width w of `t:min(t + w, T)`; None for other ranges."""
    atom = index.stop.single_atom
    if not isinstance(atom, Minimum) or len(atom.args) != 2 or bound not in atom.args:
        return None
    (moving,) = [a for a in atom.args if a != bound]
    width = moving - t
    return width.constant if width.is_constant and width.constant > 0 else None


def _window_sum(build: Builder, operand: Edge, axis: int, width: int, gamma: float | None) -> Edge:
    """`sum_{k < w} gamma**k x[t + k]` at all t, by doubling: S_2k[t] = S_k[t] + gamma**k S_k[t + k]; x is zero past its end."""
    total: Edge | None = None
    covered = 0  # total[t] sums k in 0 .. covered - 1
    power, doubled = 1, operand  # doubled[t] sums k in 0 .. power - 1
    while True:
        if width & power:
            total = doubled if total is None else _plus_moved(build, total, doubled, axis, covered, gamma)
            covered += power
        if covered == width:
            assert total is not None
            return total
        doubled = _plus_moved(build, doubled, doubled, axis, power, gamma)
        power *= 2


def _plus_moved(build: Builder, left: Edge, right: Edge, axis: int, shift: int, gamma: float | None) -> Edge:
    """`left[t] + gamma**shift * right[t + shift]`."""
    size = build.type(right).shape[axis]
    cut = Expr.of(shift)
    start = minimum(cut, size)
    moved = build.add(ops.Pad(axis, Expr.of(0), start), build.add(ops.Slice(axis, start, size), right))
    if gamma is not None:
        moved = build.add(ops.Binary("mul"), moved, _number(build, moved, gamma**shift))
    return build.add(ops.Binary("add"), left, moved)
