"""Gradients of windows and of scattered reads.

The contributions of a window stay as wide as the window: each source point picks its element of each reader's window. Where the readers
of a source point lie far apart (`x[t % 4]`), each reader's contribution goes to the point that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.errors import NonAffineError
from tempo_core.frontend.functions import where
from tempo_core.frontend.tensor import Tensor, apply, evaluate
from tempo_core.ir.graph import Edge
from tempo_core.ir.ops import Gather
from tempo_core.prices import is_narrow
from tempo_core.symbolic.domain import Domain, Range, is_own_point
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.inverse import Inverse
from tempo_core.symbolic.isl.relation import maximum_over


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
    width = evaluate(windows.type.shape[axis]).broadcast_to(position.type.shape)
    inside = (position >= 0) & (position < width) & (position * stride == distance)
    return where(inside.reshape((*inside.type.shape, *(1,) * (elements.rank - inside.rank))), elements, 0)


def scattered_read(edge: Edge, source: Domain, readers: Domain, inverses: Sequence[Inverse]) -> Symbol | None:
    """The step of the source along which the readers of a point lie far apart, so that their range grows with their domain.

    Readers of several steps (`x[i + t]`) always do: most points of the ranges around them read another point. The other steps of
    the source must be read at the reader's own point. None for any other read.
    """
    if len(edge.points(source)) < len(edge.index):
        return None
    moving = [s for s, i in edge.by_step(source).items() if not is_own_point(i, s)]
    others = {s for s in source.steps if s not in moving}
    if len(moving) != 1 or edge.by_step(source)[moving[0]].steps & others or not edge.by_step(source)[moving[0]].steps:
        return None
    for inverse in inverses:
        backs = zip(readers.steps, inverse.index, strict=True)
        ranges = [(s, back) for s, back in backs if isinstance(back, Range) and s in edge.by_step(source)[moving[0]].steps]
        if len(ranges) > 1 or any(not _is_short(back, s, Domain(source.steps, inverse.condition)) for s, back in ranges):
            return moving[0]
    return None


def _is_short(readers: Range, step: Symbol, sources: Domain) -> bool:
    """Whether the readers of each point of `sources` stay as many if the bound of their step grows."""
    try:
        return is_narrow(maximum_over(readers.length, sources), step.bound_expr)
    except NonAffineError:
        return True
