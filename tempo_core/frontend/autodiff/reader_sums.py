"""Sums of contributions: what all readers of each source point contribute to its gradient, through one read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tempo_core.frontend.autodiff.contributions import as_key, without_broadcast_axis
from tempo_core.frontend.autodiff.readers import Readers
from tempo_core.frontend.autodiff.window_gradients import window_elements
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import arange, scatter_add, where, zeros
from tempo_core.frontend.tensor import Tensor, apply, evaluate, of_node, pad_axis
from tempo_core.ir.graph import Edge
from tempo_core.ir.ops import Identity, Merge, Slice
from tempo_core.prices import window_width
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Point, Range, full_range, index_steps, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.inverse import Inverse
from tempo_core.symbolic.proof import provably_nonnegative


class Axis(NamedTuple):
    """A dimension of a contribution, for a range that the read has. A window moves with its readers, and has a greatest `width`."""

    step: Symbol  # of the source
    span: Range
    width: Expr | None


class ReaderSum:
    """The sum over all readers of each source point. The readers' points are `domain`, those of one source point `inverse`.

    Unless `exact`, `inverse` also has points that do not read the source point.
    """

    def __init__(self, context: BaseContext, edge: Edge, domain: Domain, inverse: Inverse, exact: bool):
        self.context, self.edge, self.domain, self.inverse, self.exact = context, edge, domain, inverse, exact
        self.source = context.graph[edge.source]
        self.indices = edge.by_step(self.source.domain)

    def condition(self, condition: Bool) -> Bool:
        """A condition on readers, as one on the points that they read: as far as each such point has one reader along a step."""
        points = self._points()
        return conjunction(*(part.substitute(points) for part in condition.parts if part.steps <= points.keys()))

    def of(self, contribution: Tensor, is_on_cycle: Callable[[], bool]) -> Tensor:
        """The sum of the readers' contributions. `is_on_cycle` says whether the readers' values depend on the readers themselves."""
        value, axes = self._dense(contribution)
        from_readers = self._from_readers(value, axes)
        value = self._over_windows(self._placed(value, axes), axes)
        if not self.exact:  # points of the hull that are not readers must contribute zeros
            value = at_all_points(value, self.domain)
        elif from_readers is None and not is_on_cycle():
            value = self._of_all_points(value, {axis.step for axis in axes if axis.width is None})
        gathered = self._at_readers(value) if from_readers is None else from_readers
        if not self.exact:
            gathered = self._zero_unless_read(gathered)
        count = sum(isinstance(back, Range) and step in value.domain for step, back in self._backs().items())
        if from_readers is None:
            gathered = self._of_windows(gathered, value, axes, count)
        gathered = gathered.sum(tuple(range(count))) if count else gathered
        return fit_shape(self._picked(self._repeated(gathered, value), axes), self.source.outputs[self.edge.output].shape)

    def _backs(self) -> dict[Symbol, Point | Range]:
        return dict(zip(self.domain.steps, self.inverse.index, strict=True))

    def _points(self) -> dict[Symbol, Expr]:
        """The steps of the readers along which each source point has one reader, as expressions of the source point."""
        return {step: back.expr for step, back in self._backs().items() if isinstance(back, Point)}

    def _dense(self, value: Tensor) -> tuple[Tensor, list[Axis]]:
        """The value without the dimensions along which it does not vary: of these only the sum over readers remains. And the others."""
        axes: list[Axis] = []
        for step, span in self.indices.items():
            if isinstance(span, Range):
                narrowed = without_broadcast_axis(value, len(axes)) if self.exact else None
                if narrowed is None:
                    axes.append(Axis(step, span, window_width(span, step, self.domain)))
                value = value if narrowed is None else narrowed
        return value, axes

    def _from_readers(self, value: Tensor, axes: Sequence[Axis]) -> Tensor | None:
        """The elements of the readers' contributions that belong to each source point, computed from the readers' values.

        The only dimension of `value` for a range must be a window. The readers are a range of one step, and take the place of the window.
        """
        moving = [(s, back) for s, back in self._backs().items() if isinstance(back, Range) and s in value.domain]
        if not self.exact or len(axes) != 1 or axes[0].width is None or len(moving) != 1:
            return None
        (step, span, _), (along, back), points = axes[0], moving[0], self._points()
        starts = self._at_readers(evaluate(span.start.substitute(points)))
        readers = Readers(self.context, step, span, along, back.length, starts, points, self._at_readers)
        return readers.of(value.edge, 0)

    def _placed(self, value: Tensor, axes: Sequence[Axis]) -> Tensor:
        """The value with windows as wide as the widest, and other ragged dimensions at the absolute positions of the source."""
        for k, (step, span, width) in enumerate(axes):
            if width is not None:
                value = pad_axis(value, k, 0, width - span.length)
            elif span.steps and span.stride == 1:
                value = pad_axis(value, k, span.start, step.bound_expr - span.stop)
            elif span.steps:
                positions = evaluate(span.start) + arange(span.length) * span.stride
                value = scatter_add(value, positions, step.bound_expr, k)
        return value

    def _over_windows(self, value: Tensor, axes: Sequence[Axis]) -> Tensor:
        """The value over all steps with which a window moves: equal contributions of readers have windows that lie elsewhere."""
        order = self.context.graph.order
        moving = frozenset().union(*(axis.span.steps for axis in axes if axis.width is not None))
        if moving <= set(value.domain.steps):
            return value
        steps = step_order({*moving, *value.domain.steps}, order)
        return apply(Identity(), value, domain=Domain(steps, value.domain.condition))

    def _of_all_points(self, value: Tensor, wide: set[Symbol]) -> Tensor:
        """The value for a sum over all points instead of the readers, along steps that move only the ranges of the steps `wide`.

        The value has zeros outside of these ranges, and one sum serves all points of the source.
        """
        others = index_steps(tuple(index for step, index in self.indices.items() if step not in wide))
        moving = index_steps(tuple(self.indices[step] for step in wide)) - others - {s for n in value.shape for s in n.steps}
        backs = tuple(
            full_range(step) if step in moving and step in value.domain and isinstance(back, Range) else back
            for step, back in self._backs().items()
        )
        if backs == self.inverse.index:
            return value
        self.inverse = replace(self.inverse, index=backs)
        is_everywhere = self.domain.condition is TRUE and value.domain.condition is TRUE
        return value if is_everywhere else at_all_points(value, self.domain)

    def _of_windows(self, gathered: Tensor, value: Tensor, axes: Sequence[Axis], count: int) -> Tensor:
        """The element of each window that belongs to the source point. The first `count` dimensions of `gathered` are readers."""
        for k, (step, span, width) in reversed(list(enumerate(axes))):
            if width is not None:
                starts = self._starts(span, value)
                gathered = window_elements(gathered, count + k, starts, step, span.stride, self.exact)
        return gathered

    def _starts(self, span: Range, value: Tensor) -> Tensor:
        """Where the windows of the readers of each source point begin: a number for all of them, or one for each reader of `value`."""
        points = self._points()
        if span.start.steps <= points.keys():
            return evaluate(span.start.substitute(points))
        return self._at_readers(apply(Identity(), evaluate(span.start), domain=Domain(value.domain.steps)))

    def _at_readers(self, value: Tensor) -> Tensor:
        """A value over the readers' domain, read at the readers of each source point. Ranges of readers are its first dimensions."""
        keys = [back for step, back in self._backs().items() if step in value.domain]
        if not keys:
            return value
        if any(isinstance(k, Range) and not provably_nonnegative(k.stop - k.start) for k in keys):
            # At a point without readers, the range would end before it starts.
            return value[(*map(as_key, keys), self.inverse.condition)]
        return value[tuple(map(as_key, keys))]

    def _zero_unless_read(self, value: Tensor) -> Tensor:
        """`value`, gathered from the hull of the readers, with zeros for points that read another point of the source.

        Only indices at points are compared: the elements of slices are at their absolute positions already.
        """
        for step, at in self.indices.items():
            if isinstance(at, Point) and not is_own_point(at, step):
                read_point = apply(Identity(), evaluate(at.expr), domain=Domain(self.domain.steps))
                is_read = self._at_readers(read_point) == evaluate(step.expr)
                value = where(is_read.reshape((*is_read.type.shape, *(1,) * (value.rank - is_read.rank))), value, 0)
        return value

    def _repeated(self, summed: Tensor, value: Tensor) -> Tensor:
        """A sum times the number of readers along steps with which `value` does not vary: their contributions are equal."""
        repeat = Expr.of(1)
        for step, back in self._backs().items():
            if step not in value.domain and isinstance(back, Range):
                repeat = repeat * back.length
        return summed if repeat == 1 else summed * repeat

    def _picked(self, value: Tensor, axes: Sequence[Axis]) -> Tensor:
        """The element of each source point, along the dimensions for ranges that are not windows."""
        wide = [axis for axis in axes if axis.width is None]
        for k, (step, span, _) in reversed(list(enumerate(wide))):
            value = value.index(k, step.expr if span.steps else (step.expr - span.start) // span.stride)
        return value


def at_all_points(value: Tensor, domain: Domain) -> Tensor:
    """`value` at all points of a domain's steps, with zeros where the domain's condition does not hold."""
    graph = value.context.graph
    node = graph.add(Merge(value.type), domain=Domain(domain.steps), where=value.node.where)
    edge = replace(value.edge, condition=domain.condition & value.domain.condition)
    graph.put(replace(node, inputs=(edge, zeros(value.shape, value.dtype).edge)))
    return of_node(value.context, node)


def fit_shape(x: Tensor, shape: tuple[Expr, ...]) -> Tensor:
    """`x` in `shape`. Where x is read the sizes are equal, even if the expressions are not: t + 1 and T are equal at T - 1."""
    if len(shape) != x.rank:
        return x.reshape(shape)
    for axis, size in enumerate(shape):
        if x.type.shape[axis] != size:
            x = apply(Slice(axis, Expr.of(0), size), x)
    return x
