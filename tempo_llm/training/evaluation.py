"""What held-out rows and prompts say of a model in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tempo_core as tp
from tempo_llm.config import LlamaConfig
from tempo_llm.training.lessons import Lesson
from tempo_llm.training.program import Arrays, trace_evaluation
from tempo_llm.training.rows import Rows


class Measure(Protocol):
    """Figures of a model by their names, which begin with `held_out_`, from its weights, float32."""

    def figures(self, weights: Arrays) -> dict[str, float]: ...


class Evaluation:
    """The mean loss over held-out rows, with one compiled program."""

    def __init__(self, config: LlamaConfig, rows: Rows, options: Mapping[str, Any]):
        traced = trace_evaluation(config, rows)
        program = traced.context.compile(traced.bounds, traced.outputs[0], tp.Config(**options))
        self.program = program.compile()  # before the first report, so that no report waits for XLA to be saved
        self.rows = rows

    def loss(self, weights: Arrays) -> float:
        return float(self.program.run({**self.rows.inputs(), **weights}))

    def figures(self, weights: Arrays) -> dict[str, float]:
        return {"held_out_loss": self.loss(weights)}


def completions(model: Any, asked: Sequence[Lesson]) -> list[str]:
    """What the model writes after the prompts of lessons, greedily, in one batch, up to an end token.

    It may write as much as the longest completion, and the end token behind it.
    """
    if not asked:
        return []
    most = max(len(model.tokenizer.encode(lesson.completion, raw=True)) for lesson in asked)  # with a begin token
    generation = model.generate([lesson.prompt for lesson in asked], most)
    return [completion.text or "" for completion in generation.completions]


def exact_by_kind(asked: Sequence[Lesson], texts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """By the kinds of lessons, how many of the texts are the completions, and how many there are."""
    kinds: dict[str, tuple[int, int]] = {}
    for lesson, text in zip(asked, texts, strict=True):
        right, count = kinds.get(lesson.kind, (0, 0))
        kinds[lesson.kind] = (right + is_exact(lesson, text), count + 1)
    return kinds


def is_exact(lesson: Lesson, text: str) -> bool:
    """Whether a text is the completion of a lesson, and nothing else."""
    return text == lesson.completion
