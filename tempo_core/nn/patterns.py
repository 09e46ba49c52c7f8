"""Attention patterns: which positions a position attends to, as slices of a step.

A pattern is a function from a step t and its bound T to a slice, or to several slices that do not overlap. Over a temporal
step the slices index the keys and values, and decide what is stored, and for how long; over a spatial dimension a pattern is a mask.
Users can write such functions of their own, with `+ - * // %`, `tp.min` and `tp.max`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np

import tempo_core.frontend.functions as fn
from tempo_core.errors import ArgumentError, IndexingError
from tempo_core.frontend.aliases import Slice
from tempo_core.frontend.tensor import Tensor
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol, maximum, minimum

Reach: TypeAlias = Callable[[Expr, Expr], Union["Slice", Sequence["Slice"]]]


@dataclass(frozen=True)
class Pattern:
    """`reach(t, T)` is the slice, or the slices, of the positions that position t of T attends to."""

    name: str
    reach: Reach

    def slices(self, t: IntoExpr, T: IntoExpr) -> tuple[Slice, ...]:
        """The slices at position t, checked to be slices."""
        result = self.reach(Expr.of(t), Expr.of(T))
        parts = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not parts or not all(isinstance(part, slice) for part in parts):
            raise IndexingError(
                f"the attention pattern `{self.name}` returns {result!r} at {t}",
                hint="return a slice, or a tuple of slices without overlap: lambda t, T: slice(0, t + 1)",
            )
        return parts

    def positions(self, t: int, T: int) -> list[int]:
        """The positions that position t of T attends to, as numbers."""
        return [k for part in self.slices(t, T) for k in range(*(int(Expr.of(end)) for end in _ends(part, T)))]

    def parts(self, length: int) -> tuple[Part, ...]:
        """The slices of texts of up to `length` positions, with how far they reach."""
        symbol = Symbol("_position", "_LENGTH")
        return tuple(_part(each, symbol, length) for each in self.slices(symbol.expr, length))

    def inside(self, rows: Tensor, columns: Tensor, length: IntoExpr) -> Tensor:
        """bool: whether the positions `rows` of a text of `length` attend to the positions `columns`, int32, which broadcast together."""
        symbol = Symbol("_position", "_LENGTH")
        inside = [_inside(part, symbol, rows, columns, Expr.of(length)) for part in self.slices(symbol.expr, length)]
        return functools.reduce(fn.logical_or, inside)

    def mask(self, length: IntoExpr) -> Tensor:
        """bool [length, length]: whether the row's position attends to the column's."""
        count = Expr.of(length)
        rows, columns = fn.expand_dims(fn.arange(count), 1), fn.expand_dims(fn.arange(count), 0)
        return fn.broadcast_to(self.inside(rows, columns, count), (count, count))


@dataclass(frozen=True)
class Part:
    """A slice of a pattern, over texts of up to `length` positions.

    `back` is the greatest distance from a position to the first that it attends to, if that is less than the length allows; `end` is the
    greatest position that any position attends to, plus one, if that is less than the length. Of both, None stands for no such number.
    With `is_all`, a position attends to all positions before it; with `is_causal`, to none after it.
    """

    part: Slice
    symbol: Symbol
    length: int
    back: int | None
    end: int | None
    is_all: bool
    is_causal: bool

    def inside(self, rows: Tensor, columns: Tensor) -> Tensor:
        """bool: whether the positions `rows` attend to the positions `columns`, int32, by this slice."""
        return _inside(self.part, self.symbol, rows, columns, Expr.of(self.length))


def _part(part: Slice, symbol: Symbol, length: int) -> Part:
    at = np.arange(length)
    start, stop, stride = (
        np.broadcast_to(Expr.of(end).evaluate({symbol: at}, np.minimum, np.maximum), at.shape) for end in _ends(part, length)
    )
    filled = start < stop
    back = int((at - start)[filled].max(initial=0))
    end = int(stop[filled].max(initial=0))
    is_all = bool((start == 0).all() and (stride == 1).all() and (stop >= at).all())
    is_causal = bool((stop <= at + 1)[filled].all())
    return Part(part, symbol, length, back if back < length - 1 else None, end if end < length else None, is_all, is_causal)


def _inside(part: Slice, symbol: Symbol, rows: Tensor, columns: Tensor, length: Expr) -> Tensor:
    start, stop, stride = (_evaluated(Expr.of(end), {symbol: rows}) for end in _ends(part, length))
    inside = fn.logical_and(columns >= start, columns < stop)
    return inside if part.step in (None, 1) else fn.logical_and(inside, fn.equal(fn.remainder(columns - start, stride), 0))


def _ends(part: Slice, T: IntoExpr) -> tuple[Any, Any, int]:
    return (
        0 if part.start is None else part.start,
        T if part.stop is None else part.stop,
        1 if part.step is None else int(part.step),
    )


def _evaluated(expression: Expr, values: Mapping[Symbol, Tensor]) -> Tensor:
    """An expression with tensors for some symbols; the others (steps and bounds) have their own values."""
    other_values: dict[Symbol, Any] = {symbol: fn.evaluate(symbol.expr) for symbol in expression.symbols if symbol not in values}
    return fn.as_tensor(expression.evaluate({**other_values, **values}, fn.minimum, fn.maximum))


causal = Pattern("causal", lambda t, T: slice(0, t + 1))
full = Pattern("full", lambda t, T: slice(0, T))


def window(size: int) -> Pattern:
    """The last `size` positions, including the present one."""
    _check_positive("window", size)
    return Pattern(f"window({size})", lambda t, T: slice(maximum(t - size + 1, 0), t + 1))


def block(size: int, causal: bool = True) -> Pattern:
    """The block of `size` positions that contains the present one: up to the present one, or the whole block if not `causal`."""
    _check_positive("block", size)
    if causal:
        return Pattern(f"block({size})", lambda t, T: slice(t // size * size, t + 1))
    return Pattern(f"block({size}, whole)", lambda t, T: slice(t // size * size, minimum((t // size + 1) * size, T)))


def sinks(count: int, size: int) -> Pattern:
    """The first `count` positions, and the last `size` (Xiao et al., 2023, arXiv:2309.17453)."""
    _check_positive("sinks", count)
    _check_positive("sinks", size)

    def reach(t: Expr, T: Expr) -> tuple[Slice, Slice]:
        first = minimum(t + 1, count)
        return slice(0, first), slice(minimum(maximum(t - size + 1, count), t + 1), t + 1)

    return Pattern(f"sinks({count}, {size})", reach)


def dilated(gap: int, size: int | None = None) -> Pattern:
    """Every `gap`-th position, counted back from the present one: all of them, or the nearest `size` (arXiv:2004.05150)."""
    _check_positive("dilated", gap)
    if size is None:
        return Pattern(f"dilated({gap})", lambda t, T: slice(t % gap, t + 1, gap))
    _check_positive("dilated", size)
    reach = (size - 1) * gap
    return Pattern(f"dilated({gap}, {size})", lambda t, T: slice(maximum(t - reach, t % gap), t + 1, gap))


def as_pattern(pattern: Pattern | Reach) -> Pattern:
    """`pattern`, or a pattern made of a user's function from (t, T) to slices."""
    if isinstance(pattern, Pattern):
        return pattern
    if not callable(pattern):
        raise ArgumentError(
            f"{pattern!r} is not an attention pattern",
            hint="use one such as tp.nn.causal or tp.nn.window(4), or write your own: lambda t, T: slice(0, t + 1)",
        )
    return Pattern(getattr(pattern, "__name__", "pattern"), pattern)


def _check_positive(name: str, size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"{name}({size!r}): the number of positions must be an int of at least 1", hint=f"tp.nn.{name}(4)")
