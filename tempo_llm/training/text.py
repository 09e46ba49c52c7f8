"""The text of a training run: documents, a tokenizer trained on them, and rows of tokens. What is held out is never trained on."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tempo_core.runs.commands import RecipeError, RunError
from tempo_llm.files import check_regular, read_text
from tempo_llm.training.lessons import Lesson, lessons
from tempo_llm.training.recipe import OptimizerRecipe, TextRecipe
from tempo_llm.types import IntArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BEGIN, END = "<s>", "</s>"


@dataclass(frozen=True)
class Text:
    """Documents to learn from, and documents that are held out. `prompts` are the held-out lessons, each prompt once."""

    training: list[str]
    held_out: list[str]
    prompts: list[Lesson]


def make_text(recipe: TextRecipe) -> Text:
    """The documents of a recipe. No prompt of a lesson, and no document, is on both sides. Raises `RecipeError`."""
    made = list(itertools.islice(lessons(recipe.seed, recipe.questions), recipe.lessons))
    documents = [(lesson.prompt, lesson.text) for lesson in made] + [(text, text) for text in _documents(recipe.file)]
    sides: tuple[list[str], list[str]] = ([], [])
    for key, text in documents:
        sides[is_held_out(key, recipe.held_out)].append(text)
    if not all(sides):
        raise RecipeError(
            f"{len(documents)} documents cannot be divided: {len(sides[0])} to learn from, {len(sides[1])} held out",
            hint="use more documents, separated by empty lines, or another share: text.held_out=0.1",
        )
    prompts = {lesson.prompt: lesson for lesson in made if is_held_out(lesson.prompt, recipe.held_out)}
    return Text(*sides, list(prompts.values()))


def _documents(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"text.file={file} cannot be read: {error}", hint="name a file of UTF-8 text: text.file=PATH") from None
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def is_held_out(key: str, share: float) -> bool:
    """A function of the text alone, so that equal texts are on the same side."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) < share * 2**64


def mixed(prompts: Sequence[Lesson], count: int) -> list[Lesson]:
    """The first lessons of each kind in turn, as many as `count` (all, if there are fewer)."""
    kinds: dict[str, list[Lesson]] = {}
    for lesson in prompts:
        kinds.setdefault(lesson.kind, []).append(lesson)
    rounds = itertools.zip_longest(*kinds.values())
    return [lesson for lesson in itertools.chain.from_iterable(rounds) if lesson is not None][:count]


# -- tokens -----------------------------------------------------------------------------------------------------------


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer (`tokenizers.Tokenizer`) of at most `vocabulary` tokens. Each digit is a token."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    except ImportError as error:
        raise RunError("training needs the package tokenizers", hint="pip install 'tempo-dl[llm]'") from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return tokenizer


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a model to train on. Raises RunError if it cannot be read or has other marks of begin and end."""
    from tokenizers import Tokenizer

    file = directory / "tokenizer.json"
    try:
        check_regular(file)
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises a bare Exception for every fault in the file
        raise RunError(f"{file} cannot be read: {str(error)[:300]}") from None
    missing = [mark for mark in (BEGIN, END) if tokenizer.token_to_id(mark) is None]
    if missing:
        raise RunError(f"{file} has no token {missing[0]}", hint="only a model of `tempo-llm train` can be trained on: start=DIR")
    return tokenizer


def packed(tokenizer: Tokenizer, documents: Sequence[str], length: int) -> IntArray:
    """Rows of `length` + 1 tokens, int32 [rows, length + 1]: the tokens of a row, and the one after each.

    A row begins with a document. Of a document that does not fit into the rest of a row, the part that does is there; what is left of it
    begins the next row if it is longer than a row, and is left out otherwise.
    """
    end, size = tokenizer.token_to_id(END), length + 1
    assert end is not None, "`train_tokenizer` gives each tokenizer an end"
    rows: list[list[int]] = []
    row: list[int] = []
    for encoding in tokenizer.encode_batch(list(documents)):
        row += [*encoding.ids, end]
        while len(row) >= size:
            rows.append(row[:size])
            row = row[size:] if len(row) > 2 * size else []
    return np.asarray(rows, np.int32).reshape(len(rows), size)


def order_of_rows(recipe: OptimizerRecipe, count: int, shape: tuple[int, ...]) -> IntArray:
    """The rows of each report: int32 [reports, *shape]. All rows come before one comes again."""
    needed = recipe.reports * math.prod(shape)
    random = np.random.default_rng(recipe.seed)
    order = np.empty(needed, np.int32)
    for first in range(0, needed, count):
        order[first : first + count] = random.permutation(count)[: needed - first]
    return order.reshape(recipe.reports, *shape)
