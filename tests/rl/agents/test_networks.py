"""Policies that see pictures, several frames, or that remember: what they compute, and what they are played with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
import tempo_rl
from tempo_rl.env import make_environment, vector_environment
from tempo_rl.env.functional_env import make_single
from tempo_rl.env.spaces import Discrete, Observations, observations_of
from tempo_rl.env.vector import env_seeds
from tempo_rl.errors import EnvError, RecipeError
from tempo_rl.evaluate import Policy
from tempo_rl.models import build_model
from tempo_rl.recipe import Recipe, make_recipe
from tests.cases import slow
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


# Shapes of observations, how many frames are stacked by Tempo, the key `channels`, and the axes in the order rows, columns, channels.
LAYOUTS: list[tuple[tuple[int, ...], int, str | None, tuple[int, ...]]] = [
    ((6, 5), 1, None, (0, 1)),
    ((6, 5, 3), 1, None, (0, 1, 2)),
    ((3, 6, 5), 1, None, (1, 2, 0)),
    ((6, 5, 5), 1, "last", (0, 1, 2)),
    ((6, 5, 5), 1, "first", (1, 2, 0)),
    ((6, 3, 5), 1, "first", (1, 2, 0)),
    ((3, 6, 5), 1, "last", (0, 1, 2)),
    ((6, 5, 4), 6, None, (1, 2, 0)),  # six frames of (5, 4)
    ((2, 6, 5, 3), 2, None, (1, 2, 0, 3)),
    ((2, 6, 5, 3), 1, None, (1, 2, 0, 3)),  # frames that the environment stacks
    ((2, 3, 6, 5), 1, None, (2, 3, 0, 1)),
    ((7, 6, 5, 3), 7, None, (1, 2, 0, 3)),
    ((7, 3, 6, 5), 1, "first", (2, 3, 0, 1)),
    ((2, 2, 6, 5, 3), 2, None, (2, 3, 0, 1, 4)),
]
QUICK = [(6, 5), (3, 6, 5), (6, 5, 4), (2, 6, 5, 3), (2, 2, 6, 5, 3)]


@pytest.mark.parametrize(
    ("shape", "frames", "channels", "order"),
    [pytest.param(*layout, marks=[] if layout[0] in QUICK else pytest.mark.slow) for layout in LAYOUTS],
)
def test_convolutions_are_those_of_jax(shape: tuple[int, ...], frames: int, channels: str | None, order: tuple[int, ...]) -> None:
    keys = {"network": "cnn", "convolutions": [[4, 3, 2], [2, 2, 1]], "hidden": [3], "activation": "relu", "channels": channels}
    recipe = make_recipe(SMALL | keys)
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (7, *shape), np.uint8)
    ctx = tp.Context()
    with ctx:
        model = build_model(recipe, Observations(shape, "uint8", frames=frames), Discrete(2), fed=True)
        value = model.value(tp.input("x", x.shape, "uint8"))
        shapes = {name: tuple(map(int, w.shape)) for name, w in model.parameters().items()}
    weights = {name: random.normal(size=size).astype("float32") for name, size in shapes.items()}
    assert {name.split(".")[0] for name in weights} == {"convolution", "trunk", "policy", "value"}
    result = ctx.run({}, value, {"x": x, **weights})
    h = x.transpose(0, *(axis + 1 for axis in order)).reshape(7, shape[order[0]], shape[order[1]], -1)
    h = h.astype(np.float32) / np.float32(255)
    for k, stride in enumerate((2, 1)):
        w, bias = weights[f"convolution.{k}.weight"], weights[f"convolution.{k}.bias"]
        h = jax.lax.conv_general_dilated(h, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        h = np.maximum(np.asarray(h) + bias, 0)
    h = np.maximum(h.reshape(7, -1) @ weights["trunk.0.weight"] + weights["trunk.0.bias"], 0)
    np.testing.assert_allclose(result, (h @ weights["value.0.weight"] + weights["value.0.bias"])[:, 0], rtol=2e-4)


@pytest.mark.parametrize(
    "shape", [(6, 3, 5), (5, 5, 5), (3, 6, 3), (4, 4, 31), (10, 4, 4), (84, 84, 3, 4), (84, 84, 4, 3), (5, 6, 5, 3), (4, 6, 3, 6)]
)
def test_a_layout_that_cannot_be_told_is_refused(shape: tuple[int, ...]) -> None:
    recipe = make_recipe(SMALL | {"network": "cnn"})
    where = (
        r"network=cnn cannot tell which axis of observations \(.*\) has the channels\n.*channels=last for .* channels=first for "
    )
    with tp.Context(), pytest.raises(EnvError, match=where):
        build_model(recipe, Observations(shape, "uint8"), Discrete(2), fed=True)
    with tp.Context():
        build_model(recipe.model_copy(update={"channels": "last"}), Observations(shape, "uint8"), Discrete(2), fed=True)


BYTES = [  # least and greatest bytes of a space, a value, and what a network sees of it
    (0, 255, [0, 51, 255], [0.0, 0.2, 1.0]),
    (0, 1, [0, 1, 1], [0.0, 1.0, 1.0]),
    (0, 10, [0, 5, 10], [0.0, 0.5, 1.0]),
    (5, 9, [5, 6, 9], [0.0, 0.25, 1.0]),
    ([0, 0, 7], [1, 20, 7], [1, 5, 7], [1.0, 0.25, 0.0]),
]


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3, 1)])
@pytest.mark.parametrize(("low", "high", "value", "seen"), BYTES)
def test_bytes_are_scaled_by_the_range_of_their_space(
    low: Any, high: Any, value: list[int], seen: list[float], shape: tuple[int, ...]
) -> None:
    """Also in stacks of frames, in a Dict, and beside choices."""
    low, high, value = (np.broadcast_to(np.uint8(x), 3).reshape(shape) for x in (low, high, value))
    box = gym.spaces.Box(low, high, shape, np.uint8)
    for frames in (1, 2):
        alone = replace(observations_of(box, "it"), shape=(*((frames,) if frames > 1 else ()), *shape), frames=frames)
        ctx = tp.Context()
        with ctx:
            features = build_model(make_recipe(SMALL), alone, Discrete(2), fed=True).features(tp.input("x", alone.shape, "uint8"))
        (result,) = ctx.run({}, [features], {"x": np.broadcast_to(value, alone.shape)}, config=tp.Config(backend="numpy"))
        np.testing.assert_allclose(result, np.tile(seen, frames), rtol=1e-6)
    parts = observations_of(gym.spaces.Dict({"bytes": box, "choice": gym.spaces.Discrete(2)}), "it")
    joined = {"bytes": np.array([value, value]), "choice": np.array([1, 0])}
    np.testing.assert_allclose(parts.inward(joined, (2,)), [[*seen, 1], [*seen, 0]], rtol=1e-6)  # type: ignore[call-overload]
    np.testing.assert_allclose(parts.inward(joined, (2,), jnp), [[*seen, 1], [*seen, 0]], rtol=1e-6)  # type: ignore[call-overload]


class Bits(gym.Env[Any, Any]):
    """One of eight numbers is 1. The reward is 1 for its place."""

    action_space = gym.spaces.Discrete(8)

    def __init__(self, dtype: str):
        self.observation_space = gym.spaces.Box(0, 1, (8,), np.dtype(dtype))  # type: ignore[arg-type]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._next(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.place)
        return self._next(), reward, False, True, {}

    def _next(self) -> np.ndarray:
        self.place = int(self.np_random.integers(8))
        return (np.arange(8) == self.place).astype(self.observation_space.dtype)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        slow((tempo_rl.A2C, {"num_steps": 4})),
        (tempo_rl.DQN, {"num_steps": 1, "gradient_steps": 1, "batch_size": 4, "buffer_size": 16, "learning_starts": 4}),
    ],
)
def test_agents_learn_from_bits_of_any_dtype_alike(kind: Any, keys: dict[str, Any]) -> None:
    """Episodes of one step, which a time limit ends: also a replay buffer learns from them."""
    keys = {"num_envs": 4, "total_timesteps": 64, "hidden": [4], "eval_episodes": 0, "executor": "interpreted", **keys}
    trained = [kind(lambda dtype=dtype: Bits(dtype), **keys).train() for dtype in ("uint8", "int8")]
    for name, value in trained[1].parameters.items():
        np.testing.assert_allclose(trained[0].parameters[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
    assert np.abs(trained[0].parameters["policy.1.bias"]).max() > 0


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
