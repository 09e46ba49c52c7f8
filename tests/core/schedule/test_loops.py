"""Loops are cut where conditions change, and rotated where iterations begin elsewhere; the same statements run in the same order."""

from __future__ import annotations

import pytest

from tempo_core.schedule.loop_parts import Cuts, begun, cut, rotated
from tempo_core.schedule.tidy import resolved, simplified
from tempo_core.schedule.tree import Block, Execute, If, Item, Loop, walk
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tests.core.schedule.test_tighten import OTHER, RUN, executed, guarded, n, t

TAKE = Execute(2, 1, (t.expr,))
NEXT = Execute(3, None, (t.expr,))


def over_t(*children: Item, stop: int = 9) -> Loop:
    return Loop(t, Expr.of(0), Expr.of(stop), 1, Block(children))


def over_n(start: Expr | int, stop: Expr | int, *children: Item) -> Loop:
    return Loop(n, Expr.of(start), Expr.of(stop), 1, Block(children))


def same(item: Item, changed: Item) -> Item:
    assert executed(changed, {}) == executed(item, {})
    return changed


def loops(item: Item) -> list[str]:
    return [f"{loop.counter} in {loop.start}:{loop.stop}" for loop in walk(item) if isinstance(loop, Loop)]


def conditions(item: Item) -> list[str]:
    return [str(inner.condition) for inner in walk(item) if isinstance(inner, If)]


def test_the_range_of_an_outer_loop_decides_limits_of_inner_loops():
    inner = over_n(maximum(1 - t.expr, 0), 5, RUN)
    outer = Loop(t, Expr.of(1), Expr.of(9), 1, Block((inner,)))
    assert loops(same(outer, simplified(outer, {}))) == ["t in 1:9", "n in 0:5"]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (maximum(t.expr - 2, 0), "max(t - 2, 0)"),
        (maximum(t.expr - 1, 0) + 3, "t + 2"),
        (minimum(t.expr, 9) * 2, "2*t"),
        (minimum(t.expr, 5), "min(t, 5)"),
        (n.expr - maximum(0, t.expr), "n - t"),
    ],
)
def test_operands_of_a_minimum_or_maximum(expr: Expr, text: str):
    assert str(resolved(expr, {t: (1, 9)})) == text


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ((t.expr >= 4) & (t.expr <= 3), []),
        ((t.expr == 4) & (t.expr <= 3), []),
        ((t.expr + n.expr >= 12) & (t.expr <= 7), []),  # n is at most 4
        ((t.expr + n.expr >= 11) & (t.expr <= 7), ["(n + t >= 11) & (t <= 7)"]),
        ((t.expr != 4) & (t.expr <= 3), ["(t != 4) & (t <= 3)"]),
    ],
)
def test_conditions_that_contradict_each_other(condition: Bool, left: list[str]):
    item = over_t(over_n(0, 5, guarded(condition, RUN)))
    assert conditions(same(item, simplified(item, {}))) == left


def test_the_first_iteration_is_cut_off_where_the_others_have_no_condition():
    for item in (
        over_t(over_n(maximum(1 - t.expr, 0), 5, RUN)),
        over_t(over_n(0, 5, guarded(t.expr + n.expr >= 1, RUN), OTHER)),
        over_t(over_n(0, 5, guarded(t.expr + n.expr <= 11, RUN), OTHER)),
    ):
        changed = same(item, cut(item, {}))
        assert conditions(changed) == []
        assert all("max" not in text for text in loops(changed))


def test_a_triangle_stays_one_loop():
    for item in (over_t(over_n(0, minimum(t.expr, 5), RUN)), over_t(over_n(0, 8, guarded(t.expr >= n.expr, RUN), OTHER))):
        assert loops(same(item, cut(item, {})))[0] == "t in 0:9"
        assert len(loops(cut(item, {}))) == 2


def recurrence(after_first: Bool, before_last: Bool, stop: int = 9) -> Loop:
    return over_t(guarded(after_first, TAKE), guarded(before_last, NEXT), stop=stop)


@pytest.mark.parametrize("stop", [0, 1, 2, 3, 9])
def test_a_recurrence_is_rotated(stop: int):
    item = recurrence(t.expr >= 1, t.expr <= stop - 2, stop)
    changed = same(item, rotated(item))
    assert conditions(changed) == []
    assert isinstance(changed, Loop)
    assert [leaf.node for leaf in walk(changed) if isinstance(leaf, Execute)] == [NEXT.node, TAKE.node]


@pytest.mark.parametrize("after_first", [t.expr >= 2, (t.expr >= 1) & (t.expr % 2 == 1)])
def test_narrower_conditions_stay_in_a_rotated_loop(after_first: Bool):
    item = recurrence(after_first, (t.expr <= 7) & (t.expr >= 1))
    changed = same(item, rotated(item))
    assert len(conditions(changed)) == 2 and loops(changed) == ["t in 0:8"]


@pytest.mark.parametrize(
    ("after_first", "before_last"), [(t.expr >= 0, t.expr <= 7), (t.expr >= 1, t.expr <= 8), (t.expr % 2 == 1, t.expr <= 7)]
)
def test_other_loops_are_not_rotated(after_first: Bool, before_last: Bool):
    item = recurrence(after_first, before_last)
    assert rotated(item) == item


END = Symbol("T_last", "")
BEFORE = Execute(3, None, (Expr.of(0),))
MORE = Execute(4, None, (t.expr,))


