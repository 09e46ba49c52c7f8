"""Reinforcement learning on recurrent tensors: agents, environments, recipes and the `tempo-rl` command.

`PPO("CartPole-v1").train().evaluate()` is the short way; docs/rl.md has the others. The names are imported when they are used, so that
commands that need no compiler start at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempo_rl.agents import build_agent
    from tempo_rl.agents.advantage import bootstrapped_return, generalized_advantage, n_step_return
    from tempo_rl.agents.base import Agent, Monitor, episode_metrics, report
    from tempo_rl.algorithms import A2C, DQN, PPO, REINFORCE, SAC, TD3, Algorithm, load
    from tempo_rl.continuous import DeterministicPolicy, SquashedPolicy, TwinCritics
    from tempo_rl.distributions import Categorical, Deterministic, Distribution, EpsilonGreedy, Gaussian, SquashedGaussian
    from tempo_rl.env import make, make_environment
    from tempo_rl.env.source import AnyEnvironment, JaxEnvironment
    from tempo_rl.env.transition import Transition
    from tempo_rl.errors import CheckpointError, EnvError, RecipeError, RLError, RunError
    from tempo_rl.evaluate import Evaluation
    from tempo_rl.models import ActionValues, ActorCritic, build_model
    from tempo_rl.monitor import Callback, Iteration
    from tempo_rl.recipe import (
        ActorCriticRecipe,
        DQNRecipe,
        EnvRecipe,
        PPORecipe,
        Recipe,
        ReinforceRecipe,
        SACRecipe,
        ScheduleRecipe,
        TD3Recipe,
    )
    from tempo_rl.train import TrainingError

_MODULES = {
    "agents": ("build_agent",),
    "agents.advantage": ("bootstrapped_return", "generalized_advantage", "n_step_return"),
    "agents.base": ("Agent", "Monitor", "episode_metrics", "report"),
    "algorithms": ("A2C", "DQN", "PPO", "REINFORCE", "SAC", "TD3", "Algorithm", "load"),
    "continuous": ("DeterministicPolicy", "SquashedPolicy", "TwinCritics"),
    "distributions": ("Categorical", "Deterministic", "Distribution", "EpsilonGreedy", "Gaussian", "SquashedGaussian"),
    "env": ("make", "make_environment"),
    "env.source": ("AnyEnvironment", "JaxEnvironment"),
    "env.transition": ("Transition",),
    "errors": ("CheckpointError", "EnvError", "RLError", "RecipeError", "RunError"),
    "evaluate": ("Evaluation",),
    "models": ("ActionValues", "ActorCritic", "build_model"),
    "monitor": ("Callback", "Iteration"),
    "recipe": (
        "ActorCriticRecipe",
        "DQNRecipe",
        "EnvRecipe",
        "PPORecipe",
        "Recipe",
        "ReinforceRecipe",
        "SACRecipe",
        "ScheduleRecipe",
        "TD3Recipe",
    ),
    "train": ("TrainingError",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "A2C", "DQN", "PPO", "REINFORCE", "SAC", "TD3", "Algorithm", "load", "Callback", "Iteration", "Evaluation",
    "Agent", "Monitor", "build_agent", "build_model", "episode_metrics", "report", "bootstrapped_return", "generalized_advantage",
    "n_step_return",
    "ActionValues", "ActorCritic", "Categorical", "Distribution", "EpsilonGreedy", "Gaussian",
    "Deterministic", "DeterministicPolicy", "SquashedGaussian", "SquashedPolicy", "TwinCritics",
    "AnyEnvironment", "JaxEnvironment", "Transition", "make", "make_environment",
    "ActorCriticRecipe", "DQNRecipe", "EnvRecipe", "PPORecipe", "Recipe", "ReinforceRecipe", "SACRecipe", "ScheduleRecipe", "TD3Recipe",
    "CheckpointError", "EnvError", "RLError", "RecipeError", "RunError", "TrainingError",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'tempo_rl' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tempo_rl.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
