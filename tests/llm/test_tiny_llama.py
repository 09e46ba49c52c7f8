"""The model that comes with the package: its card says what it can do, and it can."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tempo_llm.checkpoint import load_weights
from tempo_llm.generate import Generator
from tempo_llm.hub import locate, shipped_checkpoints
from tempo_llm.model import Model, load
from tempo_llm.training.lessons import lessons
from tempo_llm.training.recipe import TrainRecipe, load_recipe
from tempo_llm.training.run import Evaluation, completions, is_exact
from tempo_llm.training.text import Text, make_text, mixed, packed

tokenizers = pytest.importorskip("tokenizers")
CARD = (shipped_checkpoints() / "tiny-llama/README.md").read_text(encoding="utf-8")
PAGE = " ".join((Path(__file__).parents[2] / "docs/llm.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def model() -> Model:
    return load("tiny-llama")


@pytest.fixture(scope="module")
def recipe() -> TrainRecipe:
    """The recipe with fewer lessons: the first ones are the same."""
    return load_recipe("tiny_llama", ["text.lessons=20000"])


@pytest.fixture(scope="module")
def text(recipe: TrainRecipe) -> Text:
    return make_text(recipe.text)


def stated(pattern: str) -> float:
    number = re.search(pattern, CARD)
    assert number, f"the card says nothing like {pattern}"
    return float(number[1])


def test_it_is_found_by_its_name_and_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = locate("tiny-llama")
    assert sum(file.stat().st_size for file in directory.iterdir()) < 15e6


@pytest.mark.slow
def test_held_out_prompts_are_completed_as_the_card_says(model: Model, recipe: TrainRecipe, text: Text) -> None:
    asked = mixed(text.prompts, recipe.eval_prompts)
    exact = sum(is_exact(lesson, text) for lesson, text in zip(asked, completions(model, asked), strict=True))
    assert len(asked) == 50 and abs(exact - stated(r"Of 50 held-out prompts, (\d+) are completed exactly")) <= 1


@pytest.mark.slow
def test_int8_is_as_close_as_the_page_says(model: Model) -> None:
    """A part of what `docs/llm.md` measures: the largest difference at a position, as a share of its largest logit."""
    config, narrow = model.config, load_weights(model.directory, model.config, "int8")
    exact, close = (Generator(config, weights, backend="numpy") for weights in (model.generator.weights, narrow))
    shares = []
    for lesson in itertools.islice(lessons(77), 12):
        ids = model.tokenizer.encode(lesson.text, raw=True)
        logits = exact.logits(ids)
        shares += (np.abs(close.logits(ids) - logits).max(1) / np.abs(logits).max(1)).tolist()
    stated = re.search(r"([\d.]+) % of the position's largest one at half of the positions, and ([\d.]+) % at the worst", PAGE)
    assert stated is not None
    half, worst = (float(number) / 100 for number in stated.groups())
    assert 0.7 * half < float(np.median(shares)) < 1.3 * half and max(shares) <= worst


def test_the_perplexity_of_held_out_text_is_that_of_the_card(model: Model, recipe: TrainRecipe, text: Text) -> None:
    codec = tokenizers.Tokenizer.from_file(str(model.directory / "tokenizer.json"))
    rows = packed(codec, text.held_out, recipe.length)[: recipe.eval_rows]
    assert len(rows) == recipe.eval_rows
    loss = Evaluation(model.config, rows, {}).loss(model.generator.weights)
    assert math.exp(loss) == pytest.approx(stated(r"Perplexity of held-out text, a token: ([\d.]+)"), rel=2e-3)
