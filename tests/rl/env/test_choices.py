"""Observations of choices and of several parts: what agents see of them, the table that encodes them, and learning from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

import tempo_core as tp
import tempo_rl
from tempo_rl.choices import Choices
from tempo_rl.env import make_vector, vector_environment
from tempo_rl.env.spaces import Observations, misfit, observations_of
from tempo_rl.env.vector import vectorized
from tempo_rl.errors import EnvError, RecipeError, RLError
from tests.cases import first

SMALL: Any = {"num_envs": 2, "num_steps": 8, "total_timesteps": 64, "hidden": [8], "eval_episodes": 0}

NESTED = Dict(
    {
        "board": MultiDiscrete([[3, 4], [5, 6]], start=[[0, 1], [2, 3]]),
        "hand": Tuple([Discrete(7, start=-2), Box(-1.0, 1.0, (2,), np.float32)]),
        "lamps": MultiBinary([2, 2]),
        "picture": Box(0, 255, (1, 2), np.uint8),
    }
)
OBSERVATION: Any = {
    "board": np.array([[2, 1], [6, 5]]),
    "hand": (np.int64(4), np.array([0.5, -0.5], np.float32)),
    "lamps": np.array([[1, 0], [0, 1]], np.int8),
    "picture": np.array([[0, 255]], np.uint8),
}
INWARD = [0.5, -0.5, 1, 0, 0, 1, 0, 1, 2, 0, 4, 2, 6]  # numbers, then choices counted from 0


def test_parts_become_numbers_then_choices() -> None:
    observations = observations_of(NESTED, "nested")
    assert (observations.shape, observations.dtype, observations.counts) == ((13,), "float32", (3, 4, 5, 6, 7))
    np.testing.assert_array_equal(observations.inward(OBSERVATION), np.array(INWARD, np.float32))
    traced = jax.jit(lambda seen: observations.inward(seen, xp=jnp))(jax.tree.map(jnp.asarray, OBSERVATION))
    np.testing.assert_allclose(traced, np.array(INWARD, np.float32), rtol=1e-6)
    batch = gym.vector.utils.batch_space(NESTED, 3)
    rows = [NESTED.sample() for _ in range(3)]
    together: Any = gym.vector.utils.concatenate(NESTED, rows, gym.vector.utils.create_empty_array(NESTED, 3))
    assert batch.contains(together)
    np.testing.assert_array_equal(observations.inward(together, (3,)), np.stack([observations.inward(row) for row in rows]))


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "counts"),
    [
        (Discrete(5), (1,), "int32", (5,)),
        (MultiDiscrete([4, 5]), (2,), "int32", (4, 5)),
        (MultiBinary(3), (3,), "int32", ()),
        (Dict({"a": Box(0, 9, (2,), np.int16), "b": Discrete(2)}), (3,), "int32", (2,)),
        (Dict({"a": Box(0, 255, (2,), np.uint8), "b": Discrete(2)}), (3,), "float32", (2,)),
        (Box(0, 255, (2, 3), np.uint8), (2, 3), "uint8", ()),
    ],
    ids=str,
)
def test_spaces(space: Any, shape: Any, dtype: str, counts: Any) -> None:
    assert observations_of(space, "it") == Observations(shape, dtype, counts)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Text(3), r"it has observations Text\(.*agents take Box, Discrete, MultiDiscrete, MultiBinary, and a Dict or Tuple"),
        (Dict({"a": Discrete(2), "b": Tuple([Text(3)])}), r"with \['b'\]\[0\], but agents take"),
        (Tuple([Discrete(2**30), Box(0.0, 1.0, ())]), r"a choice among 1,073,741,824, too many for a table"),
        (Dict({}), "which hold nothing"),
    ],
)
def test_what_agents_cannot_see_is_named(space: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        observations_of(space, "it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"board": np.zeros((2, 2))}, r"an observation with the part \['board'\]: float64\[2, 2\]"),
        ({"hand": (3,)}, r"\['hand'\]: tuple, not a tuple of 2"),
        ({"hand": (3, np.zeros(3, np.float32))}, r"\['hand'\]\[1\]: float32\[3\]"),
        ({"more": 1}, "a dict with 'board', 'hand', 'lamps', 'picture', 'more', not with"),
    ],
)
def test_the_part_that_does_not_fit_is_named(change: Any, message: str) -> None:
    assert misfit(NESTED, OBSERVATION) is None
    what = misfit(NESTED, OBSERVATION | change)
    assert what is not None
    with pytest.raises(EnvError, match=message):
        raise EnvError(what)


# -- the encoder ---------------------------------------------------------------------------------------------------------


def encoded(observations: Observations, width: int | None, batch: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    """The features of a batch with the weights `table`."""
    ctx = tp.Context()
    with ctx:
        encoder = Choices.build(observations, width, (), True)
        assert ({} if table is None else {"embedding.weight": table.shape}) == {
            n: w.shape for n, w in encoder.parameters().items()
        }
        seen = tp.input("seen", batch.shape, observations.dtype)
        features = encoder(seen, seen.astype("float32") * 10.0)
        assert features.shape == (len(batch), encoder.size)
    inputs = {"seen": batch} | ({} if table is None else {"embedding.weight": table})
    return np.asarray(ctx.compile({}, features).run(inputs))


@pytest.mark.parametrize("frames", [(), (3,)], ids=["one", "frames"])
@pytest.mark.parametrize("width", [0, 4])
def test_the_encoder_is_rows_of_its_table(width: int, frames: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    observations = Observations((*frames, 5), "float32", (3, 4), NESTED)
    batch = random.normal(size=(6, *frames, 5)).astype(np.float32)
    batch[..., 3], batch[..., 4] = random.integers(0, 3, batch.shape[:-1]), random.integers(0, 4, batch.shape[:-1])
    table = random.normal(size=(7, 4)).astype(np.float32)
    rows = table if width else np.eye(7, dtype=np.float32)
    first, second = rows[batch[..., 3].astype(int)], rows[3 + batch[..., 4].astype(int)]
    choices = np.concatenate([first, second], -1) if width else first + second
    expected = np.concatenate([batch[..., :3] * 10.0, choices], -1).reshape(6, -1)
    np.testing.assert_allclose(encoded(observations, width, batch, table if width else None), expected, rtol=1e-6)


@pytest.mark.parametrize(("choices", "width"), [(1, 64), (8, 64), (16, 32), (98, 8)])
def test_the_width_by_default(choices: int, width: int) -> None:
    with tp.Context():
        encoder = Choices.build(Observations((choices,), "int32", (2,) * choices, MultiDiscrete([2] * choices)), None, (), True)
        assert encoder.table is not None and encoder.table.weight.shape == (2 * choices, width)


def test_a_table_that_is_too_large_is_refused() -> None:
    with (
        tp.Context(),
        pytest.raises(RecipeError, match=r"the embedding of 1,000,000,000 values x 64 is too large(.|\n)*embedding=8"),
    ):
        Choices.build(Observations((1,), "int32", (10**9,), Discrete(10**9)), 64, (), True)


# -- environments --------------------------------------------------------------------------------------------------------


class Parts(gym.Env[Any, Any]):
    """The hidden number of an episode of two steps is seen in all parts of the observation; the reward is 1 for the action that it says."""

    action_space = Discrete(3)

    def __init__(self, space: Any, seen: Callable[[int], Any]):
        self.observation_space, self.seen = space, seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number, self.count = int(self.np_random.integers(3)), 0
        return self.seen(self.number), {}

    def step(self, action: Any) -> Any:
        reward, self.count = float(action == self.number), self.count + 1
        self.number = (self.number + 1) % 3
        return self.seen(self.number), reward, self.count == 2, False, {}


PARTS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "Discrete": (Discrete(3, start=7), lambda n: n + 7),
    "MultiDiscrete": (MultiDiscrete([2, 3]), lambda n: np.array([1, n])),
    "MultiBinary": (MultiBinary(3), lambda n: np.eye(3, dtype=np.int8)[n]),
    "Dict": (
        Dict({"n": Discrete(3), "x": Box(-1.0, 1.0, (1,), np.float32)}),
        lambda n: {"n": np.int64(n), "x": np.zeros(1, np.float32)},
    ),
    "Tuple": (Tuple([Box(0, 9, (1,), np.int32), Tuple([Discrete(3)])]), lambda n: (np.ones(1, np.int32), (n,))),
}


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PARTS)
def test_a_final_observation_is_seen_as_others_are(kind: str, vectorization: str) -> None:
    space, seen = PARTS[kind]
    env = vectorized(lambda: Parts(space, seen), kind, 2, 3, vectorization)
    first = env.reset()
    one, two = env.step(np.zeros(2, np.int32)), env.step(np.zeros(2, np.int32))
    env.close()
    numbers = [int(np.flatnonzero([(env.observations.inward(seen(n)) == row).all() for n in range(3)])[0]) for row in first]
    for step, later in ((one, 1), (two, 2)):
        expected = [env.observations.inward(seen((n + later) % 3)) for n in numbers]
        np.testing.assert_array_equal(step.final_observation, expected)
    assert two.terminated.all() and not one.terminated.any() and two.observation.dtype == env.observations.dtype


@pytest.mark.parametrize("kind", ["Discrete", "Dict"])
def test_a_choice_outside_its_space_is_named(kind: str) -> None:
    space, _ = PARTS[kind]
    env = vectorized(
        lambda: Parts(space, lambda n: 10 if kind == "Discrete" else {"n": 3, "x": np.zeros(1, np.float32)}), kind, 2
    )
    with pytest.raises(
        EnvError, match=rf"{kind} gave an observation that is not in its observation_space: choice 0 of row 0 is number 3 of 3"
    ):
        env.reset()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == "Dict" else pytest.mark.slow) for kind in PARTS])
def test_agents_learn_from_parts(kind: str) -> None:
    """The best return is 2 an episode; a blind agent has two thirds."""
    space, seen = PARTS[kind]
    keys: Any = {
        "num_envs": 8,
        "num_steps": 16,
        "total_timesteps": 12_800,
        "hidden": [16],
        "learning_rate": 0.02,
        "eval_episodes": 0,
    }
    agent = tempo_rl.A2C(lambda: Parts(space, seen), **keys).train()
    assert agent.evaluate(8).mean == 2.0
    assert [int(agent.predict(seen(n))) for n in range(3)] == [0, 1, 2]


def test_norm_obs_leaves_choices_alone() -> None:
    space, seen = PARTS["Dict"]
    agent = tempo_rl.PPO(lambda: Parts(space, seen), norm_obs=True, frames=2, embedding=0, **SMALL).train()
    assert agent.parameters is not None and agent.parameters["policy.0.weight"].shape == (2 * (1 + 3), 8)
    assert agent.evaluate(2).lengths.tolist() == [2, 2]


def test_pictures_are_not_mixed_with_choices_in_convolutions() -> None:
    space, seen = PARTS["Dict"]
    with pytest.raises(EnvError, match=r"network=cnn takes images, not observations Dict\("):
        tempo_rl.PPO(lambda: Parts(space, seen), network="cnn", **SMALL).train()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "limit", "shape"),
    first(
        1,
        [
            ("FrozenLake-v1", None, (16, 64)),
            ("Taxi-v4", None, (500, 64)),
            ("Blackjack-v1", None, (45, 64)),
            ("CliffWalking-v1", 20, (48, 64)),
        ],
    ),
)
def test_gymnasiums_tables_train(env_id: str, limit: int | None, shape: tuple[int, int]) -> None:
    env = tempo_rl.EnvRecipe(env_id, kwargs={} if limit is None else {"max_episode_steps": limit})
    agent = tempo_rl.A2C(env, **SMALL).train()
    assert agent.parameters is not None and agent.parameters["embedding.weight"].shape == shape
    assert agent.result is not None and agent.result["env_steps"] == 64
    assert (agent.evaluate(2).lengths <= (limit or 200)).all()


def test_a_table_of_values() -> None:
    """embedding=0 without hidden layers: one number for each state and action."""
    env = tempo_rl.EnvRecipe("CliffWalking-v1", kwargs={"max_episode_steps": 20})
    agent = tempo_rl.DQN(env, **(SMALL | {"hidden": [], "embedding": 0, "total_timesteps": 128})).train()
    assert agent.parameters is not None
    assert {name: value.shape for name, value in agent.parameters.items()} == {"policy.0.weight": (48, 4), "policy.0.bias": (4,)}
    values = agent.parameters["policy.0.weight"] + agent.parameters["policy.0.bias"]
    np.testing.assert_array_equal(agent.predict(np.arange(48)), values.argmax(1))


def test_predict_takes_what_the_environment_gives() -> None:
    agent = tempo_rl.PPO("Blackjack-v1", **SMALL).train()
    hands = (np.array([12, 20, 13]), np.array([1, 2, 10]), np.array([0, 1, 0]))
    together = agent.predict(hands)
    assert together.shape == (3,)
    assert [int(agent.predict(tuple(int(part[k]) for part in hands))) for k in range(3)] == together.tolist()
    for wrong, message in (
        ((12, 11, 0), r"observation\[1\] of Blackjack-v1 is 11, which is not in Discrete\(11\)"),
        ((12, 1), "an observation of Blackjack-v1 is a tuple of 3 parts, not a tuple of 2"),
        ("ace", "an observation of Blackjack-v1 is a tuple of 3 parts, not a str"),
    ):
        with pytest.raises(RLError, match=message):
            agent.predict(wrong)  # type: ignore[arg-type]


class Boxes:
    """In JAX, a Dict of a choice and of numbers."""

    max_episode_steps = 4
    observation_space = Dict({"n": Discrete(3), "x": Box(-9.0, 9.0, (2,), np.float32)})
    action_space = Discrete(3)

    def initial(self, rng: jax.Array, params: None = None) -> Any:
        return {"n": jax.random.randint(rng, (), 0, 3), "x": jnp.zeros(2)}

    def transition(self, state: Any, action: jax.Array, rng: jax.Array, params: None = None) -> Any:
        return {"n": (state["n"] + 1) % 3, "x": state["x"] + 1.0}

    def observation(self, state: Any, rng: jax.Array, params: None = None) -> Any:
        return state

    def reward(self, state: Any, action: jax.Array, next_state: Any, rng: jax.Array, params: None = None) -> jax.Array:
        return (action == state["n"]).astype("float32")

    def terminal(self, state: Any, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.zeros((), bool)


@pytest.mark.slow
def test_parts_in_jax() -> None:
    keys: Any = {
        "num_envs": 8,
        "num_steps": 16,
        "total_timesteps": 12_800,
        "hidden": [16],
        "learning_rate": 0.02,
        "eval_episodes": 0,
    }
    agent = tempo_rl.A2C(Boxes(), **keys).train()
    assert agent.evaluate(8).mean == 4.0
    env = vector_environment(agent.recipe, 2)
    first, step = env.reset(), env.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(step.observation[:, 2], (first[:, 2] + 1) % 3)
    np.testing.assert_array_equal(step.observation[:, :2], 1.0)


def test_the_form_of_parts_in_jax_is_checked() -> None:
    class Odd(Boxes):
        def observation(self, state: Any, rng: jax.Array, params: None = None) -> Any:
            return {"n": state["n"], "x": jnp.zeros(3)}

    with pytest.raises(EnvError, match=r"Odd\.observation\(\) gives an observation with the part \['x'\]: float32\[3\], but its"):
        vector_environment(tempo_rl.A2C(Odd(), **SMALL).recipe, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("frozen_lake", 0.68), ("taxi", 7.0)])
def test_the_recipes_solve_them(name: str, least: float) -> None:
    from tempo_rl.recipe import load_recipe, shipped_recipes

    recipe = load_recipe(str(shipped_recipes()[name]))
    kind: Any = {"ppo": tempo_rl.PPO, "dqn": tempo_rl.DQN}[recipe.algorithm]
    keys = {key: value for key, value in recipe.model_dump(exclude_unset=True).items() if key not in ("env", "algorithm")}
    agent = kind(recipe.env, **keys)
    assert agent.train().evaluate(500).mean >= least


def test_toy_environments_step_as_arrays() -> None:
    env = make_vector("Blackjack-v1", 3, 1)
    first = env.reset()
    assert first.dtype == np.int32 and first.shape == (3, 3) and (first < [32, 11, 2]).all()
