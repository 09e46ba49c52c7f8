"""A page for `rich.print`: facts, the equation, tables with bars, and texts. A terminal does not fold, and shows no pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.text import Text as Styled

from tempo_core.report.pages.page import Group, Page, Row, Table, Text, cut

BAR, INDENT, LEAST = 10, "  ", 6  # characters: of the longest bar, before the lines of a part, and of a title that is cut


@dataclass(frozen=True)
class Lines:
    """A page that `rich` prints as wide as the terminal is."""

    page: Page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Styled]:
        wide = max((len(word) for word, _ in self.page.facts), default=0)
        yield Styled(self.page.name, "bold")
        for word, value in self.page.facts:
            yield Styled.assemble((word.ljust(wide), "dim"), "  ", value)
        if self.page.formula is not None:
            yield Styled(self.page.formula.text, "italic")
        for part in self.page.parts:
            if isinstance(part, (Table, Text)):
                yield Styled(f"\n{part.title}", "bold")
                lines = _table(part, options.max_width) if isinstance(part, Table) else map(Styled, part.text.splitlines())
                yield from (Styled.assemble(INDENT, line) for line in lines)


def _table(table: Table, width: int) -> Iterator[Styled]:
    """The header, then the rows of each group below its title."""
    header, *lines = table.lines(width - len(INDENT) - BAR - 2)
    whole = max(map(len, (header, *lines)))
    yield Styled(header, "dim")
    rows = iter(lines)
    for group in table.groups:
        if group.title:
            tail = f"  {group.place}  {group.amount}"
            room = max(LEAST, whole - len(tail))
            yield Styled.assemble((cut(group.title, room).ljust(room), "bold"), (tail, "dim"), _bar(group))
        yield from (Styled.assemble(next(rows).ljust(whole), _bar(row)) for row in group.rows)


def _bar(of: Row | Group) -> Styled:
    return Styled("" if of.share is None else "  " + "█" * max(round(BAR * of.share), of.share > 0), "blue")
