"""Elements of a padded value by their row-major numbers. `pad` needs them where padding changes these numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.symbolic.expr import Expr


def numbers(build: Builder, true_shape: Sequence[Expr], padded: Sequence[Expr]) -> Edge:
    """For each element of a padded shape, its row-major number in the true shape: int32 of the padded shape.

    Padding elements get numbers too. These belong to other elements, or to none.
    """
    shape, strides = tuple(padded), _strides(true_shape)
    total = None
    for axis, size in enumerate(shape):
        along = build.add(ops.Binary("mul"), build.add(ops.Iota(size)), build.filled((size,), strides[axis]))
        part = build.add(ops.Broadcast(shape, (axis,)), along)
        total = part if total is None else build.add(ops.Binary("add"), total, part)
    return build.filled(shape, Expr.of(0)) if total is None else total


def elements(build: Builder, value: Edge, true_shape: Sequence[Expr], element_numbers: Edge) -> Edge:
    """The elements of a padded value at row-major numbers of its true shape."""
    shape, strides = build.type(element_numbers).shape, _strides(true_shape)
    padded = build.type(value).shape
    place = build.filled(shape, Expr.of(0))
    for size, stride, distance in zip(true_shape, strides, _strides(padded), strict=True):
        row = build.add(ops.Binary("floordiv"), element_numbers, build.filled(shape, stride))
        coordinate = build.add(ops.Binary("mod"), row, build.filled(shape, size))
        moved = build.add(ops.Binary("mul"), coordinate, build.filled(shape, distance))
        place = build.add(ops.Binary("add"), place, moved)
    flat = build.add(ops.Reshape((ops.product(padded),)), value)
    return build.add(ops.Gather(0), flat, place)


def _strides(shape: Sequence[Expr]) -> list[Expr]:
    """The number of elements from one neighbour to the next along each axis."""
    return [ops.product(tuple(shape[axis + 1 :])) for axis in range(len(shape))]
