"""A page as HTML for notebooks. It folds without a script (`details`), loads nothing, and takes its colours from the notebook around it.

`Shown` is the base of tensors, programs, plans and profiles, which show themselves so.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tempo_core.report.pages.page import Group, Page, Picture, Table, Text

# Text has the notebook's colour, and lines a half-clear grey, so that light and dark both work. Only pictures have to know which it is: the
# notebook's theme says so, or else the system. `.tempo` stands three times, so that rules of the notebook for its tables do not win.
STYLE = """
.tempo{font:13px/1.5 system-ui,sans-serif;max-width:72em;border:1px solid #8886;border-radius:6px;padding:8px 12px;margin:4px 0}
.tempo code,.tempo pre{font:12px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;background:none;color:inherit;padding:0;margin:0}
.tempo .formula{margin:6px 16px;overflow:auto hidden;font-size:16px}
.tempo mtd{text-align:left;padding:2px .6em 2px 0}
.tempo small,.tempo th{opacity:.65;font-weight:400}
.tempo summary{cursor:pointer}
.tempo details>:last-child{overflow-x:auto;padding:0 0 6px 16px}
.tempo .part{border-top:1px solid #8886;padding:2px 0}
.tempo .line{display:inline-grid;grid-template-columns:minmax(0,1fr) 9.5em 8em 7em;gap:8px;width:calc(100% - 2em);align-items:center}
.tempo .line>*{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.tempo table{border-collapse:collapse;border:0;margin:2px 0;font-size:12px}
.tempo tr,.tempo th,.tempo td{background:none;border:0;text-align:left;padding:1px 16px 1px 0;white-space:nowrap;color:inherit}
.tempo .n{text-align:right;font-variant-numeric:tabular-nums}
.tempo progress{width:7em;height:8px}
body:is([data-jp-theme-light=false],[data-vscode-theme-kind=vscode-dark]) .tempo svg{filter:invert(.88) hue-rotate(180deg)}
@media(prefers-color-scheme:dark){body:not([data-jp-theme-light],[data-vscode-theme-kind]) .tempo svg{filter:invert(.88) hue-rotate(180deg)}}
""".replace("\n", "").replace(".tempo ", ".tempo" * 3 + " ")


class Shown:
    """What shows itself: in notebooks as HTML, and by `rich.print` as tables. A class gives its page."""

    def _page(self) -> Page:
        raise AssertionError(f"{type(self).__name__} gives no page")

    def _repr_html_(self) -> str:
        """The page for notebooks: HTML that folds without a script, in light and in dark."""
        return html(self._page())

    def __rich__(self) -> object:
        """The page for `rich.print`."""
        from tempo_core.report.pages.terminal import Lines

        return Lines(self._page())


def html(page: Page) -> str:
    """The page as one element, with its style sheet."""
    facts = "".join(f"<tr><th>{escape(word)}</th><td>{escape(value)}</td></tr>" for word, value in page.facts)
    formula = f'<div class="formula"><math displaystyle="true">{page.formula.mathml}</math></div>' if page.formula else ""
    parts = (
        _folded("part", escape(part.title), _part(part), "" if number else " open") for number, part in enumerate(page.parts)
    )
    head = f"<b><code>{escape(page.name)}</code></b><table>{facts}</table>"
    return f'<div class="tempo"><style>{STYLE}</style>{head}{formula}{"".join(parts)}</div>'


def _folded(kind: str, title: str, inside: str, state: str = "") -> str:
    """What a click on its title shows."""
    return f'<details class="{kind}"{state}><summary>{title}</summary>{inside}</details>'


def _part(part: Table | Text | Picture) -> str:
    if isinstance(part, Table):
        return f"<div>{''.join(_group(part, group) for group in part.groups)}</div>"
    return f"<pre>{escape(part.text)}</pre>" if isinstance(part, Text) else f"<div>{part.svg}</div>"


def _group(table: Table, group: Group) -> str:
    """The rows of a group, folded under its title."""
    rows = (f"<tr>{_cells('td', table, row.cells)}<td>{_bar(row.share)}</td></tr>" for row in group.rows)
    inside = f"<table><tr>{_cells('th', table, table.columns)}</tr>{''.join(rows)}</table>"
    if not group.title:
        return inside
    title = f'<code>{escape(group.title)}</code><small>{escape(group.place)}</small><span class="n">{escape(group.amount)}</span>'
    return _folded("fold", f'<span class="line">{title}{_bar(group.share)}</span>', inside)


def _cells(tag: str, table: Table, cells: Iterable[str]) -> str:
    sides = (' class="n"' if is_number else "" for is_number in table.numbers)
    return "".join(f"<{tag}{side}>{escape(cell)}</{tag}>" for side, cell in zip(sides, cells, strict=True))


def _bar(share: float | None) -> str:
    return "" if share is None else f'<progress value="{share:.3f}"></progress>'
