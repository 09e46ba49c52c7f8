"""What an object shows of itself: a page of facts, tables, texts, pictures and formulas. `html` and `terminal` show every page alike."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.ir.names.source_lines import split_line
from tempo_core.ir.names.user_lines import span
from tempo_core.report.pages.formulas import Math


@dataclass(frozen=True)
class Row:
    """One row of a table. `share` is the length of its bar, from 0 to 1; None for a row without a bar."""

    cells: tuple[str, ...]
    share: float | None = None


@dataclass(frozen=True)
class Group:
    """Rows that fold away under a `title`, such as a line of the user's, with its `place` and its `amount`. Without a title, they stay."""

    rows: tuple[Row, ...]
    title: str = ""
    place: str = ""
    amount: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """Groups of rows with common columns."""

    title: str
    columns: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group.rows]

    @property
    def numbers(self) -> list[bool]:
        """For each column, whether its cells are numbers, which end at the right."""
        columns = [[row.cells[k] for row in self.rows if row.cells[k]] for k in range(len(self.columns))]
        return [bool(cells) and all(cell[0] in "~0123456789" for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Text:
    title: str
    text: str


@dataclass(frozen=True)
class Picture:
    title: str
    svg: str


@dataclass(frozen=True)
class Page:
    """The content of an object: its `name`, `facts` (a word and a value each), and parts that fold, of which the first is open."""

    name: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Table | Text | Picture, ...] = ()
    formula: Math | None = None


def with_bars(rows: Sequence[tuple[tuple[str, ...], float]], longest: float | None = None) -> tuple[Row, ...]:
    """Rows of cells with their sizes. The `longest` bar is that of the greatest one, unless given."""
    greatest = max((size for _, size in rows), default=0) if longest is None else longest
    return tuple(Row(cells, size / greatest if greatest else 0.0) for cells, size in rows)


def place(where: str) -> tuple[str, str]:
    """The short place of the user's `file:line`, and the text of the line: `agent.py:31` and `loss = x.mean()`."""
    file, line = split_line(where)
    return span([where]), linecache.getline(file, line).split("  #")[0].strip() if line else ""


def cut(text: str, width: int) -> str:
    """The beginning of a text that is wider than `width` characters, with … at its end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def aligned(rows: Sequence[Sequence[str]], texts: int | None = None) -> list[str]:
    """Rows of cells as lines, with columns below each other. Those after the first `texts` columns end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if texts is None or k < texts else str.rjust for k in range(len(widths))]
    return ["  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip() for row in rows]
