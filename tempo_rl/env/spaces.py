"""Descriptions of an environment's observations and actions, for agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    import gymnasium
    import jax

Array = TypeVar("Array", bound="np.ndarray | jax.Array")


KEPT = ("bool", "int8", "uint8", "int32", "uint32", "float16", "float32")  # dtypes of observations in programs


@dataclass(frozen=True)
class Observations:
    """Arrays of one shape and dtype. The dtype is that of the environment if it is one of `KEPT` (images stay uint8), or else float32."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Discrete:
    """Actions `0, ..., count - 1`; the environment receives `start` + action."""

    count: int
    start: int = 0

    dtype = "int32"
    shape: tuple[int, ...] = ()

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions as the environment takes them."""
        return actions + xp.asarray(self.start, actions.dtype)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, choice k among `counts[k]`: MultiDiscrete, and MultiBinary with two each. `starts` are added."""

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    space_shape: tuple[int, ...]

    dtype = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.counts),)

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions (..., k) as the environment takes them: (..., *space_shape)."""
        starts = xp.broadcast_to(xp.asarray(self.starts, actions.dtype), actions.shape)
        return _reshaped(actions + starts, (*actions.shape[:-1], *self.space_shape))


@dataclass(frozen=True)
class Continuous:
    """Numbers, row by row in one dimension; the environment receives them in `space_shape`, between `low` and `high`.

    They are clipped, or, with `is_squashed`, mapped by tanh: -∞ to `low`, ∞ to `high`. With `is_scaled`, they are numbers from -1 to 1,
    which are mapped in a line: -1 to `low`, 1 to `high`.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    space_shape: tuple[int, ...] | None = None  # None: `shape`
    is_squashed: bool = False
    is_scaled: bool = False

    dtype = "float32"

    def outward(self, actions: Array, xp: ModuleType = np) -> Array:
        """The policy's actions (..., n) as the environment takes them: (..., *space_shape)."""
        bounded = self._between(actions, xp) if self.is_scaled else actions
        bounded = self.squash(actions, xp) if self.is_squashed else self.clip(bounded, xp)
        shape = self.shape if self.space_shape is None else self.space_shape
        return _reshaped(bounded, (*actions.shape[:-1], *shape))

    def clip(self, actions: Array, xp: ModuleType = np) -> Array:
        """`actions` of shape (..., n), clipped. `xp` is numpy or jax.numpy."""
        low, high = self._bounds(actions, xp)
        return xp.minimum(xp.maximum(actions, low), high)

    def squash(self, actions: Array, xp: ModuleType = np) -> Array:
        """`actions` of shape (..., n), mapped by tanh."""
        return self._between(xp.tanh(actions), xp)

    def _between(self, actions: Array, xp: ModuleType) -> Array:
        """Numbers from -1 to 1, mapped in a line to the bounds."""
        low, high = self._bounds(actions, xp)
        return low + (high - low) * (actions + xp.asarray(1.0, "float32")) * xp.asarray(0.5, "float32")

    def _bounds(self, actions: Array, xp: ModuleType) -> tuple[Array, Array]:
        low, high = (xp.asarray(ends, "float32").reshape(self.shape) for ends in (self.low, self.high))
        return xp.broadcast_to(low, actions.shape), xp.broadcast_to(high, actions.shape)


def _reshaped(actions: Any, shape: tuple[int, ...]) -> Any:
    return actions.reshape(shape)


Actions = Discrete | MultiDiscrete | Continuous


def squashed(actions: Actions, env_id: str) -> Continuous:
    """Continuous actions that tanh maps to their bounds. Raises `EnvError` for others, and for bounds that are not finite."""
    return replace(_bounded(actions, env_id, "squash_actions=true"), is_squashed=True)


def scaled(actions: Actions, env_id: str, algorithm: str) -> Continuous:
    """Continuous actions from -1 to 1, which are mapped in a line to their bounds. Raises `EnvError` as `squashed` does."""
    return replace(_bounded(actions, env_id, f"algorithm={algorithm}"), is_scaled=True)


def _bounded(actions: Actions, env_id: str, key: str) -> Continuous:
    if not isinstance(actions, Continuous):
        raise EnvError(f"{key} is for continuous actions, but those of {env_id} are choices")
    if not np.isfinite([*actions.low, *actions.high]).all():
        raise EnvError(f"{key} needs finite bounds, but actions of {env_id} lie between {actions.low} and {actions.high}")
    return actions


def observations_of(space: gymnasium.Space[Any], env_id: str) -> Observations:
    """The description of a Gymnasium observation space. Raises `EnvError` unless the space is of arrays (Box).

    On the host, other spaces are flattened before (`tempo_rl.env.vector.flattened`).
    """
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise EnvError(
            f"{env_id} has observations {space}, but agents take arrays (Box)",
            hint='flatten them: env.wrappers=["gymnasium.wrappers:FlattenObservation"]',
        )
    dtype = np.dtype(space.dtype).name
    return Observations(tuple(space.shape), dtype if dtype in KEPT else "float32")


def flat_space(space: gymnasium.Space[object]) -> gymnasium.Space[object]:
    """The space of what `flat` gives."""
    from gymnasium import spaces

    if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return space
    return spaces.Box(0.0, 1.0, (spaces.flatdim(space),), np.float32)


def flat(space: gymnasium.Space[Any], observation: jax.Array) -> jax.Array:
    """An observation in JAX as one array, as Gymnasium's `FlattenObservation` makes it on the host: choices become one-hot."""
    import jax
    import jax.numpy as jnp
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(observation.reshape(()) - int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = np.asarray(space.nvec).reshape(-1), np.asarray(space.start).reshape(-1)
        places = observation.reshape(-1) - starts.astype(np.int32)
        return jnp.concatenate([jax.nn.one_hot(places[k], int(count)) for k, count in enumerate(counts)])
    return observation.reshape(-1) if isinstance(space, spaces.MultiBinary) else observation


def actions_of(space: gymnasium.Space[Any], env_id: str) -> Actions:
    """The description of a Gymnasium action space. Raises `EnvError` unless it is of choices, or a Box of floats."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(int(v) for v in np.asarray(numbers).reshape(-1)) for numbers in (space.nvec, space.start))
        return MultiDiscrete(counts, starts, tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return MultiDiscrete((2,) * size, (0,) * size, tuple(space.shape))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(v) for v in np.asarray(end).reshape(-1)) for end in (space.low, space.high))
        return Continuous((len(low),), low, high, tuple(space.shape))
    raise EnvError(
        f"{env_id} has actions {space}, but agents take Discrete, MultiDiscrete, MultiBinary, or Box of floats",
        hint='write a wrapper that changes the actions: env.wrappers=["module:Wrapper"]',
    )
