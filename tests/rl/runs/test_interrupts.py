"""Signals while XLA compiles: the commands end at once, and no iteration is lost."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from tempo_core.compiling import Subject, compile_lowered, reporting
from tempo_rl.errors import RLError
from tempo_rl.evaluate import Evaluator
from tempo_rl.progress import Progress
from tempo_rl.recipe import load_recipe, make_recipe
from tempo_rl.resume import chosen_run
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import train
from tests.endless import ended

TINY: dict[str, Any] = {
    "algorithm": "reinforce", "env": {"id": "CartPole-v1"}, "num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [4],
    "eval_episodes": 2, "eval_every": 2,
}  # fmt: skip
MAIN = "from tempo_rl.cli import main\nmain()\n"


def interrupted(*_: Any, **__: Any) -> None:
    """Work that compiles, and gets a signal meanwhile."""

    class Lowered:
        def compile(self) -> None:
            signal.raise_signal(signal.SIGTERM)
            threading.Event().wait(1)

    compile_lowered(Lowered(), lambda: Subject("a program"))
    pytest.fail("it compiled to the end")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=lambda number: number.name
)
def test_a_signal_while_xla_compiles_ends_training(number: signal.Signals, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY))
    arguments = ["train", str(recipe), "--out", "run"]
    end = ended(MAIN, arguments, number, tmp_path)
    assert end.status == 128 + number and "Traceback" not in end.output, end.output
    assert "compiling launch 1 of " in end.output and " operations): 0 s" in end.output
    assert f"stopped by {number.name} before the first iteration ended" in end.output
    run, checkpoint = chosen_run(load_recipe(str(recipe)), "tiny", tmp_path / "run", False, "auto", print)
    assert run is not None and checkpoint is None  # it begins again
    with run.locked():
        run.check()


def test_a_signal_in_an_evaluation_saves_the_iteration_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluator, "__call__", interrupted)
    run = create_run(tmp_path / "run")
    outcome = train(make_recipe(TINY), run, say=lambda text: None)
    assert outcome.stopped == "SIGTERM" and outcome.evaluation is None
    run, checkpoint = chosen_run(make_recipe(TINY), "tiny", run.path, False, "auto", print)
    assert checkpoint is not None and checkpoint.iterations == 2


def test_a_signal_in_the_last_evaluation_leaves_it_to_a_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe({**TINY, "eval_every": 0})
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "__call__", interrupted)
        outcome = train(recipe, create_run(tmp_path / "run"), say=lambda text: None)
    assert outcome.stopped == "SIGTERM" and outcome.evaluation is None
    run, checkpoint = chosen_run(recipe, "tiny", tmp_path / "run", False, "auto", print)
    assert run is not None and checkpoint is not None and checkpoint.iterations == 3
    again = train(recipe, run, say=lambda text: None, resume=checkpoint)
    assert again.stopped is None and again.evaluation is not None
    assert "interrupted" not in json.loads(RunDirectory(tmp_path / "run").result.read_text())


def test_a_signal_while_the_last_evaluation_plays_keeps_the_episodes_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tempo_rl.env.vector import HostVectorEnvironment

    step, ended_episodes = HostVectorEnvironment.step, 0

    def signalling(self: HostVectorEnvironment, action: Any) -> Any:
        nonlocal ended_episodes
        result = step(self, action)
        if self.num_envs == 32:  # those of the evaluation
            ended_episodes += int((result.terminated | result.truncated).sum())
            if ended_episodes and ended_episodes < 100:
                ended_episodes = 100
                signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(HostVectorEnvironment, "step", signalling)
    recipe = make_recipe({**TINY, "eval_every": 0, "eval_episodes": 1000})
    outcome = train(recipe, create_run(tmp_path / "run"), say=lambda text: None)
    result = json.loads(RunDirectory(tmp_path / "run").result.read_text())
    assert outcome.stopped is None and outcome.evaluation is not None
    assert result["eval_episodes"] == len(outcome.evaluation.returns) < 1000 and result["eval_return_mean"] > 0.0


def test_a_signal_while_an_evaluation_plays_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_rl.env.vector import HostVectorEnvironment

    step, steps = HostVectorEnvironment.step, 0

    def signalling(self: HostVectorEnvironment, action: Any) -> Any:
        nonlocal steps
        if self.num_envs == 32:  # those of the evaluation
            steps += 1
            if steps == 3:
                signal.raise_signal(signal.SIGINT)
        return step(self, action)

    monkeypatch.setattr(HostVectorEnvironment, "step", signalling)
    said = list[str]()
    outcome = train(make_recipe({**TINY, "eval_episodes": 1000}), create_run(tmp_path / "run"), say=said.append)
    assert steps == 3 and outcome.stopped == "SIGINT" and "SIGINT: ending the evaluation; once more stops at once" in said
    assert not RunDirectory(tmp_path / "run").evaluations.exists()


@pytest.mark.parametrize("how", ["raises", "blocks"])
def test_an_environment_that_does_not_close_loses_nothing(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_rl.env.vector import HostVectorEnvironment

    enough = threading.Event()

    def close(self: object) -> None:
        if how == "raises":
            raise LookupError("it is open for ever")
        enough.wait(30)
        assert enough.is_set(), "nobody waits for it"

    monkeypatch.setattr(HostVectorEnvironment, "close", close)
    monkeypatch.setattr("tempo_rl.env.closing.PATIENCE", 0.05, raising=False)
    outcome = train(make_recipe(TINY), create_run(tmp_path / "run"), say=lambda text: None)
    enough.set()
    assert outcome.evaluation is not None and RunDirectory(tmp_path / "run").result.exists()


def test_an_evaluation_that_fails_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RLError("0 of 20 episodes ended")

    monkeypatch.setattr(Evaluator, "__call__", failing)
    said = list[str]()
    outcome = train(make_recipe({**TINY, "eval_every": 0}), create_run(tmp_path / "run"), say=said.append)
    assert outcome.evaluation is None and outcome.stopped is None and RunDirectory(tmp_path / "run").result.exists()
    assert "note: the evaluation failed: 0 of 20 episodes ended" in said


def test_the_bar_shows_what_xla_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_core.compiling.LONG", 0.0)
    monkeypatch.setattr("tempo_core.compiling.TURN", 0.001)
    shown: list[str] = []
    enough = threading.Event()

    class Lowered:
        def compile(self) -> None:
            assert enough.wait(60)

    bar = Progress(24, visible=True)
    update = bar._bar.update

    def noted(task: Any, **fields: Any) -> None:
        shown.append(fields["description"])
        enough.set()
        update(task, **fields)

    monkeypatch.setattr(bar._bar, "update", noted)
    with reporting(lambda *_: pytest.fail("the bar shows it")), bar:
        compile_lowered(Lowered(), lambda: Subject("launch 1 of 5", "loss", 1412))
    assert shown[0] == "compiling launch 1 of 5, 1,412 operations: 0 s" and shown[-1] == "compiling"
