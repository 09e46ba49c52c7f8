"""Environments with rewards, observations and ends that a test can work out in advance."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np

ID = "TempoScripted-v0"


class Scripted(gym.Env[np.ndarray, Any]):
    """With `ends` = [("terminated", 2), ("truncated", 3)], episodes terminate after 2 steps and are truncated after 3, in turn.

    The observation is (episode, step). The reward is 10 * episode + step, with the step before the action.
    """

    def __init__(self, ends: list[tuple[str, int]], continuous: bool = False):
        self.ends = ends
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(2, start=5)
        self.episode, self.count = -1, 0
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        reward = float(10 * self.episode + self.count)
        self.count += 1
        kind, length = self.ends[self.episode % len(self.ends)]
        over = self.count == length
        return self._observation(), reward, over and kind == "terminated", over and kind == "truncated", {}

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.count], np.float32)


class Faulty(Scripted):
    """At the third step of each episode it does what `fault` says."""

    def __init__(self, fault: str):
        super().__init__([("terminated", 5)])
        self.fault = fault

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.count == 3:
            if self.fault == "block":
                time.sleep(600)
            if self.fault == "die":
                os._exit(1)
            if self.fault == "observation":
                observation = observation * np.float32("nan")
            if self.fault == "reward":
                reward = float("inf")
            if self.fault == "large":
                reward = 1e300
            if self.fault == "raise":
                raise LookupError("100% of it")
            if self.fault in WRONG:
                parts: Any = [observation, reward, terminated, truncated, info]
                at, value = WRONG[self.fault]
                parts[at] = value
                return tuple(parts)
        return observation, reward, terminated, truncated, info


WRONG: dict[str, tuple[int, Any]] = {  # by fault: the part of a step, and what it is
    "a text as a reward": (1, "1.5"),
    "a truth value as a reward": (1, True),
    "a text as an end": (2, "False"),
    "a number as an end": (3, 1),
    "another shape": (0, np.zeros(3, np.float32)),
    "texts": (0, np.array(["1", "2"])),
}


def two_frames(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A wrapper whose state is not known."""
    return gym.wrappers.FrameStackObservation(env, 2)


if ID not in gym.registry:
    gym.register(ID, entry_point=Scripted, disable_env_checker=True, order_enforce=False)
