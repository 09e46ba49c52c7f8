"""The code of docs/language.md runs, section by section, and prints what the page says.

`pytest tests/test_docs.py --update-golden` writes what is printed now into the page's ```text blocks.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "language.md"
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """`start` is where its text begins in the page, in characters."""

    title: str
    start: int
    text: str

    def runs(self) -> list[tuple[re.Match[str], str]]:
        """Each block of code with what it prints; all share one namespace."""
        page, namespace, found = PAGE.read_text(encoding="utf-8"), {"__name__": "docs"}, []
        for block in FENCE.finditer(self.text):
            line = page.count("\n", 0, self.start + block.start("code"))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + block["code"], str(PAGE), "exec"), namespace)
            found.append((block, printed.getvalue()))
        return found


def sections() -> list[Section]:
    page = PAGE.read_text(encoding="utf-8")
    starts = [m.start() for m in re.finditer(r"^## ", page, re.MULTILINE)]
    ends = [*starts[1:], len(page)]
    return [Section(page[a:b].split("\n", 1)[0].removeprefix("## "), a, page[a:b]) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("number", range(len(sections())), ids=[s.title for s in sections()])
def test_a_sections_code_runs_and_prints_what_the_page_says(number: int, request: pytest.FixtureRequest) -> None:
    section = sections()[number]  # read again: updating one section moves those behind it
    runs = section.runs()
    if request.config.getoption("--update-golden"):
        page = PAGE.read_text(encoding="utf-8")
        for block, printed in reversed(runs):
            if block["printed"] is not None:
                start, end = section.start + block.start("printed"), section.start + block.end("printed")
                page = page[:start] + printed + page[end:]
        PAGE.write_text(page, encoding="utf-8")
        return
    for block, printed in runs:
        said: Any = block["printed"]
        assert printed == (said or ""), f"the code under `{section.title}` prints something else now"


def test_the_page_has_code_in_every_section() -> None:
    assert len(sections()) >= 12
    assert [s.title for s in sections() if "```python" not in s.text] == []
    assert re.findall(r"^```(?!python$|text$|$)", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == []
