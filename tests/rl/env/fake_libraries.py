"""Small packages with the same functions as libraries of environments in JAX, for tests where these are not installed.

All have one environment, `Line`: action 1 (or a positive number) goes one place to the right, which gives the new place as the reward. The third
place terminates the episode. It is truncated after four steps.
"""

from __future__ import annotations

from pathlib import Path

PARAMS = '''
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


def moved(place, action):
    """The next place; the reward; whether the episode is terminated."""
    place = place + jnp.where(action > 0, 1, 0).reshape(())
    return place, jnp.where(action > 0, place, 0).reshape(()).astype(jnp.float32), place >= 3


class Params:
    def replace(self, **changes):
        return dataclasses.replace(self, **changes)
'''

BRAX = """
class State(NamedTuple):
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    info: Any


class Line:
    action_size = 1

    def reset(self, key):
        assert key.dtype == jnp.uint32
        return State(jnp.int32(0), jnp.zeros(1), jnp.float32(0), jnp.float32(0), {"rng": key})

    def step(self, state, action):
        place, reward, done = moved(state.pipeline_state, action)
        return State(place, jnp.full(1, place, jnp.float32), reward, done.astype(jnp.float32), state.info)
"""

FILES: dict[str, dict[str, str]] = {
    "brax": {
        "brax/__init__.py": "",
        "brax/envs.py": PARAMS
        + BRAX
        + """
_envs = {"Line": Line}


def get_environment(name, backend, legs=2):
    return _envs[name]()
""",
    },
    "playground": {
        "mujoco_playground/__init__.py": "from mujoco_playground import _registry as registry\n",
        "mujoco_playground/_registry.py": PARAMS
        + BRAX
        + """
ALL_ENVS = ("Line",)


class Config(dict):
    episode_length = property(lambda self: self["episode_length"])


class Parts(Line):
    def reset(self, key):
        state = super().reset(key)
        return state._replace(obs={"state": state.obs, "privileged_state": jnp.zeros(3)})

    def step(self, state, action):
        state = super().step(state, action)
        return state._replace(obs={"state": state.obs, "privileged_state": jnp.zeros(3)})


def get_default_config(name):
    return Config(episode_length=4, impl="warp")


def load(name, config_overrides=None):
    assert config_overrides.get("impl") == "jax"
    return Parts()
""",
    },
    "gymnax": {
        "gymnax/__init__.py": PARAMS
        + """
registered_envs = ["Line"]


@dataclasses.dataclass(frozen=True)
class EnvParams(Params):
    max_steps_in_episode: int = 4


class Discrete:
    n = 2


class Box:
    low, high, shape, dtype = 0.0, 9.0, (1,), jnp.float32


class Line:
    default_params = EnvParams()

    def __init__(self, bonus=0.0):
        self.bonus = bonus

    def action_space(self, params):
        return Discrete()

    def observation_space(self, params):
        return Box()

    def is_terminated(self, state, params):
        return state >= 3

    def reset_env(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step_env(self, key, state, action, params):
        place, reward, done = moved(state, action)
        return jnp.full(1, place, jnp.float32), place, reward + self.bonus, done, {}


def make(name, **keywords):
    env = {"Line": Line}[name](**keywords)
    return env, env.default_params
""",
    },
    "craftax": {
        "craftax/__init__.py": "",
        "craftax/craftax_env.py": PARAMS
        + """
@dataclasses.dataclass(frozen=True)
class EnvParams(Params):
    max_timesteps: int = 4


class Discrete:
    n = 2


class Box:
    low, high, shape, dtype = 0.0, 9.0, (1,), jnp.float32


class State(NamedTuple):
    place: Any
    timestep: Any


class Line:
    default_params = EnvParams()

    def action_space(self, params):
        return Discrete()

    def observation_space(self, params):
        return Box()

    def reset_env(self, key, params):
        return jnp.zeros(1), State(jnp.int32(0), jnp.int32(0))

    def step_env(self, key, state, action, params):
        place, reward, done = moved(state.place, action)
        timestep = state.timestep + 1
        done = done | (timestep >= params.max_timesteps)
        return jnp.full(1, place, jnp.float32), State(place, timestep), reward, done, {}


def make_craftax_env_from_name(name, auto_reset):
    assert not auto_reset
    if name != "Line":
        raise ValueError(f"Unknown craftax environment: {name}")
    return Line()
""",
    },
    "pgx": {
        "pgx/__init__.py": PARAMS
        + """
class State(NamedTuple):
    observation: Any
    rewards: Any
    terminated: Any
    truncated: Any
    place: Any


def shown(place):
    return jnp.arange(4) == place


class Line:
    num_players, num_actions = 1, 2

    def init(self, key):
        no = jnp.zeros((), bool)
        return State(shown(0), jnp.zeros(1), no, no, (jnp.int32(0), jnp.int32(0)))

    def step(self, state, action, key=None):
        assert key.dtype == jnp.uint32
        place, reward, done = moved(state.place[0], action)
        count = state.place[1] + 1
        return State(shown(place), reward[None], done, ~done & (count >= 4), (place, count))


class Duel(Line):
    num_players = 2


def available_envs():
    return ("Duel", "Line")


def make(name):
    return {"Line": Line, "Duel": Duel}[name]()
""",
    },
    "xminigrid": {
        "xminigrid/__init__.py": PARAMS
        + """
from xminigrid import core


@dataclasses.dataclass(frozen=True)
class EnvParams(Params):
    max_steps: int = 4


class TimeStep(NamedTuple):
    place: Any
    count: Any
    observation: Any
    reward: Any
    discount: Any

    def last(self):
        return (self.discount == 0.0) | (self.count >= 4)


def seen(place):
    return jnp.stack([place, 11 - place]).astype(jnp.uint8).reshape(1, 1, 2)


class Line:
    def num_actions(self, params):
        return 2

    def observation_shape(self, params):
        return (1, 1, 2)

    def reset(self, params, key):
        return TimeStep(jnp.int32(0), jnp.int32(0), seen(jnp.int32(0)), jnp.float32(0), jnp.float32(1))

    def step(self, params, step, action):
        place, reward, done = moved(step.place, action)
        return TimeStep(place, step.count + 1, seen(place), reward, jnp.where(done, 0.0, 1.0))


def registered_environments():
    return ("Line",)


def make(name):
    return Line(), EnvParams()
""",
        "xminigrid/core/__init__.py": "from xminigrid.core import constants\n",
        "xminigrid/core/constants.py": "NUM_TILES, NUM_COLORS = 13, 12\n",
    },
    "jumanji": {
        "jumanji/__init__.py": PARAMS
        + """
class Spec:
    def __init__(self, **specs):
        self._specs = specs


class DiscreteArray:
    _specs, shape, dtype = {}, (), jnp.int32

    def __init__(self, num_values):
        self.num_values = num_values


class BoundedArray:
    _specs, dtype = {}, jnp.dtype(bool)

    def __init__(self, shape):
        self.shape, self.minimum, self.maximum = shape, False, True


class Observation(NamedTuple):
    place: Any
    action_mask: Any


class TimeStep(NamedTuple):
    step_type: Any
    reward: Any
    discount: Any
    observation: Any

    def last(self):
        return self.step_type == 2


class Line:
    observation_spec = Spec(place=DiscreteArray(5), action_mask=BoundedArray((2,)))
    action_spec = DiscreteArray(2)

    def __init__(self, time_limit=4):
        self.time_limit = time_limit

    def reset(self, key):
        return (jnp.int32(0), key, jnp.int32(0)), self._step(jnp.int8(0), jnp.float32(0), 1.0, jnp.int32(0))

    def step(self, state, action):
        place, reward, done = moved(state[0], action)
        count = state[2] + 1
        kind = jnp.where(done | (count >= self.time_limit), 2, 1).astype(jnp.int8)
        return (place, state[1], count), self._step(kind, reward, jnp.where(done, 0.0, 1.0), place)

    def _step(self, kind, reward, discount, place):
        return TimeStep(kind, reward, jnp.float32(discount), Observation(place, jnp.ones(2, bool)))


class Team(Line):
    def _step(self, kind, reward, discount, place):
        return super()._step(kind, jnp.full(3, reward), discount, place)


def registered_environments():
    return {"Line", "Team"}


def make(name, **keywords):
    return {"Line": Line, "Team": Team}[name](**keywords)
""",
    },
}


def write_library(prefix: str, folder: Path) -> list[str]:
    """Write the package of a row of `FILES`. Returns the names of its packages."""
    for name, text in FILES[prefix].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return sorted({name.partition("/")[0] for name in FILES[prefix]})
