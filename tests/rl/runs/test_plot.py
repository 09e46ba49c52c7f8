"""Curves of runs and their pictures; evaluations while training; the other logs."""

from __future__ import annotations

import csv
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tempo_rl.cli import app
from tempo_rl.env.vector import HostVectorEnvironment
from tempo_rl.errors import RecipeError
from tempo_rl.evaluate import evaluate
from tempo_rl.monitor import Iteration
from tempo_rl.plot import curve_of, draw, mean_of, smoothed
from tempo_rl.recipe import make_recipe
from tempo_rl.recording import JSONLLogger
from tempo_rl.resume import chosen_run
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.train import train

RECIPE: dict[str, Any] = {"algorithm": "reinforce", "num_envs": 2, "num_steps": 4, "total_timesteps": 40, "hidden": [4]}


def run_with(path: Path, returns: list[float], seed: int = 0, gamma: float = 0.99) -> Path:
    """A run directory with such returns, 10 steps apart."""
    run = RunDirectory(path)
    run.checkpoints.mkdir(parents=True)
    run.begin(make_recipe(RECIPE | {"seed": seed, "gamma": gamma}))
    rows = [f"{k},{10 * k + 10},{value}" for k, value in enumerate(returns)]
    run.metrics.write_text("\n".join(["iteration,env_steps,episodic_return", *rows]) + "\n")
    return path


def test_a_curve_leaves_out_iterations_without_an_end(tmp_path: Path) -> None:
    steps, values = curve_of(run_with(tmp_path / "run", [1.0, math.nan, 3.0]))
    assert steps.tolist() == [10, 30] and values.tolist() == [1, 3]


def test_a_mean_has_the_interval_of_its_runs() -> None:
    curves = [(np.array([0.0, 100.0]), np.array([v, v + 10.0])) for v in (1.0, 3.0)]
    at, mean, half = mean_of(curves)
    assert (at[0], at[-1]) == (0, 100)
    np.testing.assert_allclose([mean[0], mean[-1]], [2, 12])
    np.testing.assert_allclose(half, 1.96 * np.sqrt(2) / np.sqrt(2))
    assert (mean_of(curves[:1])[2] == 0).all()


def test_smoothing_is_a_mean_of_the_past() -> None:
    np.testing.assert_allclose(smoothed(np.arange(60.0))[[0, 1, 2, 59]], [0, 0.5, 1, 58])
    assert smoothed(np.array([5.0])).tolist() == [5]


def test_pictures_of_seeds_and_of_recipes(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"seed{s}", [s, 2.0, 3.0 + s], seed=s) for s in range(3)]
    other = run_with(tmp_path / "other", [4.0, 5.0], gamma=0.5)
    file = draw([*runs, other], tmp_path / "all.svg")
    text = file.read_text()
    assert text.count("FillBetweenPolyCollection") == 2  # one mean for the seeds, one for the other recipe
    assert "mean of" in text and "mean of" not in draw([other, other], tmp_path / "twice.svg").read_text()
    empty = run_with(tmp_path / "empty", [math.nan])
    command = CliRunner().invoke(app, ["plot", str(empty), str(other), "--out", str(tmp_path / "picture.png")])
    assert command.exit_code == 0, command.output
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))  # temporary files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["run", "--metric", "los"], "has no column los\n  hint: it has iteration, env_steps, episodic_return"),
        (["run", "--out", "x.txt"], "x.txt cannot be written"),
        (["run", "--out", "no/where.png"], "where.png cannot be written"),
    ],
)
def test_what_cannot_be_drawn(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_with(Path("run"), [1.0, 2.0])
    command = CliRunner().invoke(app, ["plot", *arguments])
    assert command.exit_code == 1 and message in command.output and "Traceback" not in command.output


def test_lines_of_json_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 0, "loss": 0.5}\n{"iteration": 1, "loss": 0.4}\n{"itera')
    logger = JSONLLogger(path, rows=1)
    logger.log({"iteration": 1, "loss": math.nan})
    logger.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"iteration": 0, "loss": 0.5},
        {"iteration": 1, "loss": None},
    ]


def test_evaluations_while_training(tmp_path: Path) -> None:
    """Each is that of the parameters at that time; the run itself does not change."""
    recipe = make_recipe(RECIPE | {"eval_every": 2, "eval_episodes": 3, "jsonl": True})
    parameters: dict[int, Any] = {}

    def keep(iteration: Iteration) -> None:
        parameters[iteration.iteration] = dict(iteration.parameters)

    run, cache = create_run(tmp_path / "run"), str(tmp_path / "programs")
    train(recipe, run, say=lambda text: None, callbacks=[keep], cache=cache)
    with open(run.evaluations, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["iteration"], row["env_steps"]) for row in rows] == [("1", "16"), ("3", "32")]
    for row in rows:
        alone = evaluate(recipe, parameters[int(row["iteration"])], 3, recipe.seed, cache)
        np.testing.assert_allclose([float(row["return_mean"]), float(row["return_std"])], [alone.mean, alone.std], rtol=1e-6)
    plain = create_run(tmp_path / "plain")
    train(make_recipe(RECIPE | {"eval_episodes": 0}), plain, say=lambda text: None, cache=cache)
    assert plain.metrics.read_bytes() == run.metrics.read_bytes()
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["env_steps"] for line in lines] == [8, 16, 24, 32, 40]


