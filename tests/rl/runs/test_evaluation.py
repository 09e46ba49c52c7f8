"""Evaluations: their bar, their limit of steps, and Ctrl-C, after which they give what they have."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import tempo_rl.progress
from tempo_core.runs.stop import Stopped
from tempo_rl import REINFORCE
from tempo_rl.cli import app
from tempo_rl.env.vector import HostVectorEnvironment, vectorized
from tempo_rl.errors import EnvError
from tempo_rl.evaluate import play
from tempo_rl.progress import EvaluationProgress, Progress
from tempo_rl.recipe import make_recipe
from tempo_rl.resume import chosen_run
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import train
from tests.cases import fast
from tests.rl.scripted import Scripted

TINY: dict[str, Any] = {
    "algorithm": "reinforce", "env": {"id": "CartPole-v1"}, "num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [4],
    "eval_episodes": 2,
}  # fmt: skip
PATIENCE = 120.0  # seconds in which a process starts and ends


def nothing(observation: np.ndarray, deterministic: bool, seed: int) -> np.ndarray:
    return np.zeros(len(observation), np.int32)


# -- the limit of steps ------------------------------------------------------------------------------------------------


class Endless(Scripted):
    """An episode that never ends, after one of three steps."""

    def __init__(self) -> None:
        super().__init__([("terminated", 3), ("never", 0)])


def test_an_episode_that_never_ends_is_named_with_the_limit() -> None:
    env = vectorized(Endless, "Corridor", 2)
    message = r"an episode of Corridor \(environment 0 of the evaluation\) has not ended after 50 steps; 2 of 5 episodes ended\n.*--max-steps 500"
    with pytest.raises(EnvError, match=message):
        play(env, nothing, 5, most_steps=50, name="Corridor")


def test_the_limit_is_that_of_an_episode_and_not_of_the_evaluation() -> None:
    env = vectorized(lambda: Scripted([("terminated", 9)]), "Corridor", 2)
    assert play(env, nothing, 20, most_steps=10).lengths.tolist() == [9] * 20


@pytest.mark.parametrize("eval_every", fast([0, 1], 1))
def test_training_ends_though_an_episode_of_its_evaluation_does_not(eval_every: int, tmp_path: Path) -> None:
    keys: Any = {"num_envs": 1, "num_steps": 4, "total_timesteps": 12, "hidden": [4], "eval_episodes": 40, "eval_max_steps": 30}
    agent, said = REINFORCE(Endless, **keys, eval_every=eval_every), list[str]()
    outcome = train(agent.recipe, create_run(tmp_path / "run"), say=said.append)
    assert outcome.result["env_steps"] == 12 and outcome.evaluation is None and outcome.stopped is None
    notes = [line for line in said if "an episode of Endless (environment" in line and "has not ended after 30 steps" in line]
    assert len(notes) == 1 + 3 * eval_every and not set(json.loads((tmp_path / "run" / "result.json").read_text())) & {"error"}


def trained(path: Path) -> Path:
    """The directory of a run on CartPole."""
    train(make_recipe(TINY), create_run(path), say=lambda text: None)
    return path


def test_the_command_has_the_limit_as_a_flag(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    command = CliRunner().invoke(app, ["eval", str(run), "--episodes", "3", "--max-steps", "4"])
    assert command.exit_code == 1 and "error: an episode of CartPole-v1" in command.output
    assert "has not ended after 4 steps" in command.output


# -- the bar -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_without_a_terminal_an_evaluation_says_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = Clock(), list[str]()
    monkeypatch.setattr(tempo_rl.progress, "time", clock)
    with EvaluationProgress(20, False, lines.append) as show:
        for second in range(1, 26):
            clock.now = second
            show(second // 5, 20, 1000 * second)
    assert lines == [
        "evaluating: 2/20 episodes ended, 10,000 steps",
        "evaluating: 4/20 episodes ended, 20,000 steps",
    ]


def test_the_bar_counts_episodes_that_ended_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    env = vectorized(lambda: Scripted([("terminated", 3)]), "Corridor", 2)
    with EvaluationProgress(6) as show:
        play(env, nothing, 6, show=show)
        assert show._bar.tasks[0].completed == 6 and show._bar.tasks[0].fields["steps"] == 18
    assert "6/6 episodes, 18 steps" in capsys.readouterr().err


def test_the_bar_of_training_shows_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = Clock(), list[str]()
    monkeypatch.setattr(tempo_rl.progress, "time", clock)
    bar = Progress(100, visible=True)
    bar.evaluating(3, 20, 500)
    assert bar._bar.tasks[0].description == "evaluating, 3/20 episodes"
    bar.update({"env_steps": 8})
    assert bar._bar.tasks[0].description == "training"
    progress = Progress(100, visible=False, say=lines.append)
    clock.now = 11.0
    progress.evaluating(3, 20, 500)
    assert lines == ["evaluating: 3/20 episodes ended, 500 steps"]


def test_training_shows_both_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[type, int] = {}

    def counting(kind: Any, name: str) -> None:
        method = getattr(kind, name)

        def counted(self: Any, ended: int, episodes: int, steps: int) -> None:
            shown[kind] = ended
            method(self, ended, episodes, steps)

        monkeypatch.setattr(kind, name, counted)

    counting(Progress, "evaluating")
    counting(EvaluationProgress, "__call__")
    train(make_recipe({**TINY, "eval_every": 2}), create_run(tmp_path / "run"), say=lambda text: None)
    assert shown == {Progress: 2, EvaluationProgress: 2}


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_command_with_the_episodes_that_ended(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    code = "import tempo_rl.progress\ntempo_rl.progress.EVERY = 0.2\nfrom tempo_rl.cli import main\nmain()\n"
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TEMPO_CACHE": "off", "NO_COLOR": "1"}
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        arguments = ["eval", str(run), "--episodes", "10000000", "--no-progress"]
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=stdout, stderr=stderr, env=environment)
    try:
        until = time.monotonic() + PATIENCE
        while not re.search(r"evaluating: [1-9]", err.read_text()) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130, err.read_text()
    finally:
        process.kill()
        process.wait()
    said = re.search(r"greedy evaluation over (\d+) episodes: return \d+\.\d ± \d+\.\d", out.read_text())
    assert said is not None and 0 < int(said[1]) < 10_000_000
    assert f"interrupted after {said[1]} of 10000000 episodes" in err.read_text() and "Traceback" not in err.read_text()


class Interrupting:
    """Signals at a step of an evaluation's environments, of which there are `num_envs`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, num_envs: int, at: Callable[[int, int], int]):
        """`at` says how many signals come after so many steps and ends of episodes."""
        step, self.steps, self.ends = HostVectorEnvironment.step, 0, 0

        def signalling(env: HostVectorEnvironment, action: Any) -> Any:
            result = step(env, action)
            if env.num_envs == num_envs:
                self.steps += 1
                self.ends += int((result.terminated | result.truncated).sum())
                for _ in range(at(self.steps, self.ends)):
                    signal.raise_signal(signal.SIGINT)
            return result

        monkeypatch.setattr(HostVectorEnvironment, "step", signalling)


