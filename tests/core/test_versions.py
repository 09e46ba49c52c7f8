"""The tested versions: one table for README, pyproject.toml and `doctor`; a JAX that cannot work is refused in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tempo_llm.cli
import tempo_rl.cli
from tempo_core.runs import doctor
from tempo_core.versions import FAULTY, INSTALL, TESTED, dotted

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_states_the_tested_range() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    python, jax = (str(TESTED[name]).replace(" to ", "–") for name in ("python", "jax"))
    assert f"Tested with Python {python} and jax {jax};" in readme
    assert f"You need Python {dotted(TESTED['python'].first)} or newer;" in readme


def test_pyproject_has_the_lower_bounds_and_no_upper_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = {re.split(r"[^\w-]", need)[0]: need for need in project["dependencies"]}
    assert project["requires-python"] == f">={dotted(TESTED['python'].first)}"
    for name in ("jax", "jaxlib"):
        faulty = "".join(f",!={version}" for package, version in FAULTY if package == name)
        assert needs[name] == f"{name}>={dotted(TESTED[name].first)}{faulty}" and TESTED[name] == TESTED["jax"]
    assert not any("<" in need or "==" in need for need in needs.values())
    assert f"'{needs['jax']}'" in INSTALL


@pytest.mark.parametrize(
    ("version", "old", "untested"),
    [
        ("0.9.2", True, False), ("0.10.0", False, False), ("0.10.0.dev20260101", False, False), ("0.12.0.1", False, False),
        ("0.12.7", False, False), ("0.13.0", False, True), ("1.0", False, True),
    ],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version: str, old: bool, untested: bool) -> None:
    assert (TESTED["jax"].is_too_old(version), TESTED["jax"].is_untested(version)) == (old, untested)


# -- import -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jax", "line"),
    [
        ('__version__ = "0.9.2"', f"ImportError: Tempo needs jax 0.10 or newer, and jax 0.9.2 is installed: {INSTALL}"),
        (
            'raise RuntimeError("jaxlib is version 0.9.0, but this version of jax requires version >= 0.10.")',
            "ImportError: jax and jaxlib do not fit each other: jaxlib is version 0.9.0, but this version of jax requires version "
            f">= 0.10. To install both anew: {INSTALL}",
        ),
        ('raise RuntimeError("no CPU")', "RuntimeError: no CPU"),
    ],
    ids=["too old", "apart", "other"],
)
def test_a_jax_that_cannot_work_is_refused_in_one_line(jax: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(jax)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "import tempo_core; tempo_core.Context"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == line
    assert "During handling" not in done.stderr


def test_an_old_jax_is_refused_before_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text('raise RuntimeError("it was imported")')
    (tmp_path / "jax-0.9.2.dist-info").mkdir()
    (tmp_path / "jax-0.9.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.9.2\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "import tempo_core"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.stderr.splitlines()[-1] == f"ImportError: Tempo needs jax 0.10 or newer, and jax 0.9.2 is installed: {INSTALL}"


@pytest.mark.parametrize("command", ["tempo_rl.cli", "tempo_llm.cli"])
def test_a_command_that_compiles_nothing_imports_no_jax(command: str) -> None:
    """`--help`, `--version`, and completion at each key are a matter of half a second: the import of JAX and Gymnasium takes longer."""
    code = f"import sys, {command}; print(sorted(sys.modules.keys() & {{'jax', 'gymnasium', 'brax', 'sympy', 'islpy', 'wandb'}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_threads_may_use_the_first_name_at_the_same_time() -> None:
    code = """
import threading, tempo_core as tp
got, start = [], threading.Barrier(4)
def use():
    start.wait()
    got.append(tp.Context)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(got), hasattr(tp, "nonsense"), "Context" in dir(tp), tp.errors.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["4", "False", "True", "tempo_core.errors"]


# -- doctor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", [tempo_rl.cli.app, tempo_llm.cli.app], ids=["rl", "llm"])
def test_doctor_prints_versions_beside_the_tested_ones(app: object) -> None:
    result = CliRunner().invoke(app, ["doctor"])  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    for name in TESTED:
        assert re.search(rf"^{name} +\d[\w.]+ +tested are {TESTED[name]}$", result.output, re.MULTILINE), result.output
    assert re.search(r"^devices +\S", result.output, re.MULTILINE)


@pytest.mark.parametrize("app", [tempo_rl.cli.app, tempo_llm.cli.app], ids=["rl", "llm"])
def test_doctor_names_a_faulty_version(app: object, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = doctor.versions
    monkeypatch.setattr(doctor, "versions", lambda packages: {**installed(packages), "jaxlib": "0.11.1"})
    result = CliRunner().invoke(app, ["doctor"])  # type: ignore[arg-type]
    assert result.exit_code == 1
    assert re.search(r"^jaxlib +0\.11\.1 +faulty: on a CPU, .*jax/issues/40101\): pip install", result.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("version", "remark", "status"),
    [
        ("0.13.1", "newer than the tested versions, 0.10 to 0.12: untested", 0),
        ("0.9.2", "too old: Tempo does not work with it; needed is 0.10 or newer, tested are 0.10 to 0.12", 1),
        (None, "not installed", 0),
    ],
)
@pytest.mark.parametrize("app", [tempo_rl.cli.app, tempo_llm.cli.app], ids=["rl", "llm"])
def test_doctor_says_what_is_untested_and_what_does_not_work(
    app: object, version: str | None, remark: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = doctor.versions
    monkeypatch.setattr(doctor, "versions", lambda packages: {**installed(packages), "jax": version, "wandb": None})
    result = CliRunner().invoke(app, ["doctor"])  # type: ignore[arg-type]
    (line,) = (line for line in result.output.splitlines() if line.startswith("jax "))
    assert line.endswith(remark) and result.exit_code == status
    assert "missing: wandb, for " in result.output and "pip install 'tempo-dl[wandb]'" in result.output
