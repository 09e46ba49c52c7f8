"""Learning from rewards and from preferences: updates against an oracle, rewards in Python, runs that go on, and mistakes."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import tempo_core as tp
import tempo_llm
from tempo_core.runs.commands import RecipeError, RunError, UserError
from tempo_core.symbolic.expr import Symbol
from tempo_llm.cli import app
from tempo_llm.errors import LlmError
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training import run as training
from tempo_llm.training.examples import read_lines
from tempo_llm.training.recipe import DPORecipe, GRPORecipe, load_recipe, make_recipe
from tempo_llm.training.rewards import dpo, grpo, pairs, prompts, reading
from tempo_llm.training.rewards.preferring import Preferring
from tempo_llm.training.rewards.rewarded import Rewarded
from tempo_llm.training.rundir import RunFiles, chosen_run
from tests.cases import slow
from tests.llm import models
from tests.llm.training.steps import Updates, all_log_probs, log_probs

pytest.importorskip("tokenizers")

PAGE = (Path(__file__).resolve().parents[3] / "docs/rewards.md").read_text(encoding="utf-8")
WORDS = ("runs", "sleeps", "jumps", "barks", "eats", "hides", "sings", "swims")
LINES = [{"prompt": f"the fox {word}", "reference": " and"} for word in WORDS]
PAIRS = [{"prompt": f"the fox {word}", "chosen": " and", "rejected": f" {word} dog"} for word in WORDS]
NUMPY: dict[str, Any] = {"backend": "numpy"}  # which compiles nothing
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Equal programs go through the passes once."""
    NUMPY["cache"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.whole_model(tmp_path_factory.mktemp("models") / "model", hidden_size=16, intermediate_size=24)[0]


@pytest.fixture(scope="module")
def values(model: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((model / "config.json").read_text())
    return read


def written(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def settings(model: Path, folder: Path, lines: Sequence[object]) -> dict[str, Any]:
    data = written(folder / "data.jsonl", lines)
    return {
        "model": str(model), "data": str(data), "held_out": 0.4, "updates": 4, "report_every": 2, "warmup": 1, "learning_rate": 0.01,
        "weight_decay": 0.1,
    }  # fmt: skip


def grpo_recipe(model: Path, folder: Path, *overrides: str, lines: Sequence[object] = LINES) -> GRPORecipe:
    sizes = {"objective": "grpo", "prompts": 3, "group": 4, "new_tokens": 4}
    recipe = make_recipe({**settings(model, folder, lines), **sizes}, overrides)
    assert isinstance(recipe, GRPORecipe)
    return recipe


def dpo_recipe(model: Path, folder: Path, *overrides: str, lines: Sequence[object] = PAIRS) -> DPORecipe:
    recipe = make_recipe({**settings(model, folder, lines), "objective": "dpo", "length": 12, "batch_size": 3}, overrides)
    assert isinstance(recipe, DPORecipe)
    return recipe


def trained(recipe: GRPORecipe | DPORecipe, path: Path, **arguments: Any) -> training.Outcome:
    return training.train(recipe, RunFiles(path), say=arguments.pop("say", lambda text: None), **{**NUMPY, **arguments})


# -- updates by rewards -----------------------------------------------------------------------------------------------


def judged(rows: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray]:
    """A reward that differs between texts: how many of their tokens are odd."""
    return ((texts % 2 == 1).sum(-1).astype(np.float32),)


class Seen:
    """The texts that a program wrote, in each iteration."""

    def __init__(self) -> None:
        self.texts: list[np.ndarray] = []

    def judge(self, rows: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray]:
        self.texts.append(np.array(texts))
        return judged(rows, texts)


def run_of(recipe: GRPORecipe, task: Rewarded, seen: Seen, **options: Any) -> tuple[list[tuple[Arrays, Arrays]], tp.Program[Any]]:
    """The metrics and the parameters of each report, and the program."""
    reports: list[tuple[Arrays, Arrays]] = []

    def receive(number: int, metrics: Any, parameters: Any) -> None:
        reports.append(tuple({name: np.array(value) for name, value in each.items()} for each in (metrics, parameters)))  # type: ignore[arg-type]

    traced = grpo.trace_grpo(task.config, recipe, task.prompts, receive, None, task.adapters, seen.judge)
    program = traced.context.compile(traced.bounds, traced.outputs, tp.Config(seed=recipe.seed, **options))
    program.run(task.inputs())
    return reports, program


def rewarded_by_jax(task: Rewarded, values: dict[str, Any], texts: list[np.ndarray]) -> list[Arrays]:
    """The metrics of each update with these texts, and the parameters after it, written without the package."""
    recipe, known = task.recipe, task.prompts
    updates, inputs = Updates(task), task.inputs()
    high = recipe.clip_range if recipe.clip_high is None else recipe.clip_high

    def chosen(w: Any, tokens: Any, at: Any) -> tuple[Any, Any]:
        scale = updates.scale
        alone = log_probs(values, w, scale, tokens, recipe.temperature)
        everything = all_log_probs(values, w, scale, tokens, recipe.temperature)
        entropy = -(jnp.exp(everything) * everything).sum(-1)
        return jnp.take_along_axis(alone, at, 1), jnp.take_along_axis(entropy, at, 1)

    def mean(x: Any, counts: Any) -> Any:
        masked = x * counts
        if recipe.average == "texts":
            return (masked.sum(1) / counts.sum(1)).mean()
        return masked.sum() / (counts.size if recipe.average == "length" else counts.sum())

    def loss(w: Any, old: Any, tokens: Any, at: Any, counts: Any, advantage: Any) -> tuple[Any, dict[str, Any]]:
        now, entropy = chosen(updates.all(w), tokens, at)
        first = chosen({**updates.fixed, **{name: jnp.zeros_like(x) for name, x in w.items() if ".lora_" in name}}, tokens, at)[0]
        ratio = jnp.exp(now - old)
        clipped = jnp.clip(ratio, 1 - recipe.clip_range, 1 + high)
        gap = first - now
        divergence = jnp.exp(gap) - gap - 1
        cost = -jnp.minimum(ratio * advantage, clipped * advantage) + recipe.kl * divergence - recipe.entropy * entropy
        told = {"entropy": entropy, "kl": divergence, "clipped": (ratio != clipped).astype(jnp.float32)}
        return mean(cost, counts), {name: mean(each, counts) for name, each in told.items()}

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    before = jax.jit(lambda w, tokens, at: chosen(updates.all(w), tokens, at)[0])
    results: list[Arrays] = []
    orders = inputs["row"].reshape(len(texts), recipe.prompts)
    for order, drawn in zip(orders, texts, strict=True):
        rewards = judged(order, drawn)[0]
        advantages = rewards - rewards.mean(1, keepdims=True)
        if recipe.normalize == "std":
            advantages = advantages / (rewards.std(1, keepdims=True) + 1e-4)
        rows, places = [], []
        for number, group in zip(order, drawn, strict=True):
            start = known.start[number]
            for text in group:
                rows.append([*known.tokens[number, :start], *np.maximum(text, 0), *[0] * (known.width - start)])
                places.append(np.arange(start - 1, start - 1 + recipe.new_tokens))
        tokens, at = np.asarray(rows, np.int32), np.asarray(places)
        counts = (drawn >= 0).reshape(-1, recipe.new_tokens).astype(np.float32)
        with jax.numpy_rank_promotion("allow"):
            old = before(updates.trained, tokens, at)
            for _ in range(recipe.epochs):
                (value, told), gradients = step(updates.trained, old, tokens, at, counts, advantages.reshape(-1, 1))
                told |= {"loss": value, "reward": rewards.mean(), "length": counts.sum(1).mean(), "spread": rewards.std(1).mean()}
                told["gradient_norm"] = updates.update(gradients)
                results.append({name: np.asarray(each) for name, each in {**told, **updates.trained}.items()})
    return results


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), id="one update", marks=pytest.mark.slow),  # tests/optimized has the figures of the shipped recipe
        pytest.param(
            ("lora.rank=2", "normalize=none", "average=texts", "kl=0.3", "entropy=0.1", "temperature=0.7"),
            id="adapters",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("epochs=2", "report_every=2", "clip_range=0.01", "clip_high=0.02", "average=length", "kl=0.2", "learning_rate=0.02"),
            id="several updates",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_updates_by_rewards_are_those_of_an_oracle(
    overrides: tuple[str, ...], model: Path, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, gradient and AdamW, with prompts of several blocks, and texts that end before others."""
    if "lora.rank=2" in overrides:
        monkeypatch.setattr(reading, "BLOCK", 2)
    lines = [{"prompt": f"{'a lazy ' * (k % 3)}fox {word}"} for k, word in enumerate(WORDS)]
    recipe = grpo_recipe(model, tmp_path, "reward=tests.llm.training.test_llm_rewards:judged", *overrides, lines=lines)
    task, seen = Rewarded(recipe, lambda note: None), Seen()
    task.prompts.ends[::5] = True  # so that some texts end early
    reports, program = run_of(recipe, task, seen, **NUMPY)
    logits = re.findall(rf" = Dot\(.*float32\[(?:U, )?R, J, {task.config.vocab_size}\]", program.text("sdg"))
    assert len(logits) == 1 + (recipe.epochs > 1) + (recipe.kl > 0), "texts are computed once, and learned from with that"
    assert len(seen.texts) == recipe.updates // recipe.epochs, "the reward is called once in an iteration"
    settled = [
        part
        for node in program.graph
        for part in node.domain.condition.parts
        if part.symbols and part.symbols <= program.bounds.keys()
    ]
    assert not [part for part in settled if part.evaluate(program.bounds)], "what holds for all runs is not a condition"
    counts = np.concatenate([(texts >= 0).sum(-1).ravel() for texts in seen.texts])
    assert counts.min() < recipe.new_tokens == counts.max()
    expected = rewarded_by_jax(task, values, seen.texts)
    assert len(expected) == recipe.updates and len(reports) == 2
    if recipe.epochs > 1:
        assert expected[1]["clipped"] > 0, "something was clipped"
    for name in reports[0][0].keys() - {"learning_rate"}:
        ours = np.concatenate([metrics[name].ravel() for metrics, _ in reports])
        every = recipe.epochs if name in ("reward", "length", "spread") else 1
        np.testing.assert_allclose(ours, [each[name] for each in expected[::every]], rtol=3e-4, atol=2e-6, err_msg=name)
    for number, (_, parameters) in enumerate(reports):
        for name, value in parameters.items():
            np.testing.assert_allclose(value, expected[2 * number + 1][name], atol=5e-5, err_msg=name)


@pytest.mark.slow
def test_no_value_grows_with_the_cube_of_the_tokens(tmp_path: Path) -> None:
    """The gradients of keys and of values are products: not sums over values for each token, place and place again."""
    recipe = load_recipe("grpo_tiny", ["new_tokens=13", "updates=2", "warmup=1", "report_every=1", "prompts=2", "group=2"])
    assert isinstance(recipe, GRPORecipe)
    _, program = run_of(recipe, Rewarded(recipe, lambda note: None), Seen(), **NUMPY)
    assert program.bounds[Symbol("U")] == 13
    degrees = [
        sum("U" in map(str, size.symbols) for size in (*output.shape, *(step.bound_expr for step in node.domain.steps)))
        for node in program.graph
        for output in node.outputs
    ]
    assert max(degrees) == 2


@pytest.mark.slow
def test_compiled_rewards_are_those_of_the_interpreted_program(model: Path, tmp_path: Path) -> None:
    recipe = grpo_recipe(model, tmp_path, "updates=2", "report_every=1", "group=2")
    task, (first, second) = Rewarded(recipe, lambda note: None), (Seen(), Seen())
    interpreted, compiled = run_of(recipe, task, first, **NUMPY)[0], run_of(recipe, task, second, cache=False)[0]
    assert all((a == b).all() for a, b in zip(first.texts, second.texts, strict=True))
    for (metrics, parameters), (others, more) in zip(interpreted, compiled, strict=True):
        for name, value in {**metrics, **parameters}.items():
            np.testing.assert_allclose({**others, **more}[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


# -- updates by preferences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), id="whole", marks=pytest.mark.slow),
        pytest.param(("lora.rank=2", "label_smoothing=0.2", "beta=0.5"), id="adapters", marks=pytest.mark.slow),
    ],
)
def test_updates_by_preferences_are_those_of_an_oracle(
    overrides: tuple[str, ...], model: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    recipe = dpo_recipe(model, tmp_path, *overrides, "batch_size=2")
    task, reports = Preferring(recipe, lambda note: None), training._Reports()
    live = training.compiled(task, reports.receive, NUMPY).start(task.inputs(), by="e")
    updates, inputs, results = Updates(task), task.inputs(), []

    def log_prob(w: Any, chosen: np.ndarray) -> Any:
        tokens, counted = (inputs[name][chosen].reshape(2 * len(chosen), -1) for name in ("pairs", "counted"))
        alone = log_probs(values, w, updates.scale, tokens)
        return jnp.where(counted, alone, 0.0).sum(1).reshape(-1, 2)

    def loss(w: Any, chosen: np.ndarray, first: Any) -> tuple[Any, Any]:
        change = log_prob(updates.all(w), chosen) - first
        margin = recipe.beta * (change[:, 0] - change[:, 1])
        right, wrong = (-jax.nn.log_sigmoid(sign * margin) for sign in (1, -1))
        return ((1 - recipe.label_smoothing) * right + recipe.label_smoothing * wrong).mean(), margin

    start = updates.all(dict(updates.trained))  # whose adapters change nothing
    for order in inputs["row"].reshape(recipe.updates, -1):
        with jax.numpy_rank_promotion("allow"):
            first = log_prob(start, order)
            (value, margin), gradients = jax.value_and_grad(loss, has_aux=True)(updates.trained, order, first)
        figures = {"loss": value, "margin": margin.mean(), "accuracy": (margin > 0).mean()}
        results.append({**figures, "gradient_norm": updates.update(gradients), **updates.trained})
    for report in range(2):
        live.advance("e")
        for name in ("loss", "margin", "accuracy", "gradient_norm"):
            expected = [float(each[name]) for each in results[2 * report : 2 * report + 2]]
            np.testing.assert_allclose(reports.metrics[name], expected, rtol=5e-4, atol=1e-5, err_msg=name)
        for name, value in reports.parameters.items():
            np.testing.assert_allclose(value, results[2 * report + 1][name], atol=5e-5, err_msg=name)
    measured = task.measure(NUMPY).figures(task.weights(reports.parameters))
    with jax.numpy_rank_promotion("allow"):
        inputs |= task.held_out.inputs()
        _, margin = loss(updates.trained, np.arange(len(task.held_out)), log_prob(start, np.arange(len(task.held_out))))
    assert measured["held_out_margin"] == pytest.approx(float(margin.mean()), rel=1e-3)


# -- rewards ----------------------------------------------------------------------------------------------------------


def wrong(prompts: list[str], completions: list[str]) -> list[float]:
    raise ValueError("no such answer")


def too_few(prompts: list[str], completions: list[str]) -> list[float]:
    return [1.0]


def not_a_number(prompts: list[str], completions: list[str]) -> list[float]:
    return [math.nan] * len(prompts)


def of_words(prompts: list[str], completions: list[str]) -> list[str]:
    return ["good"] * len(prompts)


def alone(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


def by_length(prompts: list[str], completions: list[str], references: list[str | None]) -> list[float]:
    assert len(prompts) == len(completions) == len(references) and {*references} <= {" and"}
    return [float(len(text)) for text in completions]


def here(function: Callable[..., object]) -> str:
    return f"reward={__name__}:{function.__name__}"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (wrong, r"the reward .*:wrong failed: ValueError: no such answer"),
        (too_few, r"the reward .*:too_few gave numbers of the shape \(1,\) for \d+ texts"),
        (not_a_number, r"the reward .*:not_a_number gave nan for the text"),
        (of_words, r"the reward .*:of_words gave .*good.*, and not numbers"),
    ],
)
def test_what_a_reward_does_wrong_is_told_with_its_name(
    function: Callable[..., object], words: str, model: Path, tmp_path: Path
) -> None:
    task = Rewarded(grpo_recipe(model, tmp_path, here(function)), lambda note: None)
    judge = task.judge(task.prompts)
    assert judge is not None
    with pytest.raises(RunError, match=words):
        judge(np.arange(3, dtype=np.int32), np.full((3, 4, 4), 7, np.int32))


@pytest.mark.slow
def test_an_error_of_a_reward_ends_the_command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.py").write_text("def score(prompts, completions):\n    return [1 / 0 for _ in prompts]\n")
    grpo_recipe(model, tmp_path)
    recipe = {**settings(model, tmp_path, LINES), "objective": "grpo", "reward": "scores:score", "executor": "interpreted"}
    (tmp_path / "mine.yaml").write_text(json.dumps(recipe))
    result = CliRunner().invoke(app, ["train", "mine.yaml", "prompts=2", "group=2", "new_tokens=4", "--no-cache", "--out", "run"])
    assert result.exit_code == 1 and "the reward scores:score failed: ZeroDivisionError" in result.output
    assert "Traceback" not in result.output


def test_a_reward_gets_texts_to_their_ends(model: Path, tmp_path: Path) -> None:
    task = Rewarded(grpo_recipe(model, tmp_path, here(by_length)), lambda note: None)
    judge = task.judge(task.prompts)
    assert judge is not None
    word = Tokenizer.from_directory(model).encode_behind(" fox")
    texts = np.full((1, 2, len(word) + 1), prompts.NOTHING, np.int32)
    texts[0, 0, : len(word)] = word
    assert judge(np.zeros(1, np.int32), texts)[0].tolist() == [[4.0, 0.0]]


def test_held_out_rewards_are_those_of_the_model(model: Path, tmp_path: Path) -> None:
    """Greedily, to an end token: what `generate` writes."""
    recipe = grpo_recipe(model, tmp_path, here(by_length))
    task = Rewarded(recipe, lambda note: None)
    texts = tempo_llm.load(model, **NUMPY).generate(list(task.held_out.asked), recipe.new_tokens)
    figures = task.measure(NUMPY).figures(task.weights(task.first_values()))
    assert figures["held_out_reward"] == pytest.approx(np.mean([len(each.text or "") for each in texts.completions]))
    assert figures["held_out_length"] == pytest.approx(np.mean([len(each.token_ids) for each in texts.completions]))
    task.held_out.reference[:] = prompts.NOTHING
    for row, each in zip(task.held_out.reference, texts.completions, strict=True):
        row[: len(each.token_ids)] = each.token_ids
    task.function = None
    assert task.measure(NUMPY).figures(task.weights(task.first_values()))["held_out_reward"] == 1.0
    task.held_out.reference[0, -1] += 1
    assert task.measure(NUMPY).figures(task.weights(task.first_values()))["held_out_reward"] < 1.0


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [slow(grpo_recipe), dpo_recipe])
def test_a_run_goes_on_bit_for_bit(of: Callable[..., GRPORecipe | DPORecipe], model: Path, tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if text.startswith("2/4"):
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = of(model, tmp_path, "lora.rank=1", "lora.targets=[q_proj]", *([here(by_length)] if of is grpo_recipe else []))
    whole, path = tmp_path / "whole", tmp_path / "run"
    said: list[str] = []
    outcome = trained(recipe, whole, say=said.append)
    assert any(text.startswith("the plan of the run:\ntensor") and "at most: about" in text for text in said)
    column = "held_out_reward" if of is grpo_recipe else "held_out_loss"
    assert outcome.first[column] is not None and any(text.startswith("before the first update: held-out") for text in said)
    stopped = trained(recipe, path, say=stop)
    assert (stopped.stopped, stopped.updates) == ("SIGTERM", 2)
    run, goes_on = chosen_run(recipe, "tiny", path, False, "auto")
    assert goes_on and not run.is_finished()
    again = trained(recipe, path, resume=True)
    assert again.first == outcome.first and again.figures == outcome.figures
    for name in ("metrics.csv", "model/model.safetensors", "adapter/adapter_model.safetensors"):
        assert (path / name).read_bytes() == (whole / name).read_bytes(), name
    states = [load_file(directory / "state.safetensors") for directory in (path, whole)]
    assert states[0].keys() == states[1].keys() and all((states[0][name] == states[1][name]).all() for name in states[0])
    with (path / "metrics.csv").open(newline="") as file:
        assert [row["update"] for row in csv.DictReader(file)] == ["2", "4"]
    assert tempo_llm.load(path / "model", **NUMPY).generate("the fox", 2).text is not None
    assert "held-out" in (path / "model/README.md").read_text()


COMMANDS = re.findall(r"^tempo-llm train (.+)$", PAGE, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_train(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For two updates, and with few texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", partial(training.train, backend="numpy"))
    few = ["prompts=2", "group=2"] if "grpo" in command else ["batch_size=2"]
    short = ["updates=2", "warmup=1", "report_every=2", "eval_rows=4", *few, "--cache", NUMPY["cache"], "--out", "run"]
    result = CliRunner().invoke(app, ["train", *command.split(), *short])
    assert result.exit_code == 0 and "2 updates in" in result.output, result.output
    assert json.loads((tmp_path / "run/result.json").read_text())["updates"] == 2


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("group=1", "group=1 has nothing to compare a text with.* Write group=8"),
        ("epochs=3", "epochs=3 does not divide report_every=2"),
        ("reward=equal", "reward=equal is neither exact nor a function as module:function"),
        ("reward=nowhere:score", "reward=nowhere:score cannot be imported"),
        ("reward=math:pi", "reward=math:pi is 3.14.*, and not a function"),
        ("reward=tests.llm.training.test_llm_rewards:alone", "alone takes 1 arguments, and not two or three"),
        ("clip_range=1.5", "clip_range"),
        ("temperature=0", "temperature"),
        ("average=words", "average"),
        ("objective=ppo", "objective is 'ppo'\n  hint: it is one of grpo, dpo"),
        ("batch_size=4", "batch_size"),
        ("new_tokens=1", r"the reference has \d tokens with its end token, more than new_tokens=1"),
        ("new_tokens=300", "and new_tokens=300 are more than the 256 positions"),
        ("kl=-1", "kl"),
        ("updates=3", "report_every=2 does not divide updates=3"),
    ],
)
def test_recipes_of_rewards_that_are_refused(override: str, words: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises((RecipeError, LlmError), match=words):
        Rewarded(grpo_recipe(model, tmp_path, override), lambda note: None).traced(lambda *report: None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"prompt": "a fox"}, "has no reference, which reward=exact compares texts with"),
        ({"reference": "a fox"}, "line 1 of .* has no prompt\n  hint: write"),
        ({"prompt": "a", "answer": "b"}, "unknown key 'answer'"),
        ({"prompt": 3}, "prompt is 3, and not a text"),
        ("{", "is not JSON"),
    ],
)
def test_prompts_that_are_refused(line: object, words: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=words):
        Rewarded(grpo_recipe(model, tmp_path, lines=[line, *LINES]), lambda note: None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"prompt": "a", "chosen": " b"}, "has no prompt with a chosen and a rejected text"),
        (
            {"prompt": "a", "chosen": " b", "rejected": " b"},
            "the chosen and the rejected text are the same within length=12 tokens",
        ),
        ({"prompt": "fox " * 30, "chosen": " b", "rejected": " a"}, "so that no text is left within length=12"),
    ],
)
def test_pairs_that_are_refused(line: object, words: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=words):
        Preferring(dpo_recipe(model, tmp_path, lines=[line, *PAIRS]), lambda note: None)


def test_long_texts_of_pairs_are_cut(model: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    lines = read_lines(
        written(tmp_path / "data.jsonl", [{"prompt": "a", "chosen": " fox" * 30, "rejected": " dog"}]), pairs.FORMS
    )
    cut = pairs.pairs_of(lines, Tokenizer.from_directory(model), (2,), 8, notes.append)
    assert cut.length == 8 and notes == ["1 of 2 texts are longer than length=8 tokens: their ends are left out"]
    assert cut.tokens[0, 0, -1] != 2 and 2 in cut.tokens[0, 1]
    before = len(Tokenizer.from_directory(model).encode("a", raw=True))
    assert not cut.counted[0, :, : before - 1].any() and cut.counted[0, 0, before - 1 :].all()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_training(model: Path, tmp_path: Path) -> None:
    recipe = dpo_recipe(model, tmp_path, "beta=1e30", "learning_rate=1e5", "max_grad_norm=null")
    with pytest.raises(UserError, match="training diverged"):
        trained(recipe, tmp_path / "run")


@pytest.mark.parametrize(("name", "kind"), [("grpo_tiny", GRPORecipe), ("dpo_tiny", DPORecipe)])
def test_shipped_recipes_ask_for_sums_that_training_never_sees(name: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(name)
    assert type(recipe) is kind
    if isinstance(recipe, GRPORecipe):
        task = Rewarded(recipe, lambda note: None)
        learned, held_out = (
            {tuple(asked.replace("?", " is").split()) for asked in each.asked} for each in (task.prompts, task.held_out)
        )
        assert not learned & held_out and len(held_out) > 100


def test_figures_of_pairs_are_means(model: Path, tmp_path: Path) -> None:
    recipe = dpo_recipe(model, tmp_path, "beta=1")
    figures = dpo.figures_of(np.zeros((2, 2)), np.array([[1.0, 0.0], [0.0, 3.0]]), recipe)
    assert figures["held_out_accuracy"] == 0.5 and figures["held_out_margin"] == -1.0
    assert figures["held_out_loss"] == pytest.approx((math.log1p(math.exp(-1)) + math.log1p(math.exp(3))) / 2)
