"""The numbers of slots: never too few (the checker tests it), and not more than the lifetimes of values need."""

import dataclasses
from types import SimpleNamespace

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Input
from tempo_core.schedule import Storage, schedule
from tempo_core.schedule.storage import _Folding, _in_order, _shared_depth, fold
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tests.core.schedule.checker import at, check, local_reads
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


@pytest.mark.parametrize(("last", "slots"), [(9, 3), (4, 3), (3, 10)])
def test_a_padded_range_makes_room_only_where_every_point_has_a_slot(last, slots):
    """A range of three points, padded to eight. Of x[0:10], three points are alive at a time; of x[0:3], all: then room is cheap."""
    graph = Graph(ORDER)
    dt = Domain((t,), t.expr <= last - 1)
    x = run(graph, "x", dt)
    run(graph, "mean", dt, (x, (Range(maximum(t.expr - 2, 0), t.expr + 1, size=Expr.of(8)),)))
    scheduled = schedule(graph, {Symbol("T"): 10})
    assert stores(scheduled)["x"].slots == (slots,)


def test_some_stores_alone():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "y", dt, (x, (Range(Expr.of(0), t.expr + 1),)))
    scheduled = schedule(graph, {Symbol("T"): 10})
    only = (x.id, 0)
    assert fold(scheduled.schedule, scheduled.bounds, {only}) == {only: scheduled.storage[only]}


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


def test_the_order_of_steps_in_which_a_store_is_folded_is_the_one_that_saves_most():
    """Values that are read at (i + 1, t - 1) meet none of the row before at their own t: t apart, they need one row."""
    graph = Graph(ORDER)
    dit = Domain((i, t))
    x = run(graph, "x", dit)
    later = Domain((i, t), (i.expr >= 1) & (t.expr + 1 < T))
    run(graph, "difference", later, (x, at(i.expr - 1, t.expr + 1)))
    scheduled = schedule(graph, {Symbol("I"): 6, Symbol("T"): 7})
    check(scheduled)
    assert stores(scheduled)["x"].slots == (1, 7)


def test_a_block_holds_all_points_of_a_step_that_is_read_by_ranges():
    """Of at least two points: a step of one point is no reason."""
    graph = Graph(ORDER)
    dit = Domain((i, t))
    x = run(graph, "x", dit)
    row = Range(Expr.of(0), T)
    run(graph, "change", Domain((i,), i.expr >= 1), (x, (*at(i.expr - 1), row)), (x, (*at(i.expr), row)))
    storage = {n: stores(schedule(graph, {Symbol("I"): 5, Symbol("T"): n}))["x"] for n in (1, 2)}
    assert storage[1].kind == "window" and storage[1].size == 2
    assert storage[2].kind == "block" and storage[2].slots[1] == 2


def test_only_what_a_statement_computes_is_stored():
    """Inputs and constants are there before; what never exists needs no place."""
    graph = Graph(ORDER)
    x = graph.add(Input("x", "float32", ()), domain=Domain((t,)))
    y = run(graph, "y", Domain((t,), t.expr >= T), (x, None))
    z = run(graph, "z", Domain((t,)), (y, (Range(t.expr + 1, T),)), (x, at(T - 1 - t.expr)))
    scheduled = schedule(graph, {Symbol("T"): 4})
    assert scheduled.storage == {(n.id, 0): Storage("register", (1,)) for n in (y, z)}


def test_what_is_read_nowhere_keeps_one_slot():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    run(graph, "y", dt, (x, (Range(t.expr + 1, t.expr + 1),)))
    assert stores(schedule(graph, {Symbol("T"): 4}))["x"] == Storage("register", (1,))


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


def test_branches_of_one_point_each_are_not_taken_for_one_iteration():
    """They are computed outside of loops, where nothing says that the one that is read is the last."""
    graph = Graph(ORDER)
    x = merge(graph, Domain((t,), 1 - t.expr >= 0), "x")
    first, second = run(graph, "first", Domain(())), run(graph, "second", Domain(()))
    define(graph, x, (first, (), t.expr == 0), (second, (), TRUE))
    run(graph, "y", Domain((t,), t.expr == 0), (x, None), (x, at(Expr.of(1))))
    scheduled = schedule(graph, {Symbol("T"): 3})
    check(scheduled)
    assert {graph[read.edge.source].name for read in local_reads(scheduled)} == {"first", "second"}
    assert stores(scheduled)["x"].slots == (2,)


@pytest.mark.parametrize(
    ("graph", "bounds", "local"),
    [
        (
            reinforce(FIVE_STEPS),
            {"I": 3, "T": 4},
            "params <- init, obs <- reset, act <- params, step <- act, grad <- ret, grad <- params, opt <- gsum, opt <- params, out <- opt",
        ),
        (nested_carry(), {"I": 5, "E": 3, "M": 4, "T": 50}, "w <- init, x <- init, simulate <- x, update <- batch"),
    ],
    ids=["reinforce", "nested carry"],
)
def test_reads_in_the_iteration_that_computes_the_value_are_seen_to_be(graph, bounds, local):
    """Their lifetimes need not be computed, which is most of what folding costs."""
    scheduled = schedule(graph, {Symbol(name): size for name, size in bounds.items()})
    assert ", ".join(f"{r.reader.node.name} <- {graph[r.edge.source].name}" for r in local_reads(scheduled)) == local


