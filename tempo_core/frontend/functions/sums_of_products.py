"""Sums of products whose factors were broadcast against each other, as contractions: `(x[:, None] * y[None, :]).sum(1)`."""

from __future__ import annotations

from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops

_CONTRACTED = ("float32", "float64")  # sums in fewer bits are rounded in other places than products of matrices


def as_contraction(x: Tensor, axes: tuple[int, ...]) -> Tensor | None:
    """The sum over `axes` of a product, as a `Dot` of its factors; None unless a factor repeats its elements along another axis.

    So no array of all products is made, neither here nor for the gradient.
    """
    node = x.node
    is_product = isinstance(node.op, ops.Binary) and node.op.fn == "mul" and x.dtype in _CONTRACTED
    if not is_product or not axes or x.materialized() is not x:
        return None
    (left, left_axes), (right, right_axes) = (_factor(view(x.context, edge)) for edge in node.inputs)
    kept = [k for k in range(x.rank) if k not in axes]
    shared = [k for k in kept if k in left_axes and k in right_axes]
    free = [[k for k in kept if k in own and k not in shared] for own in (left_axes, right_axes)]
    varies = {*left_axes, *right_axes} >= set(kept) and set(left_axes) & set(right_axes) >= set(axes)
    if not varies or not (free[0] or free[1]):
        return None
    places = [tuple(own.index(k) for k in group) for group in (axes, shared) for own in (left_axes, right_axes)]
    product = apply(ops.Dot(*places), left, right)
    order = [*shared, *free[0], *free[1]]
    if order == kept:
        return product
    return apply(ops.Permute(tuple(order.index(k) for k in kept)), product)


def _factor(x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A factor before it was broadcast, and the axes of the product along which it varies."""
    node = x.node
    if not isinstance(node.op, ops.Broadcast) or x.materialized() is not x:
        return x, tuple(range(x.rank))
    return view(x.context, node.inputs[0]), node.op.axes
