"""Sums of prefixes and suffixes whose terms also depend on the reader, as scans: the kernels of `ir/ranges/terms.py`.

All forms are as safe as the sums that they replace: exponents are never positive, and products are summed about the running means.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.ir.ranges.moments import Moments, Powers, moved
from tempo_core.ir.ranges.scans import at_all_points, before, spread, take
from tempo_core.ir.ranges.terms import Term
from tempo_core.symbolic.domain import Domain, step_order
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass
class Summation:
    """The sum of a term over all prefixes, or suffixes, of a step. `whole` builds what is there once, `point` what each reader takes.

    A reader takes position `last` of the scans; its range has `count` points.
    """

    whole: Builder
    point: Builder
    term: Term
    step: Symbol
    suffixes: bool
    last: Expr
    count: Expr

    def value(self) -> Edge:
        """The sum, in the shape of the term's factors."""
        term = self.term
        value = self._products() if term.differences else self._exponentials() if term.exponent else self._weights()
        if term.guard is not None:
            value = self.point.add(ops.Where(), term.guard, self._weights(), value)
        return value if term.scale is None else self._two("mul", term.scale, value)

    # -- the kernels --------------------------------------------------------------------------------------------------

    def _weights(self) -> Edge:
        """The sum of the elements; without elements, the number of points."""
        if self.term.element is not None:
            return self._taken(self._summed(self._all(self.term.element)))
        kernel = (*self.term.differences, self.term.exponent)[0]
        like = self.term.scale or kernel.centre  # type: ignore[union-attr]
        type = self.point.type(like)
        count = self.point.add(ops.Cast(type.dtype), self.point.add(ops.Eval(self.count)))
        return self.point.add(ops.Broadcast(type.shape, ()), count)

    def _exponentials(self) -> Edge:
        """`sum(exp(x[s] - m[t]) * v[s])`, with the greatest x so far in place of m, and exchanged for m at the end."""
        assert self.term.exponent is not None
        build, x = self.whole, self._all(self.term.exponent.point)
        greatest = build.add(ops.CumMax(0, self.suffixes), build.add(ops.Identity(stop_gradient=True), x))
        shift = self._finite(build, greatest)
        earlier, earlier_shift = (before(build, e, 0, self.suffixes, first) for e, first in ((greatest, "lowest"), (shift, 0.0)))
        nothing = build.add(ops.Compare("eq"), earlier, spread(build, x, "lowest"))
        rescaling = build.add(ops.Unary("exp"), self._two("sub", earlier_shift, shift, build))
        rescaling = build.add(ops.Where(), nothing, spread(build, x, 1.0), rescaling)  # so far all terms are 0 (or NaN)
        terms = build.add(ops.Unary("exp"), self._two("sub", x, shift, build))
        if self.term.element is not None:
            terms = self._two("mul", terms, self._all(self.term.element), build)
        sums = self._taken(build.add(ops.LinearScan(0, self.suffixes), rescaling, terms))
        exchange = self.point.add(ops.Unary("exp"), self._two("sub", self._taken(shift), self.term.exponent.centre))
        return self._two("mul", sums, exchange)

    def _products(self) -> Edge:
        """`sum((x[s] - m[t]) * (y[s] - n[t]) * v[s])`: the moments about the running means, and the distances of these from m and n.

        All distances are from the first x and y, so that large numbers do not take away the digits.
        """
        build, powers = self.whole, Counter(self.term.differences)
        first = [self._from_the_first(self._all(difference.point)) for difference in powers]
        weights = None if self.term.element is None else self._all(self.term.element)
        moments = Moments(build, [distances for distances, _ in first], weights, self.suffixes)
        off = [
            self._two("sub", self._taken(mean), self._two("sub", difference.centre, origin))
            for mean, difference, (_, origin) in zip(moments.means, powers, first, strict=True)
        ]
        return moved(self.point, tuple(powers.values()), off, lambda lower: self._moment(moments, lower))

    def _moment(self, moments: Moments, powers: Powers) -> Edge | None:
        moment = moments.of(powers)
        return None if moment is None else self._taken(moment)

    def _from_the_first(self, x: Edge) -> tuple[Edge, Edge]:
        """x minus the element that the scan meets first, and that element. If it is not finite, 0 takes its place."""
        build = self.whole
        shape = build.type(x).shape
        start = shape[0] - 1 if self.suffixes else Expr.of(0)
        origin = self._finite(
            build, build.add(ops.Gather(0), build.add(ops.Identity(stop_gradient=True), x), build.add(ops.Eval(start)))
        )
        return self._two("sub", x, build.add(ops.Broadcast(shape, tuple(range(1, len(shape)))), origin), build), origin

    # -- parts --------------------------------------------------------------------------------------------------------

    def _all(self, factor: Edge) -> Edge:
        graph, domain = self.whole.graph, self.whole.domain
        assert domain is not None
        steps = step_order({*domain.steps, self.step}, graph.order)
        return at_all_points(Builder(graph, self.whole.like, Domain(steps, domain.condition)), factor, self.step)

    def _summed(self, x: Edge) -> Edge:
        return self.whole.add(ops.CumSum(0, self.suffixes), x)

    def _taken(self, x: Edge) -> Edge:
        return take(self.point, x, 0, self.step, self.last)

    def _two(self, fn: str, left: Edge, right: Edge, build: Builder | None = None) -> Edge:
        return (build or self.point).add(ops.Binary(fn), left, right)

    def _finite(self, build: Builder, x: Edge) -> Edge:
        return build.add(ops.Where(), build.add(ops.Unary("isfinite"), x), x, spread(build, x, 0.0))
