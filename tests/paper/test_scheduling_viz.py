"""fig:scheduling_viz: how y[t] = f(x[t:min(t + 3, T)]) is scheduled: constraints, solver, schedule function, program.

The picture's schedule "delays y's execution by 3 steps": y[t] runs in the iteration after the one that computes its last read, x[t + 2].
Here it runs at the end of that same iteration: it is 2 iterations late, and x needs 3 slots, not 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.schedule import Dealloc, Execute, instances
from tempo_core.symbolic.isl import sets
from tempo_core.symbolic.isl.sets import fixed
from tests.core.running import Case
from tests.core.schedule.checker import check
from tests.paper.running import assert_agree, rows, slots_of

FREED = tp.Config(backend="numpy", disable=("vectorize",))  # an interpreted program has a statement for each deallocation


def build(length: int) -> Case:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.recurrence((2,), domain=(t,), name="x")
        x[0] = rows([0.5, -0.2])
        x[t + 1] = tp.sin(3.0 * x).named("g")
        y = x[t : tp.min(t + 3, T)].max(0).named("y")
    values = [rows([0.5, -0.2])]
    while len(values) < length:
        values.append(np.sin(np.float32(3) * values[-1]))
    return Case(ctx, {T: length}, [y], [rows([np.max(values[k : k + 3], 0) for k in range(length)])])


def coordinates(point: Any) -> tuple[int, ...]:
    return tuple(point.get_coordinate_val(sets.isl.dim_type.set, k).to_python() for k in (0, 1))


def compiled(length: int) -> tp.Program:
    case = build(length)
    return case.context.compile(case.bounds, case.outputs, FREED)


def test_validity_constraints_are_the_dependences():
    """(1) All pairs of instances where the second needs the first, as a relation between points."""
    program = compiled(8)
    pairs = set()
    for reader, source, _, relation in program.scheduled.schedule.constraints.dependences:
        if (reader.node.name, source.node.name) == ("y", "x"):  # one of each branch of x
            fixed(relation, program.bounds).wrap().foreach_point(lambda pair: pairs.add(coordinates(pair)))
    assert pairs == {(t, s) for t in range(8) for s in range(t, min(t + 3, 8))}


def test_the_schedule_function_runs_y_two_iterations_late():
    """(3) Theta as text: a time for each point, compared entry by entry."""
    times = dict(line.split(" -> ") for line in compiled(8).text("schedule").splitlines())
    loop = {name.split("[")[0]: time.strip("[]").split(", ")[1] for name, time in times.items() if "[t]" in name}
    assert loop["x|1"] == "t"
    assert next(time for name, time in loop.items() if name.startswith("y")) == "t + 2"


def test_the_program(golden):
    """(4) The program: the delay of y gives a prologue, a steady state and an epilogue; each x is freed after its last reader."""
    golden("paper/scheduling_viz.txt", compiled(8).text("program", full=True))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9])
def test_the_schedule_is_valid_point_by_point(length):
    """Every instance runs once, after the values that it reads; every slot is kept until its last read, and freed once."""
    check(compiled(length).scheduled, dealloc=True)


def test_the_store_folds_to_the_window():
    for length in (3, 8, 1000):
        case = build(length)
        program = case.context.compile(case.bounds, case.outputs, tp.Config(disable=("vectorize",)))
        assert slots_of(program, "x")[1] == 3


def test_an_x_is_freed_by_its_last_reader():
    """Deallocation is scheduled through the inverse: y[max(t - 2, 0)], ..., y[t] read x[t], which is freed after y[t]."""
    program = compiled(8)
    name = {node.id: node.name for node in program.graph}
    order = [(type(leaf), name[leaf.node], *point) for leaf, point in instances(program.scheduled.root)]
    for t in range(8):
        freed, last_read = order.index((Dealloc, "x", t)), order.index((Execute, "y", t))
        assert last_read < freed
        assert [step for step in order[last_read:freed] if step[0] is Execute] == [(Execute, "y", t)], "no later than that"


def test_values():
    assert_agree(build(8))
