"""What the readers of a point contribute to it, as functions of the readers' values: `f(x[s], y[t])` for all readers t of s.

The contribution of a reader t is a tensor with a dimension along its window, `f(x[t - 2:t + 1], y[t])`. The source point s needs one
element of each of its readers' tensors. To compute `f` anew from x[s] and from `y` at all readers, `y[s:s + 3]`, takes windows of y and
nothing else; to pick the elements takes w values a reader, of which each source point reads w.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Tensor, apply, evaluate, view
from tempo_core.ir import ops
from tempo_core.ir.axes import Source, with_leading
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.ranges.elements import Along
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol


class Readers(Along[Tensor]):
    """The readers of each point of `step` (the source's), which are a range of `count` points along one step of the readers.

    `span` is the range that each of them reads, from `starts` on: one number, or one for each reader. `points` are the readers' other
    steps, as expressions of the source's. `of_readers` gives a value at all readers, with a leading dimension if it varies with `along`.
    What is computed for the readers of a point has them as its leading dimension.
    """

    needs_all_points = False

    def __init__(
        self,
        context: BaseContext,
        step: Symbol,
        span: Range,
        along: Symbol,
        count: Expr,
        starts: Tensor,
        points: dict[Symbol, Expr],
        of_readers: Callable[[Tensor], Tensor],
    ):
        super().__init__(context.graph, step, span)
        self.context, self.along, self.count, self.starts, self.points = context, along, count, starts, points
        self.of_readers = of_readers

    def moves(self, steps: frozenset[Symbol]) -> bool:
        return self.along in steps

    def of_range(self, edge: Edge, place: int) -> Tensor:
        """`x[window]` has the element x[s], for all readers."""
        index = tuple(Point(self.step.expr) if k == place else i.substitute(self.points) for k, i in enumerate(edge.index))
        return self._repeated(view(self.context, replace(edge, index=index)))

    def position(self, counter: Node) -> Tensor:
        distance = evaluate(self.step.expr) - self.starts
        number = distance // self.span.stride if self.span.stride != 1 else distance
        return number if number.rank else self._repeated(number)

    def at_all_positions(self, edge: Edge) -> Tensor:
        value = self.of_readers(view(self.context, edge))
        return value if value.rank > self.graph.edge_rank(edge) else self._repeated(value)

    def may_compute(self, op: ops.Op, source: Source) -> bool:
        """Sums of products are not worth computing anew; outer products are."""
        is_sum = isinstance(op, ops.Conv) or (isinstance(op, ops.Dot) and bool(op.left_contract))
        return not is_sum and not any(symbol.is_step for symbol in op.symbols)

    def along_its_axis(self, node: Node, op: ops.Op, axis: int) -> Tensor | None:
        """Weights by position, of which each reader takes its own: `kernel[start:stop]`."""
        if not isinstance(op, ops.Slice) or axis or op.stride != 1 or node.inputs[0].steps:
            return None
        position = self.of_readers(evaluate(op.start)) + (evaluate(self.step.expr) - self.starts)
        position = position if position.rank else self._repeated(position)
        return apply(ops.Gather(0), view(self.context, node.inputs[0]), position)

    def computed(self, node: Node, op: ops.Op, operands: list[Tensor]) -> Tensor:
        return apply(with_leading(op, self.count), *operands)

    def _repeated(self, value: Tensor) -> Tensor:
        """A value that is the same for all readers of a point."""
        shape = (self.count, *value.shape)
        return apply(ops.Broadcast(shape, tuple(range(1, len(shape)))), value)
