"""The conditions under which statements run, where a loop around them has more points than they have."""

from __future__ import annotations

import islpy as isl

from tempo_core.prices import MOST_DIVISIONS_FOR_ISL
from tempo_core.schedule.constraints import Statement
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.expr import Bounds, Expr
from tempo_core.symbolic.isl.sets import Frame, bounds_of, fixed
from tempo_core.symbolic.isl.translate import condition_within


def guard(statement: Statement, points: isl.Set, box: isl.Set, at: tuple[Expr, ...], bounds: Bounds) -> Bool:
    """The condition under which a point of `box` is one of the statement's `points`, with `at` in place of the statement's steps."""
    steps = statement.node.domain.steps
    if statement.is_piece or divisions(points) <= MOST_DIVISIONS_FOR_ISL:
        return condition_within(points, box, {step.name: place for step, place in zip(steps, at, strict=True)})
    values = {**{bound: Expr.of(number) for bound, number in bounds.items()}, **dict(zip(steps, at, strict=True))}
    parts = (part for part in _as_written(statement).parts if not _always_holds(part, statement, box, bounds))
    return conjunction(*(part.substitute(values) for part in parts))


def divisions(points: isl.Set) -> int:
    """The number of divisions, as in `t % 3 == 0`, in all pieces of a set."""
    return sum(piece.dim(isl.dim_type.div) for piece in points.get_basic_sets())


def _as_written(statement: Statement) -> Bool:
    """The condition of a statement's points: those of its domain and its branch hold, and none of those of earlier branches."""
    domain = statement.node.domain
    inside = [part for step in domain.steps for part in (step.expr >= 0, step.expr <= step.bound_expr - 1)]
    *earlier, condition_of_branch = statement.conditions or (TRUE,)
    return conjunction(*inside, domain.condition, condition_of_branch, *(~condition for condition in earlier))


def _always_holds(part: Bool, statement: Statement, box: isl.Set, bounds: Bounds) -> bool:
    """Whether a condition holds at all points of a box."""
    frame = Frame(statement.node.domain.steps, bounds_of(part), statement.name)
    return bool(box.is_subset(fixed(frame.condition(part), bounds)))
