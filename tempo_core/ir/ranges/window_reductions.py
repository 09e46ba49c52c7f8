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
    """The points `t + first, ..., t + first + width - 1` that are at least `low` and less than `high`.

    A window that is not cut, `t - 1:t + 2`, has all these points wherever it is read.
    """

    first: int
    width: int
    low: Expr
    high: Expr
    is_cut: bool


def window_of(index: Range, step: Symbol) -> Window | None:
    """The window of a range such as `t:min(t + w, T)`, `max(t - w + 1, 1):t + 1` or `t - 1:t + 2`; None for other ranges."""
    first, low = _distance(index.start, step, Maximum, Expr.of(0))
    end, high = _distance(index.stop, step, Minimum, step.bound_expr)
    if not first.is_constant or not end.is_constant or end.constant <= first.constant:
        return None
    if low.steps or high.steps or not provably_nonnegative(low) or not provably_nonnegative(step.bound_expr - high):
        return None
    is_cut = any(isinstance(end.single_atom, (Minimum, Maximum)) for end in (index.start, index.stop))
    return Window(first.constant, end.constant - first.constant, low, high, is_cut)


def bounded_window_of(index: Range, step: Symbol) -> tuple[Expr, Expr] | None:
    """First point and width of a window such as `t:min(t + W, T)`, with bounds such as W; None if it varies or may be empty."""
    (first, low), (end, high) = (
        _distance(index.start, step, Maximum, Expr.of(0)),
        _distance(index.stop, step, Minimum, step.bound_expr),
    )
    if low != 0 or high != step.bound_expr or first.steps or end.steps or not provably_nonnegative(end - first - 1):
        return None
    return first, end - first


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
    """The reduction of each window, by doubling: R_2k[t] = R_k[t] and R_k[t + k] together, where R_k reduces k elements from t on.

    With `gamma`, the sum of `gamma**k * x[t + k]`. Position t of the result has the window of t.
    """
    if not window.is_cut:
        return _of_whole_windows(build, fn, x, axis, window, gamma)
    size, high = build.type(x).shape[axis], extreme([window.low, window.high], 1)
    before, after = window.low + max(-window.first, 0), size - high + max(window.first + window.width - 1, 0)
    inner = x if window.low == 0 and high == size else build.add(ops.Slice(axis, window.low, high), x)
    if NEUTRAL[fn] == 0:
        padded = build.add(ops.Pad(axis, before, after), inner)
    else:
        ends = [_neutral(build, fn, x, axis, count) for count in (before, after)]
        padded = build.add(ops.Concat(axis), *ends[:1] * bool(before != 0), inner, *ends[1:] * bool(after != 0))
    total = _by_doubling(build, fn, padded, axis, window.width, gamma)
    return _cut(build, total, axis, Expr.of(max(window.first, 0)), size)


def _of_whole_windows(build: Builder, fn: str, x: Edge, axis: int, window: Window, gamma: float | None) -> Edge:
    """The reduction of each window that lies inside of the step. Windows that do not are not needed: zeros stand for them."""
    size = build.type(x).shape[axis]
    count = extreme([size - window.width + 1, Expr.of(0)], 1)
    total = _cut(build, _by_doubling(build, fn, x, axis, window.width, gamma), axis, Expr.of(0), count)
    return build.add(ops.Pad(axis, Expr.of(-window.first), size - count + window.first), total)


def _by_doubling(build: Builder, fn: str, x: Edge, axis: int, width: int, gamma: float | None) -> Edge:
    """The reduction of the `width` elements from each position on, as far as there are so many."""
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


def of_bounded_windows(build: Builder, fn: str, x: Edge, axis: int, first: Expr, width: Expr) -> Edge:
    """The reduction of each window of `width` points from `t + first` on, in a number of operations that does not grow with the width.

    The elements are divided into blocks of `width` (van Herk, 1992; Gil and Werman, 1993). A window is the end of one block and the
    start of the next. Both are scans inside of the blocks. A sum is one of elements of the window alone, without differences of sums.
    """
    shape = build.type(x).shape
    size, begin, before = shape[axis], extreme([first, Expr.of(0)], 1), extreme([-first, Expr.of(0)], 1)
    count = (extreme([begin + size + width, before + size], 1) + width - 1) // width
    ends = [_neutral(build, fn, x, axis, missing) for missing in (before, count * width - before - size)]
    whole = build.add(ops.Concat(axis), ends[0], x, ends[1])
    rows = build.add(ops.Reshape((*shape[:axis], count, width, *shape[axis + 1 :])), whole)
    suffixes = SCANS[fn](build, rows, axis + 1, True)
    prefixes = preceding(build, SCANS[fn](build, rows, axis + 1, False), axis + 1, False, NEUTRAL[fn])
    flat = [build.add(ops.Reshape((*shape[:axis], count * width, *shape[axis + 1 :])), part) for part in (suffixes, prefixes)]
    return build.add(ops.Binary(COMBINE[fn]), *(_cut(build, part, axis, begin + k * width, size) for k, part in enumerate(flat)))


def _together(build: Builder, fn: str, left: Edge, right: Edge, axis: int, shift: int, gamma: float | None) -> Edge:
    """`left[t]` and `right[t + shift]` together, at the positions that have both."""
    size = extreme([build.type(right).shape[axis] - shift, Expr.of(0)], 1)
    moved = _cut(build, right, axis, Expr.of(shift), size)
    if gamma is not None:
        moved = build.add(ops.Binary("mul"), moved, spread(build, moved, gamma**shift))
    return build.add(ops.Binary(COMBINE[fn]), _cut(build, left, axis, Expr.of(0), size), moved)


def _cut(build: Builder, x: Edge, axis: int, start: Expr, size: Expr) -> Edge:
    return build.add(ops.Slice(axis, start, start + size), x)


def _neutral(build: Builder, fn: str, x: Edge, axis: int, size: Expr) -> Edge:
    """`size` neutral elements of a function along `axis`, otherwise of the shape of x."""
    return filled(build, x, axis, size, NEUTRAL[fn])


def of_blocks(build: Builder, fn: str, x: Edge, axis: int, size: Expr) -> Edge:
    """The reduction of each block of `size` elements, at each position of the block; the last one may be shorter."""
    shape = build.type(x).shape
    before, after = shape[:axis], shape[axis + 1 :]
    count = (shape[axis] + size - 1) // size
    missing = count * size - shape[axis]
    whole = build.add(ops.Concat(axis), x, _neutral(build, fn, x, axis, missing))
    rows = build.add(ops.Reshape((*before, count, size, *after)), whole)
    reduced = build.add(ops.Reduce(fn, (axis + 1,)), rows)
    others = tuple(k for k in range(len(shape) + 1) if k != axis + 1)
    repeated = build.add(ops.Broadcast((*before, count, size, *after), others), reduced)
    return _cut(build, build.add(ops.Reshape((*before, count * size, *after)), repeated), axis, Expr.of(0), shape[axis])
