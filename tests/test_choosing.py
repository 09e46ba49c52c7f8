"""The list of tests that are left out by default, and how it is chosen."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.choosing import LIST, Reached, chosen, listed, read, share_of

ROOT = Path(__file__).resolve().parent.parent


def reached(seconds: float, *lines: int, of_children: float = 0.0) -> Reached:
    return Reached(seconds, of_children, frozenset(lines))


def collected(path: str, *options: str) -> set[str]:
    """The ids that pytest collects in a file."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *options, path]
    without = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # options of the outer run
    done = subprocess.run(command, cwd=ROOT, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if line.startswith(path)}


def test_the_list_names_tests_that_are_there() -> None:
    """A test that was renamed runs, until the list is chosen anew: then this names it."""
    functions: dict[str, set[str]] = {}
    for test in listed():
        path = test.partition("::")[0]
        if path not in functions and (ROOT / path).exists():
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions[path] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    gone = [test for test in listed() if test.partition("[")[0].split("::")[-1] not in functions.get(test.partition("::")[0], ())]
    assert not gone, f"{LIST.name} lists what is not there: {gone}"


def test_a_dear_test_runs_for_the_lines_that_no_other_reaches() -> None:
    tests = {
        "a::cheap": reached(0.1, 1, 2),
        "a::dear": reached(9.0, 1, 2, 3, 4),
        "a::less dear": reached(5.0, 1, 2, 3),
        "a::nothing new": reached(1.0, 1, 2),
        "a::another process": reached(3.0, 1, of_children=2.5),
        "a::table[dear]": reached(3.0, 2),
        "a::table[less]": reached(2.0, 2),
        "tests/typing/test_listing.py::test_a": reached(7.0, 1),
    }
    always = {"a::cheap", "a::another process", "a::table[less]", "tests/typing/test_listing.py::test_a"}
    # By new lines a second, 2 / 9 s come before 1 / 5 s, and leave nothing for the other.
    assert chosen(tests, cheap=0.2, rate=0.1) == always | {"a::dear"}
    assert chosen(tests, cheap=0.2, rate=0.21) == always | {"a::dear"}
    assert chosen(tests, cheap=0.2, rate=0.23) == always
    assert chosen(tests, cheap=1.0, rate=0.1) == always | {"a::dear", "a::nothing new"}


def test_a_tenth_of_the_list_runs_alone() -> None:
    """Each listed test is in one of ten parts of about equal size, whatever else is listed."""
    parts = [sum(share_of(test) == part for test in listed()) for part in range(10)]
    assert sum(parts) == len(listed()) and max(parts) < 2 * min(parts), parts
    of_file: dict[str, list[str]] = {}
    for test in sorted(listed()):
        of_file.setdefault(test.partition("::")[0], []).append(test)
    path, some = max(of_file.items(), key=lambda each: len(each[1]))
    assert collected(path, f"--left-out={share_of(some[0])}") == {test for test in some if share_of(test) == share_of(some[0])}


def test_of_two_records_the_later_counts(tmp_path: Path) -> None:
    for number, lines in ((1, ["f.py:1", "f.py:2"]), (2, ["f.py:2", "f.py:3"])):
        content = {"lines": lines, "tests": {"t::a": [number, 0.0, [0, 1]], f"t::{number}": [0.5, 0.0, [1]]}}
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    tests = read([tmp_path / "1.json", tmp_path / "2.json"])
    assert tests["t::a"] == reached(2, 1, 2), "lines are the same in both records"
    assert tests["t::1"] == reached(0.5, 1) and tests["t::2"] == reached(0.5, 2)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_lines_are_recorded_by_test(tmp_path: Path) -> None:
    out = tmp_path / "lines.json"
    tests = "tests/core/ir/test_costs.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.choosing", f"--record-lines={out}", "-p", "no:cacheprovider"]
    without = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # options of the outer run
    done = subprocess.run([*command, tests], cwd=ROOT, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read([out])
    files = {line.partition(":")[0] for line in json.loads(out.read_text())["lines"]}
    assert len(found) > 10 and all(test.startswith(tests) for test in found)
    assert any(name.startswith("tempo_core/") for name in files) and all(name.startswith("tempo_") for name in files), files
    some = [test for test in found.values() if test.lines]
    assert len(some) > 5 and len({test.lines for test in some}) > 1
    assert all(test.seconds >= 0 and test.of_children < 0.1 for test in found.values())


def test_shares_are_all_tests_once() -> None:
    """Those of a file, in three runs; and what is no share is refused."""
    path = "tests/core/symbolic/test_hull.py"
    shares = [collected(path, f"--share={k}/3") for k in range(3)]
    assert all(shares) and set.union(*shares) == collected(path) and sum(map(len, shares)) == len(set.union(*shares))
    with pytest.raises(AssertionError, match=r"--share=3/3 is not K/N with 0 <= K < N"):
        collected(path, "--share=3/3")
