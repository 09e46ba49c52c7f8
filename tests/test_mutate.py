"""`python -m benchmarks.mutate`: what is wrong is noticed, and what changes nothing is reported as a survivor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutate.__main__ import Tally, reasons
from benchmarks.mutate.running import Mutant, Outcome

ROOT = Path(__file__).resolve().parent.parent


def mutate(*options: str) -> tuple[int, str]:
    """The exit code of a run of the tool, and what it prints."""
    command = [sys.executable, "-m", "benchmarks.mutate", "--verbose", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_rows_that_are_wrong_or_gone_are_noticed() -> None:
    """A row, a number in code, a check of the verifier, and a row without which tests are skipped."""
    names = [
        "axes | Permute |",
        "strides[k] + 1 -> _reach(distances, k) // strides[k] + 0",
        "without fault.check_domain()",
        "Unary | removed",
    ]
    tables = ["axes", "storage", "verifier", "gradients"]
    code, text = mutate(*(f"--name={name}" for name in names), *(f"--table={table}" for table in tables))
    assert code == 0, text
    assert text.count("noticed  ") >= 6 and "6 mutants in" in text, text
    for test in (
        "test_axes.py::test_tiles_of_the_result[Permute",
        "test_storage.py::",
        "test_verify.py::",
        "differences[Unary-",
    ):
        assert test in text


@pytest.mark.slow
def test_the_usual_run_leaves_out_the_code_of_rows() -> None:
    usual, deep = (
        {tuple(name.split(" | ")[:3:2]) for name in mutate("--list", *more)[1].splitlines()} for more in ([], ["--deep"])
    )
    assert usual < deep
    assert {table for table, way in usual if way == "code"} == {"storage", "verifier"}
    assert {table for table, _ in deep} == {table for table, _ in usual} | {
        "axes code",
        "kernels shared code",
        "rules code",
        "slopes code",
    }


@pytest.mark.slow
def test_a_change_of_nothing_survives() -> None:
    code, text = mutate("--table", "axes", "--row", "Permute", "--unchanged")
    assert code == 1, text
    assert "survived: axes | Permute | wrong | nothing" in text


def test_what_is_listed_to_change_nothing_must_exist_and_survive(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.txt"
    path.write_text(
        "# rows\nt | a | wrong | one\n    It is not\n    read.\nt | b | wrong | one\n    Nor is it.\nt | c | wrong | one\n"
        "t | e | code | one\n    Of a way that does not run.\n",
        encoding="utf-8",
    )
    tally = Tally(reasons(path))
    assert tally.equivalents["t | a | wrong | one"] == "It is not read."
    a, b, d = (Mutant("t", row, "wrong", "one", lambda: None, ()) for row in "abd")
    tally.check_list({a.name, b.name, d.name}, lambda table, way: (table, way) == ("t", "wrong"))
    kinds = [
        tally.add(Outcome(m, kind, by, 0.1))
        for m, kind, by in [(a, "survived", ""), (b, "noticed", "test_x.py"), (d, "survived", "")]
    ]
    assert kinds == ["equivalent", "noticed", "survived"]
    assert tally.survivors == [d.name]
    assert tally.faults == [
        "t | c | wrong | one: is listed without a reason",
        "t | c | wrong | one: is listed, and there is no such mutant",
        "t | b | wrong | one: is listed to change nothing, and is noticed test_x.py",
    ]
