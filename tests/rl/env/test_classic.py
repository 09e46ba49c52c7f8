"""Classic control in JAX against Gymnasium's: single transitions from Gymnasium's own states, and learning's first step with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_rl.env.functional_env import SingleEnvironment, make_single
from tempo_rl.env.registry import FUNCTIONAL

COUNT = 2000  # transitions of each environment in a fast run
IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0"]
# how far a state is from the threshold at which an episode terminates
DISTANCE: dict[str, Callable[[np.ndarray], float]] = {
    "CartPole-v1": lambda s: min(abs(abs(s[0]) - 2.4), abs(abs(s[2]) - 24 * math.pi / 360)),
    "Pendulum-v1": lambda s: 1.0,
    "Acrobot-v1": lambda s: abs(-math.cos(s[0]) - math.cos(s[0] + s[1]) - 1.0),
    "MountainCarContinuous-v0": lambda s: min(abs(s[0] - 0.45), abs(s[1])),
}


def transitions(env_id: str, count: int) -> dict[str, np.ndarray]:
    """Single transitions of Gymnasium's environment, on the way of random actions that are kept for some steps."""
    env: Any = gym.make(env_id)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    env.action_space.seed(0)
    rows: dict[str, list[Any]] = {name: [] for name in ("state", "action", "observation", "reward", "terminated", "after")}
    action = env.action_space.sample()
    while len(rows["state"]) < count:
        action = env.action_space.sample() if rng.random() < 0.2 else action
        rows["state"].append(np.array(env.unwrapped.state, np.float64))
        observation, reward, terminated, truncated, _ = env.step(action)
        after = np.array(env.unwrapped.state, np.float64)
        for name, value in (
            ("action", action),
            ("observation", observation),
            ("reward", reward),
            ("terminated", terminated),
            ("after", after),
        ):
            rows[name].append(np.array(value))
        if terminated or truncated:
            env.reset()
    return {name: np.stack(values) for name, values in rows.items()}


def wrapped(env_id: str, states: np.ndarray) -> np.ndarray:
    """Gymnasium's pendulum turns on and on: its angle, in float64, between -π and π."""
    if env_id == "Pendulum-v1":
        states = states.copy()
        states[:, 0] = (states[:, 0] + np.pi) % (2 * np.pi) - np.pi
    return states


def stepped(env: SingleEnvironment, states: np.ndarray, actions: np.ndarray) -> list[np.ndarray]:
    packed = np.concatenate([states, np.zeros((len(states), 2))], 1).astype(np.float32)
    keys = jnp.zeros((len(states), 2), jnp.uint32)
    return [np.asarray(part) for part in jax.jit(jax.vmap(env.step))(packed, actions, keys)]


@pytest.mark.parametrize("count", [COUNT, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("env_id", IDS)
def test_transitions_are_gymnasiums(env_id: str, count: int) -> None:
    rows, env = transitions(env_id, count), make_single(f"jax/{env_id}")
    actions = rows["action"].astype(np.float32 if rows["action"].ndim > 1 else np.int32)
    _, _, reward, terminated, truncated, final, _, _ = stepped(env, wrapped(env_id, rows["state"]), actions)
    np.testing.assert_allclose(final, rows["observation"], rtol=1e-5, atol=1e-5)
    near = np.array([DISTANCE[env_id](state) <= 1e-5 for state in rows["after"]])
    np.testing.assert_array_equal(terminated[~near], rows["terminated"][~near])
    np.testing.assert_allclose(reward[~near], rows["reward"][~near], rtol=1e-5, atol=1e-5)
    assert not truncated.any() and near.mean() < 0.01
    if env_id in ("CartPole-v1", "Acrobot-v1"):
        assert terminated.any()


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_and_time_limits_are_gymnasiums(env_id: str) -> None:
    ours, theirs = make_single(f"jax/{env_id}"), gym.make(env_id)
    space = ours.function.observation_space
    assert ours.function.action_space == theirs.action_space and space.shape == theirs.observation_space.shape
    assert theirs.spec is not None and ours.max_episode_steps == theirs.spec.max_episode_steps
    np.testing.assert_allclose(space.high, theirs.observation_space.high, rtol=1e-6)  # type: ignore[attr-defined]
    np.testing.assert_allclose(space.low, theirs.observation_space.low, rtol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", IDS)
def test_first_states_are_distributed_as_gymnasiums(env_id: str) -> None:
    env, other = make_single(f"jax/{env_id}"), gym.make(env_id)
    keys = jax.random.bits(jax.random.key(0), (500, 2), "uint32")
    ours = np.asarray(jax.vmap(env.initial)(keys)[1])
    theirs = np.stack([other.reset(seed=seed)[0] for seed in range(500)])
    for ends in (np.min, np.max):
        np.testing.assert_allclose(ends(ours, axis=0), ends(theirs, axis=0), rtol=0.05, atol=0.01)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.15)


def test_a_car_that_stands_at_the_wall_or_on_the_hill() -> None:
    env = make_single("jax/MountainCarContinuous-v0")
    states = np.array([[-1.19, -0.06], [0.44, 0.05], [0.59, 0.07]])
    _, _, reward, terminated, _, final, _, _ = stepped(env, states, np.array([[-1.0], [0.5], [1.0]], np.float32))
    np.testing.assert_allclose(final[0], [-1.2, 0.0], atol=1e-6)
    assert terminated.tolist() == [False, True, True]
    np.testing.assert_allclose(reward, [-0.1, 100 - 0.025, 99.9], rtol=1e-6)
    np.testing.assert_allclose(final[2, 0], 0.6, rtol=1e-6)


def test_all_ids_are_tested() -> None:
    assert {
        name.removeprefix("jax/") for name, (place, _) in FUNCTIONAL.items() if place.startswith("tempo_rl.env.classic:")
    } == set(IDS)


def test_a_step_without_a_new_episode_is_the_same_up_to_the_end() -> None:
    """`advance` goes on from the last state of an episode, where `step` begins another one."""
    env = make_single("jax/Pendulum-v1", max_episode_steps=3)
    keys = np.random.default_rng(0).integers(0, 2**32, (4, 2), np.uint32)
    state, _ = env.initial(keys[0])
    other = state
    for number, key in enumerate(keys[1:], 1):
        action = jnp.asarray([0.3 * number], jnp.float32)
        state, observation, *parts = env.step(state, action, key)
        other, last, *others = env.advance(other, action, key)
        for ours, theirs in zip(others, parts, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(last, parts[3])  # the final observation
        if number < 3:
            np.testing.assert_array_equal(other, state)
            np.testing.assert_array_equal(last, observation)
    assert bool(parts[2]) and float(state[-2]) == 0.0 and float(other[-2]) == 3.0, "truncated: new steps are counted from 0"
    assert not np.allclose(last, observation)
