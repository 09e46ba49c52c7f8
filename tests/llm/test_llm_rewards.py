"""Learning from rewards and from preferences: updates against an oracle, rewards in Python, runs that go on, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_llm.training import run as training
from tempo_llm.training.recipe import DPORecipe, GRPORecipe, make_recipe
from tempo_llm.training.rewards import grpo, reading
from tempo_llm.training.rewards.rewarded import Rewarded
from tempo_llm.training.rundir import RunFiles
from tests.llm import models
from tests.llm.steps import Updates, all_log_probs, log_probs

pytest.importorskip("tokenizers")

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


def reports_of(recipe: GRPORecipe, task: Rewarded, seen: Seen, **options: Any) -> list[tuple[Arrays, Arrays]]:
    """The metrics and the parameters of each report."""
    reports: list[tuple[Arrays, Arrays]] = []

    def receive(number: int, metrics: Any, parameters: Any) -> None:
        reports.append(tuple({name: np.array(value) for name, value in each.items()} for each in (metrics, parameters)))  # type: ignore[arg-type]

    traced = grpo.trace_grpo(task.config, recipe, task.prompts, receive, None, task.adapters, seen.judge)
    program = traced.context.compile(traced.bounds, traced.outputs, tp.Config(seed=recipe.seed, **options))
    program.run(task.inputs())
    return reports


def rewarded_by_jax(task: Rewarded, values: dict[str, Any], texts: list[np.ndarray]) -> list[Arrays]:
    """The metrics of each update with these texts, and the parameters after it, written without the package."""
    recipe, known = task.recipe, task.prompts
    updates, inputs = Updates(task), task.inputs()
    high = recipe.clip_range if recipe.clip_high is None else recipe.clip_high
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
        advantage = advantages.reshape(-1, 1)

        def chosen(w: Any, tokens: Any = tokens, at: Any = at) -> tuple[Any, Any]:
            scale = updates.scale
            alone = log_probs(values, w, scale, tokens, recipe.temperature)
            everything = all_log_probs(values, w, scale, tokens, recipe.temperature)
            entropy = -(jnp.exp(everything) * everything).sum(-1)
            return jnp.take_along_axis(alone, at, 1), jnp.take_along_axis(entropy, at, 1)

        def mean(x: Any, counts: Any = counts) -> Any:
            masked = x * counts
            if recipe.average == "texts":
                return (masked.sum(1) / counts.sum(1)).mean()
            return masked.sum() / (counts.size if recipe.average == "length" else counts.sum())

        def loss(w: Any, old: Any, advantage: Any = advantage) -> tuple[Any, dict[str, Any]]:
            now, entropy = chosen(updates.all(w))
            first, _ = chosen({**updates.fixed, **{name: jnp.zeros_like(x) for name, x in w.items() if ".lora_" in name}})
            ratio = jnp.exp(now - old)
            clipped = jnp.clip(ratio, 1 - recipe.clip_range, 1 + high)
            gap = first - now
            divergence = jnp.exp(gap) - gap - 1
            cost = -jnp.minimum(ratio * advantage, clipped * advantage) + recipe.kl * divergence - recipe.entropy * entropy
            told = {"entropy": mean(entropy), "kl": mean(divergence), "clipped": mean((ratio != clipped).astype(jnp.float32))}
            return mean(cost), told

        with jax.numpy_rank_promotion("allow"):
            old = chosen(updates.all(updates.trained))[0]
            for _ in range(recipe.epochs):
                (value, told), gradients = jax.value_and_grad(loss, has_aux=True)(updates.trained, old)
                told |= {"loss": value, "reward": rewards.mean(), "length": counts.sum(1).mean(), "spread": rewards.std(1).mean()}
                told["gradient_norm"] = updates.update(gradients)
                results.append({name: np.asarray(each) for name, each in {**told, **updates.trained}.items()})
    return results


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("lora.rank=2", "normalize=none", "average=texts", "kl=0.3", "entropy=0.1", "temperature=0.7"),
        ("epochs=2", "report_every=2", "clip_range=0.01", "clip_high=0.02", "average=length", "kl=0.2", "learning_rate=0.02"),
    ],
    ids=["one update", "adapters", "several updates"],
)
def test_updates_by_rewards_are_those_of_an_oracle(
    overrides: tuple[str, ...], model: Path, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, gradient and AdamW, with prompts of several blocks, and texts that end before others."""
    if "lora.rank=2" in overrides:
        monkeypatch.setattr(reading, "BLOCK", 2)
    lines = [{"prompt": f"{'a lazy ' * (k % 3)}fox {word}"} for k, word in enumerate(WORDS)]
    recipe = grpo_recipe(model, tmp_path, "reward=tests.llm.test_llm_rewards:judged", *overrides, lines=lines)
    task, seen = Rewarded(recipe, lambda note: None), Seen()
    task.prompts.ends[::5] = True  # so that some texts end early
    reports = reports_of(recipe, task, seen, **NUMPY)
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


def test_compiled_rewards_are_those_of_the_interpreted_program(model: Path, tmp_path: Path) -> None:
    recipe = grpo_recipe(model, tmp_path, "updates=2", "report_every=1", "group=2")
    task, (first, second) = Rewarded(recipe, lambda note: None), (Seen(), Seen())
    interpreted, compiled = reports_of(recipe, task, first, **NUMPY), reports_of(recipe, task, second, cache=False)
    assert all((a == b).all() for a, b in zip(first.texts, second.texts, strict=True))
    for (metrics, parameters), (others, more) in zip(interpreted, compiled, strict=True):
        for name, value in {**metrics, **parameters}.items():
            np.testing.assert_allclose({**others, **more}[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
