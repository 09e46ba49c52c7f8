"""Accumulation: a loop reduces the values of its iterations as it goes, and does not keep them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.builder import NEUTRAL, Builder, accumulated, constant_op
from tempo_core.ir.dependence import cycle_sign, cycles, reached
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.ir.types import ROUNDED_ONCE, TensorType
from tempo_core.passes.base import Pass, redirect, remove_dead
from tempo_core.passes.decisions import note
from tempo_core.prices import nominal
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import uncovered
from tempo_core.symbolic.proof import unless_obvious


@dataclass(frozen=True)
class Accumulate(Pass):
    """Reduce the values of a loop in the loop itself, where nothing else reads more than one of them at a time.

    Before: whatever can be vectorized is, so a value over a step is computed by a loop. After: a value over a step that is only
    reduced over that step has an accumulator, which follows the value's loop forwards or backwards. Without it, the values of
    all iterations are kept until the loop ends. Contractions over a step (gradients of weights) stay one product after the
    loop: their operands have further readers, for which they are kept.
    With `running`, which comes before shapes are static: a reduction over all earlier points of its own loop has an accumulator
    too, and is not computed anew at each point.

    Rewrite: `s = sum(c[0:T])` -> `a[0] = 0; a[t] = b[t - 1]; b[t] = a[t] + c[t]; s = b[T - 1]`
    Rewrite: `s[t] = sum(c[0:t]); c[t] = f(s[t])` -> `a[0] = 0; a[t] = b[t - 1]; b[t] = a[t] + c[t]; s[t] = b[t - 1]; ...`
    """

    name: str = field(default="accumulate", init=False)
    running: bool = False

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        for step in reversed(graph.order):  # the innermost loop first
            if self.running:
                number = {node_id: k for k, cycle in enumerate(cycles(graph, step)) for node_id in cycle.nodes}
                for node in graph:
                    if node.id in number and _runs_along(graph, node, step, number):
                        _accumulate_prefix(graph, node, step)
                continue
            reductions = _reductions(graph, step)
            directions = _directions(graph, step, {graph[n].inputs[0].source for n in reductions}) if reductions else {}
            for node_id in reductions:
                sign = directions[graph[node_id].inputs[0].source]
                if sign:
                    _accumulate(graph, _innermost(graph, graph[node_id], step), step, backwards=sign == ">")
        return remove_dead(graph)


def _reductions(graph: Graph, step: Symbol) -> list[int]:
    """The reductions over a range of `step` whose operand has no other readers of a range."""
    reductions: dict[Key, list[int]] = {}
    kept: set[Key] = set()  # values of which something else reads a range, so that they are stored in any case
    for reader in graph:
        for edge in reader.inputs:
            index = edge.by_step(graph[edge.source].domain).get(step)
            if index is None or (isinstance(index, Point) and step in reader.domain):
                continue
            key = (edge.source, edge.output)
            if isinstance(index, Range) and _is_reduced(graph, reader, edge, step, index):
                reductions.setdefault(key, []).append(reader.id)
            elif isinstance(index, Range):
                kept.add(key)
    return [node_id for key, readers in reductions.items() if key not in kept for node_id in readers]


def _is_reduced(graph: Graph, reader: Node, edge: Edge, step: Symbol, index: Range) -> bool:
    source, op = graph[edge.source], reader.op
    if not isinstance(op, ops.Reduce) or isinstance(source.op, (ops.Input, ops.Constant, ops.Udf)):
        return False
    if nominal(ops.product(source.outputs[edge.output].shape)) <= 1:
        return False  # to keep one number an iteration takes one operation, as to add it up does, and hardly any memory
    ranges = [s for s, i in edge.by_step(source.domain).items() if isinstance(i, Range)]
    if any(s in reader.domain for s in ranges) or ranges.index(step) not in op.axes:
        return False
    if len(ranges) > 1 and (ranges[-1] != step or reader.outputs[0].dtype in ROUNDED_ONCE):
        return False
    return index.stride == 1 and index.size is None


def _directions(graph: Graph, step: Symbol, values: set[int]) -> dict[int, str]:
    """For each value, the direction of the loop over `step` that computes it (`cycle_sign`)."""
    loops = cycles(graph, step)  # in the order in which they depend on each other
    number = {node_id: k for k, cycle in enumerate(loops) for node_id in cycle.nodes}
    directions: dict[int, str] = {}
    for value in values:
        numbers = [number[n] for n in reached([value], functools.partial(_sources_along, graph, step, number)) if n in number]
        directions[value] = cycle_sign(graph, loops[max(numbers)], step) if numbers else "<"
    return directions


def _sources_along(graph: Graph, step: Symbol, ends: Mapping[int, int], node_id: int) -> Iterator[int]:
    """The nodes from which a node is computed point by point along `step`; none for a node in `ends`."""
    for edge in graph[node_id].inputs if node_id not in ends else ():
        index = edge.by_step(graph[edge.source].domain).get(step)
        if index is not None and step in index.steps:
            yield edge.source


def _innermost(graph: Graph, node: Node, step: Symbol) -> Node:
    """The reduction over `step` alone; `node` reduces its results over the other ranges, if there are any."""
    (edge,), op = node.inputs, node.op
    assert isinstance(op, ops.Reduce)
    source = graph[edge.source]
    others = {s: i for s, i in edge.by_step(source.domain).items() if isinstance(i, Range) and s != step}
    if not others:
        return node
    limits: list[Bool] = [node.domain.condition]
    for s, i in others.items():
        limits += [s.expr >= i.start, s.expr <= i.stop - 1]
    domain = Domain(step_order({*node.domain.steps, *others}, graph.order), unless_obvious(conjunction(*limits)))
    count = len(others)
    axes = (0, *(a - count for a in op.axes if a > count))
    element = replace(edge, index=tuple(Point(s.expr) if s in others else i for s, i in edge.by_step(source.domain).items()))
    inner = graph.add(ops.Reduce(op.fn, axes), (element,), domain=domain, where=node.where)
    index: list[Index] = [others.get(s, Point(s.expr)) for s in domain.steps]
    outer = ops.Reduce(op.fn, tuple(a for a in op.axes if a < count))
    graph.put(replace(node, op=outer, inputs=(Edge(inner.id, tuple(index)),)))
    return inner


def _accumulate(graph: Graph, node: Node, step: Symbol, backwards: bool) -> None:
    """Replace a reduction over `step` by an accumulator, read at the end of its loop."""
    (edge,), t = node.inputs, step.expr
    span = edge.by_step(graph[edge.source].domain)[step]
    assert isinstance(span, Range)
    inside = conjunction(node.domain.condition, t >= span.start, t <= span.stop - 1)
    domain = Domain(step_order({*node.domain.steps, step}, graph.order), unless_obvious(inside))
    why = "reduced in the loop over {}: nothing else reads several values of its operand at a time"
    _take_over(graph, node, step, span, domain, backwards, why)


def _take_over(graph: Graph, node: Node, step: Symbol, span: Range, domain: Domain, backwards: bool, why: str) -> None:
    """Let an accumulator over `domain` take the place of the reduction of a range: it has read the range where its loop leaves it."""
    (edge,), op = node.inputs, node.op
    assert isinstance(op, ops.Reduce)
    exists = span.stop - span.start >= 1
    try:
        is_nonempty = uncovered(node.domain, [exists]) is None
    except NonAffineError:
        return
    note(node.id, why, step)
    first, last = (span.stop - 1, span.start) if backwards else (span.start, span.stop - 1)
    element = replace(edge, index=tuple(Point(step.expr) if i is span else i for i in edge.index))
    total = _accumulator(Builder(graph, node, domain), op, element, step, first, backwards)
    result = replace(total, index=tuple(Point(last if s == step else s.expr) for s in domain.steps))
    _replace_by(graph, node, result, TRUE if is_nonempty else exists)


def _accumulator(build: Builder, op: ops.Reduce, element: Edge, step: Symbol, first: Expr, backwards: bool) -> Edge:
    """The reduction of all elements from the point `first` of a loop up to each point.

    The range over the step is the operand's first dimension; `element` lacks it.
    """
    dtype = build.type(element).dtype
    if dtype in ROUNDED_ONCE and op.fn in ("sum", "prod"):
        element = build.add(ops.Cast("float32"), element)
    if len(op.axes) > 1:
        element = build.add(ops.Reduce(op.fn, tuple(a - 1 for a in op.axes[1:])), element)
    return accumulated(build, op.fn, _neutral(build, op.fn, build.type(element)), element, step, first, backwards)


def _runs_along(graph: Graph, node: Node, step: Symbol, number: Mapping[int, int]) -> bool:
    """Whether a node reduces a prefix or suffix of a value of its own cycle."""
    if not isinstance(node.op, ops.Reduce):
        return False
    (edge,) = node.inputs
    source = graph[edge.source]
    if number.get(source.id) != number[node.id] or source.domain.steps != node.domain.steps or 0 not in node.op.axes:
        return False
    span = edge.by_step(source.domain).get(step)
    others_own = all(i == Point(s.expr) for s, i in edge.by_step(source.domain).items() if s != step)
    return isinstance(span, Range) and span.stride == 1 and span.size is None and others_own


def _accumulate_prefix(graph: Graph, node: Node, step: Symbol) -> None:
    """Replace the reduction of a prefix or suffix by an accumulator, read at the end of the prefix, or at the start of the suffix."""
    (edge,), t = node.inputs, step.expr
    source = graph[edge.source]
    span = edge.by_step(source.domain)[step]
    assert isinstance(span, Range)
    backwards = (span.start - t).is_constant and step not in span.stop.steps
    if not backwards and not ((span.stop - t).is_constant and step not in span.start.steps):
        return
    condition = source.domain.condition & (t <= span.stop - 1 if backwards else t >= span.start)
    later, neighbour = (t <= span.stop - 2, t + 1) if backwards else (t >= span.start + 1, t - 1)
    try:
        if uncovered(Domain(source.domain.steps, condition & later), [condition.substitute({step: neighbour})]) is not None:
            return  # there are points between these, at which the operand does not exist
    except NonAffineError:
        return
    domain = Domain(source.domain.steps, unless_obvious(condition))
    _take_over(graph, node, step, span, domain, backwards, "reduced in the loop over {}, whose earlier points it reads")


def _replace_by(graph: Graph, node: Node, value: Edge, exists: Bool) -> None:
    """Let the readers of a reduction read `value`; where it does not exist, the neutral element of the reduction."""
    type = node.outputs[0]
    assert isinstance(node.op, ops.Reduce)
    graph.put(replace(graph[value.source], name=node.name))
    if graph.edge_type(value).dtype != type.dtype:
        value = Builder(graph, node, Domain(node.domain.steps, node.domain.condition & exists)).add(ops.Cast(type.dtype), value)
    if exists is TRUE:
        graph.put(replace(node, op=ops.Identity(), inputs=(value,)))
        redirect(graph, {node.id: value})
        return
    branches = (replace(value, condition=exists), _neutral(Builder(graph, node), node.op.fn, type))
    graph.put(replace(node, op=ops.Merge(type), inputs=branches))


def _neutral(build: Builder, fn: str, type: TensorType) -> Edge:
    """The neutral element of a reduction, in the shape of `type`; it varies with no step but those in its shape."""
    steps = frozenset().union(*(size.steps for size in type.shape))
    build = replace(build, domain=Domain(step_order(steps, build.graph.order)))
    number = build.add(constant_op(type.dtype, NEUTRAL[fn]))
    return build.add(ops.Broadcast(type.shape, ()), number) if type.shape else number
