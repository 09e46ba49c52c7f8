"""Minimum and maximum: of tensors, elementwise; of expressions of steps and bounds, as an index."""

from __future__ import annotations

from typing import Any, overload

from tempo_core.errors import ArgumentError
from tempo_core.frontend.arguments import checked, checked_as
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.tensor import Tensor, UserExpr, Value, user_maximum, user_minimum
from tempo_core.symbolic.expr import Expr, IntoExpr


def _refuse_tensors(name: str, values: tuple[object, ...]) -> None:
    if any(isinstance(value, BaseTensor) for value in values):
        raise ArgumentError(
            f"tp.{name} takes ints and expressions of steps and bounds, not tensors",
            hint=f"for two tensors: tp.{name}imum(x, y). For one tensor, along an axis: x.{name}(axis)",
        )


@checked_as("min")
def least_index(*values: int | Expr) -> UserExpr:
    """The least of symbolic expressions, as an index: `r[t : tp.min(t + 5, T)]`."""
    _refuse_tensors("min", values)
    return user_minimum(*values)


@checked_as("max")
def greatest_index(*values: int | Expr) -> UserExpr:
    """The greatest of symbolic expressions, as an index: `x[tp.max(t - 3, 0) : t + 1]`."""
    _refuse_tensors("max", values)
    return user_maximum(*values)


@overload
def minimum(x: IntoExpr, y: IntoExpr) -> UserExpr: ...  # type: ignore[overload-overlap]
@overload
def minimum(x: Value, y: Value) -> Tensor: ...
@checked
def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of tensors; of two symbolic expressions, an expression."""
    return user_minimum(x, y) if _is_symbolic(x) and _is_symbolic(y) else Tensor._minimum(x, y)


@overload
def maximum(x: IntoExpr, y: IntoExpr) -> UserExpr: ...  # type: ignore[overload-overlap]
@overload
def maximum(x: Value, y: Value) -> Tensor: ...
@checked
def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum of tensors; of two symbolic expressions, an expression."""
    return user_maximum(x, y) if _is_symbolic(x) and _is_symbolic(y) else Tensor._maximum(x, y)


def _is_symbolic(value: object) -> bool:
    return isinstance(value, Expr) or type(value) is int
