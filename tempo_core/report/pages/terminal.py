"""A page for `rich.print`: facts, the equation, tables with bars, and texts. A terminal does not fold, and shows no pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.text import Text as Styled

from tempo_core.report.pages.page import Page, Picture

INDENT = "  "  # before the lines of a part


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
            if not isinstance(part, Picture):
                yield Styled(f"\n{part.title}", "bold")
                for title, lines in part.blocks(options.max_width - len(INDENT)):
                    yield from [Styled(f"{INDENT}{title}", "bold")] if title else []
                    yield from (Styled(f"{INDENT}{line}") for line in lines)
