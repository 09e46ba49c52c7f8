"""Programs that have no order: the error shows the cycle."""

import dataclasses

import pytest

from tempo_core.errors import BoundsError, CausalityError, NonAffineError
from tempo_core.ir.graph import Edge, Graph
from tempo_core.schedule import schedule
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import FIVE_STEPS, ORDER, T, define, merge, reinforce, run, t

DT = Domain((t,))
LENGTH = {Symbol("T"): 6}


def located(graph, node, where):
    return graph.put(dataclasses.replace(graph[node.id], where=where))


def test_two_tensors_that_need_each_other_at_one_time():
    graph = Graph(ORDER)
    a = merge(graph, DT, "a")
    b = run(graph, "b", DT, (a, None))
    define(graph, a, (b, at(t.expr), TRUE))
    located(graph, a, "user.py:3")
    located(graph, b, "user.py:4")
    with pytest.raises(CausalityError) as error:
        schedule(graph, LENGTH)
    text = str(error.value)
    assert "a[t] reads b[t]   at user.py:3" in text
    assert "b[t] reads a[t]   at user.py:4" in text
    assert error.value.where in ("user.py:3", "user.py:4")
    assert "x[t + 1] = x + 1" in error.value.hint


def test_opposite_delays_that_cancel():
    graph = Graph(ORDER)
    a, b = merge(graph, DT, "a"), merge(graph, DT, "b")
    f, g = run(graph, "f", DT), run(graph, "g", DT)
    define(graph, a, (f, at(t.expr), t.expr + 2 > T), (b, at(t.expr + 1), TRUE))
    define(graph, b, (g, at(t.expr), t.expr == 0), (a, at(t.expr - 1), TRUE))
    with pytest.raises(CausalityError, match=r"a\[t\] reads b\[t \+ 1\]") as error:
        schedule(graph, LENGTH)
    assert "b[t] reads a[t - 1]" in str(error.value)
    assert "for example" in str(error.value)


def test_a_value_that_reads_itself():
    graph = Graph(ORDER)
    a = merge(graph, Domain(()), "a")
    define(graph, a, (a, (), TRUE))
    with pytest.raises(CausalityError, match=r"a\[\] reads a\[\]"):
        schedule(graph, {})


def test_a_cycle_at_small_bounds_alone_does_no_harm_to_larger_ones():
    """a[0] reads b[T - 1], and b[T - 1] reads a[T - 1]: for T = 1, a[0] is a[T - 1]."""
    graph = Graph(ORDER)
    a = merge(graph, DT, "a")
    f = run(graph, "f", DT)
    b = run(graph, "b", Domain(()), (a, at(T - 1)))
    define(graph, a, (b, (), t.expr == 0), (f, at(t.expr), TRUE))
    check(schedule(graph, LENGTH))
    with pytest.raises(CausalityError):
        schedule(graph, {Symbol("T"): 1})


def test_bounds_that_are_not_given_or_too_small():
    with pytest.raises(BoundsError, match="bound T is not given"):
        schedule(reinforce(FIVE_STEPS), {Symbol("I"): 3})
    with pytest.raises(BoundsError, match="bound I is 0"):
        schedule(reinforce(FIVE_STEPS), {Symbol("I"): 0, Symbol("T"): 3})


def test_reads_that_are_not_affine():
    graph = Graph(ORDER)
    x = run(graph, "x", DT)
    reader = run(graph, "y", DT, (x, None))
    graph.put(dataclasses.replace(reader, inputs=(Edge(x.id, at(t.expr * t.expr)),)))
    with pytest.raises(NonAffineError, match="not affine"):
        schedule(graph, LENGTH)
