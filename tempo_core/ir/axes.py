"""Axes: from which dimension of which operand each dimension of an op's result comes, one row for each op, and the op without it.

An op that computes the positions along a dimension one by one can do so for one position, for a tile of them, or for one more dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tempo_core.ir import ops
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.ops import Op
from tempo_core.symbolic.expr import Expr

Shape = tuple[Expr, ...]
Source = tuple[
    int | None, ...
]  # for each operand, its dimension that is the result's; None if the operand lacks it: all of it is needed
AnyOp = TypeVar("AnyOp", bound=Op)
T = TypeVar("T")

ELEMENTWISE = (ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast, ops.Identity)
RESULT = -1


@dataclass(frozen=True)
class Row:
    """The dimensions of an op.

    `sources`, of (op, shapes of the operands, shape of the result), gives the source of each dimension of the result; None for one whose
    positions depend on each other. `parameters` are the op's parameters that name dimensions, with the operand that these belong to, or
    `RESULT`. Those in `reduced` name, operand after operand, the dimensions over which the op reduces.
    """

    sources: Callable[[Any, Sequence[Shape], Shape], Sequence[Source | None]]
    parameters: dict[str, int]
    reduced: tuple[str, ...] = ()


def _same(op: Op, shapes: Sequence[Shape], result: Shape) -> list[Source | None]:
    return [(k,) * len(shapes) for k in range(len(result))]


def _others(op: Any, shapes: Sequence[Shape], result: Shape) -> list[Source | None]:
    """An op that works along one axis does so at each position of the others."""
    return [None if k == op.axis else (k,) * len(shapes) for k in range(len(result))]


def _kept(op: Op, shapes: Sequence[Shape], result: Shape) -> list[Source]:
    return [(k,) for k in range(len(shapes[0])) if (k,) not in reduced(op)]


def _broadcast(op: ops.Broadcast, shapes: Sequence[Shape], result: Shape) -> list[Source]:
    return [(op.axes.index(k) if k in op.axes else None,) for k in range(len(result))]


def _permute(op: ops.Permute, shapes: Sequence[Shape], result: Shape) -> list[Source]:
    return [(k,) for k in op.order]


def _reshape(op: ops.Reshape, shapes: Sequence[Shape], result: Shape) -> list[Source | None]:
    """A reshape keeps a dimension that is as large as before, with as many elements in front of it."""
    (shape,) = shapes

    def kept(axis: int) -> Source | None:
        before, size = ops.product(result[:axis]), result[axis]
        of_size = (k for k, other in enumerate(shape) if other == size and size != 1)
        return next(((k,) for k in of_size if ops.product(shape[:k]) == before), None)

    return [kept(axis) for axis in range(len(result))]


def _dot(op: ops.Dot, shapes: Sequence[Shape], result: Shape) -> list[Source]:
    left, right = (len(shape) for shape in shapes)
    free: list[Source] = [*((k, None) for k in op.left_free(left)), *((None, k) for k in op.right_free(right))]
    return [*zip(op.left_batch, op.right_batch, strict=True), *free]


def _conv(op: ops.Conv, shapes: Sequence[Shape], result: Shape) -> list[Source | None]:
    """The batch of a convolution, and its features if they are one group. Along spatial dimensions, windows overlap."""
    batch = len(result) - op.spatial - 1
    features = (None, len(shapes[1]) - 1) if op.groups == 1 else None
    return [*((k, None) for k in range(batch)), *([None] * op.spatial), features]


def _gather(op: ops.Gather, shapes: Sequence[Shape], result: Shape) -> list[Source]:
    before: list[Source] = [*((k, k) for k in range(op.batch)), *((k, None) for k in range(op.batch, op.axis))]
    indices = ((None, k) for k in range(op.batch, len(shapes[1])))
    return [*before, *indices, *((k, None) for k in range(op.axis + 1, len(shapes[0])))]


def _scatter(op: ops.Scatter, shapes: Sequence[Shape], result: Shape) -> list[Source | None]:
    wide = len(shapes[1]) - op.batch
    before: list[Source] = [*((k, k) for k in range(op.batch)), *((k, None) for k in range(op.batch, op.axis))]
    return [*before, None, *((k, None) for k in range(op.axis + wide, len(shapes[0])))]


_ALONG_ONE = Row(_others, {"axis": 0})

ROWS: dict[type[Op], Row] = {
    **dict.fromkeys(ELEMENTWISE, Row(_same, {})),
    ops.Where: Row(_same, {"axis": 0}),
    ops.Reduce: Row(_kept, {"axes": 0}, ("axes",)),
    ops.Argmax: Row(_kept, {"axis": 0}, ("axis",)),
    ops.DiscountedSum: Row(_kept, {"axis": 0}, ("axis",)),
    ops.Argsort: _ALONG_ONE, ops.CumSum: _ALONG_ONE, ops.CumMax: _ALONG_ONE, ops.LinearScan: _ALONG_ONE,
    ops.Concat: _ALONG_ONE, ops.Flip: _ALONG_ONE, ops.Pad: _ALONG_ONE, ops.Slice: _ALONG_ONE,
    ops.Broadcast: Row(_broadcast, {"shape": RESULT, "axes": RESULT}),
    ops.Permute: Row(_permute, {"order": 0}),
    ops.Reshape: Row(_reshape, {"shape": RESULT}),
    ops.Dot: Row(
        _dot, {"left_contract": 0, "right_contract": 1, "left_batch": 0, "right_batch": 1}, ("left_contract", "right_contract")
    ),
    ops.Conv: Row(_conv, {}),
    ops.Gather: Row(_gather, {"axis": 0, "batch": 0}),
    ops.Scatter: Row(_scatter, {"axis": 0, "batch": 0}),
}  # fmt: skip


def sources(op: Op, shapes: Sequence[Shape], result: Shape) -> Sequence[Source | None]:
    """The source of each dimension of an op's result; None for a dimension whose positions depend on each other."""
    return ROWS[type(op)].sources(op, shapes, result) if type(op) in ROWS else [None] * len(result)


