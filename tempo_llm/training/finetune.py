"""Going on with a model that exists: its weights, its tokenizer and the examples of a file. All weights are trained, or adapters alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tempo_core.compiling import interruptible
from tempo_core.runs.commands import RecipeError
from tempo_core.runs.recipe import dump_recipe, recipe_folders
from tempo_llm.checkpoint import DTYPES, load_weights, split
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import TokenizerError
from tempo_llm.files import read_text
from tempo_llm.hub import locate
from tempo_llm.json_files import JsonObject
from tempo_llm.saving import write_files
from tempo_llm.stacks import windowed_stacks
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.card import Figures
from tempo_llm.training.examples import Example, Line, encode_lines, read_lines, rows_of
from tempo_llm.training.lora import adapter_files, first_adapters, merged, targets_of
from tempo_llm.training.recipe import FinetuneRecipe
from tempo_llm.training.task import Arrays, Task
from tempo_llm.training.text import is_held_out

FILES = (  # that a model keeps when it is trained on
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja", "generation_config.json",
)  # fmt: skip
ADAPTER = "adapter"  # the directory of the adapters, beside that of the model


class Finetuning(Task):
    """A model and examples. Mistakes in the recipe, the data and the model are errors here, before anything is compiled. Raises RecipeError."""

    recipe: FinetuneRecipe

    def __init__(self, recipe: FinetuneRecipe, say: Callable[[str], None] = print):
        self.recipe, self.directory = recipe, locate(recipe.model)
        if self.directory.is_file():
            raise RecipeError(
                f"model: {self.directory} is a GGUF file, but training begins with a checkpoint directory",
                hint="take the checkpoint of this model in Hugging Face's format",
            )
        config = LlamaConfig.from_directory(self.directory)
        if recipe.lora.rank:
            self.adapters = recipe.lora
            self.targets = targets_of(config, windowed_stacks(config), recipe.lora)
        if recipe.length > config.max_position_embeddings:
            raise RecipeError(
                f"length={recipe.length} is more than the {config.max_position_embeddings} positions of {self.directory}",
                hint=f"length={config.max_position_embeddings}",
            )
        lines = read_lines(_data_file(recipe.data))
        tokenizer = Tokenizer.from_directory(self.directory)
        if any(line.form == "messages" for line in lines) and tokenizer.template is None:
            raise TokenizerError(
                f"the data have messages, but {self.directory} has no chat template",
                hint='train on {"prompt": ..., "completion": ...}, or add chat_template.jinja to the model',
            )
        examples = interruptible(lambda: encode_lines(lines, tokenizer, config.eos_ids))
        learned, held_out = _divided(lines, examples, recipe.held_out)
        self.rows = rows_of(learned, recipe.length, say)
        self.held_out = rows_of(held_out, recipe.length, lambda note: None)[: recipe.eval_rows]
        for what, rows in (("to learn from", self.rows), ("held out", self.held_out)):
            if not len(rows):
                raise RecipeError(
                    f"no example {what} has a token that counts within length={recipe.length} tokens",
                    hint="use longer rows: length=1024",
                )
        largest = max(int(rows.tokens.max()) for rows in (self.rows, self.held_out))
        if largest >= config.vocab_size:
            raise TokenizerError(
                f"the tokenizer of {self.directory} has the token {largest}, but the model's vocabulary {config.vocab_size}"
            )
        self.base = interruptible(lambda: split(load_weights(self.directory, config, "float32"), config, windowed_stacks(config)))
        self.config = replace(config, tie_word_embeddings="embedding.weight" not in self.base)
        self.described: JsonObject = {
            key: value
            for key, value in json.loads(read_text(self.directory / "config.json")).items()
            if key != "quantization_config"  # weights are stored as floats
        }
        stored = self.described.get("dtype") or self.described.get("torch_dtype")
        self.saved_dtype = recipe.saved_dtype or (stored if isinstance(stored, str) and stored in DTYPES else "float32")
        total = sum(array.size for array in self.base.values())
        trained = sum(array.size for array in self.first_values().values()) - (total if self.adapters else 0)
        say(
            f"{len(self.rows):,} rows of up to {self.rows.length} tokens to learn from, {len(self.held_out):,} held out; "
            f"{trained:,} of {total:,} parameters are trained"
        )

    @property
    def digest(self) -> str:
        """A name for the tokens and the model that training begins with."""
        digest = hashlib.sha256(super().digest.encode())
        for name, array in self.base.items():
            digest.update(name.encode() + array.tobytes())
        return digest.hexdigest()

    def first_values(self) -> dict[str, np.ndarray]:
        if self.adapters is None:
            return self.base
        return {**self.base, **first_adapters(self.targets, self.adapters, self.recipe.seed)}

    def weights(self, parameters: Arrays) -> Arrays:
        return parameters if self.adapters is None else merged(self.base, parameters, self.adapters)

    @property
    def files(self) -> Mapping[str, str | bytes]:
        files = {name: (self.directory / name).read_bytes() for name in FILES if (self.directory / name).is_file()}
        values = {**self.described, "dtype": self.saved_dtype, "torch_dtype": self.saved_dtype}
        values["tie_word_embeddings"] = self.config.tie_word_embeddings
        return {**files, "config.json": json.dumps(values, indent=2) + "\n"}

    def save(self, directory: Path, parameters: Arrays) -> None:
        super().save(directory, parameters)
        if self.adapters is not None:
            files = adapter_files(self.targets, parameters, self.adapters, self.recipe.model)
            write_files(directory.with_name(ADAPTER), files)

    def card(self, figures: Figures) -> str:
        recipe = self.recipe
        how = "All weights were trained"
        if self.adapters is not None:
            lora = f"LoRA, alpha {recipe.lora.alpha:g}, of {', '.join(recipe.lora.targets)}"
            how = f"Adapters of rank {recipe.lora.rank} were trained ({lora}), and are merged into the weights"
        perplexity = "unknown" if figures.held_out_loss is None else f"{math.exp(figures.held_out_loss):.3f}"
        return f"""---
library_name: tempo
base_model: {recipe.model}
---

# {recipe.model}, trained on

Trained by `tempo-llm train` on `{recipe.data}`, from `{recipe.model}`, whose licence applies.

- {how}: {figures.updates} updates of {recipe.batch_size} examples. Weights are stored as {self.saved_dtype}.
- Perplexity of the tokens that count in held-out examples: {perplexity} ({len(self.held_out)} rows).

The recipe, with every key:

```yaml
{dump_recipe(recipe)}```
"""


def _data_file(path: Path | None) -> Path:
    """The file of a recipe: as the recipe says, or beside a shipped recipe."""
    assert path is not None, "a recipe without data is refused"
    places = (path, *(folder / path for folder in recipe_folders() if not path.is_absolute()))
    return next((place for place in places if place.is_file()), path)


def _divided(lines: Sequence[Line], examples: Sequence[Sequence[Example]], share: float) -> tuple[list[Example], list[Example]]:
    """The examples to learn from, and those that are held out. Lines with the same prompt are on the same side."""
    sides: tuple[list[Example], list[Example]] = ([], [])
    for line, each in zip(lines, examples, strict=True):
        sides[is_held_out(line.key, share)].extend(each)
    if not all(sides):
        raise RecipeError(
            f"{len(lines)} lines cannot be divided: examples to learn from: {len(sides[0])}, held out: {len(sides[1])}",
            hint="use more lines, or another share: held_out=0.2",
        )
    return sides
