"""Elementwise functions that are one operation each. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions.core import as_tensor, cast
from tempo_core.frontend.functions.shapes import aligned
from tempo_core.frontend.tensor import Tensor, Value, apply
from tempo_core.ir import ops
from tempo_core.ir.types import is_float

F = TypeVar("F", bound=Callable[..., Tensor])


def computed_by(op: ops.Unary | ops.Binary | ops.Compare, name: str = "") -> Callable[[F], F]:
    """Decorator of a function that is declared here, and computed by `op`. Users know it as `name`, if that is another name."""

    def decorator(declared: F) -> F:
        @functools.wraps(declared)
        def function(*operands: Value, **named: Value) -> Tensor:
            values = (*operands, *(named[key] for key in ("x", "y") if key in named))
            tensors = [as_tensor(values[0])] if isinstance(op, ops.Unary) else aligned(*values)
            return apply(op, *(_converted(x, op.function.takes) for x in tensors))

        return checked(function, name)  # type: ignore[return-value]

    return decorator


def _converted(x: Tensor, dtypes: tuple[str, ...]) -> Tensor:
    """An operand in a dtype that a function takes: bools count as 0 and 1, and integers become floats."""
    return x if x.dtype in dtypes or is_float(x.dtype) else cast(x, "int32" if "int32" in dtypes else "float32")


# -- of one tensor -------------------------------------------------------------------------------------------------------


@computed_by(ops.Unary("neg"), name="negative")
def neg(x: Value) -> Tensor:
    """`-x`; bools count as 0 and 1."""


@computed_by(ops.Unary("abs"), name="abs")
def absolute(x: Value) -> Tensor:
    """`|x|`, elementwise."""


@computed_by(ops.Unary("sign"))
def sign(x: Value) -> Tensor:
    """-1, 0 or 1, elementwise."""


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


@computed_by(ops.Unary("sigmoid"))
def sigmoid(x: Value) -> Tensor:
    """`1 / (1 + exp(-x))`, elementwise."""


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


@computed_by(ops.Unary("tanh"))
def tanh(x: Value) -> Tensor:
    """The hyperbolic tangent, elementwise."""


@computed_by(ops.Unary("asinh"))
def arcsinh(x: Value) -> Tensor:
    """The inverse of `sinh`, elementwise."""


@computed_by(ops.Unary("acosh"))
def arccosh(x: Value) -> Tensor:
    """The inverse of `cosh`, elementwise."""


@computed_by(ops.Unary("atanh"))
def arctanh(x: Value) -> Tensor:
    """The inverse of `tanh`, elementwise."""


@computed_by(ops.Unary("floor"))
def floor(x: Value) -> Tensor:
    """The greatest whole number that is not above `x`, as a float."""


@computed_by(ops.Unary("ceil"))
def ceil(x: Value) -> Tensor:
    """The least whole number that is not below `x`, as a float."""


@computed_by(ops.Unary("round"), name="round")
def rounded(x: Value) -> Tensor:
    """The nearest whole number, as a float; halfway between two, the even one."""


@computed_by(ops.Unary("trunc"))
def trunc(x: Value) -> Tensor:
    """`x` without its fraction, as a float."""


@computed_by(ops.Unary("isfinite"))
def isfinite(x: Value) -> Tensor:
    """Whether each element is neither infinite nor NaN, as a bool."""


@computed_by(ops.Unary("isnan"))
def isnan(x: Value) -> Tensor:
    """Whether each element is NaN, as a bool."""


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
