"""The moments of all prefixes, or suffixes, of a step: sums of products of distances from the running means, by cumulative sums alone.

Where the mean of a prefix differs from that of the prefix before, its moments are those of the prefix before about another point, and the
product of the new distances (Welford, 1962, for the variance; Pébay, 2008, for all powers).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.ir.ranges.scans import before, spread
from tempo_core.symbolic.expr import Expr

Powers = tuple[int, ...]  # the power of each variable in a product


class Moments:
    """The moments of `variables`, arrays along the step, whose terms have `weights`."""

    def __init__(self, build: Builder, variables: Sequence[Edge], weights: Edge | None, suffixes: bool):
        self.build, self.weights, self.suffixes = build, weights, suffixes
        self._moments: dict[Powers, Edge | None] = {}
        self.counts, self.counts_before = self._counts(variables[0])
        self.means = [_two(build, "div", self._summed(x), self.counts) for x in variables]
        self.from_mean = [_two(build, "sub", x, mean) for x, mean in zip(variables, self.means, strict=True)]

    def of(self, powers: Powers) -> Edge | None:
        """The moment about the means with these powers; None where it is zero."""
        if powers not in self._moments:
            self._moments[powers] = self._of(powers)
        return self._moments[powers]

    def _of(self, powers: Powers) -> Edge | None:
        if not any(powers):
            return self.counts if self.weights is None else self._summed(self.weights)
        if self.weights is None and sum(powers) == 1:
            return None
        if self.weights is None and sum(powers) == 2:
            one, other = (k for k, power in enumerate(powers) for _ in range(power))
            growth = _two(
                self.build, "div", self.counts, self.counts_before
            )  # of the distance: from the mean before, not from this one
            return self._summed(_product(self.build, (1, 1), [self.from_mean[one], self.from_mean[other]], growth))
        new = _product(self.build, powers, self.from_mean, self.weights)
        steps = [_two(self.build, "div", distance, self.counts_before) for distance in self.from_mean]  # of the means
        back = [self.build.add(ops.Unary("neg"), step) for step in steps]
        earlier = moved(self.build, powers, back, lambda lower: self._earlier(lower) if lower != powers else None)
        return self._summed(_two(self.build, "add", new, earlier))

    def _earlier(self, powers: Powers) -> Edge | None:
        moment = self.of(powers)
        return None if moment is None else self._before(moment)

    def _counts(self, like: Edge) -> tuple[Edge, Edge]:
        """The number of terms of each prefix, or suffix, and of the one before it: 1 for the first, whose distances are all zero."""
        build, type = self.build, self.build.type(like)

        earlier, one = build.add(ops.Iota(type.shape[0])), build.filled(type.shape[:1], Expr.of(1))
        if self.suffixes:
            earlier = build.add(ops.Binary("sub"), build.filled(type.shape[:1], type.shape[0] - 1), earlier)
        numbers = build.add(ops.Binary("add"), earlier, one), build.add(ops.Binary("maximum"), earlier, one)
        counts, before = (build.add(ops.Broadcast(type.shape, (0,)), build.add(ops.Cast(type.dtype), n)) for n in numbers)
        return counts, before

    def _summed(self, x: Edge) -> Edge:
        return self.build.add(ops.CumSum(0, self.suffixes), x)

    def _before(self, x: Edge) -> Edge:
        return before(self.build, x, 0, self.suffixes, 0.0)


def moved(build: Builder, powers: Powers, by: Sequence[Edge], moment: Callable[[Powers], Edge | None]) -> Edge:
    """The moment about other points, which lie `by` before the means, from the moments about the means."""
    terms = []
    for lower in itertools.product(*(range(power + 1) for power in powers)):
        value = moment(lower)
        if value is not None:
            rest = tuple(power - part for power, part in zip(powers, lower, strict=True))
            value = _product(build, rest, by, value)
            times = math.prod(map(math.comb, powers, lower))
            terms.append(value if times == 1 else _two(build, "mul", value, spread(build, value, float(times))))
    total = terms[0]
    for term in terms[1:]:
        total = _two(build, "add", term, total)
    return total


def _product(build: Builder, powers: Powers, values: Sequence[Edge], factor: Edge | None) -> Edge:
    """The product of the values to their powers and a factor."""
    product = factor
    for value, power in zip(values, powers, strict=True):
        for _ in range(power):
            product = value if product is None else _two(build, "mul", value, product)
    assert product is not None
    return product


def _two(build: Builder, fn: str, left: Edge, right: Edge) -> Edge:
    return build.add(ops.Binary(fn), left, right)
