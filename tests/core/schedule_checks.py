"""A program runs each point of each statement once."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import islpy as isl

import tempo_core as tp
from tempo_core.schedule import Execute, instances
from tempo_core.schedule.build import chosen_value
from tempo_core.symbolic.sets import fixed

Points = Counter[tuple[int, int | None, tuple[int, ...]]]  # (node, branch, point)
MOST_RUNS = 12  # of a program whose runs choose bounds, so many choices are looked at


def assert_runs_every_point(program: tp.Program[Any]) -> None:
    """The program's tree runs the points of the schedule's statements, each once, whatever bounds a run chooses."""
    scheduled, chosen = program.scheduled, program.graph.chosen
    expected: dict[tuple[int, ...], Points] = {}
    for statement in scheduled.schedule.constraints.statements.values():
        steps, node = statement.node.domain.steps, statement.node
        of_runs = [steps.index(step) for step in chosen if step in steps]
        for point in points_of(fixed(statement.points, scheduled.bounds)):
            run = tuple(point[k] for k in of_runs)
            expected.setdefault(run, Counter())[node.id, statement.branch, point] += 1
    runs = list(itertools.product(*(range(scheduled.bounds[step.bound_symbol]) for step in chosen)))
    for run in runs[:: max(1, len(runs) // MOST_RUNS)][::-1]:
        found: Points = Counter()

        def visit(leaf: Any, point: Any, found: Points = found) -> None:
            if isinstance(leaf, Execute):
                found[leaf.node, leaf.branch, point] += 1

        instances(scheduled.root, visit, dict(zip(map(chosen_value, chosen), run, strict=True)))
        of_run = expected.get(run, Counter())
        assert found == of_run, f"run {run} does not run {of_run - found}, and runs {found - of_run}\n{program.text('program')}"


def points_of(points: isl.Set) -> list[tuple[int, ...]]:
    """The points of a set without parameters."""
    result: list[tuple[int, ...]] = []
    length = points.dim(isl.dim_type.set)

    def add(point: isl.Point) -> None:
        result.append(tuple(point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(length)))

    points.foreach_point(add)
    return result
