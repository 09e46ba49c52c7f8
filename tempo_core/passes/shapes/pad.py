"""Padding: each size that varies with a step becomes its largest value. Elements past the true size are masked."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tempo_core.errors import ShapeError
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal, positions, zeros_outside
from tempo_core.ir.dependence import forward_order
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.past_sums import PAST_SUMS
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Library, Pullback, Trimmed, Vmapped
from tempo_core.passes.base import Pass, operand_domains, take_over
from tempo_core.passes.clean.narrow import without
from tempo_core.passes.shapes import ragged
from tempo_core.symbolic.condition import TRUE, Comparison
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum
from tempo_core.symbolic.isl.relation import maximum_over
from tempo_core.symbolic.proof import provably_nonnegative

Lengths = tuple[Expr, ...]  # the true shape of a value that is padded


@dataclass(frozen=True)
class Pad(Pass):
    """Give every value a static shape. Before: sizes may depend on steps. After: sizes depend on bounds only.

    A range read that varies (`x[t:T]`) delivers its largest length, with zeros past its end; elementwise operations run on
    the padding too; reductions, contractions and scans see a neutral element there.

    Rewrite: `sum(x[t:T])` -> `sum(where(iota(T) < T - t, x[t:T to T], 0))`
    """

    name: str = field(default="pad", init=False)
    effect: ClassVar[str] = "made of one size for all points: padded to the largest, with a mask where that matters"

    def apply(self, graph: Graph) -> Graph:
        if all(_is_static(graph, node) for node in graph):
            return graph
        return _Padding(graph.copy(), False, {}, (), {}).run()


def padded_again(
    graph: Graph, lengths: Mapping[tuple[int, int], Lengths], done: Container[int], endless: Mapping[int, Mapping[Symbol, Expr]]
) -> Graph:
    """A graph with static shapes of one that was padded before, in which more sizes have come to vary.

    `lengths` are the true shapes of values that are padded already, by (node id, output); `done` are nodes that stay as they are.
    `endless` nodes, by id, read values as if some steps had the given values: they take them whole, not as far as a run goes.
    """
    return _Padding(graph.copy(), True, lengths, done, endless).run()


def _is_static(graph: Graph, node: Node) -> bool:
    return all(t.is_static for t in node.outputs) and not any(_varies(e) for e in node.inputs)


def _varies(edge: Edge) -> bool:
    return any(isinstance(i, Range) and i.size is None and i.true_length.steps for i in edge.index)


class _Padding:
    def __init__(
        self,
        graph: Graph,
        again: bool,
        whole: Mapping[tuple[int, int], Lengths],
        done: Container[int],
        endless: Mapping[int, Mapping[Symbol, Expr]],
    ):
        """If the graph was padded before, a range with a size delivers so many elements. Nodes that are `done` stay as they are."""
        self.graph, self.again, self.done, self.endless = graph, again, done, endless
        # The true shapes of padded outputs, in the node's steps, by (node id, output), and those of nodes that are still to be padded.
        self.lengths = {key: shape for key, shape in whole.items() if key[0] not in self.endless or key[0] in done}
        self.to_come = {key: shape for key, shape in whole.items() if key not in self.lengths}
        self.masks: dict[tuple[object, ...], tuple[Edge, Edge]] = {}  # of `_Work.masked`: operands of one shape share theirs

    def run(self) -> Graph:
        merges = []
        for node_id in forward_order(self.graph):  # a `Merge` may come before its branches
            node = self.graph[node_id]
            if node_id in self.done:
                continue
            if isinstance(node.op, ops.Merge):
                merges.append(node_id)
                self._announce(node, node.op.type)
            else:
                self._visit(node)
            self.lengths |= {
                (node_id, k): self.to_come[node_id, k] for k in range(len(node.outputs)) if (node_id, k) in self.to_come
            }
        for node_id in merges:
            self._visit(self.graph[node_id])
        return self.graph

    def _announce(self, merge: Node, type: TensorType) -> None:
        """Give a `Merge` its largest shape, which its readers need before its branches have theirs."""
        if not type.is_static:
            static = replace(type, shape=tuple(self.largest(size, merge.domain) for size in type.shape))
            self.graph.put(replace(merge, op=ops.Merge(static), outputs=(static,)))
            self.lengths[(merge.id, 0)] = type.shape

    def _true_shape(self, edge: Edge, reader: int) -> tuple[Expr, ...]:
        """The shape that an edge delivered to a node before padding, in the node's steps."""
        source = self.graph[edge.source]
        shape = self.lengths.get((edge.source, edge.output), source.outputs[edge.output].shape)
        at = edge.points(source.domain)
        spans = tuple(i.length if self.again else i.true_length for i in edge.index if isinstance(i, Range))
        sizes = spans + tuple(size.substitute(at) for size in shape)
        return tuple(size.substitute(self.endless[reader]) for size in sizes) if reader in self.endless else sizes

    def _visit(self, node: Node) -> None:
        true_shapes = [self._true_shape(e, node.id) for e in node.inputs]
        operands = []
        for edge, shape, domain in zip(node.inputs, true_shapes, operand_domains(node, node.domain), strict=True):
            operands.append(self._fitted(self._padded_read(edge, node.domain), shape, Builder(self.graph, node, domain)))
        is_static = all(t.is_static for t in node.outputs) and (node.id, 0) not in self.lengths
        if not any(size.steps for shape in true_shapes for size in shape) and is_static:
            if tuple(operands) != node.inputs:
                self.graph.put(replace(node, inputs=tuple(operands)))
            return
        if isinstance(node.op, ops.Merge):
            self._merge(node, operands)
            return
        of_one_shape = isinstance(node.op, ops.Udf) and not _is_elementwise(node, true_shapes) and not _sums_the_past(node.op)
        if not all(t.is_static for t in node.outputs) and of_one_shape:
            raise ShapeError(
                f"{node.label} has a shape that varies with the step: {', '.join(map(str, node.outputs))}",
                where=node.where,
                hint="a function must return one shape at every step. Return the largest, then slice it: y.spatial[0:t + 1]",
            )
        if isinstance(node.op, ops.Output):
            self.graph.put(replace(node, inputs=tuple(operands)))  # the runtime trims results (see compiler.py)
            return
        rule = RULES.get(type(node.op), _pointwise if node.op.neutral is None else _neutral)
        work = _Work(self.graph, node, operands, true_shapes, self)
        result = rule(work)
        take_over(self.graph, node, result)
        if result.source != node.id:
            del self.graph.nodes[result.source]
        self.lengths |= {(node.id, k): type.shape for k, type in enumerate(node.outputs) if not type.is_static}

    def _merge(self, node: Node, operands: list[Edge]) -> None:
        """Pad the branches of a `Merge` to its shape. Each has the true shape at the points that it defines."""
        edges = []
        for edge, domain in zip(operands, operand_domains(node, node.domain), strict=True):
            edges.append(self._cut(edge, node.outputs[0].shape, Builder(self.graph, node, domain)))
        self.graph.put(replace(node, inputs=tuple(edges)))

    def _padded_read(self, edge: Edge, domain: Domain) -> Edge:
        """The edge, with a static size for each range whose length varies."""
        index = tuple(
            replace(i, size=self.largest(i.length, domain))
            if isinstance(i, Range) and i.length.steps and (self.again or i.size is None)
            else i
            for i in edge.index
        )
        return replace(edge, index=index)

    def _fitted(self, edge: Edge, true_shape: Lengths, build: Builder) -> Edge:
        """The edge, cut to the sizes that are largest over the reader's own points. The source may be larger at other points."""
        is_result = isinstance(build.like.op, ops.Output)  # results are trimmed at the end of a run
        sizes = zip(true_shape, build.type(edge).shape, strict=True)
        domain = build.like.domain
        return self._cut(edge, [all if is_result and size.steps else self.largest(size, domain) for size, all in sizes], build)

    def _cut(self, edge: Edge, shape: Sequence[Expr], build: Builder) -> Edge:
        """The edge, cut to a shape."""
        value = edge
        for axis, size in enumerate(shape):
            if build.type(value).shape[axis] != size:
                value = build.add(ops.Slice(axis, Expr.of(0), size), replace(value, condition=TRUE))
        return replace(value, condition=edge.condition)

    def largest(self, size: Expr, domain: Domain) -> Expr:
        if not size.steps:
            return size
        most = maximum_over(size, domain)
        return most if provably_nonnegative(most) else maximum(most, 0)  # for some bounds the domain may be empty


