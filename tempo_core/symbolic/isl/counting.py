"""How many points a set has, and sums over its points: polynomials in the bounds, for sets of isl.

The points of a triangle `i <= t < T` are counted like nested loops: the sum over t of one, then the sum over i of the result, each
by the formula for sums of powers. Where several limits hold (`max(0, t - w)`), the set is cut into parts with one limit each.
A part that has no points for the present bounds is left out, so the polynomial is right for these bounds and all others
for which the same parts have points.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import islpy as isl

from tempo_core.symbolic.expr import Atom, Expr, IntoExpr, Maximum, Minimum, Modulo, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, at_bounds
from tempo_core.symbolic.isl.translate import affine_expression


@dataclass(frozen=True)
class Count:
    """`numerator / denominator`. If it `is_exact` is false, it is an upper bound."""

    numerator: Expr
    denominator: int = 1
    is_exact: bool = True

    def __add__(self, other: Count) -> Count:
        common = math.lcm(self.denominator, other.denominator)
        numerator = self.numerator * (common // self.denominator) + other.numerator * (common // other.denominator)
        return Count(numerator, common, self.is_exact and other.is_exact)

    def evaluate(self, bounds: Mapping[Symbol, int]) -> Fraction:
        return Fraction(self.numerator.evaluate(bounds), self.denominator)


def summed(points: isl.Set, steps: Sequence[Symbol], each: IntoExpr, bounds: Mapping[Symbol, int]) -> Count:
    """The sum of `each`, an expression of the steps and bounds, over a set of points of the steps.

    >>> i, t = Symbol("i", "I"), Symbol("t", "T")
    >>> triangle = isl.Set.read_from_str(CONTEXT, "[T] -> { [i, t] : 0 <= i <= t < T }")
    >>> count = summed(triangle, (i, t), 1, {Symbol("T"): 4})
    >>> print(f"({count.numerator}) / {count.denominator}", count.evaluate({Symbol("T"): 4}))
    (T**2 + T) / 2 10
    """
    counters = [Symbol(f"@{k}", "") for k in range(len(steps))]
    term = Expr.of(each).substitute({s: c.expr for s, c in zip(steps, counters, strict=True)})
    polynomial, is_exact = _polynomial(term, frozenset(counters))
    total = Count(Expr.of(0), 1, is_exact)
    if polynomial == 0:
        return total
    for part in points.make_disjoint().get_basic_sets():
        total += _over(part, counters, Count(polynomial), bounds)
    return total


def _over(part: isl.BasicSet, counters: Sequence[Symbol], each: Count, bounds: Mapping[Symbol, int]) -> Count:
    """The sum of a polynomial over a basic set, along the last counter first."""
    part = part.detect_equalities().remove_redundancies()
    if part.is_empty() or at_bounds(part, bounds).is_empty():
        return Count(Expr.of(0))
    if not counters:
        return each
    counter = counters[-1]
    k, stride = len(counters) - 1, 1
    if part.dim(isl.dim_type.div):
        stride = isl.Set.from_basic_set(part).get_stride(k).to_python()
        each, part = replace(each, is_exact=False), isl.BasicSet.remove_divs(part).remove_redundancies()
    lows, highs = _limits(part, counters)
    total = Count(Expr.of(0))
    for low in lows:
        for high in highs:
            region = part
            for other in lows:
                if other is not low:
                    region = region.add_constraint(low.at_least(other, lows.index(other) < lows.index(low)))
            for other in highs:
                if other is not high:
                    region = region.add_constraint(other.at_least(high, highs.index(other) < highs.index(high)))
            inner = _along(each, counter, low, high, stride)
            total += _over(region.project_out(isl.dim_type.set, k, 1), counters[:-1], inner, bounds)
    return total


@dataclass(frozen=True)
class _Limit:
    """A limit `expr / factor` of a counter, as an expression of the counters before it and the bounds. `affine` is `expr` for isl."""

    expr: Expr
    factor: int
    affine: isl.Aff

    def at_least(self, other: _Limit, strictly: bool) -> isl.Constraint:
        """That this limit is at least another one, or greater."""
        ours, others = (a.affine.scale_val(isl.Val(b.factor, CONTEXT)) for a, b in ((self, other), (other, self)))
        return isl.Constraint.inequality_from_aff(ours.sub(others).add_constant_val(isl.Val(-int(strictly), CONTEXT)))


def _limits(part: isl.BasicSet, counters: Sequence[Symbol]) -> tuple[list[_Limit], list[_Limit]]:
    """The lower and the upper limits of the last counter."""
    lows: list[_Limit] = []
    highs: list[_Limit] = []
    bounds = [Symbol(part.get_dim_name(isl.dim_type.param, k)) for k in range(part.dim(isl.dim_type.param))]
    for constraint in part.get_constraints():
        affine, last = constraint.get_aff(), len(counters) - 1
        factor = affine.get_coefficient_val(isl.dim_type.in_, last).to_python()
        if not factor:
            continue
        rest = affine.set_coefficient_val(isl.dim_type.in_, last, isl.Val(0, CONTEXT))  # factor * x + rest >= 0
        rest = rest.neg() if factor > 0 else rest
        expr = affine_expression(rest, counters, bounds)
        assert expr is not None, "the divisions are left out"
        limit = _Limit(expr, abs(factor), rest)
        if constraint.is_equality():
            return [limit], [limit]
        (lows if factor > 0 else highs).append(limit)
    assert lows and highs, f"the points of a statement have limits: {part}"
    return lows, highs


def _along(each: Count, counter: Symbol, low: _Limit, high: _Limit, stride: int) -> Count:
    """The sum of a polynomial over `low <= counter <= high`."""
    powers = _by_power(each.numerator, counter)
    if low.factor == high.factor == 1 and (stride == 1 or max(powers) > 0):
        total = Count(Expr.of(0), 1, each.is_exact)
        for power, coefficient in powers.items():
            up_to, below = _powers(power, high.expr + 1), _powers(power, low.expr)
            numerator = coefficient * (up_to.numerator - below.numerator)
            total += Count(numerator, up_to.denominator * each.denominator)
        return total
    # A number of points that rounds: an upper bound. Terms that are added are greatest at the upper limit, terms that are subtracted are
    # least at the lower one.
    top = max(powers)
    numerator, denominator = Expr.of(0), (high.factor * low.factor) ** top
    for power, coefficient in powers.items():
        added, subtracted = coefficient.by_sign()
        for part, limit in ((added, high), (-subtracted, low)):
            numerator = numerator + part * limit.expr**power * (denominator // limit.factor**power)
    span = high.expr * low.factor - low.expr * high.factor
    between = low.factor * high.factor * stride
    return Count(numerator * (span + between), denominator * between * each.denominator, is_exact=False)


def _powers(power: int, stop: Expr) -> Count:
    """`0**power + 1**power + ... + (stop - 1)**power`, by Bernoulli's formula."""
    bernoulli = [Fraction(1)]
    for m in range(1, power + 1):
        bernoulli.append(-sum((math.comb(m + 1, j) * bernoulli[j] for j in range(m)), Fraction(0)) / (m + 1))
    factors = [math.comb(power + 1, j) * bernoulli[j] / (power + 1) for j in range(power + 1)]
    denominator = math.lcm(*(f.denominator for f in factors))
    numerator = Expr.of(0)
    for j, factor in enumerate(factors):
        numerator = numerator + stop ** (power + 1 - j) * int(factor * denominator)
    return Count(numerator, denominator)


