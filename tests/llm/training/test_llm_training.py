"""Training: recipes, the text, runs that stop and go on, gradients of parts of a batch, and the model that is written."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tempo_core as tp
from tempo_core.runs.commands import RecipeError, RunError
from tempo_llm.checkpoint import load_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import RequestError, TokenizerError
from tempo_llm.generate import Generator
from tempo_llm.saving import save_model
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training import run as training
from tempo_llm.training.evaluation import Evaluation
from tempo_llm.training.lessons import KINDS, QUESTIONS, SHARES, lessons
from tempo_llm.training.program import first_weights
from tempo_llm.training.recipe import Recipe, TrainRecipe, load_recipe, make_recipe
from tempo_llm.training.rundir import RunFiles, chosen_run, summary
from tempo_llm.training.text import make_text, mixed, order_of_rows, packed, train_tokenizer

pytest.importorskip("tokenizers")

TINY: dict[str, Any] = {
    "model": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 128},
    "text": {"lessons": 400, "held_out": 0.2},
    "vocabulary": 300, "updates": 6, "report_every": 2, "warmup": 1, "length": 16, "batch_size": 4, "eval_rows": 4, "eval_prompts": 2,
}  # fmt: skip
NUMPY: dict[str, Any] = {"backend": "numpy"}  # which compiles nothing


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Equal programs go through the passes once."""
    NUMPY["cache"] = str(tmp_path_factory.mktemp("cache"))


def tiny(*overrides: str) -> TrainRecipe:
    return new_model(make_recipe(TINY, overrides))


def new_model(recipe: Recipe) -> TrainRecipe:
    assert isinstance(recipe, TrainRecipe)
    return recipe


def trained(recipe: TrainRecipe, path: Path, **arguments: Any) -> training.Outcome:
    return training.train(recipe, RunFiles(path), say=arguments.pop("say", lambda text: None), **{**NUMPY, **arguments})