def test_ctrl_c_while_an_episode_is_recorded_keeps_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, video = trained(tmp_path / "run"), tmp_path / "episode.gif"
    Interrupting(monkeypatch, 1, lambda steps, ends: int(steps == 4))
    command = CliRunner().invoke(app, ["eval", str(run), "--episodes", "1", "--video", str(video)])
    assert command.exit_code == 130 and "Traceback" not in command.output
    with Image.open(video) as image:
        frames = range(getattr(image, "n_frames", 1))
        assert sum(image.seek(k) or image.info["duration"] for k in frames) == 4 * 20  # milliseconds; equal pictures are one


def recipe_file(path: Path, **keys: Any) -> str:
    path.write_text(yaml.safe_dump({**TINY, **keys}))
    return str(path)


@pytest.mark.parametrize("has_episodes", [True, False])
def test_ctrl_c_in_the_last_evaluation_leaves_result_picture_and_summary(
    has_episodes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = iter([1])
    Interrupting(monkeypatch, 32, lambda steps, ends: next(signals, 0) if ends > 3 or (steps == 2 and not has_episodes) else 0)
    recipe = recipe_file(tmp_path / "tiny.yaml", eval_episodes=1000)
    command = CliRunner().invoke(app, ["train", recipe, "--out", str(tmp_path / "run"), "--no-progress"])
    run = RunDirectory(tmp_path / "run")
    result = json.loads(run.result.read_text())
    assert command.exit_code == (0 if has_episodes else 130), command.output
    assert run.picture.exists() and "24 steps in " in command.output and "Traceback" not in command.output
    assert ("greedy evaluation over" in command.output) is has_episodes is ("eval_episodes" in result)
    assert ("interrupted" in result) is not has_episodes


def test_a_second_signal_in_the_last_evaluation_leaves_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Interrupting(monkeypatch, 32, lambda steps, ends: 2 * (steps == 2))
    recipe = make_recipe({**TINY, "eval_episodes": 1000})
    outcome = train(recipe, create_run(tmp_path / "run"), say=lambda text: None)
    assert outcome.stopped == "SIGINT" and outcome.result["env_steps"] == 24
    assert json.loads(RunDirectory(tmp_path / "run").result.read_text())["interrupted"] is True
    run, checkpoint = chosen_run(recipe, "tiny", tmp_path / "run", False, "auto", print)
    assert run is not None and checkpoint is not None and checkpoint.iterations == 3  # a second run evaluates it


def test_a_process_that_is_killed_in_the_last_evaluation_leaves_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[dict[str, Any]]()

    def looking(*_: Any, **__: Any) -> None:
        seen.append(json.loads(RunDirectory(tmp_path / "run").result.read_text()))
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr("tempo_rl.evaluate.Evaluator.__call__", looking)
    train(make_recipe(TINY), create_run(tmp_path / "run"), say=lambda text: None)
    assert seen[0]["env_steps"] == 24 and seen[0]["interrupted"] is True
