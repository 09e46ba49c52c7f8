"""A model that reads prompts, and then texts behind them: the same expressions when tokens are drawn, and when they are there already."""

from __future__ import annotations

from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.typing import Bounds
from tempo_llm.llama import Llama, last_hidden
from tempo_llm.times import Blocks, Tokens

STEPS = ("n", "m", "s", "u", "r", "j")
BLOCK = 64  # places of a block of a prompt; shorter prompts have one block


@dataclass(frozen=True)
class Places:
    """The steps of prompts r, their blocks n (and copies m of these) of places s, and of the tokens u of texts j behind each prompt."""

    block: Expr
    blocks: Expr
    copy: Expr
    copies: Expr
    place: Expr
    places: Expr
    token: Expr
    tokens: Expr
    row: Expr
    rows: Expr
    text: Expr
    texts: Expr

    def bounds(self, width: int, tokens: int, rows: int, texts: int) -> Bounds:
        """The bounds of these steps for prompts of up to `width` tokens."""
        size = block_size(width)
        count = -(-width // size)
        return {
            self.blocks: count, self.copies: count, self.places: size, self.tokens: tokens, self.rows: rows, self.texts: texts,
        }  # fmt: skip


def block_size(width: int) -> int:
    """The places of a block of prompts of up to so many tokens."""
    return min(width, BLOCK)


class Reader:
    """A model after prompts, at the points `at`.

    `prompt` int32 [width] is over (*at, r), with any tokens behind its first `start`, int32 over (*at, r). A text has at most `most`
    positions in all.
    """

    def __init__(self, model: Llama, at: tuple[Expr, ...], places: Places, prompt: Tensor, start: Tensor, most: int):
        self.model, self.at, self.places = model, at, places
        width = int(prompt.shape[0])
        size, count = block_size(width), -(-width // block_size(width))
        n, s, r = places.block, places.place, places.row
        self.blocks = Blocks(n, places.blocks, s, size, start, tp.zeros((), "int32") + start + places.tokens, most)
        self.texts = Tokens(places.copy, places.copies, self.blocks, count > 1, places.token)
        position = tp.min(self.blocks.position, width - 1)
        self.last = last_hidden(model, prompt.index(0, position), self.blocks, r, at)

    def logits(self, token: Tensor) -> Tensor:
        """The scores float32 [vocabulary] of what `token`, int32 over (*at, u, r, j), may be: each after the prompt and the tokens before it."""
        u, r, j = self.places.token, self.places.row, self.places.text
        model, at = self.model, self.at
        after = model.after(token, (*at, u, r, j), self.texts)
        before = tp.recurrence((model.config.hidden_size,), model.weights.computed, domain=(*at, u, r, j), name="before")
        before[(*at, u, r, j, u < 1)] = self.last
        before[(*at, u, r, j)] = after[(*at, u - 1, r, j)]
        return model.logits(before)
