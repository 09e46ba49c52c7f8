"""Elementwise functions. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tempo_core.errors import DTypeError
from tempo_core.frontend.functions.core import Value, as_tensor, cast, constant
from tempo_core.frontend.functions.shapes import aligned, broadcast_shapes, broadcast_to
from tempo_core.frontend.tensor import Tensor, apply
from tempo_core.ir import ops
from tempo_core.ir.types import is_float


def unary(fn: str) -> Callable[[Value], Tensor]:
    def function(x: Value) -> Tensor:
        x = as_tensor(x)
        if fn in ("neg", "abs", "sign"):
            x = cast(x, "int32") if x.dtype == "bool" else x
        elif not is_float(x.dtype):
            x = cast(x, "float32")
        return apply(ops.Unary(fn), x)

    function.__name__ = fn
    function.__doc__ = f"Elementwise {fn}."
    return function


def binary(fn: str, reflected: bool = False) -> Callable[[Value, Value], Tensor]:
    def function(x: Value, y: Value) -> Tensor:
        a, b = aligned(y, x) if reflected else aligned(x, y)
        if fn in ("div", "atan2") and not is_float(a.dtype):
            a, b = cast(a, "float32"), cast(b, "float32")
        if fn in ("add", "sub", "mul", "pow", "floordiv", "mod") and a.dtype == "bool":
            a, b = cast(a, "int32"), cast(b, "int32")
        return apply(ops.Binary(fn), a, b)

    function.__name__ = fn
    function.__doc__ = f"Elementwise {fn}."
    return function


def comparison(fn: str) -> Callable[[Value, Value], Tensor]:
    def function(x: Value, y: Value) -> Tensor:
        return apply(ops.Compare(fn), *aligned(x, y))

    function.__name__ = fn
    function.__doc__ = f"Elementwise {fn}, a bool."
    return function


neg, absolute, sign, exp, expm1, log, log1p = map(unary, ("neg", "abs", "sign", "exp", "expm1", "log", "log1p"))
sqrt, rsqrt, sigmoid, erf = map(unary, ("sqrt", "rsqrt", "sigmoid", "erf"))
sin, cos, tan, arcsin, arccos, arctan = map(unary, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, arcsinh, arccosh, arctanh = map(unary, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
floor, ceil, rounded, trunc, isfinite, isnan = map(unary, ("floor", "ceil", "round", "trunc", "isfinite", "isnan"))
add, sub, mul, div, power, arctan2 = map(binary, ("add", "sub", "mul", "div", "pow", "atan2"))
floordiv, mod, bitwise_and, bitwise_or, bitwise_xor = map(binary, ("floordiv", "mod", "and", "or", "xor"))
maximum_of, minimum_of = map(binary, ("maximum", "minimum"))
equal, not_equal, less, less_equal, greater, greater_equal = map(comparison, ("eq", "ne", "lt", "le", "gt", "ge"))


def bitwise_not(x: Value) -> Tensor:
    """All bits of integers inverted; of bools, not."""
    x = as_tensor(x)
    return apply(ops.Unary("not"), x) if x.dtype == "bool" else inverted_bits(x)


def _truth(x: Value) -> Tensor:
    """Whether numbers are not 0; NaN is not."""
    x = as_tensor(x)
    return x if x.dtype == "bool" else not_equal(x, 0)


def logical_not(x: Value) -> Tensor:
    return bitwise_not(_truth(x))


def logical_and(x: Value, y: Value) -> Tensor:
    return bitwise_and(_truth(x), _truth(y))


def logical_or(x: Value, y: Value) -> Tensor:
    return bitwise_or(_truth(x), _truth(y))


def logical_xor(x: Value, y: Value) -> Tensor:
    return bitwise_xor(_truth(x), _truth(y))


def inverted_bits(x: Tensor) -> Tensor:
    """`-x - 1` for signed integers, `largest - x` for unsigned ones: the reverse of their order."""
    if is_float(x.dtype):
        raise DTypeError(f"~ takes bool or integers, got {x!r}", hint="compare first: ~(x > 0)")
    ones = constant(255 if x.dtype == "uint8" else 2**32 - 1 if x.dtype == "uint32" else -1, x.dtype)
    return bitwise_xor(x, ones)


def reversed_order(x: Tensor) -> Tensor:
    """A tensor whose order is the reverse: what is greatest in `x` is least in it. Twice, it is `x`."""
    return bitwise_not(x) if x.dtype == "bool" else neg(x) if is_float(x.dtype) else inverted_bits(x)


def where(condition: Value, x: Value, y: Value) -> Tensor:
    """`x` where `condition` holds, else `y`; also with a condition on steps.

    Both are computed. A gradient is 0 in the value not taken, and 0 times infinite is NaN: guard the value's own argument too,
    `where(x > 0, log(where(x > 0, x, 1)), 0)`.
    """
    test = as_tensor(condition)
    a, b = aligned(x, y)
    shape = broadcast_shapes(test.shape, a.shape)
    return apply(ops.Where(), *(broadcast_to(v, shape) for v in (test, a, b)))


def isinf(x: Value) -> Tensor:
    """Where numbers are infinite."""
    x = as_tensor(x)
    return logical_not(logical_or(isfinite(x), isnan(x)))


def nan_to_num(x: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in place of NaN and of infinities: by default 0 and the largest and lowest finite ones."""
    x = as_tensor(x)
    if not is_float(x.dtype):
        return x
    limits = ml_dtypes.finfo(ml_dtypes.bfloat16) if x.dtype == "bfloat16" else np.finfo(x.dtype)
    high, low = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return where(isfinite(x), x, where(isnan(x), nan, where(greater(x, 0), constant(high, x.dtype), constant(low, x.dtype))))


