"""Runs and agents that go on to more steps than they were begun with, and algorithms of the user's own that are loaded."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_core as tp
import tempo_rl
from tempo_rl import A2C, Agent, Algorithm, Monitor, Recipe
from tempo_rl.agents.reinforce import reinforce
from tempo_rl.cli import app
from tempo_rl.errors import CheckpointError, RunError
from tests.cases import fast

KEYS: Any = {"num_envs": 2, "num_steps": 4, "hidden": [3], "eval_episodes": 0, "anneal_lr": False, "norm_obs": True}


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def assert_same(agent: Algorithm, other: Algorithm) -> None:
    assert agent.parameters is not None and other.parameters is not None and agent.parameters.keys() == other.parameters.keys()
    for name, value in other.parameters.items():
        np.testing.assert_array_equal(agent.parameters[name], value, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, A2C]:
    path = tmp_path_factory.mktemp("whole") / "run"
    return path, A2C("CartPole-v1", total_timesteps=48, **KEYS).train(path)


def test_a_finished_run_goes_on_to_more_steps(whole: tuple[Path, A2C], tmp_path: Path) -> None:
    """Weights, optimizer, statistics, random numbers and environments go on: it is the run that had these steps from its start."""
    A2C("CartPole-v1", total_timesteps=24, **KEYS).train(tmp_path / "run")
    longer = A2C("CartPole-v1", total_timesteps=48, **KEYS).train(tmp_path / "run", resume=True)
    assert_same(longer, whole[1])
    assert rows(tmp_path / "run") == rows(whole[0]) and len(rows(whole[0])) == 6
    assert "total_timesteps: 48" in (tmp_path / "run" / "config.yaml").read_text()
    again = A2C("CartPole-v1", total_timesteps=56, **KEYS).train(tmp_path / "run", resume=True)
    assert len(rows(tmp_path / "run")) == 7 and again.result is not None and again.result["env_steps"] == 56


def test_a_stopped_run_goes_on_to_more_steps(whole: tuple[Path, A2C], tmp_path: Path) -> None:
    def second(iteration: tempo_rl.Iteration) -> bool:
        return iteration.iteration == 1

    A2C("CartPole-v1", total_timesteps=32, **KEYS).train(tmp_path / "run", callbacks=[second])
    longer = A2C("CartPole-v1", total_timesteps=48, **KEYS).train(tmp_path / "run", resume=True)
    assert_same(longer, whole[1])
    assert rows(tmp_path / "run") == rows(whole[0])


@pytest.mark.parametrize("total", fast([8, 24], 24))
def test_an_agent_goes_on(whole: tuple[Path, A2C], tmp_path: Path, total: int) -> None:
    """In this process, from a run, and from a file; also after a single iteration."""
    agent = A2C("CartPole-v1", total_timesteps=total, **KEYS).train(tmp_path / "short")
    agent.save(tmp_path / "agent.safetensors")
    for loaded in (tempo_rl.load(tmp_path / "short"), A2C.load(tmp_path / "agent.safetensors"), agent):
        assert_same(loaded.train(total_timesteps=48), whole[1])
        assert loaded.result is not None and loaded.result["env_steps"] == 48
    loaded = tempo_rl.load(tmp_path / "short").train(tmp_path / "longer", total_timesteps=48)
    assert rows(tmp_path / "longer") == rows(whole[0])[total // 8 - 1 :]  # the last iteration is run again
    with pytest.raises(
        RunError, match=r"has been trained for 48 steps, and total_timesteps=48 is not more\n.*total_timesteps=96"
    ):
        loaded.train()
    with pytest.raises(RunError, match="total_timesteps=40 is not more"):
        loaded.train(total_timesteps=40)


def test_the_command_goes_on(whole: tuple[Path, A2C], tmp_path: Path) -> None:
    run = tmp_path / "run"
    A2C("CartPole-v1", total_timesteps=24, **KEYS).train(run)
    fewer = CliRunner().invoke(app, ["train", "--resume", str(run), "total_timesteps=16"])
    assert fewer.exit_code == 1 and "has done 24 steps, more than total_timesteps=16" in fewer.output
    other = CliRunner().invoke(app, ["train", "--resume", str(run), "total_timesteps=48", "gamma=0.5"])
    assert other.exit_code == 1 and "gamma is 0.5 here, and 0.99 there" in other.output
    assert "total_timesteps: 24" in (run / "config.yaml").read_text()  # nothing was lost
    result = CliRunner().invoke(app, ["train", "--resume", str(run), "total_timesteps=48", "--no-picture"])
    assert result.exit_code == 0, result.output
    assert "resumed after iteration 2 of 6" in result.output and "note: the recipe counts" not in result.output
    assert rows(run) == rows(whole[0])
    finished = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert finished.exit_code == 0 and "is finished" in finished.output
    nothing = CliRunner().invoke(app, ["train"])
    assert nothing.exit_code == 1 and "which recipe?" in nothing.output


def test_what_counts_with_the_length_is_said(tmp_path: Path) -> None:
    """A learning rate that falls to 0 over the run falls over the longer one from there on."""
    run, keys = (
        tmp_path / "run",
        ["num_envs=2", "num_steps=4", "num_minibatches=2", "update_epochs=1", "hidden=[3]", "eval_episodes=0"],
    )
    command = ["train", "ppo_functional", *keys, "--no-picture", "total_timesteps=32"]
    assert CliRunner().invoke(app, [*command, "--out", str(run)]).exit_code == 0
    result = CliRunner().invoke(app, ["train", "--resume", str(run), "total_timesteps=64", "--no-picture"])
    assert result.exit_code == 0, result.output
    assert "note: the recipe counts with the length of the run, and from here on with 64 steps instead of 32" in result.output
    rates = [float(row["learning_rate"]) for row in rows(run)]
    np.testing.assert_allclose(rates, 2.5e-3 * np.array([1, 0.75, 0.5, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]), rtol=1e-6)


class WithKey(Recipe):
    """The keys of `mine`."""

    algorithm: str = "tests.rl.runs.test_going_on:mine"
    norm_returns: bool = True
    baseline: bool = False
    extra: float = 1.0


def mine(recipe: WithKey, monitor: Monitor) -> Agent:
    """An algorithm of the user's own."""
    return reinforce(recipe, monitor)  # type: ignore[arg-type]


