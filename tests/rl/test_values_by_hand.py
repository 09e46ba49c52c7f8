"""What agents learn on environments whose values a person can write down: at time limits, at cuts, from several rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tempo_rl

TABLE: Any = {"embedding": 0, "hidden": [], "anneal_lr": False, "eval_episodes": 0}  # one weight for each observation


class Clock(gym.Env[Any, Any]):
    """The observation is the step of the episode, up to `last`. Each step has the reward 1; the episode terminates after `length` steps."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int, last: int):
        self.length, self.last = length, last
        self.observation_space = gym.spaces.Discrete(last + 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return min(self.count, self.last), 1.0, self.count == self.length, False, {}


@pytest.mark.parametrize(
    ("kwargs", "right"),
    [
        ({"length": 3, "last": 2}, [1.75, 1.5, 1.0]),  # 1 + 0.5 (1 + 0.5), 1 + 0.5, and 1; a rollout of 5 cuts each second episode
        ({"length": 99, "last": 0, "max_episode_steps": 3}, [2.0]),  # 1 + 0.5 + 0.25 + ..., wherever a time limit or a cut comes
    ],
    ids=["a rollout that cuts", "a time limit"],
)
def test_a_baseline_learns_the_values_of_episodes_that_are_cut(kwargs: dict[str, Any], right: list[float]) -> None:
    env = tempo_rl.EnvRecipe(Clock, kwargs=kwargs)
    keys = TABLE | {"num_envs": 2, "num_steps": 5, "total_timesteps": 3000, "learning_rate": 0.03}
    agent = tempo_rl.REINFORCE(env, baseline=True, norm_returns=False, gamma=0.5, **keys).train()
    assert agent.parameters is not None
    values = (agent.parameters["value.0.weight"] + agent.parameters["value.0.bias"]).ravel()
    np.testing.assert_allclose(values, right, atol=0.02)
