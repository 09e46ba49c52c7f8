"""The programs of well-known recurrences: the statements of each loop, and a check point by point."""

from collections.abc import Mapping

import islpy as isl
import pytest

import tempo_core.schedule
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Input, Output
from tempo_core.schedule import Block, Execute, If, Loop, counter, leaves, schedule, walk
from tempo_core.schedule.build import _by_place
from tempo_core.schedule.constraints import Constraints, constraints_of
from tempo_core.schedule.polyhedral import Schedule, compute
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import (
    FIVE_STEPS,
    MONTE_CARLO,
    ORDER,
    T,
    define,
    i,
    merge,
    nested_carry,
    reinforce,
    run,
    t,
)


def bounds(**values):
    return {Symbol(name): value for name, value in values.items()}


SMALL = [bounds(I=1, T=1), bounds(I=1, T=2), bounds(I=2, T=1), bounds(I=3, T=4), bounds(I=2, T=5), bounds(I=3, T=9)]


def loops(scheduled):
    """Each loop's counter, limits, and the names that run in it directly or under a condition."""
    loops_of_tree = []
    for item in walk(scheduled.root):
        if isinstance(item, Loop):
            inner = {id(leaf) for loop in walk(item.body) if isinstance(loop, Loop) for leaf in leaves(loop)}
            names = {scheduled.graph[leaf.node].name for leaf in leaves(item) if id(leaf) not in inner}
            loops_of_tree.append((item.counter.name, str(item.start), str(item.stop), names))
    return loops_of_tree


def guarded(scheduled):
    """The names of nodes other than merges that run under a condition."""
    return {
        scheduled.graph[leaf.node].name
        for item in walk(scheduled.root)
        if isinstance(item, If)
        for leaf in leaves(item)
        if isinstance(leaf, Execute) and leaf.branch is None
    }


def test_monte_carlo_simulates_and_then_learns_in_a_loop_of_its_own():
    scheduled = schedule(reinforce(MONTE_CARLO), bounds(I=20, T=200))
    inner = [(start, stop, names) for counter, start, stop, names in loops(scheduled) if counter == "t"]
    assert inner[0] == ("0", "200", {"obs", "act", "step"})
    assert inner[1:] == [("0", "200", {"ret", "grad"})]
    assert guarded(scheduled) == set()


def test_five_step_returns_are_learned_in_the_simulation_loop_four_steps_late():
    scheduled = schedule(reinforce(FIVE_STEPS), bounds(I=20, T=200))
    inner = [(start, stop, names) for counter, start, stop, names in loops(scheduled) if counter == "t"]
    assert inner == [
        ("0", "4", {"obs", "act", "step"}),
        ("4", "200", {"obs", "act", "step", "ret", "grad"}),
        ("196", "200", {"ret", "grad"}),
    ]
    assert "ret[i, t - 4]" in scheduled.text()
    assert guarded(scheduled) == set()


@pytest.mark.parametrize("name, window", [("monte_carlo", MONTE_CARLO), ("five_steps", FIVE_STEPS)])
def test_texts_of_reinforce(name, window, golden):
    golden(f"schedule/reinforce_{name}.txt", schedule(reinforce(window), bounds(I=20, T=200)).text())


@pytest.mark.parametrize("values", SMALL, ids=str)
@pytest.mark.parametrize("window", [MONTE_CARLO, FIVE_STEPS], ids=["monte carlo", "five steps"])
@pytest.mark.parametrize("dealloc", [False, True], ids=["", "dealloc"])
def test_reinforce_runs_every_point_in_order(window, values, dealloc):
    check(schedule(reinforce(window), values, dealloc), dealloc=dealloc)


@pytest.mark.parametrize("dealloc", [False, True], ids=["", "dealloc"])
@pytest.mark.parametrize("values", [bounds(I=1, E=1, M=1, T=1), bounds(I=3, E=2, M=3, T=4), bounds(I=2, E=1, M=4, T=2)], ids=str)
def test_nested_carry_runs_every_point_in_order(values, dealloc):
    check(schedule(nested_carry(), values, dealloc), dealloc=dealloc)


def test_nested_carry_loops_over_iterations_epochs_and_minibatches():
    scheduled = schedule(nested_carry(), bounds(I=5, E=3, M=4, T=50))
    assert [counter for counter, *_ in loops(scheduled)] == ["i", "t", "e", "m"]
    assert guarded(scheduled) == set()


def suffix():
    """a[T - 1] = last; a[t] = f(a[t + 1])."""
    graph = Graph(ORDER)
    dt = Domain((t,))
    a = merge(graph, dt, "a")
    last = run(graph, "last", Domain(()))
    body = run(graph, "f", Domain((t,), t.expr + 1 < T), (a, at(t.expr + 1)))
    define(graph, a, (last, (), t.expr + 1 == T), (body, at(t.expr), TRUE))
    graph.add(Output(0), [Edge(a.id, at(0))], domain=Domain(()), name="out")
    return graph


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_recurrence_on_the_future_runs_backwards(length):
    scheduled = schedule(suffix(), bounds(T=length), dealloc=True)
    check(scheduled, dealloc=True)
    assert scheduled.storage[0, 0].slots == (1,)


