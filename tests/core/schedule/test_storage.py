"""The numbers of slots: never too few (the checker tests it), and not more than the lifetimes of values need."""

import dataclasses

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.schedule import Storage, schedule
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Symbol, maximum, minimum
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import FIVE_STEPS, MONTE_CARLO, ORDER, T, define, i, merge, nested_carry, reinforce, run, t


def stores(scheduled):
    return {scheduled.graph[node].name: storage for (node, output), storage in scheduled.storage.items() if output == 0}


def test_five_step_returns_keep_five_rewards():
    by_name = stores(schedule(reinforce(FIVE_STEPS), {Symbol("I"): 20, Symbol("T"): 200}))
    assert {name: s.slots for name, s in by_name.items() if s.size > 1} == {
        "obs": (1, 5), "act": (1, 5), "step": (1, 5), "grad": (1, 200),
    }  # fmt: skip
    assert by_name["step"].kind == "window"
    assert by_name["grad"].kind == "block"  # read as 0:T
    assert by_name["ret"] == Storage("register", (1, 1))
    assert by_name["params"] == Storage("register", (1,))


def test_monte_carlo_returns_keep_all_rewards():
    by_name = stores(schedule(reinforce(MONTE_CARLO), {Symbol("I"): 20, Symbol("T"): 200}))
    assert by_name["step"] == Storage("block", (1, 200))
    assert by_name["act"] == Storage("window", (1, 200))  # all alive, but read point by point
    assert by_name["ret"].kind == "register"


def test_nested_carry_keeps_one_slot():
    by_name = stores(schedule(nested_carry(), {Symbol("I"): 5, Symbol("E"): 3, Symbol("M"): 4, Symbol("T"): 50}))
    assert by_name["w"] == by_name["update"] == Storage("register", (1, 1, 1))
    assert by_name["x"].kind == "register"
    assert by_name["simulate"] == Storage("block", (1, 50))


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_a_delay_of_n_keeps_n_values(delay):
    """With `x[t] = f(x[t - n])`, x[t] takes the place of x[t - n]."""
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = merge(graph, dt, "x")
    first = run(graph, "first", dt)
    define(
        graph,
        x,
        (first, at(t.expr), t.expr < delay),
        (run(graph, "f", Domain((t,), t.expr >= delay), (x, at(t.expr - delay))), at(t.expr), TRUE),
    )
    scheduled = schedule(graph, {Symbol("T"): 12})
    check(scheduled)
    assert stores(scheduled)["x"].slots == (delay,)


def test_a_window_of_the_past_keeps_its_length():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "mean", dt, (x, (Range(maximum(t.expr - 3, 0), t.expr + 1),)))
    scheduled = schedule(graph, {Symbol("T"): 20})
    check(scheduled)
    assert stores(scheduled)["x"] == Storage("window", (4,))


def test_a_window_as_long_as_the_bound_is_a_block():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "mean", dt, (x, (Range(t.expr, minimum(t.expr + 5, T)),)))
    assert stores(schedule(graph, {Symbol("T"): 3}))["x"] == Storage("block", (3,))


def test_slots_are_counted_along_each_step():
    graph = Graph(ORDER)
    dit = Domain((i, t))
    x = run(graph, "x", dit)
    before = Domain((i, t), i.expr >= 1)
    run(graph, "difference", before, (x, at(i.expr, t.expr)), (x, at(i.expr - 1, t.expr)))
    scheduled = schedule(graph, {Symbol("I"): 6, Symbol("T"): 7})
    check(scheduled)
    assert stores(scheduled)["x"].size <= 14


def test_outputs_of_one_function_are_folded_apart():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt, outputs=2)
    reader = run(graph, "y", dt, (x, None))
    edge = dataclasses.replace(reader.inputs[0], output=1, index=(Range(maximum(t.expr - 2, 0), t.expr + 1),))
    graph.put(dataclasses.replace(reader, inputs=(*reader.inputs, edge)))
    scheduled = schedule(graph, {Symbol("T"): 9})
    check(scheduled)
    assert [scheduled.storage[x.id, output].slots for output in (0, 1)] == [(1,), (3,)]


def test_the_checker_sees_a_store_that_is_too_small():
    scheduled = schedule(reinforce(FIVE_STEPS), {Symbol("I"): 2, Symbol("T"): 9})
    step = next(n.id for n in scheduled.graph if n.name == "step")
    scheduled.storage[step, 0] = Storage("window", (1, 4))
    with pytest.raises(AssertionError, match="its slot holds"):
        check(scheduled)
