"""Learning rates that change with the number of updates so far, as recurrent tensors.

A schedule is a function from that count (a step, an expression of steps, or a tensor; 0 at the first update) to a float32
tensor. Given to an optimizer, it is called with the count of the parameters' updates: `Adam(params, lr=cosine(3e-4, I))`.
Called by hand, it is a tensor like any other: `cosine(3e-4, I)(i)`. Sizes may be bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import tempo_core.frontend.functions as fn
from tempo_core.errors import TempoError
from tempo_core.frontend.tensor import Tensor
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

Count = int | Symbol | Expr | Tensor  # of updates
Schedule = Callable[[Count], Tensor]


def update_count(steps: Iterable[Symbol | Expr]) -> Expr:
    """How many updates come before a point of a parameter's steps, in lexicographic order: `(i * E + e) * M + m` for (i, e, m)."""
    count = Expr.of(0)
    for item in steps:
        step = item if isinstance(item, Symbol) else item.single_atom
        if not isinstance(step, Symbol) or not step.is_step:
            raise TempoError(f"{item!r} is not a step", hint="give the steps of a parameter's domain: update_count((i, e, m))")
        count = count * step.bound_expr + step.expr
    return count


def constant(value: float) -> Schedule:
    """`value` always."""
    return lambda count: fn.constant(float(value))


def linear(start: float, end: float, updates: IntoExpr) -> Schedule:
    """From `start` to `end` in `updates` updates; `end` from then on."""
    return lambda count: start + (end - start) * _progress(count, updates)


def cosine(start: float, updates: IntoExpr, end: float = 0.0) -> Schedule:
    """From `start` to `end` along half a cosine (Loshchilov and Hutter, 2017, arXiv:1608.03983); `end` from then on."""
    return lambda count: end + (start - end) * 0.5 * (1 + fn.cos(_progress(count, updates) * math.pi))


def exponential(start: float, factor: float, every: IntoExpr = 1) -> Schedule:
    """`start * factor ** (count / every)`, continuously."""
    return lambda count: start * _power(factor, _number(count) / _number(every))


def step(start: float, factor: float, every: IntoExpr) -> Schedule:
    """`start`, multiplied by `factor` after every `every` updates."""
    # With + 0.5, rounding cannot give the whole number below.
    return lambda count: start * _power(factor, fn.floor((_number(count) + 0.5) / _number(every)))


def piecewise(values: Sequence[float], boundaries: Sequence[IntoExpr]) -> Schedule:
    """`values[k]` until `boundaries[k]` updates are done, and the last value from then on."""
    if len(values) != len(boundaries) + 1:
        raise TempoError(
            f"{len(values)} values for {len(boundaries)} boundaries",
            hint="give one value more than boundaries: piecewise([0.1, 0.01], [100])",
        )

    def schedule(count: Count) -> Tensor:
        at = _number(count)
        rate = fn.constant(float(values[0]))
        for boundary, value in zip(boundaries, values[1:], strict=True):
            rate = fn.where(at >= _number(boundary), fn.constant(float(value)), rate)
        return rate

    return schedule


def warmup(updates: IntoExpr, then: Schedule, start: float = 0.0) -> Schedule:
    """Linearly from `start` to the first value of `then` in `updates` updates; then `then`, which counts from there."""

    def schedule(count: Count) -> Tensor:
        at, length = _number(count), _number(updates)
        rising = start + (then(0) - start) * (at / fn.maximum(length, 1.0))
        return fn.where(at < length, rising, then(fn.maximum(at - length, 0.0)))

    return schedule


def warmup_cosine(peak: float, warmup_updates: IntoExpr, updates: IntoExpr, start: float = 0.0, end: float = 0.0) -> Schedule:
    """From `start` to `peak` in `warmup_updates` updates, and along half a cosine to `end` when `updates` are done in all."""
    return warmup(warmup_updates, cosine(peak, updates - warmup_updates, end), start)


def _number(count: Count) -> Tensor:
    """A count as a float32 tensor."""
    number = Expr.of(count) if isinstance(count, (int, Symbol)) else count
    return fn.cast(fn.as_tensor(number), "float32")


def _progress(count: Count, updates: IntoExpr) -> Tensor:
    """The part of `updates` that is done, at most 1."""
    return fn.minimum(_number(count) / fn.maximum(_number(updates), 1.0), 1.0)


def _power(base: float, exponent: Tensor) -> Tensor:
    return fn.power(fn.constant(float(base)), exponent)
