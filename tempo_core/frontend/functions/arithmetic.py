"""Elementwise functions that are one operation each. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

from tempo_core.frontend.tensor import Tensor, Value, computed_by
from tempo_core.ir import ops

# -- of one tensor -------------------------------------------------------------------------------------------------------

absolute, sign, rounded, floor, ceil, trunc = Tensor.abs, Tensor.sign, Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc
exp, expm1, log, log1p, sqrt, rsqrt = Tensor.exp, Tensor.expm1, Tensor.log, Tensor.log1p, Tensor.sqrt, Tensor.rsqrt
sigmoid, tanh, erf, sin, cos = Tensor.sigmoid, Tensor.tanh, Tensor.erf, Tensor.sin, Tensor.cos
isfinite, isnan = Tensor.isfinite, Tensor.isnan


@computed_by(ops.Unary("neg"), name="negative")
def neg(x: Value) -> Tensor:
    """`-x`; bools count as 0 and 1."""


@computed_by(ops.Unary("tan"))
def tan(x: Value) -> Tensor:
    """The tangent of radians, elementwise."""


@computed_by(ops.Unary("asin"))
def arcsin(x: Value) -> Tensor:
    """The angle in radians whose sine is `x`, in [-π/2, π/2]."""


@computed_by(ops.Unary("acos"))
def arccos(x: Value) -> Tensor:
    """The angle in radians whose cosine is `x`, in [0, π]."""


@computed_by(ops.Unary("atan"))
def arctan(x: Value) -> Tensor:
    """The angle in radians whose tangent is `x`, in (-π/2, π/2)."""


@computed_by(ops.Unary("sinh"))
def sinh(x: Value) -> Tensor:
    """The hyperbolic sine, elementwise."""


@computed_by(ops.Unary("cosh"))
def cosh(x: Value) -> Tensor:
    """The hyperbolic cosine, elementwise."""


@computed_by(ops.Unary("asinh"))
def arcsinh(x: Value) -> Tensor:
    """The inverse of `sinh`, elementwise."""


@computed_by(ops.Unary("acosh"))
def arccosh(x: Value) -> Tensor:
    """The inverse of `cosh`, elementwise."""


@computed_by(ops.Unary("atanh"))
def arctanh(x: Value) -> Tensor:
    """The inverse of `tanh`, elementwise."""


# -- of two tensors ------------------------------------------------------------------------------------------------------


@computed_by(ops.Binary("add"))
def add(x: Value, y: Value) -> Tensor:
    """`x + y`, elementwise; bools count as 0 and 1."""


@computed_by(ops.Binary("sub"), name="subtract")
def sub(x: Value, y: Value) -> Tensor:
    """`x - y`, elementwise; bools count as 0 and 1."""


@computed_by(ops.Binary("mul"), name="multiply")
def mul(x: Value, y: Value) -> Tensor:
    """`x * y`, elementwise."""


@computed_by(ops.Binary("div"), name="divide")
def div(x: Value, y: Value) -> Tensor:
    """`x / y`, elementwise; integers are divided as float32."""


@computed_by(ops.Binary("pow"))
def power(x: Value, y: Value) -> Tensor:
    """`x ** y`, elementwise."""


@computed_by(ops.Binary("atan2"))
def arctan2(x: Value, y: Value) -> Tensor:
    """The angle in radians of the point with first coordinate `y` and second coordinate `x`, in (-π, π]."""


@computed_by(ops.Binary("logaddexp"))
def logaddexp(x: Value, y: Value) -> Tensor:
    """`log(exp(x) + exp(y))`, without overflow, also for infinite operands.

    Two equal infinities have half of the gradient each.
    """


@computed_by(ops.Binary("floordiv"), name="floor_divide")
def floordiv(x: Value, y: Value) -> Tensor:
    """`x // y`, elementwise: the quotient rounded down."""


@computed_by(ops.Binary("mod"), name="remainder")
def mod(x: Value, y: Value) -> Tensor:
    """`x % y`, elementwise: the remainder of `x // y`, with the sign of `y`."""


@computed_by(ops.Binary("and"))
def bitwise_and(x: Value, y: Value) -> Tensor:
    """`x & y` of bools or integers, elementwise."""


@computed_by(ops.Binary("or"))
def bitwise_or(x: Value, y: Value) -> Tensor:
    """`x | y` of bools or integers, elementwise."""


@computed_by(ops.Binary("xor"))
def bitwise_xor(x: Value, y: Value) -> Tensor:
    """`x ^ y` of bools or integers, elementwise."""


@computed_by(ops.Binary("maximum"), name="maximum")
def maximum_of(x: Value, y: Value) -> Tensor:
    """The greater of `x` and `y`, elementwise; NaN if one is NaN."""


@computed_by(ops.Binary("minimum"), name="minimum")
def minimum_of(x: Value, y: Value) -> Tensor:
    """The lesser of `x` and `y`, elementwise; NaN if one is NaN."""


# -- comparisons ---------------------------------------------------------------------------------------------------------


@computed_by(ops.Compare("eq"))
def equal(x: Value, y: Value) -> Tensor:
    """`x == y`, elementwise, as a bool."""


@computed_by(ops.Compare("ne"))
def not_equal(x: Value, y: Value) -> Tensor:
    """`x != y`, elementwise, as a bool."""


@computed_by(ops.Compare("lt"))
def less(x: Value, y: Value) -> Tensor:
    """`x < y`, elementwise, as a bool."""


@computed_by(ops.Compare("le"))
def less_equal(x: Value, y: Value) -> Tensor:
    """`x <= y`, elementwise, as a bool."""


@computed_by(ops.Compare("gt"))
def greater(x: Value, y: Value) -> Tensor:
    """`x > y`, elementwise, as a bool."""


@computed_by(ops.Compare("ge"))
def greater_equal(x: Value, y: Value) -> Tensor:
    """`x >= y`, elementwise, as a bool."""
