"""Training from end to end on tiny recipes: the files of a run, equal runs for equal seeds, the ways to stop."""

from __future__ import annotations

import csv
import dataclasses
import errno
import functools
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from PIL import Image, ImageSequence
from typer.testing import CliRunner

import tempo_rl.checkpoint
import tempo_rl.progress
from tempo_rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tempo_rl.cli import app
from tempo_rl.errors import CheckpointError, EnvError, RunError
from tempo_rl.recipe import Recipe, load_recipe, make_recipe, shipped_recipes
from tempo_rl.resume import chosen_run
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import Outcome, TrainingError, plan, train
from tests.cases import fast
from tests.rl.scripted import ID, Scripted

TINY = {
    "ppo": ["num_envs=2", "num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=36"],
    "ppo_functional": ["num_envs=2", "num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=36"],
    "reinforce": ["num_envs=2", "num_steps=12", "total_timesteps=72"],
    "ppo_gru": ["num_envs=2", "num_steps=3", "num_minibatches=2", "update_epochs=1", "total_timesteps=18"],
    "dqn": ["num_envs=2", "num_steps=6", "gradient_steps=2", "buffer_size=24", "batch_size=4", "total_timesteps=36"],
    "frozen_lake": ["num_envs=2", "num_steps=6", "num_minibatches=2", "update_epochs=2", "total_timesteps=36"],
    "sac": [
        "num_envs=2",
        "num_steps=6",
        "gradient_steps=2",
        "buffer_size=24",
        "batch_size=4",
        "total_timesteps=36",
        "learning_starts=6",
    ],
    "td3": [
        "num_envs=2",
        "num_steps=6",
        "gradient_steps=2",
        "buffer_size=24",
        "batch_size=4",
        "total_timesteps=36",
        "learning_starts=6",
    ],
}
RESULT_KEYS = [
    "eval_return_mean", "eval_return_std", "env_steps", "seconds", "compile_seconds", "evaluation_seconds", "seconds_per_iteration",
    "steps_per_second", "compiles", "loads", "versions",
]  # fmt: skip


def tiny_recipe(name: str, *overrides: str) -> Recipe:
    if name == "ppo_functional":
        pytest.importorskip("flax", reason="Gymnasium's functional environments need it")
    return load_recipe(str(shipped_recipes()[name]), [*TINY[name], "hidden=[8]", "eval_episodes=3", *overrides])


def run_tiny(name: str, path: Path, *overrides: str, cache: str | None = None) -> tuple[Outcome, RunDirectory]:
    run = create_run(path)
    return train(tiny_recipe(name, *overrides), run, cache=cache), run


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """`programs(name)`: a directory of compiled programs for a recipe, so that later runs of it need not compile again."""
    return functools.cache(lambda name: str(tmp_path_factory.mktemp(f"programs-{name}")))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Callable[[str], tuple[Outcome, RunDirectory]]:
    """`done(name)`: the tiny run of a recipe, run once for all tests that only look at it."""

    @functools.cache
    def run_once(name: str) -> tuple[Outcome, RunDirectory]:
        return run_tiny(name, tmp_path_factory.mktemp(name) / "run", cache=programs(name))

    return run_once


Programs = Callable[[str], str]
Done = Callable[[str], tuple[Outcome, RunDirectory]]


