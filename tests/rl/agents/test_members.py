"""Many members in one run: seeds and sweeps. Each member is its run alone, also when the run stops and goes on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_rl
from tempo_rl import A2C, DQN, PPO, REINFORCE, Algorithm, Iteration
from tempo_rl.checkpoint import load_checkpoint
from tempo_rl.cli import app
from tempo_rl.errors import CheckpointError, RecipeError, RunError

KEYS: Any = {"num_envs": 2, "num_steps": 4, "hidden": [3], "total_timesteps": 24, "eval_episodes": 0}
KINDS: dict[str, tuple[type[Algorithm], str, dict[str, Any]]] = {
    "A2C on the host": (A2C, "CartPole-v1", {"norm_obs": True, "norm_reward": True}),
    "A2C in JAX": (A2C, "phys2d/CartPole-v1", {}),
    "PPO": (PPO, "phys2d/CartPole-v1", {"num_minibatches": 2, "update_epochs": 2, "target_kl": 0.1}),
    "REINFORCE": (REINFORCE, "CartPole-v1", {"baseline": True, "frames": 2}),
    "DQN": (DQN, "CartPole-v1", {"learning_starts": 8, "buffer_size": 16, "batch_size": 4, "gradient_steps": 2}),
}


def rows(file: Path) -> list[dict[str, float]]:
    with open(file, newline="") as lines:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]


def assert_close(parameters: Any, others: Any) -> None:
    assert parameters.keys() == others.keys()
    for name, value in others.items():
        np.testing.assert_allclose(parameters[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "A2C on the host" else pytest.mark.slow) for name in KINDS]
)
def test_each_seed_is_its_run_alone(name: str, tmp_path: Path) -> None:
    kind, env, keys = KINDS[name]
    many = kind(env, **KEYS, **keys, seed=3, seeds=2).train(tmp_path / "run")  # type: ignore[call-arg]
    assert many.recipe.count == 2
    for member in range(2):
        alone = kind(env, **KEYS, **keys, seed=3 + member).train(tmp_path / f"alone{member}")  # type: ignore[call-arg]
        loaded = tempo_rl.load(tmp_path / "run", member=member)
        assert_close(loaded.parameters, alone.parameters)
        metrics, expected = (
            rows(tmp_path / "run" / "members" / f"{member:03d}.csv"),
            rows(tmp_path / f"alone{member}" / "metrics.csv"),
        )
        assert len(metrics) == len(expected) == 3
        for row, other in zip(metrics, expected, strict=True):
            np.testing.assert_allclose([*row.values()], [*other.values()], rtol=1e-3, atol=1e-4)
    means = rows(tmp_path / "run" / "metrics.csv")
    members = [rows(tmp_path / "run" / "members" / f"{member:03d}.csv") for member in range(2)]
    np.testing.assert_allclose(means[-1]["loss"], np.mean([rows[-1]["loss"] for rows in members]), rtol=1e-6)


def test_a_sweep_is_a_member_for_each_combination(tmp_path: Path) -> None:
    sweep = {"learning_rate": [0.01, 0.001], "gamma": [0.9, 0.99]}
    A2C("CartPole-v1", **KEYS, sweep=sweep).train(tmp_path / "run")
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints" / "latest.safetensors")
    assert checkpoint.recipe.members[1] == {"seed": 1, "gamma": 0.9, "learning_rate": 0.001}
    assert len(checkpoint.recipe.members) == 4
    for member in (1, 2):  # of which each has one key of the first and one of the last
        alone = A2C("CartPole-v1", **KEYS, **checkpoint.recipe.members[member]).train()  # type: ignore[arg-type]
        assert_close(A2C.load(tmp_path / "run", member=member).parameters, alone.parameters)
    agent = A2C.load(tmp_path / "run", member=3)
    with pytest.raises(CheckpointError, match=r"there is no member 4\n.*0 to 3"):
        tempo_rl.load(tmp_path / "run", member=4)
    evaluation = agent.evaluate(2)
    assert evaluation.returns.shape == (2,) and int(agent.predict([0.0] * 4)) in (0, 1)
    saved = tempo_rl.load(agent.save(tmp_path / "agent.safetensors"))
    assert saved.recipe.count == 1 and saved.recipe.seed == 3 and saved.recipe.gamma == 0.99
    with pytest.raises(RunError, match="holds only a policy"):
        saved.train(total_timesteps=48)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"sweep": {"num_envs": [2, 4]}},
            "num_envs is not a key that can be swept; those of actor_critic are learning_rate, gamma",
        ),
        ({"sweep": {"learning_rate": []}}, "learning_rate has no values"),
        ({"sweep": {"gamma": [0.9, 1.5]}}, r"gamma is 1\.5"),
        ({"seeds": 0}, "seeds is 0"),
    ],
)
def test_what_cannot_be_members_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        A2C("CartPole-v1", **KEYS, **keys)


def test_members_stop_and_go_on(tmp_path: Path) -> None:
    """After an interrupt, and to more steps, it is the run that was never stopped, bit for bit."""

    def second(iteration: Iteration) -> bool:
        return iteration.iteration == 1

    keys = {**KEYS, "anneal_lr": False, "seeds": 3, "sweep": {"ent_coef": [0.0, 0.1]}}
    whole = A2C("CartPole-v1", **keys | {"total_timesteps": 40}).train(tmp_path / "whole")
    A2C("CartPole-v1", **keys).train(tmp_path / "run", callbacks=[second])
    A2C("CartPole-v1", **keys).train(tmp_path / "run", resume=True)
    longer = A2C("CartPole-v1", **keys | {"total_timesteps": 40}).train(tmp_path / "run", resume=True)
    assert whole.parameters is not None and longer.parameters is not None
    for name in ("metrics.csv", "members/000.csv", "members/005.csv"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(longer.parameters[name], value)


def test_the_command_reports_and_plays_the_best_member(tmp_path: Path) -> None:
    keys = ["num_envs=2", "num_steps=64", "total_timesteps=512", "hidden=[3]", "eval_episodes=2", "env.id=phys2d/CartPole-v1"]
    result = CliRunner().invoke(app, ["train", "actor_critic", *keys, "seeds=3", "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "3 members" in result.output and (tmp_path / "run" / "returns.png").exists()
    members = json.loads((tmp_path / "run" / "result.json").read_text())["members"]
    assert [member["keys"]["seed"] for member in members] == [0, 1, 2]
    returns = [member["episodic_return"] for member in members]
    best = tempo_rl.load(tmp_path / "run")
    assert best.recipe.count == 3 and best._player.seed == int(np.argmax(returns))
    played = CliRunner().invoke(app, ["eval", str(tmp_path / "run"), "--episodes", "2", "--member", "1"])
    assert played.exit_code == 0, played.output


def test_a_member_that_diverges_is_left_out(tmp_path: Path) -> None:
    agent = A2C("CartPole-v1", **KEYS | {"max_grad_norm": None}, sweep={"learning_rate": [1e-3, 1e38]}).train(tmp_path / "run")
    assert agent.result is not None and [member["diverged"] for member in agent.result["members"]] == [False, True]
    assert agent._player.learning_rate == 1e-3 and np.isfinite(rows(tmp_path / "run" / "metrics.csv")[-1]["loss"])
