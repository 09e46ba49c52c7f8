"""A page for `rich.print`: facts, the equation, tables with bars, and texts. A terminal does not fold, and shows no pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, fromstring

from rich.console import Console, ConsoleOptions
from rich.text import Text as Styled

from tempo_core.report.pages.page import Group, Page, Row, Table, Text, cut

BAR, INDENT, LEAST = 10, "  ", 6  # characters: of the longest bar, before the lines of a part, and of a column that is cut
SPACED = "+−·=≠<≤>≥∧∨⊕"  # signs with a space on either side


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
            yield Styled(_plain(fromstring(self.page.formula.mathml)).rstrip("\n"), "italic")
        for part in self.page.parts:
            if isinstance(part, (Table, Text)):
                yield Styled(f"\n{part.title}", "bold")
                lines = _table(part, options.max_width) if isinstance(part, Table) else map(Styled, part.text.splitlines())
                yield from (Styled.assemble(INDENT, line) for line in lines)


def _table(table: Table, width: int) -> Iterator[Styled]:
    """The header, then the rows of each group below its title. The widest columns of text are cut until a line fits."""
    widths = [max(map(len, cells)) for cells in zip(table.columns, *(row.cells for row in table.rows), strict=True)]
    free = width - len(INDENT) - BAR - 2 * len(widths)
    texts = [k for k, is_number in enumerate(table.numbers) if not is_number]
    while texts and sum(widths) > free and (widest := max(texts, key=lambda k: widths[k])) is not None and widths[widest] > LEAST:
        widths[widest] -= 1
    yield _line(table, widths, Row(table.columns), "dim")
    for group in table.groups:
        if group.title:
            tail, whole = f"  {group.place}  {group.amount}  ", sum(widths) + 2 * len(widths)
            room = max(LEAST, whole - len(tail))
            yield Styled.assemble((cut(group.title, room).ljust(room), "bold"), (tail, "dim"), _bar(group))
        yield from (_line(table, widths, row, "") for row in group.rows)


def _line(table: Table, widths: Sequence[int], row: Row, style: str) -> Styled:
    cells = [
        (cell.rjust if is_number else cut(cell, width).ljust)(width)
        for cell, width, is_number in zip(row.cells, widths, table.numbers, strict=True)
    ]
    return Styled.assemble(("  ".join(cells) + "  ", style), _bar(row))


def _bar(of: Row | Group) -> Styled:
    return Styled("" if of.share is None else "█" * max(round(BAR * of.share), of.share > 0), "blue")


def _plain(math: Element) -> str:
    """A formula as a line of text, from its MathML: `w[i + 1] = w[i] − 0.01 · ∂loss / ∂w[i]`."""
    parts = [_plain(part) for part in math]
    grouped = [f"({part})" if any(f" {sign} " in f" {part}" for sign in f"{SPACED}∑∏") else part for part in parts]
    if math.tag == "msub":
        return f"{parts[0]}[{parts[1]}]"
    if math.tag in ("msup", "munder"):
        return f"{parts[0]}{'^' if math.tag == 'msup' else '_'}{grouped[1]}"
    if math.tag == "mfrac":
        return " / ".join(grouped)
    if math.tag == "msqrt":
        return f"√({parts[0]})"
    if math.tag == "mtr":
        return " ".join(parts) + ("\n" if len(parts) == 1 else "; ")
    text = " " if math.tag == "mspace" else math.text or ""
    if math.tag == "mo":
        is_spaced = text in SPACED and math.get("form") != "prefix"
        return "" if text == "{" else f" {text} " if is_spaced else f"{text} " if text in ",∑∏" else text
    return text + "".join(parts)
