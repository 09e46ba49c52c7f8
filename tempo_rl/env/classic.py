"""Gymnasium's classic control in JAX: the same transitions, rewards and ends, as functions of float32 states.

The equations are those of Gymnasium's `CartPole-v1`, `Pendulum-v1`, `Acrobot-v1` and `MountainCarContinuous-v0`; a test compares single
transitions. Angles are kept between -π and π. Each class has the form of `gymnasium.experimental.functional.FuncEnv`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

PI = float(np.pi)


class CartPole:
    """State and observation: place, speed, angle, angular speed. Actions push left (0) or right (1). The reward is 1 a step.

    With `hide_speeds`, the observation is place and angle: an agent needs a memory, or several frames.
    """

    drawn_as: ClassVar = "CartPole-v1"  # whose states are the same
    GRAVITY, POLE, TOTAL, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
    WIDTH, ANGLE = 2.4, 24 * PI / 360

    def __init__(self, hide_speeds: bool = False) -> None:
        self.hide_speeds = hide_speeds
        high = np.array([2 * self.WIDTH, np.inf, 2 * self.ANGLE, np.inf], np.float32)[:: 2 if hide_speeds else 1]
        self.observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return jax.random.uniform(rng, (4,), minval=-0.05, maxval=0.05)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        _, speed, angle, turning = state
        force = jnp.where(action == 1, self.FORCE, -self.FORCE)
        sine, cosine, moment = jnp.sin(angle), jnp.cos(angle), self.POLE * self.HALF_LENGTH
        push = (force + moment * turning**2 * sine) / self.TOTAL
        turn = (self.GRAVITY * sine - cosine * push) / (self.HALF_LENGTH * (4.0 / 3.0 - self.POLE * cosine**2 / self.TOTAL))
        change = jnp.stack([speed, push - moment * turn * cosine / self.TOTAL, turning, turn])
        return state + self.SECONDS * change

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return state[::2] if self.hide_speeds else state

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        return jnp.ones(())

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return (jnp.abs(state[0]) > self.WIDTH) | (jnp.abs(state[2]) > self.ANGLE)


class Pendulum:
    """State: angle (0 is upright) and angular speed. The action is a torque. The reward falls with angle, speed and torque."""

    drawn_as: ClassVar = "Pendulum-v1"
    GRAVITY, MASS, LENGTH, SECONDS, MOST_SPEED, MOST_TORQUE = 10.0, 1.0, 1.0, 0.05, 8.0, 2.0
    ends_by_time_alone = True

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, self.MOST_SPEED], np.float32)
        self.observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-self.MOST_TORQUE, self.MOST_TORQUE, (1,), np.float32)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0) * jnp.array([PI, 1.0])

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        angle, turning = state
        torque = jnp.clip(action[0], -self.MOST_TORQUE, self.MOST_TORQUE)
        turn = 3 * self.GRAVITY / (2 * self.LENGTH) * jnp.sin(angle) + 3.0 / (self.MASS * self.LENGTH**2) * torque
        turning = jnp.clip(turning + turn * self.SECONDS, -self.MOST_SPEED, self.MOST_SPEED)
        return jnp.stack([_wrapped(angle + turning * self.SECONDS), turning])

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        torque = jnp.clip(action[0], -self.MOST_TORQUE, self.MOST_TORQUE)
        return -(_wrapped(state[0]) ** 2 + 0.1 * state[1] ** 2 + 0.001 * torque**2)

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.zeros((), bool)


class Acrobot:
    """State: two angles (0 hangs down) and their speeds. Actions turn the joint between the links by -1, 0 or 1; each step costs 1."""

    drawn_as: ClassVar = "Acrobot-v1"
    GRAVITY, SECONDS, HALF = (
        9.8,
        0.2,
        0.5,
    )  # links have a length, a mass and a moment of inertia of 1, and their centre in the middle
    MOST_SPEED: ClassVar = (4 * PI, 9 * PI)

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, 1.0, 1.0, *self.MOST_SPEED], np.float32)
        self.observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return jax.random.uniform(rng, (4,), minval=-0.1, maxval=0.1)

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        torque = action.astype(jnp.float32) - 1.0
        first, second, *turning = _runge_kutta(lambda s: self._change(s, torque), state, self.SECONDS)
        speeds = [jnp.clip(speed, -most, most) for speed, most in zip(turning, self.MOST_SPEED, strict=True)]
        return jnp.stack([_wrapped(first), _wrapped(second), *speeds])

    def _change(self, state: jax.Array, torque: jax.Array) -> jax.Array:
        """The derivative of the state, as in Sutton and Barto's book (1998, section 11.3)."""
        first, second, turning_1, turning_2 = state
        half, sine, cosine = self.HALF, jnp.sin(second), jnp.cos(second)
        inertia_1 = half**2 + (1 + half**2 + 2 * half * cosine) + 2
        inertia_2 = half**2 + half * cosine + 1
        pull_2 = half * self.GRAVITY * jnp.cos(first + second - PI / 2)
        spin = half * sine * (turning_2**2 + 2 * turning_2 * turning_1)
        pull_1 = -spin + (half + 1) * self.GRAVITY * jnp.cos(first - PI / 2) + pull_2
        rest = torque + inertia_2 / inertia_1 * pull_1 - half * turning_1**2 * sine - pull_2
        turn_2 = rest / (half**2 + 1 - inertia_2**2 / inertia_1)
        turn_1 = -(inertia_2 * turn_2 + pull_1) / inertia_1
        return jnp.stack([turning_1, turning_2, turn_1, turn_2])

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        first, second, turning_1, turning_2 = state
        return jnp.stack([jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second), turning_1, turning_2])

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        return jnp.where(self.terminal(next_state, rng), 0.0, -1.0)

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return -jnp.cos(state[0]) - jnp.cos(state[0] + state[1]) > 1.0


