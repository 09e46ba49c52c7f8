"""Frame stacking: the last observations of an episode, oldest first, as one. Before there are enough of them, the first one is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import tempo_core as tp
from tempo_rl.env.program import ProgramEnvironment
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import VectorEnvironment


class StackedEnv:
    """Environments in a program, whose observations (frames, *shape) are the last ones of the episode. The stack is a recurrence."""

    def __init__(self, env: ProgramEnvironment, frames: int):
        self.env, self.frames, self.num_envs, self.actions = env, frames, env.num_envs, env.actions
        self.observations = replace(env.observations, shape=(frames, *env.observations.shape), frames=frames)
        self._first: tp.Tensor | None = None

    def reset(self, domain: Sequence[tp.Expr]) -> tp.Tensor:
        """First observations, repeated."""
        self._first = self._repeated(self.env.reset(domain))
        return self._first

    def step(self, action: tp.Tensor, restarts: bool = True) -> Transition[tp.Tensor]:
        """One step of each environment. The final observation belongs to the stack of the episode that ended."""
        assert self._first is not None, "reset comes before step"
        step = self.env.step(action, restarts)
        loops = tuple(s.expr for s in action.domain.steps)
        stack = tp.recurrence(self.observations.shape, self.observations.dtype, domain=loops, name="frames")
        final = tp.concatenate([stack.spatial[1:], step.final_observation.expand_dims(0)], axis=0)
        restarted = tp.where(step.terminated | step.truncated, self._repeated(step.observation), final)
        following = restarted if restarts else final
        tp.carry(stack, self._first, following, kept=[s.expr for s in self._first.domain.steps])
        return step._replace(observation=following, final_observation=final)

    def never_ends_within(self, num_steps: int) -> bool:
        return self.env.never_ends_within(num_steps)

    def close(self) -> None:
        self.env.close()

    def _repeated(self, observation: tp.Tensor) -> tp.Tensor:
        return tp.broadcast_to(observation.expand_dims(0), self.observations.shape)

    @property
    def restarts(self) -> str:
        """Why a resumed run begins new episodes, if it does."""
        return str(getattr(self.env, "restarts", ""))


class StackedVector:
    """Environments on the host for evaluation, whose observations (B, frames, *shape) are the last ones of each episode."""

    def __init__(self, env: VectorEnvironment, frames: int):
        self.env, self.frames, self.num_envs, self.actions = env, frames, env.num_envs, env.actions
        self.observations = replace(env.observations, shape=(frames, *env.observations.shape), frames=frames)
        self._stack = np.zeros((self.num_envs, *self.observations.shape), self.observations.dtype)

    def reset(self, clock: int = 0) -> np.ndarray:
        self._stack = self._repeated(self.env.reset(clock))
        return self._stack

    def step(self, action: np.ndarray) -> Transition[np.ndarray]:
        step = self.env.step(action)
        final = np.concatenate([self._stack[:, 1:], step.final_observation[:, None]], axis=1)
        done = (step.terminated | step.truncated).reshape(-1, *[1] * (final.ndim - 1))
        self._stack = np.where(done, self._repeated(step.observation), final)
        return step._replace(observation=self._stack, final_observation=final)

    def close(self) -> None:
        self.env.close()

    def _repeated(self, observation: np.ndarray) -> np.ndarray:
        return np.repeat(observation[:, None], self.frames, axis=1)
