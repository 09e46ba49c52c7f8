"""Windows that move with a step: the points `t + first, ..., t + first + width - 1` of a range, as far as they exist."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class Window:
    """The points `t + first, ..., t + first + width - 1` that are inside of the step's bounds."""

    first: int
    width: int


def window_of(index: Range, step: Symbol) -> Window | None:
    """The window of a range such as `t:min(t + w, T)`, `max(t - w + 1, 0):t + 1` or `t - 1:t + 2`; None for other ranges."""
    first, end = _distance(index.start, step), _distance(index.stop, step)
    if not first.is_constant or not end.is_constant or end.constant <= first.constant:
        return None
    return Window(first.constant, end.constant - first.constant)


def bounded_window_of(index: Range, step: Symbol) -> tuple[Expr, Expr] | None:
    """First point and width of a window such as `t:min(t + W, T)`, with bounds such as W; None if it varies or may be empty."""
    first, end = _distance(index.start, step), _distance(index.stop, step)
    if first.steps or end.steps or not provably_nonnegative(end - first - 1):
        return None
    return first, end - first


def _distance(expression: Expr, step: Symbol) -> Expr:
    """The distance c of `t + c`, perhaps cut at 0 and at the step's bound: `max(t + c, 0)`. It has steps if there is no such distance."""
    for kind, limit in ((Minimum, step.bound_expr), (Maximum, Expr.of(0))):
        atom = expression.single_atom
        if isinstance(atom, kind) and len(atom.args) == 2 and limit in atom.args:
            (expression,) = [a for a in atom.args if a != limit]
    return expression - step.expr
