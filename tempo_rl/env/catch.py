"""A small task with pictures: catch what falls."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np


class Catch:
    """A ball falls through a picture, one row a step, and a paddle of three pixels at the bottom should be under it.

    The observation is a uint8 picture (size, size, 1): 255 for the ball and the paddle, 0 elsewhere. Actions move the paddle left (0), not
    at all (1), or right (2). A ball begins in a random column of the top row, with a drift of -1, 0 or 1 columns a step; it bounces off
    the sides. At the bottom, the reward is 1 if it is caught and -1 if not, and the next ball falls. After `balls` balls the episode terminates.
    One picture does not show the drift: two frames do.
    """

    def __init__(self, size: int = 12, balls: int = 5) -> None:
        self.size, self.balls = size, balls
        self.max_episode_steps = size * balls
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 1), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        """The state: row, column and drift of the ball, column of the paddle's middle, balls that have fallen."""
        return jnp.concatenate([self._ball(rng), jnp.array([self.size // 2, 0.0], jnp.float32)])

    def _ball(self, rng: jax.Array) -> jax.Array:
        place, drift = jax.random.split(rng)
        column = jax.random.randint(place, (), 0, self.size)
        return jnp.stack([jnp.zeros((), jnp.float32), column, jax.random.randint(drift, (), -1, 2)]).astype(jnp.float32)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        row, column, drift, paddle, fallen = state
        last = self.size - 1
        paddle = jnp.clip(paddle + action.astype(jnp.float32) - 1.0, 1.0, last - 1.0)
        ahead = column + drift
        drift = jnp.where((ahead < 0) | (ahead > last), -drift, drift)
        moved = jnp.stack([row + 1.0, column + drift, drift])
        is_over = row == last
        ball = jnp.where(is_over, self._ball(rng), moved)
        return jnp.concatenate([ball, jnp.stack([paddle, fallen + is_over.astype(jnp.float32)])])

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        rows, columns = jnp.arange(self.size)[:, None], jnp.arange(self.size)[None, :]
        ball = (rows == state[0]) & (columns == state[1])
        paddle = (rows == self.size - 1) & (jnp.abs(columns - state[3]) <= 1)
        return jnp.where(ball | paddle, 255, 0).astype(jnp.uint8)[..., None]

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        """1 or -1 for the step with which the ball reaches the bottom row."""
        is_caught = jnp.abs(next_state[1] - next_state[3]) <= 1
        return jnp.where(next_state[0] == self.size - 1, jnp.where(is_caught, 1.0, -1.0), 0.0)

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return (state[0] == self.size - 1) & (state[4] == self.balls - 1)
