"""A page as HTML for notebooks. It folds without a script (`details`), loads nothing, and takes its colours from the notebook around it.

`Shown` is the base of tensors, programs, plans and profiles, which show themselves so.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tempo_core.report.pages.page import Group, Page, Picture, Table, Text

# Text has the notebook's colour, and all else is a shade of it, so that light and dark both work. Only pictures have to know which it is:
# the notebook's theme says so, or else the system.
STYLE = """
.tempo{--line:color-mix(in srgb,currentColor 18%,transparent);--soft:color-mix(in srgb,currentColor 5%,transparent);
 font:13px/1.5 system-ui,sans-serif;max-width:72em;border:1px solid var(--line);border-radius:6px;padding:8px 12px;margin:4px 0}
.tempo *{box-sizing:border-box}
.tempo code,.tempo pre{font:12px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;background:none;color:inherit;padding:0;margin:0}
.tempo .head{font-weight:600;margin-bottom:2px}
.tempo dl{display:grid;grid-template-columns:max-content 1fr;gap:0 16px;margin:0 0 4px}
.tempo dt{float:none;width:auto;margin:0}
.tempo dt,.tempo small,.tempo th{opacity:.65;font-weight:400;font-size:12px}
.tempo dd{margin:0;padding:0;overflow-wrap:anywhere}
.tempo .formula{margin:6px 0 4px 16px;padding-bottom:4px;overflow:auto hidden;font-size:16px}
.tempo math{font-family:"Latin Modern Math","STIX Two Math","Cambria Math","DejaVu Math TeX Gyre",math}
.tempo mtable{math-style:normal}
.tempo msub>:nth-child(2){padding-top:.15em}
.tempo mtd{text-align:left;padding:2px .6em 2px 0}
.tempo summary{cursor:pointer;padding:2px 4px;border-radius:4px}
.tempo summary:hover{background:var(--soft)}
.tempo .part{border-top:1px solid var(--line);padding:2px 0}
.tempo .part>summary{font-weight:600}
.tempo .part>div,.tempo .part>pre{overflow-x:auto;padding:2px 0 6px 16px}
.tempo .line>summary{display:grid;grid-template-columns:10px 9.5em minmax(0,1fr) 8em 7em;gap:0 8px;align-items:center;list-style:none}
.tempo .line>summary::before{content:"▸";opacity:.65}
.tempo .line[open]>summary::before{content:"▾"}
.tempo .line>summary code,.tempo .line>summary small{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.tempo .line>summary b{font-weight:400;text-align:right;font-variant-numeric:tabular-nums}
.tempo .line>div{overflow-x:auto;padding:0 0 6px 22px}
.tempo table{border-collapse:collapse;border:0;margin:2px 0;font-size:12px;width:auto}
.tempo tr,.tempo th,.tempo td{background:none;border:0;text-align:left;padding:1px 16px 1px 0;white-space:nowrap;color:inherit}
.tempo tbody tr:hover{background:var(--soft)}
.tempo .n{text-align:right;font-variant-numeric:tabular-nums}
.tempo .bar{width:7em;height:8px;display:inline-block;border-radius:4px;background:var(--soft);overflow:hidden}
.tempo .bar i{display:block;height:100%;border-radius:4px;background:#4a8fe0}
.tempo svg{display:block;border-radius:4px}
body:is([data-jp-theme-light=false],[data-vscode-theme-kind=vscode-dark]) .tempo svg{filter:invert(.88) hue-rotate(180deg)}
@media(prefers-color-scheme:dark){body:not([data-jp-theme-light],[data-vscode-theme-kind]) .tempo svg{filter:invert(.88) hue-rotate(180deg)}}
@media(max-width:560px){.tempo .line>summary{grid-template-columns:10px minmax(0,1fr) max-content}
 .tempo .line>summary small,.tempo .line>summary .bar{display:none}}
""".replace("\n", "").replace(
    ".tempo ", ".tempo" * 3 + " "
)  # three times, so that rules of the notebook for its tables do not win


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
    facts = "".join(f"<dt>{escape(word)}</dt><dd>{escape(value)}</dd>" for word, value in page.facts)
    formula = f'<div class="formula"><math displaystyle="true">{page.formula.mathml}</math></div>' if page.formula else ""
    parts = (_part(part, is_open=number == 0) for number, part in enumerate(page.parts))
    head = f'<div class="head"><code>{escape(page.name)}</code></div>'
    return f'<div class="tempo"><style>{STYLE}</style>{head}<dl>{facts}</dl>{formula}{"".join(parts)}</div>'


def _part(part: Table | Text | Picture, is_open: bool) -> str:
    if isinstance(part, Table):
        inside = f"<div>{''.join(_group(part, group) for group in part.groups)}</div>"
    elif isinstance(part, Text):
        inside = f"<pre>{escape(part.text)}</pre>"
    else:
        inside = f"<div>{part.svg}</div>"
    return f'<details class="part"{" open" if is_open else ""}><summary>{escape(part.title)}</summary>{inside}</details>'


def _group(table: Table, group: Group) -> str:
    """The rows of a group, folded under its title."""
    has_bars = any(row.share is not None for row in group.rows)
    head = _cells("th", table, table.columns) + ("<th></th>" if has_bars else "")
    bars = ["" if row.share is None else f"<td>{_bar(row.share)}</td>" for row in group.rows]
    body = "".join(f"<tr>{_cells('td', table, row.cells)}{bar}</tr>" for row, bar in zip(group.rows, bars, strict=True))
    rows = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if not group.title:
        return rows
    bar = "" if group.share is None else _bar(group.share)
    title = f"<small>{escape(group.place)}</small><code>{escape(group.title)}</code><b>{escape(group.amount)}</b>{bar}"
    return f'<details class="line"><summary>{title}</summary><div>{rows}</div></details>'


def _cells(tag: str, table: Table, cells: Iterable[str]) -> str:
    sides = (' class="n"' if is_number else "" for is_number in table.numbers)
    return "".join(f"<{tag}{side}>{escape(cell)}</{tag}>" for side, cell in zip(sides, cells, strict=True))


def _bar(share: float) -> str:
    return f'<span class="bar"><i style="width:{100 * share:.1f}%"></i></span>'
