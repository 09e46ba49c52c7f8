"""Conditions on a counter that guard a whole loop become its limits; the same statements run."""

from __future__ import annotations

import itertools

from tempo_core.schedule.tidy import tightened
from tempo_core.schedule.tree import Block, Execute, If, Item, Loop, counter, walk
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr

t, n = counter("t"), counter("n")
RUN = Execute(0, None, (t.expr, n.expr))
OTHER = Execute(1, None, (n.expr,))


def loop_over(*children: Item, stop: int = 5) -> Loop:
    inner = Loop(n, Expr.of(0), Expr.of(stop), 1, Block(children))
    return Loop(t, Expr.of(0), Expr.of(9), 1, Block((inner,)))


def executed(item: Item, env: dict) -> list[tuple[int, tuple[int, ...]]]:
    if isinstance(item, Block):
        return list(itertools.chain.from_iterable(executed(child, env) for child in item.children))
    if isinstance(item, Loop):
        numbers = range(item.start.evaluate(env), item.stop.evaluate(env), item.step)
        return list(itertools.chain.from_iterable(executed(item.body, {**env, item.counter: k}) for k in numbers))
    if isinstance(item, If):
        if item.condition.evaluate(env):
            return executed(item.then, env)
        return [] if item.orelse is None else executed(item.orelse, env)
    assert isinstance(item, Execute)
    return [(item.node, tuple(part.evaluate(env) for part in item.point))]


def inner_limits(item: Item) -> tuple[str, str]:
    assert isinstance(item, Loop)
    (inner,) = item.body.children
    assert isinstance(inner, Loop)
    return str(inner.start), str(inner.stop)


def guarded(condition: Bool, *items: Item) -> If:
    return If(condition, Block(items))


def same_with_limits(item: Loop, start: str, stop: str) -> Item:
    changed = tightened(item, {})
    assert executed(changed, {}) == executed(item, {})
    assert inner_limits(changed) == (start, stop)
    return changed


def test_an_upper_limit():
    changed = same_with_limits(loop_over(guarded(t.expr - 4 * n.expr >= 0, RUN)), "0", "min((t//4) + 1, 5)")
    assert not any(isinstance(child, If) for child in changed.body.children[0].body.children)


def test_a_lower_limit():
    changed = tightened(loop_over(guarded(2 * n.expr - t.expr >= 0, RUN)), {})
    assert executed(changed, {}) == executed(loop_over(guarded(2 * n.expr - t.expr >= 0, RUN)), {})
    assert inner_limits(changed)[0] != "0"


def test_what_else_guards_a_statement_stays():
    both = (t.expr - n.expr >= 0) & (n.expr >= 2)
    changed = tightened(loop_over(guarded(t.expr - n.expr >= 0, RUN), guarded(both, OTHER)), {})
    assert executed(changed, {}) == executed(loop_over(guarded(t.expr - n.expr >= 0, RUN), guarded(both, OTHER)), {})
    assert inner_limits(changed) == ("0", "min(t + 1, 5)")


def test_a_statement_without_the_condition_keeps_the_loop_whole():
    same_with_limits(loop_over(guarded(t.expr - n.expr >= 0, RUN), OTHER), "0", "5")


def test_an_else_keeps_the_loop_whole():
    choice = If(t.expr - n.expr >= 0, Block((RUN,)), Block((OTHER,)))
    same_with_limits(loop_over(choice), "0", "5")


def test_equalities_and_remainders_stay_conditions():
    same_with_limits(loop_over(guarded((n.expr % 2) - 1 >= 0, RUN)), "0", "5")
    changed = tightened(loop_over(guarded((t.expr - n.expr >= 0) & ((t.expr - n.expr) != 1), RUN)), {})
    assert inner_limits(changed) == ("0", "min(t + 1, 5)")


def test_a_condition_on_outer_counters_guards_the_whole_loop_and_limits_the_outer_one():
    item = loop_over(guarded(t.expr - 3 >= 0, RUN))
    changed = tightened(item, {})
    assert executed(changed, {}) == executed(item, {})
    assert str(changed.start) == "3"
    assert not any(isinstance(inner, If) for inner in walk(changed))


def test_a_condition_on_outer_counters_stays_if_a_statement_runs_without():
    item = loop_over(guarded(t.expr - 3 >= 0, RUN), OTHER)
    assert tightened(item, {}) == item


def test_an_equality_leaves_one_iteration():
    changed = tightened(loop_over(guarded(n.expr == t.expr + 1, RUN)), {})
    assert executed(changed, {}) == executed(loop_over(guarded(n.expr == t.expr + 1, RUN)), {}) != []
    assert inner_limits(changed) == ("max(t + 1, 0)", "min(t + 2, 5)")


def test_an_equality_of_a_multiple_is_no_limit():
    item = loop_over(guarded(2 * n.expr == t.expr, RUN))
    assert tightened(item, {}) == item


def test_limits_a_known_distance_apart_are_one_limit():
    """The last of several ends and the first of several starts, where one statement runs in a single iteration."""
    for sign, limits in ((1, ("max(4 - t, 0)", "5")), (-1, ("0", "min(t + 1, 5)"))):
        end = n.expr + t.expr - 4 if sign == 1 else t.expr - n.expr
        item = loop_over(guarded(end - 1 >= 0, RUN), guarded(end >= 0, OTHER), guarded(end == 0, RUN))
        changed = tightened(item, {})
        assert executed(changed, {}) == executed(item, {})
        assert inner_limits(changed) == limits
    item = loop_over(guarded(n.expr + t.expr - 4 >= 0, RUN), guarded(n.expr == 0, OTHER))
    assert tightened(item, {}) == item, "the second statement runs before the others begin"
