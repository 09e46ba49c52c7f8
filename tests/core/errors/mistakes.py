"""Programs with one mistake each: the exception that the mistake must raise, and its line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import tempo_core as tp
from tempo_core import errors

Mistake = Callable[[], Any]
MISTAKES: dict[str, tuple[type[errors.TempoError], Mistake]] = {}


def raises(error: type[errors.TempoError]) -> Callable[[Mistake], Mistake]:
    """Register a program that must raise `error` at the line with `# wrong` at its end."""

    def register(mistake: Mistake) -> Mistake:
        assert mistake.__name__ not in MISTAKES, f"there is a mistake {mistake.__name__} already"
        MISTAKES[mistake.__name__] = (error, mistake)
        return mistake

    return register


class Program:
    """The start of most mistakes: steps i and t, an input x over both, of shape (3,), and an input y over t."""

    def __enter__(self) -> Program:
        self.ctx = tp.Context("i", "t")
        (self.i, self.I), (self.t, self.T) = self.ctx.__enter__()
        self.x = tp.input("x", (3,), domain=(self.i, self.t))
        self.y = tp.input("y", (), domain=(self.t,))
        self.bounds = {self.I: 2, self.T: 4}
        return self

    def __exit__(self, *_: object) -> None:
        self.ctx.__exit__()

    def compile(self, *outputs: tp.Tensor) -> tp.Program:
        return self.ctx.compile(self.bounds, outputs=outputs)


def raised(name: str) -> errors.TempoError:
    """The exception that a mistake raises."""
    error, mistake = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    return caught.value


def wrong_line(mistake: Mistake) -> str:
    """`file:line` of the line that is marked."""
    lines, first = inspect.getsourcelines(mistake)
    number = first + next(k for k, line in enumerate(lines) if line.rstrip().endswith("# wrong"))
    return f"{inspect.getsourcefile(mistake)}:{number}"


def without_lines(text: str) -> str:
    """A message without the numbers of lines and of unnamed tensors, so that other changes of the file do not change it."""
    text = re.sub(r"(?<!\W[a-z])%\d+", "%", re.sub(r"[\w./-]+\.py:\d+", "program.py", text))
    return re.sub(r"\s*# w\S*(?=\n|$)", "", text)
