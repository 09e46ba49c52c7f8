"""What an object shows of itself: a page of facts, tables, texts, pictures and formulas. `html` and `terminal` show every page alike."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.ir.names.source_lines import short_file, split_line
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
    if not line:
        return "", ""
    return f"{short_file(file)}:{line}", linecache.getline(file, line).split("  #")[0].strip()
