"""Derivatives of the functions inside `Unary` and `Binary`: one row for each function.

A row is one of three: a slope (a function that gives the gradient of each operand); `Zero`, for a piecewise constant function; or
`NoGradient`, for a function whose derivative is not written: a gradient through it is an error. A function without a row counts as
`NoGradient`.

Slopes are made of functions that have slopes themselves, so that there are gradients of every order. Each is right in every order at the
special points of its function (`tests/core/points.py`). That is why some are longer than the textbook's formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import ml_dtypes
import numpy as np

import tempo_core.frontend.functions as fn
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir import ops


@dataclass(frozen=True)
class Zero:
    """A function whose derivative is zero wherever it has one: no gradient flows through it. `why` is the reason."""

    why: str


@dataclass(frozen=True)
class NoGradient:
    """A function that cannot be differentiated: a gradient through it is a GradientError. `why` is the reason, `hint` the way out."""

    why: str
    hint: str = "write a formula of functions that have gradients, or end differentiation here: x.detach()"
    missing: bool = False  # there is no row: a mistake in Tempo


# (gradient of the result, operand, result) -> gradient of the operand
Slope: TypeAlias = "Callable[[Tensor, Tensor, Tensor], Tensor]"
# (gradient of the result, operands x and y, result) -> gradients of x and y, None where they are 0
Slopes: TypeAlias = "Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor | None, Tensor | None]]"


def finite(x: Tensor) -> Tensor:
    """`x`, with the largest finite number in place of infinity.

    For slopes that are even and vanish at infinity. With an infinite x, the next derivative would be 0 times infinity: NaN.
    """
    limits = ml_dtypes.finfo(ml_dtypes.bfloat16) if x.dtype == "bfloat16" else np.finfo(x.dtype)
    return fn.where(fn.equal(fn.abs(x), math.inf), float(limits.max), x)


def one_less_square(x: Tensor) -> Tensor:
    """`1 - x**2`. As `(1 - x) * (1 + x)` it keeps its digits near ±1.

    At ±1 it is the plain formula, because the slopes of the product would be 0 times infinity there.
    """
    return fn.where(fn.equal(fn.abs(x), 1), 1 - fn.square(x), (1 - x) * (1 + x))


def _exponent(y: Tensor) -> float | None:
    """The number that a constant tensor repeats; None for any other tensor."""
    node = y.node
    while isinstance(node.op, ops.Broadcast):
        node = y.context.graph[node.inputs[0].source]
    if not isinstance(node.op, ops.Constant) or node.op.sizes:
        return None
    dtype = np.dtype(ml_dtypes.bfloat16 if node.op.dtype == "bfloat16" else node.op.dtype)
    return float(np.frombuffer(node.op.data, dtype)[0])


def _of_power(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """`y * x ** (y - 1)` and `x ** y * log(x)`.

    `x ** 0` is 1 at 0 too, so its slope is 0 there, and not 0 times infinity. Where the base is not positive, the slope by the exponent is 0.
    """
    number = _exponent(y)
    if number is not None:
        return None if number == 0 else g * number if number == 1 else g * (number * fn.power(x, number - 1)), None
    unsafe = fn.logical_and(fn.equal(y, 0), fn.logical_not(fn.isfinite(fn.reciprocal(x))))
    by_base = y * fn.where(unsafe, 0, fn.power(x, fn.where(unsafe, 1, y - 1)))
    positive = fn.where(x > 0, x, 1)
    return g * by_base, fn.where(x > 0, g * z * fn.log(positive), 0)


def _of_arctan2(g: Tensor, y: Tensor, x: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """`x / r**2` and `-y / r**2`, computed on the scale of the larger operand, so that neither overflows nor vanishes. At 0 and infinity they are 0.

    The formula holds for every scale, so the scale counts as a constant in differentiation.
    """
    larger = fn.maximum(fn.abs(x), fn.abs(y)).detach()
    nowhere = fn.logical_or(fn.equal(larger, 0), fn.equal(larger, math.inf))
    scale = fn.where(nowhere, 1, larger)
    v, u = fn.where(nowhere, 0, y) / scale, fn.where(nowhere, 1, x) / scale
    part = g / (u * u + v * v)
    return fn.where(nowhere, 0, part * u / scale), fn.where(nowhere, 0, fn.negative(part * v / scale))


def _of_logaddexp(g: Tensor, x: Tensor, y: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """The shares of both exponentials in their sum. Two equal infinities have half of the gradient each."""
    same = fn.logical_and(fn.equal(x, y), fn.equal(fn.abs(x), math.inf))
    gap = fn.where(same, 0, x - y)
    return g * fn.sigmoid(gap), g * fn.sigmoid(fn.negative(gap))


def _of_maximum(g: Tensor, x: Tensor, y: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """Equal operands get half of the gradient each."""
    share = fn.where(fn.equal(x, y), 0.5, fn.cast(fn.greater_equal(x, y), g.dtype))
    return g * share, g * (1 - share)


def _of_minimum(g: Tensor, x: Tensor, y: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    share = fn.where(fn.equal(x, y), 0.5, fn.cast(fn.less_equal(x, y), g.dtype))
    return g * share, g * (1 - share)


_STEPS = Zero("it is constant between its jumps")
_TRUTH = Zero("its result is a bool")
_BITS = Zero("it takes no floats")

UNARY: Mapping[str, Slope | Zero | NoGradient] = {
    "neg": lambda g, x, y: fn.negative(g),
    "abs": lambda g, x, y: g * fn.sign(x),
    "sign": _STEPS,
    "exp": lambda g, x, y: g * y,
    "expm1": lambda g, x, y: g * fn.exp(x),
    "log": lambda g, x, y: g / x,
    "log1p": lambda g, x, y: g / (x + 1),
    "sqrt": lambda g, x, y: g * 0.5 / y,
    "rsqrt": lambda g, x, y: g * -0.5 * y * y * y,
    "sin": lambda g, x, y: g * fn.cos(x),
    "cos": lambda g, x, y: fn.negative(g * fn.sin(x)),
    "tan": lambda g, x, y: g * (1 + y * y),
    "asin": lambda g, x, y: g * fn.rsqrt(one_less_square(x)),
    "acos": lambda g, x, y: fn.negative(g * fn.rsqrt(one_less_square(x))),
    "atan": lambda g, x, y: g / (1 + fn.square(finite(x))),
    "sinh": lambda g, x, y: g * fn.cosh(x),
    "cosh": lambda g, x, y: g * fn.sinh(x),
    "tanh": lambda g, x, y: g * (1 - y * y),
    "asinh": lambda g, x, y: g * fn.rsqrt(1 + fn.square(finite(x))),
    "acosh": lambda g, x, y: g * fn.rsqrt(finite(x) - 1) * fn.rsqrt(finite(x) + 1),
    "atanh": lambda g, x, y: g / one_less_square(x),
    "sigmoid": lambda g, x, y: g * y * (1 - y),
    "erf": lambda g, x, y: g * (2 / math.sqrt(math.pi)) * fn.exp(fn.negative(fn.square(finite(x)))),
    "floor": _STEPS,
    "ceil": _STEPS,
    "round": _STEPS,
    "trunc": _STEPS,
    "not": _TRUTH,
    "isfinite": _TRUTH,
    "isnan": _TRUTH,
}

BINARY: Mapping[str, Slopes | Zero | NoGradient] = {
    "add": lambda g, x, y, z: (g, g),
    "sub": lambda g, x, y, z: (g, fn.negative(g)),
    "mul": lambda g, x, y, z: (g * y, g * x),
    "div": lambda g, x, y, z: (g / y, fn.negative(g * z / y)),
    "pow": _of_power,
    "atan2": _of_arctan2,
    "logaddexp": _of_logaddexp,
    "maximum": _of_maximum,
    "minimum": _of_minimum,
    "floordiv": _STEPS,
    "mod": lambda g, x, y, z: (g, fn.negative(g * fn.floor(x / y))),
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
}

_NO_ROW = NoGradient("its table of slopes has no row for it", missing=True)


def slope_of(op: ops.Unary | ops.Binary) -> Slope | Slopes | Zero | NoGradient:
    """The row of an op's function."""
    table: Mapping[str, Slope | Slopes | Zero | NoGradient] = UNARY if isinstance(op, ops.Unary) else BINARY
    return table.get(op.fn, _NO_ROW)
