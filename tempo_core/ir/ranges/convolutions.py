"""Sums over a window with fixed weights: `y[t] = sum over k of x[t + first + k] * w[k]`, at all points t, is a convolution of x and w."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.axes import places_of, source_of, tiled
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node, compose
from tempo_core.ir.ranges.window_reductions import bounded_window_of
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, full_range
from tempo_core.symbolic.expr import Expr, Symbol, maximum


@dataclass(frozen=True)
class Operand:
    """An operand with all points of a step, or with all weights: what it reads, and then views. `shape` is that after the views."""

    edge: Edge
    views: tuple[ops.Op, ...]
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class Convolution:
    """A contraction of a window of `step` with weights that do not vary with the step.

    Dimension `axis` of operand `slot` is the window, and dimension `kernel_axis` of the other operand has its weights. `x` is the one at
    all points of the step, in place of those of the window, and `kernel` the other with all weights: at the ends of the step, the node
    reads fewer.
    """

    graph: Graph
    node: Node
    step: Symbol
    slot: int
    axis: int
    kernel_axis: int
    x: Operand
    kernel: Operand
    first: Expr
    width: Expr

    def of_all_points(self, build: Builder) -> Edge:
        """The results for all points: those of the node at each point of the step, which is the first dimension."""
        op = self.node.op
        assert isinstance(op, ops.Dot)
        contract = (op.left_contract, op.right_contract) if self.slot == 0 else (op.right_contract, op.left_contract)
        pairs = [(a, k) for a, k in zip(*contract, strict=True) if a != self.axis]
        free, features = self.free
        sizes, outputs = [self.x.shape[a] for a in free], [self.kernel.shape[k] for k in features]
        channels = ops.product(tuple(self.x.shape[a] for a, _ in pairs))
        x, kernel = (
            functools.reduce(lambda value, view: build.add(view, value), each.views, each.edge) for each in (self.x, self.kernel)
        )
        x = build.add(ops.Permute((*free, self.axis, *(a for a, _ in pairs))), x)
        x = build.add(ops.Reshape((*sizes, self.step.bound_expr, channels)), x)
        kernel = build.add(ops.Permute((self.kernel_axis, *(k for _, k in pairs), *features)), kernel)
        kernel = build.add(ops.Reshape((self.width, channels, ops.product(tuple(outputs)))), kernel)
        conv = ops.Conv((1,), (-self.first,), (self.width - 1 + self.first,), (1,), (1,), Expr.of(1))
        results = build.add(ops.Reshape((*sizes, self.step.bound_expr, *outputs)), build.add(conv, x, kernel))
        return build.add(ops.Permute(self._order_of_results()), results)

    @property
    def free(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dimensions of the window's operand, and of the weights, that stay."""
        each = [tuple(sorted(places)) for places in places_of(self.graph, self.node)]
        return each[self.slot], each[1 - self.slot]

    def _order_of_results(self) -> tuple[int, ...]:
        """The dimensions of the convolution's results in the order of the node's, with the step in front."""
        free, features = (len(axes) for axes in self.free)
        in_free, in_features = tuple(range(free)), tuple(range(free + 1, free + 1 + features))
        return (free, *in_free, *in_features) if self.slot == 0 else (free, *in_features, *in_free)


def convolution_of(graph: Graph, node: Node) -> Convolution | None:
    """The convolution that a node computes one point of; None if it does not contract a window with fixed weights."""
    op = node.op
    if not isinstance(op, ops.Dot) or op.left_batch:
        return None
    for slot, (contract, others) in enumerate([(op.left_contract, op.right_contract), (op.right_contract, op.left_contract)]):
        for axis, kernel_axis in zip(contract, others, strict=True):
            view = _viewed(graph, node.inputs[slot], axis)
            along = _range_at(graph, view.edge, view.axis)
            window = None if along is None else bounded_window_of(along[2], along[1])
            if along is None or window is None or along[1] not in node.domain:
                continue
            place, step, index = along
            whole = replace(view.edge, index=(*view.edge.index[:place], full_range(step), *view.edge.index[place + 1 :]))
            x = view.widened(graph, whole, step.bound_expr)
            kernel = _weights(graph, node.inputs[1 - slot], kernel_axis, step, index, *window)
            if x is not None and kernel is not None and step not in whole.steps:
                return Convolution(graph, node, step, slot, axis, kernel_axis, x, kernel, *window)
    return None


def _range_at(graph: Graph, edge: Edge, axis: int) -> tuple[int, Symbol, Range] | None:
    """The plain range that an edge reads as dimension `axis`, with its place in the index and its step; None if it reads none there."""
    source = graph[edge.source]
    ranges = [(k, s, i) for k, (s, i) in enumerate(zip(source.domain.steps, edge.index, strict=True)) if isinstance(i, Range)]
    if axis >= len(ranges) or source.domain.condition is not TRUE:
        return None
    index = ranges[axis][2]
    return ranges[axis] if index.stride == 1 and index.size is None else None


def _weights(graph: Graph, edge: Edge, axis: int, step: Symbol, index: Range, first: Expr, width: Expr) -> Operand | None:
    """The weights of a whole window, if an edge reads those of the points `index` in dimension `axis`; else None."""
    view = _viewed(graph, edge, axis)
    source = graph[view.edge.source]
    op, distance, whole = source.op, step.expr + first, view.edge
    if step in view.edge.steps:
        if not isinstance(op, ops.Slice) or op.axis != view.axis or op.stride != 1 or op.stop - op.start != index.length:
            return None
        if not view.edge.is_own_point(source.domain) or op.start not in (index.start - distance, maximum(-distance, 0)):
            return None
        inner = compose(source.inputs[0], source.domain.steps, view.edge.index)
        if inner is None or step in inner.steps:
            return None
        whole = inner
    return view.widened(graph, whole, width) if graph.edge_type(whole).shape[view.axis] == width else None


@dataclass(frozen=True)
class _Viewed:
    """A read, of which `views` are permutations and reshapes. Dimension `axis` of the read is the wanted one.

    Each view has the dimension that it becomes there.
    """

    edge: Edge
    axis: int
    views: tuple[tuple[ops.Op, int], ...]

    def widened(self, graph: Graph, edge: Edge, size: Expr) -> Operand | None:
        """The operand, if it reads `edge`, whose dimension is `size` long, in place of its own. None if a size varies with a step."""
        views = tuple(tiled(op, axis, size) for op, axis in self.views)
        type = graph.edge_type(edge)
        for op in views:
            (type,) = op.infer((type,))
        return None if any(length.steps for length in type.shape) else Operand(edge, views, type.shape)


def _viewed(graph: Graph, edge: Edge, axis: int) -> _Viewed:
    """What an edge reads as dimension `axis`, through views that leave that dimension as it is."""
    views: list[tuple[ops.Op, int]] = []
    while True:
        source = graph[edge.source]
        is_own = bool(source.inputs) and edge.is_own_point(source.domain)  # else ranges add dimensions
        inner = compose(source.inputs[0], source.domain.steps, edge.index) if is_own else None
        is_view = isinstance(source.op, (ops.Permute, ops.Reshape))
        before = source_of(graph, source, axis) if inner is not None and is_view else None
        if inner is None or before is None or before[0] is None:
            return _Viewed(edge, axis, tuple(reversed(views)))
        views.append((source.op, axis))
        (edge, axis) = inner, before[0]