def _by_power(polynomial: Expr, counter: Symbol) -> dict[int, Expr]:
    """The coefficients of a polynomial by the powers of a counter."""
    powers: dict[int, Expr] = {}
    for monomial, coefficient in polynomial.terms:
        power = next((p for atom, p in monomial if atom == counter), 0)
        rest = Expr.of_terms({tuple((a, p) for a, p in monomial if a != counter): coefficient})
        powers[power] = powers.get(power, Expr.of(0)) + rest
    return powers or {0: Expr.of(0)}


def _polynomial(term: Expr, counters: frozenset[Symbol]) -> tuple[Expr, bool]:
    """An expression that is a polynomial of the counters, and at least `term`; and whether it is `term` itself.

    A minimum is at most each of its arguments, a maximum at most the sum of their positive terms, and `t // 4` at most t. What a term
    subtracts is at least 0: factors are sizes.
    """
    for monomial, coefficient in term.terms:
        for atom, _ in monomial:
            if isinstance(atom, Symbol) or not Expr.of_atom(atom).symbols & counters:
                continue
            if not isinstance(atom, (Minimum, Maximum)):  # for a positive divisor, and other factors that are not negative
                greatest = atom.denominator - 1 if isinstance(atom, Modulo) else atom.numerator
                part = Expr.of_terms({monomial: coefficient})
                bound = replaced(part, atom, greatest if coefficient > 0 else Expr.of(0))
                return _polynomial(term - part + bound, counters)[0], False
            choices = list(atom.args)
            if isinstance(atom, Maximum) and coefficient > 0:
                choices = [functools.reduce(operator.add, (choice.by_sign()[0] for choice in choices))]
            candidates = [_polynomial(replaced(term, atom, choice), counters)[0] for choice in choices]
            return min(candidates, key=lambda e: len(e.symbols & counters)), False
    return term, True


def replaced(term: Expr, atom: Atom, value: Expr) -> Expr:
    """The expression with an atom replaced by an expression."""
    total = Expr.of(0)
    for monomial, coefficient in term.terms:
        part = Expr.of(coefficient)
        for factor, power in monomial:
            part = part * (value if factor == atom else Expr.of_atom(factor)) ** power
        total = total + part
    return total
