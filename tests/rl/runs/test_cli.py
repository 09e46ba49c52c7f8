"""The command: its help, and its mistakes, which end in one message without a traceback."""

from __future__ import annotations

import csv
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner, Result

import tempo_core as tp
import tempo_rl.cli
import tempo_rl.progress
from tempo_core.planner import Planner
from tempo_rl.cli import app
from tempo_rl.errors import RecipeError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in ("train", "eval", "plan", "plot", "compare", "ls", "cp", "validate", "doctor"):
        assert command in result.output


def test_train_help_names_the_flags() -> None:
    result = run("train", "--help")
    assert result.exit_code == 0
    for flag in ("--out", "--seed", "--total-timesteps", "--num-envs", "--save-every", "--track", "--no-progress", "--plan", "--profile",
        "--cache", "--no-cache", "--json", "--no-picture", "--capture-video", "--device", "--devices", "--eval-every", "--keep", "--memory-limit",
        "--wandb-project", "--wandb-entity", "--wandb-group", "--wandb-tags",
    ):  # fmt: skip
        assert flag in result.output


def test_validate_prints_every_key() -> None:
    result = run("validate", "reinforce", "num-envs=8", "hidden=[4]")
    assert result.exit_code == 0, result.output
    assert "num_envs: 8" in result.output and "norm_returns: true" in result.output and "# valid: 100 iterations" in result.output