def clip(x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    """`x` held between `low` and `high`, of which one may be left out."""
    x = x if low is None else maximum_of(x, low)
    return x if high is None else minimum_of(x, high)


def stop_gradient(x: Value) -> Tensor:
    """`x` as a constant to differentiation; `x.detach()`."""
    return as_tensor(x).detach()


def square(x: Value) -> Tensor:
    x = as_tensor(x)
    return mul(x, x)


def reciprocal(x: Value) -> Tensor:
    return div(1, x)


def exp2(x: Value) -> Tensor:
    return exp(mul(x, math.log(2)))


def log2(x: Value) -> Tensor:
    return mul(log(x), 1 / math.log(2))


def log10(x: Value) -> Tensor:
    return mul(log(x), 1 / math.log(10))


def hypot(x: Value, y: Value) -> Tensor:
    """`sqrt(x**2 + y**2)`, without overflow; its gradient at (0, 0) is 0.

    The larger operand is factored out. Which one that is makes no difference to the value, so derivatives of every order are right at ties
    and where one operand is 0. The larger one has a sign, and is 0 or infinite only where the result is.
    """
    a, b = aligned(x, y)
    swapped = greater(absolute(b), absolute(a))
    high, low = where(swapped, b, a), where(swapped, a, b)
    size = absolute(high)
    endless = equal(size, math.inf)
    ratio = where(endless, 0, low) / where(logical_or(endless, equal(size, 0)), 1, high)
    return size * sqrt(1 + ratio * ratio)


def logaddexp(x: Value, y: Value) -> Tensor:
    """`log(exp(x) + exp(y))`, without overflow; infinite ones included.

    The larger operand is taken out of the logarithm. Which one that is makes no difference to the value, so derivatives of every order are
    right at ties. Of two infinities that are equal, each has half of the gradient.
    """
    a, b = aligned(x, y)
    same = logical_and(equal(a, b), equal(absolute(a), math.inf))
    first, second = where(same, 0, a), where(same, 0, b)
    swapped = greater(second, first)
    high, low = where(swapped, second, first), where(swapped, first, second)
    return where(same, maximum_of(a, b), high + log1p(exp(low - high)))


def isclose(x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    """Where `|x - y| <= atol + rtol * |y|`, or both are the same infinity."""
    a, b = aligned(x, y)
    near = less_equal(absolute(a - b), atol + rtol * absolute(b))
    return logical_or(equal(a, b), logical_and(isfinite(b), near))


# -- activations ------------------------------------------------------------------------------------------------------


def relu(x: Value) -> Tensor:
    """`max(x, 0)`, whose gradient at 0 is 0."""
    return where(less_equal(x, 0), 0, x)


def leaky_relu(x: Value, slope: float = 0.01) -> Tensor:
    return where(less_equal(x, 0), mul(x, slope), x)


def elu(x: Value, alpha: float = 1.0) -> Tensor:
    """`x` above 0, `alpha * (exp(x) - 1)` below (Clevert et al., 2016)."""
    below = less_equal(x, 0)
    return where(below, mul(expm1(where(below, x, 0)), alpha), x)


def _gated(x: Tensor, gate: Callable[[Tensor], Tensor], far: float) -> Tensor:
    """`x * gate(x)`, where `gate` goes from 0 to 1 so fast that beyond `far`, in float64 too, the product is 0 or `x`.

    There it is `relu(x)`: 0 times infinity would be NaN.
    """
    beyond = greater(absolute(x), far)
    near = where(beyond, 0, x)
    return where(beyond, relu(x), near * gate(near))


def silu(x: Value) -> Tensor:
    """`x * sigmoid(x)` (Elfwing et al., 2018)."""
    x = as_tensor(x)
    return _gated(x if is_float(x.dtype) else cast(x, "float32"), sigmoid, 1000)


def softplus(x: Value) -> Tensor:
    """`log(1 + exp(x))`, without overflow.

    Above 0 it is `x + log(1 + exp(-x))`. Both formulas hold on either side, so derivatives of every order are right at 0.
    """
    above = greater(x, 0)
    return where(above, x, 0) + log1p(exp(where(above, neg(x), x)))


def log_sigmoid(x: Value) -> Tensor:
    """`log(sigmoid(x))`, without overflow."""
    return neg(softplus(neg(x)))


def gelu(x: Value, approximate: bool = False) -> Tensor:
    """GELU (Hendrycks and Gimpel, 2016): `x * Φ(x)`, exactly, or by the tanh formula of the paper."""
    x = as_tensor(x)
    gate = _tanh_gate if approximate else _normal_gate
    return _gated(x if is_float(x.dtype) else cast(x, "float32"), gate, 50)


def _normal_gate(x: Tensor) -> Tensor:
    return 0.5 * (1 + erf(x * (1 / math.sqrt(2))))


def _tanh_gate(x: Tensor) -> Tensor:
    return 0.5 * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