def test_an_algorithm_of_ones_own_is_loaded(tmp_path: Path) -> None:
    """Its run is evaluated, predicts, is saved and goes on; from elsewhere, it needs trust."""
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "algorithm: tests.rl.runs.test_going_on:mine\nextra: 2.0\nnum_envs: 2\nnum_steps: 4\ntotal_timesteps: 24\nhidden: [3]\n"
        "eval_episodes: 0\nanneal_lr: false\n"
    )
    result = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "run"), "--no-picture"])
    assert result.exit_code == 0, result.output
    agent = tempo_rl.load(tmp_path / "run")
    assert type(agent) is Algorithm and agent.name == "tests.rl.runs.test_going_on:mine"
    assert isinstance(agent.recipe, WithKey) and agent.recipe.extra == 2.0
    evaluation = agent.evaluate(2)
    assert evaluation.returns.shape == (2,) and int(agent.predict([0.0, 0.0, 0.0, 0.0])) in (0, 1)
    agent.train(total_timesteps=48)
    assert agent.result is not None and agent.result["env_steps"] == 48
    file = agent.save(tmp_path / "agent.safetensors")
    with pytest.raises(CheckpointError, match=r"would import tests\.rl\.runs\.test_going_on:mine"):
        tempo_rl.load(file)
    assert_same(tempo_rl.load(file, trust=True), agent)
    with pytest.raises(
        CheckpointError, match=r"an agent of the algorithm tests\.rl\.runs\.test_going_on:mine, not of actor_critic"
    ):
        A2C.load(tmp_path / "run")


@pytest.mark.parametrize(("step", "keeps_all", "chooses"), [("i", False, True), ("i", True, False), ("k", False, False)])
def test_programs_for_runs_of_all_lengths(step: str, keeps_all: bool, chooses: bool) -> None:
    """A program that keeps values of all iterations, or whose step of iterations has another name, is compiled for its own number."""
    sums: list[float] = []
    ctx = tp.Context(step)
    with ctx as ((i, I),):
        h = tp.recurrence((), domain=(i,))
        h[0], h[i + 1] = 1.0, h[i] + 1.0
        tp.sink(
            lambda value, **at: sums.append(float(value)), h[0 : i + 1].max(0) if not keeps_all else h[0:I].sum() + h, name="sums"
        )
    agent = tempo_rl.Agent(ctx, {I: 4}, None, None)  # type: ignore[arg-type]
    program = agent.compile_for_runs(tp.Config())
    assert bool(program.limits) == bool(agent.chosen(program)) == chooses
    program.start(bounds=agent.chosen(program)).finish()
    assert sums == ([11.0, 12.0, 13.0, 14.0] if keeps_all else [1.0, 2.0, 3.0, 4.0])
