"""Agents in other processes and directories: what is saved of their environments, and what is said where one is not found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from typer.testing import CliRunner

import tempo_rl
from tempo_rl.cli import app
from tempo_rl.env.saved import restored_spaces, saved_spaces
from tempo_rl.env.spaces import Actions, actions_of, observations_of, scaled, squashed
from tempo_rl.errors import CheckpointError, EnvError

SMALL: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 16, "hidden": [3], "eval_episodes": 0}
CHAIN = """
import gymnasium as gym
import numpy as np


class Chain(gym.Env):
    observation_space = gym.spaces.Dict({"place": gym.spaces.Discrete(4), "speed": gym.spaces.Box(-1.0, 1.0, (2,))})
    action_space = gym.spaces.Discrete(2, start=5)

    def __init__(self, length=4):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return {"place": 0, "speed": np.zeros(2, "float32")}, {}

    def step(self, action):
        self.count += 1
        return {"place": min(self.count, 3), "speed": np.zeros(2, "float32")}, 1.0, self.count == self.length, False, {}


def short_chain():
    return Chain(2)
"""
TRAIN = """
import sys
import tempo_rl
import chain

keys = {"num_envs": 2, "num_steps": 4, "total_timesteps": 16, "hidden": [3], "eval_episodes": 0}
tempo_rl.A2C(tempo_rl.EnvRecipe(chain.Chain, kwargs={"length": 3}), **keys).train("run").save("agent.safetensors")
assert tempo_rl.A2C(chain.short_chain, **keys).recipe.env.id == "chain:short_chain"
print("trained", "chain" in sys.modules)
"""
PLAY = """
import sys
import tempo_rl

agent = tempo_rl.load(sys.argv[1])
print(int(agent.predict({"place": 1, "speed": [0.0, 0.5]})) in (5, 6), "chain" in sys.modules)
print(agent.evaluate(2).mean)
"""


def python(code: str, *arguments: object, place: Path, path: Path | None = None) -> str:
    """What a process of its own prints, in the directory `place`, with modules of `path`."""
    roots = [str(Path(__file__).parents[3]), *([] if path is None else [str(path)])]
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=place, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
    )  # fmt: skip
    return result.stdout + (result.stderr if result.returncode else "")


@pytest.mark.slow
def test_an_agent_on_a_class_of_a_module_is_used_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`predict` needs no environment; others import it where the module is, and nobody's else."""
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    (home / "chain.py").write_text(CHAIN)
    assert python(TRAIN, place=home) == "trained True\n"
    assert "id: chain:Chain" in (home / "run" / "config.yaml").read_text()
    for name in ("run", "agent.safetensors"):
        assert python(PLAY, name, place=home) == "True False\n3.0\n"
    assert python(PLAY, home / "agent.safetensors", place=other, path=home) == "True False\n3.0\n"
    (other / "chain.py").write_text("raise SystemExit('imported')")  # another module of this name
    said = python(PLAY, home / "run", place=other)
    assert said.startswith("True False\n") and "would import chain:Chain" in said and "imported" not in said
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    played = CliRunner().invoke(app, ["eval", "run", "--episodes", "2"])
    assert played.exit_code == 0 and "return 3.0" in played.output
    again = CliRunner().invoke(app, ["train", "--resume", "run", "total_timesteps=24", "--no-picture"])
    assert again.exit_code == 0, again.output
    longer = CliRunner().invoke(app, ["eval", "run", "--episodes", "1", "--env", "chain:short_chain"])
    assert longer.exit_code == 0 and "return 2.0" in longer.output


