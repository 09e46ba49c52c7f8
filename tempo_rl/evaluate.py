"""Evaluation: the policy is a program without steps, compiled once and called once per environment step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import tempo_core as tp
from tempo_rl.env import make_vector
from tempo_rl.env.vector import VectorEnvironment
from tempo_rl.errors import RLError
from tempo_rl.models import ActorCritic
from tempo_rl.recipe import Recipe

Policy = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of whole episodes."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())


def greedy_policy(
    recipe: Recipe, env: VectorEnvironment, parameters: Mapping[str, np.ndarray], cache: str | bool | None = None
) -> Policy:
    """The most likely actions (B, ...) for observations (B, ...), under `parameters`."""
    ctx = tp.Context()
    with ctx:
        model = ActorCritic.build(env.observations, env.actions, recipe.hidden, critic=False, fed=True)
        observation = tp.input("observation", (env.num_envs, *env.observations.shape), env.observations.dtype)
        action = model.policy(observation).mode()
    names = list(model.parameters())
    missing = sorted(set(names) - set(parameters))
    if missing:
        raise RLError(f"the checkpoint lacks the parameters {', '.join(missing)}")
    program = ctx.compile({}, outputs=[action], config=tp.Config(cache=cache)).bind({name: parameters[name] for name in names})
    return lambda observations: np.asarray(program.run({"observation": observations})[0])


def play(env: VectorEnvironment, policy: Policy, episodes: int) -> Evaluation:
    """Play exactly `episodes` episodes, divided evenly between the environments in advance.

    To take the first episodes that finish would favour short ones.
    """
    quota = np.array([episodes // env.num_envs + (k < episodes % env.num_envs) for k in range(env.num_envs)])
    returns: list[list[float]] = [[] for _ in range(env.num_envs)]
    lengths: list[list[int]] = [[] for _ in range(env.num_envs)]
    observation = env.reset()
    while any(len(finished) < count for finished, count in zip(returns, quota, strict=True)):
        step = env.step(policy(observation))
        observation = step.observation
        for k in np.flatnonzero(step.terminated | step.truncated):
            if len(returns[k]) < quota[k]:
                returns[k].append(float(step.episode_return[k]))
                lengths[k].append(int(step.episode_length[k]))
    return Evaluation(np.concatenate(returns), np.concatenate(lengths))


def evaluate(
    recipe: Recipe, parameters: Mapping[str, np.ndarray], episodes: int, seed: int, cache: str | bool | None = None
) -> Evaluation:
    """Play `episodes` greedy episodes in fresh environments, with seeds that training does not use.

    `cache` is the directory of compiled programs, as in `tp.Config`.
    """
    if episodes < 1:
        raise RLError(f"an evaluation needs at least one episode, got {episodes}")
    env = make_vector(recipe.env.id, min(episodes, 32), evaluation_seed(seed), recipe.env.kwargs, recipe.env.wrappers)
    try:
        return play(env, greedy_policy(recipe, env, parameters, cache), episodes)
    finally:
        env.close()


def evaluation_seed(seed: int) -> int:
    """A seed for evaluation, far from the small numbers that are usual seeds of training."""
    return int(np.random.SeedSequence([seed, 0x5EED]).generate_state(1)[0])
