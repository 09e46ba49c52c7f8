"""The base of adapters: a library whose step gives the next state, the observation, the reward and the end at once."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from tempo_rl.env.packing import is_key
from tempo_rl.errors import EnvError

ENDLESS = 10_000  # steps after which an episode is truncated, if the library has no limit of its own


class Outcome(NamedTuple):
    """What a reset or a step gives: the state of an environment of this kind."""

    inner: object  # the library's own state
    observation: object
    reward: object = 0.0
    terminated: object = False
    truncated: object = False


class Stepped(ABC):
    """An environment in the form of `tempo_rl.JaxEnvironment` from a library's `reset` and `step`.

    The library's own restart of episodes is not used: each episode begins with a reset of its own random numbers.
    """

    observation_space: gymnasium.Space[object]
    action_space: gymnasium.Space[object]
    max_episode_steps: int

    @abstractmethod
    def begin(self, key: jax.Array) -> Outcome:
        """The start of an episode. `key` is (2,) uint32, as of `jax.random.PRNGKey`."""

    @abstractmethod
    def follow(self, inner: Any, action: jax.Array, key: jax.Array) -> Outcome:
        """One step from the library's state."""

    def initial(self, rng: jax.Array, params: None = None) -> Outcome:
        inner, observation, reward, *ends = self.begin(jax.random.key_data(rng))
        number = jnp.asarray(reward, "float32")
        if number.size != 1:
            raise EnvError(f"{type(self).__name__} gives {number.size} rewards a step: the environment is for several agents")
        return Outcome(
            jax.tree.map(jnp.asarray, inner),
            observation,
            number.reshape(()),
            *(jnp.asarray(end, bool).reshape(()) for end in ends),
        )

    def transition(self, state: Outcome, action: jax.Array, rng: jax.Array, params: None = None) -> Outcome:
        inner = jax.tree.map(lambda leaf: leaf, state.inner)  # for libraries that write into the dicts of the state, as Brax does
        following = self.follow(inner, action, jax.random.key_data(rng))
        return jax.tree.map(_as_before, following, state)

    def observation(self, state: Outcome, rng: jax.Array, params: None = None) -> object:
        return state.observation

    def reward(self, state: Outcome, action: jax.Array, next_state: Outcome, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.asarray(next_state.reward)

    def terminal(self, state: Outcome, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.asarray(state.terminated)

    def truncated(self, state: Outcome, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.asarray(state.truncated)


def _as_before(following: Any, before: Any) -> jax.Array:
    """A leaf of the next state with the shape and dtype that it has in the first one, for libraries are not strict about numbers."""
    if is_key(before):
        return jnp.asarray(following)
    return jnp.asarray(following, before.dtype).reshape(before.shape)


def require_name(library: str, prefix: str, name: str, names: Iterable[str]) -> None:
    """Raise `EnvError` unless a library has an environment of that name."""
    known = sorted(names)
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {prefix}/{close[0]}?" if close else f"the names are {', '.join(known)}"
        raise EnvError(f"{library} has no environment {name!r}", hint=hint)


def space_like(example: Any) -> gymnasium.Space[object]:
    """The space of arrays of which nothing but shapes and dtypes is known; dicts become Dict."""
    if isinstance(example, dict):
        return gymnasium.spaces.Dict({name: space_like(part) for name, part in example.items()})
    dtype = np.dtype(example.dtype)
    if dtype.kind in "iu":
        low, high = (np.full(example.shape, end, dtype) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        return gymnasium.spaces.Box(low, high, dtype=dtype.type)
    if dtype.kind == "b":
        return gymnasium.spaces.Box(0, 1, example.shape, np.int8)
    infinite = np.full(example.shape, np.inf, np.float32)
    return gymnasium.spaces.Box(-infinite, infinite, dtype=np.float32)


def space_of(space: Any) -> gymnasium.Space[object]:
    """Gymnasium's space for one of a library that names its parts alike: `n`; `low`, `high`, `shape`; `spaces`."""
    inner = getattr(space, "spaces", None)
    if isinstance(space, gymnasium.Space):
        return space
    if isinstance(inner, dict):
        return gymnasium.spaces.Dict({name: space_of(part) for name, part in inner.items()})
    if isinstance(inner, (tuple, list)):
        return gymnasium.spaces.Tuple([space_of(part) for part in inner])
    if hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    dtype = np.dtype(space.dtype)
    if dtype.kind == "b":
        return gymnasium.spaces.Box(0, 1, tuple(space.shape), np.int8)
    low, high = (np.broadcast_to(np.asarray(end, dtype), tuple(space.shape)) for end in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)
