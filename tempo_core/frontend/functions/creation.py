"""Tensors of numbers, of one value and of positions; tensors put together, and padded; functions of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tempo_core.errors import ArgumentError, ShapeError, user_location
from tempo_core.frontend.aliases import ArrayLike, Shape, Widths
from tempo_core.frontend.arguments import checked, shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.methods.indexing import places
from tempo_core.frontend.methods.operands import constant_op, one_axis, shape_of
from tempo_core.frontend.tensor import Tensor, aligned, apply, of_node, promoted
from tempo_core.ir import ops
from tempo_core.ir.types import ITEM_SIZE, TensorType
from tempo_core.ir.udf import Library
from tempo_core.symbolic.expr import Expr, IntoExpr


@checked
def constant(value: ArrayLike, dtype: str | None = None) -> Tensor:
    """An array or number as a tensor without steps. Python floats become float32, ints int32.

    Raises DTypeError for numbers that an integer dtype does not hold. Floats become integers by rounding towards zero.
    """
    return apply(constant_op(value, dtype))


@checked
def full(shape: Shape, value: ArrayLike, dtype: str = "float32") -> Tensor:
    """A tensor of one value; sizes may be symbolic."""
    return constant(value, dtype).broadcast_to(shape_of(shape))


@checked
def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    """A tensor of zeros; sizes may be symbolic."""
    return full(shape, 0, dtype)


@checked
def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    """A tensor of ones; sizes may be symbolic."""
    return full(shape, 1, dtype)


@checked
def full_like(x: Tensor, value: ArrayLike, dtype: str | None = None) -> Tensor:
    """A tensor of one value with the shape of `x`, and by default its dtype."""
    return full(x.type.shape, value, dtype or x.dtype)


@checked
def zeros_like(x: Tensor, dtype: str | None = None) -> Tensor:
    """Zeros with the shape of `x`, and by default its dtype."""
    return full_like(x, 0, dtype)


@checked
def ones_like(x: Tensor, dtype: str | None = None) -> Tensor:
    """Ones with the shape of `x`, and by default its dtype."""
    return full_like(x, 1, dtype)


@checked
def arange(start: IntoExpr, stop: IntoExpr | None = None, step: int = 1) -> Tensor:
    """`start, start + step, ...`, all below `stop`, as int32; with one argument, `0, ..., start - 1`. Ends may vary with a step."""
    if stop is None:
        return apply(ops.Iota(*shape_of(start)))
    first, last = Expr.of(start), Expr.of(stop)
    if step < 1:
        raise ArgumentError(
            f"the step of arange is {step}; it must be positive", hint="to reverse the order: tp.arange(n).flip(0)"
        )
    size = last - first if step == 1 else (last - first + (step - 1)) // step
    if size.is_constant and size.constant < 0:
        size = Expr.of(0)
    return apply(ops.Iota(size)) * step + first


@checked
def eye(rows: IntoExpr, columns: IntoExpr | None = None, offset: int = 0, dtype: str = "float32") -> Tensor:
    """Ones on a diagonal: where column - row is `offset`."""
    numbers, numbers_of_rows = places(Expr.of(rows), Expr.of(rows if columns is None else columns), offset)
    return (numbers == numbers_of_rows).astype(dtype)


@checked
def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`."""
    if not tensors:
        raise ArgumentError(
            "there is nothing to put together: the list of tensors is empty", hint="give at least one tensor: [x, y]"
        )
    parts = promoted(*tensors)
    return parts[0] if len(parts) == 1 else apply(ops.Concat(one_axis(parts[0], axis)), *parts)


@checked
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors along a new axis."""
    return concatenate([t.expand_dims(axis) for t in aligned(*tensors)] if tensors else [], axis)


@checked
def pad(x: Tensor, widths: Widths) -> Tensor:
    """Zeros around `x`, as NumPy's `pad` with its defaults.

    `widths` is the number of zeros at both ends of every axis, or a pair (before, after) for every axis, or one such pair for each
    axis: `tp.pad(x, ((0, 0), (2, 1)))` adds two zeros before and one after the elements of axis 1.
    """
    for axis, (low, high) in enumerate(_widths(x, widths)):
        for amount in (low, high):
            if amount.is_constant and amount.constant < 0:
                raise ShapeError(
                    f"{x!r} is padded by {amount} elements", hint="pad by 0 or more. To cut elements off: x.spatial[1:]"
                )
        if low != 0 or high != 0:
            x = x._pad_axis(axis, low, high)
    return x


def _widths(x: BaseTensor, widths: Widths) -> list[tuple[Expr, Expr]]:
    """The numbers of zeros before and after the elements of each axis. Raises ShapeError."""
    if not x.rank:
        raise ShapeError(f"{x!r} has no axis to pad", hint="tp.pad(x.reshape(1), (0, 2))")
    if not isinstance(widths, (tuple, list)):
        return [(Expr.of(widths), Expr.of(widths))] * x.rank  # type: ignore[arg-type]
    pairs = [each for each in widths if isinstance(each, (tuple, list))]
    if not pairs and len(widths) == 2:
        return [(Expr.of(widths[0]), Expr.of(widths[1]))] * x.rank  # type: ignore[arg-type]
    if len(pairs) != len(widths) or len(pairs) != x.rank or any(len(pair) != 2 for pair in pairs):
        example = ", ".join(["(1, 1)", *["(0, 0)"] * (x.rank - 1)]) + ("," if x.rank == 1 else "")
        raise ShapeError(
            f"{x!r} has {x.rank} {'axis' if x.rank == 1 else 'axes'}, and `pad` needs a pair (before, after) for each: got {shown(widths)}",
            hint=f"tp.pad(x, ({example})), or one pair for every axis: tp.pad(x, (1, 1))",
        )
    return [(Expr.of(low), Expr.of(high)) for low, high in pairs]


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
    return x.astype("float32") if x.dtype in ("bfloat16", "float16") else x
