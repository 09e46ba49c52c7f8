"""Rules of gathers whose operands are repeated: what is repeated is gathered once. Repeated along shared dimensions, these need not be shared.

A shared dimension along which only the index is repeated is a dimension of the values like any other. One along which only the values are
repeated is a dimension of the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge
from tempo_core.passes.clean.view import View
from tempo_core.symbolic.proof import provably_nonnegative


def gather_of_repeated(view: View) -> Edge | None:
    """A gather of a table's columns for every row, or of one table for all points, is one gather."""
    op, shape = view.op, view.node.outputs[0].shape
    varying = [_varying(view, slot) for slot in range(2)]
    shared = [b for b in range(op.batch) if all(b in axes for axes in varying)]
    if len(shared) == op.batch:
        return None
    values = [b for b in range(op.batch) if b in varying[0] and b not in shared]
    points = [b for b in range(op.batch) if b in varying[1] and b not in shared]
    x = _operand(view, 0, [*shared, *values])
    index = _operand(view, 1, [*shared, *points])
    axis = len(shared) + len(values) + op.axis - op.batch
    result = view.build.add(ops.Gather(axis, len(shared)), x, index)
    order = [*shared, *values, *range(op.batch, op.axis), *points, *range(op.axis, len(shape))]
    result = view.build.permuted(result, sorted(range(len(order)), key=order.__getitem__))
    return result if len(order) == len(shape) else view.build.add(ops.Broadcast(shape, tuple(sorted(order))), result)


def gather_of_broadcast(view: View) -> Edge | None:
    """Elements of a repeated value are elements of the value, repeated; along a dimension in which it repeats, they are the value."""
    op, repeated = view.op, view.operand()
    if op.batch or op.length is not None or not isinstance(repeated, ops.Broadcast):
        return None
    inner = view.inner()
    if inner is None:
        return None
    wider, shape = view.type(1).rank - 1, view.node.outputs[0].shape
    if op.axis in repeated.axes and len(repeated.axes) < len(repeated.shape):
        inner = view.build.add(ops.Gather(repeated.axes.index(op.axis)), inner, view.edge(1))
    elif op.axis in repeated.axes or not provably_nonnegative(repeated.shape[op.axis] - 1):
        return None  # a dimension without elements gives zeros
    places = ((a,) if a < op.axis else (a + wider,) if a > op.axis else range(a, a + wider + 1) for a in repeated.axes)
    return view.build.add(ops.Broadcast(shape, tuple(chain.from_iterable(places))), inner)


def _varying(view: View, slot: int) -> tuple[int, ...]:
    """The axes of an operand along which it is not repeated, as far as a `Broadcast` says so."""
    op = view.operand(slot)
    if isinstance(op, ops.Broadcast) and view.inner(slot) is not None:
        return op.axes
    return tuple(range(view.type(slot).rank))


def _operand(view: View, slot: int, batch: Sequence[int]) -> Edge:
    """An operand with these shared dimensions only, in this order, before its others."""
    axes, shape = _varying(view, slot), view.type(slot).shape
    dimensions = [*batch, *range(view.op.batch, len(shape))]
    if all(axis in axes for axis in range(len(shape))):
        return view.build.permuted(view.edge(slot), dimensions)
    inner = view.inner(slot)
    assert inner is not None
    kept = sorted(dimensions)
    sizes = tuple(shape[k] for k in kept)
    wide = inner if tuple(kept) == axes else view.build.add(ops.Broadcast(sizes, tuple(kept.index(a) for a in axes)), inner)
    return view.build.permuted(wide, [kept.index(k) for k in dimensions])
