"""The agents, by the name that recipes give in `algorithm`."""

from __future__ import annotations

from tempo_rl.agents.actor_critic import actor_critic
from tempo_rl.agents.base import Agent, Monitor
from tempo_rl.agents.ppo import ppo
from tempo_rl.agents.reinforce import reinforce
from tempo_rl.recipe import ActorCriticRecipe, PPORecipe, Recipe, ReinforceRecipe

__all__ = ["Agent", "Monitor", "actor_critic", "build_agent", "ppo", "reinforce"]


def build_agent(recipe: Recipe, monitor: Monitor) -> Agent:
    """The program of `recipe`, which reports to `monitor`."""
    if isinstance(recipe, PPORecipe):
        return ppo(recipe, monitor)
    if isinstance(recipe, ReinforceRecipe):
        return reinforce(recipe, monitor)
    assert isinstance(recipe, ActorCriticRecipe)
    return actor_critic(recipe, monitor)
