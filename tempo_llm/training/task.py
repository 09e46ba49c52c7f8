"""What a run of training learns: a model, its rows of tokens, and the files that it becomes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tempo_llm.checkpoint import DTYPES, joined
from tempo_llm.config import LlamaConfig
from tempo_llm.saving import save_model
from tempo_llm.stacks import Stack, windowed_stacks
from tempo_llm.training.card import Figures
from tempo_llm.training.lessons import Lesson
from tempo_llm.training.recipe import LoraRecipe, Recipe
from tempo_llm.training.rows import Rows
from tempo_llm.training.text import order_of_rows

Arrays = Mapping[str, np.ndarray]


class Task(ABC):
    """What a recipe leads to before anything is trained. `adapters`, if there are some, are all that is trained."""

    recipe: Recipe
    config: LlamaConfig
    rows: Rows
    held_out: Rows
    saved_dtype: str
    adapters: LoraRecipe | None = None

    @abstractmethod
    def first_values(self) -> dict[str, np.ndarray]:
        """The weights that training begins with, by the names of `checkpoint.split`, and the adapters."""

    @property
    @abstractmethod
    def files(self) -> Mapping[str, str | bytes]:
        """The files of the model by name, beside its weights."""

    @abstractmethod
    def card(self, figures: Figures) -> str:
        """The model's card."""

    def questions(self) -> Sequence[Lesson]:
        """What the trained model completes at the end."""
        return ()

    @property
    def digest(self) -> str:
        """A name for the tokens of the text: that of another text is another one."""
        return hashlib.sha256(self.rows.content + self.held_out.content).hexdigest()

    def inputs(self) -> dict[str, np.ndarray]:
        """The inputs of the program of training."""
        dtype = DTYPES[self.recipe.dtype]
        values = {name: array if ".lora_" in name else array.astype(dtype) for name, array in self.first_values().items()}
        return {**self.rows.inputs(), "row": order_of_rows(self.recipe, len(self.rows)), **values}

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The loops over layers of the programs of training."""
        return windowed_stacks(self.config)

    def weights(self, parameters: Arrays) -> Arrays:
        """All weights of the model, float32, from the values of what is trained."""
        return parameters

    def save(self, directory: Path, parameters: Arrays) -> None:
        """Write the model with these values of what is trained. Raises RunError."""
        self.save_weights(directory, self.weights(parameters))

    def save_weights(self, directory: Path, weights: Arrays, card: str | None = None) -> None:
        """Write the model with these weights, float32, and perhaps its card. Raises RunError."""
        files = self.files if card is None else {**self.files, "README.md": card}
        save_model(directory, self.config, joined(weights, self.stacks), self.saved_dtype, files)
