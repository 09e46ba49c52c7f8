"""Elementwise functions that are one operation each. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

from tempo_core.frontend.arguments import checked, checked_as
from tempo_core.frontend.functions.core import as_tensor, cast
from tempo_core.frontend.functions.shapes import aligned
from tempo_core.frontend.tensor import Tensor, Value, apply
from tempo_core.ir import ops
from tempo_core.ir.types import is_float


def _unary(fn: str, x: Value) -> Tensor:
    x = as_tensor(x)
    if fn in ("neg", "abs", "sign"):
        x = cast(x, "int32") if x.dtype == "bool" else x
    elif not is_float(x.dtype):
        x = cast(x, "float32")
    return apply(ops.Unary(fn), x)


def _binary(fn: str, x: Value, y: Value) -> Tensor:
    a, b = aligned(x, y)
    if fn in ("div", "atan2", "logaddexp") and not is_float(a.dtype):
        a, b = cast(a, "float32"), cast(b, "float32")
    if fn in ("add", "sub", "mul", "pow", "floordiv", "mod") and a.dtype == "bool":
        a, b = cast(a, "int32"), cast(b, "int32")
    return apply(ops.Binary(fn), a, b)


def _comparison(fn: str, x: Value, y: Value) -> Tensor:
    return apply(ops.Compare(fn), *aligned(x, y))


# -- of one tensor -------------------------------------------------------------------------------------------------------


@checked_as("negative")
def neg(x: Value) -> Tensor:
    """`-x`; bools count as 0 and 1."""
    return _unary("neg", x)


@checked_as("abs")
def absolute(x: Value) -> Tensor:
    """`|x|`, elementwise."""
    return _unary("abs", x)


@checked
def sign(x: Value) -> Tensor:
    """-1, 0 or 1, elementwise."""
    return _unary("sign", x)


@checked
def exp(x: Value) -> Tensor:
    """`e ** x`, elementwise."""
    return _unary("exp", x)


@checked
def expm1(x: Value) -> Tensor:
    """`exp(x) - 1`, precise near 0."""
    return _unary("expm1", x)


@checked
def log(x: Value) -> Tensor:
    """The natural logarithm, elementwise."""
    return _unary("log", x)


@checked
def log1p(x: Value) -> Tensor:
    """`log(1 + x)`, precise near 0."""
    return _unary("log1p", x)


@checked
def sqrt(x: Value) -> Tensor:
    """The square root, elementwise."""
    return _unary("sqrt", x)


@checked
def rsqrt(x: Value) -> Tensor:
    """`1 / sqrt(x)`, elementwise."""
    return _unary("rsqrt", x)


@checked
def sigmoid(x: Value) -> Tensor:
    """`1 / (1 + exp(-x))`, elementwise."""
    return _unary("sigmoid", x)


@checked
def erf(x: Value) -> Tensor:
    """The error function, elementwise."""
    return _unary("erf", x)


@checked
def sin(x: Value) -> Tensor:
    """The sine of radians, elementwise."""
    return _unary("sin", x)


@checked
def cos(x: Value) -> Tensor:
    """The cosine of radians, elementwise."""
    return _unary("cos", x)


@checked
def tan(x: Value) -> Tensor:
    """The tangent of radians, elementwise."""
    return _unary("tan", x)


@checked
def arcsin(x: Value) -> Tensor:
    """The angle in radians whose sine is `x`, in [-π/2, π/2]."""
    return _unary("asin", x)


@checked
def arccos(x: Value) -> Tensor:
    """The angle in radians whose cosine is `x`, in [0, π]."""
    return _unary("acos", x)


@checked
def arctan(x: Value) -> Tensor:
    """The angle in radians whose tangent is `x`, in (-π/2, π/2)."""
    return _unary("atan", x)


@checked
def sinh(x: Value) -> Tensor:
    """The hyperbolic sine, elementwise."""
    return _unary("sinh", x)


@checked
def cosh(x: Value) -> Tensor:
    """The hyperbolic cosine, elementwise."""
    return _unary("cosh", x)


@checked
def tanh(x: Value) -> Tensor:
    """The hyperbolic tangent, elementwise."""
    return _unary("tanh", x)


@checked
def arcsinh(x: Value) -> Tensor:
    """The inverse of `sinh`, elementwise."""
    return _unary("asinh", x)


@checked
def arccosh(x: Value) -> Tensor:
    """The inverse of `cosh`, elementwise."""
    return _unary("acosh", x)


@checked
def arctanh(x: Value) -> Tensor:
    """The inverse of `tanh`, elementwise."""
    return _unary("atanh", x)


@checked
def floor(x: Value) -> Tensor:
    """The greatest whole number that is not above `x`, as a float."""
    return _unary("floor", x)


@checked
def ceil(x: Value) -> Tensor:
    """The least whole number that is not below `x`, as a float."""
    return _unary("ceil", x)


@checked_as("round")
def rounded(x: Value) -> Tensor:
    """The nearest whole number, as a float; halfway between two, the even one."""
    return _unary("round", x)


@checked
def trunc(x: Value) -> Tensor:
    """`x` without its fraction, as a float."""
    return _unary("trunc", x)


@checked
def isfinite(x: Value) -> Tensor:
    """Whether each element is neither infinite nor NaN, as a bool."""
    return _unary("isfinite", x)


@checked
def isnan(x: Value) -> Tensor:
    """Whether each element is NaN, as a bool."""
    return _unary("isnan", x)


# -- of two tensors ------------------------------------------------------------------------------------------------------


@checked
def add(x: Value, y: Value) -> Tensor:
    """`x + y`, elementwise; bools count as 0 and 1."""
    return _binary("add", x, y)


@checked_as("subtract")
def sub(x: Value, y: Value) -> Tensor:
    """`x - y`, elementwise; bools count as 0 and 1."""
    return _binary("sub", x, y)


@checked_as("multiply")
def mul(x: Value, y: Value) -> Tensor:
    """`x * y`, elementwise."""
    return _binary("mul", x, y)


@checked_as("divide")
def div(x: Value, y: Value) -> Tensor:
    """`x / y`, elementwise; integers are divided as float32."""
    return _binary("div", x, y)


@checked
def power(x: Value, y: Value) -> Tensor:
    """`x ** y`, elementwise."""
    return _binary("pow", x, y)


@checked
def arctan2(x: Value, y: Value) -> Tensor:
    """The angle in radians of the point with first coordinate `y` and second coordinate `x`, in (-π, π]."""
    return _binary("atan2", x, y)


@checked
def logaddexp(x: Value, y: Value) -> Tensor:
    """`log(exp(x) + exp(y))`, without overflow, also for infinite operands.

    Two equal infinities have half of the gradient each.
    """
    return _binary("logaddexp", x, y)


@checked_as("floor_divide")
def floordiv(x: Value, y: Value) -> Tensor:
    """`x // y`, elementwise: the quotient rounded down."""
    return _binary("floordiv", x, y)


@checked_as("remainder")
def mod(x: Value, y: Value) -> Tensor:
    """`x % y`, elementwise: the remainder of `x // y`, with the sign of `y`."""
    return _binary("mod", x, y)


@checked
def bitwise_and(x: Value, y: Value) -> Tensor:
    """`x & y` of bools or integers, elementwise."""
    return _binary("and", x, y)


@checked
def bitwise_or(x: Value, y: Value) -> Tensor:
    """`x | y` of bools or integers, elementwise."""
    return _binary("or", x, y)


@checked
def bitwise_xor(x: Value, y: Value) -> Tensor:
    """`x ^ y` of bools or integers, elementwise."""
    return _binary("xor", x, y)


@checked_as("maximum")
def maximum_of(x: Value, y: Value) -> Tensor:
    """The greater of `x` and `y`, elementwise; NaN if one is NaN."""
    return _binary("maximum", x, y)


@checked_as("minimum")
def minimum_of(x: Value, y: Value) -> Tensor:
    """The lesser of `x` and `y`, elementwise; NaN if one is NaN."""
    return _binary("minimum", x, y)


# -- comparisons ---------------------------------------------------------------------------------------------------------


@checked
def equal(x: Value, y: Value) -> Tensor:
    """`x == y`, elementwise, as a bool."""
    return _comparison("eq", x, y)


@checked
def not_equal(x: Value, y: Value) -> Tensor:
    """`x != y`, elementwise, as a bool."""
    return _comparison("ne", x, y)


@checked
def less(x: Value, y: Value) -> Tensor:
    """`x < y`, elementwise, as a bool."""
    return _comparison("lt", x, y)


@checked
def less_equal(x: Value, y: Value) -> Tensor:
    """`x <= y`, elementwise, as a bool."""
    return _comparison("le", x, y)


@checked
def greater(x: Value, y: Value) -> Tensor:
    """`x > y`, elementwise, as a bool."""
    return _comparison("gt", x, y)


@checked
def greater_equal(x: Value, y: Value) -> Tensor:
    """`x >= y`, elementwise, as a bool."""
    return _comparison("ge", x, y)
