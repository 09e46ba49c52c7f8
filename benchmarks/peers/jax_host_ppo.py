"""PPO written by hand in JAX for environments on the host: one jitted function that acts, one that learns, NumPy between them.

The networks, the loss and the optimizer are those of `jax_ppo`. A step is one small launch, which chooses the actions. All else of a
rollout is collected in NumPy arrays, which go to the device once an iteration; the log-probabilities of the actions are computed
there at once. Of the forms that were tried, this is the fastest: stores on the device, passed to each step by donation, take longer.
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
        self.n_obs, self.n_actions = math.prod(environment.observations.shape), environment.actions.count
        self.start, self.act = jax.jit(self._start), jax.jit(choose)
        self._update = learner(recipe, iterations)
        self.learn = jax.jit(self._learn, donate_argnums=(0, 1))

    def _start(self, seed: Array) -> tuple[Any, Any, Array]:
        key, policy_key, value_key = jax.random.split(jax.random.key(seed), 3)
        sizes = (self.n_obs, *self.recipe.hidden)
        params = {
            "policy": initial_layers(policy_key, (*sizes, self.n_actions), 0.01),
            "value": initial_layers(value_key, (*sizes, 1), 1.0),
        }
        return params, initial_adam(params), key

    def _learn(self, params: Any, adam: Any, rollout: Rollout, key: Array, number: Array) -> tuple[Any, Any, dict[str, Array]]:
        log_prob = log_probability(network(params["policy"], rollout.obs), rollout.action)
        return self._update(params, adam, rollout._replace(log_prob=log_prob), key, number)

    def run(self) -> dict[str, float]:
        over = (self.recipe.num_steps, self.recipe.num_envs)
        params, adam, key = self.start(np.uint32(self.recipe.seed))
        now = self.environment.reset()
        metrics: dict[str, Array] = {}
        for iteration in range(self.iterations):
            key, act_key, learn_key = jax.random.split(key, 3)
            obs, final_obs = (np.zeros((*over, self.n_obs), np.float32) for _ in range(2))
            action, reward, episode_return = (np.zeros(over, dtype) for dtype in (np.int32, np.float32, np.float32))
            terminated, truncated = (np.zeros(over, bool) for _ in range(2))
            for t in range(over[0]):
                obs[t] = now
                action[t] = np.asarray(self.act(params["policy"], now, act_key, np.int32(t)))
                now, reward[t], terminated[t], truncated[t], final_obs[t], episode_return[t], _ = self.environment.step(action[t])
            done = terminated | truncated
            rollout = Rollout(obs, action, None, reward, terminated, done, final_obs, episode_return)
            params, adam, metrics = self.learn(params, adam, rollout, learn_key, np.float32(iteration))
        return {name: float(value) for name, value in jax.device_get(metrics).items()}


def choose(policy: Any, obs: Array, key: Array, t: Array) -> Array:
    """The actions of step t."""
    return jax.random.categorical(jax.random.fold_in(key, t), network(policy, obs)).astype(jnp.int32)
