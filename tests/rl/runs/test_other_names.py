"""Names of other libraries, and what is meant by them here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from typer.testing import CliRunner

import tempo_rl
from tempo_rl.cli import app
from tempo_rl.elsewhere import INSIDE, KEYS, METHODS, POLICIES, WITHOUT
from tempo_rl.recipe import ALGORITHMS, Recipe

KINDS: Any = (tempo_rl.PPO, tempo_rl.A2C, tempo_rl.REINFORCE, tempo_rl.DQN, tempo_rl.SAC, tempo_rl.TD3)


def test_every_key_of_another_library_names_one_of_ours() -> None:
    fields = {key for kind in ALGORITHMS.values() for key in kind.model_fields}
    for name, meant in KEYS.items():
        assert set(meant) <= fields and name not in Recipe.model_fields, name
        for kind in KINDS:
            own = ALGORITHMS[kind.name].model_fields
            key = next((each for each in meant if each in own), None)
            if key is not None and name not in own:
                with pytest.raises(
                    tempo_rl.RecipeError, match=rf"unknown key {name}\n  hint: did you mean {INSIDE.get(name, key)}\?"
                ):
                    kind("CartPole-v1", **{name: 1})
    for name in WITHOUT:
        with pytest.raises(tempo_rl.RecipeError, match=rf"unknown key {name}\n  hint: leave it out"):
            tempo_rl.PPO("CartPole-v1", **{name: 1})


def test_every_method_of_another_library_names_one_of_ours() -> None:
    agent: Any = tempo_rl.PPO("CartPole-v1")
    for name, meant in METHODS.items():
        with pytest.raises(AttributeError) as error:
            getattr(agent, name)
        assert str(error.value) == f"'PPO' object has no attribute {name!r}\n  hint: did you mean agent.{meant}?"
        own = meant.partition("(")[0]
        assert hasattr(agent, own)
    with pytest.raises(AttributeError, match=r"did you mean agent\.evaluate\?"):
        agent.evalaute()
    assert not hasattr(agent, "zzz") and not hasattr(agent, "__array__")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_another_library_names_a_network(policy: str) -> None:
    make: Any = tempo_rl.PPO
    network = POLICIES[policy]
    with pytest.raises(tempo_rl.RecipeError, match=rf"did you mean PPO\('CartPole-v1', network=\"{network}\"\)\?"):
        make(policy, "CartPole-v1", verbose=1)
    with pytest.raises(tempo_rl.RecipeError, match=rf"Did you mean network={network}, without policy\?"):
        make("CartPole-v1", policy=policy)
    with pytest.raises(tempo_rl.RecipeError, match=r"hint: name the keys: PPO\('CartPole-v1', num_envs=8\)"):
        make("CartPole-v1", 8)


def test_a_class_without_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*overrides: str) -> str:
        result = CliRunner().invoke(app, ["train", "ppo", *overrides])
        assert result.exit_code == 1
        return result.output

    assert "did you mean my_module:Chain?" in said("env.id=Chain")
    (tmp_path / "chain.py").write_text("class Chain:\n    pass\n")
    assert "hint: did you mean chain:Chain?" in said("env.id=Chain")
    assert "hint: did you mean env.id=CartPole-v1?" in said("env=CartPole-v1")
    assert "hint: did you mean learning_rate?" in said("lr=1e-3")
    assert "hint: did you mean 'CartPole-v1'?" in said("env.id=cartpole")


def test_make_vec_as_the_page_has_it(recwarn: pytest.WarningsRecorder) -> None:
    """An object or a function; in the same mode as before, no step is made up: each episode has its length in steps."""
    keys: Any = {"num_steps": 16, "total_timesteps": 128, "hidden": [3], "eval_episodes": 0}
    for env in (
        gym.make_vec("CartPole-v1", num_envs=4),
        lambda num_envs: gym.make_vec("CartPole-v1", num_envs=num_envs),
        gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync"),
    ):
        agent = tempo_rl.A2C(env, **keys, **({"num_envs": 4} if callable(env) else {})).train()
        evaluation = agent.evaluate(4)
        assert agent.recipe.num_envs == 4 and (evaluation.returns == evaluation.lengths).all()
    changed: Any = gym.make_vec("CartPole-v1", num_envs=4)
    changed.gravity = 20.0
    with pytest.raises(tempo_rl.RLError, match="which loses transitions"):
        tempo_rl.A2C(changed, **keys).train()


def test_columns_of_the_list_are_as_wide_as_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / f"{'long' * 10}.yaml").write_text(
        f"algorithm: ppo\nenv: {{id: {'x' * 50}}}\ntotal_timesteps: 12345678901\n"
    )
    lines = CliRunner().invoke(app, ["ls"]).output.splitlines()
    assert len(lines) > 5 and len({line.index(" steps  ") for line in lines}) == 1
    column = next(line for line in lines if line.startswith("ppo_gru")).index(" ppo ") + 1
    assert {line[column - 2 : column] for line in lines} == {"  "}


@pytest.mark.slow
def test_pictures_are_left_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys: Any = {"num_envs": 2, "num_steps": 64, "total_timesteps": 256, "hidden": [3], "eval_episodes": 2}
    for seed in (0, 1):
        tempo_rl.A2C("jax/CartPole-v1", seed=seed, **keys).train(f"runs/{seed}")
    runs = ["runs/0", "runs/1"]
    for command, file in (
        (["plot", "runs/0"], "runs/0/returns.png"),
        (["plot", "runs/0", "--metric", "loss"], "runs/0/plots/loss.png"),
        (["plot", *runs], "runs/0/plots/returns-of-2-runs.png"),
        (["compare", *runs], "runs/0/plots/comparison.png"),
        (["plot", *runs, "--out", "mine.svg"], "mine.svg"),
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0 and f"drawn in {file}" in result.output and Path(file).exists(), result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.svg", "runs"]
    resumed = CliRunner().invoke(app, ["train", "--resume", "runs/0", "total_timesteps=384", "--no-picture"])
    assert resumed.exit_code == 0, resumed.output