class MountainCarContinuous:
    """State and observation: place and speed. The action is a force in [-1, 1], which costs; the hill on the right is worth 100."""

    drawn_as: ClassVar = "MountainCarContinuous-v0"
    LEFT, RIGHT, GOAL, MOST_SPEED, POWER, SLOPE = -1.2, 0.6, 0.45, 0.07, 0.0015, 0.0025

    def __init__(self) -> None:
        low, high = np.array([self.LEFT, -self.MOST_SPEED], np.float32), np.array([self.RIGHT, self.MOST_SPEED], np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return jnp.stack([jax.random.uniform(rng, (), minval=-0.6, maxval=-0.4), jnp.zeros(())])

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        place, speed = state
        speed = speed + jnp.clip(action[0], -1.0, 1.0) * self.POWER - self.SLOPE * jnp.cos(3 * place)
        speed = jnp.clip(speed, -self.MOST_SPEED, self.MOST_SPEED)
        place = jnp.clip(place + speed, self.LEFT, self.RIGHT)
        return jnp.stack([place, jnp.where((place <= self.LEFT) & (speed < 0.0), 0.0, speed)])

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return state

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        return jnp.where(self.terminal(next_state, rng), 100.0, 0.0) - 0.1 * action[0] ** 2

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return (state[0] >= self.GOAL) & (state[1] >= 0.0)


def _wrapped(angle: jax.Array) -> jax.Array:
    """The same angle between -π and π."""
    return angle - 2 * PI * jnp.floor((angle + PI) / (2 * PI))


def _runge_kutta(change: Callable[[jax.Array], jax.Array], state: jax.Array, seconds: float) -> jax.Array:
    """One step of the classical Runge-Kutta method of fourth order."""
    first = change(state)
    second = change(state + seconds / 2 * first)
    third = change(state + seconds / 2 * second)
    fourth = change(state + seconds * third)
    return state + seconds / 6 * (first + 2 * second + 2 * third + fourth)
