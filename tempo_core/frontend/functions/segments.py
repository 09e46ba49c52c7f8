"""Elements by the number of the segment, the label or the bin that each belongs to."""

from __future__ import annotations

from tempo_core.errors import ArgumentError, DTypeError, ShapeError
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions.creation import full, library
from tempo_core.frontend.functions.pointwise import where
from tempo_core.frontend.methods.indexing import combined_at
from tempo_core.frontend.tensor import Tensor, Value, evaluate, promoted
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.expr import IntoExpr


@checked
def segment_sum(data: Tensor, segment_ids: Value, num_segments: IntoExpr) -> Tensor:
    """The sum of each segment: of the elements of `data`, along its first axis, that have the segment's number in `segment_ids`.

    The result has `num_segments` elements along that axis. A number outside of them is dropped; a segment without elements is 0.
    """
    return combined_at("add", data, segment_ids, num_segments)


@checked
def segment_prod(data: Tensor, segment_ids: Value, num_segments: IntoExpr) -> Tensor:
    """The product of each segment, as `segment_sum` has their sums; 1 for a segment without elements."""
    return combined_at("mul", data, segment_ids, num_segments)


@checked
def segment_max(data: Tensor, segment_ids: Value, num_segments: IntoExpr) -> Tensor:
    """The maximum of each segment, as `segment_sum` has their sums; the dtype's lowest number for a segment without elements."""
    return combined_at("maximum", data, segment_ids, num_segments)


@checked
def segment_min(data: Tensor, segment_ids: Value, num_segments: IntoExpr) -> Tensor:
    """The minimum of each segment, as `segment_sum` has their sums; the dtype's greatest number for a segment without elements."""
    return combined_at("minimum", data, segment_ids, num_segments)


@checked
def bincount(labels: Tensor, length: IntoExpr, weights: Tensor | None = None) -> Tensor:
    """How often each of `0, ..., length - 1` is in `labels` (integers of any shape), as int32; or the sum of the `weights` beside them.

    A label outside is not counted.
    """
    if is_float(labels.dtype) or labels.dtype == "bool":
        raise DTypeError(f"bincount of {labels!r}: labels are integers", hint='convert it: x.astype("int32")')
    each = full(labels.type.shape, 1, "int32") if weights is None else weights.broadcast_to(labels.type.shape)
    return each._scatter_add(labels, length)


@checked
def histogram(x: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """How many elements of `x` lie in each bin, as int32, and the edges of the bins, which are `bins`: ascending, one more than there are bins.

    Each bin has its left edge in it, and the last one its right edge too. Elements outside of all bins are not counted.
    """
    count = bins.type.shape[0] - 1
    position = searchsorted(bins, x, "right") - 1
    last = x == bins.index(0, count)
    return bincount(where(last, evaluate(count - 1), position), count), bins


# -- by order ---------------------------------------------------------------------------------------------------------


@checked
def searchsorted(edges: Tensor, values: Value, side: str = "left") -> Tensor:
    """Where each of `values` belongs in `edges` `[n]`, which are sorted: how many edges are less (`side="left"`), or not greater ("right").

    The result is an int32 of the shape of `values`. NaN counts as the greatest number.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"unknown side {side!r} of `searchsorted`", hint='write side="left" or side="right"')
    if edges.rank != 1:
        raise ShapeError(
            f"searchsorted in {edges!r}, which is not one row of numbers",
            hint="give each point its row: tp.searchsorted(edges[t], x[t])",
        )
    edges, values = promoted(edges, values)
    if edges.type.is_static:
        return library("numpy.searchsorted", (edges, values), TensorType("int32", values.type.shape), side=side)[0]
    each = values.expand_dims(values.rank)
    return (_is_less(edges, each) if side == "left" else ~_is_less(each, edges)).sum(-1)  # of edges in any order


def _is_less(x: Tensor, y: Tensor) -> Tensor:
    """Whether x comes before y where NaN comes last."""
    return (x < y) | (y.isnan() & ~x.isnan()) if is_float(x.dtype) else x < y