# -- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rat=1", r"unknown key learning_rat\n  hint: did you mean learning_rate\?"),
        ("hidden_size=8", r"unknown key hidden_size\n  hint: did you mean model.hidden_size\?"),
        ("model.num_key_value_heads=3", "num_attention_heads=4 is not a multiple of num_key_value_heads=3"),
        ("model.hidden_size=12", "hidden_size=12 does not divide into num_attention_heads=4 heads of an even width"),
        ("micro_batches=3", "micro_batches=3 does not divide batch_size=4"),
        ("report_every=4", "report_every=4 does not divide updates=6"),
        ("length=200", "length=200 is more than model.max_position_embeddings=128"),
        ("warmup=6", "warmup=6 must be less than updates=6"),
        ("beta1=1", "beta1 and beta2 must be less than 1"),
        ("text.file=a.txt", "the text is either lessons or a file"),
        ("learning_rate=-1", "learning_rate is -1: input should be greater than 0"),
        ("text", "is not an override"),
    ],
)
def test_a_wrong_recipe_is_one_clear_error(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        tiny(override)


def test_the_shipped_recipe_is_found_by_name() -> None:
    recipe = new_model(load_recipe("tiny_llama", ["model.hidden-size=64"]))
    assert recipe.model.hidden_size == 64 and recipe.saved_dtype == "bfloat16"
    with pytest.raises(RecipeError, match=r"there is no recipe tiny_lama\n  hint: did you mean .*tiny_llama.yaml"):
        load_recipe("tiny_lama")


# -- text -------------------------------------------------------------------------------------------------------------


def test_lessons_are_a_function_of_the_seed() -> None:
    first = list(itertools.islice(lessons(0), 300))
    assert first == list(itertools.islice(lessons(0), 300)) != list(itertools.islice(lessons(1), 300))
    assert {lesson.kind for lesson in first} == set(KINDS)
    sums = [lesson for lesson in first if lesson.kind == "sum"]
    for lesson in sums:
        a, sign, b, _ = lesson.prompt.split()
        assert lesson.completion == f" {int(a) + int(b) if sign == '+' else int(a) - int(b)}."


def test_a_share_of_the_lessons_are_questions() -> None:
    made = list(itertools.islice(lessons(0, 0.5), 1000))
    asked = [lesson for lesson in made if lesson.kind in QUESTIONS]
    assert 450 < len(asked) < 550 and {lesson.kind for lesson in made} == {*KINDS, *QUESTIONS} and len(SHARES) == len(QUESTIONS)
    for lesson in asked:
        assert lesson.prompt.endswith("=" if lesson.kind == "digits" else "\n") and lesson.prompt.count("\n") <= 1
        assert lesson.completion.endswith((".", "?"))
    for lesson in (lesson for lesson in asked if lesson.kind == "arithmetic"):
        numbers = [int(number) for number in re.findall(r"\d+", lesson.prompt)]
        is_sum = "+" in lesson.prompt or "plus" in lesson.prompt
        assert lesson.completion == f"{sum(numbers) if is_sum else numbers[0] - numbers[1]}.", lesson
    assert all("\n" not in lesson.prompt for lesson in itertools.islice(lessons(0), 300))


def test_a_chat_is_what_questions_are_in_the_text(tmp_path: Path) -> None:
    """The template writes a conversation as the documents of training, one behind the other."""
    recipe = tiny("text.questions=0.5")
    prepared = training.Prepared(recipe)
    for name, text in prepared.files.items():
        (tmp_path / name).write_text(text)
    tokenizer = Tokenizer.from_directory(tmp_path)
    messages = [
        {"role": role, "content": text} for role, text in (("user", "What is 1 + 2?"), ("assistant", "3."), ("user", "Hi"))
    ]
    ids = tokenizer.encode_conversation(messages)
    end = prepared.tokenizer.token_to_id("</s>")
    assert ids == [*prepared.tokenizer.encode("What is 1 + 2?\n3.").ids, end, *prepared.tokenizer.encode("Hi\n").ids]
    with pytest.raises(TokenizerError, match="this model knows no system prompt"):
        tokenizer.encode("Hi", raw=False, system_prompt="be kind")
    assert "chat_template" not in json.loads(training.Prepared(tiny()).files["tokenizer_config.json"])


@pytest.mark.slow
def test_what_is_held_out_is_not_trained_on() -> None:
    text = make_text(new_model(make_recipe({})).text)
    assert not set(text.training) & set(text.held_out)
    assert not any(document.startswith(lesson.prompt) for lesson in mixed(text.prompts, 20) for document in text.training)
    assert len(text.held_out) == pytest.approx(0.05 * 100_000, rel=0.2)
    assert [lesson.kind for lesson in mixed(text.prompts, 7)] != ["sum"] * 7


def test_a_text_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "poems.txt").write_text("\n\n".join(f"line {k} of a poem" for k in range(60)), encoding="utf-8")
    recipe = tiny("text.lessons=0", f"text.file={tmp_path / 'poems.txt'}")
    text = make_text(recipe.text)
    assert len(text.training) + len(text.held_out) == 60 and not text.prompts
    with pytest.raises(RecipeError, match="cannot be read"):
        make_text(tiny("text.lessons=0", f"text.file={tmp_path / 'none.txt'}").text)
    (tmp_path / "poems.txt").write_text("a single one", encoding="utf-8")
    with pytest.raises(RecipeError, match="1 documents cannot be divided"):
        make_text(recipe.text)


def test_rows_begin_with_a_document() -> None:
    tokenizer = train_tokenizer(["12 + 34 = 46.", "a b c d e f g h"], 270)
    rows = packed(tokenizer, ["1 + 2 = 3."] * 9, 7)
    begin, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    assert rows.shape[1] == 8 and (rows[:, 0] == begin).all()
    assert "12" not in tokenizer.get_vocab()  # each digit is a token
    whole = packed(tokenizer, ["a b c d e f g h"] * 2, 3)
    document = [begin, *tokenizer.encode("a b c d e f g h").ids[1:], end]
    assert whole[0].tolist() == document[:4] and whole[1].tolist() == document[4:8]  # a long one goes on in the next row
    order = order_of_rows(recipe := tiny(), 10, (recipe.report_every, recipe.micro_batches, recipe.batch_size))
    assert order.shape == (3, 2, 1, 4) and sorted(order.ravel()[:10].tolist()) == list(range(10))


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, training.Outcome]:
    """A run without a stop."""
    path = tmp_path_factory.mktemp("whole") / "run"
    return path, trained(tiny("learning_rate=0.01"), path)


