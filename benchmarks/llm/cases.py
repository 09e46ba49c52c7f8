"""The rows of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

Kind = Literal["decode", "first token", "memory"]


@dataclass(frozen=True)
class Case:
    """Work at a size. `position` is the number of tokens that are there, about: tokens around it are timed, or it is a prompt's length."""

    kind: Kind
    dtype: str
    window: int  # 0: every token so far
    rows: int
    position: int

    @property
    def name(self) -> str:
        place = f"prompt={self.position}" if self.kind == "first token" else f"t={self.position}"
        window = f" window={self.window}" if self.window else ""
        return f"{self.kind} rows={self.rows} {place}{window} {self.dtype}"

    @property
    def unit(self) -> str:
        return {"decode": "ms/token", "first token": "ms", "memory": "MB"}[self.kind]


@dataclass(frozen=True)
class Sizes:
    """Which rows there are: for float32 all, for other dtypes those at the `middle` position and prompt."""

    model: str
    rows: Sequence[int]
    positions: Sequence[int]
    prompts: Sequence[int]
    windows: Sequence[int]
    dtypes: Sequence[str]
    tokens: int  # that are timed around a position

    def cases(self) -> list[Case]:
        found = []
        for dtype, window in product(self.dtypes, self.windows):
            whole = dtype == "float32"
            positions = self.positions if whole else _middle(self.positions)
            prompts = self.prompts if whole else _middle(self.prompts)
            found += [Case("decode", dtype, window, *size) for size in product(self.rows, positions)]
            found += [Case("first token", dtype, window, 1, prompt) for prompt in prompts]
            found += [Case("memory", dtype, window, rows, positions[-1]) for rows in self.rows]
            found += [Case("memory", dtype, window, 1, prompts[-1])]
        return list(dict.fromkeys(found))


def _middle(sizes: Sequence[int]) -> Sequence[int]:
    """The middle one; the first of two."""
    return sizes[(len(sizes) - 1) // 2 : (len(sizes) - 1) // 2 + 1]


FULL = Sizes("100M", (1, 4), (100, 1000, 2000), (512, 2000, 8000), (0, 256), ("float32", "bfloat16", "int8", "int4"), 42)
QUICK = Sizes("tiny", (2,), (16,), (12,), (4,), ("float32",), 6)
