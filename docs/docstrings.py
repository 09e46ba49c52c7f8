"""Docstrings of this project as Markdown, for the API reference: lists of `name: what it is`, and examples, become lists and code.

mkdocstrings loads this file with the package that it reads (`extensions` in mkdocs.yml). Nothing is imported from the package itself.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import griffe

NAMED = re.compile(r"(?P<names>\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (?P<text>\S.*)")
CLASSES = Path(__file__).resolve().parent.parent / "tempo_core" / "frontend" / "methods"
METHODS = {  # of tensors, by name: the place of each, in one of the classes that `Tensor` is made of
    method.name: f"tempo_core.frontend.methods.{path.stem}.{kind.name}.{method.name}"
    for path in CLASSES.glob("*.py")
    for kind in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(kind, ast.ClassDef)
    for method in kind.body
    if isinstance(method, ast.FunctionDef)
}


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is shown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_module_members(self, *, node: ast.AST | griffe.ObjectNode, mod: griffe.Module, **_: Any) -> None:
        """`exp, log = Tensor.exp, Tensor.log`: functions that are declared once, as methods."""
        for statement in node.body if isinstance(node, ast.Module) else ():
            if isinstance(statement, ast.Assign):
                names, values = (getattr(part, "elts", [part]) for part in (statement.targets[0], statement.value))
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Attribute) and ast.unparse(value.value) == "Tensor":
                        mod.set_member(name.id, griffe.Alias(name.id, METHODS[value.attr], parent=mod))


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
