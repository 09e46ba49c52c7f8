"""In how many programs the functions of the core act: what is counted, and what is listed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import reach
from benchmarks.reasons import reason_of, stale

SOURCE = '''
class A:
    @property
    def b(self):
        """Doc
        of two lines."""
        return 1

    def fails(self) -> TempoError:
        return TempoError("a")

def raises():
    if 1:
        pass
    raise ValueError
'''


def test_functions_are_those_of_modules_and_classes() -> None:
    definitions = reach.functions(SOURCE, "passes/a.py")
    assert [(f.name, f.first, f.lines, f.is_error) for f in definitions] == [
        ("A.b", 3, 2, False),
        ("A.fails", 9, 2, True),
        ("raises", 12, 4, True),
    ]
    assert {f.room for f in definitions} == {"passes"} and not reach.functions(SOURCE, "nn/a.py")[0].room


def test_shares_are_those_of_lines() -> None:
    core = reach.functions(SOURCE, "passes/a.py")
    counts = {str(core[0]): 2, str(core[1]): 5}
    rows = {room: (lines, parts) for room, lines, parts in reach.shares(core, counts)}
    assert rows["passes"] == (8, [4, 2, 2]) == rows["all of these"] and rows["schedule"] == (0, [0, 0, 0])


def test_what_is_recorded_is_of_functions_that_are_there() -> None:
    (case,) = json.loads(reach.RECORD.read_text(encoding="utf-8"))["cases"]
    core = {str(function) for function in reach.of_core() if function.room}
    assert case["programs"] > 250 and len(core & case["counts"].keys()) > 0.5 * len(core)
    command = [sys.executable, "-m", "benchmarks.reach", "--recorded"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=reach.ROOT).stdout
    assert "in none, without errors" in out and "all of these" in out


def test_functions_that_act_in_few_programs_have_a_reason() -> None:
    """Functions that are newer than the record need none. A key of `benchmarks/reasons.py` that explains no function is to go."""
    (case,) = json.loads(reach.RECORD.read_text(encoding="utf-8"))["cases"]
    recorded = [function for function in reach.of_core() if str(function) in case["counts"]]
    newer = [str(function) for function in reach.of_core() if str(function) not in case["counts"]]
    few = [str(f) for f in (*reach.idle(recorded, case["counts"]), *reach.rare(recorded, case["counts"]))]
    assert [function for function in few if not reason_of(function)[1]] == []
    assert stale([*few, *newer]) == set()


def test_the_longest_key_gives_the_reason() -> None:
    reasons = {"a/": "all", "a/b.py: C": "of C", "c/": "none"}
    assert [reason_of(name, reasons)[1] for name in ("a/b.py: C.d", "a/b.py: d", "d/b.py: C")] == ["of C", "all", ""]
    assert stale(["a/b.py: C.d", "d/b.py: C"], reasons) == {"a/", "c/"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_a_program_is_watched(tmp_path: Path) -> None:
    out = tmp_path / "reach.json"
    command = [sys.executable, "-m", "benchmarks.reach", "--only", "classic, tiny: HMM forward", "--out", str(out)]
    subprocess.run(command, capture_output=True, text=True, check=True, cwd=reach.ROOT)
    (case,) = json.loads(out.read_text(encoding="utf-8"))["cases"]
    counts = case["counts"]
    assert case["programs"] >= 1 and max(counts.values()) == case["programs"]
    assert counts["passes/batch/vectorize.py: Vectorize.apply"] == case["programs"]
    assert all(not count for name, count in counts.items() if name.startswith("passes/keep/checkpoint.py: _"))
