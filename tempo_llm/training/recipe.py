"""The recipes of training runs: of a new model, its sizes, text and tokenizer; of a model to go on with, its name and data; and how to learn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from tempo_core.runs.commands import RecipeError
from tempo_core.runs.recipe import (
    Count,
    NonNegative,
    Plain,
    Positive,
    Strict,
    Unit,
    WandbRecipe,
    find_recipe,
    merged,
    read_recipe,
    validated,
)

MOST_ROWS = 2**28  # of a run: their order is an array of 4 bytes a row
SavedDtype: TypeAlias = Literal["float32", "bfloat16", "float16"]
KIND = "model"  # the key that makes a recipe one of `tempo_llm`


class ModelRecipe(Strict):
    """The sizes of the model, by their names in `config.json`. The vocabulary is the tokenizer's."""

    hidden_size: Count = 128
    intermediate_size: Count = 352
    num_hidden_layers: Count = 4
    num_attention_heads: Count = 4
    num_key_value_heads: Count = 2
    max_position_embeddings: Count = 256
    rope_theta: Positive = 10000.0
    rms_norm_eps: Positive = 1e-5
    tie_word_embeddings: bool = True

    @model_validator(mode="after")
    def _check_heads(self) -> ModelRecipe:
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        if self.hidden_size % (2 * heads):
            raise ValueError(
                f"hidden_size={self.hidden_size} does not divide into num_attention_heads={heads} heads of an even width"
            )
        if heads % keys:
            raise ValueError(f"num_attention_heads={heads} is not a multiple of num_key_value_heads={keys}")
        return self


class TextRecipe(Strict):
    """What to learn: `lessons`, which are made from the seed, or a UTF-8 `file` whose documents are separated by empty lines."""

    lessons: Annotated[int, Field(ge=0)] = 100_000  # how many are made; those that are held out are among them
    questions: Annotated[float, Field(ge=0.0, le=1.0)] = (
        0.0  # the share of lessons that are questions of a chat with their answers
    )
    file: Path | None = None
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05  # the share of documents that training never sees
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _check_source(self) -> TextRecipe:
        if (self.file is None) == (self.lessons == 0):
            raise ValueError("the text is either lessons or a file: text.lessons=100000, or text.file=PATH with text.lessons=0")
        return self


