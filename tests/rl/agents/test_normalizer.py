"""Running statistics as recurrent state, the limit of the divergence, and the distributions and spaces of several choices, against NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tempo_core as tp
import tempo_rl
from tempo_rl import A2C, PPO
from tempo_rl.agents.base import learned_from
from tempo_rl.agents.ppo import going_on
from tempo_rl.distributions import MultiCategorical
from tempo_rl.env import vector_environment
from tempo_rl.env.spaces import Continuous, MultiDiscrete, actions_of, squashed
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import vectorized
from tempo_rl.errors import EnvError
from tempo_rl.normalizer import Normalizer
from tempo_rl.recipe import make_recipe
from tests.rl.scripted import Scripted

INTERPRETED = tp.Config(backend="numpy")


def test_statistics_are_those_of_all_samples_before() -> None:
    samples = np.random.default_rng(0).normal(3.0, 2.0, (4, 2, 5, 3)).astype(np.float32)  # (i, b, t, width)
    ctx = tp.Context("i", "b", "t")
    with ctx as ((i, I), (b, B), (t, T)):
        x = tp.input("x", (3,), domain=(i, b, t))
        normalizer = Normalizer.build("x", (3,), (i,))
        outputs = {"y": normalizer(x), "scaled": normalizer.scaled(x), **normalizer.values()}
        normalizer.follow(x[i, 0:B, 0:T])
    results = ctx.run({I: 4, B: 2, T: 5}, outputs, {"x": samples}, config=INTERPRETED)
    np.testing.assert_array_equal(results["x.mean"][0], np.zeros(3))
    np.testing.assert_array_equal(results["x.variance"][0], np.ones(3))
    for at in range(1, 4):
        before = samples[:at].reshape(-1, 3)
        np.testing.assert_allclose(results["x.mean"][at], before.mean(0), rtol=1e-3)
        np.testing.assert_allclose(results["x.variance"][at], before.var(0), rtol=1e-3)
        expected = (samples[at] - results["x.mean"][at]) / np.sqrt(results["x.variance"][at])
        np.testing.assert_allclose(results["y"][at], expected.clip(-10, 10), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(results["scaled"][at], samples[at] / np.sqrt(results["x.variance"][at]), rtol=1e-4)


def test_normalised_numbers_are_clipped() -> None:
    ctx = tp.Context()
    with ctx:
        normalizer = Normalizer.build("x", (), (), fed=True)
        y = normalizer(tp.input("x", (2,)))
    inputs = {"x": np.array([1e9, -1e9]), "x.mean": np.float32(1), "x.variance": np.float32(4)}
    assert ctx.run({}, [y], inputs, config=INTERPRETED)[0].tolist() == [10.0, -10.0]


def test_an_iteration_goes_on_until_the_divergence_is_too_large() -> None:
    kl = np.array([[[0.1, 0.2], [0.4, 0.1]], [[0.1, 0.1], [0.1, 0.31]]], np.float32)
    ctx = tp.Context("i", "e", "m")
    with ctx as ((i, I), (e, E), (m, M)):
        rate = going_on(tp.input("kl", domain=(i, e, m)), 0.2, (i, e, m))
    result = ctx.run({I: 2, E: 2, M: 2}, [rate], {"kl": kl}, config=INTERPRETED)[0]
    assert result.tolist() == [[[1, 1], [0, 0]], [[1, 1], [1, 0]]]


class Scales(Scripted):
    """Observations around 1000, and rewards in the hundreds."""

    def _observation(self) -> np.ndarray:
        return np.array([1000.0 + self.count, -3.0 * self.count], np.float32)

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 100.0 * self.count, terminated, truncated, info


KEYS: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [3], "eval_episodes": 0, "executor": "interpreted"}


def scales() -> Scales:
    return Scales([("terminated", 4)])


def test_a_policy_holds_the_statistics_and_evaluation_uses_them(tmp_path: Any) -> None:
    agent = A2C(scales, **KEYS, norm_obs=True, norm_reward=True).train(tmp_path / "run")
    assert agent.parameters is not None and agent.result is not None
    counts = np.array([0, 1, 2, 3] * 6)  # the observations before each of 24 steps
    np.testing.assert_allclose(agent.parameters["observation.mean"], [1000 + counts.mean(), -3 * counts.mean()], rtol=1e-4)
    np.testing.assert_allclose(agent.parameters["observation.variance"][1], (3 * counts).var(), rtol=1e-2)
    again = A2C.load(agent.save(tmp_path / "policy.safetensors"), scales)
    before = again.predict(np.array([1001.0, -3.0]), deterministic=False, seed=1)
    assert before == agent.predict(np.array([1001.0, -3.0]), deterministic=False, seed=1)
    logits = []
    decided = {**agent.parameters, "policy.1.weight": agent.parameters["policy.1.weight"] * np.float32(1000)}
    for shift in (0.0, 900.0):
        again.parameters = {**decided, "observation.mean": agent.parameters["observation.mean"] + np.float32(shift)}
        again._policy = None
        logits.append([int(again.predict(np.array([1001.0, -3.0]), deterministic=False, seed=k)) for k in range(40)])
    assert logits[0] != logits[1], "the statistics matter"


def test_rewards_are_scaled_by_the_deviation_of_discounted_returns() -> None:
    rng = np.random.default_rng(2)
    inputs = {"reward": rng.normal(5.0, 20.0, (2, 3, 4)).astype(np.float32)}  # (b, i, t)
    inputs |= {name: rng.random((2, 3, 4)) < 0.2 for name in ("terminated", "truncated")}
    recipe = make_recipe({"algorithm": "ppo", "norm_reward": True, "gamma": 0.5})
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        x = {name: tp.input(name, dtype=str(array.dtype), domain=(b, i, t)) for name, array in inputs.items()}
        step = Transition(x["reward"], x["reward"], x["terminated"], x["truncated"], x["reward"], x["reward"], x["reward"])
        scaled = learned_from(recipe, step, (b, i, t), (b,), (slice(0, B), i, slice(0, T))).reward
    result = ctx.run({B: 2, I: 3, T: 4}, scaled, inputs, config=INTERPRETED)
    returns, running = np.zeros((2, 12)), np.zeros(2)
    flat = {name: array.reshape(2, 12) for name, array in inputs.items()}
    for k in range(12):
        returns[:, k] = running = running * 0.5 + flat["reward"][:, k]
        running = np.where(flat["terminated"][:, k] | flat["truncated"][:, k], 0.0, running)
    for at in range(3):
        deviation = returns[:, : 4 * at].std() if at else 1.0
        np.testing.assert_allclose(result[:, at], (inputs["reward"][:, at] / deviation).clip(-10, 10), rtol=2e-3)


@pytest.mark.slow
def test_ppo_stops_an_iteration_where_the_divergence_is_too_large() -> None:
    keys = KEYS | {"num_minibatches": 2, "update_epochs": 2, "learning_rate": 0.05, "hidden": [8]}
    moved = {}
    for target in (None, 1e-9):
        agent = PPO(scales, **keys, target_kl=target, norm_obs=True).train()
        assert agent.parameters is not None
        moved[target] = np.abs(agent.parameters["policy.1.bias"]).max()
    assert 0 < moved[1e-9] < moved[None]


# -- spaces and distributions -----------------------------------------------------------------------------------------


def test_several_choices_are_independent_ones() -> None:
    logits = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    ctx = tp.Context()
    with ctx:
        policy = MultiCategorical(tp.input("logits", (4, 5)), (2, 3))
        action = policy.sample()
        outputs = {"action": action, "mode": policy.mode(), "log_prob": policy.log_prob(action), "entropy": policy.entropy()}
    r = ctx.run({}, outputs, {"logits": logits}, config=INTERPRETED)
    parts = [np.log(np.exp(x) / np.exp(x).sum(-1, keepdims=True)) for x in (logits[:, :2], logits[:, 2:])]
    assert r["action"].shape == (4, 2) and r["mode"].tolist() == np.stack([p.argmax(-1) for p in parts], -1).tolist()
    expected = sum(np.take_along_axis(p, r["action"][:, k : k + 1], -1)[:, 0] for k, p in enumerate(parts))
    np.testing.assert_allclose(r["log_prob"], expected, rtol=1e-5)
    np.testing.assert_allclose(r["entropy"], sum(-(np.exp(p) * p).sum(-1) for p in parts), rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "action", "outward"),
    [
        (gym.spaces.MultiDiscrete([2, 3], start=[1, -1]), [1, 2], [2, 1]),
        (gym.spaces.MultiDiscrete([[2, 3]]), [1, 2], [[1, 2]]),
        (gym.spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (gym.spaces.MultiBinary((2, 1)), [1, 0], [[1], [0]]),
        (gym.spaces.Box(-1.0, 2.0, (2, 1), np.float32), [-5.0, 5.0], [[-1.0], [2.0]]),
        (gym.spaces.Box(-1.0, 2.0, (), np.float32), [5.0], 2.0),
    ],
    ids=str,
)
def test_actions_reach_the_environment_in_its_shape(space: Any, action: list[float], outward: Any) -> None:
    actions = actions_of(space, "env")
    one = np.array(action, actions.dtype)
    assert one.shape == actions.shape
    assert actions.outward(one).tolist() == outward
    assert actions.outward(np.stack([one, one])).tolist() == [outward, outward]
    assert space.contains(actions.outward(one).astype(space.dtype))


def test_squashed_actions_are_between_their_bounds() -> None:
    actions = squashed(Continuous((2,), (-1.0, 0.0), (1.0, 4.0)), "env")
    np.testing.assert_allclose(actions.outward(np.array([0.0, 0.5], np.float32)), [0.0, 2 + 2 * np.tanh(0.5)], rtol=1e-6)
    np.testing.assert_allclose(actions.outward(np.array([99.0, -99.0], np.float32)), [1.0, 0.0], atol=1e-6)
    with pytest.raises(EnvError, match="needs finite bounds"):
        squashed(dataclasses.replace(actions, high=(1.0, np.inf)), "env")
    with pytest.raises(EnvError, match="those of env are choices"):
        squashed(MultiDiscrete((2,), (0,), (1,)), "env")
    agent = A2C("Pendulum-v1", **KEYS, squash_actions=True)
    host: Any = vector_environment(agent.recipe, 1)
    assert host.actions.outward(np.array([[0.5]], np.float32)).tolist() == [[pytest.approx(2 * np.tanh(0.5))]]


OBSERVATIONS = {
    "discrete": (gym.spaces.Discrete(3, start=1), lambda count: 1 + count % 3, lambda count: [count % 3]),
    "dict": (
        gym.spaces.Dict({"a": gym.spaces.Box(-9, 9, (2, 2), np.float32), "b": gym.spaces.Discrete(2)}),
        lambda count: {"a": np.full((2, 2), count, np.float32), "b": count % 2},
        lambda count: [count] * 4 + [count % 2],
    ),
    "tuple": (
        gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.Box(-9, 9, (1,), np.float32)]),
        lambda count: (np.array([1, 0], np.int8), np.array([count], np.float32)),
        lambda count: [1, 0, count],
    ),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_of_other_spaces_are_flattened(name: str) -> None:
    space, value, flat = OBSERVATIONS[name]

    class Other(Scripted):
        def __init__(self) -> None:
            super().__init__([("terminated", 2)])
            self.observation_space = space

        def _observation(self) -> Any:
            return value(self.count)

    env = vectorized(Other, "other", 2)
    assert env.reset().tolist() == [list(flat(0))] * 2
    step = env.step(np.zeros(2, np.int32))
    step = env.step(np.zeros(2, np.int32))
    assert step.final_observation.tolist() == [list(flat(2))] * 2 and step.observation.tolist() == [list(flat(0))] * 2
    assert env.observations.dtype in ("float32", "int32", "int64", "int8")


class Choices(Scripted):
    """Three choices; the reward counts those that are right."""

    def __init__(self) -> None:
        super().__init__([("truncated", 4)])
        self.action_space = gym.spaces.MultiDiscrete([2, 3, 2])  # type: ignore[assignment]

    def _observation(self) -> np.ndarray:
        return np.array([1.0, self.count / 4], np.float32)

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float((np.asarray(action) == [1, 2, 0]).sum()), terminated, truncated, info


@pytest.mark.slow
def test_an_agent_learns_several_choices() -> None:
    keys = KEYS | {
        "num_envs": 8,
        "num_steps": 8,
        "total_timesteps": 64 * 40,
        "learning_rate": 0.05,
        "executor": "staged",
        "gamma": 0.5,
    }
    agent = tempo_rl.A2C(Choices, **keys, anneal_lr=False).train()
    assert agent.predict([1.0, 0.5]).tolist() == [1, 2, 0]
