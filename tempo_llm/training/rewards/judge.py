"""Rewards that a function in Python gives."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tempo_core.runs.commands import RecipeError, RunError
from tempo_llm.errors import shown
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.rewards.prompts import NOTHING, Prompts
from tempo_llm.types import FloatArray, IntArray

Function = Callable[..., Sequence[float]]
"""A reward: of prompts, of completions, and, if it takes three arguments, of references, one number each."""
HINT = "write: def reward(prompts, completions, references): return [float(c == r) for c, r in zip(completions, references)]"


def load_function(reference: str) -> Function:
    """The function `module:name`, found from the working directory. Raises RecipeError."""
    module, _, name = reference.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        function: Function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecipeError(f"reward={reference} cannot be imported: {error}", hint="name it as module:function") from error
    if not callable(function):
        raise RecipeError(f"reward={reference} is {shown(function)}, and not a function", hint=HINT)
    return function


class Judge:
    """The rewards of texts behind `prompts` by a function. The function's own state, if it has some, is saved with the run."""

    def __init__(self, name: str, function: Function, prompts: Prompts, tokenizer: Tokenizer):
        self.name, self.function, self.prompts, self.tokenizer = name, function, prompts, tokenizer
        try:
            count = len(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # a function in C
            count = 3
        if count not in (2, 3):
            raise RecipeError(f"the reward {name} takes {count} arguments, and not two or three", hint=HINT)
        self.takes_references = count == 3

    def judge(self, rows: IntArray, tokens: IntArray) -> tuple[FloatArray]:
        """Rewards float32 [prompts, texts] of tokens int32 [prompts, texts, length], behind the prompts of these numbers. Raises RunError."""
        count = tokens.shape[1]
        befores = [self.prompts.tokens[row, : self.prompts.start[row]].tolist() for row in rows]
        texts = [
            self.tokenizer.decode(text[text != NOTHING].tolist(), before)
            for before, group in zip(befores, tokens, strict=True)
            for text in group
        ]
        prompts = [self.prompts.asked[row] for row in rows for _ in range(count)]
        arguments: list[list[Any]] = [prompts, texts]
        if self.takes_references:
            arguments.append([self.prompts.answers[row] for row in rows for _ in range(count)])
        return (self._checked(self._called(arguments), texts).reshape(tokens.shape[:2]),)

    def _called(self, arguments: Sequence[list[Any]]) -> object:
        try:
            return self.function(*arguments)
        except Exception as error:
            raise RunError(f"the reward {self.name} failed: {type(error).__name__}: {error}") from error

    def _checked(self, values: object, texts: Sequence[str]) -> FloatArray:
        try:
            rewards = np.asarray(values, np.float32)
        except (TypeError, ValueError):
            raise RunError(f"the reward {self.name} gave {shown(values)}, and not numbers", hint=HINT) from None
        if rewards.shape != (len(texts),):
            raise RunError(
                f"the reward {self.name} gave numbers of the shape {rewards.shape} for {len(texts)} texts",
                hint="give one number for each text",
            )
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            raise RunError(f"the reward {self.name} gave {rewards[bad[0]]} for the text {shown(texts[bad[0]])}")
        return rewards

    def state(self) -> Mapping[str, np.ndarray]:
        return self.function.state() if hasattr(self.function, "state") else {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        if hasattr(self.function, "restore"):
            self.function.restore(arrays)
