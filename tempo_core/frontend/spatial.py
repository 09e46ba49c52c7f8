"""Spatial indexing, `x.spatial[...]`: NumPy's basic indexing, with symbolic positions and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo_core.errors import IndexingError
from tempo_core.frontend.arguments import shown
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.methods.indexing import at_position
from tempo_core.frontend.methods.nodes import apply
from tempo_core.ir.ops import Slice
from tempo_core.symbolic.expr import Expr


def spatially_indexed(x: Any, key: Any) -> Any:
    """The elements at `key`: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`, `x.spatial[positions]`."""
    parts = list(key) if isinstance(key, tuple) else [key]
    count = sum(1 for p in parts if p is not None and p is not Ellipsis)
    if count > x.rank:
        raise IndexingError(
            f"{x!r} is indexed with {count} spatial indices, but it has {x.rank} dimension{'' if x.rank == 1 else 's'}",
            hint="spatial[] indexes dimensions only. To index a step: x[t - 1]",
        )
    dots = [k for k, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise IndexingError(
            "a spatial index has more than one `...`",
            hint="keep one, and write `:` for each other dimension: x.spatial[..., :, 0]",
        )
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (x.rank - count)
    axis = 0
    for part in parts:
        if part is None:
            x = x.expand_dims(axis)
            axis += 1
        elif isinstance(part, slice):
            x = _sliced(x, axis, part)
            axis += 1
        else:
            rank = part.rank if isinstance(part, BaseTensor) else np.ndim(part) if isinstance(part, (list, np.ndarray)) else 0
            x = at_position(x, axis, part)
            axis += rank
    return x


def _sliced(x: Any, axis: int, part: slice) -> Any:
    size = x.type.shape[axis]
    stride = int(_end(part.step, Expr.of(1), Expr.of(0)))
    if stride == -1 and part.start is None and part.stop is None:
        return x.flip(axis)
    if stride < 1:
        raise IndexingError(f"the stride {stride} of a spatial slice is not positive", hint="to reverse an axis: x.flip(axis)")
    start, stop = _end(part.start, Expr.of(0), size), _end(part.stop, size, size)
    if start == 0 and stop == size and stride == 1:
        return x
    if size.is_constant and stop.is_constant and stop.constant > size.constant:
        stop = size
    if start.is_constant and stop.is_constant and start.constant > stop.constant:
        start = stop
    return apply(Slice(axis, start, stop, stride), x)


def _end(value: Any, default: Expr, size: Expr) -> Expr:
    if value is None:
        return default
    try:
        end = Expr.of(value)
    except TypeError:
        raise IndexingError(
            f"{shown(value)} cannot be an end or the stride of a spatial slice",
            hint="use an int or an expression of steps: x.spatial[0:t + 1]. To pick elements by data: x.spatial[positions]",
        ) from None
    return size + end if end.is_constant and end.constant < 0 else end
