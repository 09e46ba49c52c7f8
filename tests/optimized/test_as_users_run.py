"""Each program of the set runs with XLA's defaults, within ten times the CPU seconds that are recorded, and gives the recorded results.

`pytest -m optimized -n auto tests/optimized` runs the set; `python -m tests.optimized --update [NAME]` records.
"""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.ledger.programs import PROGRAMS as LEDGER
from tests.optimized import watch
from tests.optimized.programs import PROGRAMS, RECIPES
from tests.optimized.watch import Failure, bound, differences, recorded, run

processes = [pytest.mark.optimized, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=processes) for name in PROGRAMS])
def test_each_program_as_users_run_it(name: str) -> None:
    package = PROGRAMS[name].needs
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install -e '.[{package}]'")
    figures = recorded()
    how_to_record = f"python -m tests.optimized --update '{name}'"
    try:
        outcome = run(name, bound(name, watch.jax_version(), figures))
    except Failure as error:
        error.add_note(f"CPU seconds on record: {figures.get(name, {}).get('cpu_seconds', 'none')}")
        raise
    assert outcome.xla_flags is None, "the set is about XLA's defaults"
    if name in figures:
        different = differences(outcome.results, figures[name]["results"])
        assert not different, "\n  ".join([name, *different, f"if this is right: {how_to_record}"])


# -- the set, and what it notices ---------------------------------------------------------------------------------------


def test_the_set_is_complete() -> None:
    """Every recipe, the commands, ten classics, all programs of the ledger; each with a figure, unless it needs more packages."""
    assert {name.removeprefix("recipe ") for name in PROGRAMS if name.startswith("recipe ")} == set(RECIPES)
    assert {name.removeprefix("ledger ") for name in PROGRAMS if name.startswith("ledger ")} == set(LEDGER)
    assert sum(name.startswith("classic ") for name in PROGRAMS) == 10
    assert {"generate", "chat", "README's example"} <= set(PROGRAMS)
    assert set(recorded()) >= {name for name, program in PROGRAMS.items() if program.needs is None}
    assert set(recorded()) <= set(PROGRAMS)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param("never ends", "never ends: ended at its bound, 0.5 CPU seconds", marks=processes),
        pytest.param("complains", "complains: XLA complains\nE0000 .* circular simplification", marks=processes),
        pytest.param("not finite", r"not finite: exit code 1[^$]*not finite: \['x'\]", marks=processes),
    ],
)
def test_each_fault_fails_by_its_name(fault: str, text: str) -> None:
    with pytest.raises(Failure, match=text):
        run(fault, 0.5)


def test_bounds() -> None:
    figures = {"a": {"cpu_seconds": {"0.10": 7.0, "0.12": 9.0}}, "b": {"cpu_seconds": {"0.10": 0.3}}}
    assert bound("a", "0.10", figures) == 70.0
    assert bound("a", "0.13", figures) == 90.0  # a version without figures
    assert bound("b", "0.10", figures) == 10.0  # at least ten seconds
    assert bound("c", "0.10", figures) == 90.0  # a program without figures
    assert bound("c", "0.10", {}) == 10.0


@pytest.mark.parametrize(
    ("now", "lines"),
    [
        ({"loss": 1.01, "text": "42."}, []),
        ({"loss": 1.03, "text": "42."}, ["loss: 1.03 instead of 1.0"]),
        ({"loss": 1.0, "text": "43."}, ["text: '43.' instead of '42.'"]),
        ({"loss": 1.0}, ["text: missing or new"]),
        ({"loss": float("nan"), "text": "42."}, ["loss: nan instead of 1.0"]),
    ],
)
def test_each_difference(now: dict[str, float | str], lines: list[str]) -> None:
    assert differences(now, {"loss": 1.0, "text": "42."}) == lines


def test_what_counts_as_a_complaint() -> None:
    lines = {
        "W0000 00:00:1 2 spmd.cc:1] something": True,
        "2026-11-25 01:00:00: E external/xla/x.cc:1] Algebraic simplifier is likely stuck in a circular simplification loop": True,
        "E0000 00:00:1 2 slow_operation_alarm.cc:1] The operation took 2m": False,  # a clock, on a busy machine
        "I0000 00:00:1 2 cpu.cc:1] created": False,
        "a line of a program": False,
    }
    for line, counts in lines.items():
        assert bool(watch.complaints(f"before\n{line}\nafter")) is counts, line