def source_of(graph: Graph, node: Node, axis: int) -> Source | None:
    """The source of a dimension of a node's value."""
    shapes = [type.shape for type in graph.input_types(node)]
    return sources(node.op, shapes, node.outputs[0].shape)[axis] if type(node.op) in ROWS else None


def places_of(graph: Graph, node: Node) -> list[dict[int, int]]:
    """For each operand of a node, the dimensions of the node's value that its dimensions become."""
    every = sources(node.op, [type.shape for type in graph.input_types(node)], node.outputs[0].shape)
    each = [(k, source) for k, source in enumerate(every) if source is not None]
    return [{axis: k for k, source in each if (axis := source[slot]) is not None} for slot in range(len(node.inputs))]


def operand_labels(
    op: Op, shapes: Sequence[Shape], result: Shape, labels: Sequence[T], fresh: Sequence[T]
) -> list[tuple[T, ...]]:
    """For each operand, the labels of its dimensions: those of the result's, which come from them, and `fresh` ones of reduced dimensions."""
    axes = zip((*labels, *fresh), (*sources(op, shapes, result), *reduced(op)), strict=True)
    each = [(label, source) for label, source in axes if source is not None]
    by_axis = [{axis: label for label, source in each if (axis := source[slot]) is not None} for slot in range(len(shapes))]
    return [tuple(of[axis] for axis in sorted(of)) for of in by_axis]


def reduced(op: Op) -> list[tuple[int, ...]]:
    """For each dimension over which an op reduces, its axis in each operand."""
    names = ROWS[type(op)].reduced if type(op) in ROWS else ()
    values = [getattr(op, name) for name in names]
    return list(zip(*(value if isinstance(value, tuple) else (value,) for value in values), strict=True))


def dropped(axes: Sequence[int], axis: int) -> tuple[int, ...]:
    """Axes of a value, renamed for the value without `axis`."""
    return tuple(a - (a > axis) for a in axes if a != axis)


def left_out(entries: tuple[T, ...], axis: int) -> tuple[T, ...]:
    """A shape, or an index, without the entry of `axis`."""
    return (*entries[:axis], *entries[axis + 1 :])


def tiled(op: Op, axis: int, *size: Expr) -> Op:
    """The op that computes a tile of so many positions along dimension `axis` of its result, of tiles of its sources."""
    if isinstance(op, (ops.Broadcast, ops.Reshape)):
        return replace(op, shape=(*op.shape[:axis], *size, *op.shape[axis + 1 :]))
    return ops.Where() if isinstance(op, ops.Where) and op.axis == axis else op


def without(op: Op, axis: int, source: Source) -> Op | None:
    """The op that computes one position along dimension `axis` of its result, of its operands without the dimensions `source`.

    None for the features of a convolution: a kernel has a dimension for them.
    """
    if isinstance(op, ops.Conv) and source[0] is None:
        return None
    return _without(tiled(op, axis), {RESULT: axis, **dict(enumerate(source))})


def without_reduced(op: AnyOp, axes: tuple[int, ...]) -> AnyOp:
    """The op that no longer reduces over a dimension, which operand k has as `axes[k]`."""
    return _without(op, dict(enumerate(axes)))


def _without(op: AnyOp, removed: dict[int, int | None]) -> AnyOp:
    """The op for operands, and a result, without a dimension each."""

    def renamed(value: Any, axis: int | None) -> Any:
        if axis is None or isinstance(value, int):
            return value if axis is None else value - (value > axis)
        return dropped(value, axis)

    parameters = ROWS[type(op)].parameters.items()
    return replace(op, **{n: renamed(getattr(op, n), removed.get(slot)) for n, slot in parameters if n != "shape"})


def with_leading(op: Op, size: Expr) -> Op:
    """The op for operands, and a result, with one more dimension in front, of `size` positions: it computes them one by one."""
    row = ROWS[type(op)]
    if op == ops.Where():
        return op  # it is no mask along an axis

    def renamed(name: str, value: Any) -> Any:
        if name == "shape" or isinstance(value, int):
            return (size, *value) if name == "shape" else value + 1
        return (*((0,) if name not in row.reduced else ()), *(a + 1 for a in value))

    return replace(op, **{name: renamed(name, getattr(op, name)) for name in row.parameters})
