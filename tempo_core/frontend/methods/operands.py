"""The operands of functions: numbers that become arrays, dtypes that meet, shapes that broadcast, and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tempo_core.errors import ArgumentError, DTypeError, ShapeError
from tempo_core.frontend.aliases import Shape
from tempo_core.frontend.arguments import checked, shown
from tempo_core.frontend.base import BaseTensor, unless_power
from tempo_core.ir import ops
from tempo_core.ir.types import DTYPES, INTEGERS
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr


def constant_op(value: Any, dtype: str | None = None) -> ops.Constant:
    """The op of an array or number. Raises DTypeError for numbers that an integer dtype does not hold."""
    array = _array(value)
    if dtype is None:
        dtype = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(array.dtype.name, array.dtype.name)
    check_dtype(dtype)
    _check_range(array, dtype)
    array = array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return ops.Constant(dtype, array.shape, np.ascontiguousarray(array).tobytes())


def _array(value: Any) -> Any:
    """Numbers as a NumPy array. Raises ArgumentError for a value that is not an array of numbers."""
    if isinstance(value, (list, tuple)) and any(isinstance(v, (BaseTensor, Expr, Bool)) for v in value):
        raise ArgumentError(
            f"a list of tensors is not an array: {shown(value)}", hint="make one tensor of them: tp.stack([x, y])"
        )
    if isinstance(value, (BaseTensor, Expr, Bool)):
        raise ArgumentError(
            f"{shown(value)} is not an array or number: it has values only when the program runs", hint="use it as it is: x + 1"
        )
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{shown(value)} is not an array of numbers: {error}", hint=_RECTANGULAR) from None
    if array.dtype.kind not in "biuf" and array.dtype.name not in DTYPES:
        raise ArgumentError(f"{shown(value)} is not an array of numbers or truth values", hint=_RECTANGULAR)
    return array


_RECTANGULAR = "a complex number is two tensors, tp.Complex(real, imag); lists in a list have one length: [[1, 2], [3, 4]]"


def _check_range(array: Any, dtype: str) -> None:
    if dtype not in INTEGERS or array.dtype.kind == "b" or not array.size:
        return
    limits = np.iinfo(dtype)
    wrong = ~((array >= limits.min) & (array <= limits.max))  # written so that NaN is wrong too
    if wrong.any():
        raise DTypeError(
            f"{dtype} does not hold {array[wrong].flat[0]}: its numbers go from {limits.min} to {limits.max}",
            hint="use a wider dtype for the number, or for the tensor beside it: x.astype('int32')",
        )


def check_dtype(dtype: str) -> None:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise DTypeError(f"unknown dtype {dtype!r}", hint=f"use one of {', '.join(map(repr, DTYPES))}")


def shape_of(shape: Shape) -> tuple[Expr, ...]:
    """A user's shape, or one size, as expressions. Raises ShapeError for a value that is not a shape."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    expressions = []
    for size in sizes:
        try:
            expressions.append(Expr.of(size))
        except TypeError:
            raise ShapeError(
                f"{shown(size)} cannot be a size" if size is not shape else f"{shown(shape)} is not a shape",
                hint=unless_power(
                    size, "a shape is a tuple of ints and expressions of bounds: (3, T). A number has the shape ()"
                ),
            ) from None
        if expressions[-1].is_constant and expressions[-1].constant < 0:
            raise ShapeError(
                f"a size of the shape {shown(shape)} is negative: {expressions[-1]}", hint="sizes are 0 or more: tp.zeros((3,))"
            )
    return tuple(expressions)


