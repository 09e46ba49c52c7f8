"""The program of the front page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docs.figures.execution import svg, traced
from tempo_core.program import Program

README = Path(__file__).resolve().parents[2] / "README.md"
LENGTH = 8  # timesteps in the picture
TENSORS = ("x", "past", "reward", "value")


def code() -> str:
    """The block of README.md after the marker `example`."""
    block = re.search(r"<!-- example -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block, "README.md has no block after <!-- example -->"
    return block[1]


def program(text: str) -> Program:
    """The example's program, for the length in the picture."""
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, str(README), "exec"), namespace)
    ctx, value = namespace["ctx"], namespace["value"]
    T = value.domain.steps[0].bound_symbol
    compiled: Program = ctx.compile({T: LENGTH}, outputs=[value])
    return compiled


def picture() -> str:
    text = code()
    _, shown, _ = text.split("\n\n")  # imports, the program, and what is done with it
    compiled = program(text)
    return svg(shown, compiled.text("program"), traced(compiled, TENSORS), f"T = {LENGTH}")