LOOP = t.expr  # an entry of a time


def order(number, *, bounds=0):
    return bounds * t.bound_expr + number


@pytest.mark.parametrize(
    ("writer", "reader", "depth"),
    [
        ((LOOP, order(0)), (LOOP, order(1)), 1),
        ((order(0, bounds=1), LOOP), (order(1, bounds=1), LOOP), None),  # a loop of its own after the order
        ((order(0, bounds=1), order(0)), (order(1, bounds=1), order(0)), 0),
        ((LOOP, order(1)), (LOOP, order(0)), None),  # the reader first
        ((LOOP, order(0)), (LOOP, order(0)), None),  # at once
        ((LOOP, order(0)), (LOOP, order(1, bounds=1)), None),  # the order depends on a bound
        ((order(0), order(0)), (LOOP + 1, order(0)), None),  # the reader in a loop
        (None, (LOOP, order(1)), None),  # times that are no such entries
        ((LOOP, order(0)), None, None),
    ],
)
def test_the_entry_in_which_two_times_are_ordered(writer, reader, depth):
    assert _shared_depth(writer, reader) == depth


def test_statements_that_share_different_loops_with_the_reader_are_not_local():
    scheduled = schedule(nested_carry(), {Symbol("I"): 2, Symbol("E"): 2, Symbol("M"): 2, Symbol("T"): 3})
    folding = _Folding(scheduled.schedule, scheduled.bounds)
    (read,) = (r for r in local_reads(scheduled) if r.reader.node.name == "simulate")
    rows = {name: (*times, Expr.of(0)) for name, times in scheduled.schedule.rows.items()}
    folding.schedule = SimpleNamespace(rows=rows)
    *_, last = folding.constraints.of_node[read.edge.source]
    *entries, _ = rows[read.reader.name]
    rows[last.name] = (*entries, order(0))  # the last branch and the reader: one more entry in common
    rows[read.reader.name] = (*entries, order(1))
    assert not folding._is_local(read)


def test_the_checker_sees_a_store_that_is_too_small():
    scheduled = schedule(reinforce(FIVE_STEPS), {Symbol("I"): 2, Symbol("T"): 9})
    step = next(n.id for n in scheduled.graph if n.name == "step")
    scheduled.storage[step, 0] = Storage("window", (1, 4))
    with pytest.raises(AssertionError, match="its slot holds"):
        check(scheduled)


# -- values that share their storage -----------------------------------------------------------------------------------


def delays(*lengths):
    """The storage of recurrences `x[t] = f(x[t - n])`, before it is folded, and the numbers of their nodes."""
    graph, dt, nodes = Graph(ORDER), Domain((t,)), []
    for k, n in enumerate(lengths):
        x = merge(graph, dt, f"x{k}")
        later = run(graph, f"f{k}", Domain((t,), t.expr >= n), (x, at(t.expr - n)))
        define(graph, x, (run(graph, f"first{k}", dt), at(t.expr), t.expr < n), (later, at(t.expr), TRUE))
        nodes.append(x.id)
    bounds = {Symbol("T"): 12}
    return _Folding(schedule(graph, bounds).schedule, bounds), nodes


def patterns(folding, nodes):
    return [folding._pattern(node, folding.reads[node, 0]) for node in nodes]


def test_values_with_the_same_reads_share_their_storage():
    folding, nodes = delays(2, 2, 5)
    first, same, longer = patterns(folding, nodes)
    assert first == same != longer
    assert [folding.run()[node, 0].slots for node in nodes] == [(2,), (2,), (5,)]


def test_pieces_of_statements_share_no_storage():
    """The points of a piece are not those of its domain and conditions."""
    folding, nodes = delays(2, 2)
    for node in nodes:
        object.__setattr__(folding.constraints.of_node[node][0], "is_piece", True)
    first, second = patterns(folding, nodes)
    assert first != second


def test_values_at_times_that_are_not_affine_share_no_storage():
    folding, nodes = delays(2, 2)
    for node in nodes:
        folding.schedule.rows[folding.constraints.of_node[node][0].name] = None
    first, second = patterns(folding, nodes)
    assert first != second


def test_constants_in_times_count_by_their_order():
    """Up to the first entry in which two times are different constants. What varies is compared as it is."""
    T, number = t.bound_expr, Expr.of
    times = {
        "a": (number(5), t.expr + 2, number(9)),
        "b": (number(5), t.expr + 4, number(4)),
        "c": (number(8), T + 7, number(1)),
    }
    assert _in_order(times) == {
        "a": (number(0), t.expr + 2, number(1)),
        "b": (number(0), t.expr + 4, number(0)),
        "c": (number(1), T + 7, number(0)),
    }
