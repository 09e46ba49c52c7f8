"""Stores hold only the points that are read later: their values against the reference, and the numbers of slots."""

import islpy as isl
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.schedule import Storage, schedule
from tempo_core.schedule.storage import Lasting, _Folding, _stride
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum
from tempo_core.symbolic.isl.sets import CONTEXT
from tests.cases import cells
from tests.core.running import Case, assert_all_same, evaluated
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import ORDER, Graph, i, run, t
from tests.core.schedule.test_storage import stores

SLOTS = {  # a read of q at t, for 23 timesteps: how many slots it takes, that of all other points included
    "block start": (lambda q, t, T: q[t // 5 * 5], 2),
    "block start by modulo": (lambda q, t, T: q[t - t % 5], 2),
    "start of the block before": (lambda q, t, T: q[tp.max(t // 5 * 5 - 5, 0)], 3),
    "starts of all blocks": (lambda q, t, T: q[0 : t + 1 : 5].sum(0), 6),
    "all of the block": (lambda q, t, T: q[t // 4 * 4 : t + 1].sum(0), 4),
    "quotient": (lambda q, t, T: q[t // 5], 6),
    "remainder": (lambda q, t, T: q[tp.min(t, t % 5)], 6),
    "first": (lambda q, t, T: q[0], 2),
    "the first few": (lambda q, t, T: q[0 : tp.min(t + 1, 3)].sum(0), 4),
    "block start and the one before": (lambda q, t, T: q[t // 5 * 5] + q[tp.max(t - 1, 0)], 3),
    "block start and two before": (lambda q, t, T: q[t // 9 * 9] + q[tp.max(t - 2, 0)], 4),
    "block start and some before": (lambda q, t, T: q[t // 9 * 9] + q[tp.max(t - 3, 0) : t + 1].sum(0), 9),
    "first and some before": (lambda q, t, T: q[0] + q[tp.max(t - 1, 0)], 3),
    "two starts of blocks": (lambda q, t, T: q[t // 10 * 10] + q[t // 5 * 5], 3),
    "three kinds": (lambda q, t, T: q[t // 10 * 10] + q[t // 5 * 5] + q[tp.max(t - 1, 0)], 4),
}


@pytest.mark.parametrize("staged", [True, False], ids=["staged", "interpreted"])
def test_a_network_that_learns_with_its_target(staged):
    """A recurrence that reads itself at the start of a block, as a target network, keeps that point and the newest one."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        q = tp.recurrence((3,), "float32", domain=(i,), name="q")
        q[0] = tp.arange(3).astype("float32")
        q[i + 1] = q * 0.9 + tp.tanh(q[i // 10 * 10]) * 0.1 + i * 0.01
        case = Case(ctx, {I: 37}, [q[I - 1]], [])
        program = ctx.compile(case.bounds, outputs=case.outputs, config=tp.Config(backend="jax" if staged else "numpy"))
    assert_all_same(program.run(), evaluated(case))
    assert {tensor.name: tensor.slots for tensor in program.plan().tensors}["q"] == (2,)


@pytest.mark.parametrize(("name", "staged"), cells(SLOTS, [True, False]))
def test_values_and_slots(name, staged):
    read, slots = SLOTS[name]
    ctx = tp.Context("t")
    with ctx as ((s, S),):
        q = tp.recurrence((), "float32", domain=(s,), name="q")
        q[0] = tp.full((), 1.0)
        q[s + 1] = tp.tanh(q * 0.5 + s * 0.1)
        y = tp.recurrence((), "float32", domain=(s,), name="y")
        y[0] = tp.full((), 0.0)
        y[s + 1] = tp.sin(y + q + read(q, s, S))
        case = Case(ctx, {S: 23}, [y[0:S]], [])
        program = ctx.compile(case.bounds, outputs=case.outputs, config=tp.Config(backend="jax" if staged else "numpy"))
    assert_all_same(program.run(), evaluated(case))
    assert {tensor.name: tensor.slots for tensor in program.plan().tensors}["q"] == (slots,)
    row = next(line.split() for line in program.text("memory").splitlines() if line.split()[:1] == ["q"])
    assert row[3] == str(slots)


def test_along_one_of_two_steps():
    """Along the first step all points last, along the second every third point."""
    graph = Graph(ORDER)
    dit = Domain((i, t))
    x = run(graph, "x", dit)
    later = Domain((i, t), i.expr >= 1)
    run(graph, "y", later, (x, at(i.expr - 1, t.expr // 3 * 3)), (x, at(i.expr, t.expr)))
    scheduled = schedule(graph, {Symbol("I"): 4, Symbol("T"): 12})
    check(scheduled)
    (storage,) = [s for name, s in stores(scheduled).items() if name == "x"]
    assert storage.size < 12
    assert storage.lasting[1] == Lasting(0, 9, 3)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_nothing_that_is_read_later_is_overwritten(every, length):
    graph = Graph(ORDER)
    dt = Domain((t,))
    x = run(graph, "x", dt)
    start = t.expr // every * every
    run(graph, "y", dt, (x, at(start)), (x, at(maximum(start - every, 0))), (x, (Range(Expr.of(0), start + 1, every),)))
    run(graph, "z", dt, (x, at(t.expr)), (x, at(t.expr // 2)))
    scheduled = schedule(graph, {Symbol("T"): length})
    check(scheduled)
    assert stores(scheduled)["x"].size <= length


def test_the_slot_of_a_point():
    storage = Storage("window", (3,), (Lasting(4, 12, 4),))  # 4 and 12 in slot 0, 8 in slot 1, all others in slot 2
    assert [storage.slot(0, p) for p in range(18)] == [2, 2, 2, 2, 0, 2, 2, 2, 1, 2, 2, 2, 0, 2, 2, 2, 2, 2]
    others = Storage("window", (5,), (Lasting(0, 12, 4, 3),))  # 0, 4, 8 and 12 in the first two
    assert [others.slot(0, p) for p in range(13)] == [0, 3, 4, 2, 1, 4, 2, 3, 0, 2, 3, 4, 1]
    follow_each_other = Storage("window", (3,), (Lasting(2, 4, 1),))  # 2 and 4 in slot 0, 3 in slot 1
    assert [follow_each_other.slot(0, p) for p in range(6)] == [2, 2, 0, 1, 0, 2]
    assert [Storage("window", (3,)).slot(0, p) for p in range(5)] == [0, 1, 2, 0, 1]


def test_points_are_counted_alone_where_that_takes_fewer_slots():
    """Of every second one of twelve points, read later: one slot for two of them (three for five), and one for all others."""
    evens, first = (Range(Expr.of(0), t.expr + 1, 2),), at(0)
    for index, lasting, saves in [(evens, Lasting(0, 10, 2), range(4, 13)), (first, Lasting(0, 0, 1), range(3, 13))]:
        graph = Graph(ORDER)
        x = run(graph, "x", Domain((t,)))
        run(graph, "y", Domain((t,)), (x, index))
        scheduled = schedule(graph, {Symbol("T"): 12})
        folding = _Folding(scheduled.schedule, scheduled.bounds)
        for slots in range(2, 13):
            choices = [((lasting,), False)] if slots in saves else []
            assert list(folding._lasting(folding.reads[x.id, 0], (slots,))) == choices, slots


def choices(*indices, reads_at=None, slots=12):
    """The choices of points that last, for an `x` of twelve points that `y` reads at these indices."""
    graph = Graph(ORDER)
    x = run(graph, "x", Domain((t,)))
    run(graph, "y", reads_at or Domain((t,)), *((x, index) for index in indices))
    scheduled = schedule(graph, {Symbol("T"): 12})
    folding = _Folding(scheduled.schedule, scheduled.bounds)
    return list(folding._lasting(folding.reads[x.id, 0], (slots,)))


def test_some_reads_are_late_and_others_soon():
    """Read at once, and at every third and fourth point later: both late, or one of them, where the others are of points."""
    soon, third, fourth = at(t.expr), at(t.expr // 3 * 3), at(t.expr // 4 * 4)
    both, thirds, fourths = Lasting(0, 9, 1), Lasting(0, 9, 3), Lasting(0, 8, 4)
    assert choices(soon, third, fourth) == [((both,), True), ((thirds,), True), ((fourths,), True)]
    assert choices(soon, fourth) == [((fourths,), True)]
    window = (Range(maximum(t.expr - 2, 0), t.expr + 1),)
    assert choices(window, fourth) == []
    late = (Range(Expr.of(0), t.expr + 1, 4),)
    assert choices(soon, late) == [((fourths,), True)]
    assert choices(soon, third, late) == [((both,), True), ((fourths,), True)]


def test_reads_of_no_points_leave_no_choice():
    assert choices(at(t.expr // 4 * 4), reads_at=Domain((t,), t.expr >= 20)) == []


@pytest.mark.parametrize(("lasting", "count"), [((4, 12, 4), 3), ((4, 11, 4), 2), ((3, 3, 1), 1), ((0, 6, 1), 7)])
def test_how_many_points_last(lasting, count):
    assert Lasting(*lasting).count == count == len(range(lasting[0], lasting[1] + 1, lasting[2]))


def test_points_of_two_steps_that_last_together() -> None:
    """Of the points with an even `b + t`, each row of b keeps other points of t: along t they have no stride."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x = tp.input("x", (2,), domain=(b, t))
        y = tp.exp(x[b, 0 : t + 1].sum(0))
        case = Case(
            ctx, {B: 2, T: 4}, [y[b, t, b % 2 == t % 2]], [], {"x": np.arange(16, dtype="float32").reshape(2, 4, 2) * 0.1}
        )
        config = tp.Config(backend="numpy", disable=("vectorize", "simplify"))
        results = ctx.run(case.bounds, case.outputs, case.inputs, config)
    assert_all_same(results, evaluated(case))


def test_the_stride_along_a_step_is_that_of_all_points() -> None:
    points = isl.Set("{ [b, t] : 0 <= b < 2 and 0 <= t < 6 and (b + t) mod 2 = 0 }", CONTEXT)
    assert [_stride(points, k) for k in (0, 1)] == [1, 1]
    each = isl.Set("{ [b, i, t] : 0 <= b, i, t < 20 and b mod 2 = 0 and i mod 5 = 2 and t mod 3 = 1 }", CONTEXT)
    assert [_stride(each, k) for k in (0, 1, 2)] == [2, 5, 3]
