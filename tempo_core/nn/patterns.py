"""Attention patterns: which positions a position attends to, as slices of a step.

A pattern is a function from a step t and its bound T to a slice, or to several slices that do not overlap. Over a temporal
step the slices index the keys and values, and decide what is stored, and for how long; over a spatial dimension a pattern is a mask.
Users can write such functions of their own, with `+ - * // %`, `tp.min` and `tp.max`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

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

    def mask(self, length: IntoExpr) -> Tensor:
        """bool [length, length]: whether the row's position attends to the column's."""
        t, count = Symbol("_position", "_LENGTH"), Expr.of(length)
        rows, columns = fn.expand_dims(fn.arange(count), 1), fn.expand_dims(fn.arange(count), 0)
        reached: Tensor | None = None
        for part in self.slices(t.expr, count):
            start, stop, stride = (_evaluated(Expr.of(end), {t: rows}) for end in _ends(part, count))
            inside = fn.logical_and(columns >= start, columns < stop)
            if part.step not in (None, 1):
                inside = fn.logical_and(inside, fn.equal(fn.mod(columns - start, stride), 0))
            reached = inside if reached is None else fn.logical_or(reached, inside)
        assert reached is not None
        return fn.broadcast_to(reached, (count, count))


def _ends(part: Slice, T: IntoExpr) -> tuple[Any, Any, int]:
    return (
        0 if part.start is None else part.start,
        T if part.stop is None else part.stop,
        1 if part.step is None else int(part.step),
    )


def _evaluated(expression: Expr, values: Mapping[Symbol, Tensor]) -> Tensor:
    """An expression with tensors for some symbols; the others (steps and bounds) have their own values."""
    other_values: dict[Symbol, Any] = {symbol: fn.evaluate(symbol.expr) for symbol in expression.symbols if symbol not in values}
    return fn.as_tensor(expression.evaluate({**other_values, **values}, fn.minimum_of, fn.maximum_of))


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
