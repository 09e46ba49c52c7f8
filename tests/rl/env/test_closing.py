"""Ends of environments and loggers that raise or block: nothing is lost, and a line names what did not end."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_rl import A2C
from tempo_rl.env.closing import TooLongError, close_quietly, in_time
from tempo_rl.env.vector import HostVectorEnvironment
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import plan, train
from tempo_rl.video import watch
from tests.rl.scripted import Scripted

TINY: dict[str, Any] = {
    "algorithm": "reinforce", "env": {"id": "CartPole-v1"}, "num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [4],
    "eval_episodes": 2,
}  # fmt: skip
LIMIT = 0.05  # seconds


@pytest.fixture
def enough() -> Iterator[threading.Event]:
    """Set at the end of a test, so that what blocks ends."""
    event = threading.Event()
    yield event
    event.set()


class Ending:
    """A `close()` that raises or blocks, and notes what there is of a run when it is called."""

    def __init__(self, how: str, enough: threading.Event, result: Path | None = None):
        self.how, self.enough, self.result, self.has_result = how, enough, result, list[bool]()

    def close(self) -> None:
        self.has_result.append(self.result is not None and self.result.exists())
        if self.how == "raises":
            raise LookupError("it is open for ever")
        assert self.enough.wait(60), "nobody waits for it"

    def line(self, name: str) -> str:
        end = (
            "raised LookupError: it is open for ever"
            if self.how == "raises"
            else f"has not returned within {LIMIT:g} s, and is left behind"
        )
        return f"note: close() of {name} {end}"


@pytest.fixture(params=["raises", "blocks"])
def ending(request: pytest.FixtureRequest, enough: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    monkeypatch.setattr("tempo_rl.env.closing.PATIENCE", LIMIT)
    return Ending(request.param, enough, tmp_path / "run" / "result.json")


def test_environments_of_training_and_evaluation(ending: Ending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostVectorEnvironment, "close", lambda self: ending.close())
    said = list[str]()
    outcome = train(make_recipe({**TINY, "eval_every": 2}), create_run(tmp_path / "run"), say=said.append)
    assert outcome.evaluation is not None and RunDirectory(tmp_path / "run").result.exists()
    assert (
        ending.line("the environments CartPole-v1") in said and ending.line("the evaluation's environments CartPole-v1") in said
    )
    assert ending.has_result == [True, True, True]  # of training, of the evaluations while training, of the last one


def test_loggers(ending: Ending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        def __init__(self, logdir: str):
            self.close = ending.close

        def add_scalar(self, name: str, value: float, step: int) -> None: ...

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Writer))
    said = list[str]()
    outcome = train(make_recipe({**TINY, "tensorboard": True}), create_run(tmp_path / "run"), say=said.append)
    assert outcome.evaluation is not None and ending.line("TensorBoard's writer") in said and ending.has_result == [True]


@pytest.mark.slow
def test_a_logger_that_raises_gets_no_more_rows_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        def __init__(self, logdir: str): ...

        def add_scalar(self, name: str, value: float, step: int) -> None:
            raise OSError("the pipe is broken")

        def close(self) -> None: ...

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Writer))
    said = list[str]()
    outcome = train(make_recipe({**TINY, "tensorboard": True}), create_run(tmp_path / "run"), say=said.append)
    assert outcome.result["env_steps"] == 24
    notes = [line for line in said if "the pipe is broken" in line]
    assert notes == ["note: TensorBoard's writer gets no more rows: the pipe is broken; metrics.csv has all"]


def test_a_recorded_episode(
    ending: Ending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = A2C("CartPole-v1", num_envs=2, num_steps=4, total_timesteps=8, hidden=[4], eval_episodes=0).train()
    assert agent.parameters is not None
    monkeypatch.setattr(HostVectorEnvironment, "close", lambda self: ending.close())
    played = watch(agent.recipe, agent.parameters, 1, 0, tmp_path / "episode.gif")
    assert len(played.returns) == 1 and (tmp_path / "episode.gif").exists()
    assert agent.evaluate(1).returns.shape == (1,) and agent.predict(np.zeros(4)).shape == ()
    names = ("the environment CartPole-v1", "the evaluation's environments CartPole-v1")  # `predict` needs none
    assert capsys.readouterr().err.splitlines() == [ending.line(name) for name in names]


def test_a_plan(ending: Ending, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(HostVectorEnvironment, "close", lambda self: ending.close())
    assert "schedule" in plan(make_recipe(TINY)).lower()
    assert ending.line("the environments CartPole-v1") in capsys.readouterr().err


def test_an_object_that_was_only_checked(ending: Ending, capsys: pytest.CaptureFixture[str]) -> None:
    class Open(Scripted):
        def close(self) -> None:
            ending.close()

    agent = A2C(lambda: Open([("terminated", 3)]), num_envs=2)
    assert agent.recipe.env.id == "Open" and ending.line("the environment Open") in capsys.readouterr().err


def test_work_that_comes_too_late_is_taken_care_of(enough: threading.Event) -> None:
    late, done = list[int](), threading.Event()

    def keep(value: int) -> None:
        late.append(value)
        done.set()

    def work() -> int:
        enough.wait(60)
        return 3

    with pytest.raises(TooLongError):
        in_time(0.05, work, keep)
    enough.set()
    assert done.wait(60) and late == [3]
    assert in_time(60.0, lambda: 4) == 4
    with pytest.raises(LookupError, match="no"):
        in_time(60.0, raising)


def raising() -> None:
    raise LookupError("no")


def test_the_command_ends_though_a_close_blocks_for_ever() -> None:
    """Python's own end of the process would wait for the thread that the environment began."""
    code = """
import sys, threading, types
import tempo_rl.cli as cli
import tempo_rl.env.closing as closing

def command():
    closing.PATIENCE = 0.05
    threading.Thread(target=threading.Event().wait).start()
    closing.close_quietly(types.SimpleNamespace(close=threading.Event().wait), "the environment Open")
    print("the result")
    raise SystemExit(3)

cli.app = command
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 3 and done.stdout == "the result\n" and "close() of the environment Open" in done.stderr


def test_a_line_that_cannot_be_written_costs_nothing(enough: threading.Event) -> None:
    def full(text: str) -> None:
        raise OSError("no space left on device")

    close_quietly(Ending("raises", enough), "the environment", full)
