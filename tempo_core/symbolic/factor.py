"""Takes factors of bounds out of an expression: `B*t + B - B*max(t - 3, 0)` is `B` times the length of a window."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tempo_core.symbolic.expr import Atom, Expr, Maximum, Minimum, Monomial, Symbol, maximum, minimum
from tempo_core.symbolic.groups import Groups
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Product:
    """`factor * expr`, with no step in the factor."""

    factor: Expr
    expr: Expr


def products(expr: Expr, coupled: Iterable[frozenset[Symbol]] = ()) -> tuple[list[Product], Expr]:
    """`expr` as a sum of products, each with its own expression of steps, and the remaining terms, which have no steps.

    Terms whose steps vary independently of each other are in different products. The steps in one set of `coupled` do not vary
    independently.

    >>> t, B = Symbol("t", "T").expr, Symbol("B").expr
    >>> products(B * t + B - B * maximum(t - 3, 0) + 7)
    ([Product(factor=B, expr=t - max(t - 3, 0) + 1)], 7)
    """
    expr = factored(expr)
    step_groups = groups_of((*coupled, *(_steps(monomial) for monomial, _ in expr.terms)))
    rest_terms: dict[Monomial, int] = {}
    terms_by_product: dict[tuple[Monomial, Symbol], dict[Monomial, int]] = {}  # by the bounds and a representative of the steps
    for monomial, coefficient in expr.terms:
        of_steps = tuple(item for item in monomial if _steps((item,)))
        of_bounds = tuple(item for item in monomial if not _steps((item,)))
        if of_steps:
            group = step_groups.of(min(_steps(of_steps), key=str))
            terms_by_product.setdefault((of_bounds, group), {})[of_steps] = coefficient
        else:
            rest_terms[of_bounds] = coefficient
    factors: dict[Expr, Expr] = {}  # B*t - t is (B - 1)*t: multiples of one expression are one product
    for (of_bounds, _), terms in terms_by_product.items():
        part = Expr.of_terms(terms)
        common = math.gcd(*terms.values()) * (1 if part.terms[0][1] > 0 else -1)
        part = Expr(tuple((m, c // common) for m, c in part.terms))
        factors[part] = factors.get(part, Expr.of(0)) + common * Expr.of_terms({of_bounds: 1})
    parts = []
    rest = Expr.of_terms(rest_terms)
    for part, factor in factors.items():
        if factor.terms:  # else the terms cancel
            share = _quotient(rest, factor)
            rest = rest - share * factor
            parts.append(Product(factor, part + share))
    return parts, rest


def groups_of(coupled: Iterable[frozenset[Symbol]]) -> Groups[Symbol]:
    """The steps in groups that vary independently of each other."""
    groups: Groups[Symbol] = Groups()
    for steps in coupled:
        for step in steps:
            groups.join(step, min(steps, key=str))
    return groups


def _steps(monomial: Monomial) -> frozenset[Symbol]:
    return frozenset().union(*(Expr.of_atom(atom).steps for atom, _ in monomial))


def _quotient(expr: Expr, factor: Expr) -> Expr:
    """How many times `factor` is contained in an expression without steps. Only obvious multiples count."""
    leading, divisor = factor.terms[0]
    total, remaining = Expr.of(0), expr
    for monomial, coefficient in expr.terms:
        for quotient in _divided(monomial, coefficient, leading, divisor):
            part = Expr.of_terms({quotient: coefficient // divisor})
            difference = remaining - part * factor
            if len(difference.terms) < len(remaining.terms):
                total, remaining = total + part, difference
    return total


def _divided(monomial: Monomial, coefficient: int, by: Monomial, divisor: int) -> list[Monomial]:
    """The quotient of two terms, where it is a number or a single bound."""
    factors = _without(monomial, by)
    fits = coefficient % divisor == 0 and sum(power for _, power in factors) <= 1 and all(power > 0 for _, power in factors)
    return [factors] if fits else []


def factored(expr: Expr) -> Expr:
    """The same expression with common factors of bounds outside of min and max: `min(B*t, B*7)` is `B*min(t, 7)`."""
    total = Expr.of(0)
    for monomial, coefficient in expr.terms:
        term = Expr.of(coefficient)
        for atom, power in monomial:
            term = term * _factored_atom(atom) ** power
        total = total + term
    return total


def _factored_atom(atom: Atom) -> Expr:
    if not isinstance(atom, (Minimum, Maximum)):
        return Expr.of_atom(atom)
    join = minimum if isinstance(atom, Minimum) else maximum
    args = [factored(arg) for arg in atom.args]
    common = _common(args)
    if common:
        args = [Expr.of_terms({_without(m, common): c for m, c in arg.terms}) for arg in args]
    groups: dict[Expr, list[Expr]] = {}
    for arg in args:
        factor = _only_factor(arg)
        groups.setdefault(factor.factor, []).append(factor.expr)
    return Expr.of_terms({common: 1}) * join(*(factor * join(*members) for factor, members in groups.items()))


def _only_factor(expr: Expr) -> Product:
    """An expression as one product. Its factor may be moved out of a min or max."""
    if expr.steps:
        parts, rest = products(expr, [expr.steps])
        if len(parts) == 1 and not rest.terms:
            (part,) = parts
            for candidate in (part, Product(-part.factor, -part.expr)):
                if provably_nonnegative(candidate.factor):
                    return candidate
    return Product(Expr.of(1), expr)


def _common(args: list[Expr]) -> Monomial:
    """The bounds that all terms of all expressions have as factors."""
    monomials = [dict(m) for arg in args for m, _ in arg.terms]
    powers = {atom: min(m.get(atom, 0) for m in monomials) for atom in (monomials[0] if monomials else ())}
    return tuple((atom, power) for atom, power in powers.items() if power and _is_positive(atom))


def _is_positive(atom: Atom) -> bool:
    """Whether a factor may be moved out of a min: it has no steps and is not negative."""
    return not _steps(((atom, 1),)) and provably_nonnegative(Expr.of_atom(atom))


def _without(monomial: Monomial, factor: Monomial) -> Monomial:
    """A monomial divided by another one; powers may be negative."""
    powers = dict(monomial)
    for atom, power in factor:
        powers[atom] = powers.get(atom, 0) - power
    return tuple((atom, power) for atom, power in powers.items() if power)
