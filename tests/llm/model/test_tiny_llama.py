"""The model that comes with the package: its card says what it can do, and it can."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tempo_llm.hub import locate, shipped_checkpoints
from tempo_llm.model import Model, load
from tempo_llm.training.evaluation import Evaluation, completions, exact_by_kind
from tempo_llm.training.lessons import lessons
from tempo_llm.training.recipe import TrainRecipe, load_recipe
from tempo_llm.training.rows import Rows
from tempo_llm.training.text import Text, make_text, mixed, packed

tokenizers = pytest.importorskip("tokenizers")
CARD = (shipped_checkpoints() / "tiny-llama/README.md").read_text(encoding="utf-8")
PAGE = " ".join((Path(__file__).parents[3] / "docs/llm.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def model() -> Model:
    return load("tiny-llama")


@pytest.fixture(scope="module")
def recipe() -> TrainRecipe:
    """The recipe with fewer lessons: the first ones are the same."""
    return load_recipe("tiny_llama_chat", ["text.lessons=20000"])


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
def test_held_out_prompts_are_completed_as_the_card_says(model: Model) -> None:
    recipe = load_recipe("tiny_llama_chat")
    asked = mixed(make_text(recipe.text).prompts, recipe.eval_prompts)
    kinds = exact_by_kind(asked, completions(model, asked))
    exact = sum(right for right, _ in kinds.values())
    assert len(asked) == 130 and abs(exact - stated(r"Of 130 held-out prompts, (\d+) are completed exactly")) <= 1
    for kind, (right, count) in kinds.items():
        assert abs(right - stated(rf"[:,] {kind} (\d+) of {count}[,.]")) <= 1, kind


@pytest.mark.slow
def test_it_still_completes_what_it_completed_before_it_learned_questions(model: Model) -> None:
    """It was 43 of the 50 prompts that were held out from `recipes/tiny_llama.yaml`."""
    before = load_recipe("tiny_llama", ["text.lessons=20000"])
    asked = mixed(make_text(before.text).prompts, before.eval_prompts)
    exact = sum(right for right, _ in exact_by_kind(asked, completions(model, asked)).values())
    numbers = re.search(r"50 prompts that are held out from the first step \| 43 \| (\d+) \|", PAGE)
    assert len(asked) == 50 and numbers is not None and abs(exact - int(numbers[1])) <= 1


SUMS = [(a, b) for a in range(10) for b in range(10)]


def wrong_sums(model: Model, form: str) -> list[str]:
    """A form that ends a line is a question of the chat, another one a text to continue."""
    prompts = [form.format(a, b) for a, b in SUMS]
    texts = [completion.text or "" for completion in model.generate(prompts, 8).completions]
    return [prompt + text for prompt, text, (a, b) in zip(prompts, texts, SUMS, strict=True) if text.strip() != f"{a + b}."]


@pytest.mark.parametrize("form", ["{} + {} =", "{} + {} =\n", "What is {} + {}?\n", "How much is {} + {}?\n"])
def test_all_sums_of_digits_are_right(model: Model, form: str) -> None:
    """As texts, 68 of the 100 were right before."""
    assert wrong_sums(model, form) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{} + {} =", "What is {} + {}?"])
def test_sums_are_right_in_the_middle_of_a_chat(model: Model, form: str) -> None:
    turns = [
        ("Hello", "Hello. Ask me something: What is 2 + 3?"),
        ("What is 12 + 30?", "42."),
        ("What is the opposite of hot?", "Cold."),
    ]
    earlier = [{"role": role, "content": text} for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]
    talks = [[*earlier, {"role": "user", "content": form.format(a, b)}] for a, b in SUMS]
    ids = [model.tokenizer.encode_rendered(text) for text in model.tokenizer.render(talks)]
    answers = [completion.text for completion in model.generate(ids, 8).completions]
    assert [answer for answer, (a, b) in zip(answers, SUMS, strict=True) if answer != f"{a + b}."] == []


@pytest.mark.slow
def test_sums_in_other_words_are_as_right_as_the_page_says(model: Model) -> None:
    row = re.search(r"\| the same: `What is 1 plus 1\?`, `1\+1`, `1 \+ 1`, `what is 1\+1` \| – \| ([\d, ]+) \|", PAGE)
    assert row is not None
    for form, right in zip(("What is {} plus {}?\n", "{}+{}\n", "{} + {}\n", "what is {}+{}\n"), row[1].split(", "), strict=True):
        assert abs(100 - len(wrong_sums(model, form)) - int(right)) <= 2, form


@pytest.mark.slow
def test_it_answers_in_a_chat(model: Model) -> None:
    chat = model.chat()
    questions = (
        "Hello",
        "What is 12 + 30?",
        "What is the opposite of hot?",
        "Two geese swim. One goose",
        "Why is the sky blue?",
        "1 + 1 =",
    )
    answers = ["".join(chat.say(question)) for question in questions]
    assert answers == [
        "Hello. Ask me something: What is 2 + 3?", "42.", "Cold.", "swims.", "I do not know that. Ask me: What is 2 + 3?", "2.",
    ]  # fmt: skip
    assert chat.restarts == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", pytest.param("int4", marks=pytest.mark.slow)])
def test_narrow_weights_are_as_close_as_the_page_says(model: Model, dtype: str) -> None:
    """A part of what `docs/llm.md` measures: the largest difference at a position, as a share of its largest logit."""
    narrow = load(model.directory, dtype)
    shares = []
    for lesson in itertools.islice(lessons(77), 12):
        ids = model.tokenizer.encode(lesson.text, raw=True)
        logits = model.logits(ids)
        shares += (np.abs(narrow.logits(ids) - logits).max(1) / np.abs(logits).max(1)).tolist()
    row = re.search(rf"\| `{dtype}` \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) %", PAGE)
    assert row is not None
    half, _, worst = (float(number) / 100 for number in row.groups())
    assert 0.7 * half < float(np.median(shares)) < 1.3 * half and max(shares) <= worst
    limit = {"int8": 0.03, "int4": 0.08}.get(dtype)
    assert limit is None or float(np.quantile(shares, 0.99)) <= limit


@pytest.mark.slow
def test_the_perplexity_of_held_out_text_is_that_of_the_card(model: Model, recipe: TrainRecipe, text: Text) -> None:
    codec = tokenizers.Tokenizer.from_file(str(model.directory / "tokenizer.json"))
    rows = Rows(packed(codec, text.held_out, recipe.length)[: recipe.eval_rows])
    assert len(rows) == recipe.eval_rows
    loss = Evaluation(model.config, rows, {}).loss(model.generator.weights)
    assert math.exp(loss) == pytest.approx(stated(r"Perplexity of held-out text, a token: ([\d.]+)"), rel=2e-3)