def test_a_resumed_run_keeps_the_rows_before_it_whatever_they_are(tmp_path: Path) -> None:
    """`eval_every` and `jsonl` may differ from those before: a row is one of an iteration, and not one of so many."""
    path, cache, said = tmp_path / "run", str(tmp_path / "programs"), list[str]()

    def go_on(resume: bool, last: int, **keys: object) -> RunDirectory:
        recipe = make_recipe(RECIPE | {"eval_episodes": 1, "save_every": 1} | keys)
        run, checkpoint = (create_run(path), None) if not resume else chosen_run(recipe, "", path, False, "auto", str)
        assert run is not None
        stop = [lambda iteration: iteration.iteration == last]
        train(recipe, run, say=said.append, callbacks=stop, cache=cache, resume=checkpoint)
        return run

    go_on(False, 2, eval_every=1)
    run = go_on(True, 3, eval_every=2, jsonl=True)
    assert [line.split(",")[0] for line in run.evaluations.read_text().splitlines()] == ["iteration", "0", "1", "2", "3"]
    run.latest.unlink()
    run.checkpoint(32).unlink()  # the run goes on from iteration 3
    assert not any("iterations so far" in line for line in said)
    run.metrics.write_text("")
    go_on(True, 4, jsonl=True)
    assert [json.loads(line)["iteration"] for line in run.lines.read_text().splitlines()] == [3, 4]
    assert f"note: {run.metrics} holds 0 of the 3 iterations so far" in said


def test_json_is_all_that_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an environment prints."""
    reset = HostVectorEnvironment.reset

    def printing(env: HostVectorEnvironment, clock: int = 0) -> np.ndarray:
        print("it begins")
        return reset(env, clock)

    monkeypatch.setattr(HostVectorEnvironment, "reset", printing)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | {"eval_episodes": 0, "total_timesteps": 8}))
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--json", "--no-progress"]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 0, command.output
    events = [json.loads(line) for line in command.stdout.splitlines()]
    assert [event["event"] for event in events] == ["start", "iteration", "result"] and events[-1]["env_steps"] == 8
    assert (
        "play with it" in command.stderr
        and "it begins" in command.stderr
        and (tmp_path / "run" / "returns.png").read_bytes().startswith(b"\x89PNG")
    )


def test_evaluations_need_episodes() -> None:
    with pytest.raises(RecipeError, match="eval_every=2 needs eval_episodes"):
        make_recipe(RECIPE | {"eval_every": 2, "eval_episodes": 0})


def test_a_run_that_ends_before_its_first_iteration_has_no_picture(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | {"eval_episodes": 0}))
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--time-limit", "0", "--capture-video", "--no-progress"]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 0, command.output
    assert "before the first iteration ended\ngo on with" in command.output and "error" not in command.output


def test_the_command_that_goes_on_has_the_settings_of_the_first(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | {"eval_episodes": 0}))
    settings = ["hidden=[8, 8]", "--seed", "3", "--time-limit", "0", "--no-progress"]
    first = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "a run"), *settings])
    (line,) = [line for line in first.output.splitlines() if line.startswith("go on with: ")]
    command = shlex.split(line.removeprefix("go on with: "))
    assert command[:2] == ["tempo-rl", "train"] and "hidden=[8, 8]" in command and "seed=3" in command
    again = CliRunner().invoke(app, [*command[1:], "--time-limit", "0", "--no-progress"])
    assert again.exit_code == 0 and line in again.output, again.output


def test_a_picture_names_its_axes_and_what_differs(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"{gamma}{seed}", [1.0, 2.0], seed, gamma) for gamma in (0.9, 0.5) for seed in (0, 1)]
    text = draw(runs, tmp_path / "p.svg").read_text()
    for words in (
        "reinforce on CartPole-v1", "environment steps (count)", "return of an episode (sum of rewards)",
        "gamma=0.9, mean of 2 seeds", "gamma=0.5, mean of 2 seeds",
    ):  # fmt: skip
        assert f"<!-- {words} -->" in text
    assert "<!-- env steps -->" in draw(runs, tmp_path / "other.svg", "env_steps").read_text()
