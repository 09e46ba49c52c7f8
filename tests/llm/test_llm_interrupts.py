"""Signals while XLA compiles: the commands end at once, and training can begin again."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

import tempo_core as tp
from tempo_core.compiling import Subject, compile_lowered
from tempo_core.runs.stop import Stopped
from tempo_llm.training import run as training
from tempo_llm.training.recipe import make_recipe
from tempo_llm.training.rundir import RunFiles, chosen_run
from tests.endless import ended
from tests.llm.test_llm_training import TINY

MAIN = "from tempo_llm.cli import main\nmain()\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_while_xla_compiles_ends_generation(number: signal.Signals, whole_model: Path, tmp_path: Path) -> None:
    end = ended(MAIN, ["generate", "-m", str(whole_model), "--raw", "-p", "a dog", "-n", "3"], number, tmp_path)
    assert "compiling launch 1 of " in end.output and "Traceback" not in end.output, end.output
    if number == signal.SIGINT:
        assert end.status == 130 and end.output.endswith("interrupted\n")
    else:  # the system ends a command that has nothing to lose
        assert end.status == -signal.SIGTERM


def test_a_signal_while_xla_compiles_ends_training(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(json.dumps(TINY))
    end = ended(MAIN, ["train", str(recipe), "--out", "run"], signal.SIGTERM, tmp_path)
    assert end.status == 128 + signal.SIGTERM and "Traceback" not in end.output, end.output
    assert "compiling launch 1 of " in end.output and end.output.endswith("interrupted\n")
    assert not (tmp_path / "run").exists()
    run, goes_on = chosen_run(make_recipe(TINY, ()), "tiny", tmp_path / "run", False, "off")
    assert not goes_on
    with run.locked():
        pass


def test_a_signal_while_the_first_report_is_compiled_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lowered:
        def compile(self) -> None:
            signal.raise_signal(signal.SIGTERM)
            threading.Event().wait(1)

    monkeypatch.setattr(tp.Run, "advance", lambda *_: compile_lowered(Lowered(), lambda: Subject("a program")))
    with pytest.raises(Stopped):
        training.train(make_recipe(TINY, ()), RunFiles(tmp_path / "run"), say=lambda text: None, backend="numpy")
    run, goes_on = chosen_run(make_recipe(TINY, ()), "tiny", tmp_path / "run", False, "auto")
    assert not goes_on and not run.is_finished()  # it begins again


def test_a_directory_that_was_only_locked_can_be_used(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    run, goes_on = chosen_run(make_recipe(TINY, ()), "tiny", tmp_path, False, "off")
    assert run.path == tmp_path and not goes_on


def test_the_evaluation_is_compiled_before_the_first_report(tmp_path: Path) -> None:
    prepared = training.Prepared(make_recipe(TINY, ()))
    evaluation = training.Evaluation(prepared.config, prepared.held_out[:2], {})
    assert evaluation.program.compiles == 1
