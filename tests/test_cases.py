"""Rows of tables that are left out by default, and the CPU seconds of rooms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cells, fast, first, slow, without_slow_rows
from tests.rooms import room

ROOT = Path(__file__).resolve().parent.parent
ROWS = ["a", slow("b"), "c", pytest.param("d", marks=pytest.mark.cpu)]


def is_fast(row: object) -> bool:
    return not any(mark.name == "slow" for mark in getattr(row, "marks", ()))


def test_some_rows_run_by_default() -> None:
    assert list(map(is_fast, fast("abc", "c"))) == [False, False, True]
    assert list(map(is_fast, first(2, "abc"))) == [True, True, False]
    with pytest.raises(ValueError, match="no such rows: \\['d'\\]"):
        fast("abc", "d")


def test_each_row_of_each_table_is_in_a_cell_that_runs() -> None:
    rows = cells("abcde", (1, 2), (True, False, None))
    assert len(rows) == 5 * 2 * 3
    chosen = [row for row in rows if is_fast(row)]
    assert [set(column) for column in zip(*chosen, strict=True)] == [set("abcde"), {1, 2}, {True, False, None}] and len(
        chosen
    ) == 5
    assert [row for row in cells("ab", (1, 2), fast=lambda name, number: name == "a") if is_fast(row)] == [("a", 1), ("a", 2)]


def test_slow_rows_are_taken_out_with_their_names() -> None:
    mark = without_slow_rows(pytest.mark.parametrize("x", ROWS, ids=["1", "2", "3", "4"]).mark)
    assert mark.args == ("x", [ROWS[0], ROWS[2], ROWS[3]]) and mark.kwargs["ids"] == ["1", "3", "4"]
    alone = without_slow_rows(pytest.mark.parametrize("x", [slow("a"), slow("b")]).mark)
    assert len(alone.args[1]) == 2, "a function that is slow as a whole has rows to leave out"


def test_cpu_seconds_are_those_of_rooms(tmp_path: Path) -> None:
    assert room("tests/core/passes/test_pad.py") == "tests/core/passes" and room("tests/core/test_cache.py") == "tests/core/*.py"
    assert room("tests/llm/serve/test_server.py") == "tests/llm/serve" and room("tests/llm/models.py") == "tests/llm/*.py"
    assert room("tests/fuzz/generator/a/test_a.py") == "tests/fuzz/generator" and room("tests/test_docs.py") == "tests/*.py"
    out = tmp_path / "seconds.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "1",
        "-p",
        "no:cacheprovider",
        "tests/core/ir/test_costs.py",
        "-k",
        "place",
    ]
    without = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # options of the outer run
    done = subprocess.run([*command, f"--cpu-seconds={out}"], cwd=ROOT, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = json.loads(out.read_text())
    assert len(seconds) > 10 and all(test.startswith("tests/core/ir/test_costs.py::") for test in seconds), done.stdout
    assert f"{len(seconds)} tests  tests/core/ir" in done.stdout, done.stdout
    assert "processes of tests: 1, each with" in done.stdout
