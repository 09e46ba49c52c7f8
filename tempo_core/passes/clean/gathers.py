"""A rule of gathers whose operands are repeated along shared dimensions: these dimensions need not be shared.

A shared dimension along which only the index is repeated is a dimension of the values like any other. One along which only the values are
repeated is a dimension of the index.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge
from tempo_core.passes.clean.view import View


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
