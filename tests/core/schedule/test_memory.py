"""When values are freed."""

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.schedule import Block, Dealloc, Execute, Loop, schedule
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tests.core.schedule.checker import check
from tests.core.schedule.programs import MONTE_CARLO, ORDER, T, reinforce, run, t


def test_values_are_freed_right_after_their_last_reader():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "y", dt, (x, (Range(Expr.of(0), t.expr + 1),)))
    run(graph, "z", Domain(()))
    scheduled = schedule(graph, {Symbol("T"): 5}, dealloc=True)
    check(scheduled, dealloc=True)
    assert "for t in 0:5:\n  x[t]\n  y[t]\ndealloc x[0:5]" in scheduled.text()


def test_values_that_one_reader_takes_at_once_are_freed_at_once():
    graph = Graph(ORDER)
    x = run(graph, "x", Domain((t,)))
    run(graph, "total", Domain(()), (x, (Range(Expr.of(0), T),)))
    scheduled = schedule(graph, {Symbol("T"): 5}, dealloc=True)
    check(scheduled, dealloc=True)
    assert scheduled.text() == "for t in 0:5:\n  x[t]\ntotal\ndealloc x[0:5]"


def test_a_value_in_one_slot_goes_when_the_next_takes_its_place():
    graph = Graph(ORDER)
    run(graph, "unused", Domain(()), outputs=2)
    scheduled = schedule(graph, {}, dealloc=True)
    assert scheduled.root == Block((Execute(0, None, ()),))


def test_without_dealloc_nothing_is_freed():
    assert "dealloc" not in schedule(reinforce(MONTE_CARLO), {Symbol("I"): 2, Symbol("T"): 3}).text()


def test_the_checker_sees_a_value_that_is_freed_too_early():
    graph = Graph(ORDER)
    x = run(graph, "x", Domain((t,)))
    run(graph, "total", Domain(()), (x, (Range(Expr.of(0), T),)))
    scheduled = schedule(graph, {Symbol("T"): 5}, dealloc=True)
    assert [type(c) for c in scheduled.root.children] == [Loop, Execute, Dealloc]
    first, second, free = scheduled.root.children
    object.__setattr__(scheduled, "root", Block((first, free, second)))
    with pytest.raises(AssertionError, match="is freed"):
        check(scheduled, dealloc=True)
