"""The files of a trained model for people and for other programs: its card, and the settings of its tokenizer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Protocol

from tempo_core.runs.recipe import dump_recipe
from tempo_llm.config import LlamaConfig
from tempo_llm.training.recipe import TrainRecipe
from tempo_llm.training.text import BEGIN, END


class Figures(Protocol):
    """What the card says of a run."""

    @property
    def updates(self) -> int: ...
    @property
    def held_out_loss(self) -> float | None: ...
    @property
    def exact(self) -> int | None: ...
    @property
    def prompts(self) -> int | None: ...
    @property
    def kinds(self) -> Mapping[str, tuple[int, int]] | None: ...
    @property
    def figures(self) -> Mapping[str, float]: ...
    @property
    def first(self) -> Mapping[str, float]: ...


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('this model knows no system prompt') }}"
    "{% elif m.role == 'user' %}{{ bos_token }}{{ m.content }}\n{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""The chat template of a model that learned questions of `lessons`: a line with its answer behind it is a document."""


def tokenizer_settings(config: LlamaConfig, answers: bool = False) -> str:
    """The content of tokenizer_config.json; with a chat template if the model `answers` questions."""
    values = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "add_bos_token": True,
        "model_max_length": config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        **({"chat_template": TEMPLATE} if answers else {}),
    }
    return json.dumps(values, indent=2) + "\n"


def card(recipe: TrainRecipe, config: LlamaConfig, figures: Figures) -> str:
    """The model card: README.md of the model's directory."""
    origin = (
        "short lessons in English that `tempo_llm/training/lessons.py` makes from a seed: sums, counting, comparisons, lists backwards, "
        "agreement of nouns and verbs, opposites, and stories with a question"
        + (", and questions of a chat with their answers" if recipe.text.questions else "")
        if recipe.text.lessons
        else f"the documents of `{recipe.text.file}`"
    )
    exact = (
        f"- Of {figures.prompts} held-out prompts, {figures.exact} are completed exactly ({_share(figures)}), greedily, to the end of the text: "
        f"{', '.join(f'{kind} {right} of {count}' for kind, (right, count) in sorted((figures.kinds or {}).items()))}.\n"
        if figures.prompts
        else ""
    )
    start = "" if recipe.start is None else f"- It goes on with `{recipe.start}`, which `tempo-llm train` made before.\n"
    perplexity = "unknown" if figures.held_out_loss is None else f"{math.exp(figures.held_out_loss):.3f}"
    return f"""---
license: apache-2.0
library_name: tempo
---

# A small Llama

Trained by `tempo-llm train` on {origin}. No document, and no prompt of a lesson, is both trained on and held out.

- {config.num_hidden_layers} layers of {config.hidden_size}, {config.num_attention_heads} heads, a vocabulary of {config.vocab_size} tokens (byte-level BPE).
{start}- {figures.updates} updates of {recipe.batch_size} rows of {recipe.length} tokens. Weights are stored as {recipe.saved_dtype}.
- Perplexity of held-out text, a token: {perplexity} ({recipe.eval_rows} rows of {recipe.length} tokens).
{exact}
The recipe, with every key:

```yaml
{dump_recipe(recipe)}```
"""


def _share(figures: Figures) -> str:
    return f"{100 * (figures.exact or 0) / (figures.prompts or 1):.0f} %"
