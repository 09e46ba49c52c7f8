"""The code of the pages of docs/ runs, section by section, and prints what the page says.

`pytest tests/test_docs.py --update-golden` writes what is printed now into the page's ```text blocks.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tempo_core as tp
from benchmarks import decisions
from tests.cases import slow

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = {  # with how many sections they have at least
    "tutorial.md": 7,
    "functions.md": 3,
    "interop.md": 6,
    "language.md": 20,
    "language/values.md": 5,
    "language/training.md": 6,
    "language/running.md": 8,
    "language/runs.md": 7,
    "language/cache.md": 4,
    "language/devices.md": 4,
    "language/profiling.md": 3,
    "fast.md": 7,
    "memory.md": 9,
    "nn.md": 4,
    "rl.md": 6,
    "llm.md": 3,
    "rewards.md": 4,
    "from/lax-scan.md": 4,
    "from/purejaxrl-and-cleanrl.md": 4,
    "from/stable-baselines3.md": 4,
    "from/transformers.md": 4,
    "from/flex-attention.md": 5,
}
TRAINS = re.compile(r"\.train\(|RunFiles\(")  # code that trains an agent or a language model: in the slow set
SLOW = {  # sections that take over five CPU seconds: most compile a program that trains or generates for each block
    "llm.md: How it runs",
    "llm.md: Training",
    "llm.md: From Python",
    "llm.md: Flags of `tempo-llm generate`",
    "rewards.md: One program",
    "memory.md: A limit",
    "from/transformers.md: Drawing, streaming, stopping",
    "from/transformers.md: The same program twice",
    "from/purejaxrl-and-cleanrl.md: The same program twice",
}
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """`start` is where its text begins in the page, in characters."""

    page: str
    title: str
    start: int
    text: str

    def runs(self) -> list[tuple[re.Match[str], str]]:
        """Each block of code with what it prints; all share one namespace, and what stands before the page's first section."""
        path, namespace, found = DOCS / self.page, {"__name__": "docs"}, []
        page = path.read_text(encoding="utf-8")
        for block in FENCE.finditer(page[: page.index("\n## ")]):
            exec(compile(block["code"], str(path), "exec"), namespace)
        for block in FENCE.finditer(self.text):
            line = page.count("\n", 0, self.start + block.start("code"))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + block["code"], str(path), "exec"), namespace)
            found.append((block, printed.getvalue()))
        return found


def sections(name: str) -> list[Section]:
    page = (DOCS / name).read_text(encoding="utf-8")
    starts = [m.start() for m in re.finditer(r"^## ", page, re.MULTILINE)]
    ends = [*starts[1:], len(page)]
    titles = [page[a:].split("\n", 1)[0].removeprefix("## ") for a in starts]
    return [Section(name, title, a, page[a:b]) for title, a, b in zip(titles, starts, ends, strict=True)]


def cases() -> Iterator[Any]:
    """Pages and numbers of their sections."""
    for page in PAGES:
        for number, section in enumerate(sections(page)):
            trains = any(TRAINS.search(block["code"]) for block in FENCE.finditer(section.text))
            name = f"{page}: {section.title}"
            yield slow((page, number), id=name) if trains or name in SLOW else pytest.param(page, number, id=name)


@pytest.mark.parametrize(("page", "number"), cases())
def test_a_sections_code_runs_and_prints_what_the_page_says(page: str, number: int, request: pytest.FixtureRequest) -> None:
    section = sections(page)[number]  # read again: updating one section moves those behind it
    runs = section.runs()
    if request.config.getoption("--update-golden"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for block, printed in reversed(runs):
            if block["printed"] is not None:
                start, end = section.start + block.start("printed"), section.start + block.end("printed")
                text = text[:start] + printed + text[end:]
        (DOCS / page).write_text(text, encoding="utf-8")
        return
    for block, printed in runs:
        said: Any = block["printed"]
        assert printed == (said or ""), f"the code under `{section.title}` prints something else now"


def test_slow_sections_are_there() -> None:
    assert {f"{page}: {section.title}" for page in PAGES for section in sections(page)} >= SLOW


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_code_in_every_section(page: str) -> None:
    assert len(sections(page)) >= PAGES[page]
    assert [s.title for s in sections(page) if "```python" not in s.text] == []
    assert re.findall(r"^```(?!python$|text$|$)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE) == []


@pytest.mark.parametrize("name", ["Edit distance", *(pytest.param(name, marks=pytest.mark.slow) for name in decisions.PROGRAMS)])
def test_the_page_of_decisions_says_what_is_decided(name: str) -> None:
    about, compiled = decisions.PROGRAMS[name]
    page = decisions.PAGE.read_text(encoding="utf-8")
    written = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    now = f"\n{about}\n\n" + decisions.section(compiled, tp.Target.named("cpu"))
    assert written.strip() == now.strip(), "python -m benchmarks.decisions --write"
    assert page.startswith(decisions.HEAD)
