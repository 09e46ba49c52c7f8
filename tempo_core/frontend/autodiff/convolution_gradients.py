"""Gradients of sums over windows with fixed weights, `y[t] = x[t:t + W] @ w`: those of one convolution of all points."""

from __future__ import annotations

from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops
from tempo_core.ir.ranges.convolutions import Convolution


def contributions_of_convolution(of: Convolution, everywhere: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The contribution of a contraction of windows to the results for all points, which are a new node.

    `everywhere` is its gradient at all points of its steps, with zeros where it has none.
    """
    context, step = everywhere.context, of.step
    value = of.of_all_points(apply, view(context, of.x.edge), view(context, of.kernel.edge))
    along = slice(0, step.bound_expr, 1)
    g = everywhere[tuple(along if s == step else s.expr for s in everywhere.domain.steps)]
    order = of.order_of_results()
    return [(value, apply(ops.Permute(tuple(order.index(k) for k in range(len(order)))), g))]