@checked
def promote(left: str, right: str) -> str:
    """The dtype in which two tensors meet. The same for all functions of several operands, and in either order.

    - Equal dtypes stay. bool gives way to all others.
    - Integers give way to floats, whatever their widths: int32 with bfloat16 is bfloat16.
    - Two floats: float64 if one is float64, else float32 (also bfloat16 with float16, since neither holds the other).
    - Two integers: the wider of two signed or of two unsigned ones. A signed and an unsigned one: int64 if one is int64, else int32.

    This is JAX's table with two exceptions: int8 with uint8 (int16 in JAX, a dtype that Tempo does not have) and uint32 with int8
    or int32 (int64 in JAX). They are int32 in Tempo, and numbers from 2**31 on wrap around.

    Python numbers are weak: they take the tensor's dtype. A float makes an integer or bool tensor float32, an int makes a bool
    tensor int32; an int that the dtype does not hold is an error. Steps and expressions of them are weak with floats and int32
    with others. NumPy numbers and arrays have their own dtype, but 64 bits become 32. `/` and functions such as `exp` make
    integers float32; sums and products make bool int32, int8 int32 and uint8 uint32. All others keep the dtype, and integers
    wrap around. In 16 bits, sums, scans and contractions are accumulated in float32 and rounded once.
    """
    if left == right:
        return left
    kinds = [0 if d == "bool" else 1 if d in INTEGERS else 2 for d in (left, right)]
    if kinds[0] != kinds[1]:
        return left if kinds[0] > kinds[1] else right
    if kinds[0] == 2:
        return "float64" if "float64" in (left, right) else "float32"
    if "int64" in (left, right):
        return "int64"
    return "uint32" if left.startswith("u") and right.startswith("u") else "int32"


def broadcast_shapes(*shapes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """NumPy's broadcast rule on symbolic sizes: equal, or one of them 1."""
    rank = max(map(len, shapes))
    result = []
    for position in range(rank):
        sizes = [s[position - rank + len(s)] for s in shapes if position - rank + len(s) >= 0]
        wide = [s for s in sizes if s != 1] or sizes[:1]
        if any(s != wide[0] for s in wide):
            text = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            other = next(s for s in wide if s != wide[0])
            raise ShapeError(
                f"the shapes {text} do not broadcast: {wide[0]} and {other} differ", hint=_broadcasting(wide[0], other, shapes)
            )
        result.append(wide[0])
    return tuple(result)


def _broadcasting(size: Expr, other: Expr, shapes: Sequence[tuple[Expr, ...]]) -> str:
    """A hint for two sizes that do not broadcast."""
    if not (size.is_constant and other.is_constant):
        return "the two sizes must be equal at every step. Read slices of one length: x[0:T], y[0:T]"
    if any(size in s and other not in s and len(shapes[0]) != len(shapes[1]) for s in shapes[:2]) and len(shapes) == 2:
        return "sizes are compared from the right: they must be equal, or one of them 1. To add a size of 1: x.expand_dims(axis)"
    return "two sizes fit if they are equal, or if one of them is 1: x.expand_dims(axis) adds a size of 1"


def axes_of(x: BaseTensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes that `axis` names, counted from the first, in their order. Raises ShapeError for one that `x` lacks, or that is named twice."""
    if axis is None:
        return tuple(range(x.rank))
    return tuple(sorted(distinct_axes(x, (axis,) if isinstance(axis, int) else axis)))


def distinct_axes(x: BaseTensor, axes: Sequence[int]) -> tuple[int, ...]:
    """Axes counted from the first, in the given order. Raises ShapeError for one that `x` lacks, or that is named twice."""
    places: dict[int, int] = {}
    for a in axes:
        if not -x.rank <= a < x.rank:
            valid = (
                f"its axes are {', '.join(map(str, range(x.rank)))}"
                if x.rank
                else "it is a number, without axes. A slice adds one: x[0:T]"
            )
            raise ShapeError(f"{x!r} has no axis {a}", hint=valid)
        place = a % x.rank
        if place in places:
            names = (
                f"axis {a} of {x!r} is" if a == places[place] else f"the axes {places[place]} and {a} of {x!r} are the same one,"
            )
            raise ShapeError(f"{names} named twice in {shown(tuple(axes))}", hint="name each axis once: axis=(0, 1)")
        places[place] = a
    return tuple(places)


def one_axis(x: BaseTensor, axis: int) -> int:
    return axes_of(x, axis)[0]
