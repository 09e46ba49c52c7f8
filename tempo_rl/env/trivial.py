"""An environment that costs almost nothing, for measuring agents."""

from __future__ import annotations

import math
from collections.abc import Sequence

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np


class Trivial:
    """A number s in [-1, 1] that actions push, and that should stay at 0: the reward is -|s|.

    s becomes clip(s + 0.05 mean(clip(a, -1, 1)), -1, 1). Observation j (row by row in `observation_shape`) is
    2 frac(s c_j + p_j) - 1 with c_j = 3 + 0.37 (j mod 97) and p_j = 0.013 (j mod 101); with `pictures`, it is a byte, floor(256 frac(...)).
    An episode begins at a uniform s, and ends by its time limit alone: by default with the rollout.
    """

    ends_by_time_alone = True

    def __init__(self, observation_shape: int | Sequence[int] = 48, actions: int = 4, pictures: bool = False):
        shape = (observation_shape,) if isinstance(observation_shape, int) else tuple(observation_shape)
        low, high, dtype = (0, 255, np.uint8) if pictures else (-1.0, 1.0, np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)
        place = np.arange(math.prod(shape)).reshape(shape)
        self._slope, self._offset = ((3 + 0.37 * (place % 97)).astype(np.float32), (0.013 * (place % 101)).astype(np.float32))

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return jax.random.uniform(rng, (1,), minval=-1.0, maxval=1.0)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.clip(state + 0.05 * jnp.clip(action, -1.0, 1.0).mean(), -1.0, 1.0)

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        phase = state[0] * self._slope + self._offset
        part = phase - jnp.floor(phase)
        return (256.0 * part).astype(jnp.uint8) if self.observation_space.dtype == np.uint8 else 2.0 * part - 1.0

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        return -jnp.abs(next_state[0])

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.zeros((), bool)
