"""What users hold of steps and bounds: expressions whose comparisons are questions about points, and have no truth value.

`if t == 0:` in a program that is being built would quietly never hold, and Python asks dicts, tuples and dataclasses of the
compiler the same question, where "are these the same expression?" is what is meant. The two are told apart by what is
compared: a context gives its user `UserExpr`s, all arithmetic on them gives such again, and `Expr.of` takes them into the
compiler as plain expressions, which are compared by their structure. Dicts work for both: equal expressions have equal hashes,
and different ones different hashes, so that a dict asks only about equals.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tempo_core.symbolic.condition import Bool, Comparison
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol, maximum, minimum


class UserExpr(Expr):
    """An expression that a user holds. As the key of a dict it is its plain expression."""

    def __init__(self, expr: Expr):
        super().__init__(expr.terms)
        object.__setattr__(self, "_plain", expr.plain)

    @property
    def plain(self) -> Expr:
        return self._plain  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return self._hash

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """The operation on plain expressions, and its result as the user's."""
        return of_user(operation(self._plain, other.plain if isinstance(other, Expr) else other))  # type: ignore[attr-defined]

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b * a)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b // a)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b % a)

    def __pow__(self, other: Any) -> Any:
        return self._with(other, operator.pow)

    def __neg__(self) -> Expr:
        return UserExpr(-self.plain)

    def __abs__(self) -> Expr:
        return UserExpr(abs(self.plain))

    # -- comparisons --------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Bool:  # type: ignore[override]
        return self._same(other, operator.eq)

    def __ne__(self, other: object) -> Bool:  # type: ignore[override]
        return self._same(other, operator.ne)

    def _same(self, other: object, operation: Callable[[Any, Any], Any]) -> Any:
        """`==` and `!=`. Two steps, each by itself, are the same or not: `t in (i, t)` looks for one."""
        are_names = isinstance(other, Expr) and isinstance(self.single_atom, Symbol) and isinstance(other.single_atom, Symbol)
        condition = operation(self.plain, other.plain if isinstance(other, Expr) else other)
        return condition if are_names else of_user(condition)

    def __lt__(self, other: Any) -> Any:
        return self._with(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._with(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._with(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._with(other, operator.ge)


def of_user(value: Any) -> Any:
    """An expression or a comparison as the user's; all else as it is."""
    if isinstance(value, Expr):
        return value if isinstance(value, UserExpr) else UserExpr(value)
    return replace(value, is_question=True) if isinstance(value, Comparison) else value


def user_minimum(*values: IntoExpr) -> Expr:
    """The least of some expressions, for the user."""
    return UserExpr(minimum(*values))


def user_maximum(*values: IntoExpr) -> Expr:
    """The greatest of some expressions, for the user."""
    return UserExpr(maximum(*values))


class Sizes(tuple[Expr, ...]):
    """The sizes of a tensor, for the user. Shapes are compared by the structure of their sizes: `x.shape == (t + 1, 3)`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and super().__eq__(tuple(map(_plain, other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __contains__(self, size: object) -> bool:
        return super().__contains__(_plain(size))


def _plain(value: object) -> object:
    return value.plain if isinstance(value, Expr) else value
