"""The agents, by their names in a recipe's key `algorithm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tempo_rl.agents.actor_critic import actor_critic
from tempo_rl.agents.base import Agent, Monitor
from tempo_rl.agents.dqn import dqn
from tempo_rl.agents.ppo import ppo
from tempo_rl.agents.reinforce import reinforce
from tempo_rl.agents.sac import sac
from tempo_rl.agents.td3 import td3
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import Recipe
from tempo_rl.references import load_reference

__all__ = ["AGENTS", "Agent", "Monitor", "actor_critic", "build_agent", "dqn", "ppo", "reinforce", "sac", "td3"]

# Each function takes the recipe class of its algorithm; `recipe.ALGORITHMS` has the same names.
AGENTS: Mapping[str, Callable[[Any, Monitor], Agent]] = {
    "ppo": ppo,
    "actor_critic": actor_critic,
    "reinforce": reinforce,
    "dqn": dqn,
    "sac": sac,
    "td3": td3,
}


def build_agent(recipe: Recipe, monitor: Monitor) -> Agent:
    """The program of `recipe`, which reports to `monitor`."""
    if recipe.algorithm in AGENTS:
        return AGENTS[recipe.algorithm](recipe, monitor)
    agent = load_reference(recipe.algorithm)(recipe, monitor)
    if not isinstance(agent, Agent):
        raise RecipeError(f"{recipe.algorithm} gives {agent!r}, not an Agent", hint="return an Agent(ctx, bounds, env, model)")
    return agent
