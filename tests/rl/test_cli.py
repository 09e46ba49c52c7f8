"""The command: its help, and its mistakes, which end in one message without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tempo_rl.cli import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in ("train", "eval", "plan", "ls", "cp", "validate", "doctor"):
        assert command in result.output


def test_train_help_names_the_flags() -> None:
    result = run("train", "--help")
    assert result.exit_code == 0
    for flag in ("--out", "--seed", "--total-timesteps", "--num-envs", "--save-every", "--track", "--no-progress", "--plan", "--profile",
        "--cache", "--no-cache",
    ):  # fmt: skip
        assert flag in result.output


def test_validate_prints_every_key() -> None:
    result = run("validate", "ppo", "num-envs=8", "env.kwargs.gravity=9.7")
    assert result.exit_code == 0
    assert "num_envs: 8" in result.output and "gravity: 9.7" in result.output and "clip_coef: 0.2" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("validate", "ppo", "learning-rat=1"), "did you mean learning_rate?"),
        (("train", "nowhere.yaml"), "there is no recipe nowhere.yaml"),
        (("train", "ppo", "num_minibatches=7"), "num_minibatches=7 does not divide"),
        (("train", "ppo", "--num-envs", "0"), "num_envs is 0"),
        (("eval", "nowhere"), "there is no run or checkpoint nowhere"),
        (("plan", "ppo", "gamma=3"), "gamma is 3"),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.output and "Traceback" not in result.output


def test_train_refuses_a_directory_that_holds_a_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("iteration\n")
    result = run("train", "ppo", "--out", str(tmp_path))
    assert result.exit_code == 1 and "holds a run already" in result.output


def test_ls_and_cp(tmp_path: Path) -> None:
    assert "ppo_functional" in run("ls").output
    target = tmp_path / "mine.yaml"
    assert run("cp", "ppo", str(target)).exit_code == 0
    assert "algorithm: ppo" in target.read_text()
    again = run("cp", "ppo", str(target))
    assert again.exit_code == 1 and "exists already" in again.output


def test_doctor_prints_versions_and_devices() -> None:
    result = run("doctor")
    assert result.exit_code == 0
    for name in ("python", "jax", "gymnasium", "devices"):
        assert name in result.output
