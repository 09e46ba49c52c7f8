"""Predictions and evaluations where observations are Dict, Tuple or choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import tempo_rl
from tempo_rl.env.spaces import observations_of
from tempo_rl.env.structured import as_batch
from tempo_rl.errors import RLError
from tests.cases import fast

ARM = spaces.Dict(
    {
        "angles": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
        "gripper": spaces.Discrete(3, start=1),
        "wheels": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2))),
        "eye": spaces.Box(0, 255, (2,), np.uint8),
    }
)
PAIR = spaces.Tuple((spaces.Box(-5.0, 5.0, (), np.float32), spaces.Discrete(4)))
SPACES: dict[str, spaces.Space[Any]] = {"Dict": ARM, "Tuple": PAIR, "Discrete": spaces.Discrete(5, start=-2)}


class Sampled(gym.Env[Any, Any]):
    """Observations are drawn from the space; an episode has three steps."""

    action_space = spaces.Discrete(3)

    def __init__(self, space: spaces.Space[Any]):
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.observation_space.sample(), float(action), self.count == 3, False, {}


def trained(space: spaces.Space[Any], **keys: Any) -> tempo_rl.A2C:
    keys = {
        "num_envs": 2,
        "num_steps": 4,
        "total_timesteps": 16,
        "hidden": [8],
        "learning_rate": 1e-6,
        "eval_episodes": 0,
        **keys,
    }
    return tempo_rl.A2C(lambda: Sampled(space), **keys).train()


def batched(space: spaces.Space[Any], observations: list[Any]) -> Any:
    """The observations as a vector environment gives them."""
    out = gym.vector.utils.create_empty_array(space, len(observations))
    return gym.vector.utils.concatenate(space, observations, out)


def drawn(space: spaces.Space[Any], count: int, seed: int = 0) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("kind", SPACES)
def test_the_array_is_that_of_the_environments(kind: str) -> None:
    """A batch, one, and what the environments themselves make of each observation."""
    space = SPACES[kind]
    samples = drawn(space, 7)
    observations = observations_of(space, "it")
    rows = np.stack([observations.inward(sample) for sample in samples])
    batch, is_one = as_batch(batched(space, samples), observations, "it")
    np.testing.assert_array_equal(batch, rows)
    assert not is_one and batch.dtype == observations.dtype
    for sample, row in zip(samples, rows, strict=True):
        one, is_one = as_batch(sample, observations, "it")
        assert is_one and (one == row).all() and one.shape == (1, *row.shape)


@pytest.mark.parametrize("kind", fast(SPACES, "Dict"))
def test_predictions_and_evaluations(kind: str, tmp_path: Path) -> None:
    space = SPACES[kind]
    agent = trained(space)
    samples = drawn(space, 20)
    actions = agent.predict(batched(space, samples))
    assert actions.shape == (20,) and [int(agent.predict(sample)) for sample in samples] == actions.tolist()
    assert len(set(actions.tolist())) > 1
    evaluation = agent.evaluate(5)
    assert evaluation.lengths.tolist() == [3] * 5 and (agent.evaluate(5).returns == evaluation.returns).all()
    again = tempo_rl.load(agent.save(tmp_path / "policy"), env=lambda: Sampled(space))
    assert (again.predict(batched(space, samples)) == actions).all()


def test_an_evaluation_plays_what_a_prediction_says(tmp_path: Path) -> None:
    """The return of an episode is the sum of the actions."""
    agent, env = trained(ARM), Sampled(ARM)
    seeds: list[int] = []

    class Noted(Sampled):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    noting = tempo_rl.load(agent.save(tmp_path / "policy"), env=lambda: Noted(ARM))
    returned = float(noting.evaluate(1).returns[0])
    observation, _ = env.reset(seed=seeds[-1])
    total = 0.0
    for _ in range(3):
        observation, reward, *_ = env.step(agent.predict(observation))
        total += reward
    assert total == returned


def test_frames_come_after_the_batch() -> None:
    agent = trained(ARM, frames=2)
    samples = drawn(ARM, 6)
    pairs = [batched(ARM, samples[k : k + 2]) for k in (0, 2, 4)]
    stacked = {
        "angles": np.stack([pair["angles"] for pair in pairs]),
        "gripper": np.stack([pair["gripper"] for pair in pairs]),
        "wheels": tuple(np.stack([pair["wheels"][k] for pair in pairs]) for k in (0, 1)),
        "eye": np.stack([pair["eye"] for pair in pairs]),
    }
    observations = observations_of(ARM, "it")
    rows = np.stack([observations.inward(sample) for sample in samples]).reshape(3, 2, -1)
    assert (as_batch(stacked, replace(observations, shape=rows.shape[1:]), "it", 2)[0] == rows).all()
    assert [int(agent.predict(pair)) for pair in pairs] == agent.predict(stacked).tolist()


GOOD = {"angles": np.zeros((2, 2)), "gripper": 1, "wheels": ([0, 0], [0, 1]), "eye": [0, 255]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"griper": 1, "gripper": None},
            "an observation of it lacks 'gripper' and has 'griper', which the environment does not have\n  hint: did you mean 'gripper'?",
        ),
        ({"eye": None}, "an observation of it lacks 'eye'\n  hint: its keys are 'angles', "),
        (
            {"angles": np.zeros(3)},
            "observation['angles'] of it has the shape (2, 2), but this one has (3,)\n  hint: give one of shape (2, 2), or a batch ('B', 2, 2)",
        ),
        ({"angles": np.zeros((4, 2, 2))}, "'] of it is one, but observation['angles'] of it is a batch of 4"),
        ({"angles": [["a", "b"], ["c", "d"]]}, "observation['angles'] of it must be numbers, not [['a', 'b'], ['c', 'd']]"),
        ({"angles": [[1.0, 2.0], [3.0]]}, "observation['angles'] of it must be numbers, not [[1.0, 2.0], [3.0]]"),
        ({"angles": np.full((2, 2), np.inf)}, "observation['angles'] of it must be finite in float32"),
        ({"gripper": 4}, "observation['gripper'] of it is 4, which is not in Discrete(3, start=1)"),
        ({"gripper": 1.0}, "observation['gripper'] of it is 1.0, which is not in Discrete(3, start=1); its dtype is float64, but choices are whole numbers"),
        ({"wheels": [0, 0]}, "observation['wheels'][0] of it has the shape (2,), but this one has ()"),
        ({"wheels": ([0, 0],)}, "observation['wheels'] of it is a tuple of 2 parts, not a tuple of 1"),
        ({"wheels": 3}, "observation['wheels'] of it is a tuple of 2 parts, not a int"),
        ({"wheels": ([0, 3], [0, 1])}, "observation['wheels'][0] of it is array([0, 3]), which is not in MultiDiscrete([2 3])"),
        ({"eye": [0, 256]}, "observation['eye'] of it must be whole numbers from 0 to 255, not [0, 256]\n  hint: its dtype is uint8"),
        ({"eye": [0, 0.5]}, "observation['eye'] of it must be whole numbers from 0 to 255, not [0, 0.5]"),
        ({"eye": np.zeros((0, 2))}, "observation['eye'] of it is a batch of 0, but observation['angles'] of it is one"),
    ],
)  # fmt: skip
def test_wrong_parts_are_named(change: dict[str, Any], message: str) -> None:
    observations = observations_of(ARM, "it")
    as_batch(GOOD, observations, "it")
    value = {key: part for key, part in (GOOD | change).items() if part is not None}
    with pytest.raises(RLError) as error:
        as_batch(value, observations, "it")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("value", "space", "message"),
    [
        ((0.5,), PAIR, "an observation of it is a tuple of 2 parts, not a tuple of 1"),
        ((0.5, 4), PAIR, "observation[1] of it is 4, which is not in Discrete(4)"),
        ({"a": 1}, PAIR, "an observation of it is a tuple of 2 parts, not a dict"),
        (np.zeros(4), spaces.Box(0, 1, (5,)), "an observation of it has the shape (5,), but this one has (4,)\n  hint: give one observation (5,)"),
        (5, spaces.Discrete(5), "an observation of it is 5, which is not in Discrete(5)"),
        (np.zeros((0, 5)), spaces.Box(0, 1, (5,)), "an observation of it is missing: the batch is empty"),
        ([300, 0, 0, 0, 0], spaces.Box(0, 255, (5,), np.uint8), "must be whole numbers from 0 to 255"),
    ],
)  # fmt: skip
def test_wrong_observations_are_named(value: Any, space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(RLError) as error:
        as_batch(value, observations_of(space, "it"), "it")
    assert message in str(error.value)
