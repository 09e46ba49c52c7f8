"""When values are freed."""

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.schedule import Block, Dealloc, Execute, schedule
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import MONTE_CARLO, ORDER, T, reinforce, run, t


def test_a_value_is_freed_right_after_its_last_reader():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "y", dt, (x, None))
    text = schedule(graph, {Symbol("T"): 5}, dealloc=True).text()
    assert text == "for t in 0:5:\n  x[t]\n  y[t]\n  dealloc x[t]\n  dealloc y[t]"


def test_values_that_one_reader_takes_at_once_are_freed_at_once():
    graph = Graph(ORDER)
    x = run(graph, "x", Domain((t,)))
    run(graph, "total", Domain(()), (x, (Range(Expr.of(0), T),)))
    scheduled = schedule(graph, {Symbol("T"): 5}, dealloc=True)
    check(scheduled, dealloc=True)
    assert scheduled.text() == "for t in 0:5:\n  x[t]\ntotal\ndealloc x[0:5]\ndealloc total"


def test_a_value_that_nothing_reads_is_freed_when_computed():
    graph = Graph(ORDER)
    run(graph, "unused", Domain(()), outputs=2)
    scheduled = schedule(graph, {}, dealloc=True)
    assert scheduled.root == Block((Execute(0, None, ()), Dealloc(0, 0, ()), Dealloc(0, 1, ())))


def test_without_dealloc_nothing_is_freed():
    assert "dealloc" not in schedule(reinforce(MONTE_CARLO), {Symbol("I"): 2, Symbol("T"): 3}).text()


def test_the_checker_sees_a_value_that_is_freed_too_early():
    graph = Graph(ORDER)
    x = run(graph, "x", Domain(()))
    run(graph, "y", Domain(()), (x, at()))
    scheduled = schedule(graph, {}, dealloc=True)
    assert [type(c).__name__ for c in scheduled.root.children] == ["Execute", "Execute", "Dealloc", "Dealloc"]
    first, second, free, last = scheduled.root.children
    object.__setattr__(scheduled, "root", Block((first, free, second, last)))
    with pytest.raises(AssertionError, match="is freed"):
        check(scheduled, dealloc=True)
