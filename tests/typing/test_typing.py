"""The reports of type checkers to a user of the installed wheel: none for `correct.py`, the marked ones for `wrong.py`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Errors = set[tuple[int, str]]  # (line, name of the rule)


def mypy(file: Path, python: Path) -> Errors:
    """The errors that mypy reports for a file."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={python.parent / 'mypy'}",  # the second file takes what was read for the first
        f"--python-executable={python}",
        "--no-error-summary",
        file.name,
    ]
    run = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    reports = re.findall(rf"^{re.escape(file.name)}:(\d+): error: .*\[([\w-]+)\]$", run.stdout, re.MULTILINE)
    assert len(reports) == run.stdout.count(" error: "), run.stdout
    return {(int(line), rule) for line, rule in reports}


def basedpyright(file: Path, python: Path) -> Errors:
    """The errors that basedpyright reports for a file. For `correct.py`, a value of unknown type is an error too."""
    mode = "strict" if file.name == "correct.py" else "standard"
    (file.parent / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode}), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", str(python), str(file)]
    run = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    reports = json.loads(run.stdout)["generalDiagnostics"]
    return {(each["range"]["start"]["line"] + 1, each["rule"]) for each in reports if each["severity"] == "error"}


CHECKERS = {"mypy": mypy, "basedpyright": basedpyright}


def check(name: str, checker: str, python: Path, place: Path) -> Errors:
    """The errors that a checker reports for a copy of a file, in a folder without other modules."""
    shutil.copy(HERE / name, place / name)
    return CHECKERS[checker](place / name, python)


@pytest.mark.parametrize("checker", CHECKERS)
def test_correct_uses_are_correct(checker: str, users_python: Path, tmp_path: Path) -> None:
    assert check("correct.py", checker, users_python, tmp_path) == set()


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_uses_are_errors(checker: str, users_python: Path, tmp_path: Path) -> None:
    expected: Errors = set()
    for number, line in enumerate((HERE / "wrong.py").read_text(encoding="utf-8").splitlines(), 1):
        mark = re.search(r"# wrong: ([\w-]+), (\w+)$", line)
        if mark:
            expected.add((number, mark[1 if checker == "mypy" else 2]))
    assert len(expected) >= 40
    reports = check("wrong.py", checker, users_python, tmp_path)
    assert {line for line, _ in reports} == {line for line, _ in expected}
    assert expected <= reports  # basedpyright reports two errors for some lines


def test_the_libraries_say_that_they_are_typed(users_python: Path) -> None:
    code = "from importlib.util import find_spec as f; from pathlib import Path as P\n"
    code += "print([(P(f(n).origin).parent / 'py.typed').exists() for n in ('tempo_core', 'tempo_rl', 'tempo_llm')])"
    run = subprocess.run([str(users_python), "-c", code], cwd=users_python.parent, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[True, True, True]"
