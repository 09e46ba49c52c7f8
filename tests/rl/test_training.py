"""Training from end to end on tiny recipes: the files of a run, equal runs for equal seeds, the ways to stop."""

from __future__ import annotations

import csv
import functools
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_rl.progress
from tempo_rl.checkpoint import load_checkpoint
from tempo_rl.cli import app
from tempo_rl.errors import RunError
from tempo_rl.recipe import Recipe, load_recipe, make_recipe, shipped_recipes
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import Outcome, plan, train
from tests.rl.scripted import ID

TINY = {
    "ppo": ["num_envs=2", "num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=36"],
    "ppo_functional": ["num_envs=2", "num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=36"],
    "reinforce": ["num_envs=2", "num_steps=12", "total_timesteps=72"],
}
RESULT_KEYS = [
    "eval_return_mean", "eval_return_std", "env_steps", "seconds", "compile_seconds", "seconds_per_iteration",
    "steps_per_second", "compiles", "loads", "versions",
]  # fmt: skip


def tiny_recipe(name: str, *overrides: str) -> Recipe:
    if name == "ppo_functional":
        pytest.importorskip("flax", reason="Gymnasium's functional environments need it")
    return load_recipe(str(shipped_recipes()[name]), [*TINY[name], "hidden=[8]", "eval_episodes=3", *overrides])


def run_tiny(name: str, path: Path, *overrides: str) -> tuple[Outcome, RunDirectory]:
    run = create_run(path)
    return train(tiny_recipe(name, *overrides), run), run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Outcome, RunDirectory]]:
    """`done(name)`: the tiny run of a recipe, run once for all tests that only look at it."""

    @functools.cache
    def run_once(name: str) -> tuple[Outcome, RunDirectory]:
        return run_tiny(name, tmp_path_factory.mktemp(name) / "run")

    return run_once


Done = Callable[[str], tuple[Outcome, RunDirectory]]


def rows(run: RunDirectory) -> list[dict[str, str]]:
    with open(run.metrics, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", TINY)
def test_a_run_leaves_its_files(name: str, done: Done) -> None:
    outcome, run = done(name)
    assert [row["iteration"] for row in rows(run)] == ["0", "1", "2"]
    assert all(np.isfinite(float(row["loss"])) for row in rows(run))
    result = json.loads(run.result.read_text())
    assert list(result) == RESULT_KEYS
    assert result["env_steps"] == int(rows(run)[-1]["env_steps"]) and result["compiles"] > 0
    assert outcome.evaluation is not None and len(outcome.evaluation.returns) == 3
    checkpoint = load_checkpoint(run.latest_checkpoint())
    assert checkpoint.iterations == 3 and checkpoint.env_steps == result["env_steps"]
    assert load_recipe(str(run.config)) == checkpoint.recipe


def test_a_profiled_run_is_the_same_run(done: Done, tmp_path: Path) -> None:
    said: list[str] = []
    run = create_run(tmp_path / "run")
    train(tiny_recipe("reinforce"), run, say=said.append, profile=True)
    assert run.metrics.read_bytes() == done("reinforce")[1].metrics.read_bytes()
    assert "under the profiler" in said[-1] and "step" in said[-1] and "reinforce.py:" in said[-1]
    assert run.profile.read_text().startswith("<svg") and "device program 0" in run.profile.read_text()


@pytest.mark.parametrize("name", TINY)
def test_one_seed_gives_one_log(name: str, done: Done, tmp_path: Path) -> None:
    assert run_tiny(name, tmp_path / "again")[1].metrics.read_bytes() == done(name)[1].metrics.read_bytes()


def test_another_seed_gives_another_log(done: Done, tmp_path: Path) -> None:
    other = run_tiny("reinforce", tmp_path / "other", "seed=1")[1]
    assert other.metrics.read_bytes() != done("reinforce")[1].metrics.read_bytes()


def assert_same_numbers(left: RunDirectory, right: RunDirectory) -> None:
    for a, b in zip(rows(left), rows(right), strict=True):
        numbers = [np.array([float(v) for v in row.values()]) for row in (a, b)]
        np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [pytest.param("ppo_functional", marks=pytest.mark.slow), "reinforce"])
def test_staged_and_interpreted_runs_agree(name: str, done: Done, tmp_path: Path) -> None:
    assert_same_numbers(done(name)[1], run_tiny(name, tmp_path / "interpreted", "executor=interpreted")[1])


def test_passes_can_be_switched_off(done: Done, tmp_path: Path) -> None:
    assert_same_numbers(done("reinforce")[1], run_tiny("reinforce", tmp_path / "plain", "disable=[fuse, lift]")[1])


def test_checkpoints_every_n_iterations(tmp_path: Path) -> None:
    _, run = run_tiny("reinforce", tmp_path / "run", "save_every=2")
    assert [load_checkpoint(p).iterations for p in sorted(run.checkpoints.iterdir())] == [2, 3]