@dataclass
class _Work:
    """The input of a rule: a node, its padded operands, and what else its replacement is built from."""

    graph: Graph
    node: Node
    operands: list[Edge]
    true_shapes: list[tuple[Expr, ...]]  # of the operands, before padding
    padding: _Padding

    def __post_init__(self) -> None:
        self.build = Builder(self.graph, self.node)

    @property
    def op(self) -> Any:
        return self.node.op

    def shape(self, slot: int) -> tuple[Expr, ...]:
        return self.graph.edge_type(self.operands[slot]).shape

    def is_padded(self, slot: int, axis: int) -> bool:
        return bool(self.true_shapes[slot][axis].steps)

    def static(self, size: Expr) -> Expr:
        return self.padding.largest(size, self.node.domain)

    def valid(self, length: Expr, size: Expr, shape: Sequence[Expr], axis: int) -> Edge:
        """Whether a position along `axis` is below `length`: a boolean tensor of `shape`."""
        return _valid(self.build, length, (*shape[:axis], size, *shape[axis + 1 :]), axis)

    def masked(self, slot: int, axes: Sequence[int], neutral: float | str = 0.0) -> Edge:
        """The operand with a neutral element past the true length of each padded axis of `axes`."""
        return self._masked(slot, axes, neutral, self.build)

    def masked_apart(self, slot: int, axes: Sequence[int]) -> Edge:
        """The same with zeros, over no other steps than the operand and its lengths vary with: what other operands vary with repeats nothing."""
        steps = self.operands[slot].steps.union(*(self.true_shapes[slot][axis].steps for axis in axes))
        domain = without(self.graph, self.node, steps)
        return self._masked(slot, axes, 0.0, Builder(self.graph, self.node, domain))

    def _masked(self, slot: int, axes: Sequence[int], neutral: float | str, build: Builder) -> Edge:
        edge = self.operands[slot]
        for axis in axes:
            if self.is_padded(slot, axis):
                type, length = self.graph.edge_type(edge), self.true_shapes[slot][axis]
                key = (build.domain or self.node.domain, type, axis, length, neutral)
                if key not in self.padding.masks:
                    filler = build.add(ops.Broadcast(type.shape, ()), literal(build, type.dtype, neutral))
                    self.padding.masks[key] = (_valid(build, length, type.shape, axis), filler)
                keep, filler = self.padding.masks[key]
                edge = build.add(ops.Where(axis, length), keep, edge, filler)
        return edge

    def holds(self, nonnegative: Expr) -> bool:
        """Whether an expression is not negative at any point of the node."""
        limits = (part.expr for part in self.node.domain.condition.parts if isinstance(part, Comparison) and part.kind == ">=")
        return provably_nonnegative(nonnegative) or any(provably_nonnegative(nonnegative - each) for each in limits)

    def position(self, slot: int) -> Expr | None:
        """The expression of steps that an operand is, if it is one."""
        edge = self.operands[slot]
        source = self.graph[edge.source]
        if not isinstance(source.op, ops.Eval) or not isinstance(source.op.value, Expr):
            return None
        return source.op.value.substitute(edge.points(source.domain))

    def elements(self, edge: Edge, axis: int, positions: Edge) -> Edge:
        return self.build.add(ops.Gather(axis), edge, positions)


