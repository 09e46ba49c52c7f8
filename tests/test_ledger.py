"""The ledger of fifteen programs: a figure that rises fails, with the command that shows why."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

import tempo_core as tp
from benchmarks.ledger import figures
from benchmarks.ledger.programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
RECORDED = figures.recorded()


@functools.cache
def program(name: str) -> tp.Program[Any]:
    return PROGRAMS[name]()


def check(name: str, higher: list[str]) -> None:
    lines = "\n  ".join(higher)
    assert not higher, (
        f"{name}:\n  {lines}\n\nwhy:                     python -m benchmarks.ledger --show '{name}'\n"
        f"if it is worth its price: python -m benchmarks.ledger --update '{name}'"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_statements_launches_and_moved_bytes(name: str) -> None:
    check(name, figures.risen(RECORDED[name]["exact"], figures.exact(program(name))))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the ledger has the operations of XLA on a CPU")
@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_of_xla(name: str) -> None:
    of_version = RECORDED[name]["hlo"].get(figures.jax_version())
    if of_version is None:
        pytest.skip(f"no HLO operations for JAX {figures.jax_version()}; python -m benchmarks.ledger --update records them")
    check(name, figures.risen(of_version, figures.compiled(program(name)), figures.SLACK))


def test_the_record_has_all_programs() -> None:
    assert set(RECORDED) == set(PROGRAMS) and len(PROGRAMS) == 15


@pytest.mark.parametrize(
    ("before", "now", "slack", "higher"),
    [
        ({"n": 5}, {"n": 5}, 0.0, []),
        ({"n": 5}, {"n": 4}, 0.0, []),
        ({"n": 5}, {"n": 6}, 0.0, ["n: 6 instead of 5"]),
        ({"n": 100}, {"n": 105}, 0.05, []),
        ({"n": 100}, {"n": 106}, 0.05, ["n: 106 instead of 100"]),
        ({}, {"n": 6}, 0.0, ["n: 6 instead of 0"]),
        ({"loops": [9, 3]}, {"loops": [9, 3]}, 0.0, []),
        ({"loops": [9, 3]}, {"loops": [8]}, 0.0, []),
        ({"loops": [9, 3]}, {"loops": [9, 4]}, 0.0, ["loops: 4 instead of 3"]),
        ({"loops": [9]}, {"loops": [9, 2]}, 0.05, ["loops: 2 instead of 0"]),
        ({"launches": {"t": 2}}, {"launches": {"t": 3}}, 0.0, ["launches, t: 3 instead of 2"]),
        ({"launches": {"t": 2}}, {"launches": {"t": 2, "i": 1}}, 0.0, ["launches, i: 1 instead of 0"]),
    ],
)
def test_what_counts_as_risen(before: Any, now: Any, slack: float, higher: list[str]) -> None:
    assert figures.risen(before, now, slack) == higher


def test_the_command_shows_why() -> None:
    command = [sys.executable, "-m", "benchmarks.ledger", "--show", "kalman"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    for part in ("for t in", "in all", "device program 0, loop", "operations:", "bytes moved"):
        assert part in done.stdout
