"""A page as HTML for notebooks. It folds without a script (`details`), loads nothing, and takes its colours from the notebook around it.

`Shown` is the base of tensors, programs, plans and profiles, which show themselves so.
"""

from __future__ import annotations

from html import escape

from tempo_core.report.pages.page import Page, Picture, Table, Text

# Text has the notebook's colour, and lines a half-clear grey, so that light and dark both work. Only pictures have to know which it is: the
# notebook's theme says so, or else the system. `.tempo` stands three times, so that rules of the notebook for its tables do not win.
STYLE = """
.tempo{font:13px/1.5 system-ui,sans-serif;max-width:72em;border:1px solid #8886;border-radius:6px;padding:8px 12px;margin:4px 0}
.tempo code,.tempo pre{font:12px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
.tempo code,.tempo pre,.tempo tr,.tempo th,.tempo td{background:none;color:inherit;border:0;padding:0 16px 0 0;margin:0;text-align:left}
.tempo .formula{margin:6px 16px;overflow:auto hidden;font-size:16px}
.tempo mtd{text-align:left;padding:2px .6em 2px 0}
.tempo th{opacity:.65;font-weight:400}
.tempo summary{cursor:pointer}
.tempo .part{border-top:1px solid #8886;padding:2px 0;overflow-x:auto}
.tempo .part pre,.tempo .part svg{margin-left:16px}
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
    states = [" open", *[""] * len(page.parts)]
    parts = (_folded("part", escape(part.title), _part(part), state) for part, state in zip(page.parts, states, strict=False))
    head = f"<b><code>{escape(page.name)}</code></b><table>{facts}</table>"
    return f'<div class="tempo"><style>{STYLE}</style>{head}{formula}{"".join(parts)}</div>'


def _folded(kind: str, title: str, inside: str, state: str = "") -> str:
    """What a click on its title shows."""
    return f'<details class="{kind}"{state}><summary>{title}</summary>{inside}</details>'


def _part(part: Table | Text | Picture) -> str:
    if isinstance(part, Picture):
        return part.svg
    html = ""
    for title, lines in part.blocks():
        inside = "<pre>" + escape("\n".join(lines)) + "</pre>"
        html += _folded("fold", f"<code>{escape(title)}</code>", inside) if title else inside
    return html
