"""Elementwise functions that are not methods of tensors. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import math
from typing import Any, overload

import ml_dtypes
import numpy as np

from tempo_core.errors import ArgumentError
from tempo_core.frontend.arguments import checked, checked_as
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.functions.creation import constant
from tempo_core.frontend.tensor import Tensor, UserExpr, Value, aligned, as_tensor
from tempo_core.ir.types import is_float
from tempo_core.symbolic.expr import Expr, IntoExpr
from tempo_core.symbolic.expr import maximum as greatest
from tempo_core.symbolic.expr import minimum as least

where = Tensor._where


def _truth(x: Value) -> Tensor:
    """Whether each number is not 0. NaN is not 0."""
    tensor = as_tensor(x)
    return tensor if tensor.dtype == "bool" else tensor != 0


@checked
def logical_not(x: Value) -> Tensor:
    """Whether `x` is 0."""
    return ~_truth(x)


@checked
def logical_and(x: Value, y: Value) -> Tensor:
    """Whether neither `x` nor `y` is 0."""
    return _truth(x) & _truth(y)


@checked
def logical_or(x: Value, y: Value) -> Tensor:
    """Whether `x` or `y`, or both, are not 0."""
    return _truth(x) | _truth(y)


@checked
def logical_xor(x: Value, y: Value) -> Tensor:
    """Whether exactly one of `x` and `y` is not 0."""
    return _truth(x) ^ _truth(y)


@checked
def nan_to_num(x: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in place of NaN and of infinities: by default 0 and the largest and lowest finite ones."""
    x = as_tensor(x)
    if not is_float(x.dtype):
        return x
    limits = ml_dtypes.finfo(ml_dtypes.bfloat16) if x.dtype == "bfloat16" else np.finfo(x.dtype)
    high, low = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return where(x.isfinite(), x, where(x.isnan(), nan, where(x > 0, constant(high, x.dtype), constant(low, x.dtype))))


@checked
def stop_gradient(x: Value) -> Tensor:
    """`x` as a constant to differentiation; `x.detach()`."""
    return as_tensor(x).detach()


@checked
def exp2(x: Value) -> Tensor:
    """`2 ** x`."""
    return (as_tensor(x) * math.log(2)).exp()


@checked
def log2(x: Value) -> Tensor:
    """The logarithm to base 2."""
    return as_tensor(x).log() * (1 / math.log(2))


@checked
def log10(x: Value) -> Tensor:
    """The logarithm to base 10."""
    return as_tensor(x).log() * (1 / math.log(10))


@checked
def hypot(x: Value, y: Value) -> Tensor:
    """`sqrt(x**2 + y**2)`, without overflow; its gradient at (0, 0) is 0.

    The larger operand is factored out. The value does not depend on that choice, so derivatives of every order are right at ties and where
    one operand is 0. The larger operand keeps its sign, and is 0 or infinite only where the result is.
    """
    a, b = aligned(x, y)
    swapped = b.abs() > a.abs()
    high, low = where(swapped, b, a), where(swapped, a, b)
    size = high.abs()
    is_infinite = size == math.inf
    ratio = where(is_infinite, 0, low) / where(logical_or(is_infinite, size == 0), 1, high)
    return size * (1 + ratio * ratio).sqrt()


@checked
def isclose(x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    """Where `|x - y| <= atol + rtol * |y|`, or both are the same infinity."""
    a, b = aligned(x, y)
    near = (a - b).abs() <= atol + rtol * b.abs()
    return (a == b) | (b.isfinite() & near)


# -- activations ------------------------------------------------------------------------------------------------------


@checked
def leaky_relu(x: Value, slope: float = 0.01) -> Tensor:
    """`x` above 0, `slope * x` below."""
    tensor = as_tensor(x)
    return where(tensor <= 0, tensor * slope, tensor)


@checked
def elu(x: Value, alpha: float = 1.0) -> Tensor:
    """`x` above 0, `alpha * (exp(x) - 1)` below (Clevert et al., 2016)."""
    tensor = as_tensor(x)
    below = tensor <= 0
    return where(below, where(below, tensor, 0).expm1() * alpha, tensor)


@checked
def log_sigmoid(x: Value) -> Tensor:
    """`log(sigmoid(x))`, without overflow."""
    return -(-as_tensor(x)).softplus()


# -- of tensors, elementwise; of expressions of steps and bounds, as an index ------------------------------------------


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
    return UserExpr(least(*values))


@checked_as("max")
def greatest_index(*values: int | Expr) -> UserExpr:
    """The greatest of symbolic expressions, as an index: `x[tp.max(t - 3, 0) : t + 1]`."""
    _refuse_tensors("max", values)
    return UserExpr(greatest(*values))


@overload
def minimum(x: IntoExpr, y: IntoExpr) -> UserExpr: ...  # type: ignore[overload-overlap]
@overload
def minimum(x: Value, y: Value) -> Tensor: ...
@checked
def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of tensors; of two symbolic expressions, an expression."""
    return UserExpr(least(x, y)) if _is_symbolic(x) and _is_symbolic(y) else Tensor._minimum(x, y)


@overload
def maximum(x: IntoExpr, y: IntoExpr) -> UserExpr: ...  # type: ignore[overload-overlap]
@overload
def maximum(x: Value, y: Value) -> Tensor: ...
@checked
def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum of tensors; of two symbolic expressions, an expression."""
    return UserExpr(greatest(x, y)) if _is_symbolic(x) and _is_symbolic(y) else Tensor._maximum(x, y)


def _is_symbolic(value: object) -> bool:
    return isinstance(value, Expr) or type(value) is int
