"""Docstrings of this project as Markdown, for the API reference: lists of `name: what it is`, and examples, become lists and code.

mkdocstrings loads this file with the package that it reads (`extensions` in mkdocs.yml). Nothing is imported from the package itself.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

NAMED = re.compile(r"(?P<names>\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (?P<text>\S.*)")


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is shown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring with its `name: text` lines as a list, and its `>>>` lines as code."""
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    if block.lstrip().startswith(">>>"):
        return f"```pycon\n{block}\n```"
    lines = block.split("\n")
    if not NAMED.fullmatch(lines[0]) or not all(NAMED.fullmatch(line) or line.startswith("    ") for line in lines):
        return block
    return "\n".join(NAMED.sub(r"- `\g<names>`: \g<text>", line) if NAMED.fullmatch(line) else line for line in lines)
