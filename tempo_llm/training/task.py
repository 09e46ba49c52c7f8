"""What a run of training learns: a model, its rows of tokens, and the files that it becomes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tempo_llm.checkpoint import DTYPES, joined
from tempo_llm.config import LlamaConfig
from tempo_llm.saving import save_model
from tempo_llm.stacks import Stack, windowed_stacks
from tempo_llm.training.card import Figures as CardFigures
from tempo_llm.training.evaluation import Evaluation, Measure
from tempo_llm.training.lessons import Lesson
from tempo_llm.training.program import Arrays, Figures, Receiver, Traced, trace_training
from tempo_llm.training.recipe import LearningRecipe, LoraRecipe, OptimizerRecipe
from tempo_llm.training.rows import Rows
from tempo_llm.training.text import order_of_rows


class Task(ABC):
    """What a recipe leads to before anything is trained. `adapters`, if there are some, are all that is trained.

    `columns` are the figures of a report that come first in metrics.csv, and in result.json; the first of them is shown, beside that of held-out
    data. Of `measured_first` the values before the first update are told.
    """

    recipe: OptimizerRecipe
    config: LlamaConfig
    saved_dtype: str
    adapters: LoraRecipe | None = None
    columns: Sequence[str] = ("loss", "held_out_loss")
    measured_first: Sequence[str] = ()
    tells_plan: bool = False  # before the start

    @abstractmethod
    def traced(self, receive: Receiver, figures: Figures | None = None) -> Traced:
        """The program of the whole run, with whose state `figures` are saved."""

    @abstractmethod
    def measure(self, options: Mapping[str, Any]) -> Measure:
        """What gives the figures of held-out data. `options` are fields of `tempo_core.Config`."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """How many tokens the updates of a report read or write."""

    @property
    def parts(self) -> int:
        """How many parts an update is computed in."""
        return 1

    @abstractmethod
    def first_values(self) -> dict[str, np.ndarray]:
        """The weights that training begins with, by the names of `checkpoint.split`, and the adapters."""

    @property
    @abstractmethod
    def files(self) -> Mapping[str, str | bytes]:
        """The files of the model by name, beside its weights."""

    @abstractmethod
    def card(self, figures: CardFigures) -> str:
        """The model's card."""

    def questions(self) -> Sequence[Lesson]:
        """What the trained model completes at the end."""
        return ()

    @property
    @abstractmethod
    def data_digest(self) -> str:
        """A name for the tokens of the data: that of others is another one."""

    @property
    def digest(self) -> str:
        """A name for what training begins with, beside the recipe."""
        return self.data_digest

    def inputs(self) -> dict[str, np.ndarray]:
        """The inputs of the program of training."""
        dtype = DTYPES[self.recipe.dtype]
        values = {name: array if ".lora_" in name else array.astype(dtype) for name, array in self.first_values().items()}
        return {**self.data(), **values}

    @abstractmethod
    def data(self) -> dict[str, np.ndarray]:
        """The inputs of the program of training that are no weights."""

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


class RowsTask(Task):
    """A task that learns what follows in rows of tokens."""

    recipe: LearningRecipe
    rows: Rows
    held_out: Rows

    def traced(self, receive: Receiver, figures: Figures | None = None) -> Traced:
        return trace_training(self.config, self.recipe, self.rows, receive, figures, self.adapters)

    def measure(self, options: Mapping[str, Any]) -> Measure:
        return Evaluation(self.config, self.held_out, options)

    @property
    def tokens(self) -> int:
        return self.recipe.report_every * self.recipe.batch_size * self.rows.length

    @property
    def parts(self) -> int:
        return self.recipe.micro_batches

    @property
    def data_digest(self) -> str:
        return hashlib.sha256(self.rows.content + self.held_out.content).hexdigest()

    def data(self) -> dict[str, np.ndarray]:
        recipe = self.recipe
        shape = (recipe.micro_batches, recipe.batch_size // recipe.micro_batches)
        return {**self.rows.inputs(), "row": order_of_rows(recipe, len(self.rows), (recipe.report_every, *shape))}
