"""Descriptions of an environment's observations and actions, for agents."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    import gymnasium
    import jax

Array = TypeVar("Array", bound="np.ndarray | jax.Array")


@dataclass(frozen=True)
class Observations:
    """Arrays of one shape and dtype. The dtype is that of the environment (images stay uint8), but float64 becomes float32."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Discrete:
    """Actions `0, ..., count - 1`; the environment receives `start` + action."""

    count: int
    start: int = 0

    dtype = "int32"
    shape: tuple[int, ...] = ()

    def outward(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions as the environment takes them."""
        return actions + np.asarray(self.start, actions.dtype)


@dataclass(frozen=True)
class Continuous:
    """Actions of one shape; the environment receives them clipped to `[low, high]` (one number per element, row by row)."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    dtype = "float32"

    def outward(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions as the environment takes them."""
        return self.clip(actions)

    def clip(self, actions: Array, xp: ModuleType = np) -> Array:
        """`actions` of shape (..., *shape), clipped. `xp` is numpy or jax.numpy."""
        low = xp.asarray(self.low, "float32").reshape(self.shape)
        high = xp.asarray(self.high, "float32").reshape(self.shape)
        return xp.minimum(xp.maximum(actions, xp.broadcast_to(low, actions.shape)), xp.broadcast_to(high, actions.shape))


Actions = Discrete | Continuous


def observations_of(space: gymnasium.Space[Any], env_id: str) -> Observations:
    """The description of a Gymnasium observation space. Raises `EnvError` unless the space is of arrays (Box)."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise EnvError(
            f"{env_id} has observations {space}; agents here take arrays (Box)",
            hint='flatten them: env.wrappers=["gymnasium.wrappers:FlattenObservation"]',
        )
    dtype = np.dtype(space.dtype)
    return Observations(tuple(space.shape), "float32" if dtype == np.float64 else dtype.name)


def actions_of(space: gymnasium.Space[Any], env_id: str) -> Actions:
    """The description of a Gymnasium action space. Raises `EnvError` unless it is Discrete or a float Box of one dimension."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and len(space.shape) == 1:
        low, high = (tuple(float(v) for v in np.asarray(end).reshape(-1)) for end in (space.low, space.high))
        return Continuous(tuple(space.shape), low, high)
    raise EnvError(f"{env_id} has actions {space}; agents here take Discrete and one-dimensional float Box actions")
