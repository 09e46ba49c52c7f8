"""Makes docs/tutorial.ipynb from docs/tutorial.md: `python docs/notebook.py`.

The page is what people edit, and what the tests run. A block of Python becomes a cell of code, with the ```text block after it as its output.
All else becomes cells of Markdown, one for each stretch of text, and a new one for each section.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("tutorial.md")
NOTEBOOK = PAGE.with_suffix(".ipynb")
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page, in Jupyter's format 4.5. Its outputs are those that the page shows."""
    cells: list[dict[str, Any]] = []
    position = 0
    for block in BLOCK.finditer(page):
        cells += _markdown(page[position : block.start()])
        cells.append(_code(block["code"], block["printed"]))
        position = block.end()
    cells += _markdown(page[position:])
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = number
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(page: str) -> str:
    """The same as the text of an .ipynb file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _markdown(text: str) -> list[dict[str, Any]]:
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return [
        {"cell_type": "markdown", "metadata": {}, "source": _lines(section.strip())} for section in sections if section.strip()
    ]


def _code(code: str, printed: str | None) -> dict[str, Any]:
    outputs = [{"name": "stdout", "output_type": "stream", "text": _lines(printed)}] if printed else []
    return {"cell_type": "code", "metadata": {}, "outputs": outputs, "source": _lines(code.rstrip("\n"))}


def _lines(text: str) -> list[str]:
    """Jupyter's files hold a text as a list of lines, each with its end."""
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    NOTEBOOK.write_text(text_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {NOTEBOOK.name}")
