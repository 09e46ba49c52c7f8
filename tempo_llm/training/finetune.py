"""Going on with a model by examples of a file, whose tokens are learned. All weights are trained, or adapters alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from tempo_core.compiling import interruptible
from tempo_core.runs.commands import RecipeError
from tempo_core.runs.recipe import dump_recipe
from tempo_llm.errors import TokenizerError
from tempo_llm.training.card import Figures
from tempo_llm.training.examples import encode_lines, read_lines, rows_of
from tempo_llm.training.going_on import GoingOn, data_file, divided
from tempo_llm.training.recipe import FinetuneRecipe
from tempo_llm.training.task import RowsTask


class Finetuning(GoingOn, RowsTask):
    """A model and examples. Mistakes in the recipe, the data and the model are errors here, before anything is compiled. Raises RecipeError."""

    recipe: FinetuneRecipe

    def __init__(self, recipe: FinetuneRecipe, say: Callable[[str], None] = print):
        super().__init__(recipe)
        config, tokenizer = self.config, self.tokenizer
        if recipe.length > config.max_position_embeddings:
            raise RecipeError(
                f"length={recipe.length} is more than the {config.max_position_embeddings} positions of {self.directory}",
                hint=f"length={config.max_position_embeddings}",
            )
        lines = read_lines(data_file(recipe.data))
        if any(line.form == "messages" for line in lines) and tokenizer.template is None:
            raise TokenizerError(
                f"the data have messages, but {self.directory} has no chat template",
                hint='train on {"prompt": ..., "completion": ...}, or add chat_template.jinja to the model',
            )
        examples = interruptible(lambda: encode_lines(lines, tokenizer, config.eos_ids))
        learned, held_out = divided(lines, examples, recipe.held_out)
        self.rows = rows_of(learned, recipe.length, say)
        self.held_out = rows_of(held_out, recipe.length, lambda note: None)[: recipe.eval_rows]
        for what, rows in (("to learn from", self.rows), ("held out", self.held_out)):
            if not len(rows):
                raise RecipeError(
                    f"no example {what} has a token that counts within length={recipe.length} tokens",
                    hint="use longer rows: length=1024",
                )
        self.check_tokens(max(int(rows.tokens.max()) for rows in (self.rows, self.held_out)))
        self.load()
        say(
            f"{len(self.rows):,} rows of up to {self.rows.length} tokens to learn from, {len(self.held_out):,} held out; {self.trained}"
        )

    def card(self, figures: Figures) -> str:
        recipe = self.recipe
        perplexity = "unknown" if figures.held_out_loss is None else f"{math.exp(figures.held_out_loss):.3f}"
        return f"""---
library_name: tempo
base_model: {recipe.model}
---

# {recipe.model}, trained on

Trained by `tempo-llm train` on `{recipe.data}`, from `{recipe.model}`, whose licence applies.

- {self.how}: {figures.updates} updates of {recipe.batch_size} examples. Weights are stored as {self.saved_dtype}.
- Perplexity of the tokens that count in held-out examples: {perplexity} ({len(self.held_out)} rows).

The recipe, with every key:

```yaml
{dump_recipe(recipe)}```
"""
