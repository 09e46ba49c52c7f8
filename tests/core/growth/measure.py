"""The growth of a cost: the monomials of a SymPy expression, compared with wanted ones."""

from __future__ import annotations

from typing import Any

import sympy

Monomial = tuple[tuple[str, int], ...]  # bounds with their powers; () is a constant


def monomials(expression: Any) -> set[Monomial]:
    """How an expression grows: its monomials. `T // 4` grows like T, and a logarithm counts as a constant.

    >>> sorted(monomials(sympy.sympify("3*T**2 + T*Max(6, T) + W*floor(T/4)")))
    [(('T', 1),), (('T', 1), ('W', 1)), (('T', 2),)]
    >>> sorted(monomials(sympy.sympify("W*floor((T + W)/W)")))
    [(('T', 1),), (('W', 1),)]
    """
    if expression.is_number or isinstance(expression, sympy.log):
        return {()}
    if expression.is_Symbol:
        return {((str(expression), 1),)}
    if isinstance(expression, (sympy.Add, sympy.Max)):
        return set().union(*map(monomials, expression.args))
    if isinstance(expression, sympy.Mul):
        products: set[Monomial] = {()}
        for factor in expression.args:
            products = {_times(one, other) for one in products for other in monomials(factor)}
        return products
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
        products = {()}
        for _ in range(int(expression.exp)):
            products = {_times(one, other) for one in products for other in monomials(expression.base)}
        return products
    if isinstance(expression, (sympy.floor, sympy.ceiling)):
        return monomials(expression.args[0])
    if isinstance(expression, sympy.Mod):
        return monomials(expression.args[1])
    if isinstance(expression, sympy.Pow) and expression.base.is_Symbol and expression.exp.is_Integer:
        return {((str(expression.base), int(expression.exp)),)}  # a number of blocks, T / W
    raise AssertionError(f"how does {expression} grow?")


def excess(expression: Any, wanted: str) -> set[Monomial]:
    """The monomials that divide no wanted one. In each term, a minimum grows like any of its arguments, whichever leaves least.

    >>> excess(sympy.sympify("3*T**2 + W*T + W"), "T*W")
    {(('T', 2),)}
    >>> excess(sympy.sympify("T*Min(6, T)"), "T"), excess(sympy.sympify("(T + W)*Min(T, W)"), "T*W")
    (set(), set())
    >>> excess(sympy.sympify("W*Min(W, T) + T*Min(W, T)"), "T*W"), excess(sympy.sympify("T*W*Min(W, T)"), "T*W") != set()
    (set(), True)
    """
    allowed = [dict(monomial) for monomial in monomials(sympy.sympify(wanted, {name: sympy.Symbol(name) for name in "NIS"}))]
    return set().union(*(_excess_of_term(term, allowed) for term in _terms(expression)))


def _excess_of_term(term: Any, allowed: list[dict[str, int]]) -> set[Monomial]:
    variants = [term]
    for minimum in sorted(term.atoms(sympy.Min), key=str):
        variants = [variant.subs(minimum, part) for variant in variants for part in minimum.args]
    left = [
        {m for m in monomials(variant.expand()) if not any(all(p <= each.get(b, 0) for b, p in m) for each in allowed)}
        for variant in variants
    ]
    return min(left, key=len)


def _terms(expression: Any) -> list[Any]:
    """The terms of sums, and of maxima of sums."""
    expanded = expression.expand()
    if isinstance(expanded, (sympy.Add, sympy.Max)):
        return [term for part in expanded.args for term in _terms(part)]
    return [expanded]


def _times(one: Monomial, other: Monomial) -> Monomial:
    powers = dict(one)
    for bound, power in other:
        powers[bound] = powers.get(bound, 0) + power
    return tuple(sorted((bound, power) for bound, power in powers.items() if power))
