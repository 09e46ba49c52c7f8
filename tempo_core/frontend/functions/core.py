"""The base of all functions: constants, conversion of values to tensors, promotion of dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tempo_core.errors import ArgumentError, DTypeError, ShapeError, user_location
from tempo_core.frontend.aliases import ArrayLike, Shape
from tempo_core.frontend.arguments import checked, converts, shown
from tempo_core.frontend.base import BaseTensor, unless_power
from tempo_core.frontend.tensor import Tensor, Value, apply, of_node
from tempo_core.ir import ops
from tempo_core.ir.types import DTYPES, INTEGERS, ITEM_SIZE, TensorType, is_float
from tempo_core.ir.udf import Library
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, makes_tensors


@checked
def constant(value: ArrayLike, dtype: str | None = None) -> Tensor:
    """An array or number as a tensor without steps. Python floats become float32, ints int32.

    Raises DTypeError for numbers that an integer dtype does not hold. Floats become integers by rounding towards zero.
    """
    array = _array(value)
    if dtype is None:
        dtype = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(array.dtype.name, array.dtype.name)
    check_dtype(dtype)
    _check_range(array, dtype)
    array = array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return apply(ops.Constant(dtype, array.shape, np.ascontiguousarray(array).tobytes()))


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


@makes_tensors
def evaluate(value: Expr | Bool) -> Tensor:
    """A step, bound or symbolic expression used as a number: an int32 (or bool) scalar whose domain is its steps."""
    return apply(ops.Eval(value.plain if isinstance(value, Expr) else value))


@converts
def as_tensor(value: Value, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor; a Python number takes the dtype of `like`, unless the number is a float and `like` an integer."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (Expr, Bool)):
        number = evaluate(value)
        return cast(number, like.dtype) if like is not None and isinstance(value, Expr) and is_float(like.dtype) else number
    if like is None or isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return constant(value)
    if isinstance(value, bool):
        return constant(value, "bool")
    if isinstance(value, float) and not is_float(like.dtype):
        return constant(value, "float32")
    return constant(value, "int32" if like.dtype == "bool" else like.dtype)


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


cast = Tensor.astype


def library(
    name: str,
    operands: Sequence[Tensor],
    *results: TensorType,
    cost: Expr | None = None,
    is_complex: bool = False,
    **options: Any,
) -> tuple[Tensor, ...]:
    """The results of a function of JAX's, by its name in the package: it is vectorized and differentiated as functions of users are.

    `cost` is its number of operations. A function that `is_complex` takes and gives real and imaginary parts.
    """
    bytes_moved = sum((ITEM_SIZE[each.dtype] * ops.size(each) for each in (*(x.type for x in operands), *results)), Expr.of(0))
    costs = () if cost is None else (cost, bytes_moved)
    op = ops.Udf(
        Library(f"jax.{name}", tuple(sorted(options.items())), is_complex),
        results,
        name=name.rpartition(".")[2],
        where=user_location(),
        cost=costs,
    )
    first = apply(op, *operands)
    return tuple(of_node(first.context, first.node, k) for k in range(len(results)))


def widened(x: Tensor) -> Tensor:
    """`x` with at least the precision of float32."""
    return cast(x, "float32") if x.dtype in ("bfloat16", "float16") else x


def axes_of(x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes that `axis` names, counted from the first, in their order. Raises ShapeError for one that `x` lacks, or that is named twice."""
    if axis is None:
        return tuple(range(x.rank))
    return tuple(sorted(distinct_axes(x, (axis,) if isinstance(axis, int) else axis)))


def distinct_axes(x: Tensor, axes: Sequence[int]) -> tuple[int, ...]:
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


def one_axis(x: Tensor, axis: int) -> int:
    return axes_of(x, axis)[0]
