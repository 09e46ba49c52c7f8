"""What is infinite or NaN in one operand of a product, kept out of it: zeros of the other operand would make NaN of it.

A product with a whole step has such zeros at the points outside of each range. A point that is not finite must count in the sums over
ranges that contain it, and in no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.ir.ranges.scans import spread
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass
class Infinities:
    """The values of `value` at all points of `step` that are not finite.

    `each` builds what is there at each point, `whole` what is there once; `at_all_points` reads a value of each point at all points,
    which become its first dimension. With `is_first` the first point that is not finite counts, else the last one.
    """

    each: Builder
    whole: Builder
    at_all_points: Callable[[Edge], Edge]
    value: Edge
    step: Symbol
    is_first: bool

    def __post_init__(self) -> None:
        self._is_finite = self.each.add(ops.Unary("isfinite"), self.value)
        self._zero = spread(self.each, self.value, 0.0)

    def finite(self) -> Edge:
        """The values at each point, with zeros in place of those that are not finite."""
        return self.each.add(ops.Where(), self._is_finite, self.value, self._zero)

    def reached(self, build: Builder, position: Edge, places: tuple[int, ...], axis: int | None = None) -> Edge:
        """The sum of the values that are not finite where `position` reaches the first (or last) of them, else zero.

        `position` has one dimension, which becomes dimension `axis` of the result, or none. `places` are the other dimensions.
        """
        rest = self.each.add(ops.Where(), self._is_finite, self._zero, self.value)
        total = self.whole.add(ops.Reduce("sum", (0,)), self.at_all_points(rest))
        size = build.type(position).shape
        shape = list(build.type(total).shape)
        if axis is not None:
            shape.insert(axis, size[0])
        limit, total = (build.add(ops.Broadcast(tuple(shape), places), e) for e in (self._limit(), total))
        here = build.add(ops.Broadcast(tuple(shape), () if axis is None else (axis,)), position)
        is_reached = build.add(ops.Compare("ge" if self.is_first else "le"), here, limit)
        return build.add(ops.Where(), is_reached, total, spread(build, total, 0.0))

    def _limit(self) -> Edge:
        """The first, or the last, point whose value is not finite. If there is none, no position reaches it."""
        shape = self.each.type(self.value).shape
        none = self.step.bound_expr if self.is_first else Expr.of(-1)
        point, nowhere = (self.each.filled(shape, number) for number in (self.step.expr, none))
        places = self.each.add(ops.Where(), self._is_finite, nowhere, point)
        return self.whole.add(ops.Reduce("min" if self.is_first else "max", (0,)), self.at_all_points(places))