class Plain(gym.Env[Any, Any]):
    """An episode of three steps, whose numbers are arrays of shape (1,)."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(100.0, 200.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        self.count += 1
        return np.zeros(1, np.float32), np.array([2.0]), np.array([self.count == 3]), np.array([False]), {}


@pytest.mark.slow
def test_an_object_has_a_name_that_is_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tempo_rl.A2C(lambda: Plain(), **SMALL).train("run").save("agent.safetensors")
    agent = tempo_rl.load("agent.safetensors")
    assert agent.recipe.env.id == "Plain" and agent.predict([0.0]).shape == (1,)
    with pytest.raises(EnvError, match=r"Gymnasium cannot make 'Plain'.*\n  hint: give .*: load\(path, env=Plain\)$"):
        agent.evaluate(1)
    assert tempo_rl.load("agent.safetensors", env=Plain).evaluate(2).mean == 6.0
    played = CliRunner().invoke(app, ["eval", "run"])
    assert played.exit_code == 1 and "hint: give the environment: --env my_module:Plain" in played.output
    Path("plain.py").write_text("class Plain:\n    pass\n")
    assert "--env plain:Plain" in CliRunner().invoke(app, ["eval", "run"]).output
    here = CliRunner().invoke(app, ["eval", "run", "--env", f"{__name__}:Plain", "--episodes", "1", "--best"])
    assert here.exit_code == 0 and "best.safetensors" in here.output and "return 6.0" in here.output
    assert tempo_rl.A2C(Plain, **{**SMALL, "total_timesteps": 24}).train("run", resume=True).parameters is not None
    assert f"id: {__name__}:Plain" in Path("run/config.yaml").read_text()  # it is known with its module from now on
    one = CliRunner().invoke(app, ["eval", "agent.safetensors", "--best"])
    assert one.exit_code == 1 and "--best chooses a checkpoint of a run" in one.output
    text = " ".join(CliRunner().invoke(app, ["eval", "--help"]).output.split())
    assert "its newest checkpoint; with --best the best one" in text.replace("│ │ ", "")


def test_what_gymnasium_made_has_its_arguments(tmp_path: Path) -> None:
    lake = tempo_rl.A2C(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7), **SMALL)
    assert lake.recipe.env.model_dump(include={"id", "kwargs"}) == {
        "id": "FrozenLake-v1",
        "kwargs": {"is_slippery": False, "max_episode_steps": 7},
    }
    assert tempo_rl.A2C(gym.make("CartPole-v1"), **SMALL).recipe.env.kwargs == {}
    wrapped = tempo_rl.A2C(gym.wrappers.TimeAwareObservation(gym.make("CartPole-v1")), **SMALL)
    wrapped.train().save(tmp_path / "agent.safetensors")
    with pytest.raises(EnvError, match=r"load\(path, env=MyEnv\)"):  # and no CartPole without the wrapper
        tempo_rl.load(tmp_path / "agent.safetensors").evaluate(1)


SPACES: list[spaces.Space[Any]] = [
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([1.0, 7.5], np.float32)),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    spaces.MultiBinary((2, 3)),
    spaces.Dict({"b": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,)))), "a": spaces.MultiBinary(3)}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_every_space_comes_back(space: spaces.Space[Any]) -> None:
    observations = observations_of(space, "it")
    box = actions_of(spaces.Box(-1.0, 2.0, (2, 2)), "it")
    choices = [actions_of(spaces.Discrete(3, start=1), "it"), actions_of(spaces.MultiDiscrete([2, 3], start=[1, 0]), "it")]
    kinds: list[Actions] = [box, squashed(box, "it"), scaled(box, "it", "sac"), *choices]
    for actions in kinds:
        saved = saved_spaces(observations, actions)
        assert saved is not None
        again, acted = restored_spaces(saved, "it", 1)
        assert (again, again.space, acted) == (observations, space, actions)
        assert restored_spaces(saved, "it", 3)[0].shape == (3, *observations.shape)


def test_an_environment_that_is_not_trusted_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tempo_rl.A2C(Plain, **SMALL).train().save(tmp_path / "agent.safetensors")
    assert tempo_rl.load(path).evaluate(1).mean == 6.0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    agent = tempo_rl.load(path)
    assert agent.predict([0.0]).shape == (1,)
    for use in (lambda: agent.evaluate(1), lambda: agent.train(total_timesteps=32)):
        with pytest.raises(CheckpointError, match=r"would import tests\.rl\.runs\.test_elsewhere:Plain"):
            use()
    assert tempo_rl.load(path, trust=True).evaluate(1).mean == 6.0
    assert tempo_rl.load(path, env=Plain).evaluate(1).mean == 6.0


def test_actions_that_are_out_of_reach_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tempo_rl.A2C(Plain, **SMALL).train()
    said = capsys.readouterr().err
    assert "lie between 100 and 200, but those of a new policy are around 0" in said and "squash_actions=true maps them" in said
    tempo_rl.A2C(Plain, squash_actions=True, **SMALL).train()
    assert "squash_actions" not in capsys.readouterr().err
