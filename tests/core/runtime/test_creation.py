"""Stores that begin in a launch: no XLA program of its own makes their zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.runtime.staged.host import Segment
from tests.core.runtime.test_launches import rollouts


def table(size: int, disable: tuple[str, ...] = ()) -> tp.Program[list[Any]]:
    """A table, whose rows a loop keeps: most of its points are written under conditions."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        cost = tp.input("cost", (), domain=(i, j))
        best = tp.recurrence((), domain=(i, j), name="best")
        best[0, 0] = cost[0, 0]
        best[0, j] = best[0, j - 1] + cost[0, j]
        best[i, 0] = best[i - 1, 0] + cost[i, 0]
        best[i, j] = tp.minimum(best[i - 1, j], best[i, j - 1]) + cost
        return ctx.compile({I: size, J: size}, [best, best[I - 1, J - 1]], tp.Config(disable=("wavefront", *disable)))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_single_launch_creates_its_stores(size: int) -> None:
    cost = np.random.default_rng(0).normal(size=(size, size)).astype("float32")
    program, before = table(size), table(size, ("create",))
    assert program._staged is not None and before._staged is not None
    assert program._staged.new_stores() == {}
    assert set(before._staged.new_stores()) == {key for segment in program._staged.segments for key in segment.creates}
    for _ in range(2):
        for result, expected in zip(program.run({"cost": cost}), before.run({"cost": cost}), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_launches_in_loops_create_no_stores() -> None:
    _, program = rollouts()
    staged = program._staged
    assert staged is not None
    created = [key for segment in staged.segments for key in segment.creates]
    assert created and len(set(created)) == len(created)
    for segment in staged.segments:
        assert not (segment.creates and segment.counters)
        assert not segment.creates & staged.kept.keys()
    first = next(item for item in staged.items if isinstance(item, Segment))
    assert first.creates
    later = {key for segment in staged.segments if segment is not first for key in (*segment.writes, *segment.reads)}
    assert first.creates <= {*first.writes} | ({*first.reads} - later)
    assert not staged.new_stores().keys() & set(created)
