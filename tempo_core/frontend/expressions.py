"""Expressions that users hold: `t + 5` is an expression again, `t * 0.5` a tensor, and `t == 0` a condition on points."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

from tempo_core.frontend.aliases import Array
from tempo_core.symbolic.condition import Bool, Comparison
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

Number = float | np.generic | Array  # that is not whole: it makes a tensor of a step, `t * 0.5`
F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Expr)  # the class of users' expressions, and that of tensors: they stand above this file
T = TypeVar("T")


def _swapped(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: operation(b, a)


def _operator(operation: Callable[[Any, Any], Any], like: F) -> Callable[[Callable[..., Any]], F]:
    """Decorator of an operator that `operation` computes, with the types of another operator."""

    def decorator(declared: Callable[..., Any]) -> F:
        @functools.wraps(declared)
        def operator(self: Expression[Any, Any], other: Any) -> Any:
            return self._with(other, operation)

        return operator  # type: ignore[return-value]

    return decorator


class Expression(Expr, Generic[E, T]):
    """An expression that a user holds. A dict does not distinguish it from its plain expression.

    `t == 0` has two meanings. A user asks "at which points is t zero?": `if t == 0:` would never hold while a program is built,
    without a warning. The compiler's dicts, tuples and dataclasses ask "are these the same expression?". The class of the operands
    tells the two apart: a context gives its user such expressions, arithmetic on them gives the same again, and `Expr.of` turns them
    into plain expressions for the compiler, which are compared by their structure. Dicts work for both: equal expressions have
    equal hashes, and different expressions have different hashes, so a dict compares only equal expressions.
    """

    def __init__(self, expr: Expr):
        super().__init__(expr.terms)
        object.__setattr__(self, "_plain", expr.plain)

    @property
    def plain(self) -> Expr:
        return self._plain  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def _of_user(cls, value: Any) -> Any:
        """An expression or a comparison in the user's form; any other value as it is."""
        if isinstance(value, Expr):
            return value if isinstance(value, cls) else cls(value)
        return replace(value, is_question=True) if isinstance(value, Comparison) else value

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """The operation on plain expressions, and its result as the user's."""
        return self._of_user(operation(self.plain, other.plain if isinstance(other, Expr) else other))

    # -- arithmetic: with a number that is not whole, or a tensor, it gives a tensor -----------------------------------------

    @overload  # type: ignore[override]
    def __add__(self, other: IntoExpr) -> E: ...
    @overload
    def __add__(self, other: Number) -> T: ...
    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    @_operator(_swapped(operator.add), like=__add__)
    def __radd__(self, other: Any) -> Any: ...
    @_operator(operator.sub, like=__add__)
    def __sub__(self, other: Any) -> Any: ...  # type: ignore[override]
    @_operator(_swapped(operator.sub), like=__add__)
    def __rsub__(self, other: Any) -> Any: ...
    @_operator(operator.mul, like=__add__)
    def __mul__(self, other: Any) -> Any: ...  # type: ignore[override]
    @_operator(_swapped(operator.mul), like=__add__)
    def __rmul__(self, other: Any) -> Any: ...
    @_operator(operator.floordiv, like=__add__)
    def __floordiv__(self, other: Any) -> Any: ...  # type: ignore[override]
    @_operator(operator.mod, like=__add__)
    def __mod__(self, other: Any) -> Any: ...  # type: ignore[override]

    def __rfloordiv__(self, other: IntoExpr) -> E:
        return self._with(other, _swapped(operator.floordiv))

    def __rmod__(self, other: IntoExpr) -> E:
        return self._with(other, _swapped(operator.mod))

    def __truediv__(self, other: object) -> T:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: object) -> T:
        return self._with(other, _swapped(operator.truediv))

    @overload  # type: ignore[override]
    def __pow__(self, other: int) -> E: ...
    @overload
    def __pow__(self, other: Expr | Number) -> T: ...
    def __pow__(self, other: Any) -> Any:
        return self._with(other, operator.pow)

    def __rpow__(self, other: object) -> T:
        return self._with(other, _swapped(operator.pow))

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        return type(self)(-self.plain)

    def __abs__(self) -> Self:
        return type(self)(abs(self.plain))

    # -- comparisons --------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Bool:  # type: ignore[override]
        return self._same(other, operator.eq)

    def __ne__(self, other: object) -> Bool:  # type: ignore[override]
        return self._same(other, operator.ne)

    def _same(self, other: object, operation: Callable[[Any, Any], Any]) -> Any:
        """`==` and `!=`. For two bare symbols the result has a truth value, so that `t in (i, t)` works."""
        are_names = isinstance(other, Expr) and isinstance(self.single_atom, Symbol) and isinstance(other.single_atom, Symbol)
        condition = operation(self.plain, other.plain if isinstance(other, Expr) else other)
        return condition if are_names else self._of_user(condition)

    @overload  # type: ignore[override]
    def __lt__(self, other: IntoExpr) -> Bool: ...
    @overload
    def __lt__(self, other: Number) -> T: ...
    def __lt__(self, other: Any) -> Any:
        return self._with(other, operator.lt)

    @_operator(operator.le, like=__lt__)
    def __le__(self, other: Any) -> Any: ...  # type: ignore[override]
    @_operator(operator.gt, like=__lt__)
    def __gt__(self, other: Any) -> Any: ...  # type: ignore[override]
    @_operator(operator.ge, like=__lt__)
    def __ge__(self, other: Any) -> Any: ...  # type: ignore[override]
