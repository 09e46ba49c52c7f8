"""Pairs of texts, of which one is preferred, as rows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.runs.commands import RecipeError
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.examples import Forms, Line, encode_parts
from tempo_llm.types import BoolArray, IntArray

FORMS = Forms(
    {"pair": ("prompt", "chosen", "rejected")},
    "no prompt with a chosen and a rejected text",
    'write {"prompt": ..., "chosen": ..., "rejected": ...}',
)


@dataclass(frozen=True)
class Pairs:
    """`tokens` int32 [pairs, 2, length + 1], the chosen text first, and `counted` bool [pairs, 2, length]: whether the token behind counts."""

    tokens: IntArray
    counted: BoolArray

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | IntArray) -> Pairs:
        return Pairs(self.tokens[rows], self.counted[rows])

    @property
    def length(self) -> int:
        return self.tokens.shape[2] - 1

    @property
    def content(self) -> bytes:
        """What other pairs would have otherwise."""
        return self.tokens.tobytes() + self.counted.tobytes()

    def inputs(self) -> dict[str, np.ndarray]:
        return {"pairs": self.tokens, "counted": self.counted}

    def traced(self, domain: tuple[Expr, ...] = ()) -> tuple[Tensor, Tensor]:
        """The inputs of a program: of all pairs, or, over a step of `domain`, of one at each point."""
        lead = () if domain else (len(self),)
        tokens = tp.input("pairs", (*lead, 2, self.length + 1), "int32", domain=domain)
        return tokens, tp.input("counted", (*lead, 2, self.length), "bool", domain=domain)


def pairs_of(lines: Sequence[Line], tokenizer: Tokenizer, ends: Sequence[int], length: int, say: Callable[[str], None]) -> Pairs:
    """The pairs of lines: the prompt, a text behind it, and the first end token. Texts are cut after `length` tokens and the one behind.

    `say` gets a note on what is cut. Raises RecipeError for a pair with two equal texts, also where only what is cut differs, or without a text.
    """
    rows: list[tuple[list[int], int]] = []
    for line in lines:
        pair = []
        for name in ("chosen", "rejected"):
            before, behind = encode_parts(line.texts["prompt"], line.texts[name], tokenizer)
            pair.append(([*before, *behind, *ends[:1]], len(before)))
        (chosen, first), (rejected, second) = pair
        if max(first, second) > length or not min(first, second):
            raise RecipeError(
                f"{line.where}: the prompt has {max(first, second)} tokens, so that no text is left within length={length}",
                hint="a prompt has at least one token, and less than a row: length=1024",
            )
        if chosen[: length + 1] == rejected[: length + 1]:
            raise RecipeError(
                f"{line.where}: the chosen and the rejected text are the same within length={length} tokens",
                hint="leave the line out, or use longer rows: length=1024",
            )
        rows += pair
    cut = sum(len(tokens) > length + 1 for tokens, _ in rows)
    if cut:
        say(f"{cut} of {len(rows)} texts are longer than length={length} tokens: their ends are left out")
    width = min(max(len(tokens) for tokens, _ in rows), length + 1)
    tokens, counted = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width - 1), np.bool_)
    for row, mask, (each, first) in zip(tokens, counted, rows, strict=True):
        row[: len(each)] = each[:width]
        mask[first - 1 : len(each) - 1] = True
    return Pairs(tokens.reshape(-1, 2, width), counted.reshape(-1, 2, width - 1))
