"""What shows itself: the base of tensors, programs, plans and profiles."""

from __future__ import annotations

from tempo_core.report.pages.html import html
from tempo_core.report.pages.page import Page


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
