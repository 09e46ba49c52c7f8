"""What an object shows of itself: a page of facts, tables, texts, pictures and formulas. `html` and `terminal` show every page alike."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.ir.names.source_lines import split_line
from tempo_core.ir.names.user_lines import span
from tempo_core.report.pages.formulas import Formula

Block = tuple[str, list[str]]  # lines of text under a title, which may be empty
BAR, NARROWEST = 10, 6  # characters of the longest bar, and of a column or title that is cut


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

    def lines(self, width: int | None = None) -> list[str]:
        """The columns and the rows as text, at most so many characters wide, if possible."""
        return aligned([self.columns, *(row.cells for row in self.rows)], self.numbers, width)

    def blocks(self, width: int | None = None) -> list[Block]:
        """The columns, and each group under its title, with bars."""
        room = None if width is None else width - BAR - 2
        header, *lines = self.lines(room)
        tails = [f"  {group.place}  {group.amount}" for group in self.groups]
        longest = max((len(group.title + tail) for group, tail in zip(self.groups, tails, strict=True) if group.title), default=0)
        whole = max(*map(len, (header, *lines)), longest if room is None else min(longest, room))
        blocks, rows = [("", [header])], iter(lines)
        for group, tail in zip(self.groups, tails, strict=True):
            most = max(NARROWEST, whole - len(tail))
            title = cut(group.title, most).ljust(most) + tail + _bar(group.share) if group.title else ""
            blocks.append((title, [next(rows).ljust(whole) + _bar(row.share) for row in group.rows]))
        return blocks


@dataclass(frozen=True)
class Text:
    title: str
    text: str

    def blocks(self, width: int | None = None) -> list[Block]:
        return [("", self.text.splitlines())]


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
    formula: Formula | None = None


def _bar(share: float | None) -> str:
    return "" if share is None else "  " + "█" * max(round(BAR * share), share > 0)


def with_bars(rows: Sequence[tuple[tuple[str, ...], float]], longest: float | None = None) -> tuple[Row, ...]:
    """Rows of cells with their sizes. The `longest` bar is that of the greatest one, unless given."""
    greatest = max((size for _, size in rows), default=0) if longest is None else longest
    return tuple(Row(cells, size / greatest if greatest else 0.0) for cells, size in rows)


def table_of(title: str, columns: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], float]]) -> Table:
    """A table of one group: rows of cells with their sizes, for bars."""
    return Table(title, columns, (Group(with_bars(rows)),))


def place(where: str) -> tuple[str, str]:
    """The short place of the user's `file:line`, and the text of the line: `agent.py:31` and `loss = x.mean()`."""
    file, line = split_line(where)
    return span([where]), linecache.getline(file, line).split("  #")[0].strip() if line else ""


def cut(text: str, width: int) -> str:
    """The beginning of a text that is wider than `width` characters, with … at its end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def aligned(rows: Sequence[Sequence[str]], numbers: Sequence[bool] = (), width: int | None = None) -> list[str]:
    """Rows of cells as lines, with columns below each other. Columns of `numbers` end at the right.

    The widest of the other columns are cut until a line fits into `width`, but not to fewer than six characters.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.rjust if is_number else str.ljust for is_number in numbers] or [str.ljust] * len(widths)
    texts = [k for k, side in enumerate(sides) if side is str.ljust]
    excess = sum(widths) + 2 * (len(widths) - 1) - width if width else 0
    for _ in range(excess if texts else 0):
        widest = max(texts, key=widths.__getitem__)
        widths[widest] -= widths[widest] > NARROWEST
    columns = list(zip(sides, widths, strict=True))
    return ["  ".join(side(cut(cell, w), w) for cell, (side, w) in zip(row, columns, strict=True)).rstrip() for row in rows]