def chosen(*body: Item) -> Loop:
    """A loop from the second iteration to an end that the run chooses."""
    return Loop(t, Expr.of(1), END.expr + 1, 1, Block(body))


@pytest.mark.parametrize("rest", [TRUE, t.expr <= 2])
def test_a_loop_to_a_chosen_end_begins_with_what_its_first_iteration_follows(rest: Bool):
    item = Block((guarded(END.expr >= 1, BEFORE), chosen(TAKE, MORE, guarded((END.expr >= t.expr + 1) & rest, NEXT))))
    changed = begun(item)
    for last in range(5):
        assert executed(changed, {END: last}) == executed(item, {END: last})
    assert loops(changed) == ["t in 0:T_last"]
    assert conditions(changed) == ([] if rest is TRUE else [str(rest)])


@pytest.mark.parametrize(
    "item",
    [
        Block((guarded(END.expr >= 2, BEFORE), chosen(TAKE, guarded(END.expr >= t.expr + 1, NEXT)))),
        Block((guarded(END.expr >= 1, MORE), chosen(TAKE, guarded(END.expr >= t.expr + 1, NEXT)))),
        Block((BEFORE, chosen(TAKE, guarded(END.expr >= t.expr + 1, NEXT)))),
        Block((guarded(END.expr >= 1, BEFORE), MORE, chosen(TAKE, guarded(END.expr >= t.expr + 1, NEXT)))),
        Block((guarded(END.expr >= 1, BEFORE), chosen(TAKE, guarded(END.expr >= t.expr + 2, NEXT)))),
        Block((guarded(END.expr >= 1, BEFORE), chosen(guarded(END.expr >= t.expr + 1, NEXT), TAKE))),
        Block((chosen(TAKE, guarded(END.expr >= t.expr + 1, NEXT)),)),
    ],
)
def test_other_loops_do_not_begin_earlier(item: Item):
    assert begun(item) == item


def test_a_loop_is_not_cut_at_a_place_that_its_counter_moves():
    item = Loop(t, Expr.of(0), END.expr + 1, 1, Block((TAKE, guarded(t.expr + (t.expr + END.expr) % 4 >= END.expr, NEXT))))
    changed = cut(item, {END: (0, 8)}, Cuts(lambda body: 1, values=frozenset({END})))
    for last in range(9):
        assert executed(changed, {END: last}) == executed(item, {END: last})


@pytest.mark.parametrize(
    ("first", "left"),
    [
        (1, ["t in 1 - T_last:1"]),
        (2, ["t in -T_last:min(2 - T_last, 1)", "t in 2 - T_last:1"]),
        (3, ["t in -T_last:1"]),
    ],
    ids=["first", "first two", "more"],
)
def test_a_loop_from_a_chosen_place_has_its_first_iterations_cut_off(first: int, left: list[str]):
    """A loop that goes back from the end of a run: the first iterations compute less."""
    item = Loop(t, -END.expr, Expr.of(1), 1, Block((TAKE, MORE, guarded(t.expr + END.expr >= first, NEXT))))
    changed = cut(
        item, {END: (0, 8)}, Cuts(lambda body: sum(isinstance(part, Execute) for part in walk(body)), values=frozenset({END}))
    )
    for last in range(9):
        assert executed(changed, {END: last}) == executed(item, {END: last})
    assert loops(changed) == left and len(conditions(changed)) == (first == 3)


FIRST = Execute(2, 0, (t.expr,))


@pytest.mark.parametrize(
    ("item", "left"),
    [
        (over_t(guarded(t.expr == 1, FIRST), guarded(t.expr >= 2, TAKE), NEXT), ["t in 2:9"]),
        (over_t(NEXT, guarded(t.expr <= 7, TAKE), guarded(t.expr >= 8, FIRST)), ["t in 0:8"]),
    ],
    ids=["first", "last"],
)
def test_a_cheap_body_is_copied_where_a_tensor_takes_another_branch(item: Loop, left: list[str]):
    changed = same(item, cut(item, {}, Cuts(lambda body: 0)))
    assert loops(changed) == left and conditions(changed) == []
    assert loops(cut(item, {})) == ["t in 0:9"]  # the body is dear


def test_a_dear_body_is_copied_where_a_tensor_that_is_updated_in_place_takes_another_branch():
    item = over_t(guarded(t.expr >= 1, TAKE), NEXT)
    dear = lambda body: 10_000  # noqa: E731
    assert loops(same(item, cut(item, {}, Cuts(dear)))) == ["t in 0:9"]
    assert loops(same(item, cut(item, {}, Cuts(dear, frozenset({TAKE.node}))))) == ["t in 1:9"]


def test_bodies_that_are_not_copied():
    for item in (
        over_t(guarded(t.expr >= 2, TAKE), NEXT),  # one branch only
        over_t(guarded(t.expr == 1, FIRST), guarded(t.expr >= 2, TAKE), NEXT, stop=7),  # few iterations
        over_t(guarded(t.expr == 4, FIRST), guarded(t.expr != 4, TAKE), NEXT),  # far from both ends
        over_t(guarded(t.expr == 1, FIRST), guarded(t.expr >= 2, TAKE), over_n(0, 5, RUN)),  # another loop
    ):
        assert len(loops(same(item, cut(item, {}, Cuts(lambda body: 0))))) == len(loops(item))
