"""Functional environments: the time limit, true re-sampling after an end, and the same physics as Gymnasium's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_rl.env import make_vector, vector_environment
from tempo_rl.env.classic import CartPole
from tempo_rl.env.functional_env import SingleEnvironment, make_single, single_of
from tempo_rl.env.registry import is_functional
from tempo_rl.env.source import source_of
from tempo_rl.errors import EnvError
from tempo_rl.recipe import make_recipe
from tests.cases import needs

needs("flax")  # Gymnasium's functional environments need it


def key(number: int) -> Any:
    return jnp.array([0, number], jnp.uint32)


def play(env: SingleEnvironment, count: int, action: Any) -> list[Any]:
    state, _ = env.initial(key(0))
    step = jax.jit(env.step)
    steps = []
    for t in range(count):
        state, *parts = step(state, action, key(t + 1))
        steps.append([np.asarray(part) for part in parts])
    return steps


def test_termination_ends_the_episode_and_samples_a_new_one() -> None:
    env = make_single("phys2d/CartPole-v1")
    steps = play(env, 60, jnp.int32(1))
    ends = [k for k, (_, _, terminated, *_) in enumerate(steps) if terminated]
    assert len(ends) >= 2  # pushing to one side falls over within about ten steps
    for k in ends:
        observation, reward, _, truncated, final, episode_return, length = steps[k]
        assert reward == 1.0 and not truncated
        assert abs(final[2]) > 12 * 2 * np.pi / 360 or abs(final[0]) > 2.4  # the true successor is the fallen pole
        assert np.abs(observation).max() <= 0.05  # the observation for the next action is a new start
        assert episode_return == length
    assert len({tuple(steps[k][0]) for k in ends}) == len(ends)  # no start is used twice
    assert steps[ends[0]][6] == ends[0] + 1 and steps[ends[1]][6] == ends[1] - ends[0]


def test_the_time_limit_truncates_and_does_not_terminate() -> None:
    env = make_single("phys2d/Pendulum-v0", max_episode_steps=3)
    steps = play(env, 7, jnp.zeros((1,)))
    assert [bool(s[3]) for s in steps] == [False, False, True, False, False, True, False]
    assert not any(s[2] for s in steps)
    assert [int(s[6]) for s in steps] == [1, 2, 3, 1, 2, 3, 1]
    assert not np.array_equal(steps[2][0], steps[2][4])  # the next episode's start is not the end of this one
    np.testing.assert_array_equal(steps[1][0], steps[1][4])
    np.testing.assert_allclose(steps[2][5], sum(s[1] for s in steps[:3]), rtol=1e-6)


def test_physics_are_gymnasiums() -> None:
    env = make_single("phys2d/CartPole-v1")
    state = jnp.array([0.01, -0.02, 0.03, 0.04, 0.0, 0.0], jnp.float32)
    expected = env.function.transition(state[:4], 1)
    np.testing.assert_allclose(env.step(state, jnp.int32(1), key(0))[1], expected, rtol=1e-6)


def test_parameters_reach_the_environment() -> None:
    state = jnp.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0], jnp.float32)
    heavy = make_single("phys2d/CartPole-v1", gravity=20.0).step(state, jnp.int32(1), key(0))[1]
    light = make_single("phys2d/CartPole-v1").step(state, jnp.int32(1), key(0))[1]
    assert not np.allclose(heavy, light)
    with pytest.raises(EnvError, match=r"does not take \{'gravityy': 1\}"):
        make_single("phys2d/CartPole-v1", gravityy=1)


def test_batches_are_as_many_single_environments() -> None:
    vector = make_vector("phys2d/CartPole-v1", 4, seed=2)
    first = vector.reset()
    step = vector.step(np.array([0, 1, 0, 1], np.int32))
    assert first.shape == (4, 4) and step.observation.shape == (4, 4) and step.reward.shape == (4,)
    assert len({tuple(row) for row in first}) == 4
    np.testing.assert_array_equal(first, make_vector("phys2d/CartPole-v1", 4, seed=2).reset())


@pytest.mark.parametrize(
    ("env_id", "functional"),
    [
        ("phys2d/CartPole-v1", True),
        ("CartPole-v1", False),
        ("brax/ant", True),
        ("my_module:Env-v0", False),
        ("ALE/Pong-v5", False),
    ],
)
def test_ids(env_id: str, functional: bool) -> None:
    assert is_functional(env_id) is functional


def test_own_environments_need_a_time_limit_and_must_exist() -> None:
    with pytest.raises(EnvError, match=r"has no time limit"):
        make_single("gymnasium.envs.phys2d.cartpole:CartPoleFunctional")
    with pytest.raises(EnvError, match="cannot be imported"):
        make_single("no.such:Env", max_episode_steps=3)
    single = make_single("gymnasium.envs.phys2d.cartpole:CartPoleFunctional", max_episode_steps=7)
    assert single.max_episode_steps == 7


@pytest.mark.parametrize("limit", [0, -3])
def test_a_time_limit_without_a_step_is_refused(limit: int) -> None:
    with pytest.raises(EnvError, match=f"has max_episode_steps={limit}: an episode has at least 1 step"):
        make_single("phys2d/CartPole-v1", max_episode_steps=limit)


def test_trivial_is_its_formula() -> None:
    env = make_single("Trivial", max_episode_steps=3, observation_shape=[2, 60], actions=2)
    assert env.observations.shape == (2, 60) and env.actions.shape == (2,)
    state, observation = env.initial(key(4))
    s = float(state[0])
    assert -1.0 < s < 1.0 and s != 0.0
    for t, (action, push) in enumerate([([0.5, -7.0], -0.25), ([9.0, 9.0], 1.0), ([-1.0, -1.0], -1.0)]):
        j = np.arange(120)
        phase = s * (3 + 0.37 * (j % 97)) + 0.013 * (j % 101)
        np.testing.assert_allclose(observation, (2 * (phase - np.floor(phase)) - 1).reshape(2, 60), atol=2e-5)
        state, observation, reward, terminated, truncated, final, _, _ = env.step(state, jnp.array(action), key(t))
        s = min(1.0, max(-1.0, s + 0.05 * push))
        np.testing.assert_allclose(reward, -abs(s), rtol=1e-6)
        assert not terminated and bool(truncated) == (t == 2)
        observation = final
    assert float(state[0]) != pytest.approx(s), "the next episode begins anew"


def test_pictures_of_trivial_are_bytes() -> None:
    env, pictures = (make_single("Trivial", max_episode_steps=3, observation_shape=[3, 4], pictures=p) for p in (False, True))
    (_, numbers), (_, bytes) = env.initial(key(4)), pictures.initial(key(4))
    assert pictures.observations.dtype == "uint8" and bytes.dtype == jnp.uint8 and len(np.unique(bytes)) > 6
    np.testing.assert_allclose(np.asarray(bytes) / 128.0 - 1.0, numbers, atol=1 / 128 + 1e-5)


def test_the_episodes_of_trivial_are_as_long_as_a_rollout() -> None:
    recipe = make_recipe({"algorithm": "ppo", "env": {"id": "Trivial"}, "num_steps": 5, "num_envs": 2, "num_minibatches": 1})
    env: Any = vector_environment(recipe, 2)
    env.reset()
    ends = [env.step(np.zeros((2, 4), np.float32)).truncated.all() for _ in range(10)]
    assert np.flatnonzero(ends).tolist() == [4, 9]


class Wrong(CartPole):
    """An environment with one mistake, which `mistake` names."""

    max_episode_steps = 9

    def __init__(self, mistake: str):
        super().__init__()
        self.mistake = mistake

    def transition(self, state: Any, action: Any, rng: Any, params: None = None) -> Any:
        following = super().transition(state, action, rng)
        return following[:3] if self.mistake == "state" else following

    def observation(self, state: Any, rng: Any, params: None = None) -> Any:
        return state[:2] if self.mistake == "observation" else state

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: None = None) -> Any:
        return state if self.mistake == "reward" else jnp.ones(())

    def terminal(self, state: Any, rng: Any, params: None = None) -> Any:
        return (state, state) if self.mistake == "terminal" else super().terminal(state, rng)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("state", r"Wrong\.transition\(\) gives a state of shape \(3,\), but initial\(\) gives one of shape \(4,\)"),
        ("observation", r"Wrong\.observation\(\) gives an array \(2,\), but its observation_space has the shape \(4,\)"),
        ("reward", r"Wrong\.reward\(\) gives an array \(4,\), not one number"),
        ("terminal", r"Wrong\.terminal\(\) gives tuple, not one array"),
    ],
)
def test_environments_in_jax_are_checked_before_they_are_used(mistake: str, message: str) -> None:
    source = source_of(Wrong(mistake))
    assert source is not None
    with pytest.raises(EnvError, match=message):
        single_of(source)