def test_the_loss_falls_and_a_model_is_written(whole: tuple[Path, training.Outcome]) -> None:
    path, _ = whole
    lines = (path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "update,tokens,loss,held_out_loss,gradient_norm,learning_rate" and len(lines) == 4
    losses = [[float(line.split(",")[k]) for line in lines[1:]] for k in (2, 3)]
    assert losses[0][-1] < losses[0][0] and losses[1][-1] < losses[1][0]
    result = json.loads((path / "result.json").read_text())
    assert result["updates"] == 6 and result["prompts"] == 2 and result["stopped"] is None
    assert result["held_out_loss"] == pytest.approx(losses[1][-1], rel=1e-5)
    assert f"token: {math.exp(result['held_out_loss']):.3f}" in (path / "model/README.md").read_text()


def test_the_first_loss_is_that_of_the_logits() -> None:
    recipe = tiny()
    prepared = training.Prepared(recipe)
    weights = first_weights(prepared.config, recipe.seed)
    generator = Generator(prepared.config, weights, **NUMPY)
    losses = []
    for row in prepared.held_out.tokens[:2]:
        logits = generator.logits(row[:-1])
        shifted = logits - logits.max(1, keepdims=True)
        logprobs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        losses.append(-logprobs[np.arange(len(logprobs)), row[1:]].mean())
    evaluation = Evaluation(prepared.config, prepared.held_out[:2], NUMPY)
    assert evaluation.loss(weights) == pytest.approx(float(np.mean(losses)), rel=1e-5)


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path, whole: tuple[Path, training.Outcome]) -> None:
    def stop(text: str) -> None:
        if text.startswith("2/6"):
            os.kill(os.getpid(), signal.SIGTERM)

    recipe, path = tiny("learning_rate=0.01"), tmp_path / "run"
    outcome = trained(recipe, path, say=stop)
    assert (outcome.stopped, outcome.updates) == ("SIGTERM", 2)
    run, goes_on = chosen_run(recipe, "tiny", path, False, "auto")
    assert goes_on and not run.is_finished()
    assert trained(recipe, path, resume=True).updates == 6
    for name in ("metrics.csv", "model/model.safetensors"):
        assert (path / name).read_bytes() == (whole[0] / name).read_bytes(), name
    states = [load_file(directory / "state.safetensors") for directory in (path, whole[0])]
    assert states[0].keys() == states[1].keys() and all((states[0][name] == states[1][name]).all() for name in states[0])
    assert run.is_finished()


@pytest.mark.slow
@pytest.mark.parametrize("override", ["report_every=6", "updates=2", "report_every=1"])
def test_a_run_of_one_report_or_of_reports_of_one_update(override: str, tmp_path: Path) -> None:
    recipe, path = tiny(override), tmp_path / "run"
    assert trained(recipe, path).updates == recipe.updates
    assert len((path / "metrics.csv").read_text().splitlines()) == recipe.reports + 1
    written = json.loads((path / "result.json").read_text())
    (path / "result.json").unlink()  # as if it had been killed after its last report
    again = trained(recipe, path, resume=True)
    assert again.updates == recipe.updates and again.held_out_loss == written["held_out_loss"]
    text = (path / "result.json").read_text()
    assert "NaN" not in text and json.loads(text)["loss"] == written["loss"]


