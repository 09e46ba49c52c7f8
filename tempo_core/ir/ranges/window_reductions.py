"""Reductions of windows that move with a step, at all its points at once, and of blocks.

A window has the points `t + first, ..., t + first + width - 1` of a range, as far as they exist and lie between two limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.builder import COMBINE, NEUTRAL, Builder
from tempo_core.ir.graph import Edge
from tempo_core.ir.ranges.scans import SCANS, filled, spread
from tempo_core.ir.ranges.scans import before as preceding
from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol
from tempo_core.symbolic.proof import extreme, provably_nonnegative


@dataclass(frozen=True)
class Window:
    """The points `t + first, ..., t + first + width - 1` that are at least `low` and less than `high`: all, unless the range `is_cut`."""

    first: Expr
    width: Expr
    low: Expr
    high: Expr
    is_cut: bool


def window_of(index: Range, step: Symbol) -> Window | None:
    """The window of a range such as `t:min(t + W, T)`, `max(t - 2, 1):t + 1` or `t - 1:t + 2`; None if it varies or may be empty."""
    first, low = _distance(index.start, step, Maximum, Expr.of(0))
    end, high = _distance(index.stop, step, Minimum, step.bound_expr)
    is_window = not any(part.steps for part in (first, end, low, high)) and provably_nonnegative(end - first - 1)
    is_inside = is_window and provably_nonnegative(low) and provably_nonnegative(step.bound_expr - high)
    is_cut = any(isinstance(each.single_atom, (Minimum, Maximum)) for each in (index.start, index.stop))
    return Window(first, end - first, low, high, is_cut) if is_inside else None


def _distance(expression: Expr, step: Symbol, kind: type[Minimum] | type[Maximum], limit: Expr) -> tuple[Expr, Expr]:
    """The distance c of `t + c`, perhaps cut at a limit (`max(t + c, 1)`) or at an end of the step; and the limit.

    The distance has steps if there is no such distance.
    """
    for cut, end in ((Minimum, step.bound_expr), (Maximum, Expr.of(0)), (kind, None)):
        atom = expression.single_atom
        if not isinstance(atom, (Minimum, Maximum)) or not isinstance(atom, cut) or len(atom.args) != 2:
            continue
        first, second = sorted(atom.args, key=lambda each: step in each.symbols)
        if step not in first.symbols and end in (None, first):
            expression, limit = second, limit if end is not None else first
    return expression - step.expr, limit


def of_windows(build: Builder, fn: str, x: Edge, axis: int, window: Window, gamma: float | None = None) -> Edge:
    """The reduction of each window; with `gamma`, the sum of `gamma**k * x[t + k]`. Position t of the result has the window of t."""
    size, high, width = build.type(x).shape[axis], extreme([window.low, window.high], 1), window.width
    begin, before, after = (extreme([e, Expr.of(0)], 1) for e in (window.first, -window.first, window.first + width - 1))
    before, after = before + window.low, after + size - high
    inner = x if window.low == 0 and high == size else build.add(ops.Slice(axis, window.low, high), x)
    if not width.is_constant:
        count = (extreme([begin + size + width, before + high - window.low], 1) + width - 1) // width
        padded = _padded(build, fn, inner, axis, before, count * width - before - high + window.low)
        return _by_blocks(build, fn, padded, axis, begin, size, (count, width))
    if not window.is_cut:  # windows that reach out are not read: zeros stand for them
        count = extreme([size - width + 1, Expr.of(0)], 1)
        total = _cut(build, _by_doubling(build, fn, x, axis, width.constant, gamma), axis, Expr.of(0), count)
        return build.add(ops.Pad(axis, -window.first, size - count + window.first), total)
    padded = _padded(build, fn, inner, axis, before, after)
    return _cut(build, _by_doubling(build, fn, padded, axis, width.constant, gamma), axis, begin, size)


def _padded(build: Builder, fn: str, x: Edge, axis: int, before: Expr, after: Expr) -> Edge:
    """The elements with so many neutral ones around them."""
    if NEUTRAL[fn] == 0:
        return build.add(ops.Pad(axis, before, after), x)
    ends = [[filled(build, x, axis, count, NEUTRAL[fn])] if count != 0 else [] for count in (before, after)]
    return build.add(ops.Concat(axis), *ends[0], x, *ends[1])


def _by_doubling(build: Builder, fn: str, x: Edge, axis: int, width: int, gamma: float | None) -> Edge:
    """The reduction of the `width` elements from each position on, as far as there are so many.

    R_2k[t] is R_k[t] and R_k[t + k] together, where R_k reduces k elements from t on.
    """
    doubled, total, power, covered = x, None, 1, 0
    while True:  # doubled[t] reduces k in 0 .. power - 1, and total[t] k in 0 .. covered - 1
        if width & power:
            total = doubled if total is None else _together(build, fn, total, doubled, axis, covered, gamma)
            covered += power
        if covered == width:
            assert total is not None
            return total
        doubled = _together(build, fn, doubled, doubled, axis, power, gamma)
        power *= 2


def _by_blocks(build: Builder, fn: str, x: Edge, axis: int, begin: Expr, size: Expr, blocks: tuple[Expr, Expr]) -> Edge:
    """The reduction of so many elements as a block has, from each of `size` positions on: two scans, whatever the width.

    The elements are `blocks`, a number of them and their width (van Herk, 1992; Gil and Werman, 1993). A window is the end of one block and the
    start of the next. Both are scans inside of the blocks. A sum is one of elements of the window alone, without differences of sums.
    """
    shape = build.type(x).shape
    rows = build.add(ops.Reshape((*shape[:axis], *blocks, *shape[axis + 1 :])), x)
    suffixes = SCANS[fn](build, rows, axis + 1, True)
    prefixes = preceding(build, SCANS[fn](build, rows, axis + 1, False), axis + 1, False, NEUTRAL[fn])
    flat = [build.add(ops.Reshape(shape), part) for part in (suffixes, prefixes)]
    return build.add(
        ops.Binary(COMBINE[fn]), *(_cut(build, part, axis, begin + k * blocks[1], size) for k, part in enumerate(flat))
    )


def _together(build: Builder, fn: str, left: Edge, right: Edge, axis: int, shift: int, gamma: float | None) -> Edge:
    """`left[t]` and `right[t + shift]` together, at the positions that have both."""
    size = extreme([build.type(right).shape[axis] - shift, Expr.of(0)], 1)
    moved = _cut(build, right, axis, Expr.of(shift), size)
    if gamma is not None:
        moved = build.add(ops.Binary("mul"), moved, spread(build, moved, gamma**shift))
    return build.add(ops.Binary(COMBINE[fn]), _cut(build, left, axis, Expr.of(0), size), moved)


def _cut(build: Builder, x: Edge, axis: int, start: Expr, size: Expr) -> Edge:
    return build.add(ops.Slice(axis, start, start + size), x)


def of_blocks(build: Builder, fn: str, x: Edge, axis: int, size: Expr) -> Edge:
    """The reduction of each block of `size` elements, at each position of the block; the last one may be shorter."""
    shape = build.type(x).shape
    before, after = shape[:axis], shape[axis + 1 :]
    count = (shape[axis] + size - 1) // size
    whole = _padded(build, fn, x, axis, Expr.of(0), count * size - shape[axis])
    rows = build.add(ops.Reshape((*before, count, size, *after)), whole)
    reduced = build.add(ops.Reduce(fn, (axis + 1,)), rows)
    others = tuple(k for k in range(len(shape) + 1) if k != axis + 1)
    repeated = build.add(ops.Broadcast((*before, count, size, *after), others), reduced)
    return _cut(build, build.add(ops.Reshape((*before, count * size, *after)), repeated), axis, Expr.of(0), shape[axis])
