"""REINFORCE written by hand in JAX: the whole training run is one jitted function of the seed, loops are `lax.scan`.

The same environment, network, initial values, hyperparameters and returns as `tempo_rl`'s REINFORCE. Random numbers are JAX's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.peers.jax_ppo import Array, initial_adam, initial_layers, log_probability, network, update


def make_training(recipe: Any, single: Any, iterations: int) -> Callable[[Array], tuple[Any, dict[str, Array]]]:
    """A jitted function from a uint32 seed to the parameters after `iterations`, and each iteration's metrics [iterations].

    `recipe` is a `tempo_rl` REINFORCE recipe, `single` a `SingleEnvironment` with discrete actions.
    """
    envs, steps = recipe.num_envs, recipe.num_steps
    sizes = (math.prod(single.observations.shape), *recipe.hidden, single.actions.count)
    reset, advance = jax.vmap(single.initial), jax.vmap(single.step)

    def key_data(key: Array) -> Array:
        return jax.random.bits(key, (envs, 2), "uint32")

    def loss_of(params: Any, obs: Array, action: Array, weight: Array) -> Any:
        logits = network(params, obs)
        every = jax.nn.log_softmax(logits)
        entropy = -(jnp.exp(every) * every).sum(-1).mean()
        policy_loss = -(log_probability(logits, action) * weight).mean()
        loss = policy_loss - recipe.ent_coef * entropy
        return loss, {"loss": loss, "policy_loss": policy_loss, "entropy": entropy}

    def iterate(state: Any, number: Array) -> tuple[Any, dict[str, Array]]:
        params, adam, key = state
        key, reset_key, act_key = jax.random.split(key, 3)

        def step(now: tuple[Array, Array], step_key: Array) -> Any:
            env_state, obs = now
            action_key, env_key = jax.random.split(step_key)
            action = jax.random.categorical(action_key, network(params, obs)).astype(jnp.int32)
            env_state, following, reward, terminated, truncated, _, total, _ = advance(env_state, action, key_data(env_key))
            return (env_state, following), (obs, action, reward, terminated | truncated, total)

        _, (obs, action, reward, done, total) = lax.scan(step, reset(key_data(reset_key)), jax.random.split(act_key, steps))

        def backwards(after: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            now = at[0] + jnp.where(at[1], 0.0, recipe.gamma) * after
            return now, now

        _, weight = lax.scan(backwards, jnp.zeros(envs), (reward, done), reverse=True)
        if recipe.norm_returns:
            weight = (weight - weight.mean()) / (weight.std() + 1e-8)
        rate = recipe.learning_rate * (1 - number / iterations) if recipe.anneal_lr else recipe.learning_rate
        gradients, metrics = jax.grad(loss_of, has_aux=True)(params, obs, action, weight)
        params, adam = update(params, adam, gradients, rate, recipe.max_grad_norm)
        ended = done.sum()
        metrics["episodic_return"] = jnp.where(ended > 0, (total * done).sum() / jnp.maximum(ended, 1), jnp.nan)
        return (params, adam, key), metrics

    def train(seed: Array) -> tuple[Any, dict[str, Array]]:
        key, policy_key = jax.random.split(jax.random.key(seed))
        params = initial_layers(policy_key, sizes, 0.01)
        state, metrics = lax.scan(iterate, (params, initial_adam(params), key), jnp.arange(iterations, dtype=jnp.float32))
        return state[0], metrics

    return jax.jit(train)
