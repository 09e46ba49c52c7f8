"""What the commands print for programs with `--json`: one object a line, whose keys stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tempo_rl.cli import app
from tempo_rl.streams import aside, kept, result

TINY: dict[str, Any] = {"algorithm": "reinforce", "num_envs": 2, "num_steps": 40, "total_timesteps": 160, "hidden": [4]}
GROUP = {"label", "env", "runs", "seeds"}


def objects(*arguments: str) -> list[dict[str, Any]]:
    command = CliRunner().invoke(app, [*arguments, "--json"])
    assert command.exit_code == 0, command.output
    return [json.loads(line, parse_constant=pytest.fail) for line in command.stdout.splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A run, and the events of its training."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = folder / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY | {"eval_every": 1, "eval_episodes": 2}))
    return folder / "run", objects("train", str(recipe), "--out", str(folder / "run"), "--no-picture", "--no-progress")


def test_the_events_of_training(run: tuple[Path, list[dict[str, Any]]]) -> None:
    path, events = run
    assert [event["event"] for event in events] == ["start", "iteration", "evaluation", "iteration", "evaluation", "result"]
    start, iteration, evaluation, *_, last = events
    assert start == {
        "event": "start", "run": str(path), "algorithm": "reinforce", "env": "CartPole-v1", "seed": 0, "iterations": 2,
        "steps_per_iteration": 80, "resumed_at": 0,
    }  # fmt: skip
    columns = (path / "metrics.csv").read_text().splitlines()[0].split(",")
    assert list(iteration) == ["event", *columns]
    assert list(evaluation) == ["event", *(path / "evaluations.csv").read_text().splitlines()[0].split(",")]
    assert last == {"event": "result", "run": str(path), **json.loads((path / "result.json").read_text())}


def test_an_evaluation(run: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    path, events = run
    (values,) = objects("eval", str(path), "--episodes", "2")
    assert set(values) == {
        "checkpoint", "env", "env_steps", "episodes", "return_mean", "return_std", "length_mean", "returns", "lengths", "video",
    }  # fmt: skip
    assert values["return_mean"] == events[-1]["eval_return_mean"] == sum(values["returns"]) / 2 and values["env_steps"] == 160
    assert values["checkpoint"] == str(path / "checkpoints/latest.safetensors") and values["video"] is None
    (values,) = objects("eval", str(path), "--episodes", "1", "--video", str(tmp_path / "episode.gif"))
    assert Path(values["video"]).exists()


def test_curves_and_comparisons(run: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    path, _ = run
    (values,) = objects("plot", str(path), "--out", str(tmp_path / "p.png"))
    assert set(values) == {"picture", "metric", "groups"} and set(values["groups"][0]) == GROUP | {"steps", "mean", "low", "high"}
    assert values["groups"][0]["label"] == "reinforce on CartPole-v1" and values["groups"][0]["seeds"] == [0]
    assert values["groups"][0]["mean"] == values["groups"][0]["low"] and len(values["groups"][0]["steps"]) == 200
    (values,) = objects("compare", str(path), "--no-picture")
    assert set(values) == {"score", "is_scaled", "groups", "improvement", "resamples", "picture"}
    assert set(values["groups"][0]) == GROUP | {"scores", "iqm", "low", "high"} and values["improvement"] is None


def test_recipes(tmp_path: Path) -> None:
    rows = objects("ls")
    assert {"recipe", "algorithm", "env", "total_timesteps", "path"} == set(rows[0])
    assert {row["recipe"]: row["algorithm"] for row in rows}["ppo"] == "ppo"
    (copy,) = objects("cp", "ppo", str(tmp_path / "mine.yaml"))
    assert set(copy) == {"source", "target"} and Path(copy["target"]).exists()
    (values,) = objects("validate", "reinforce", "num_envs=2", "num_steps=4")
    assert set(values) == {"valid", "is_whole", "not_imported", "iterations", "steps_per_iteration", "recipe"}
    assert values["valid"] and values["is_whole"] and values["recipe"]["num_envs"] == 2 and values["steps_per_iteration"] == 8
    (values,) = objects("validate", "reinforce", "algorithm=nowhere:function", "more=1")
    assert not values["is_whole"] and values["not_imported"] == ["nowhere:function"] and values["recipe"]["more"] == 1


def test_the_machine() -> None:
    (values,) = objects("doctor")
    assert set(values) == {"is_able", "versions", "devices", "missing"} and values["is_able"]
    assert all(set(extra) == {"package", "extra", "use"} for extra in values["missing"])


def test_every_command_has_json() -> None:
    for command in app.registered_commands:
        assert "--json" in CliRunner().invoke(app, [str(command.name), "--help"]).output


def test_results_go_past_what_others_print(capfd: pytest.CaptureFixture[str]) -> None:
    with kept(), aside():
        print("noise")
        result('{"a": 1}')
        with aside():
            result('{"b": 2}')
    out, errors = capfd.readouterr()
    assert out == '{"a": 1}\n{"b": 2}\n' and errors == "noise\n"
