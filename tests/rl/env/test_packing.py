"""The state of an environment in JAX: any pytree, of any dtype, with keys, without a change of a bit; saved, and gone on with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_rl
from tempo_rl.env.functional_env import single_of
from tempo_rl.env.packing import Packing, is_key
from tempo_rl.env.source import source_of
from tempo_rl.errors import EnvError

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn", "int4", "uint4",
]  # fmt: skip


def bits(leaf: Any) -> bytes:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf).tobytes()


def same(state: Any, other: Any) -> None:
    """Both have one structure, and the same dtypes, shapes and bits."""
    assert jax.tree.structure(state) == jax.tree.structure(other)
    for leaf, again in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        assert (leaf.dtype, leaf.shape) == (again.dtype, again.shape)
        assert bits(leaf) == bits(again)


def every_bit_pattern(dtype: str, count: int) -> jax.Array:
    size = jnp.dtype(dtype).itemsize
    if dtype in ("bool", "int4", "uint4"):
        return jnp.arange(count).astype("int32").astype(dtype)
    raw = np.random.default_rng(0).integers(0, 256, (count, size), np.uint8)
    return jnp.asarray(raw.reshape(-1).view(jnp.dtype(dtype)))


@pytest.mark.parametrize("needs_integers", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (0,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_leaf_keeps_its_bits(dtype: str, shape: tuple[int, ...], needs_integers: bool) -> None:
    count = int(np.prod(shape))
    state = {"leaf": every_bit_pattern(dtype, max(count, 1))[:count].reshape(shape), "place": jnp.arange(3.0)}
    packing = Packing(state, needs_integers)
    if not packing.has_bits and dtype in ("float16", "bfloat16"):  # a conversion may change what is not a number
        state["leaf"] = jnp.where(jnp.isfinite(state["leaf"]), state["leaf"], 0)
    vector = jax.jit(packing.pack)(state)
    assert vector.shape == (packing.size,) and vector.dtype == packing.dtype
    same(jax.jit(packing.unpack)(vector), state)


def test_bits_survive_what_floats_would_not() -> None:
    """A quiet NaN with a payload, minus zero, the least number, and a number that float32 cannot count."""
    state = (
        np.array([0x7FC12345, 0x80000000, 1], np.uint32).view(np.float32),
        jnp.array(2**24 + 1),
        jnp.array(2**32 - 1, "uint32"),
    )
    packing = Packing(state)
    assert packing.has_bits
    vector = packing.pack(state)
    same(packing.unpack(jnp.where(jnp.array(True), vector, jnp.zeros_like(vector))), jax.tree.map(jnp.asarray, state))


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_generator(generator: str) -> None:
    key = jax.random.key(3, impl=generator)
    state = {"key": key, "keys": jax.random.split(key, 4), "raw": jax.random.PRNGKey(5)}
    packing = Packing(state)
    again = jax.jit(packing.unpack)(jax.jit(packing.pack)(state))
    same(again, state)
    assert jax.random.key_impl(again["key"]) == jax.random.key_impl(key)
    np.testing.assert_array_equal(jax.random.bits(again["keys"][2]), jax.random.bits(state["keys"][2]))


def test_room() -> None:
    """Numbers stay numbers; bytes share words; a key is its data."""
    assert Packing(jnp.zeros(5)).dtype == "float32" and Packing(jnp.zeros(5)).size == 5
    assert Packing((jnp.zeros(5), jnp.zeros((), bool))).dtype == "float32"
    pictures = Packing((jnp.zeros(2), jnp.zeros((8, 8), "uint8")))
    assert (pictures.dtype, pictures.size) == ("int32", 2 + 16)
    assert Packing((jnp.zeros(3, "bfloat16"), jax.random.key(0))).size == 2 + 2
    assert Packing(()).size == 0


# -- an environment with such a state ----------------------------------------------------------------------------------


class Walker(NamedTuple):
    place: Any
    speed: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class World:
    walker: Walker
    doors: dict[str, Any]
    key: Any
    raw: Any
    count: Any


class Wandering:
    """A walk whose steps are drawn with two keys of the state. The reward shows all parts of it."""

    max_episode_steps = 5
    observation_space = gym.spaces.Box(-99.0, 99.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng: jax.Array, params: None = None) -> World:
        inner, outer = jax.random.split(rng)
        doors = {"open": jnp.zeros(3, bool), "times": jnp.zeros((), "uint16")}
        walker = Walker(jnp.zeros((), "int8"), jnp.ones(2, "bfloat16"))
        return World(walker, doors, inner, jax.random.key_data(outer), jnp.array(2**24))

    def transition(self, state: World, action: jax.Array, rng: jax.Array, params: None = None) -> World:
        key, drawn = jax.random.split(state.key)
        raw, other = jax.random.split(state.raw)
        move = jax.random.randint(drawn, (), -2, 3, "int8") + action.astype("int8")
        times = jax.random.randint(other, (), 0, 7, "int32").astype("uint16")
        walker = Walker(state.walker.place + move, -state.walker.speed)
        doors = {"open": ~state.doors["open"], "times": state.doors["times"] + times}
        return World(walker, doors, key, raw, state.count + 1)

    def observation(self, state: World, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.stack([state.walker.place.astype("float32"), state.walker.speed[0].astype("float32")])

    def reward(self, state: World, action: jax.Array, next_state: World, rng: jax.Array, params: None = None) -> jax.Array:
        doors = next_state.doors
        return doors["times"] + doors["open"].sum() * 100.0 + (next_state.count - 2**24) * 1000.0

    def terminal(self, state: World, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.abs(state.walker.place) > 3


def test_a_packed_step_is_the_environments_own() -> None:
    env = Wandering()
    single = single_of(source_of(env) or pytest.fail())
    assert single.state_dtype == "int32"
    packed, _ = single.initial(jnp.array([0, 3], "uint32"))
    state = env.initial(jax.random.wrap_key_data(jnp.array([0, 3], "uint32"), impl="threefry2x32"))
    same(single.unpacked(packed), state)
    total = 0.0
    for at in range(3):
        action, data = jnp.int32(at % 2), jnp.array([1, at], "uint32")
        rng = jax.random.split(jax.random.wrap_key_data(data, impl="threefry2x32"))[0]
        following = env.transition(state, action, rng)
        packed, seen, reward, *_, episode_return, length = jax.jit(single.advance)(packed, action, data)
        with jax.numpy_dtype_promotion("standard"):
            expected = float(env.reward(state, action, following, rng))
        state, total = following, total + expected
        same(single.unpacked(packed), jax.tree.map(jnp.asarray, state))
        np.testing.assert_array_equal(seen, env.observation(state, rng))
        assert (float(reward), float(episode_return), int(length)) == (expected, total, at + 1)


KEYS: Any = {"num_envs": 2, "num_steps": 4, "total_timesteps": 64, "hidden": [4], "eval_episodes": 0, "save_every": 2}


def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """In the middle of episodes, for a rollout has four steps, and an episode at most five."""
    whole = tempo_rl.A2C(Wandering(), **KEYS).train(tmp_path / "whole", cache=str(tmp_path / "cache"))
    stopped = tempo_rl.A2C(Wandering(), **KEYS)
    stopped.train(tmp_path / "run", callbacks=[lambda it: it.iteration == 2], cache=str(tmp_path / "cache"))
    assert stopped.result is not None and stopped.result["env_steps"] == 24
    resumed = tempo_rl.A2C(Wandering(), **KEYS).train(tmp_path / "run", resume=True, cache=str(tmp_path / "cache"))
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert whole.parameters is not None and resumed.parameters is not None
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], value)


def test_flax_structs() -> None:
    struct = pytest.importorskip("flax.struct", reason="needs flax")

    @struct.dataclass
    class State:
        place: Any
        name: str = struct.field(pytree_node=False, default="here")

    class Struct(Wandering):
        def initial(self, rng: jax.Array, params: None = None) -> Any:
            return State(jnp.zeros((), "int32"))

        def transition(self, state: Any, action: jax.Array, rng: jax.Array, params: None = None) -> Any:
            return state.replace(place=state.place + action)

        def observation(self, state: Any, rng: jax.Array, params: None = None) -> jax.Array:
            return jnp.full(2, state.place.astype("float32"))

        def reward(self, state: Any, action: jax.Array, next_state: Any, rng: jax.Array, params: None = None) -> jax.Array:
            return next_state.place.astype("float32")

        def terminal(self, state: Any, rng: jax.Array, params: None = None) -> jax.Array:
            return state.place > 3

    agent = tempo_rl.A2C(Struct(), **(KEYS | {"total_timesteps": 16})).train()
    assert agent.evaluate(2).lengths.max() <= 5


@dataclasses.dataclass
class Unregistered:
    place: Any


def started(state: Any, following: Any = None) -> Any:
    class Odd(Wandering):
        def initial(self, rng: jax.Array, params: None = None) -> Any:
            return state

        def transition(self, state: Any, action: jax.Array, rng: jax.Array, params: None = None) -> Any:
            return state if following is None else following

    return source_of(Odd())


@pytest.mark.parametrize(
    ("state", "following", "message"),
    [
        (
            {"walker": Unregistered(1)}, None,
            r"Odd\.initial\(\) gives a state with the part \['walker'\] of the dataclass Unregistered, .*\n  hint: .*@jax\.tree_util\.register_dataclass",
        ),
        ((1, "here"), None, r"Odd\.initial\(\) gives a state with the part \[1\] of str"),
        ({"a": 1}, {"b": 1}, r"Odd\.transition\(\) gives a state that lacks \['a'\] and also has \['b'\], unlike that of initial\(\)"),
        ((1, 2), [1, 2], r"Odd\.transition\(\) gives a state that is built in another way"),
        ({"a": jnp.zeros(2)}, {"a": jnp.zeros(3)}, r"state with the part \['a'\] of shape \(3,\), but initial\(\) gives one of shape \(2,\)"),
        ({"a": jnp.zeros(2)}, {"a": jnp.zeros(2, "int32")}, r"state with the part \['a'\] of int32, but initial\(\) gives one of float32"),
    ],
)  # fmt: skip
def test_what_is_no_state_is_named(state: Any, following: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        single_of(started(state, following))


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_wide_numbers_where_jax_has_them(dtype: str) -> None:
    with jax.enable_x64(True):
        raw = np.random.default_rng(0).integers(0, 256, 6 * np.dtype(dtype).itemsize, np.uint8)
        state = {"wide": jnp.asarray(raw.view(dtype).reshape(2, 3)), "other": jnp.ones(1, "int8")}
        packing = Packing(state)
        same(jax.jit(packing.unpack)(jax.jit(packing.pack)(state)), state)
