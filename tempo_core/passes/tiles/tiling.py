"""Tiling rules, one row for each op: from which tiles of its operands an op computes a tile of its result.

A rule takes the op, the types of its operands, and the dimension of its result to tile. It gives, for each operand, the
dimension that is tiled too (None: the operand is needed whole), and the op that computes a tile. It gives None if the op
cannot be tiled along that dimension. Then the result is computed whole, and tiles are gathered from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr


@dataclass(frozen=True)
class Tiled:
    """`operands`: for each operand, the dimension that is tiled with the result's, or None. `op`: the op that computes a tile."""

    operands: tuple[int | None, ...]
    op: ops.Op


@dataclass(frozen=True)
class Asked:
    """The input of a rule: dimension `axis` of the op's result, which has the type `result`, is to be tiled by `size`."""

    op: Any
    types: Sequence[TensorType]
    result: TensorType
    axis: int
    size: Expr

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The shape of a tile of the result."""
        return (*self.result.shape[: self.axis], self.size, *self.result.shape[self.axis + 1 :])


def tiled(op: ops.Op, types: Sequence[TensorType], result: TensorType, axis: int, size: int) -> Tiled | None:
    """How `op` computes tiles of `size` elements of its result's dimension `axis`."""
    rule = RULES.get(type(op))
    return None if rule is None else rule(Asked(op, types, result, axis, Expr.of(size)))


def contracted(op: ops.Op) -> list[tuple[int | None, ...]]:
    """For each dimension that an op reduces over, its axis in each operand."""
    if isinstance(op, ops.Reduce):
        return [(axis,) for axis in op.axes]
    if isinstance(op, ops.Dot):
        return list(zip(op.left_contract, op.right_contract, strict=True))
    return []


def _elementwise(asked: Asked) -> Tiled:
    return Tiled((asked.axis,) * len(asked.types), asked.op)


def _where(asked: Asked) -> Tiled:
    """A tile of a mask along its own axis is a choice like any other."""
    op: ops.Where = asked.op
    masked = op.length is not None and op.axis == asked.axis
    return Tiled((asked.axis,) * len(asked.types), ops.Where() if masked else op)


def _other_axis(asked: Asked) -> Tiled | None:
    """Ops that work along one axis and keep it can be tiled along the others."""
    return None if asked.axis == asked.op.axis else Tiled((asked.axis,) * len(asked.types), asked.op)


def _removed_axis(asked: Asked) -> Tiled:
    """Ops that reduce one axis."""
    return Tiled((asked.axis + (asked.axis >= asked.op.axis),), asked.op)


def _reduce(asked: Asked) -> Tiled:
    kept = [k for k in range(asked.types[0].rank) if k not in asked.op.axes]
    return Tiled((kept[asked.axis],), asked.op)


def _broadcast(asked: Asked) -> Tiled:
    op: ops.Broadcast = asked.op
    inside = op.axes.index(asked.axis) if asked.axis in op.axes else None
    return Tiled((inside,), replace(op, shape=asked.shape))


def _permute(asked: Asked) -> Tiled:
    return Tiled((asked.op.order[asked.axis],), asked.op)


def _reshape(asked: Asked) -> Tiled | None:
    """A dimension can be tiled if the reshape keeps it: as large as before, with as many elements in front of it."""
    (operand,) = asked.types
    before = ops.product(asked.result.shape[: asked.axis])
    for k, size in enumerate(operand.shape):
        if size == asked.result.shape[asked.axis] and size != 1 and ops.product(operand.shape[:k]) == before:
            return Tiled((k,), ops.Reshape(asked.shape))
    return None


def _dot(asked: Asked) -> Tiled:
    op: ops.Dot = asked.op
    left, right = (t.rank for t in asked.types)
    batch = len(op.left_batch)
    if asked.axis < batch:
        return Tiled((op.left_batch[asked.axis], op.right_batch[asked.axis]), op)
    free = asked.axis - batch
    left_free = op.left_free(left)
    if free < len(left_free):
        return Tiled((left_free[free], None), op)
    return Tiled((None, op.right_free(right)[free - len(left_free)]), op)


def _gather(asked: Asked) -> Tiled:
    op: ops.Gather = asked.op
    wide = asked.types[1].rank - op.batch
    if asked.axis < op.batch:
        return Tiled((asked.axis, asked.axis), op)
    if asked.axis < op.axis:
        return Tiled((asked.axis, None), op)
    if asked.axis < op.axis + wide:
        return Tiled((None, asked.axis - op.axis + op.batch), op)
    return Tiled((asked.axis - wide + 1, None), op)


def _conv(asked: Asked) -> Tiled | None:
    """The batch of a convolution, and its features if they are one group. Along spatial dimensions, windows overlap."""
    op: ops.Conv = asked.op
    if asked.axis < asked.result.rank - op.spatial - 1:
        return Tiled((asked.axis, None), op)
    last = asked.axis == asked.result.rank - 1 and op.groups == 1
    return Tiled((None, asked.types[1].rank - 1), op) if last else None


RULES: dict[type[ops.Op], Callable[[Asked], Tiled | None]] = {
    ops.Unary: _elementwise, ops.Binary: _elementwise, ops.Compare: _elementwise, ops.Where: _where,
    ops.Cast: _elementwise, ops.Identity: _elementwise,
    ops.Reduce: _reduce, ops.Argmax: _removed_axis, ops.DiscountedSum: _removed_axis,
    ops.Argsort: _other_axis, ops.CumSum: _other_axis, ops.CumMax: _other_axis, ops.LinearScan: _other_axis, ops.Concat: _other_axis,
    ops.Flip: _other_axis, ops.Pad: _other_axis, ops.Slice: _other_axis,
    ops.Broadcast: _broadcast, ops.Permute: _permute, ops.Reshape: _reshape, ops.Dot: _dot, ops.Conv: _conv, ops.Gather: _gather,
}  # fmt: skip
