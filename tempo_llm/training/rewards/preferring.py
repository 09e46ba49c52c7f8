"""What a recipe that learns from preferences leads to: pairs of texts, and a model that goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.compiling import interruptible
from tempo_core.runs.commands import RecipeError
from tempo_core.runs.recipe import dump_recipe
from tempo_llm.training.card import Figures as CardFigures
from tempo_llm.training.evaluation import Measure
from tempo_llm.training.examples import read_lines
from tempo_llm.training.going_on import GoingOn, data_file, divided
from tempo_llm.training.program import Arrays, Figures, Receiver, Traced
from tempo_llm.training.recipe import DPORecipe
from tempo_llm.training.rewards import dpo
from tempo_llm.training.rewards.pairs import FORMS, pairs_of
from tempo_llm.training.text import order_of_rows


class Preferring(GoingOn):
    """A model and pairs of texts. Mistakes in the recipe, the data and the model are errors here. Raises RecipeError."""

    recipe: DPORecipe
    columns = ("loss", "held_out_loss", "accuracy", "held_out_accuracy", "margin", "held_out_margin")
    measured_first = ("held_out_loss", "held_out_accuracy")
    tells_plan = True

    def __init__(self, recipe: DPORecipe, say: Callable[[str], None] = print):
        super().__init__(recipe)
        if recipe.length > self.config.max_position_embeddings:
            raise RecipeError(
                f"length={recipe.length} is more than the {self.config.max_position_embeddings} positions of {self.directory}",
                hint=f"length={self.config.max_position_embeddings}",
            )
        lines = read_lines(data_file(recipe.data), FORMS)
        learned, held_out = divided(lines, [[line] for line in lines], recipe.held_out)
        form = (self.tokenizer, self.config.eos_ids, recipe.length)
        self.pairs = interruptible(lambda: pairs_of(learned, *form, say))
        self.held_out = interruptible(lambda: pairs_of(held_out[: recipe.eval_rows], *form, say))
        self.check_tokens(max(int(pairs.tokens.max()) for pairs in (self.pairs, self.held_out)))
        self.load()
        say(
            f"{len(self.pairs):,} pairs of up to {self.pairs.length} tokens to learn from, {len(self.held_out):,} held out; {self.trained}"
        )

    def traced(self, receive: Receiver, figures: Figures | None = None) -> Traced:
        return dpo.trace_dpo(self.config, self.recipe, self.pairs, receive, figures, self.adapters)

    def measure(self, options: Mapping[str, Any]) -> Measure:
        return Margins(self, options)

    @property
    def tokens(self) -> int:
        return self.recipe.report_every * self.recipe.batch_size * 2 * self.pairs.length

    @property
    def data_digest(self) -> str:
        return hashlib.sha256(self.pairs.content + self.held_out.content).hexdigest()

    def data(self) -> dict[str, np.ndarray]:
        recipe = self.recipe
        row = order_of_rows(recipe, len(self.pairs), (recipe.report_every, recipe.batch_size))
        return {**self.pairs.inputs(), "row": row}

    def card(self, figures: CardFigures) -> str:
        accuracy = figures.figures.get("held_out_accuracy")
        told = (
            ""
            if accuracy is None
            else f"\n- In {100 * accuracy:.0f} % of {len(self.held_out)} held-out pairs, the margin is above 0."
        )
        return f"""---
library_name: tempo
base_model: {self.recipe.model}
---

# {self.recipe.model}, trained by preferences

Trained by `tempo-llm train` with DPO on the pairs of `{self.recipe.data}`, from `{self.recipe.model}`, whose licence applies.

- {self.how}: {figures.updates} updates of {self.recipe.batch_size} pairs. Weights are stored as {self.saved_dtype}.{told}

The recipe, with every key:

```yaml
{dump_recipe(self.recipe)}```
"""


class Margins:
    """The loss of held-out pairs, their mean margin, and the share of those whose margin is above 0, with one compiled program."""

    def __init__(self, task: Preferring, options: Mapping[str, Any]):
        traced = dpo.trace_pairs(task.config, task.held_out)
        program = traced.context.compile(traced.bounds, traced.outputs[0], tp.Config(**options))
        self.program = program.compile()  # before the first report, so that no report waits for XLA to be saved
        self.task, self.first = task, None  # type: Preferring, np.ndarray | None

    def figures(self, weights: Arrays) -> dict[str, float]:
        if self.first is None:
            self.first = self._log_probs(self.task.weights(self.task.first_values()))
        return dpo.figures_of(self.first, self._log_probs(weights), self.task.recipe)

    def _log_probs(self, weights: Arrays) -> np.ndarray:
        return np.asarray(self.program.run({**self.task.held_out.inputs(), **weights}))
