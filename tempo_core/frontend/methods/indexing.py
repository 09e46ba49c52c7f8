"""Elements by their position, by their order, and of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tempo_core.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from tempo_core.frontend.arguments import checked, is_int, shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.methods.elementwise import where
from tempo_core.frontend.methods.nodes import Value, apply, as_tensor, evaluate
from tempo_core.frontend.methods.operands import broadcast_shapes, constant_op, distinct_axes, one_axis
from tempo_core.frontend.methods.operators import reversed_order
from tempo_core.frontend.methods.reductions import Reductions
from tempo_core.ir import ops
from tempo_core.ir.types import is_float
from tempo_core.symbolic.expr import Expr, IntoExpr, maximum, minimum

Tensor = TypeVar("Tensor", bound="Indexing[Any]")


class Indexing(Reductions[Tensor]):
    """The methods of tensors that read and write elements by data, by order and by place."""

    @checked
    def index(x: Tensor, axis: int, position: Value) -> Tensor:
        """`x` at `position` along `axis`: an int, an expression of steps, or an int32 tensor (whose shape replaces the axis)."""
        return at_position(x, axis, position)

    @checked
    def take(x: Tensor, indices: Value | Sequence[Value], axis: int | Sequence[int] = 0) -> Tensor:
        """`x[indices]` along `axis`: the shape of `indices` replaces the axis. A position outside of the axis reads its nearest end.

        `take(x, (i, j), (0, 1))` is `x[i, j]`: the shape to which `i` and `j` broadcast replaces the axes, which follow one another.
        """
        return at_position(*_along_one_axis(x, indices, axis, nearest=True))

    @checked
    def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """The elements at `indices` along `axis`, with separate positions for each place on the other axes.

        The other axes broadcast. `take_along_axis(x, argsort(x))` is `sort(x)`.
        """
        if indices.rank != x.rank:
            raise ShapeError(
                f"cannot take {indices!r} along an axis of {x!r}",
                hint="both need the same number of dimensions: tp.take_along_axis(x, tp.argsort(x))",
            )
        at = one_axis(x, axis)
        values, positions = x.moveaxis(at, -1), indices.astype("int32").moveaxis(at, -1)
        batch = broadcast_shapes(values.type.shape[:-1], positions.type.shape[:-1])
        values, positions = (v.broadcast_to((*batch, v.type.shape[-1])) for v in (values, positions))
        return apply(ops.Gather(x.rank - 1, x.rank - 1), values, positions).moveaxis(-1, at)

    @checked
    def index_add(x: Tensor, indices: Value | Sequence[Value], updates: Value, axis: int | Sequence[int] = 0) -> Tensor:
        """`x` with updates added at `indices` along `axis`: `scatter` with the mode "add"."""
        return x.scatter(indices, updates, axis, "add")

    @checked
    def scatter(
        x: Tensor, indices: Value | Sequence[Value], updates: Value, axis: int | Sequence[int] = 0, mode: str = "set"
    ) -> Tensor:
        """`x` with updates in place of the elements at `indices` along `axis`, or added to them, multiplied with them, ...

        `mode`: "set", "add", "mul", "min" or "max". Of several updates for a position, "set" takes the last, and the others all of them. An update
        outside of the axis is dropped. Updates broadcast to the shape of `take(x, indices, axis)`. `scatter(x, (i, j), y, (0, 1))` writes at
        `x[i, j]`: the axes follow one another, and there is one tensor of positions for each.
        """
        if mode not in MODES:
            raise ArgumentError(f"unknown mode {mode!r} of `scatter`", hint=f"one of {', '.join(map(repr, MODES))}")
        if x.dtype == "bool" and mode == "set":  # updates are added to zeros
            return x.astype("int8").scatter(indices, as_tensor(updates, x).astype("int8"), axis, mode).astype("bool")
        flat, along, places = _along_one_axis(x, indices, axis, nearest=False)
        at, positions = one_axis(flat, along), as_tensor(places).astype("int32")
        shape = (*flat.type.shape[:at], *positions.type.shape, *flat.type.shape[at + 1 :])
        values = as_tensor(updates, x).astype(x.dtype).broadcast_to(shape)
        if mode == "set":
            return _replaced(flat, at, positions, values).reshape(x.type.shape)
        combined = combined_at(MODES[mode], values, positions, flat.type.shape[at], at)
        return apply(ops.Binary(MODES[mode]), flat, combined).reshape(x.type.shape)

    @checked
    def one_hot(x: Tensor, size: IntoExpr, dtype: str = "float32", axis: int = -1) -> Tensor:
        """Ones at the positions `x` along a new axis of `size` elements, the last by default. A position outside gives only zeros."""
        if is_float(x.dtype) or x.dtype == "bool":
            raise DTypeError(f"one_hot of {x!r}: positions are integers", hint='convert it: x.astype("int32")')
        return (x.expand_dims(x.rank) == apply(ops.Iota(Expr.of(size)))).astype(dtype).moveaxis(-1, axis)

    @checked
    def roll(x: Tensor, shift: IntoExpr, axis: int = 0) -> Tensor:
        """The elements of `axis` moved on by `shift` places (an int or an expression); those past the end come in at the start."""
        at = one_axis(x, axis)
        size, amount = x.type.shape[at], Expr.of(shift)
        if size.is_constant and amount.is_constant and size.constant:
            cut = -amount.constant % size.constant
            halves = [apply(ops.Slice(at, Expr.of(cut), size), x), apply(ops.Slice(at, Expr.of(0), Expr.of(cut)), x)]
            return apply(ops.Concat(at), *halves) if cut else x
        return x.take((apply(ops.Iota(size)) - evaluate(amount)) % evaluate(maximum(size, 1)), at)

    @checked
    def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
        """`x` sorted along `axis`, in ascending order by default; NaN comes last."""
        return x.take_along_axis(x.argsort(axis, descending), axis)

    @checked
    def top_k(x: Tensor, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
        """The `k` greatest elements along `axis`, greatest first, and their positions (int32). Equal elements keep their order."""
        at = one_axis(x, axis)
        size = x.type.shape[at]
        if k < 0 or (size.is_constant and k > size.constant):
            raise ShapeError(f"cannot take the {k} greatest of axis {axis} of {x!r}: it has {size} elements")
        if size.is_constant:
            positions = apply(ops.Argsort(at, k), reversed_order(x))
        else:
            positions = apply(ops.Slice(at, Expr.of(0), Expr.of(k)), x.argsort(at, descending=True))
        return x.take_along_axis(positions, at), positions

    @checked
    def median(x: Tensor, axis: int = -1) -> Tensor:
        """The middle element along `axis` in sorted order, or the mean of the two middle elements. NaN counts as the greatest."""
        size = x.type.shape[one_axis(x, axis)]
        ordered = (x if is_float(x.dtype) else x.astype("float32")).sort(axis)
        return (ordered.index(axis, (size - 1) // 2) + ordered.index(axis, size // 2)) * 0.5

    @checked
    def diagonal(x: Tensor, offset: int = 0) -> Tensor:
        """The elements of the last two axes at which column - row is `offset`, as one last axis."""
        rows, columns = _matrix(x)
        size = minimum(rows - max(-offset, 0), columns - max(offset, 0))
        if size.is_constant and size.constant < 0:
            raise ShapeError(f"the diagonal {offset} of {x!r} lies outside of it")
        places = (apply(ops.Iota(size)) + max(-offset, 0)) * evaluate(columns) + (apply(ops.Iota(size)) + max(offset, 0))
        return x.reshape((*x.type.shape[:-2], rows * columns)).take(places, -1)

    @checked
    def trace(x: Tensor, offset: int = 0) -> Tensor:
        """The sum of a diagonal of the last two axes."""
        return x.diagonal(offset).sum(-1)

    @checked
    def tril(x: Tensor, offset: int = 0) -> Tensor:
        """The lower triangle of the last two axes, where column - row is at most `offset`; zeros above it."""
        columns, rows = places(*_matrix(x), offset)
        return where(columns <= rows, x, 0)

    @checked
    def triu(x: Tensor, offset: int = 0) -> Tensor:
        """The upper triangle of the last two axes, where column - row is at least `offset`; zeros below it."""
        columns, rows = places(*_matrix(x), offset)
        return where(columns >= rows, x, 0)

    @checked
    def _take_along_last(x: Tensor, indices: Tensor) -> Tensor:
        """`x[..., indices]`, one position of the last axis for each leading position (shape of `indices`)."""
        return (x * indices.one_hot(x.type.shape[-1], x.dtype)).sum(-1)

    @checked
    def _scatter_add(updates: Tensor, indices: Tensor, size: IntoExpr, axis: int = 0) -> Tensor:
        """Zeros with `size` elements along `axis`, to which the updates are added at `indices`; updates outside are dropped."""
        return combined_at("add", updates, indices, size, axis)


def at_position(x: Tensor, axis: int, position: Value) -> Tensor:
    """`index`, with an error for a value that cannot be a position."""
    at = one_axis(x, axis)
    if isinstance(position, (int, np.integer)) and is_int(position):
        position = _position(x, at, int(position))
    positions = as_tensor(position) if isinstance(position, (BaseTensor, Expr)) else _positions(position)
    if positions.dtype == "bool" or is_float(positions.dtype):
        hint = (
            "a mask cannot pick elements, since the shape would depend on data. It can replace them: tp.where(mask, x, 0)"
            if positions.dtype == "bool"
            else 'convert the positions: positions.astype("int32")'
        )
        raise IndexingError(f"axis {at} of {x!r} is indexed with {positions.dtype}, but positions are integers", hint=hint)
    return apply(ops.Gather(at), x, positions.astype("int32"))


def _position(x: Tensor, axis: int, position: int) -> Expr:
    """A number as a position along `axis`, counted from its end where it is negative."""
    size = x.type.shape[axis]
    if size.is_constant and not -size.constant <= position < size.constant:
        valid = f"positions go from {-size.constant} to {size.constant - 1}" if size.constant else "the axis is empty"
        raise IndexingError(f"position {position} is outside of axis {axis} of {x!r}: its size is {size}", hint=valid)
    return Expr.of(position) + (size if position < 0 else 0)


def _positions(value: Value) -> Any:
    """Numbers that exist when the program is built, as positions."""
    try:
        return apply(constant_op(value))
    except ArgumentError:
        raise IndexingError(
            f"{shown(value)} is not a position",
            hint="a position is an int, a list of ints, an expression of steps, or an int32 tensor: x.index(0, t)",
        ) from None


def _along_one_axis(x: Tensor, indices: Any, axis: int | Sequence[int], nearest: bool) -> tuple[Tensor, int, Value]:
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
    shape, positions, inside = x.type.shape, apply(constant_op(0)), apply(constant_op(True))
    sizes = shape[axes[0] : axes[-1] + 1]
    for each, size in zip(indices, sizes, strict=True):
        place, end = as_tensor(each).astype("int32"), evaluate(size)
        inside = inside & (place >= 0) & (place < end)
        positions = positions * end + (place._minimum(end - 1)._maximum(0) if nearest else place)
    flat = x.reshape((*shape[: axes[0]], ops.product(sizes), *shape[axes[-1] + 1 :]))
    return flat, axes[0], positions if nearest else where(inside, positions, -1)


def combined_at(fn: str, updates: Tensor, indices: Value, size: IntoExpr, axis: int = 0) -> Tensor:
    """`size` elements along `axis`, each what `fn` of `ops.COMBINING` makes of the updates with its position in `indices`."""
    return apply(ops.Scatter(axis, Expr.of(size), fn=fn), updates, as_tensor(indices).astype("int32"))


# of `scatter`, and what they do to a number and an update
MODES = {"set": "", "add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}


def _replaced(x: Tensor, at: int, positions: Tensor, values: Tensor) -> Tensor:
    """`x` with the last of the values for a position along axis `at` in place of what is there."""
    if positions.rank:  # drop all but the last update of each position: after sorting, the last of equal positions
        count = positions.rank
        values = values.reshape((*x.type.shape[:at], ops.product(positions.type.shape), *values.type.shape[at + count :]))
        positions = positions.flatten()
        order = positions.argsort()
        ordered, values = positions.take(order), values.take(order, at)
        following = apply(ops.Slice(0, Expr.of(1), ordered.type.shape[0]), ordered + 1)
        after = following._pad_axis(0, 0, 1)  # past the end 0, which is not a position plus 1
        positions = where(after == ordered + 1, -1, ordered)
    sums = values._scatter_add(positions, x.type.shape[at], at)
    each = apply(constant_op(1, "int32")).broadcast_to(positions.type.shape)
    is_written = each._scatter_add(positions, x.type.shape[at]) > 0
    return where(apply(ops.Broadcast(x.type.shape, (at,)), is_written), sums, x)


def _matrix(x: Tensor) -> tuple[Expr, Expr]:
    if x.rank < 2:
        raise ShapeError(
            f"{x!r} has {x.rank} dimensions, and so no triangle or diagonal",
            hint="give a matrix, or a stack of them: tp.tril(tp.ones((3, 3)))",
        )
    return x.type.shape[-2], x.type.shape[-1]


def places(rows: Expr, columns: Expr, offset: int) -> tuple[Any, Any]:
    """Each column's number, and each row's plus `offset`, to compare."""
    return apply(ops.Iota(columns)), apply(ops.Iota(rows)).expand_dims(1) + offset
