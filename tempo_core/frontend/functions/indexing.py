"""Indexing by data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo_core.errors import ArgumentError, IndexingError, ShapeError
from tempo_core.frontend.arguments import checked, is_int, shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.functions import shapes
from tempo_core.frontend.functions.arithmetic import equal, maximum_of, minimum_of, mod
from tempo_core.frontend.functions.core import as_tensor, cast, constant, distinct_axes, evaluate, one_axis
from tempo_core.frontend.functions.elementwise import where
from tempo_core.frontend.functions.reductions import argsort, total
from tempo_core.frontend.tensor import Tensor, Value, apply
from tempo_core.ir import ops
from tempo_core.ir.types import is_float
from tempo_core.symbolic.expr import Expr, IntoExpr, maximum, minimum


def at_position(x: Tensor, axis: int, position: Value) -> Tensor:
    """`index`, with an error for a value that cannot be a position."""
    at = one_axis(x, axis)
    if isinstance(position, (int, np.integer)) and is_int(position):
        position = _position(x, at, int(position))
    positions = (
        position
        if isinstance(position, BaseTensor)
        else evaluate(position)
        if isinstance(position, Expr)
        else _positions(position)
    )
    if positions.dtype == "bool" or is_float(positions.dtype):
        hint = (
            "a mask cannot pick elements, since the shape would depend on data. It can replace them: tp.where(mask, x, 0)"
            if positions.dtype == "bool"
            else 'convert the positions: positions.astype("int32")'
        )
        raise IndexingError(f"axis {at} of {x!r} is indexed with {positions.dtype}, but positions are integers", hint=hint)
    return apply(ops.Gather(at), x, cast(positions, "int32"))


def _position(x: Tensor, axis: int, position: int) -> Expr:
    """A number as a position along `axis`, counted from its end where it is negative."""
    size = x.type.shape[axis]
    if size.is_constant and not -size.constant <= position < size.constant:
        valid = f"positions go from {-size.constant} to {size.constant - 1}" if size.constant else "the axis is empty"
        raise IndexingError(f"position {position} is outside of axis {axis} of {x!r}: its size is {size}", hint=valid)
    return Expr.of(position) + (size if position < 0 else 0)


def _positions(value: Value) -> Tensor:
    """Numbers that exist when the program is built, as positions."""
    try:
        return constant(value)  # type: ignore[arg-type]
    except ArgumentError:
        raise IndexingError(
            f"{shown(value)} is not a position",
            hint="a position is an int, a list of ints, an expression of steps, or an int32 tensor: x.index(0, t)",
        ) from None


def along_one_axis(x: Tensor, indices: Any, axis: int | Sequence[int], nearest: bool) -> tuple[Tensor, int, Value]:
    """`x` with the indexed axes as one axis, its number, and positions along it: outside of the axes the nearest ones, or -1."""
    if isinstance(axis, int):
        return x, axis, indices
    axes = distinct_axes(x, axis)
    if not axes or axes != tuple(range(axes[0], axes[0] + len(axes))):
        raise ShapeError(
            f"the axes {shown(tuple(axis))} of {x!r} do not follow one another",
            hint="move them first: x.moveaxis(2, 1), then axis=(0, 1)",
        )
    if not isinstance(indices, (tuple, list)) or len(indices) != len(axes):
        raise ShapeError(
            f"{shown(indices)} does not index the axes {shown(axes)} of {x!r}",
            hint="give one tensor for each axis: x.take((i, j), (0, 1))",
        )
    shape, positions, inside = x.type.shape, constant(0), constant(True)
    sizes = shape[axes[0] : axes[-1] + 1]
    for each, size in zip(indices, sizes, strict=True):
        place, end = cast(as_tensor(each), "int32"), evaluate(size)
        inside = inside & (place >= 0) & (place < end)
        positions = positions * end + (maximum_of(minimum_of(place, end - 1), 0) if nearest else place)
    flat = shapes.reshape(x, (*shape[: axes[0]], ops.product(sizes), *shape[axes[-1] + 1 :]))
    return flat, axes[0], positions if nearest else where(inside, positions, -1)


@checked
def take_along_last(x: Tensor, indices: Tensor) -> Tensor:
    """`x[..., indices]`, one position of the last axis for each leading position (shape of `indices`)."""
    is_position = one_hot(indices, x.type.shape[-1], x.dtype)
    return total(x * is_position, -1)


@checked
def scatter_add(updates: Tensor, indices: Tensor, size: IntoExpr, axis: int = 0) -> Tensor:
    """Zeros with `size` elements along `axis`, to which the updates are added at `indices`; updates outside are dropped."""
    return combined_at("add", updates, indices, size, axis)


def combined_at(fn: str, updates: Tensor, indices: Value, size: IntoExpr, axis: int = 0) -> Tensor:
    """`size` elements along `axis`, each what `fn` of `ops.COMBINING` makes of the updates with its position in `indices`."""
    return apply(ops.Scatter(axis, Expr.of(size), fn=fn), updates, cast(as_tensor(indices), "int32"))


index, take, scatter, index_add = Tensor.index, Tensor.take, Tensor.scatter, Tensor.index_add
take_along_axis, top_k = Tensor.take_along_axis, Tensor.top_k
one_hot, sort, trace, median, tril, triu = Tensor.one_hot, Tensor.sort, Tensor.trace, Tensor.median, Tensor.tril, Tensor.triu

# of `scatter`, and what they do to a number and an update
MODES = {"set": "", "add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}


def scattered(x: Tensor, indices: Any, updates: Value, axis: int | Sequence[int], mode: str) -> Tensor:
    """`scatter`."""
    if mode not in MODES:
        raise ArgumentError(f"unknown mode {mode!r} of `scatter`", hint=f"one of {', '.join(map(repr, MODES))}")
    if x.dtype == "bool" and mode == "set":  # updates are added to zeros
        return cast(scattered(cast(x, "int8"), indices, cast(as_tensor(updates, x), "int8"), axis, mode), "bool")
    flat, along, places = along_one_axis(x, indices, axis, nearest=False)
    at, positions = one_axis(flat, along), cast(as_tensor(places), "int32")
    shape = (*flat.type.shape[:at], *positions.type.shape, *flat.type.shape[at + 1 :])
    values = shapes.broadcast_to(cast(as_tensor(updates, x), x.dtype), shape)
    if mode == "set":
        return shapes.reshape(_replaced(flat, at, positions, values), x.type.shape)
    combined = combined_at(MODES[mode], values, positions, flat.type.shape[at], at)
    return shapes.reshape(apply(ops.Binary(MODES[mode]), flat, combined), x.type.shape)


def _replaced(x: Tensor, at: int, positions: Tensor, values: Tensor) -> Tensor:
    """`x` with the last of the values for a position along axis `at` in place of what is there."""
    if positions.rank:  # drop all but the last update of each position: after sorting, the last of equal positions
        count = positions.rank
        values = shapes.reshape(values, (*x.type.shape[:at], ops.product(positions.type.shape), *values.type.shape[at + count :]))
        positions = positions.flatten()
        order = argsort(positions)
        ordered, values = take(positions, order), take(values, order, at)
        after = shapes.pad_axis(
            apply(ops.Slice(0, Expr.of(1), ordered.type.shape[0]), ordered + 1), 0, 0, 1
        )  # past the end 0, which is not a position plus 1
        positions = where(equal(after, ordered + 1), -1, ordered)
    sums = scatter_add(values, positions, x.type.shape[at], at)
    is_written = scatter_add(shapes.full(positions.type.shape, 1, "int32"), positions, x.type.shape[at]) > 0
    return where(apply(ops.Broadcast(x.type.shape, (at,)), is_written), sums, x)


# -- by order ---------------------------------------------------------------------------------------------------------


# -- by position ------------------------------------------------------------------------------------------------------


@checked
def roll(x: Tensor, shift: IntoExpr, axis: int = 0) -> Tensor:
    """The elements of `axis` moved on by `shift` places (an int or an expression); those past the end come in at the start."""
    at = one_axis(x, axis)
    size, amount = x.type.shape[at], Expr.of(shift)
    if size.is_constant and amount.is_constant and size.constant:
        cut = -amount.constant % size.constant
        halves = [apply(ops.Slice(at, Expr.of(cut), size), x), apply(ops.Slice(at, Expr.of(0), Expr.of(cut)), x)]
        return shapes.concatenate(halves, at) if cut else x
    return take(x, mod(shapes.arange(size) - evaluate(amount), evaluate(maximum(size, 1))), at)


@checked
def eye(rows: IntoExpr, columns: IntoExpr | None = None, offset: int = 0, dtype: str = "float32") -> Tensor:
    """Ones on a diagonal: where column - row is `offset`."""
    return cast(equal(*_places(Expr.of(rows), Expr.of(rows if columns is None else columns), offset)), dtype)


def _matrix(x: Tensor) -> tuple[Expr, Expr]:
    if x.rank < 2:
        raise ShapeError(
            f"{x!r} has {x.rank} dimensions, and so no triangle or diagonal",
            hint="give a matrix, or a stack of them: tp.tril(tp.ones((3, 3)))",
        )
    return x.type.shape[-2], x.type.shape[-1]


def places(x: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """`_places` of the last two axes."""
    return _places(*_matrix(x), offset)


def _places(rows: Expr, columns: Expr, offset: int) -> tuple[Tensor, Tensor]:
    """Each column's number, and each row's plus `offset`, to compare."""
    return shapes.arange(columns), shapes.expand_dims(shapes.arange(rows), 1) + offset


@checked
def diagonal(x: Tensor, offset: int = 0) -> Tensor:
    """The elements of the last two axes at which column - row is `offset`, as one last axis."""
    rows, columns = _matrix(x)
    size = minimum(rows - max(-offset, 0), columns - max(offset, 0))
    if size.is_constant and size.constant < 0:
        raise ShapeError(f"the diagonal {offset} of {x!r} lies outside of it")
    places = (shapes.arange(size) + max(-offset, 0)) * evaluate(columns) + (shapes.arange(size) + max(offset, 0))
    return take(shapes.reshape(x, (*x.type.shape[:-2], rows * columns)), places, -1)
