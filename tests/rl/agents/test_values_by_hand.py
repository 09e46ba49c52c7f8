"""What agents learn on environments whose values a person can write down: at time limits, at cuts, from several rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tempo_rl
from tests.cases import fast

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
        (
            {"length": 3, "last": 2},
            [1.75, 1.5, 1.0],
        ),  # 1 + 0.5 (1 + 0.5), 1 + 0.5, and 1; a rollout of 5 cuts each second episode
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


class Late(Clock):
    """Only the last step has the reward 1."""

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        observation, _, is_last, _, _ = super().step(action)
        return observation, float(is_last), is_last, False, {}


@pytest.mark.parametrize("num_steps", fast([1, 2, 5], 1))
def test_returns_of_three_rewards_go_through_iterations(num_steps: int) -> None:
    """The target network stays near 0, so that the value of the first step is 0 with one reward or two, and 0.5 * 0.5 with three."""
    keys = TABLE | {"num_envs": 4, "num_steps": num_steps, "total_timesteps": 1600, "gradient_steps": num_steps}
    keys |= {"learning_rate": 0.03, "learning_starts": 40, "start_e": 1.0, "end_e": 1.0, "batch_size": 64}
    env = tempo_rl.EnvRecipe(Late, kwargs={"length": 3, "last": 2})
    sweep = {"gamma": [0.5, 0.0]} if num_steps == 2 else {}
    agent = tempo_rl.DQN(env, n_step=3, gamma=0.5, target_network_frequency=10**6, double_q=False, sweep=sweep, **keys).train()
    assert agent.parameters is not None
    values = (agent.parameters["policy.0.weight"] + agent.parameters["policy.0.bias"]).mean(1)
    np.testing.assert_allclose(values, [0.25, 0.5, 1.0], atol=0.02)


def test_returns_with_more_rewards_than_there_are_steps_are_refused() -> None:
    with pytest.raises(
        tempo_rl.RecipeError, match=r"n_step=3 is more than num_steps=1: a return ends with its rollout. Write num_s"
    ):
        tempo_rl.A2C("CartPole-v1", num_steps=1, n_step=3)
    with pytest.raises(
        tempo_rl.RecipeError, match=r"n_step=9 is more than the steps of one environment .* write buffer_size=72 or"
    ):
        tempo_rl.DQN("CartPole-v1", num_envs=8, num_steps=4, n_step=9, buffer_size=32)
