"""Signals while XLA compiles: the commands end at once, and training can begin again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tempo_core as tp
from tempo_core.compiling import Subject, compile_lowered
from tempo_core.runs.commands import RunError
from tempo_core.runs.stop import Stopped
from tempo_llm.training import run as training
from tempo_llm.training.evaluation import Evaluation
from tempo_llm.training.recipe import make_recipe
from tempo_llm.training.rundir import RunFiles, chosen_run
from tests.cases import cells, fast
from tests.endless import ended
from tests.llm.training.test_llm_training import TINY

MAIN = "from tempo_llm.cli import main\nmain()\n"


ENDLESS = """
import tempo_llm.training.run as run

def endless(*arguments):
    print("it begins", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)

run.{name} = endless
"""


@pytest.mark.parametrize(
    ("number", "name"),
    cells([signal.SIGINT, signal.SIGTERM], ["train_tokenizer", "packed"]),
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_while_text_is_prepared_ends_training(number: signal.Signals, name: str, tmp_path: Path) -> None:
    """The tokenizer is trained in one call of native code, which serves no signals, and so are rows made of the text."""
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(json.dumps(TINY))
    code = ENDLESS.replace("{name}", name) + MAIN
    end = ended(code, ["train", str(recipe), "--out", "run"], number, tmp_path, "it begins")
    assert end.status == 128 + number and end.output.endswith("interrupted\n") and "Traceback" not in end.output, end.output
    assert not (tmp_path / "run").exists()


def test_an_error_while_text_is_prepared_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RunError("training needs the package tokenizers")

    monkeypatch.setattr(training, "train_tokenizer", refuse)
    with pytest.raises(RunError, match="needs the package tokenizers"):
        training.Prepared(make_recipe(TINY, ()))


@pytest.mark.parametrize("number", fast([signal.SIGINT, signal.SIGTERM], signal.SIGTERM), ids=lambda number: number.name)
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


KILLED_AT = {  # code that kills a process in the middle of a run's beginning
    "the lock": "",
    "the first file": "os.replace = lambda *_: die()",
    "what an earlier run left": "unlink = Path.unlink; Path.unlink = lambda path, **_: (unlink(path, **_), die())",
    "the first state": "RunFiles.begin(run, recipe); run.metrics.write_text('update'); run.model.mkdir(exist_ok=True); die()",
}


@pytest.mark.parametrize("moment", KILLED_AT)
@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_that_was_killed_before_its_first_state_begins_again(moment: str, is_new: bool, tmp_path: Path) -> None:
    path, recipe = tmp_path / "run", make_recipe(TINY, ())
    if not is_new:  # it replaces another run
        with RunFiles(path).locked():
            RunFiles(path).begin(make_recipe({**TINY, "seed": 5}, ()))
        for name in ("metrics.csv", "state.safetensors", "result.json", "model/config.json"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).touch()
    code = f"""
import json, os, signal, sys
from pathlib import Path
from tempo_llm.training.recipe import make_recipe
from tempo_llm.training.rundir import RunFiles

def die():
    os.kill(os.getpid(), signal.SIGKILL)

run, recipe = RunFiles(Path(sys.argv[1])), make_recipe(json.loads(sys.argv[2]))
with run.locked():
    {KILLED_AT[moment]}
    if {moment != "the lock"}:
        run.begin(recipe)
    die()
"""
    done = subprocess.run([sys.executable, "-c", code, str(path), json.dumps(TINY)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL and (path / ".lock").exists()
    if not is_new and moment == "the lock":
        return  # the earlier run is whole
    for resume, overwrite in (("off", True), ("auto", False), (str(path), False)):
        run, goes_on = chosen_run(recipe, "tiny", path, overwrite, resume)
        assert run.path == path and not goes_on
    with run.locked():
        run.begin(recipe)
    assert sorted(each.name for each in path.iterdir()) == [".lock", "config.yaml", *(["model"] if run.model.exists() else [])]
    run.check_recipe(recipe)


def test_the_evaluation_is_compiled_before_the_first_report(tmp_path: Path, fresh_programs: None) -> None:
    prepared = training.Prepared(make_recipe(TINY, ()))
    evaluation = Evaluation(prepared.config, prepared.held_out[:2], {})
    assert evaluation.program.compiles == 1
