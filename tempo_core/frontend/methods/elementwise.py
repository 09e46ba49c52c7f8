"""Elementwise functions. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from tempo_core.frontend.arguments import checked
from tempo_core.frontend.methods.nodes import Value, apply, as_tensor
from tempo_core.frontend.methods.operands import broadcast_shapes
from tempo_core.frontend.methods.operators import Operators, computed_by
from tempo_core.frontend.methods.shapes import aligned
from tempo_core.ir import ops
from tempo_core.ir.types import is_float

Tensor = TypeVar("Tensor", bound="Elementwise[Any]")


class Elementwise(Operators[Tensor]):
    """The elementwise methods of tensors."""

    @checked
    def _where(condition: Value, x: Value, y: Value) -> Tensor:
        """`x` where `condition` holds, else `y`. The condition may be a tensor or a condition on steps.

        Both `x` and `y` are computed. The one that is not chosen gets a gradient of 0, and 0 times infinity is NaN: so guard its argument
        too, `where(x > 0, log(where(x > 0, x, 1)), 0)`.
        """
        test = as_tensor(condition)
        a, b = aligned(x, y)
        shape = broadcast_shapes(test.type.shape, a.type.shape)
        return apply(ops.Where(), *(v.broadcast_to(shape) for v in (test, a, b)))

    @computed_by(ops.Unary("abs"))
    def abs(x: Value) -> Tensor:
        """`|x|`, elementwise."""

    __abs__ = abs

    @computed_by(ops.Unary("round"))
    def round(x: Value) -> Tensor:
        """The nearest whole number, as a float; halfway between two, the even one."""

    @checked
    def clip(x: Tensor, low: Value | None = None, high: Value | None = None) -> Tensor:
        """`x` limited to the range from `low` to `high`; either end may be left out."""
        x = x if low is None else x._maximum(low)
        return x if high is None else x._minimum(high)

    @computed_by(ops.Unary("exp"))
    def exp(x: Value) -> Tensor:
        """`e ** x`, elementwise."""

    @computed_by(ops.Unary("expm1"))
    def expm1(x: Value) -> Tensor:
        """`exp(x) - 1`, precise near 0."""

    @computed_by(ops.Unary("log"))
    def log(x: Value) -> Tensor:
        """The natural logarithm, elementwise."""

    @computed_by(ops.Unary("log1p"))
    def log1p(x: Value) -> Tensor:
        """`log(1 + x)`, precise near 0."""

    @computed_by(ops.Unary("sqrt"))
    def sqrt(x: Value) -> Tensor:
        """The square root, elementwise."""

    @computed_by(ops.Unary("rsqrt"))
    def rsqrt(x: Value) -> Tensor:
        """`1 / sqrt(x)`, elementwise."""

    @checked
    def square(x: Value) -> Tensor:
        """`x * x`."""
        tensor = as_tensor(x)
        return tensor * tensor

    @checked
    def reciprocal(x: Value) -> Tensor:
        """`1 / x`."""
        return 1 / as_tensor(x)

    @computed_by(ops.Unary("sigmoid"))
    def sigmoid(x: Value) -> Tensor:
        """`1 / (1 + exp(-x))`, elementwise."""

    @computed_by(ops.Unary("tanh"))
    def tanh(x: Value) -> Tensor:
        """The hyperbolic tangent, elementwise."""

    @computed_by(ops.Unary("erf"))
    def erf(x: Value) -> Tensor:
        """The error function, elementwise."""

    @computed_by(ops.Unary("sin"))
    def sin(x: Value) -> Tensor:
        """The sine of radians, elementwise."""

    @computed_by(ops.Unary("cos"))
    def cos(x: Value) -> Tensor:
        """The cosine of radians, elementwise."""

    @computed_by(ops.Unary("tan"))
    def _tan(x: Value) -> Tensor:
        """The tangent of radians, elementwise."""

    @computed_by(ops.Unary("asin"))
    def _arcsin(x: Value) -> Tensor:
        """The angle in radians whose sine is `x`, in [-π/2, π/2]."""

    @computed_by(ops.Unary("acos"))
    def _arccos(x: Value) -> Tensor:
        """The angle in radians whose cosine is `x`, in [0, π]."""

    @computed_by(ops.Unary("atan"))
    def _arctan(x: Value) -> Tensor:
        """The angle in radians whose tangent is `x`, in (-π/2, π/2)."""

    @computed_by(ops.Unary("sinh"))
    def _sinh(x: Value) -> Tensor:
        """The hyperbolic sine, elementwise."""

    @computed_by(ops.Unary("cosh"))
    def _cosh(x: Value) -> Tensor:
        """The hyperbolic cosine, elementwise."""

    @computed_by(ops.Unary("asinh"))
    def _arcsinh(x: Value) -> Tensor:
        """The inverse of `sinh`, elementwise."""

    @computed_by(ops.Unary("acosh"))
    def _arccosh(x: Value) -> Tensor:
        """The inverse of `cosh`, elementwise."""

    @computed_by(ops.Unary("atanh"))
    def _arctanh(x: Value) -> Tensor:
        """The inverse of `tanh`, elementwise."""

    @computed_by(ops.Binary("atan2"))
    def _arctan2(x: Value, y: Value) -> Tensor:
        """The angle in radians of the point with first coordinate `y` and second coordinate `x`, in (-π, π]."""

    @computed_by(ops.Binary("logaddexp"))
    def _logaddexp(x: Value, y: Value) -> Tensor:
        """`log(exp(x) + exp(y))`, without overflow, also for infinite operands.

        Two equal infinities have half of the gradient each.
        """

    @computed_by(ops.Unary("sign"))
    def sign(x: Value) -> Tensor:
        """-1, 0 or 1, elementwise."""

    @computed_by(ops.Unary("floor"))
    def floor(x: Value) -> Tensor:
        """The greatest whole number that is not above `x`, as a float."""

    @computed_by(ops.Unary("ceil"))
    def ceil(x: Value) -> Tensor:
        """The least whole number that is not below `x`, as a float."""

    @computed_by(ops.Unary("trunc"))
    def trunc(x: Value) -> Tensor:
        """`x` without its fraction, as a float."""

    @computed_by(ops.Unary("isfinite"))
    def isfinite(x: Value) -> Tensor:
        """Whether each element is neither infinite nor NaN, as a bool."""

    @checked
    def isinf(x: Value) -> Tensor:
        """Whether each element is infinite, as a bool."""
        tensor = as_tensor(x)
        return ~(tensor.isfinite() | tensor.isnan())

    @computed_by(ops.Unary("isnan"))
    def isnan(x: Value) -> Tensor:
        """Whether each element is NaN, as a bool."""

    @checked
    def relu(x: Value) -> Tensor:
        """`max(x, 0)`. Its gradient at 0 is 0."""
        tensor = as_tensor(x)
        return where(tensor <= 0, 0, tensor)

    @checked
    def silu(x: Value) -> Tensor:
        """`x * sigmoid(x)` (Elfwing et al., 2018)."""
        return _gated(x, Elementwise.sigmoid, 1000)

    @checked
    def softplus(x: Value) -> Tensor:
        """`log(1 + exp(x))`, without overflow.

        Above 0 it is `x + log(1 + exp(-x))`. Both formulas hold on either side, so derivatives of every order are right at 0.
        """
        tensor = as_tensor(x)
        above = tensor > 0
        return where(above, tensor, 0) + where(above, -tensor, tensor).exp().log1p()

    @checked
    def gelu(x: Value, approximate: bool = False) -> Tensor:
        """GELU (Hendrycks and Gimpel, 2016): `x * Φ(x)`, exactly, or by the tanh formula of the paper."""
        return _gated(x, _tanh_gate if approximate else _normal_gate, 50)


where = Elementwise[Any]._where


def _gated(value: Value, gate: Callable[[Any], Any], far: float) -> Any:
    """`x * gate(x)`. The gate goes from 0 to 1 so fast that beyond `far` the product is 0 or `x`, in float64 too.

    There the result is `relu(x)`, because 0 times infinity would be NaN.
    """
    x: Any = as_tensor(value)
    x = x if is_float(x.dtype) else x.astype("float32")
    beyond = x.abs() > far
    near = where(beyond, 0, x)
    return where(beyond, x.relu(), near * gate(near))


def _normal_gate(x: Any) -> Any:
    return 0.5 * (1 + (x * (1 / math.sqrt(2))).erf())


def _tanh_gate(x: Any) -> Any:
    return 0.5 * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