@pytest.mark.parametrize("length", [1, 2, 6])
def test_prefix_reads_need_a_block_and_one_loop(length):
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    y = run(graph, "y", dt, (x, (Range(Expr.of(0), t.expr + 1),)))
    graph.add(Output(0), [Edge(y.id, at(t.expr))], domain=dt, name="out")
    scheduled = schedule(graph, bounds(T=length), dealloc=True)
    check(scheduled, dealloc=True)
    if length > 1:
        assert [(counter, names) for counter, _, _, names in loops(scheduled)] == [("t", {"x", "y", "out"})]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_two_tensors_that_read_each_other_run_in_one_loop(length):
    graph = Graph(ORDER)
    dt = Domain((t,))
    a, b = merge(graph, dt, "a"), merge(graph, dt, "b")
    first = run(graph, "first", Domain(()))
    f, g = run(graph, "f", dt, (a, None), (b, None)), run(graph, "g", dt, (a, None))
    define(graph, a, (first, (), t.expr == 0), (g, at(t.expr - 1), TRUE))
    define(graph, b, (first, (), t.expr == 0), (f, at(t.expr - 1), TRUE))
    scheduled = schedule(graph, bounds(T=length), dealloc=True)
    check(scheduled, dealloc=True)
    assert {s.slots for (n, _), s in scheduled.storage.items() if graph[n].domain.steps} == {(1,)}


def test_stateful_functions_run_in_the_order_of_their_points():
    graph = Graph(ORDER)
    dit = Domain((i, t))
    x = run(graph, "env", dit, stateful=True)
    run(graph, "late", dit, (x, at(i.expr, T - 1 - t.expr)), stateful=True)
    for values in SMALL:
        check(schedule(graph, values))


def test_inputs_are_always_there():
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = graph.add(Input("x", "float32", ()), domain=dt, name="x")
    graph.add(Output(0), [Edge(x.id, at(t.expr))], domain=dt, name="out")
    scheduled = schedule(graph, bounds(T=3))
    check(scheduled)
    assert scheduled.text() == "for t in 0:3:\n  output out[t]"
    assert (x.id, 0) not in scheduled.storage


def test_a_condition_on_the_domain_stays_a_condition_where_a_loop_cannot_be_cut():
    graph = Graph(ORDER)
    every = run(graph, "every", Domain((i,)))
    run(graph, "fifth", Domain((i,), (i.expr + 1) % 5 == 0), (every, at(i.expr)))
    scheduled = schedule(graph, bounds(I=12))
    check(scheduled)
    assert len(loops(scheduled)) == 1


def test_the_schedule_is_readable():
    graph = Graph(ORDER)
    x = run(graph, "x", Domain((i, t)))
    run(graph, "y", Domain((i,)), (x, (*at(i.expr), Range(Expr.of(0), T))))
    lines = schedule(graph, bounds(I=2, T=3)).schedule.text().splitlines()
    assert [line.split(" -> ")[0] for line in lines] == ["x[i, t]", "y[i]"]
    assert lines[0].split(" -> ")[1].startswith("[i, 0, t")


def test_empty_graph():
    assert schedule(Graph(ORDER), {}).text() == ""


def test_a_program_in_another_order_than_that_of_its_times_is_noticed() -> None:
    graph = Graph(ORDER)
    first = run(graph, "first", Domain((t,)))
    second = run(graph, "second", Domain((t,)), (first, None))
    constraints = constraints_of(graph)
    names = {s.node.id: name for name, s in constraints.statements.items()}
    maps = {first.id: "[T] -> {{ {}[t] -> [5t] }}", second.id: "[T] -> {{ {}[t] -> [t + 20] }}"}
    theta = {names[node]: isl.Map.read_from_str(CONTEXT, text.format(names[node])) for node, text in maps.items()}
    times = Schedule(constraints, theta, 1)
    loops = [
        Loop(counter("c"), Expr.of(0), Expr.of(4), 1, Block((Execute(node.id, None, (counter("c").expr,)),)))
        for node in (first, second)
    ]
    four = {t.bound_symbol: 4}
    assert not times.loses_order(Block(tuple(loops)), four)
    assert times.loses_order(Block(tuple(reversed(loops))), four)
    without = {**theta, names[first.id]: isl.Map.read_from_str(CONTEXT, f"[T] -> {{ {names[first.id]}[t] -> [t] }}")}
    assert not Schedule(constraints, without, 1).loses_order(Block(tuple(reversed(loops))), four)  # isl is right about these


def test_a_program_that_isl_builds_in_another_order_is_scheduled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = reinforce(FIVE_STEPS)
    wanted: list[bool] = []

    def scheduled(constraints: Constraints, bounds: Mapping[Symbol, int], strided: bool = True) -> Schedule:
        wanted.append(strided)
        return compute(constraints, bounds, strided)

    monkeypatch.setattr(tempo_core.schedule, "compute", scheduled)
    monkeypatch.setattr(Schedule, "loses_order", lambda *_: wanted[-1])
    schedule(graph, {Symbol("I"): 2, Symbol("T"): 6})
    assert wanted == [True, False]


def test_times_whose_numbers_depend_on_the_point_are_split_by_them_and_make_no_loop() -> None:
    """isl's own time for a program grows with the square of what one loop seems to hold: 651 statements took minutes."""
    first, second = (
        isl.Map(f"{{ {name}[a, i] -> [{at}, a, i] : 0 <= a <= 1 and 0 <= i <= 4 }}") for name, at in (("f", 3), ("s", 4))
    )
    freed = isl.Map("{ d[a, i] -> [3 + a, a, i] : 0 <= a <= 1 and 0 <= i <= 4 }")
    parts = _by_place({"s": second, "d": freed, "f": first}, 0)
    assert parts is not None
    assert [sorted(part) for part in parts] == [["d", "f"], ["d", "s"]]
    assert parts[0]["d"].union(parts[1]["d"]).is_equal(freed)
    assert parts[0]["d"].intersect(parts[1]["d"]).is_empty()
    assert _by_place({"d": freed, "f": first}, 0) is None  # nothing else is at 4
    assert (
        _by_place({"x": freed.set_tuple_name(isl.dim_type.in_, "x"), "s": second, "f": first}, 0) is None
    )  # a loop over 3 and 4
    assert _by_place({"d": freed, "f": first}, 1) is None