@pytest.mark.slow
def test_a_run_that_stops_before_it_computes_has_the_losses_of_its_state(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if text.startswith("2/6"):
            os.kill(os.getpid(), signal.SIGTERM)

    def result(**arguments: Any) -> dict[str, Any]:
        outcome = trained(recipe, path, **arguments)
        text = (path / "result.json").read_text()
        assert "NaN" not in text and "nan" not in summary(outcome)
        return json.loads(text)

    recipe, path = tiny(), tmp_path / "run"
    begun = result(time_limit=0.0)
    assert (begun["updates"], begun["loss"], begun["held_out_loss"]) == (0, None, None)
    stopped, again = result(say=stop), result(resume=True, time_limit=0.0)
    assert stopped["updates"] == again["updates"] == 2 and again["tokens_per_second"] == 0
    assert (stopped["loss"], stopped["held_out_loss"]) == (again["loss"], again["held_out_loss"])
    assert f",{stopped['loss']:.9g},{stopped['held_out_loss']:.9g}," in (path / "metrics.csv").read_text()


@pytest.mark.slow
def test_a_state_without_losses_goes_on(tmp_path: Path) -> None:
    """It was written by an earlier version: the losses are those that are computed, or unknown."""
    recipe, path = tiny("updates=2"), tmp_path / "run"
    whole = trained(recipe, path)
    state = tp.Snapshot.read(path / "state.safetensors")
    assert {"function/report/loss", "function/report/held_out_loss"} <= state.arrays.keys()
    arrays = {name: array for name, array in state.arrays.items() if "loss" not in name}
    tp.Snapshot(arrays, state.meta).write(path / "state.safetensors")
    again = trained(recipe, path, resume=True)
    assert again.loss is None and again.held_out_loss == whole.held_out_loss


@pytest.mark.slow
def test_a_run_of_one_report_on_a_device(tmp_path: Path) -> None:
    outcome = trained(tiny("updates=2"), tmp_path / "run", backend="jax")
    assert outcome.updates == 2 and outcome.loss is not None and math.isfinite(outcome.loss)


def test_a_model_is_trained_on(whole: tuple[Path, training.Outcome], tmp_path: Path) -> None:
    model = whole[0] / "model"
    recipe = tiny(f"start={model}", "learning_rate=0.001", "updates=2", "text.seed=1")
    prepared = training.Prepared(recipe)
    weights = load_weights(model, prepared.config)
    inputs = prepared.inputs()
    assert all((inputs[name] == weight).all() for name, weight in weights.items())
    assert prepared.tokenizer.to_str() == training.Prepared(tiny()).tokenizer.to_str(), "and not one of the other text"
    before = Evaluation(prepared.config, prepared.held_out, NUMPY).loss(weights)
    outcome = trained(recipe, tmp_path / "run")
    assert outcome.held_out_loss is not None and outcome.held_out_loss < before
    assert f"- It goes on with `{model}`" in (tmp_path / "run/model/README.md").read_text()
    with pytest.raises(RecipeError, match=r"has hidden_size=16, but the recipe 8\n  hint: .*: model.hidden_size=16"):
        training.Prepared(tiny(f"start={model}", "model.hidden_size=8"))
    with pytest.raises(RequestError, match="no/such/model is not a model"):
        training.Prepared(tiny("start=no/such/model"))
    (tmp_path / "other").mkdir()
    for file in model.iterdir():
        (tmp_path / "other" / file.name).write_text(file.read_text() if file.name == "config.json" else "{}")
    with pytest.raises(RunError, match=r"tokenizer.json cannot be read"):
        training.Prepared(tiny(f"start={tmp_path / 'other'}"))


def test_another_recipe_does_not_go_on(whole: tuple[Path, training.Outcome], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"another recipe: learning_rate is 0\.02 here, and 0\.01 there"):
        chosen_run(tiny("learning_rate=0.02"), "tiny", whole[0], False, "auto")
    with pytest.raises(RunError, match=r"holds a run already\n.*--resume auto"):
        chosen_run(tiny(), "tiny", whole[0], False, "off")
    with pytest.raises(RunError, match="there is no run to go on with"):
        chosen_run(tiny(), "tiny", None, False, str(tmp_path / "none"))
    with pytest.raises(RunError, match="exclude each other"):
        chosen_run(tiny(), "tiny", None, True, "auto")
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="files that are not of a run"):
        chosen_run(tiny(), "tiny", tmp_path, True, "off")
    with pytest.raises(RunError, match="--out names another run than --resume"):
        chosen_run(tiny(), "tiny", tmp_path / "other", False, str(whole[0]))
    assert chosen_run(tiny("learning_rate=0.01"), "tiny", whole[0] / "model" / "..", False, str(whole[0]))[1]