def rows(run: RunDirectory) -> list[dict[str, str]]:
    with open(run.metrics, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", fast(TINY, "ppo", "reinforce"))
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


@pytest.mark.slow
def test_a_profiled_run_is_the_same_run(done: Done, tmp_path: Path) -> None:
    said: list[str] = []
    run = create_run(tmp_path / "run")
    train(tiny_recipe("reinforce"), run, say=said.append, profile=True)
    assert run.metrics.read_bytes() == done("reinforce")[1].metrics.read_bytes()
    assert "under the profiler" in said[-1] and "step" in said[-1] and "reinforce.py:" in said[-1]
    bars = {event["name"]: event["dur"] for event in json.loads(run.profile.read_text())["traceEvents"]}
    assert bars["program"] > bars["device program 0"] > 0


@pytest.mark.parametrize("name", fast(TINY, "reinforce"))
def test_one_seed_gives_one_log(name: str, done: Done, tmp_path: Path, programs: Programs) -> None:
    log = done(name)[1].metrics.read_bytes()
    assert run_tiny(name, tmp_path / "again", cache=programs(name))[1].metrics.read_bytes() == log


@pytest.mark.slow
def test_another_seed_gives_another_log(done: Done, tmp_path: Path, programs: Programs) -> None:
    other = run_tiny("reinforce", tmp_path / "other", "seed=1", cache=programs("small"))[1]
    assert other.metrics.read_bytes() != done("reinforce")[1].metrics.read_bytes()


def assert_same_numbers(left: RunDirectory, right: RunDirectory) -> None:
    for a, b in zip(rows(left), rows(right), strict=True):
        numbers = [np.array([float(v) for v in row.values()]) for row in (a, b)]
        np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("ppo_functional", "sac", "td3")), "reinforce"]
)
def test_staged_and_interpreted_runs_agree(name: str, done: Done, tmp_path: Path) -> None:
    assert_same_numbers(done(name)[1], run_tiny(name, tmp_path / "interpreted", "executor=interpreted")[1])


@pytest.mark.slow
def test_passes_can_be_switched_off(done: Done, tmp_path: Path) -> None:
    assert_same_numbers(done("reinforce")[1], run_tiny("reinforce", tmp_path / "plain", "disable=[fuse, lift]")[1])


def test_checkpoints_every_n_iterations(tmp_path: Path) -> None:
    _, run = run_tiny("reinforce", tmp_path / "run", "save_every=2")
    assert [load_checkpoint(p).iterations for p in run.numbered_checkpoints()] == [2, 3]
    assert load_checkpoint(run.latest).iterations == 3


def test_eval_plays_a_runs_newest_checkpoint(done: Done) -> None:
    outcome, run = done("ppo")
    command = CliRunner().invoke(app, ["eval", str(run.path), "--episodes", "3", "--seed", "0"])
    assert command.exit_code == 0, command.output
    assert f"return {outcome.result['eval_return_mean']:.1f} " in command.output  # the seed of training: the same episodes


def test_an_episode_is_recorded(done: Done, tmp_path: Path) -> None:
    _, run = done("ppo")
    video = tmp_path / "episode.gif"
    command = CliRunner().invoke(app, ["eval", str(run.path), "--episodes", "1", "--video", str(video)])
    assert command.exit_code == 0, command.output
    assert command.output.endswith(f"the first episode is in {video}\n")
    with Image.open(video) as image:
        milliseconds = sum(
            frame.info["duration"] for frame in ImageSequence.Iterator(image)
        )  # equal pictures are one in the file
    assert f"mean length {milliseconds / 20:.1f}" in command.output
    refused = CliRunner().invoke(app, ["eval", str(run.path), "--video", "episode.mp3"])
    assert refused.exit_code == 1 and "a video cannot be a .mp3" in refused.output


@pytest.mark.slow
def test_training_records_an_episode_at_its_end(tmp_path: Path) -> None:
    recipe, *overrides = str(shipped_recipes()["reinforce"]), *TINY["reinforce"], "hidden=[8]", "eval_episodes=0"
    command = CliRunner().invoke(app, ["train", recipe, *overrides, "--out", str(tmp_path / "run"), "--capture-video"])
    assert command.exit_code == 0, command.output
    video = RunDirectory(tmp_path / "run").video
    assert video.read_bytes().startswith(b"GIF89a") if video.suffix == ".gif" else b"ftyp" in video.read_bytes()[:12]


# -- nothing is lost --------------------------------------------------------------------------------------------------