def test_validate_makes_the_environment() -> None:
    result = run("validate", "reinforce", "env.kwargs.gravity=9.7")
    assert result.exit_code == 1 and "cannot make 'CartPole-v1' with {'gravity': 9.7}" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("validate", "ppo", "learning-rat=1"), "did you mean learning_rate?"),
        (("train", "nowhere.yaml"), "there is no recipe nowhere.yaml"),
        (("train", "ppo", "num_minibatches=7"), "num_minibatches=7 does not divide"),
        (("train", "ppo", "--num-envs", "0"), "num_envs is 0"),
        (("train", "ppo", "--keep", "0"), "keep is 0"),
        (("train", "ppo", "seed=4", "--seed", "3"), "the flag --seed sets seed to 3, but an override sets it to 4"),
        (("train", "ppo", "--device", "abacus"), "there is no device 'abacus'; JAX sees cpu"),
        (("train", "ppo", "--devices", "many"), "--devices many is not a number of devices"),
        (("plan", "ppo_micro", "num_envs=6", "num_steps=4", "--devices", "4"), "b: its 6 points are not a multiple of 4"),
        (("plan", "ppo", "--devices", "99"), "--devices 99: JAX has started with fewer CPU devices"),
        (("eval", "nowhere"), "there is no run or checkpoint nowhere"),
        (("plan", "ppo", "gamma=3"), "gamma is 3"),
        (("train", "ppo", "--out", "x" * 300), "xxx...: File name too long"),
        (("eval", "x" * 300), "xxx...: File name too long"),
        (("train", "ppo", "--resume", "x" * 300), "xxx...: File name too long"),
        (("cp", "ppo", "x" * 300), "xxx...: File name too long"),
        (("plan", "ppo_functional", "num_envs=100000000", "total_timesteps=1e12"), "num_envs=100,000,000 x num_steps="),
        *(
            ((command, name, "hidden=[1000000, 1000000]"), "a layer of 1,000,000 x 1,000,000 weights is too large")
            for command, name in (
                ("plan", "ppo"),
                ("plan", "ppo_functional"),
                ("plan", "actor_critic"),
                ("plan", "reinforce_baseline"),
                ("plan", "dqn"),
                ("train", "ppo"),
                ("validate", "reinforce"),
            )
        ),
    ],
)
def test_mistakes_are_one_message(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.output and "Traceback" not in result.output


def test_the_version_is_that_of_the_package() -> None:
    result = run("--version")
    assert result.exit_code == 0 and result.output == f"tempo-rl {version('tempo-dl')}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        for command in (["ls"], ["doctor"]):
            result = subprocess.run(
                [sys.executable, "-m", "tempo_rl", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
            assert result.returncode == 1 and result.stderr == "error: the output: No space left on device\n"


def test_flags_are_keys_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []

    def refuse(recipe: str, overrides: list[str], hear: object) -> None:
        keys.extend(overrides)
        raise RecipeError("seen")

    monkeypatch.setattr(tempo_rl.cli, "load_recipe", refuse)
    flags = ["--eval-every", "3", "--keep", "2", "--memory-limit", "2GiB", "--wandb-project", "p", "--wandb-tags", "a, b"]
    assert run("train", "ppo", "gamma=0.9", *flags).exit_code == 1
    assert keys == [
        "gamma=0.9",
        "keep=2",
        "eval_every=3",
        "memory_limit=2GiB",
        "wandb.project=p",
        'wandb.tags=["a", "b"]',
        "track=true",
    ]


def test_a_program_that_needs_too_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no other forms to try: `tests/core/test_planner.py` tries them."""
    monkeypatch.setattr(Planner, "_singles", lambda self: ())
    result = run("train", "reinforce", "num_envs=2", "num_steps=4", "--memory-limit", "100", "--out", str(tmp_path / "run"))
    assert result.exit_code == 1 and "but memory_limit allows 100" in result.output and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_plan_under_a_limit_of_memory() -> None:
    small = "reinforce", "num_envs=2", "num_steps=4"
    result = run("plan", *small, "--memory-limit", "1GiB", "--no-cache")
    assert result.exit_code == 0 and "bytes" in result.output, result.output
    result = run("validate", *small, "memory_limit=1MiB", "--memory-limit", "2MiB")
    assert result.exit_code == 1 and "the flag --memory-limit sets memory_limit to '2MiB'" in result.output


def test_all_lines_of_an_error_are_shown_on_request() -> None:
    result = run("--traceback", "validate", "ppo", "learning-rat=1")
    assert isinstance(result.exception, RecipeError)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_without_a_terminal_a_line_comes_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(), list[str]()
    monkeypatch.setattr(tempo_rl.progress, "time", clock)
    progress = tempo_rl.progress.Progress(1000, visible=False, say=said.append)
    for second in range(1, 26):
        clock.now = second
        progress.update({"env_steps": 20 * second, "episodic_return": float("nan") if second == 20 else second})
    assert said == [
        "200/1,000 steps, return 10.0, 20 steps/s, 40 s left",
        "400/1,000 steps, return 19.0, 20 steps/s, 30 s left",
    ]


def test_the_time_left_counts_neither_compiling_nor_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said, compiling = Clock(), list[str](), [0.0]
    monkeypatch.setattr(tempo_rl.progress, "time", clock)
    progress = tempo_rl.progress.Progress(1000, visible=False, say=said.append, compiling=lambda: compiling[0])
    progress.go_on_from(500)
    clock.now, compiling[0] = 30.0, 25.0
    progress.update({"env_steps": 600, "episodic_return": 1.0})
    assert said == ["600/1,000 steps, return 1.0, 20 steps/s, 20 s left"]


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


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["ppo_functional", "ppo"])  # the latter's environments are on the host
def test_training_on_two_devices_is_that_on_one(recipe: str, tmp_path: Path) -> None:
    sizes = [
        "num_envs=4",
        "num_steps=8",
        "num_minibatches=2",
        "update_epochs=2",
        "hidden=[8]",
        "total_timesteps=64",
        "eval_episodes=1",
    ]
    for devices in ("1", "2"):
        path = str(tmp_path / devices)
        result = run("train", recipe, *sizes, "--out", path, "--devices", devices, "--no-picture", "--no-progress")
        assert result.exit_code == 0, result.output
    one, two = (list(csv.DictReader((tmp_path / devices / "metrics.csv").read_text().splitlines())) for devices in ("1", "2"))
    assert len(one) == len(two) == 2
    for row, other in zip(one, two, strict=True):
        assert float(row["loss"]) == pytest.approx(float(other["loss"]), rel=1e-4)
        assert row["episodic_length"] == other["episodic_length"]


@pytest.mark.slow
def test_a_plan_names_the_devices() -> None:
    result = run("plan", "ppo_micro", "num_envs=8", "num_steps=4", "--devices", "2")
    assert "b: 8 points on 2 devices, 4 on each" in result.output


def test_doctor_prints_versions_and_devices() -> None:
    result = run("doctor")
    assert result.exit_code == 0
    for name in ("python", "jax", "gymnasium", "devices"):
        assert name in result.output


def test_doctor_calibrates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tp.Target, "calibrated", staticmethod(lambda: tp.Target.named("cpu")))
    result = run("doctor", "--calibrate", "--out", str(tmp_path / "machine.json"))
    assert result.exit_code == 0 and "a launch" in result.output
    assert tp.Target.load(tmp_path / "machine.json") == tp.Target.named("cpu")
    assert run("doctor", "--out", "x").exit_code == 1


@pytest.mark.slow
def test_a_valid_recipe_is_not_compiled_by_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_CACHE", "off")
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_, **__: pytest.fail("XLA compiles a program"))
    arguments = ("reinforce", "num_envs=2", "num_steps=4")
    result = run("validate", *arguments)
    assert result.exit_code == 0 and result.output.startswith("algorithm: reinforce") and "# valid: " in result.output
    with pytest.raises(pytest.fail.Exception, match="XLA compiles"):
        run("plan", *arguments)