def _valid(build: Builder, length: Expr, shape: Sequence[Expr], axis: int) -> Edge:
    """Whether a position along `axis` is below `length`: a boolean tensor of `shape`."""
    size = shape[axis]
    below = build.add(ops.Compare("lt"), build.add(ops.Iota(size)), build.filled((size,), length))
    return build.add(ops.Broadcast(tuple(shape), (axis,)), below)


def _pointwise(work: _Work) -> Edge:
    """Operations that treat padding like any element: it stays padding."""
    return work.build.add(work.op, *work.operands)


def _neutral(work: _Work) -> Edge:
    """Operations along one axis, or several, get their neutral element past its end. A scan from the start may see anything there."""
    if work.padding.again and not getattr(work.op, "reverse", True):
        return _pointwise(work)  # padding comes last
    axes = work.op.axes if isinstance(work.op, ops.Reduce) else (work.op.axis,)
    return work.build.add(work.op, *(work.masked(slot, axes, work.op.neutral) for slot in range(len(work.operands))))


def _dot(work: _Work) -> Edge:
    return work.build.add(work.op, work.masked_apart(0, work.op.left_contract), work.masked_apart(1, work.op.right_contract))


def _conv(work: _Work) -> Edge:
    """The convolution sees zeros past the true sizes. `high` is chosen for the largest output."""
    op: ops.Conv = work.op
    n, (x, w) = op.spatial, work.true_shapes
    before = len(x) - n - 1
    if any(low.steps for low in op.low) or (op.groups != 1 and (x[-1].steps or w[-1].steps)):
        raise ShapeError(
            f"{work.node.label} is a convolution whose {'padding varies' if any(low.steps for low in op.low) else 'groups vary'} with the step",
            where=work.node.where,
            hint="keep channels and groups the same at every step, and pad before the convolution: tp.pad(x, ...)",
        )
    operands = work.masked(0, range(before, len(x))), work.masked(1, range(n + 1))
    wide, kernel, out = work.shape(0), work.shape(1), work.node.outputs[0].shape
    high = tuple(op.high_for(k, wide[before + k], kernel[k], work.static(out[before + k])) for k in range(n))
    return work.build.add(replace(op, high=high), *operands)


