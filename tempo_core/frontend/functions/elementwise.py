"""Elementwise functions. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tempo_core.errors import DTypeError
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions import arithmetic as fn
from tempo_core.frontend.functions.core import as_tensor, cast, constant
from tempo_core.frontend.functions.shapes import aligned, broadcast_shapes, broadcast_to
from tempo_core.frontend.tensor import Tensor, Value, apply
from tempo_core.ir import ops
from tempo_core.ir.types import is_float


@checked
def bitwise_not(x: Value) -> Tensor:
    """Integers with all bits inverted; for bools, logical not."""
    x = as_tensor(x)
    return apply(ops.Unary("not"), x) if x.dtype == "bool" else inverted_bits(x)


def _truth(x: Value) -> Tensor:
    """Whether each number is not 0. NaN is not 0."""
    x = as_tensor(x)
    return x if x.dtype == "bool" else fn.not_equal(x, 0)


@checked
def logical_not(x: Value) -> Tensor:
    """Whether `x` is 0."""
    return bitwise_not(_truth(x))


@checked
def logical_and(x: Value, y: Value) -> Tensor:
    """Whether neither `x` nor `y` is 0."""
    return fn.bitwise_and(_truth(x), _truth(y))


@checked
def logical_or(x: Value, y: Value) -> Tensor:
    """Whether `x` or `y`, or both, are not 0."""
    return fn.bitwise_or(_truth(x), _truth(y))


@checked
def logical_xor(x: Value, y: Value) -> Tensor:
    """Whether exactly one of `x` and `y` is not 0."""
    return fn.bitwise_xor(_truth(x), _truth(y))


def inverted_bits(x: Tensor) -> Tensor:
    """`-x - 1` for signed integers, `largest - x` for unsigned ones, which reverses their order."""
    if is_float(x.dtype):
        raise DTypeError(f"~ takes bools or integers, got {x!r}", hint="compare first: ~(x > 0)")
    ones = constant(255 if x.dtype == "uint8" else 2**32 - 1 if x.dtype == "uint32" else -1, x.dtype)
    return fn.bitwise_xor(x, ones)


def reversed_order(x: Tensor) -> Tensor:
    """A tensor in reverse order: the greatest element of `x` becomes the least. Applied twice, it gives `x`."""
    return bitwise_not(x) if x.dtype == "bool" else fn.neg(x) if is_float(x.dtype) else inverted_bits(x)


@checked
def where(condition: Value, x: Value, y: Value) -> Tensor:
    """`x` where `condition` holds, else `y`. The condition may be a tensor or a condition on steps.

    Both `x` and `y` are computed. The one that is not chosen gets a gradient of 0, and 0 times infinity is NaN: so guard its argument
    too, `where(x > 0, log(where(x > 0, x, 1)), 0)`.
    """
    test = as_tensor(condition)
    a, b = aligned(x, y)
    shape = broadcast_shapes(test.type.shape, a.type.shape)
    return apply(ops.Where(), *(broadcast_to(v, shape) for v in (test, a, b)))


@checked
def nan_to_num(x: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in place of NaN and of infinities: by default 0 and the largest and lowest finite ones."""
    x = as_tensor(x)
    if not is_float(x.dtype):
        return x
    limits = ml_dtypes.finfo(ml_dtypes.bfloat16) if x.dtype == "bfloat16" else np.finfo(x.dtype)
    high, low = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return where(
        fn.isfinite(x), x, where(fn.isnan(x), nan, where(fn.greater(x, 0), constant(high, x.dtype), constant(low, x.dtype)))
    )


@checked
def stop_gradient(x: Value) -> Tensor:
    """`x` as a constant to differentiation; `x.detach()`."""
    return as_tensor(x).detach()


square, reciprocal, clip, isinf = Tensor.square, Tensor.reciprocal, Tensor.clip, Tensor.isinf
relu, silu, gelu = Tensor.relu, Tensor.silu, Tensor.gelu


@checked
def exp2(x: Value) -> Tensor:
    """`2 ** x`."""
    return fn.exp(fn.mul(x, math.log(2)))


@checked
def log2(x: Value) -> Tensor:
    """The logarithm to base 2."""
    return fn.mul(fn.log(x), 1 / math.log(2))


@checked
def log10(x: Value) -> Tensor:
    """The logarithm to base 10."""
    return fn.mul(fn.log(x), 1 / math.log(10))


@checked
def hypot(x: Value, y: Value) -> Tensor:
    """`sqrt(x**2 + y**2)`, without overflow; its gradient at (0, 0) is 0.

    The larger operand is factored out. The value does not depend on that choice, so derivatives of every order are right at ties and where
    one operand is 0. The larger operand keeps its sign, and is 0 or infinite only where the result is.
    """
    a, b = aligned(x, y)
    swapped = fn.greater(fn.absolute(b), fn.absolute(a))
    high, low = where(swapped, b, a), where(swapped, a, b)
    size = fn.absolute(high)
    is_infinite = fn.equal(size, math.inf)
    ratio = where(is_infinite, 0, low) / where(logical_or(is_infinite, fn.equal(size, 0)), 1, high)
    return size * fn.sqrt(1 + ratio * ratio)


@checked
def isclose(x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    """Where `|x - y| <= atol + rtol * |y|`, or both are the same infinity."""
    a, b = aligned(x, y)
    near = fn.less_equal(fn.absolute(a - b), atol + rtol * fn.absolute(b))
    return logical_or(fn.equal(a, b), logical_and(fn.isfinite(b), near))


# -- activations ------------------------------------------------------------------------------------------------------


@checked
def leaky_relu(x: Value, slope: float = 0.01) -> Tensor:
    """`x` above 0, `slope * x` below."""
    return where(fn.less_equal(x, 0), fn.mul(x, slope), x)


@checked
def elu(x: Value, alpha: float = 1.0) -> Tensor:
    """`x` above 0, `alpha * (exp(x) - 1)` below (Clevert et al., 2016)."""
    below = fn.less_equal(x, 0)
    return where(below, fn.mul(fn.expm1(where(below, x, 0)), alpha), x)


def gated(x: Value, gate: Callable[[Tensor], Tensor], far: float) -> Tensor:
    """`x * gate(x)`. The gate goes from 0 to 1 so fast that beyond `far` the product is 0 or `x`, in float64 too.

    There the result is `relu(x)`, because 0 times infinity would be NaN.
    """
    x = as_tensor(x)
    x = x if is_float(x.dtype) else cast(x, "float32")
    beyond = fn.greater(fn.absolute(x), far)
    near = where(beyond, 0, x)
    return where(beyond, x.relu(), near * gate(near))


@checked
def softplus(x: Value) -> Tensor:
    """`log(1 + exp(x))`, without overflow.

    Above 0 it is `x + log(1 + exp(-x))`. Both formulas hold on either side, so derivatives of every order are right at 0.
    """
    above = fn.greater(x, 0)
    return where(above, x, 0) + fn.log1p(fn.exp(where(above, fn.neg(x), x)))


@checked
def log_sigmoid(x: Value) -> Tensor:
    """`log(sigmoid(x))`, without overflow."""
    return fn.neg(softplus(fn.neg(x)))


def normal_gate(x: Tensor) -> Tensor:
    return 0.5 * (1 + fn.erf(x * (1 / math.sqrt(2))))


def tanh_gate(x: Tensor) -> Tensor:
    return 0.5 * (1 + fn.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