class OptimizerRecipe(Strict):
    """How parameters are updated, and how often a run reports."""

    seed: Annotated[int, Field(ge=0)] = 0  # of the initial weights, of the order of the rows, and of what is drawn
    updates: Count = 3000
    learning_rate: Positive = 3e-3
    warmup: Annotated[int, Field(ge=0)] = 100  # updates in which the learning rate rises; then it falls along half a cosine
    final_learning_rate: NonNegative = 1e-4
    weight_decay: NonNegative = 0.1
    beta1: Unit = 0.9
    beta2: Unit = 0.99
    max_grad_norm: Positive | None = 1.0
    dtype: Literal["float32", "bfloat16"] = "float32"  # that activations are computed in; parameters and optimizer are float32
    report_every: Count = (
        50  # updates between two rows of metrics.csv, each with an evaluation on held-out rows; the run is saved there
    )
    eval_rows: Count = 64
    executor: Literal["staged", "interpreted"] = "staged"
    track: bool = False
    wandb: WandbRecipe = Field(default_factory=lambda: WandbRecipe(project="tempo-llm"))

    @property
    def reports(self) -> int:
        return self.updates // self.report_every

    @property
    def batch(self) -> str:
        """What an update is of, in words."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_updates(self) -> Self:
        if self.updates % self.report_every:
            raise ValueError(f"report_every={self.report_every} does not divide updates={self.updates}")
        if self.warmup >= self.updates:
            raise ValueError(f"warmup={self.warmup} must be less than updates={self.updates}")
        if self.beta1 == 1.0 or self.beta2 == 1.0:
            raise ValueError("beta1 and beta2 must be less than 1")
        return self


class LearningRecipe(OptimizerRecipe):
    """How to learn from rows. An update is of `batch_size` rows of `length` tokens, in at least `micro_batches` parts one after the other."""

    length: Annotated[int, Field(ge=2)] = 96
    batch_size: Count = 16
    micro_batches: Count = 1  # a memory limit may make them more

    @property
    def batch(self) -> str:
        return f"{self.batch_size} rows of at most {self.length} tokens"

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        if self.batch_size % self.micro_batches:
            raise ValueError(f"micro_batches={self.micro_batches} does not divide batch_size={self.batch_size}")
        if self.updates * self.batch_size > MOST_ROWS:
            raise ValueError(f"updates={self.updates} of batch_size={self.batch_size} are more than {MOST_ROWS} rows")
        return self


class TrainRecipe(LearningRecipe):
    """All keys of a recipe for a new model."""

    model: ModelRecipe = Field(default_factory=ModelRecipe)
    text: TextRecipe = Field(default_factory=TextRecipe)
    vocabulary: Annotated[int, Field(ge=258, le=2**20)] = (
        512  # tokens: 256 bytes, two marks of begin and end, and pieces of words
    )
    start: str | None = None  # the model whose weights and tokenizer training begins with; without it, they are new
    initial_deviation: Positive = 0.02  # of the first weights
    saved_dtype: SavedDtype = "float32"  # of the weights in model.safetensors
    eval_prompts: Count = 50  # held-out lessons that the trained model completes at the end

    @model_validator(mode="after")
    def _check_length(self) -> TrainRecipe:
        if self.length > self.model.max_position_embeddings:
            raise ValueError(
                f"length={self.length} is more than model.max_position_embeddings={self.model.max_position_embeddings}"
            )
        return self


class LoraRecipe(Strict):
    """Low-rank adapters: a matrix [in, out] of `targets` gets a product [in, rank] @ [rank, out], times alpha / rank. Rank 0: all weights learn."""

    rank: Annotated[int, Field(ge=0)] = 0
    alpha: Positive = 16.0
    targets: list[str] = Field(default_factory=lambda: ["all-linear"])  # as in q_proj; all-linear are all matrices of the layers

    @model_validator(mode="after")
    def _check_targets(self) -> LoraRecipe:
        if self.rank and not self.targets:
            raise ValueError("lora.targets is empty; name matrices: lora.targets=[q_proj, v_proj]")
        return self


class GoingOnRecipe(OptimizerRecipe):
    """What recipes have in common that go on with a model by lines of JSON."""

    model: Annotated[str, Field(min_length=1)]  # a directory, a name, or a repository of Hugging Face
    data: Path | None = None
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05  # the share of the lines that training never sees
    lora: LoraRecipe = Field(default_factory=LoraRecipe)
    updates: Count = 100
    learning_rate: Positive = 1e-4
    final_learning_rate: NonNegative = 0.0
    warmup: Annotated[int, Field(ge=0)] = 10
    weight_decay: NonNegative = 0.0
    beta2: Unit = 0.999
    report_every: Count = 10
    saved_dtype: SavedDtype | None = None  # None: that of the model's files

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.data is None:
            raise ValueError("there is nothing to learn from: data=FILE.jsonl")
        return self


class FinetuneRecipe(LearningRecipe, GoingOnRecipe):
    """All keys of a recipe that goes on with a model. Rows are as long as the longest example, and at most `length` tokens.

    Lines are {"text"}, {"prompt", "completion"} or {"messages"}.
    """

    length: Annotated[int, Field(ge=2)] = 512
    batch_size: Count = 8


class GRPORecipe(GoingOnRecipe):
    """All keys of a recipe that learns from rewards (Shao et al., 2024, arXiv:2402.03300). Lines are {"prompt"}, perhaps with a {"reference"}.

    An update is of `prompts` prompts, each with a group of `group` texts of up to `new_tokens` tokens that the model writes.
    """

    objective: Literal["grpo"] = "grpo"
    reward: str = "exact"  # of a text: 1 if it is the reference, else 0; or a function in Python, as module:function
    prompts: Count = 8
    group: Count = 8
    new_tokens: Count = 32
    temperature: Positive = 1.0  # of the texts, and of the probabilities that learn
    epochs: Count = 1  # updates with the same texts
    normalize: Literal["std", "none"] = "std"  # whether advantages are divided by the standard deviation of their group
    average: Literal["tokens", "texts", "length"] = "tokens"  # what the loss is a mean of
    clip_range: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    clip_high: Positive | None = None  # of ratios above 1; None: clip_range
    kl: NonNegative = 0.0  # times the divergence from the first weights; 0 keeps none of them
    entropy: NonNegative = 0.0
    eval_rows: Count = 128

    @property
    def batch(self) -> str:
        return f"{self.prompts} prompts with {self.group} texts of at most {self.new_tokens} tokens each"

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.group < 2:
            raise ValueError("group=1 has nothing to compare a text with: its advantage is always 0. Write group=8, for example")
        if self.report_every % self.epochs:
            raise ValueError(f"epochs={self.epochs} does not divide report_every={self.report_every}")
        if self.updates * self.prompts > MOST_ROWS:
            raise ValueError(f"updates={self.updates} of prompts={self.prompts} are more than {MOST_ROWS} prompts")
        if self.reward != "exact" and not re.fullmatch(r"[\w.]+:\w+", self.reward):
            raise ValueError(f"reward={self.reward} is neither exact nor a function as module:function")
        return self


class DPORecipe(GoingOnRecipe):
    """All keys of a recipe that learns from preferences (Rafailov et al., 2023, arXiv:2305.18290): {"prompt", "chosen", "rejected"}."""

    objective: Literal["dpo"]
    beta: Positive = 0.1
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    length: Annotated[int, Field(ge=2)] = 512
    batch_size: Count = 8

    @property
    def batch(self) -> str:
        return f"{self.batch_size} pairs of at most {self.length} tokens"

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        if self.updates * self.batch_size > MOST_ROWS:
            raise ValueError(f"updates={self.updates} of batch_size={self.batch_size} are more than {MOST_ROWS} rows")
        return self


Recipe: TypeAlias = TrainRecipe | FinetuneRecipe | GRPORecipe | DPORecipe
OBJECTIVES: Mapping[str, type[GRPORecipe | DPORecipe]] = {"grpo": GRPORecipe, "dpo": DPORecipe}


def load_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe file `name`, or the shipped recipe of that name, with `key=value` overrides. Raises `RecipeError`."""
    path = find_recipe(name, KIND)
    data = read_recipe(
        path, "write `model:`, then the sizes that differ from their defaults, or the name of a model to go on with"
    )
    return make_recipe(data, overrides, str(path))


def make_recipe(data: Plain, overrides: Iterable[str] = (), where: str = "the recipe") -> Recipe:
    """A validated recipe from plain data: of a new model, or, if `model` is a name, of one to go on with. Raises `RecipeError`.

    It names `where` the data comes from.
    """
    values = merged(data, overrides)
    if "objective" in values:
        objective = values["objective"]
        if objective not in OBJECTIVES:
            raise RecipeError(f"{where}: objective is {objective!r}", hint=f"it is one of {', '.join(OBJECTIVES)}")
        return validated(OBJECTIVES[str(objective)], values, where)
    if isinstance(values.get("model"), str):
        return validated(FinetuneRecipe, values, where)
    return validated(TrainRecipe, values, where)
