"""The ten-minute tutorial: its notebook is the page, and runs. tests/test_docs.py runs the code of the page itself."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from docs import notebook

ROOT = Path(__file__).resolve().parent.parent
PAGE = notebook.PAGE.read_text(encoding="utf-8")


def test_the_notebook_is_what_the_script_makes_of_the_page() -> None:
    assert notebook.NOTEBOOK.read_text(encoding="utf-8") == notebook.text_of(PAGE), "python docs/notebook.py"


def test_blocks_become_cells_in_their_order_with_what_they_print() -> None:
    page = "# Title\n\ntext\n\n```python\na = 1\n```\n```text\n1\n2\n```\n\n## Section\n\n```\npip\n```\n\n```python\nb\n```\n\nend\n"
    cells = notebook.notebook(page)["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", "# Title\n\ntext"),
        ("code", "a = 1"),
        ("markdown", "## Section\n\n```\npip\n```"),
        ("code", "b"),
        ("markdown", "end"),
    ]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code"] == [
        [{"name": "stdout", "output_type": "stream", "text": ["1\n", "2\n"]}],
        [],
    ]
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_the_page_loses_nothing_on_its_way_into_the_notebook() -> None:
    cells = notebook.notebook(PAGE)["cells"]
    held = "".join(
        "".join(cell["source"]) + "".join(line for out in cell.get("outputs", []) for line in out["text"]) for cell in cells
    )
    fences = re.compile(r"^```(?:python|text)?$", re.MULTILINE)
    assert re.sub(r"\s", "", fences.sub("", held)) == re.sub(r"\s", "", fences.sub("", PAGE))


def test_the_page_installs_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (installed,) = re.findall(r"^pip install -e '\.\[(.*)\]'$", PAGE, re.MULTILINE)
    assert set(installed.split(",")) <= set(extras)


def test_the_page_links_to_pages_that_there_are() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)
    assert len(links) > 10
    assert [link for link in links if not (notebook.PAGE.parent / link).exists()] == []


def test_reinforce_has_as_many_lines_as_its_title_says() -> None:
    title, section = re.findall(r"^## (REINFORCE in \d+ lines.*?)\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[0]
    code = notebook.BLOCK.findall(section)[0][0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= int(title.split()[2])


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="runs notebooks: pip install -e '.[docs]'")
    nbclient = pytest.importorskip("nbclient", reason="runs notebooks: pip install -e '.[docs]'")
    nbformat = pytest.importorskip("nbformat")
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    stored = nbformat.read(notebook.NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    run = nbformat.from_dict(json.loads(json.dumps(stored)))
    nbclient.NotebookClient(run, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(stored.cells, run.cells, strict=True):
        if before.cell_type == "code":
            assert _printed(after) == _printed(before), before.source


def _printed(cell: object) -> str:
    """What a cell wrote to the standard output. Lines of progress and warnings go to the standard error."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
