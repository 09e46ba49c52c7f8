"""Rows of tokens, and which of the tokens count for the loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.types import BoolArray, IntArray


@dataclass(frozen=True)
class Rows:
    """`tokens` int32 [rows, length + 1], and `counted` bool [rows, length]: whether the loss is also of the token behind. Without it, of all."""

    tokens: IntArray
    counted: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.tokens[rows], None if self.counted is None else self.counted[rows])

    @property
    def length(self) -> int:
        """Tokens of a row for each of which the model says what comes next."""
        return self.tokens.shape[1] - 1

    @property
    def content(self) -> bytes:
        """What another text would have otherwise."""
        return self.tokens.tobytes() + (b"" if self.counted is None else self.counted.tobytes())

    def inputs(self) -> dict[str, np.ndarray]:
        return {"rows": self.tokens, **({} if self.counted is None else {"counted": self.counted})}

    def traced(self, domain: tuple[Expr, ...] = ()) -> tuple[Tensor, Tensor | None]:
        """The inputs of a program: of all rows, or, over a step of `domain`, of one at each point."""
        lead = () if domain else (len(self),)
        tokens = tp.input("rows", (*lead, self.length + 1), "int32", domain=domain)
        return tokens, None if self.counted is None else tp.input("counted", (*lead, self.length), "bool", domain=domain)
