"""Points of a set along one dimension: from the first to the last, for values of the set's parameters."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.sets import CONTEXT

Span = tuple[int, int]  # points from the first to before the last


def along(points: isl.Set, axis: int) -> isl.Set:
    """The points along one dimension alone."""
    others = points.dim(isl.dim_type.set) - axis - 1
    return points.project_out(isl.dim_type.set, axis + 1, others).project_out(isl.dim_type.set, 0, axis)


def hull(points: isl.Set) -> isl.Set:
    """All points from the first to the last, of a set with one dimension."""
    order = isl.Map.lex_le(points.get_space())
    return points.apply(order).intersect(points.apply(order.reverse()))


def most_across(points: isl.Set) -> int | None:
    """The most points from the first to the last, whatever the parameters are; None if there is no limit."""
    if points.is_empty():
        return 0
    across = isl.Set.from_pw_aff(points.dim_max(0).sub(points.dim_min(0)))  # a function's own `max_val` knows no floors
    most = across.project_out(isl.dim_type.param, 0, across.dim(isl.dim_type.param)).dim_max_val(0)
    return int(most.to_python()) + 1 if most.is_int() else None


class Ends:
    """The first and the last point of a set with one dimension, whose parameters are counters."""

    def __init__(self, points: isl.Set):
        self.is_empty = points.is_empty()
        if not self.is_empty:
            self.first, self.last = points.dim_min(0), points.dim_max(0)
            self.counters = [Symbol(name, "") for name in points.get_var_names(isl.dim_type.param)]
            self.zero = isl.Point.zero(points.params().get_space())

    def at(self, counters: Mapping[Symbol, int]) -> Span | None:
        """The points, from the first to before the last; None if there are none."""
        if self.is_empty:
            return None
        place = self.zero
        for k, each in enumerate(self.counters):
            place = place.set_coordinate_val(isl.dim_type.param, k, isl.Val(counters[each], CONTEXT))
        first, last = self.first.eval(place), self.last.eval(place)
        return (int(first.to_python()), int(last.to_python()) + 1) if first.is_int() and last.is_int() else None
