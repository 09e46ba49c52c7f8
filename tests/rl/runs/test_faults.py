"""The faults of `benchmarks/faults/rl.py`, in small: a killed run that goes on is the run that was never stopped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.faults.rl import RECIPE, Faults
from tempo_rl.rundir import RunDirectory


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Faults, RunDirectory]:
    faults = Faults(tmp_path_factory.mktemp("faults"), RECIPE.replace("24000", "1600"))
    whole = faults.whole()
    assert faults.problems == []
    return faults, whole


@pytest.mark.slow
def test_a_killed_run_that_goes_on_loses_nothing(small: tuple[Faults, RunDirectory]) -> None:
    faults, whole = small
    faults.kills(whole, 1, random.Random(0))
    assert faults.problems == []


def test_places_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    faults.read_only()
    assert faults.problems == []


@pytest.mark.slow
def test_a_full_disk_and_two_runs(small: tuple[Faults, RunDirectory]) -> None:
    faults, whole = small
    faults.two_runs()
    faults.full_disk(whole)
    assert faults.problems == []
