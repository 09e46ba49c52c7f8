"""What a recipe that learns from rewards leads to: prompts, a reward, and a model that goes on."""

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
from tempo_llm.training.recipe import GRPORecipe
from tempo_llm.training.rewards import grpo
from tempo_llm.training.rewards.judge import Function, Judge, load_function
from tempo_llm.training.rewards.prompts import FORMS, Prompts, prompts_of
from tempo_llm.training.text import order_of_rows


class Rewarded(GoingOn):
    """A model, prompts and a reward. Mistakes in the recipe, the data and the model are errors here. Raises RecipeError."""

    recipe: GRPORecipe
    columns = ("reward", "held_out_reward", "held_out_length", "loss")
    measured_first = ("held_out_reward",)
    tells_plan = True

    def __init__(self, recipe: GRPORecipe, say: Callable[[str], None] = print):
        super().__init__(recipe)
        self.function: Function | None = None if recipe.reward == "exact" else load_function(recipe.reward)
        lines = read_lines(data_file(recipe.data), FORMS)
        alone = next((line for line in lines if line.form == "prompt"), None)
        if alone is not None and self.function is None:
            raise RecipeError(
                f"{alone.where} has no reference, which reward=exact compares texts with",
                hint='write {"prompt": ..., "reference": ...}, or name a function: reward=module:function',
            )
        learned, held_out = divided(lines, [[line] for line in lines], recipe.held_out)
        form = (self.tokenizer, self.config.eos_ids, self.config.vocab_size, recipe.new_tokens)
        self.prompts, self.held_out = interruptible(
            lambda: (prompts_of(learned, *form), prompts_of(held_out[: recipe.eval_rows], *form))
        )
        for prompts in (self.prompts, self.held_out):
            self.check_tokens(int(max(prompts.tokens.max(), prompts.reference.max())))
        longest, most = max(int(p.start.max()) for p in (self.prompts, self.held_out)), self.config.max_position_embeddings
        if longest + recipe.new_tokens > most:
            raise RecipeError(
                f"a prompt of {longest} tokens and new_tokens={recipe.new_tokens} are more than the {most} positions of {self.directory}",
                hint="use shorter prompts, or fewer new tokens",
            )
        self.load()
        say(
            f"{len(self.prompts):,} prompts of up to {longest} tokens to learn from, {len(self.held_out):,} held out; {self.trained}; "
            f"reward: {recipe.reward}"
        )

    def judge(self, prompts: Prompts) -> grpo.Judge | None:
        """The rewards of texts behind `prompts`, if they are given by a function."""
        return None if self.function is None else Judge(self.recipe.reward, self.function, prompts, self.tokenizer).judge

    def traced(self, receive: Receiver, figures: Figures | None = None) -> Traced:
        return grpo.trace_grpo(self.config, self.recipe, self.prompts, receive, figures, self.adapters, self.judge(self.prompts))

    def measure(self, options: Mapping[str, Any]) -> Measure:
        return Writing(self, options)

    @property
    def tokens(self) -> int:
        recipe = self.recipe
        return recipe.report_every // recipe.epochs * recipe.prompts * recipe.group * recipe.new_tokens

    @property
    def data_digest(self) -> str:
        return hashlib.sha256(self.prompts.content + self.held_out.content).hexdigest()

    def data(self) -> dict[str, np.ndarray]:
        recipe = self.recipe
        row = order_of_rows(recipe, len(self.prompts), (recipe.report_every // recipe.epochs, recipe.prompts))
        return {**self.prompts.inputs(), "row": row}

    def card(self, figures: CardFigures) -> str:
        return f"""---
library_name: tempo
base_model: {self.recipe.model}
---

# {self.recipe.model}, trained by a reward

Trained by `tempo-llm train` with GRPO on the prompts of `{self.recipe.data}`, from `{self.recipe.model}`, whose licence applies.

- {self.how}: {figures.updates} updates. Each is of {self.recipe.prompts} prompts, with {self.recipe.group} texts each.
- Weights are stored as {self.saved_dtype}.
- The reward is `{self.recipe.reward}`.{_told(figures)}

The recipe, with every key:

```yaml
{dump_recipe(self.recipe)}```
"""


def _told(figures: CardFigures) -> str:
    before, after = (values.get("held_out_reward") for values in (figures.first, figures.figures))
    if before is None or after is None:
        return ""
    return f" Of held-out prompts, with the most likely tokens, it was {before:.3f} before the first update, and is {after:.3f}."


class Writing:
    """The mean reward of the most likely texts behind held-out prompts, and their mean length, with one compiled program."""

    def __init__(self, task: Rewarded, options: Mapping[str, Any]):
        traced = grpo.trace_writing(task.config, task.recipe, task.held_out, task.judge(task.held_out))
        program = traced.context.compile(traced.bounds, traced.outputs, tp.Config(**options))
        self.program = program.compile()  # before the first report, so that no report waits for XLA to be saved
        self.prompts = task.held_out

    def figures(self, weights: Arrays) -> dict[str, float]:
        inputs = {name: array for name, array in self.prompts.inputs().items() if name in self.program.inputs}
        reward, length = self.program.run({**inputs, **weights})
        return {"held_out_reward": float(reward), "held_out_length": float(length)}
