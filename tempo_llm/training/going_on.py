"""Going on with a model that exists: its weights, its tokenizer, and the files that it keeps. All weights are trained, or adapters alone."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from tempo_core.compiling import interruptible
from tempo_core.runs.commands import RecipeError
from tempo_core.runs.recipe import recipe_folders
from tempo_llm.checkpoint import DTYPES, Checkpoint, split
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import TokenizerError
from tempo_llm.files import read_text
from tempo_llm.hub import locate
from tempo_llm.json_files import JsonObject
from tempo_llm.saving import write_files
from tempo_llm.stacks import windowed_stacks
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.examples import Line
from tempo_llm.training.lora import adapter_files, first_adapters, merged, targets_of
from tempo_llm.training.program import Arrays
from tempo_llm.training.recipe import GoingOnRecipe
from tempo_llm.training.task import Task
from tempo_llm.training.text import is_held_out

T = TypeVar("T")

FILES = (  # that a model keeps when it is trained on
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja", "generation_config.json",
)  # fmt: skip
ADAPTER = "adapter"  # the directory of the adapters, beside that of the model


class GoingOn(Task):
    """A model to train on. Subclasses read their data between `__init__` and `load`: a mistake there is an error before weights are read."""

    recipe: GoingOnRecipe

    def __init__(self, recipe: GoingOnRecipe):
        self.recipe, self.directory = recipe, locate(recipe.model)
        if self.directory.is_file():
            raise RecipeError(
                f"model: {self.directory} is a GGUF file, but training begins with a checkpoint directory",
                hint="take the checkpoint of this model in Hugging Face's format",
            )
        self.config = LlamaConfig.from_directory(self.directory)
        if recipe.lora.rank:
            self.adapters = recipe.lora
            self.targets = targets_of(self.config, windowed_stacks(self.config), recipe.lora)
        self.tokenizer = Tokenizer.from_directory(self.directory)

    def check_tokens(self, largest: int) -> None:
        """Raise TokenizerError if the tokenizer has tokens that the model does not know, such as the `largest` of the data."""
        if largest >= self.config.vocab_size:
            raise TokenizerError(
                f"the tokenizer of {self.directory} has the token {largest}, but the model's vocabulary {self.config.vocab_size}"
            )

    def load(self) -> None:
        """Look at the files of the weights. The weights are read when `base` is first needed: a plan needs none."""
        self._checkpoint = Checkpoint.opened(self.directory, self.config, "float32")
        self.config = replace(self.config, tie_word_embeddings=self._checkpoint.is_tied)
        self.described: JsonObject = {
            key: value
            for key, value in json.loads(read_text(self.directory / "config.json")).items()
            if key != "quantization_config"  # weights are stored as floats
        }
        stored = self.described.get("dtype") or self.described.get("torch_dtype")
        self.saved_dtype = self.recipe.saved_dtype or (stored if isinstance(stored, str) and stored in DTYPES else "float32")

    @functools.cached_property
    def base(self) -> dict[str, np.ndarray]:
        """The weights of the model."""
        config = self._checkpoint.config
        return interruptible(lambda: split(self._checkpoint.read(), config, windowed_stacks(config)))

    @property
    def trained(self) -> str:
        """How many parameters are trained, in words."""
        total = sum(array.size for array in self._checkpoint.placeholders().values())
        trained = total
        if self.adapters is not None:
            trained = sum(array.size for array in first_adapters(self.targets, self.adapters, self.recipe.seed).values())
        return f"{trained:,} of {total:,} parameters are trained"

    @property
    def digest(self) -> str:
        """A name for the tokens of the data and the model that training begins with."""
        digest = hashlib.sha256(self.data_digest.encode())
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

    @property
    def how(self) -> str:
        """What was trained, for the card."""
        if self.adapters is None:
            return "All weights were trained"
        lora = f"LoRA, alpha {self.adapters.alpha:g}, of {', '.join(self.adapters.targets)}"
        return f"Adapters of rank {self.adapters.rank} were trained ({lora}), and are merged into the weights"


def data_file(path: Path | None) -> Path:
    """The file of a recipe: as the recipe says, or beside a shipped recipe."""
    assert path is not None, "a recipe without data is refused"
    places = (path, *(folder / path for folder in recipe_folders() if not path.is_absolute()))
    return next((place for place in places if place.is_file()), path)


def divided(lines: Sequence[Line], values: Sequence[Sequence[T]], share: float) -> tuple[list[T], list[T]]:
    """The values of lines to learn from, and of those that are held out. Lines with the same prompt are on the same side. Raises RecipeError."""
    sides: tuple[list[T], list[T]] = ([], [])
    for line, each in zip(lines, values, strict=True):
        sides[is_held_out(line.key, share)].extend(each)
    if not all(sides):
        raise RecipeError(
            f"{len(lines)} lines cannot be divided: examples to learn from: {len(sides[0])}, held out: {len(sides[1])}",
            hint="use more lines, or another share: held_out=0.2",
        )
    return sides
