"""What README and the other pages promise: their examples run, their links lead somewhere, and CI runs the README's command."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def block_after(page: str, marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert found, f"no code block after {marker}"
    return found[1]


def test_the_readme_example_runs():
    code = block_after((ROOT / "README.md").read_text(encoding="utf-8"), "example")
    exec(compile(code, str(ROOT / "README.md"), "exec"), {"__name__": "__main__"})


def test_ci_runs_the_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    extraction = re.search(r"awk '.*' README\.md", script)
    assert extraction
    printed = subprocess.run(["bash", "-c", extraction[0]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "pip install -e '.[test]' && pytest -n auto --dist worksteal"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_files_that_contributing_names_exist():
    named = re.findall(r"`((?:tempo_\w+|tests)/[\w/.]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert named
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


def test_only_one_extra_needs_pytorch():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    needing = {extra for extra, needs in extras.items() for need in needs if re.match(r"(torch|transformers)\b", need)}
    assert needing == {"torch"}
    assert not any("==" in need or "<" in need for needs in extras.values() for need in needs)
