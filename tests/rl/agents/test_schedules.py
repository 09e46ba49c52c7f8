"""Schedules of learning rates, of the clip range and of the weight of the entropy: their values, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import yaml

import tempo_core as tp
from tempo_rl.agents.schedules import rate, scheduled
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import PPORecipe, dump_recipe, make_recipe
from tests.cases import fast
from tests.rl.agents.test_agents import LOSSES, SMALL, Adam, train

BASE = {"algorithm": "ppo", "num_envs": 2, "num_steps": 8, "total_timesteps": 160}  # 10 iterations of 16 steps
COSINE = {"schedule": "cosine", "start": 0.5, "end": 0.1}
VALUES: dict[str, tuple[Any, Callable[[np.ndarray], Any]]] = {
    "a number": (0.5, lambda i: 0.5 + 0 * i),
    "linear": ({"schedule": "linear", "start": 0.5, "end": 0.1}, lambda i: 0.5 - 0.4 * i / 10),
    "to 0": ({"schedule": "linear", "start": 0.5}, lambda i: 0.5 - 0.5 * i / 10),
    "cosine": (COSINE, lambda i: 0.1 + 0.2 * (1 + np.cos(np.pi * i / 10))),
    "steps": (
        {"schedule": "steps", "values": [0.5, 0.2, 0.1], "at": [48, 100]},
        lambda i: np.array([0.5] * 3 + [0.2] * 4 + [0.1] * 3),
    ),
    "one step": ({"schedule": "steps", "values": [0.5]}, lambda i: 0.5 + 0 * i),
}


def values_of(recipe: PPORecipe, build: Callable[..., Any]) -> np.ndarray:
    """The numbers of `build(recipe, recipe.learning_rate, i, I)` in all iterations."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        value = tp.zeros(()) * i + build(recipe, recipe.learning_rate, i, I)
    return np.asarray(ctx.run({I: recipe.iterations}, [value])[0])


@pytest.mark.parametrize("case", VALUES)
def test_values(case: str) -> None:
    written, expected = VALUES[case]
    recipe = make_recipe(BASE | {"learning_rate": written})
    assert isinstance(recipe, PPORecipe)
    np.testing.assert_allclose(values_of(recipe, scheduled), expected(np.arange(10)), rtol=1e-5)
    assert make_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    falling = values_of(recipe, rate)  # anneal_lr is on, for numbers
    np.testing.assert_allclose(
        falling, expected(np.arange(10)) * (1 - np.arange(10) / 10 if case == "a number" else 1), rtol=1e-5
    )


def test_overrides_write_schedules() -> None:
    recipe = make_recipe(BASE, ["clip_coef={schedule: cosine, start: 3e-1, end: 0}", "clip-coef.end=0.1"])
    assert isinstance(recipe, PPORecipe) and not isinstance(recipe.clip_coef, float)
    assert (recipe.clip_coef.start, recipe.clip_coef.end) == (0.3, 0.1)


WRONG = {
    "learning_rate={schedule: cosine}": "a cosine schedule has a start and an end: {schedule: cosine, start: 3e-4, end: 0}",
    "learning_rate={schedule: linear, start: 1, at: [3]}": "a linear schedule has a start and an end",
    "learning_rate={schedule: steps, values: [1, 2]}": "one value more than places, which rise, got values=[1.0, 2.0] and at=[]",
    "learning_rate={schedule: steps, values: [1, 2, 3], at: [5, 4]}": "got values=[1.0, 2.0, 3.0] and at=[5, 4]",
    "learning_rate={schedule: steps, values: [1, 2], at: [0]}": "learning_rate.at.0 is 0",
    "learning_rate={schedule: square, start: 1}": "learning_rate.schedule is 'square': input should be 'linear', 'cosine' or 'steps'",
    "learning_rate={start: 1}": "learning_rate.schedule is",
    "learning_rate={schedule: linear, start: 1, and: 2}": "learning_rate.and is 2",
    "learning_rate=-1": "learning_rate is -1: input should be greater than 0",
    "learning_rate=fast": "learning_rate is 'fast': input should be a valid number",
    "ent_coef={schedule: linear, start: -1}": "ent_coef.start is -1",
    "gamma={schedule: linear, start: 1}": "gamma is {'schedule': 'linear', 'start': 1}: input should be a valid number",
}


@pytest.mark.parametrize("override", WRONG)
def test_wrong_schedules_are_refused(override: str) -> None:
    with pytest.raises(RecipeError) as raised:
        make_recipe(BASE, [override])
    assert WRONG[override] in str(raised.value)


@pytest.mark.parametrize("algorithm", fast(["ppo", "actor_critic", "reinforce"], "reinforce"))
def test_updates_follow_their_schedules(algorithm: str) -> None:
    """Two iterations, each against plain JAX with the numbers of that iteration."""
    halved = {"schedule": "steps", "values": [0.02, 0.01], "at": [14]}
    keys: dict[str, Any] = {"algorithm": algorithm, "learning_rate": halved, "ent_coef": {"schedule": "linear", "start": 0.4}}
    if algorithm == "ppo":
        keys |= {"clip_coef": {"schedule": "linear", "start": 0.02, "end": 0.01}, "num_minibatches": 1, "clip_vloss": True}
    recipe = make_recipe(SMALL | keys)
    recorder, w = train(recipe)
    adam = Adam(w)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        for iteration, numbers in enumerate(({"ent_coef": 0.4, "clip_coef": 0.02}, {"ent_coef": 0.2, "clip_coef": 0.015})):
            now = recipe.model_copy(update={name: x for name, x in numbers.items() if hasattr(recipe, name)})
            loss = LOSSES[algorithm](now, w, recorder.rollout(recipe, iteration))
            losses = []
            for _ in range(getattr(recipe, "update_epochs", 1)):
                losses.append(float(loss(w)))
                w = adam.step(w, jax.grad(loss)(w), (0.02, 0.01)[iteration], recipe.max_grad_norm or np.inf)
            np.testing.assert_allclose(recorder.rows[iteration]["loss"], np.mean(losses), rtol=1e-4, atol=1e-5)
            for name, expected in w.items():
                np.testing.assert_allclose(recorder.parameters[iteration][name], expected, rtol=1e-3, atol=2e-5, err_msg=name)
            w = dict(recorder.parameters[iteration])