def _sized(work: _Work) -> Edge:
    """Broadcast and Random: give the padded size."""
    return work.build.add(replace(work.op, shape=tuple(map(work.static, work.op.shape))), *work.operands)


def _random(work: _Work) -> Edge:
    """Numbers are drawn in row-major order. Where padding an inner size would change that order, they are drawn in one row."""
    if not any(size.steps for size in work.op.shape[1:]):
        return _sized(work)
    shape = tuple(map(work.static, work.op.shape))
    row = work.build.add(replace(work.op, shape=(ops.product(shape),)), *work.operands)
    return work.elements(row, 0, ragged.numbers(work.build, work.op.shape, shape))


def _reshape(work: _Work) -> Edge:
    """Reshape a value with sizes that vary. There are three cases.

    The varying sizes stay, with as many elements between them as before: a reshape of the padded value. One varying size takes
    in the dimensions after it, or gives some up: a reshape too, because the true elements still come first and the padding
    last. In all other reshapes each element is gathered by its row-major number.
    """
    before, after = work.true_shapes[0], work.op.shape
    varying = [s for s in before if s.steps]
    if varying == [s for s in after if s.steps] and _segments(before) == _segments(after):
        return work.build.add(ops.Reshape(tuple(map(work.static, after))), *work.operands)
    target = _regrouped(work, before, after)
    if target is not None:
        return work.build.add(ops.Reshape(target), *work.operands)
    numbers = ragged.numbers(work.build, after, tuple(map(work.static, after)))
    return ragged.elements(work.build, work.operands[0], before, numbers)


