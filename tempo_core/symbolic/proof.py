"""Quick, incomplete proofs over boxes: obvious facts about an expression when every step satisfies 0 <= t < T.

Exact questions go to isl (`relation.py`). These proofs keep conditions that hold everywhere out of the graph.
"""

from __future__ import annotations

import functools

from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.domain import Index, Point
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol


def distribute(expression: Expr) -> list[list[Expr]] | None:
    """The expression as the minimum of rows, each the maximum of its entries. None if it has no such form."""
    for atom in expression.atoms:
        if not isinstance(atom, (Minimum, Maximum)):
            continue
        factor = sum((c for m, c in expression.terms if m == ((atom, 1),)), 0)
        rest = expression - Expr.of_atom(atom) * factor
        if atom in rest.atoms:
            return None
        choices = [distribute(rest + argument * factor) for argument in atom.args]
        if any(choice is None for choice in choices):
            return None
        rows = [choice for choice in choices if choice is not None]
        if isinstance(atom, Minimum) == (factor > 0):
            return [row for choice in rows for row in choice]
        combined = rows[0]
        for choice in rows[1:]:
            combined = [a + b for a in combined for b in choice]
        return combined
    return [[expression]]


@functools.lru_cache(maxsize=65536)
def provably_nonnegative(expression: Expr) -> bool:
    """True only if `expression >= 0` for all bounds >= 1 and all steps within their bounds."""
    rows = distribute(expression)
    return rows is not None and all(any(map(_nonnegative_polynomial, row)) for row in rows)


def _nonnegative_polynomial(expression: Expr) -> bool:
    for atom in expression.atoms:  # n//d * c and n%d are at most n, for c <= d and n >= 0: t - t//2 is not negative
        if isinstance(atom, (FloorDivide, Modulo)) and atom.denominator.is_constant:
            coefficient = expression.coefficient(atom)
            most = atom.denominator.constant if isinstance(atom, FloorDivide) else 1
            if -most <= coefficient < 0 and provably_nonnegative(atom.numerator):
                rest = expression - Expr.of_atom(atom) * coefficient
                if atom not in rest.atoms and _nonnegative_polynomial(rest - atom.numerator):
                    return True
    lowest = expression
    for atom in expression.atoms:
        coefficient = sum((c for m, c in lowest.terms if m == ((atom, 1),)), 0)
        if isinstance(atom, Symbol) and atom.is_step:
            if coefficient < 0:  # the step's greatest value is its bound - 1
                lowest = lowest - atom.expr * coefficient + (atom.bound_expr - 1) * coefficient
        elif isinstance(atom, Modulo) and atom.denominator.is_constant and coefficient < 0:
            lowest = lowest - Expr.of_atom(atom) * coefficient + (atom.denominator - 1) * coefficient
        elif isinstance(atom, (FloorDivide, Modulo)) and not _is_nonnegative(atom):
            return False
    shifted = lowest.substitute({s: s.expr + 1 for s in lowest.symbols if not s.is_step})
    return all(c >= 0 for _, c in shifted.terms)


def _is_nonnegative(atom: FloorDivide | Modulo) -> bool:
    """Whether a quotient or a remainder is surely not negative: its divisor is positive, and a quotient's numerator not negative."""
    is_positive = provably_nonnegative(atom.denominator - 1)
    return is_positive and (isinstance(atom, Modulo) or provably_nonnegative(atom.numerator))


def holds_everywhere(condition: Bool) -> bool:
    """True only if the condition obviously holds for all steps within their bounds."""
    return all(part is TRUE or _is_obvious(part) for part in condition.parts)


def _is_obvious(part: Bool) -> bool:
    return isinstance(part, Comparison) and part.kind == ">=" and provably_nonnegative(part.expr)


def unless_obvious(condition: Bool) -> Bool:
    """The condition without the parts that obviously hold."""
    return conjunction(*(p for p in condition.parts if not holds_everywhere(p)))


@functools.lru_cache(maxsize=65536)
def within(index: Index, step: Symbol) -> Bool:
    """The condition under which an index of `step` stays in the step's bounds."""
    if isinstance(index, Point):
        ends = at_least_zero(index.expr), at_least_zero(step.bound_expr - 1 - index.expr)
    else:
        ends = at_least_zero(index.start), at_least_zero(step.bound_expr - index.stop)
    return unless_obvious(conjunction(*ends))
