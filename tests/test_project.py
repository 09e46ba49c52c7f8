"""What README and the other pages promise: their examples run, their links lead somewhere, and CI runs the README's command.

And what a release says of itself: one version, and the packages that each extra needs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import tempo_core as tp
import tempo_llm.__main__
import tempo_rl.__main__
from tempo_core.runs.commands import name_the_extra
from tempo_core.versions import TESTED

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MODULES = {"pyyaml": "yaml", "pillow": "PIL"}  # of packages with other names


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def block_after(page: str, marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert found, f"no code block after {marker}"
    return found[1]


def test_the_readme_example_runs(capsys: pytest.CaptureFixture[str]):
    code = block_after((ROOT / "README.md").read_text(encoding="utf-8"), "example")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, str(ROOT / "README.md"), "exec"), namespace)
    assert capsys.readouterr().out.startswith("(1000,)\nfirst x\n")
    assert {t.name: t.slots for t in namespace["program"].plan().tensors if t.name in ("x", "reward")} == {
        "x": (4,),
        "reward": (5,),
    }


@pytest.mark.parametrize("name", ["run", "release"])
def test_ci_runs_the_command_of_the_readme(name: str):
    script = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    extraction = re.search(r"awk '.*' README\.md", script)
    assert extraction
    printed = subprocess.run(["bash", "-c", extraction[0]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "pip install -e '.[test]' && pytest -n auto --dist worksteal"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_files_that_pages_name_exist():
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs/design.md", *(ROOT / "docs/extending").glob("*.md")]
    named = [path for page in pages for path in re.findall(r"`((?:tempo_\w+|tests)/[\w/.]+)`", page.read_text(encoding="utf-8"))]
    assert len(named) > 50
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


def test_only_one_extra_needs_pytorch():
    extras = project()["optional-dependencies"]
    needing = {extra for extra, needs in extras.items() for need in needs if re.match(r"(torch|transformers)\b", need)}
    assert needing == {"torch"}
    assert not any("==" in need or "<" in need for needs in extras.values() for need in needs)


def test_the_version_has_one_source():
    assert "version" in project()["dynamic"]
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    source = ROOT / configuration["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{tp.__version__}"\n' in source.read_text(encoding="utf-8")


def test_the_changelog_and_the_citation_are_those_of_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(Unreleased|\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert versions and len(versions) == len(re.findall(r"^## ", changelog, re.MULTILINE))
    assert versions[0] == "Unreleased" or versions[0] == tp.__version__
    assert re.search(rf"\b{re.escape(tp.__version__)}\b", changelog)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    assert set(re.findall(r"^### (.*)", changelog, re.MULTILINE)) <= kinds

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == tp.__version__
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project()["authors"]]
    assert citation["license"] == project()["license"] and citation["keywords"] == project()["keywords"]


def test_the_classifiers_and_the_page_on_support_name_the_tested_versions():
    minors = range(TESTED["python"].first[1], TESTED["python"].last[1] + 1)
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(project()["classifiers"]), re.MULTILINE)
    assert named == [f"3.{minor}" for minor in minors]
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\.\d+) \|", page, re.MULTILINE)
    assert rows[: len(named)] == named
    assert rows[len(named) :] == [f"0.{minor}" for minor in range(TESTED["jax"].first[1], TESTED["jax"].last[1] + 1)]
    extras = re.findall(r"^\| (`.*?`) \|", page[page.index("## Extras") :], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(extras))) == set(project()["optional-dependencies"]) - {"dev"}


@pytest.mark.parametrize(("extra", "modules"), [("rl", tempo_rl.__main__.MODULES), ("llm", tempo_llm.__main__.MODULES)])
def test_the_modules_of_an_extra_are_those_of_its_packages(extra: str, modules: frozenset[str]):
    packages = [re.split(r"[\[<>=]", need)[0] for need in project()["optional-dependencies"][extra]]
    assert modules == {MODULES.get(package, package) for package in packages}


@pytest.mark.parametrize(("command", "extra"), [("tempo_rl", "rl"), ("tempo_llm", "llm")])
def test_a_command_without_its_packages_says_what_to_install(command: str, extra: str):
    code = f"import sys; sys.modules['typer'] = None; from {command}.__main__ import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    name = command.replace("_", "-")
    assert result.returncode == 1
    assert result.stderr == f"error: {name} needs typer, which is not installed: pip install 'tempo-dl[{extra}]'\n"


def test_a_module_of_nobody_is_an_error_as_usual():
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        name_the_extra(ModuleNotFoundError("nowhere", name="nowhere.inside"), "tempo-rl", "rl", {"typer"})
    with pytest.raises(SystemExit):
        name_the_extra(ModuleNotFoundError("typer", name="typer.inside"), "tempo-rl", "rl", {"typer"})


def test_the_terminal_of_the_readme_shows_what_the_commands_print(tmp_path: Path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```console\n(.*?)```", readme, re.DOTALL)
    nothing, *parts = block.split("$ ")
    shown = {
        command.split()[0]: (shlex.split(command, comments=True), printed) for command, *printed in map(str.splitlines, parts)
    }
    assert nothing == "" and [*shown] == ["tempo-rl", "python", "tempo-llm"]
    for name, start in (("python", []), ("tempo-llm", ["-m", "tempo_llm"])):  # `tempo-rl` trains: pytest -m slow
        (_, *arguments), printed = shown[name]
        arguments = [str(ROOT / each) if each.startswith("docs/") else each for each in arguments]
        command = [sys.executable, *start, *arguments, *(["--no-cache"] if start else [])]
        result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        lines = result.stdout.rstrip("\n").splitlines()
        assert [line for line in lines if line in printed] == printed and lines[0] == printed[0]


@pytest.mark.slow
def test_the_agent_of_the_readme_reaches_what_it_shows(tmp_path: Path):
    (line,) = re.findall(r"^greedy evaluation .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    command = [sys.executable, "-m", "tempo_rl", "train", str(ROOT / "recipes/ppo.yaml"), "--no-cache", "--no-progress"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment).stdout
    assert line in printed.splitlines()


def test_the_program_of_the_readme_is_a_file():
    code = block_after((ROOT / "README.md").read_text(encoding="utf-8"), "example")
    assert (ROOT / "docs/window.py").read_text(encoding="utf-8").endswith('."""\n\n' + code)
