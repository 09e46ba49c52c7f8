"""Gradients of windows: contributions stay as wide as the window, and each source point picks its element of each reader's window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempo_core.errors import NonAffineError
from tempo_core.frontend.base import apply
from tempo_core.frontend.functions import broadcast_to, evaluate, reshape, where
from tempo_core.ir.ops import Gather
from tempo_core.prices import is_narrow
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum
from tempo_core.symbolic.proof import provably_nonnegative
from tempo_core.symbolic.relation import maximum_over

if TYPE_CHECKING:
    from tempo_core.frontend.tensor import Tensor


def window_width(span: Range, step: Symbol, readers: Domain) -> Expr | None:
    """The greatest length of a range along `step` that moves with its readers. None if it is wide, or does not move."""
    if not span.steps:
        return None
    try:
        width = maximum_over(span.length, readers)
    except NonAffineError:
        return None
    if not is_narrow(width, step.bound_expr):
        return None
    return width if provably_nonnegative(width) else maximum(width, 0)


def window_elements(windows: Tensor, axis: int, starts: Tensor, step: Symbol, stride: int, exact: bool) -> Tensor:
    """The element of each window along `axis` that belongs to the source point `step`.

    `windows` has leading dimensions for the readers, which `starts` may have too: the point at which each window starts. Windows
    without the source point give zero; if `exact`, there are none.
    """
    distance = evaluate(step.expr) - starts
    position = distance // stride if stride != 1 else distance
    elements = apply(Gather(axis, starts.rank), windows, position)
    if exact:
        return elements
    width = broadcast_to(evaluate(windows.shape[axis]), position.shape)
    inside = (position >= 0) & (position < width) & (position * stride == distance)
    return where(reshape(inside, (*inside.shape, *(1,) * (elements.rank - inside.rank))), elements, 0)
