"""PPO written by hand in JAX for environments on the host: one jitted function that acts, one that learns, NumPy between them.

The networks, the loss and the optimizer are those of `jax_ppo`. Acting is one launch a step: it gives the action and writes what it
has seen and drawn into stores of the rollout, which it takes by donation. The results of the environments are collected in NumPy
arrays, which go to the device once an iteration.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.jax_ppo import Rollout, initial_adam, initial_layers, learner, log_probability, network

Array = Any


class Training:
    """`run()` trains from fresh parameters and returns the metrics of the last iteration."""

    def __init__(self, recipe: Any, environment: Any, iterations: int):
        self.recipe, self.environment, self.iterations = recipe, environment, iterations
        self.envs, self.steps = recipe.num_envs, recipe.num_steps
        self.n_obs, self.n_actions = math.prod(environment.observations.shape), environment.actions.count
        self.learn = jax.jit(learner(recipe, iterations), donate_argnums=(0, 1))
        self.act = jax.jit(act, donate_argnums=1)
        self.start = jax.jit(self._start)

    def _start(self, seed: Array) -> tuple[Any, Any, Array]:
        key, policy_key, value_key = jax.random.split(jax.random.key(seed), 3)
        sizes = (self.n_obs, *self.recipe.hidden)
        params = {
            "policy": initial_layers(policy_key, (*sizes, self.n_actions), 0.01),
            "value": initial_layers(value_key, (*sizes, 1), 1.0),
        }
        return params, initial_adam(params), key

    def run(self) -> dict[str, float]:
        params, adam, key = self.start(np.uint32(self.recipe.seed))
        obs = self.environment.reset()
        over = (self.steps, self.envs)
        metrics: dict[str, Array] = {}
        for iteration in range(self.iterations):
            key, act_key, learn_key = jax.random.split(key, 3)
            seen = (jnp.zeros((*over, self.n_obs)), jnp.zeros(over, jnp.int32), jnp.zeros(over))
            results = [np.zeros(over, dtype) for dtype in (np.float32, bool, bool, np.float32)]
            final_obs = np.zeros((*over, self.n_obs), np.float32)
            for t in range(self.steps):
                seen, action = self.act(params["policy"], seen, obs, act_key, np.int32(t))
                step = self.environment.step(np.asarray(action))
                obs, reward, terminated, truncated, final_obs[t], episode_return = step[:6]
                for store, value in zip(results, (reward, terminated, truncated, episode_return), strict=True):
                    store[t] = value
            reward, terminated, truncated, episode_return = results
            rollout = Rollout(*seen, reward, terminated, terminated | truncated, final_obs, episode_return)
            params, adam, metrics = self.learn(params, adam, rollout, learn_key, np.float32(iteration))
        return {name: float(value) for name, value in jax.device_get(metrics).items()}


def act(policy: Any, seen: tuple[Array, Array, Array], obs: Array, key: Array, t: Array) -> tuple[tuple[Array, ...], Array]:
    """The stores of observations, actions and log-probabilities after step t, and its action."""
    logits = network(policy, obs)
    action = jax.random.categorical(jax.random.fold_in(key, t), logits).astype(jnp.int32)
    now = (obs, action, log_probability(logits, action))
    return tuple(store.at[t].set(value) for store, value in zip(seen, now, strict=True)), action
