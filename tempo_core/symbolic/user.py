"""The expressions of users. Their comparisons are questions about points, and have no truth value.

`t == 0` has two meanings. A user asks "at which points is t zero?": `if t == 0:` would never hold while a program is built,
without a warning. The compiler's dicts, tuples and dataclasses ask "are these the same expression?". The class of the operands
tells the two apart: a context gives its user `UserExpr`s, arithmetic on them gives `UserExpr`s again, and `Expr.of` turns them
into plain expressions for the compiler, which are compared by their structure. Dicts work for both: equal expressions have
equal hashes, and different expressions have different hashes, so a dict compares only equal expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tempo_core.symbolic.condition import Bool, Comparison
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol, maximum, minimum


class UserExpr(Expr):
    """An expression that a user holds. A dict does not distinguish it from its plain expression."""

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
        """`==` and `!=`. For two bare symbols the result has a truth value, so that `t in (i, t)` works."""
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
    """An expression or a comparison in the user's form; any other value as it is."""
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
