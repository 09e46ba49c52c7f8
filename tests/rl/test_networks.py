"""Policies that see pictures, several frames, or that remember: what they compute, and what they are played with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
import tempo_rl
from tempo_rl.env import make_environment, vector_environment
from tempo_rl.env.functional_env import make_single
from tempo_rl.env.spaces import Discrete, Observations
from tempo_rl.env.vector import env_seeds
from tempo_rl.errors import EnvError, RecipeError
from tempo_rl.evaluate import Policy
from tempo_rl.models import build_model
from tempo_rl.recipe import Recipe, make_recipe
from tests.rl.scripted import ID

ENV = {"id": ID, "kwargs": {"ends": [["terminated", 2], ["truncated", 3]]}}
SMALL: dict[str, Any] = {
    "algorithm": "ppo",
    "env": ENV,
    "num_envs": 1,
    "num_steps": 6,
    "num_minibatches": 1,
    "total_timesteps": 12,
}
KEYS = np.arange(8, dtype=np.uint32).reshape(4, 2)


# -- pictures ---------------------------------------------------------------------------------------------------------


def picture(state: Any, size: int = 5) -> np.ndarray:
    row, column, _, paddle, _ = (int(v) for v in state[:5])
    image = np.zeros((size, size, 1), np.uint8)
    image[row, column] = 255
    image[size - 1, max(0, paddle - 1) : paddle + 2] = 255
    return image


def test_catch_is_its_rules() -> None:
    """A ball is caught, the next one bounces off the left side and is missed: rewards, pictures and the end by hand."""
    env = make_single("jax/Catch-v0", size=5, balls=2)
    state = jnp.array([0.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0])  # row, column, drift, paddle, balls before; steps, return
    columns, paddles, rewards = [2, 3, 4, 3], [3, 3, 3, 3], [0, 0, 0, 1]
    for t, action in enumerate([2, 1, 2, 1]):
        state, observation, reward, terminated, truncated, final, _, _ = env.step(state, jnp.int32(action), KEYS[0])
        assert (float(reward), bool(terminated), bool(truncated)) == (rewards[t], False, False)
        assert [int(state[k]) for k in (0, 1, 3)] == [t + 1, columns[t], paddles[t]]
        np.testing.assert_array_equal(final, picture(state))
        assert observation.dtype == jnp.uint8
    state, _, reward, terminated, *_ = env.step(state, jnp.int32(0), KEYS[1])
    assert (float(reward), bool(terminated), int(state[0]), int(state[4]), int(state[3])) == (0.0, False, 0, 1, 2)
    assert 0 <= int(state[1]) < 5 and int(state[2]) in (-1, 0, 1)
    state = state.at[jnp.array([1, 2])].set(jnp.array([0.0, -1.0]))
    for t, (action, column) in enumerate([(2, 1), (2, 2), (2, 3), (0, 4)]):
        last = env.step(state, jnp.int32(action), KEYS[2])
        state, reward, terminated = last[0], last[2], last[3]
        if t < 3:
            assert (float(reward), bool(terminated), int(state[1])) == (0.0, False, column)
    assert (float(reward), bool(terminated), float(last[6]), int(last[7])) == (-1.0, True, 0.0, 9)
    assert int(state[0]) == 0 and int(state[4]) == 0  # the next episode


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (2, 6, 5, 3)])
def test_convolutions_are_those_of_jax(shape: tuple[int, ...]) -> None:
    recipe = make_recipe(SMALL | {"network": "cnn", "convolutions": [[4, 3, 2], [2, 2, 1]], "hidden": [3], "activation": "relu"})
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (7, *shape), np.uint8)
    ctx = tp.Context()
    with ctx:
        model = build_model(recipe, Observations(shape, "uint8"), Discrete(2), fed=True)
        value = model.value(tp.input("x", x.shape, "uint8"))
        shapes = {name: tuple(map(int, w.shape)) for name, w in model.parameters().items()}
    weights = {name: random.normal(size=size).astype("float32") for name, size in shapes.items()}
    assert {name.split(".")[0] for name in weights} == {"convolution", "trunk", "policy", "value"}
    result = ctx.run({}, value, {"x": x, **weights})
    h = np.moveaxis(x, 1, 3).reshape(7, 6, 5, 6) if len(shape) == 4 else x.reshape(7, 6, 5, -1)
    h = h.astype(np.float32) / np.float32(255)
    for k, stride in enumerate((2, 1)):
        w, bias = weights[f"convolution.{k}.weight"], weights[f"convolution.{k}.bias"]
        h = jax.lax.conv_general_dilated(h, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        h = np.maximum(np.asarray(h) + bias, 0)
    h = np.maximum(h.reshape(7, -1) @ weights["trunk.0.weight"] + weights["trunk.0.bias"], 0)
    np.testing.assert_allclose(result, (h @ weights["value.0.weight"] + weights["value.0.bias"])[:, 0], rtol=2e-4)


def test_convolutions_need_pictures() -> None:
    with pytest.raises(EnvError, match=r"network=cnn takes images .* not observations \(2,\)\n.*network=mlp"):
        make_agent(make_recipe(SMALL | {"network": "cnn"}))


def make_agent(recipe: Recipe) -> Any:
    with tp.Context("b", "i") as ((b, _), (i, _)):
        env = make_environment(recipe, batch=(b, i))
        return build_model(recipe, env.observations, env.actions, domain=(i,))


# -- frames -----------------------------------------------------------------------------------------------------------

# The first component of an observation is the episode, the second one the step: episodes of 2 and 3 steps.
STACKS = [
    ([[0, 0], [0, 0], [0, 1]], None),  # after one step
    ([[1, 0], [1, 0], [1, 0]], [[0, 0], [0, 1], [0, 2]]),  # the episode ended: its own frames are in the final observation
    ([[1, 0], [1, 0], [1, 1]], None),
    ([[1, 0], [1, 1], [1, 2]], None),
    ([[2, 0], [2, 0], [2, 0]], [[1, 1], [1, 2], [1, 3]]),
]


def test_frames_are_of_one_episode_on_the_host() -> None:
    env = vector_environment(make_recipe(SMALL | {"frames": 3}), 2)
    np.testing.assert_array_equal(env.reset(), np.zeros((2, 3, 2)))
    for stack, final in STACKS:
        step = env.step(np.zeros(2, np.int32))
        np.testing.assert_array_equal(step.observation, [stack, stack])
        np.testing.assert_array_equal(step.final_observation, [final or stack] * 2)
    assert len(env_seeds(0, 2)) == 2 and env.observations == Observations((3, 2), "float32")


@pytest.mark.parametrize("rollout", [2, 5])
def test_frames_are_of_one_episode_in_a_program(rollout: int) -> None:
    """Also where an episode goes on from one iteration to the next."""
    recipe = make_recipe(SMALL | {"frames": 3, "num_steps": rollout, "total_timesteps": 2 * rollout})
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        env = make_environment(recipe, batch=(b, B))
        first = env.reset(domain=(b,))
        obs = tp.recurrence(env.observations.shape, domain=(b, i, t), name="obs")
        step = env.step((obs.sum((0, 1)) * 0.0).astype("int32"))
        tp.carry(obs, first, step.observation, kept=(b,))
    results = ctx.run({B: 1, I: -(-5 // rollout), T: rollout}, [step.observation, step.final_observation])
    observation, final = (np.asarray(x).reshape(-1, 3, 2) for x in results)
    for k, (stack, last) in enumerate(STACKS):
        np.testing.assert_array_equal(observation[k], stack)
        np.testing.assert_array_equal(final[k], last or stack)


# -- memory -----------------------------------------------------------------------------------------------------------


def drawn(model: Any) -> dict[str, np.ndarray]:
    """Numbers for the parameters of a model, with which actions vary."""
    random = np.random.default_rng(2)
    shapes = {name: tuple(map(int, w.shape)) for name, w in model.parameters().items()}
    weights = {name: 2 * random.normal(size=size).astype("float32") for name, size in shapes.items()}
    return weights | {"policy.0.bias": np.zeros_like(weights["policy.0.bias"])}


@pytest.mark.parametrize("network", ["gru", "lstm"])
def test_a_policy_remembers_its_episode(network: str) -> None:
    recipe = make_recipe(SMALL | {"network": network, "hidden": [5]})
    spaces = Observations((2,), "float32"), Discrete(3)
    with tp.Context("i") as ((i, _),):
        model = build_model(recipe, *spaces, domain=(i,))
    weights, random = drawn(model), np.random.default_rng(1)
    policy, x = Policy(recipe, *spaces, weights), random.normal(size=(6, 8, 2)).astype("float32")
    whole = [policy(row) for row in x]
    policy.forget()
    again = [policy(row) for row in x[:3]]
    np.testing.assert_array_equal(again, whole[:3])
    policy.forget(np.arange(8) < 4)
    after = np.array([policy(row) for row in x[3:]])
    np.testing.assert_array_equal(after[:, 4:], np.array(whole[3:])[:, 4:])
    fresh = Policy(recipe, *spaces, weights)
    np.testing.assert_array_equal(after[:, :4], [fresh(row[:4]) for row in x[3:]])
    assert (after[:, :4] != np.array(whole[3:])[:, :4]).any()


def test_speeds_are_hidden() -> None:
    whole, part = (make_single("jax/CartPole-v1", hide_speeds=hide) for hide in (False, True))
    state = jnp.array([0.01, 0.2, 0.03, -0.4, 0.0, 0.0])
    np.testing.assert_array_equal(whole.step(state, jnp.int32(1), KEYS[0])[1][::2], part.step(state, jnp.int32(1), KEYS[0])[1])
    assert part.observations.shape == (2,)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"network": "gru", "num_envs": 3, "num_minibatches": 2, "total_timesteps": 18},
            "num_minibatches=2 does not divide num_envs=3",
        ),
        ({"algorithm": "dqn", "network": "lstm"}, "network=lstm is for ppo, but dqn has no memory"),
        ({"network": "cnn", "convolutions": []}, "network=cnn needs convolutions"),
        ({"frames": 0}, "frames is 0"),
        ({"network": "transformer"}, "network is 'transformer'"),
    ],
)
def test_networks_that_are_refused(keys: dict[str, Any], message: str) -> None:
    algorithm = keys.get("algorithm", "ppo")
    base = {k: v for k, v in SMALL.items() if algorithm == "ppo" or k != "num_minibatches"}
    with pytest.raises(RecipeError, match=message):
        make_recipe(base | keys)


def test_an_agent_predicts_with_its_memory() -> None:
    keys: Any = {k: v for k, v in SMALL.items() if k not in ("algorithm", "env")} | {"eval_episodes": 0, "hidden": [4]}
    agent = tempo_rl.PPO("jax/CartPole-v1", network="gru", **keys)
    agent.parameters = drawn(make_agent(agent.recipe))
    agent.predict(np.ones(4))
    assert any(np.abs(state).max() > 0 for state in agent._opened_policy()._memory.values())
    agent.forget()
    assert all((state == 0).all() for state in agent._opened_policy()._memory.values())
    assert agent.evaluate(2).returns.shape == (2,)