def _regrouped(work: _Work, before: Sequence[Expr], after: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """The padded shape of a reshape that moves static sizes between one varying dimension and those after it."""
    old = [k for k, s in enumerate(before) if s.steps]
    new = [k for k, s in enumerate(after) if s.steps]
    if len(old) != 1 or len(new) != 1 or ops.product(tuple(before[: old[0]])) != ops.product(tuple(after[: new[0]])):
        return None
    elements = work.shape(0)[old[0]] * ops.product(tuple(before[old[0] + 1 :]))
    rest = ops.product(tuple(after[new[0] + 1 :]))
    size = elements // rest
    return (*after[: new[0]], size, *after[new[0] + 1 :]) if size * rest == elements else None


def _segments(shape: tuple[Expr, ...]) -> list[Expr]:
    """The number of elements between varying dimensions."""
    counts = [Expr.of(1)]
    for size in shape:
        if size.steps:
            counts.append(Expr.of(1))
        else:
            counts[-1] = counts[-1] * size
    return counts


def _slice(work: _Work) -> Edge:
    op = work.op
    length = (op.stop - op.start + (op.stride - 1)) // op.stride
    if not work.is_padded(0, op.axis) and not length.steps:
        return work.build.add(op, *work.operands)
    ends_inside = work.holds(work.true_shapes[0][op.axis] - op.stop)
    fits = ends_inside and provably_nonnegative(op.start)
    if fits and not length.steps:
        return work.build.add(op, *work.operands)
    if not op.start.steps:  # positions before 0 give zeros, and so do those after the end
        operand = work.operands[0] if ends_inside else work.masked(0, (op.axis,))
        return work.build.add(replace(op, stop=op.start + work.static(length) * op.stride), operand)
    places = positions(work.build, op.start, work.static(length), op.stride)
    return work.elements(work.operands[0], op.axis, places) if fits else _elements_or_zero(work, places)


def _pad(work: _Work) -> Edge:
    op = work.op
    length = work.true_shapes[0][op.axis]
    if not work.is_padded(0, op.axis) and not op.low.steps and not op.high.steps:
        return work.build.add(op, *work.operands)
    size = work.static(length + op.low + op.high)
    if op.low == 0 and size == work.shape(0)[op.axis]:
        return work.masked(0, (op.axis,))  # the true elements are at their places already
    return _elements_or_zero(work, positions(work.build, -op.low, size))


def _elements_or_zero(work: _Work, places: Edge) -> Edge:
    """The operand's elements at `places` along the op's axis. Places before 0, and from the true length on, give zero."""
    axis = work.op.axis
    inside = work.build.within(places, work.true_shapes[0][axis])
    return zeros_outside(work.build, work.elements(work.operands[0], axis, places), inside, (axis,))


def _concat(work: _Work) -> Edge:
    """Each operand moves to its true offset. Later operands overwrite the padding of earlier ones."""
    axis = work.op.axis
    if not any(work.is_padded(slot, axis) for slot in range(len(work.operands))):
        return work.build.add(work.op, *work.operands)
    lengths = [shape[axis] for shape in work.true_shapes]
    size = work.static(sum(lengths[1:], lengths[0]))
    result, offset = None, Expr.of(0)
    for slot, length in enumerate(lengths):
        shape = work.shape(slot)
        target = (*shape[:axis], size, *shape[axis + 1 :])
        moved = work.elements(work.operands[slot], axis, positions(work.build, -offset, size))
        if result is None:
            result = moved
        else:
            earlier = work.valid(offset, size, target, axis)
            result = work.build.add(ops.Where(), earlier, result, moved)
        offset = offset + length
    assert result is not None
    return result


def _flip(work: _Work) -> Edge:
    axis = work.op.axis
    if not work.is_padded(0, axis):
        return work.build.add(work.op, *work.operands)
    size = work.shape(0)[axis]
    return work.elements(work.operands[0], axis, positions(work.build, work.true_shapes[0][axis] - 1, size, -1))


def _gather(work: _Work) -> Edge:
    """Positions are clamped to the true length, not the padded one. A dimension without elements gives zeros."""
    if not work.is_padded(0, work.op.axis):
        return work.build.add(work.op, *work.operands)
    position = work.position(1)
    if position is not None and provably_nonnegative(position) and work.holds(work.true_shapes[0][work.op.axis] - 1 - position):
        return work.build.add(work.op, *work.operands)
    last = work.build.filled(work.shape(1), work.true_shapes[0][work.op.axis] - 1)
    clamped = work.build.add(ops.Binary("minimum"), work.operands[1], last)
    elements = work.build.add(work.op, work.operands[0], clamped)
    if provably_nonnegative(work.true_shapes[0][work.op.axis] - 1):
        return elements
    is_nonempty = work.build.add(ops.Eval(work.true_shapes[0][work.op.axis] >= 1))
    return zeros_outside(work.build, elements, is_nonempty, ())


def _scatter(work: _Work) -> Edge:
    wide = len(work.true_shapes[1]) - work.op.batch
    updates = work.masked(0, range(work.op.axis, work.op.axis + wide), work.op.unwritten)
    return work.build.add(replace(work.op, size=work.static(work.op.size)), updates, work.operands[1])


def _host(work: _Work) -> Edge:
    """Functions on the host get arrays of the true shapes: their lengths are further operands, to which padded arrays are cut."""
    if _is_elementwise(work.node, work.true_shapes):
        types = tuple(replace(type, shape=tuple(map(work.static, type.shape))) for type in work.op.types)
        return work.build.add(replace(work.op, types=types), *work.operands)
    if isinstance(work.op, ops.Udf) and _sums_the_past(work.op):
        types = tuple(replace(type, shape=tuple(map(work.static, type.shape))) for type in work.op.types)
        operands = (work.masked(slot, range(len(shape))) for slot, shape in enumerate(work.true_shapes))
        return work.build.add(replace(work.op, types=types), *operands)
    if isinstance(work.op, ops.Udf) and work.op.kind == "jax":
        return _refused(work)
    varying = [tuple(a for a, size in enumerate(shape) if size.steps) for shape in work.true_shapes]
    lengths = [work.build.add(ops.Eval(shape[a])) for shape, axes in zip(work.true_shapes, varying, strict=True) for a in axes]
    return work.build.add(replace(work.op, fn=Trimmed(work.op.fn, tuple(varying))), *work.operands, *lengths)


def _is_elementwise(node: Node, true_shapes: Sequence[Lengths]) -> bool:
    """Whether a function of arrays runs on each element of the dimensions that vary: it was vectorized over them."""
    op = node.op
    if not isinstance(op, ops.Udf) or op.kind != "jax":
        return False
    mapped, results, fn = [0] * len(true_shapes), 0, op.fn
    while isinstance(fn, Vmapped):
        mapped = [count + (axis is not None) for count, axis in zip(mapped, fn.in_axes, strict=True)]
        results, fn = results + 1, fn.fn
    operands = all(not any(s.steps for s in shape[count:]) for shape, count in zip(true_shapes, mapped, strict=True))
    return operands and not any(size.steps for type in op.types for size in type.shape[results:])


def _sums_the_past(op: ops.Udf) -> bool:
    """Whether a function, or its gradient, convolves with the past: zeros past the end change nothing before it."""
    fn: Any = op.fn
    while isinstance(fn, (Vmapped, Pullback)):
        fn = fn.fn
    return isinstance(fn, Library) and fn.name == PAST_SUMS


def _refused(work: _Work) -> Edge:
    steps = set().union(*(size.steps for shape in work.true_shapes for size in shape))
    chosen = [last.name.partition("_last")[0] for last in work.graph.chosen if last in steps]
    if chosen and steps <= set(work.graph.chosen):
        bound = chosen[0]
        raise ShapeError(
            f"{work.node.label} takes a dimension whose size depends on {bound}, but each run chooses {bound}",
            where=work.node.where,
            hint=f'compile for one number: {{{bound}: 100}}. Or run the function on the host, where sizes are the true ones: kind="host"',
        )
    raise ShapeError(
        f"{work.node.label} takes a dimension that varies with the step",
        where=work.node.where,
        hint="a function needs the same shapes at every step. Reduce the dimension first, x.sum(0), or read all of it: x[0:T]",
    )


RULES: dict[type[ops.Op], Callable[[_Work], Edge]] = {
    ops.Dot: _dot, ops.Conv: _conv, ops.Iota: lambda work: work.build.add(ops.Iota(work.static(work.op.size))), ops.Broadcast: _sized,
    ops.Random: _random, ops.Reshape: _reshape, ops.Slice: _slice, ops.Pad: _pad, ops.Concat: _concat, ops.Flip: _flip,
    ops.Gather: _gather, ops.Scatter: _scatter, ops.Udf: _host, ops.Sink: _host,
}  # fmt: skip
