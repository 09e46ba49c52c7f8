"""What the readers of a point contribute to it, as functions of the readers' values: `f(x[s], y[t])` for all readers t of s.

The contribution of a reader t is a tensor with a dimension along its window, `f(x[t - 2:t + 1], y[t])`. The source point s needs one
element of each of its readers' tensors. To compute `f` anew from x[s] and from `y` at all readers, `y[s:s + 3]`, takes windows of y and
nothing else; to pick the elements takes w values a reader, of which each source point reads w.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import evaluate
from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.ranges.elements import ELEMENTWISE, kept_axes, without
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass
class Readers:
    """The readers of each point of `step` (the source's), which are a range of `count` points along one step of the readers.

    `span` is the range that each of them reads, from `starts` on: one number, or one for each reader. `points` are the readers' other
    steps, as expressions of the source's. `of_readers` gives a value at all readers, with a leading dimension if it varies with `along`.
    """

    context: BaseContext
    step: Symbol
    span: Range
    along: Symbol
    count: Expr
    starts: Tensor
    points: dict[Symbol, Expr]
    of_readers: Callable[[Tensor], Tensor]

    def contributions(self, edge: Edge, axis: int) -> Tensor | None:
        """The element for the source point of the value that each reader reads by `edge`, whose dimension `axis` lies along its window.

        The readers are the leading dimension, in place of `axis`. None if the element is not a function of x at the source point and
        of values at the reader.
        """
        graph = self.context.graph
        source = graph[edge.source]
        sizes = graph.edge_type(edge).shape
        if any(size.steps for size in (*sizes[:axis], *sizes[axis + 1 :])):
            return None
        ranges = [k for k, index in enumerate(edge.index) if isinstance(index, Range)]
        if axis < len(ranges):
            return self._element(edge, source, ranges[axis])
        if ranges or not edge.is_own_point(source.domain):
            return None
        return self._of_node(source, axis)

    def _element(self, edge: Edge, source: Node, place: int) -> Tensor | None:
        """`x[window]` has the element x[s], for all readers."""
        others = (*edge.index[:place], *edge.index[place + 1 :])
        if source.domain.steps[place] != self.step or edge.index[place] != self.span:
            return None
        if any(self.along in index.steps for index in others):
            return None
        index = tuple(Point(self.step.expr) if k == place else i.substitute(self.points) for k, i in enumerate(edge.index))
        return self._repeated(view(self.context, replace(edge, index=index)))

    def _of_node(self, node: Node, axis: int) -> Tensor | None:
        op = node.op
        if isinstance(op, ELEMENTWISE):
            return self._applied(op, [self.contributions(edge, axis) for edge in node.inputs])
        if isinstance(op, ops.Iota):
            number = evaluate(self.step.expr) - self.starts
            number = number // self.span.stride if self.span.stride != 1 else number
            return number if number.rank else self._repeated(number)
        if isinstance(op, ops.Reduce):
            inner = kept_axes(node, op)[axis]
            shifted = tuple(a + 1 for a in without(op.axes, inner))
            return self._applied(ops.Reduce(op.fn, shifted), [self.contributions(node.inputs[0], inner)])
        if isinstance(op, ops.Broadcast):
            return self._of_broadcast(node, op, axis)
        if isinstance(op, ops.Permute):
            inner = op.order[axis]
            order = tuple(a + 1 for a in without([k for k in op.order if k != inner], inner))
            return self._applied(ops.Permute((0, *order)), [self.contributions(node.inputs[0], inner)])
        if isinstance(op, ops.Dot) and not op.left_batch and not op.left_contract:
            return self._of_product(node, axis)
        if isinstance(op, ops.Slice) and op.axis == axis == 0 and op.stride == 1 and not node.inputs[0].steps:
            return self._of_slice(node, op)
        return None

    def _of_broadcast(self, node: Node, op: ops.Broadcast, axis: int) -> Tensor | None:
        shape = (self.count, *op.shape[:axis], *op.shape[axis + 1 :])
        axes = tuple(a + 1 for a in without(op.axes, axis))
        if axis in op.axes:
            return self._applied(ops.Broadcast(shape, (0, *axes)), [self.contributions(node.inputs[0], op.axes.index(axis))])
        value = self.of_readers(view(self.context, node.inputs[0]))
        return apply(ops.Broadcast(shape, (0, *axes) if value.rank > len(axes) else axes), value)

    def _of_product(self, node: Node, axis: int) -> Tensor | None:
        """The outer product of a value along the window and another one. Sums of products (`Dot`) are not worth computing anew."""
        types = self.context.graph.input_types(node)
        slot, place = (0, axis) if axis < types[0].rank else (1, axis - types[0].rank)
        element = self.contributions(node.inputs[slot], place)
        other = self.of_readers(view(self.context, node.inputs[1 - slot]))
        other = other if other.rank > types[1 - slot].rank else self._repeated(other)
        return self._applied(ops.Dot((), (), (0,), (0,)), [element, other] if slot == 0 else [other, element])

    def _of_slice(self, node: Node, op: ops.Slice) -> Tensor:
        """Weights by position, of which each reader takes its own: `kernel[start:stop]`."""
        position = self.of_readers(evaluate(op.start)) + (evaluate(self.step.expr) - self.starts)
        position = position if position.rank else self._repeated(position)
        return apply(ops.Gather(0), view(self.context, node.inputs[0]), position)

    def _repeated(self, value: Tensor) -> Tensor:
        """A value that is the same for all readers of a point."""
        shape = (self.count, *value.shape)
        return apply(ops.Broadcast(shape, tuple(range(1, len(shape)))), value)

    def _applied(self, op: ops.Op, operands: list[Tensor | None]) -> Tensor | None:
        tensors = [operand for operand in operands if operand is not None]
        return apply(op, *tensors) if len(tensors) == len(operands) else None
