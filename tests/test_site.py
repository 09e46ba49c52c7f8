"""The site: every page is in its navigation, every link leads to a page or file of the site, figures are those of the records, and it builds."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tempo_core
import tempo_llm
import tempo_rl
from docs import recorded, site
from tempo_core import nn, optim
from tests.test_docs import PAGES

ROOT = Path(__file__).resolve().parent.parent
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path != ROOT / "docs" / "README.md"]
URIS = [*(str(path.relative_to(ROOT / "docs")) for path in DOCS), *site.PAGES.values()]


def leaves(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from [value] if isinstance(value, str) else leaves(value)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(leaves(CONFIG["nav"])) == sorted(URIS)
    assert all((ROOT / path).is_file() for path in [*site.PAGES, *site.INSTEAD, *CONFIG["hooks"]])
    assert all((ROOT / "docs" / path).is_file() for path in CONFIG["extra_css"])


def test_links_lead_to_pages_and_files_of_the_site() -> None:
    links = 0
    for uri in URIS:
        text = (ROOT / site.repository_path(uri)).read_text(encoding="utf-8")
        for match, path in site.targets(text, uri):
            place = site.site_path(path)
            assert place is None or place in URIS or place.startswith("source/") or (ROOT / "docs" / place).is_file(), (uri, path)
            links += match["before"] == "]("
        relative = [target for target in re.findall(r"\]\(([^)#\s]+\.\w+)[)#]", site.FENCE.sub("", text)) if ":" not in target]
        assert len(relative) <= sum(1 for _ in site.targets(text, uri)), f"{uri} links to a file that is not there"
    assert links > 100


def test_links_are_those_of_the_site() -> None:
    page = (
        "[a](../plans.md#the-memory) [b](../../recipes/ppo.yaml) [c](../../README.md) [d](../../recipes) [e](https://jax.dev)\n"
    )
    page += "```\n[f](../plans.md)\n```\n"
    rewritten = "[a](../plans.md#the-memory) [b](../source/recipes/ppo.yaml.txt) [c](../index.md) d [e](https://jax.dev)\n"
    assert site.with_links_of_the_site(page, "language/runs.md") == rewritten + "```\n[f](../plans.md)\n```\n"
    assert site.with_links_of_the_site("[how](benchmarks/README.md) ![x](docs/figures/memory.svg)", "index.md") == (
        "[how](benchmarks.md) ![x](figures/memory.svg)"
    )


def test_every_block_of_code_is_run() -> None:
    """Those of docs/ by tests/test_docs.py, README's by tests/test_project.py; those of docs/extending are parts of files, which parse.

    Those of serve.md need a server: tests/llm/serve/test_page.py.
    """
    with_code = {page for page in site.PAGES if "```python\n" in (ROOT / page).read_text(encoding="utf-8")}
    assert with_code <= {"README.md"}
    pages = {str(path.relative_to(ROOT / "docs")) for path in DOCS if "```python\n" in path.read_text(encoding="utf-8")}
    assert {page for page in pages if not page.startswith("extending/")} == {*PAGES, "serve.md"}
    blocks = [
        block
        for path in (ROOT / "docs" / "extending").glob("*.md")
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    ]
    assert blocks
    for block in blocks:
        ast.parse(block)


def test_tables_begin_with_a_head() -> None:
    for uri in URIS:
        text = site.FENCE.sub("", (ROOT / site.repository_path(uri)).read_text(encoding="utf-8"))
        for table in re.findall(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE):
            rows = table.split("\n")
            assert len(rows) > 1 and re.fullmatch(r"[| -]+", rows[1]), f"{site.repository_path(uri)}: {rows[0]}"


# -- what is recorded elsewhere ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", recorded.PAGES, ids=lambda path: path.name)
def test_recorded_parts_are_those_of_the_records(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert len(list(recorded.parts(page))) >= 10
    assert page.count("<!-- recorded:") == len(list(recorded.parts(page))), "a part without an end"
    assert recorded.filled(page) == page, "write them: python -m docs.recorded"


def test_a_figure_that_is_not_recorded_is_an_error() -> None:
    ms = next(case["ms"]["tempo"] for case in recorded.record("classics")["cases"] if case["case"] == "heat")
    assert recorded.short(recorded.figure("classics / heat / ms / tempo")) == recorded.short(ms)
    for path in ("classics / heat / ms / nobody", "classics / no such case / ms / tempo", "nothing / heat / ms"):
        with pytest.raises(KeyError):
            recorded.figure(path)


# -- the API reference ------------------------------------------------------------------------------------------------

PUBLIC = {
    "tempo_core.api": set(tempo_core.__all__) - {"nn", "optim", "random", "linalg", "fft", "errors", "typing"},
    "tempo_core.frontend.library.linalg": set(tempo_core.linalg.NAMES),
    "tempo_core.frontend.library.fft": set(tempo_core.fft.NAMES),
    "tempo_core.nn": set(nn.__all__) - {"xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"},  # other names
    "tempo_core.optim": set(optim.__all__) - {"schedules"},
    "tempo_core.optim.schedules": {name for name in vars(optim.schedules) if name in ("constant", "linear", "cosine", "warmup")},
    "tempo_rl": set(tempo_rl.__all__),
    "tempo_llm": set(tempo_llm.__all__),
    "tempo_core.errors": {
        name
        for name, value in vars(tempo_core.errors).items()
        if isinstance(value, type) and issubclass(value, tempo_core.errors.TempoError)
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module: str) -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md")))
    listed = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", pages, re.MULTILINE)
    assert PUBLIC[module] <= set(listed)
    assert len(listed) == len(set(listed))


# -- the build --------------------------------------------------------------------------------------------------------


def test_docstrings_become_markdown() -> None:
    pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    from docs.docstrings import as_markdown

    written = "One sentence.\n\nx: the first\n    of all.\ny, z: others.\n\n>>> 1 + 1\n2"
    assert (
        as_markdown(written) == "One sentence.\n\n- `x`: the first\n    of all.\n- `y, z`: others.\n\n```pycon\n>>> 1 + 1\n2\n```"
    )
    assert as_markdown("Raises it.\n  x: 1") == "Raises it.\n  x: 1"


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings"))), reason="pip install -e '.[docs]'"
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    for page in URIS:
        assert (tmp_path / "site" / re.sub(r"(README)?\.md$", ".html", page).replace("/.html", "/index.html")).is_file(), page
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'src="figures/program.svg"' in home and "fonts.googleapis" not in home
    assert "source/benchmarks/results/" in (tmp_path / "site" / "claims.html").read_text(encoding="utf-8")
    assert 'id="tempo_core.api.Context.compile"' in (tmp_path / "site" / "api" / "core.html").read_text(encoding="utf-8")
