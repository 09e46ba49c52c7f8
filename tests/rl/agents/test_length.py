"""Which keys make a run depend on its length: all keys of all algorithms, and the list of them in docs/rl.md."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_rl
from tempo_core.passes.base import remove_dead
from tempo_core.runtime.live.other_bounds import said_of
from tempo_rl.cli import app
from tempo_rl.members import build_members
from tempo_rl.recipe import ALGORITHMS, Recipe, make_recipe
from tempo_rl.resume import MAY_DIFFER
from tempo_rl.schedule import ScheduleRecipe
from tests.cases import first

KINDS: dict[str, Any] = {
    kind.name: kind for kind in (tempo_rl.PPO, tempo_rl.A2C, tempo_rl.REINFORCE, tempo_rl.DQN, tempo_rl.SAC, tempo_rl.TD3)
}
LINE = {"schedule": "linear", "start": 1e-3}
# The keys that depend on the length, with a value that does; the other keys of the recipe are those of the first case below.
DEPENDENT: dict[str, Any] = {
    "anneal_lr": True,
    **dict.fromkeys(("learning_rate", "q_lr", "policy_lr", "clip_coef", "ent_coef"), LINE),
    "start_e": 0.9,
    "end_e": 0.05,
    "exploration_fraction": 0.9,
    "importance_exponent": 0.3,
    "learning_starts": None,
}
STEPS = {"schedule": "steps", "values": [0.01, 0.002], "at": [16]}
SMALL: dict[str, Any] = {
    "num_envs": 2, "num_steps": 4, "hidden": [4], "seed": 3, "frames": 2, "norm_obs": True, "norm_reward": True, "gamma": 0.9,
    "max_grad_norm": 0.3, "anneal_lr": False, "check_finite": True, "memory_limit": "1GiB", "swap": "off", "disable": ["accumulate"],
}  # fmt: skip
RATE = {"learning_rate": STEPS, "ent_coef": {**STEPS, "values": [0.02, 0.01]}, "shared": True, "activation": "relu"}
REPLAY = {"buffer_size": 20, "batch_size": 4, "gradient_steps": 2, "learning_starts": 9, "activation": "tanh"}
CONTINUOUS = SMALL | REPLAY | {"env": "jax/Pendulum-v1", "q_lr": STEPS, "policy_lr": STEPS, "tau": 0.1, "noise_correlation": 0.5}
MEMORY = {"num_minibatches": 2, "update_epochs": 2, "vf_coef": 0.3, "gae_lambda": 0.8}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", SMALL | RATE | MEMORY | {
        "clip_coef": 0.1, "norm_adv": False, "clip_vloss": True, "target_kl": 1e-4, "fresh_episodes": True, "frames": 1,
        "network": "attention", "attention_window": 2, "attention_heads": 2, "learning_rate": 0.02,
    }),
    "ppo with members": ("ppo", SMALL | MEMORY | {
        "env": "jax/Pendulum-v1", "squash_actions": True, "network": "lstm", "frames": 1, "seeds": 2, "sweep": {"gae_lambda": [0.9, 0.5]},
        "disable": [], "memory_limit": None,
    }),
    "pictures": ("actor_critic", SMALL | RATE | {
        "env": "jax/Catch-v0", "network": "cnn", "convolutions": [[2, 3, 2]], "channels": "last", "gae_lambda": 0.8, "vf_coef": 0.3, "norm_obs": False,
        "policy": "tempo_rl.models:ActorCritic",
    }),
    "choices": ("actor_critic", SMALL | RATE | {"env": "FrozenLake-v1", "embedding": 3, "n_step": 2, "norm_obs": False}),
    "reinforce": ("reinforce", SMALL | RATE | {
        "env": "CartPole-v1", "norm_returns": False, "baseline": True, "vf_coef": 0.3, "executor": "interpreted",
    }),
    "dqn": ("dqn", SMALL | REPLAY | {
        "learning_rate": STEPS, "target_network_frequency": 16, "tau": 0.5, "double_q": False, "huber_delta": 1.0, "n_step": 3,
        "prioritized": True, "priority_exponent": 0.5, "importance_exponent": 1.0, "start_e": 0.3, "end_e": 0.3,
        "exploration_fraction": 0.9,
    }),
    "dqn with a large buffer": ("dqn", SMALL | REPLAY | {"buffer_size": 1000, "num_steps": 1, "n_step": 2, "start_e": 0.3, "end_e": 0.3}),
    "sac": ("sac", CONTINUOUS | {"alpha": 0.1, "autotune": False, "policy_frequency": 2}),
    "td3": ("td3", CONTINUOUS | {"policy_noise": 0.1, "noise_clip": 0.2, "exploration_noise": 0.3, "policy_frequency": 1}),
}  # fmt: skip
SHORT, LONG = 24, 48


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("case", first(1, CASES))
def test_going_on_is_one_long_run(case: str, tmp_path: Path) -> None:
    """Every key that the page does not list has another value than its default here, and the parameters and metrics are the same bits."""
    algorithm, keys = CASES[case]
    keys = {"env": "jax/CartPole-v1", **keys, "eval_episodes": 0}
    cache = str(tmp_path / "programs")
    KINDS[algorithm](total_timesteps=SHORT, **keys).train(tmp_path / "run", cache=cache)
    again = KINDS[algorithm](total_timesteps=LONG, **keys).train(tmp_path / "run", resume=True, cache=cache)
    whole = KINDS[algorithm](total_timesteps=LONG, **keys).train(tmp_path / "whole", cache=cache)
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], value, err_msg=name)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert not message(make_recipe({"algorithm": algorithm, **keys, "env": {"id": keys["env"]}, "total_timesteps": LONG}))


def listed() -> set[str]:
    """The keys in the table of docs/rl.md."""
    page = (Path(__file__).parents[3] / "docs" / "rl.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| key | depends on the length |")
    lines = [line for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    return {key for line in lines for key in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_every_key_is_listed_or_changes_nothing() -> None:
    """A new key needs a value in a case above, or a row of the page."""
    assert listed() == DEPENDENT.keys()
    everywhere = {key for _, keys in CASES.values() for key in keys}
    for name, kind in ALGORITHMS.items():
        chosen = {key for algorithm, keys in CASES.values() if algorithm == name for key in keys}
        own = kind.model_fields.keys() - Recipe.model_fields.keys()
        missing = own - chosen - DEPENDENT.keys()
        missing |= Recipe.model_fields.keys() - everywhere - DEPENDENT.keys() - {"algorithm", "env", *MAY_DIFFER}
        assert not missing, f"{name}: {missing}"
        for key, value in (
            (key, value) for algorithm, keys in CASES.values() if algorithm == name for key, value in keys.items()
        ):
            default = kind.model_fields[key].get_default(call_default_factory=True)
            is_off = value in (default, False, None, []) or key in DEPENDENT
            assert value != default or is_off, f"{name}: {key}"
        takes_schedules = {key for key, field in kind.model_fields.items() if ScheduleRecipe.__name__ in str(field)}
        assert takes_schedules <= listed(), f"{name}: {takes_schedules}"


def message(recipe: Recipe) -> str:
    """What a run of this recipe says when it goes on with more iterations."""
    agent, _ = build_members(recipe, Silent())
    graph = remove_dead(agent.context.graph)
    (step,) = (step for step in graph.order if step.name == "i")
    return said_of(graph, {step: 1})


class Silent:
    def finished(self, iteration: int, metrics: Any, parameters: Any) -> None: ...


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_listed_key_depends_on_the_length(algorithm: str) -> None:
    """Alone, and nothing else does."""
    env = {"id": "jax/Pendulum-v1" if algorithm in ("sac", "td3") else "jax/CartPole-v1"}
    keys: dict[str, Any] = {"algorithm": algorithm, "env": env, "total_timesteps": 4096, "hidden": [3], "anneal_lr": False}
    keys |= {"dqn": {"start_e": 0.3, "end_e": 0.3, "prioritized": True, "importance_exponent": 1.0}}.get(algorithm, {})
    assert not message(make_recipe(keys))
    kind = ALGORITHMS[algorithm]
    for key in DEPENDENT.keys() & kind.model_fields.keys() - {"learning_starts"}:
        changed = keys | {key: DEPENDENT[key]} | ({"start_e": 0.9} if key == "exploration_fraction" else {})
        try:
            recipe = make_recipe(changed)
        except tempo_rl.RecipeError as error:
            assert f"{key} is" in error.message, key  # it is not a key of this algorithm
            continue
        assert message(recipe).startswith("depends on I"), key


def test_the_start_of_learning_is_a_share_of_a_short_run(tmp_path: Path) -> None:
    """If nobody chooses it, a longer run has another one: it goes on nevertheless, and a line says so."""
    keys: Any = {"num_envs": 2, "num_steps": 4, "hidden": [3], "batch_size": 4, "gradient_steps": 1, "eval_episodes": 0}
    tempo_rl.DQN("jax/CartPole-v1", total_timesteps=80, start_e=0.1, end_e=0.1, **keys).train(tmp_path / "run")
    command = ["train", "--resume", str(tmp_path / "run"), "total_timesteps=160", "--no-picture"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "note: learning_starts was 8 so far, and is 16 by default in a run that has 160 steps" in result.output
    longer = tempo_rl.DQN("jax/CartPole-v1", total_timesteps=240, start_e=0.1, end_e=0.1, **keys)
    assert longer.recipe.learning_starts == 24 and len(rows(tmp_path / "run")) == 20
    longer.train(tmp_path / "run", resume=True)
    assert len(rows(tmp_path / "run")) == 30
    other = tempo_rl.DQN("jax/CartPole-v1", total_timesteps=320, learning_starts=5, start_e=0.1, end_e=0.1, **keys)
    with pytest.raises(tempo_rl.RLError, match="learning_starts is 5 here, and 8 there"):
        other.train(tmp_path / "run", resume=True)
