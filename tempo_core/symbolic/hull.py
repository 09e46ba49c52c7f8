"""A hull of a condition: comparisons that all hold wherever the condition holds. It is quick to compute, and not the least hull."""

from __future__ import annotations

from tempo_core.symbolic.condition import FALSE, Bool, Comparison, Conjunction, Disjunction, at_least_zero, conjunction
from tempo_core.symbolic.expr import Expr

Limits = dict[Expr, int]  # the limit c of each expression e without a constant: e + c >= 0


def hull(condition: Bool) -> Bool:
    """A conjunction of comparisons that the condition implies; the condition itself if it is one.

    >>> from tempo_core.symbolic.expr import Symbol
    >>> t = Symbol("t", "T").expr
    >>> hull(((t >= 3) & (t <= 5)) | (t == 9))
    (t <= 9) & (t >= 3)
    """
    limits = _limits(condition)
    return FALSE if limits is None else conjunction(*(at_least_zero(expr + limit) for expr, limit in limits.items()))


def _limits(condition: Bool) -> Limits | None:
    """The limits of a hull; None for a condition that never holds."""
    if isinstance(condition, Comparison) and condition.kind != "!=":
        ends = [condition.expr] if condition.kind == ">=" else [condition.expr, -condition.expr]
        return {end - end.constant: end.constant for end in ends}
    if isinstance(condition, Conjunction):
        both: Limits = {}
        for part in condition.args:
            limits = _limits(part)
            if limits is None:
                return None
            both.update((expr, min(limit, both.get(expr, limit))) for expr, limit in limits.items())
        return both
    if isinstance(condition, Disjunction):
        each = [limits for limits in map(_limits, condition.args) if limits is not None]
        shared = [expr for expr in each[0] if all(expr in limits for limits in each)] if each else []
        return {expr: max(limits[expr] for limits in each) for expr in shared} if each else None
    return None if condition is FALSE else {}
