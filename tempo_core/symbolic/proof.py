"""Quick, incomplete proofs over boxes: obvious facts about an expression when every step satisfies 0 <= t < T.

Exact questions go to isl (`relation.py`). These proofs keep conditions that hold everywhere out of the graph.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable

from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.domain import Index, Point
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol, maximum, minimum

_MOST_ENTRIES = 256  # of rows together: more are not written out
_MOST_CHOICES = 512  # of one proof: after so many expressions without min and max it gives up


def distribute(expression: Expr) -> list[list[Expr]] | None:
    """The expression as the minimum of rows, each the maximum of its entries. None if it has no such form, or a very long one."""
    for atom in expression.atoms:
        if not isinstance(atom, (Minimum, Maximum)):
            continue
        factor, rest = _taken_out(atom, expression)
        if atom in rest.atoms:
            return None
        choices = []
        for argument in atom.args:
            rows = distribute(rest + argument * factor)
            if rows is None:
                return None
            choices.append(rows)
        if isinstance(atom, Minimum) == (factor > 0):
            combined = [row for rows in choices for row in rows]
        else:
            combined = choices[0]
            for rows in choices[1:]:
                if len(combined) * len(rows) > _MOST_ENTRIES:
                    return None
                combined = [a + b for a in combined for b in rows]
        if sum(map(len, combined)) > _MOST_ENTRIES:
            return None
        return combined
    return [[expression]]


def _taken_out(atom: Minimum | Maximum, expression: Expr) -> tuple[int, Expr]:
    """The number that `atom` is multiplied by in a sum, and the sum without this term."""
    factor = expression.coefficient(atom)
    return factor, expression - Expr.of_atom(atom) * factor


@functools.lru_cache(maxsize=65536)
def provably_nonnegative(expression: Expr) -> bool:
    """True only if `expression >= 0` for all bounds >= 1 and all steps within their bounds."""
    return _Proof().of(expression)


class _Proof:
    """A search through the choices that the `min` and `max` of an expression leave, which gives up after some of them."""

    def __init__(self) -> None:
        self.remaining = _MOST_CHOICES

    def of(self, expression: Expr) -> bool:
        """Whether the expression is surely not negative. A least value is one of all choices, a greatest value one that we choose."""
        if self.remaining <= 0:
            return False
        choice: tuple[Minimum | Maximum, int, Expr] | None = None
        for atom in expression.atoms:
            if not isinstance(atom, (Minimum, Maximum)):
                continue
            factor, rest = _taken_out(atom, expression)
            if atom in rest.atoms:
                return False
            if isinstance(atom, Minimum) == (factor > 0):
                return all(self.of(rest + argument * factor) for argument in atom.args)
            choice = choice or (atom, factor, rest)
        if choice is None:
            self.remaining -= 1
            return _nonnegative_polynomial(expression)
        atom, factor, rest = choice
        if any(self.of(rest + argument * factor) for argument in atom.args):
            return True
        # Of two values, the greater one is at least their mean: max(2*t, 2) >= t + 1.
        return any(self.of(rest * 2 + (a + b) * factor) for a, b in itertools.combinations(atom.args, 2))


def _nonnegative_polynomial(expression: Expr) -> bool:
    for atom in expression.atoms:  # n//d * c and n%d are at most n, for c <= d and n >= 0, or c == d: t - t//2 is not negative
        if isinstance(atom, (FloorDivide, Modulo)) and atom.denominator.is_constant:
            coefficient = expression.coefficient(atom)
            most = atom.denominator.constant if isinstance(atom, FloorDivide) else 1
            is_whole = isinstance(atom, FloorDivide) and 0 < most == -coefficient
            if is_whole or (-most <= coefficient < 0 and provably_nonnegative(atom.numerator)):
                rest = expression - Expr.of_atom(atom) * coefficient
                if atom not in rest.atoms and _nonnegative_polynomial(rest - atom.numerator):
                    return True
    lowest = expression
    for atom in expression.atoms:
        coefficient = lowest.coefficient(atom)
        if isinstance(atom, Symbol) and atom.is_step:
            if coefficient < 0:  # the step's greatest value is its bound - 1
                lowest = lowest - atom.expr * coefficient + (atom.bound_expr - 1) * coefficient
        elif isinstance(atom, Modulo) and coefficient < 0 and provably_nonnegative(atom.denominator - 1):
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


def extreme(values: Iterable[Expr], sign: int, is_nonnegative: Callable[[Expr], bool] = provably_nonnegative) -> Expr:
    """The greatest (sign 1) or least (sign -1) of some values, without those that another one surely reaches."""
    kept: list[Expr] = []
    for value in dict.fromkeys(values):
        if any(is_nonnegative((other - value) * sign) for other in kept):
            continue
        kept = [other for other in kept if not is_nonnegative((value - other) * sign)] + [value]
    return kept[0] if len(kept) == 1 else (maximum if sign > 0 else minimum)(*kept)
