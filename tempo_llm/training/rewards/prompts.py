"""Prompts to learn from, and pairs of texts of which one is preferred: lines of JSON, as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.runs.commands import RecipeError
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.examples import Forms, Line, encode_parts
from tempo_llm.types import BoolArray, IntArray

NOTHING = -1  # in place of a token behind the end of a text
FORMS = Forms(
    {"reference": ("prompt", "reference"), "prompt": ("prompt",)},
    "no prompt",
    'write {"prompt": ...}, or {"prompt": ..., "reference": ...}',
)


@dataclass(frozen=True)
class Prompts:
    """`tokens` int32 [prompts, width] with `start` int32 [prompts] tokens each, `reference` int32 [prompts, new tokens], NOTHING behind its end
    token; `ends` bool [vocabulary] are the tokens that end a text. `asked` and `answers` are prompts and references as texts."""

    tokens: IntArray
    start: IntArray
    reference: IntArray
    ends: BoolArray
    asked: Sequence[str] = field(default=())
    answers: Sequence[str | None] = field(default=())

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Prompts:
        return Prompts(self.tokens[rows], self.start[rows], self.reference[rows], self.ends, self.asked[rows], self.answers[rows])

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    @property
    def content(self) -> bytes:
        """What other prompts would have otherwise."""
        return self.tokens.tobytes() + self.start.tobytes() + self.reference.tobytes() + self.ends.tobytes()

    def inputs(self) -> dict[str, np.ndarray]:
        return {"prompts": self.tokens, "start": self.start, "reference": self.reference}

    def traced(self, domain: tuple[Expr, ...] = ()) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs of a program: of all prompts, or, over a step of `domain`, of one at each point."""
        lead = () if domain else (len(self),)
        shapes = {"prompts": (*lead, self.width), "start": lead, "reference": (*lead, self.reference.shape[1])}
        prompts, start, reference = (tp.input(name, shape, "int32", domain=domain) for name, shape in shapes.items())
        return prompts, start, reference


def prompts_of(lines: Sequence[Line], tokenizer: Tokenizer, ends: Sequence[int], vocabulary: int, new_tokens: int) -> Prompts:
    """The prompts of lines, with the references of those that have one, which are followed by the first end token.

    Raises RecipeError for an empty prompt, and for a reference that is longer than `new_tokens`.
    """
    starts: list[list[int]] = []
    reference = np.full((len(lines), new_tokens), NOTHING, np.int32)
    for line, row in zip(lines, reference, strict=True):
        answer = line.texts.get("reference")
        before, behind = encode_parts(line.texts["prompt"], answer or "", tokenizer)
        if not before:
            raise RecipeError(f"{line.where}: the prompt is empty", hint="a model writes behind at least one token")
        starts.append(before)
        if answer is None:
            continue
        behind = [*behind, *ends[:1]]
        if len(behind) > new_tokens:
            raise RecipeError(
                f"{line.where}: the reference has {len(behind)} tokens with its end token, more than new_tokens={new_tokens}",
                hint=f"let the model write longer texts: new_tokens={len(behind)}",
            )
        row[: len(behind)] = behind
    tokens = np.zeros((len(lines), max(map(len, starts))), np.int32)
    for each, row in zip(starts, tokens, strict=True):
        row[: len(each)] = each
    is_end = np.zeros(vocabulary, np.bool_)
    is_end[list(ends)] = True
    start = np.asarray([len(each) for each in starts], np.int32)
    texts = [line.texts["prompt"] for line in lines]
    return Prompts(tokens, start, reference, is_end, texts, [line.texts.get("reference") for line in lines])