@pytest.mark.slow
def test_another_text_does_not_go_on(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if text.startswith("2/6"):
            os.kill(os.getpid(), signal.SIGTERM)

    file, path = tmp_path / "text.txt", tmp_path / "run"
    documents = [f"the number {k} is written here, and {k + 1} comes after it" for k in range(60)]
    file.write_text("\n\n".join(documents))
    recipe = tiny("text.lessons=0", f"text.file={file}")
    assert trained(recipe, path, say=stop).stopped == "SIGTERM"
    file.write_text("\n\n".join(documents).replace("here", "hear"))
    with pytest.raises(RunError, match=f"the text of the run in {path} was another one"):
        trained(recipe, path, resume=True)
    file.write_text("\n\n".join(documents))
    config = path / "config.yaml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("# text")))
    assert trained(recipe, path, resume=True).updates == 6  # a run of an earlier version does not say what its text was


@pytest.mark.slow  # another program goes through the passes
def test_gradients_of_parts_of_a_batch_add_up_to_those_of_the_whole() -> None:
    metrics = []
    for parts in (1, 2):
        recipe, reports = tiny("learning_rate=0.01", f"micro_batches={parts}"), training._Reports()
        prepared = training.Prepared(recipe)
        program = training.compiled(prepared, reports.receive, NUMPY)
        assert ("for m in 0:2" in program.text("program")) == (parts == 2)
        program.start(prepared.inputs(), by="e").advance("e")
        metrics.append(reports.metrics)
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(metrics[0][name], metrics[1][name], rtol=1e-3)


def test_training_that_diverges_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(config: LlamaConfig, seed: int, deviation: float) -> dict[str, np.ndarray]:
        return {name: weight * np.float32(1e30) for name, weight in first_weights(config, seed, deviation).items()}

    monkeypatch.setattr(training, "first_weights", large)
    message = r"training diverged: the loss is nan in update \d \(counted from 0\); nothing was saved\n.*lower learning_rate"
    with np.errstate(all="ignore"), pytest.raises(RunError, match=message):
        trained(tiny("learning_rate=0.01"), tmp_path / "run")
    assert not (tmp_path / "run/state.safetensors").exists()


@pytest.mark.slow
def test_training_that_diverges_keeps_the_last_good_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = training._Reports.receive

    def broken(self: training._Reports, number: int, metrics: Any, parameters: Any) -> None:
        receive(self, number, {**metrics, "loss": metrics["loss"] * (np.nan if number == 1 else 1)}, parameters)

    monkeypatch.setattr(training._Reports, "receive", broken)
    with pytest.raises(RunError, match=r"the loss is nan in update 2 .*holds the state and the model after update 1\n"):
        trained(tiny("learning_rate=0.01"), tmp_path / "run")
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 2
    assert load_weights(tmp_path / "run/model", LlamaConfig.from_directory(tmp_path / "run/model"))


@pytest.mark.slow
@pytest.mark.parametrize("override", ["dtype=float32", "dtype=bfloat16"])
def test_device_programs_train_as_numpy_does_and_go_on_bit_for_bit(tmp_path: Path, override: str) -> None:
    recipe = tiny(override, "micro_batches=2")
    whole = trained(recipe, tmp_path / "whole", backend="jax")
    stopped = trained(
        recipe, tmp_path / "run", backend="jax", say=lambda text: text[:2] == "4/" and os.kill(os.getpid(), signal.SIGINT)
    )
    assert stopped.stopped == "SIGINT" and whole.compiles <= 3
    trained(recipe, tmp_path / "run", resume=True, backend="jax")
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == (tmp_path / "whole/model/model.safetensors").read_bytes()
    if override == "dtype=float32":
        assert trained(recipe, tmp_path / "numpy").loss == pytest.approx(whole.loss, rel=1e-4)


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, values: dict[str, Any], tied: bool, dtype: str) -> None:
    config = LlamaConfig.from_values({**values, "tie_word_embeddings": tied})
    weights = first_weights(config, 3)
    save_model(tmp_path / "model", config, weights, dtype)
    again = LlamaConfig.from_directory(tmp_path / "model")
    assert again == config
    loaded = load_weights(tmp_path / "model", again)
    assert set(loaded) == set(weights)
    for name, weight in weights.items():
        np.testing.assert_allclose(loaded[name], weight, rtol=0 if dtype == "float32" else 2**-8, err_msg=name)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_users_config_is_not_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    with pytest.raises(RunError, match=r"config.yaml was not written by tempo-llm train\n"):
        chosen_run(load_recipe("tiny_llama"), "tiny_llama", tmp_path, overwrite, "off" if overwrite else "auto")
    assert (tmp_path / "config.yaml").read_text() == "mine: 1\n"