class Signalling:
    """Sends a signal to this process after an iteration, `times` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, iteration: int, number: signal.Signals = signal.SIGTERM, times: int = 1):
        update = tempo_rl.progress.Progress.update

        def interrupt(bar: Any, row: Mapping[str, Any]) -> None:
            update(bar, row)
            if row["iteration"] == iteration:
                for _ in range(times):
                    signal.raise_signal(number)

        monkeypatch.setattr(tempo_rl.progress.Progress, "update", interrupt)


@pytest.mark.parametrize("name", fast(TINY, "ppo_functional", "reinforce"))
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(
    name: str, done: Done, tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(name)
    recipe, run, said = tiny_recipe(name), create_run(tmp_path / "run"), list[str]()
    with monkeypatch.context() as patch:
        Signalling(patch, iteration=1)
        stopped = train(recipe, run, say=said.append, cache=programs(name))
    assert (
        stopped.stopped == "SIGTERM" and stopped.evaluation is None and json.loads(run.result.read_text())["interrupted"] is True
    )
    assert "SIGTERM: finishing the iteration and saving it; once more stops at once" in said
    assert load_checkpoint(run.latest).iterations == 2 == len(rows(run))

    again, checkpoint = chosen_run(recipe, "tiny", run.path, overwrite=False, resume="auto", say=said.append)
    assert again is not None and checkpoint is not None
    outcome = train(recipe, again, say=said.append, cache=programs(name), resume=checkpoint)
    assert any(line.startswith("resumed after iteration 2 of 3") for line in said)
    assert again.metrics.read_bytes() == done(name)[1].metrics.read_bytes()
    whole, halves = (load_checkpoint(r.latest) for r in (done(name)[1], again))
    assert whole.parameters.keys() == halves.parameters.keys()
    for key, value in whole.parameters.items():
        np.testing.assert_array_equal(value, halves.parameters[key])
    assert outcome.result["eval_return_mean"] == done(name)[0].result["eval_return_mean"]
    assert outcome.result["seconds"] > stopped.result["seconds"]


def test_a_finished_run_is_not_resumed(done: Done) -> None:
    said: list[str] = []
    run = done("reinforce")[1]
    assert chosen_run(tiny_recipe("reinforce"), "tiny", run.path, False, "auto", said.append) == (None, None)
    assert said == [f"{run.path} is finished; play with it: tempo-rl eval {run.path}"]


def test_a_run_is_resumed_from_the_newest_checkpoint_that_is_whole(done: Done, tmp_path: Path) -> None:
    run, said = RunDirectory(tmp_path / "run"), list[str]()
    shutil.copytree(done("reinforce")[1].path, run.path)
    run.result.unlink()
    run.latest.write_bytes(run.latest.read_bytes()[:-1])
    _, checkpoint = chosen_run(tiny_recipe("reinforce"), "tiny", run.path, False, "auto", said.append)
    assert checkpoint is not None and checkpoint.iterations == 3
    assert "latest.safetensors" in said[0] and said[0].endswith("looking for an earlier checkpoint")
    for path in run.all_checkpoints():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot be read"):
        chosen_run(tiny_recipe("reinforce"), "tiny", run.path, False, str(run.path), said.append)


def test_what_is_resumed_must_be_the_same_run(done: Done, tmp_path: Path) -> None:
    run = done("reinforce")[1]
    for overrides, resume, message in (
        (["gamma=0.5"], str(run.path), r"has another recipe: gamma is 0.5 here, and 0.99 there\n.*same RECIPE"),
        ([], str(tmp_path / "nowhere"), "there is no run .*nowhere"),
        ([], str(run.config), "config.yaml is not in the directory of a run"),
    ):
        with pytest.raises(RunError, match=message):
            chosen_run(tiny_recipe("reinforce", *overrides), "tiny", None, False, resume, print)
    with pytest.raises(RunError, match="exclude each other"):
        chosen_run(tiny_recipe("reinforce"), "tiny", run.path, True, "auto", print)
    again, checkpoint = chosen_run(tiny_recipe("reinforce", "save_every=7"), "tiny", None, False, str(run.latest), print)
    assert again == RunDirectory(run.path, "resume") and checkpoint is not None  # the program does not depend on save_every


def test_auto_takes_the_newest_unfinished_run_or_begins_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: Done) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, said = tiny_recipe("reinforce"), list[str]()
    run, checkpoint = chosen_run(recipe, "tiny", None, False, "auto", said.append)
    assert run == RunDirectory(Path("runs/tiny-seed0-000")) and checkpoint is None
    shutil.copytree(done("reinforce")[1].path, run.path)
    run, checkpoint = chosen_run(recipe, "tiny", None, False, "auto", said.append)
    assert run == RunDirectory(Path("runs/tiny-seed0-001")) and checkpoint is None  # the other one is finished
    Path("runs/tiny-seed0-000/result.json").write_text('{"interrupted": true}')
    run, checkpoint = chosen_run(recipe, "tiny", None, False, "auto", said.append)
    assert run == RunDirectory(Path("runs/tiny-seed0-000"), "resume") and checkpoint is not None
    for path in run.checkpoints.iterdir():
        path.unlink()  # it was killed in its first iteration
    run, checkpoint = chosen_run(recipe, "tiny", None, False, "auto", said.append)
    assert run == RunDirectory(Path("runs/tiny-seed0-000"), "overwrite") and checkpoint is None


SMALL = {"algorithm": "reinforce", "hidden": [4], "num_envs": 2, "num_steps": 4, "total_timesteps": 80, "eval_episodes": 0}


def test_ctrl_c_finishes_the_iteration_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    Signalling(monkeypatch, iteration=0, number=signal.SIGINT)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(SMALL))
    before = signal.getsignal(signal.SIGINT)
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--no-progress", "--cache", programs("small")]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 130, command.output
    assert "SIGINT: finishing the iteration" in command.output and "--resume auto" in command.output
    assert signal.getsignal(signal.SIGINT) is before
    run = RunDirectory(tmp_path / "run")
    result = json.loads(run.result.read_text())
    assert result["interrupted"] is True and result["eval_return_mean"] is None and result["env_steps"] == 8
    assert load_checkpoint(run.latest_checkpoint()).env_steps == 8 == int(rows(run)[-1]["env_steps"])
    monkeypatch.undo()
    resumed = CliRunner().invoke(app, [*arguments, "--resume", "auto"])
    assert resumed.exit_code == 0, resumed.output
    assert "resumed after iteration 1 of 10" in resumed.output and len(rows(run)) == 10
    finished = CliRunner().invoke(app, [*arguments, "--resume", "auto"])
    assert finished.exit_code == 0 and "is finished" in finished.output


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run")
    with pytest.raises(TrainingError, match=r"training diverged in iteration \d+") as raised:
        train(make_recipe(SMALL | {"learning_rate": 1e38}), run)
    assert "diverged" in raised.value.outcome.result["error"]  # type: ignore[typeddict-item]
    result = json.loads(run.result.read_text())
    assert result["error"] == raised.value.outcome.result["error"]  # type: ignore[typeddict-item]
    kept = run.all_checkpoints()
    assert all(np.isfinite(w).all() for path in kept for w in load_checkpoint(path).parameters.values())
    assert len(rows(run)) == load_checkpoint(kept[0]).iterations + 1  # the diverged row is in the log


class Failing(Scripted):
    """An environment that fails at its sixth step, in a way that `kind` names."""

    steps = 0

    def __init__(self, kind: str):
        super().__init__([("terminated", 3)])
        self.kind = kind

    def step(self, action: Any) -> Any:
        Failing.steps += 1
        if Failing.steps == 2 * 4 + 6:
            if self.kind == "exit":
                sys.exit(3)
            if self.kind == "interrupt":
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)
            raise ValueError("the motor is broken")
        return super().step(action)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raise", r"ValueError: the motor is broken\n  at .*test_training\.py:\d+: raise ValueError"),
        ("exit", r"TempoFailing-v0\.step\(\) called sys\.exit\(3\)\n  at .*test_training\.py:\d+: sys\.exit\(3\)"),
        ("interrupt", ""),
    ],
)
def test_a_failure_in_the_environment_keeps_the_last_iteration(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    monkeypatch.setattr(Failing, "steps", 0)
    spec = dataclasses.replace(gym.spec(ID), id="TempoFailing-v0", entry_point=Failing)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    recipe = make_recipe(SMALL | {"env": {"id": spec.id, "kwargs": {"kind": kind}}})
    run = create_run(tmp_path / "run")
    if kind == "interrupt":  # at once, in the middle of an iteration
        assert train(recipe, run, cache=programs("small")).stopped == "SIGTERM"
    else:
        with pytest.raises(TrainingError, match=message) as raised:
            train(recipe, run, cache=programs("small"))
        assert str(run.latest) in raised.value.message and raised.value.outcome.result["env_steps"] == 8
    assert load_checkpoint(run.latest).iterations == 1


def test_a_second_signal_says_what_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs) -> None:
    """The first iteration is saved, and the second one is not yet when two signals come: it would be too early."""
    Signalling(monkeypatch, iteration=1, times=2)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(SMALL | {"save_every": 100}))
    command = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "run"), "--cache", programs("small")])
    assert command.exit_code == 128 + signal.SIGTERM, command.output
    assert load_checkpoint(RunDirectory(tmp_path / "run").latest).env_steps == 8
    checkpoints = tmp_path / "run" / "checkpoints"
    assert f"stopped by SIGTERM after 16 steps; 8 of them are saved in {checkpoints}\n" in command.output


def test_environments_that_do_not_say_their_state_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    env = {"id": ID, "kwargs": {"ends": [["terminated", 3]]}}
    recipe = make_recipe(SMALL | {"algorithm": "actor_critic", "total_timesteps": 24, "env": env})
    run, said = create_run(tmp_path / "run"), list[str]()
    with monkeypatch.context() as patch:
        Signalling(patch, iteration=0)
        train(recipe, run, say=said.append, cache=programs("small"))
    assert any("Scripted" in line and "its episodes start anew" in line for line in said)
    checkpoint = load_checkpoint(run.latest)
    train(recipe, RunDirectory(run.path, "resume"), say=said.append, cache=programs("small"), resume=checkpoint)
    # 4 steps: an episode of 3 and the first step of another one, which is truncated after it; then one of 3 steps
    assert [(row["episodes"], row["episodic_length"]) for row in rows(run)] == [("2", "3"), ("4", "2"), ("2", "3")]


def test_a_full_disk_ends_in_one_line_and_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(SMALL | {"save_every": 1}))
    write, writes = tempo_rl.checkpoint.write_whole, []

    def filling(path: Path, content: bytes) -> None:
        writes.append(path)
        if len(writes) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(tempo_rl.checkpoint, "write_whole", filling)
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--no-progress", "--cache", programs("small")]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 1 and "Traceback" not in command.output
    run = RunDirectory(tmp_path / "run")
    last = command.output.splitlines()[-1]
    assert last.startswith(
        f"error: the checkpoint {run.latest} cannot be written: No space left on device; {run.latest} holds iteration 2"
    )
    assert "32 steps in " in command.output  # the summary: an iteration more, during which the third was written
    assert load_checkpoint(run.latest).iterations == 2


def test_a_run_stays_in_its_directory_though_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    leave = [lambda iteration: os.chdir(tmp_path / "elsewhere")]
    train(make_recipe(SMALL), create_run(Path("run")), say=lambda text: None, callbacks=leave, cache=programs("small"))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "latest.safetensors").iterations == 10
    assert (tmp_path / "run" / "result.json").exists()


def test_checkpoints_that_are_taken_away_end_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    run = create_run(tmp_path / "run")

    def take_away(path: Path, checkpoint: Checkpoint) -> Path:
        if checkpoint.iterations > 1:
            shutil.rmtree(run.checkpoints)
            raise CheckpointError("the disk is gone")
        return save_checkpoint(path, checkpoint)

    monkeypatch.setattr("tempo_rl.keeper.save_checkpoint", take_away)
    with pytest.raises(TrainingError, match=r"the disk is gone; .*/run/checkpoints no longer holds iteration 1"):
        train(make_recipe(SMALL | {"save_every": 1}), run, say=lambda text: None, cache=programs("small"))


def test_a_run_directory_that_is_renamed_while_training_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    recipe, path = make_recipe(SMALL | {"save_every": 1}), tmp_path / "run"

    def rename(iteration: Any) -> None:
        if iteration.iteration == 4:
            path.rename(tmp_path / "renamed")

    with pytest.raises(TrainingError) as raised:
        train(recipe, create_run(path), say=lambda text: None, callbacks=[rename], cache=programs("small"))
    place = re.escape(str(path))
    assert re.fullmatch(
        rf"the directory {place} is gone; {place}/checkpoints no longer holds iteration [34]", raised.value.message
    )
    assert "--resume NEW_NAME" in str(raised.value.hint) and not path.exists()
    run, checkpoint = chosen_run(recipe, "tiny", None, False, str(tmp_path / "renamed"), print)
    assert run is not None and checkpoint is not None and checkpoint.iterations in (3, 4)  # as far as it was written
    train(recipe, run, say=lambda text: None, cache=programs("small"), resume=checkpoint)
    assert [row["iteration"] for row in rows(run)] == [str(number) for number in range(10)]


@pytest.mark.parametrize("name", ["metrics.csv", "config.yaml", "result.json", "evaluations.csv"])
def test_a_directory_in_the_place_of_a_file_is_one_line(name: str, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", "resume")
    (run.path / name).mkdir(parents=True)
    save_checkpoint(run.latest, Checkpoint({}, make_recipe(SMALL), 1, 8))
    for resume in ("auto", str(run.path)):
        with pytest.raises(RunError, match=f"run/{name} is not a file\n  hint: move it away"):
            chosen_run(make_recipe(SMALL), "tiny", run.path, False, resume, print)


def test_a_file_in_the_place_of_the_checkpoints_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    with pytest.raises(RunError, match="checkpoints is not a directory\n  hint: move it away"):
        create_run(tmp_path)


def test_a_run_that_is_trained_by_another_process_is_refused(tmp_path: Path) -> None:
    with create_run(tmp_path / "run").locked(), pytest.raises(RunError, match=r"is training in .* now"):
        train(make_recipe(SMALL), RunDirectory(tmp_path / "run"))


def test_overwrite_keeps_the_old_run_until_the_new_one_is_compiled(done: Done, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", "overwrite")
    shutil.copytree(done("reinforce")[1].path, run.path)
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file() and path.name != ".lock"}
    with pytest.raises(EnvError, match="did you mean 'CartPole-v1'"):
        train(make_recipe(SMALL | {"env": {"id": "CartPol-v1"}}), run)
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file() and path.name != ".lock"} == before
    assert len(run.all_checkpoints()) == 4


@pytest.mark.parametrize(
    "sizes",
    [pytest.param((1, 1, 1, 1), marks=pytest.mark.slow), pytest.param((1, 5, 1, 1), marks=pytest.mark.slow), (3, 1, 1, 2)],
)
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


@pytest.mark.slow
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


@pytest.mark.parametrize("name", [pytest.param("ppo_functional", marks=pytest.mark.slow), "reinforce"])
def test_a_run_compiles_what_the_plan_says(name: str, done: Done) -> None:
    outcome, _ = done(name)
    text = plan(tiny_recipe(name), full=True)
    assert f"device programs: {outcome.result['compiles']}\n" in text
    schedule, _, rest = text.partition("storage\n")
    assert "for i in 0:I_last + 1" in schedule and "for t in 0:" in schedule
    for word in ("obs", "policy.0.weight", "slots", "bytes"):
        assert word in rest
    if name == "ppo_functional":  # a whole iteration is one device program
        assert rest.partition("device programs")[2].partition("memory")[0].count("once each i") == 1