def test_eval_plays_a_runs_newest_checkpoint(done: Done) -> None:
    outcome, run = done("ppo")
    command = CliRunner().invoke(app, ["eval", str(run.path), "--episodes", "3", "--seed", "0"])
    assert command.exit_code == 0, command.output
    assert f"return {outcome.result['eval_return_mean']:.1f} " in command.output  # the seed of training: the same episodes


def test_ctrl_c_finishes_the_iteration_and_marks_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, row: Mapping[str, Any]) -> None:
        if row["iteration"] == 0:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(tempo_rl.progress.Progress, "update", interrupt)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text("algorithm: reinforce\nhidden: [4]\nnum_envs: 2\nnum_steps: 4\ntotal_timesteps: 80\n")
    before = signal.getsignal(signal.SIGINT)
    command = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "run"), "--no-progress"])
    assert command.exit_code == 130, command.output
    assert signal.getsignal(signal.SIGINT) is before
    run = RunDirectory(tmp_path / "run")
    result = json.loads(run.result.read_text())
    assert result["interrupted"] is True and result["eval_return_mean"] is None
    assert 8 <= result["env_steps"] < 80
    assert load_checkpoint(run.latest_checkpoint()).env_steps == result["env_steps"]
    assert int(rows(run)[-1]["env_steps"]) == result["env_steps"] and len(list(run.checkpoints.iterdir())) == 1


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    recipe = make_recipe({"algorithm": "reinforce", "num_envs": 2, "num_steps": 4, "total_timesteps": 80, "learning_rate": 1e38})
    run = create_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"training diverged in iteration \d+"):
        train(recipe, run)
    assert run.metrics.exists() and not run.result.exists()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), pytest.param((1, 5, 1, 1), marks=pytest.mark.slow), (3, 1, 1, 2)])
def test_smallest_sizes(sizes: tuple[int, int, int, int], tmp_path: Path) -> None:
    num_envs, num_steps, update_epochs, num_minibatches = sizes
    small = {"num_envs": num_envs, "num_steps": num_steps, "update_epochs": update_epochs, "num_minibatches": 1}
    ends = [["terminated", 1], ["truncated", 2]]
    recipe = make_recipe(
        {"algorithm": "ppo", "env": {"id": ID, "kwargs": {"ends": ends}}, "norm_adv": False, "hidden": [3], "eval_episodes": 1}
        | small
        | {"total_timesteps": num_envs * num_steps * num_minibatches}
    )
    outcome = train(recipe, create_run(tmp_path / "run"))
    assert outcome.result["env_steps"] == recipe.total_timesteps


def test_continuous_actions_learn_something_finite(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="Gymnasium's functional environments need it")
    small = {"num_envs": 2, "num_steps": 4, "total_timesteps": 16, "eval_episodes": 1, "hidden": [4]}
    env = {"id": "phys2d/Pendulum-v0", "kwargs": {"max_episode_steps": 9}}
    recipe = make_recipe({"algorithm": "actor_critic", "env": env} | small)
    run = create_run(tmp_path / "run")
    train(recipe, run)
    parameters = load_checkpoint(run.latest_checkpoint()).parameters
    assert parameters["log_std"].shape == (1,) and np.any(parameters["log_std"] != 0)


def test_a_second_run_compiles_nothing_and_learns_the_same(tmp_path: Path) -> None:
    recipe = tiny_recipe("reinforce", "eval_episodes=2")
    runs = [create_run(tmp_path / name) for name in ("first", "second")]
    first, second = (train(recipe, run, cache=str(tmp_path / "programs")) for run in runs)
    assert first.result["compiles"] > 0 and first.result["loads"] == 0
    assert second.result["compiles"] == 0 and second.result["loads"] > 0
    saved = [load_checkpoint(run.latest_checkpoint()).parameters for run in runs]
    for name, value in saved[0].items():
        np.testing.assert_array_equal(value, saved[1][name])
    assert first.evaluation is not None and second.evaluation is not None
    np.testing.assert_array_equal(first.evaluation.returns, second.evaluation.returns)


@pytest.mark.parametrize("name", ["ppo_functional", "reinforce"])
def test_a_run_compiles_what_the_plan_says(name: str, done: Done) -> None:
    outcome, _ = done(name)
    text = plan(tiny_recipe(name), full=True)
    assert f"device programs: {outcome.result['compiles']}\n" in text
    schedule, _, rest = text.partition("storage\n")
    assert "for i in 0:3" in schedule and "for t in 0:" in schedule
    for word in ("obs", "policy.0.weight", "slots", "bytes"):
        assert word in rest
    if name == "ppo_functional":  # a whole iteration is one device program
        assert rest.partition("device programs")[2].partition("memory")[0].count("once each i") == 1
