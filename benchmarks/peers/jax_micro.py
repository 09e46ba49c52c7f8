"""The PPO of `recipes/ppo_micro.yaml` written by hand in JAX: the whole training run is one jitted function of the seed.

Rollouts of a fixed length in fresh episodes, a trunk that policy and value share, Gaussian actions, one update on the whole batch. With
`strips`, the gradient is a `lax.scan` over so many parts of the rollout's times, each of which adds to the gradient of the weights: a person
who knows the cache writes it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.peers.jax_ppo import Array, initial_adam, initial_layers, network, update


def make_training(recipe: Any, single: Any, iterations: int, strips: int = 1) -> Callable[[Array], tuple[Any, dict[str, Array]]]:
    """A jitted function from a uint32 seed to the parameters after `iterations`, and each iteration's metrics [iterations].

    `recipe` is a `tempo_rl` PPO recipe with `shared: true`, continuous actions, one epoch and one minibatch; `single` a
    `SingleEnvironment` whose episodes end with the rollout. `strips` divides the number of steps.
    """
    envs, steps, environment = recipe.num_envs, recipe.num_steps, single.function
    n_obs, n_actions, batch = math.prod(single.observations.shape), single.actions.shape[0], envs * steps
    unused = jax.random.key(0)  # the environment draws nothing after its start
    observe = jax.vmap(lambda state: environment.observation(state, unused).reshape(-1))
    transition = jax.vmap(lambda state, action: environment.transition(state, action, unused))
    reward_of = jax.vmap(lambda state, action, following: environment.reward(state, action, following, unused))
    initial = jax.vmap(environment.initial)

    def seen(params: Any, obs: Array) -> Array:
        obs = obs.astype(jnp.float32) * (1.0 / 255.0) if obs.dtype == jnp.uint8 else obs
        for weight, bias in params["trunk"]:
            obs = jnp.tanh(obs @ weight + bias)
        return obs

    def log_probability(params: Any, mean: Array, action: Array) -> Array:
        scaled = (action - mean) * jnp.exp(-params["log_std"])
        return (-0.5 * scaled**2 - params["log_std"] - 0.5 * math.log(2 * math.pi)).sum(-1)

    def act(params: Any, state: Array, noise: Array) -> tuple[Array, tuple[Array, ...]]:
        obs = observe(state)
        features = seen(params, obs)
        mean, value = network(params["policy"], features), network(params["value"], features)[..., 0]
        action = mean + jnp.exp(params["log_std"]) * noise
        following = transition(state, action)
        return following, (obs, action, log_probability(params, mean, action), value, reward_of(state, action, following))

    def losses(params: Any, data: tuple[Array, ...]) -> tuple[Array, dict[str, Array]]:
        """The share of some rows in the loss of the whole batch, and in its metrics."""
        obs, action, old, advantage, target = data
        features = seen(params, obs)
        value = network(params["value"], features)[..., 0]
        log_ratio = log_probability(params, network(params["policy"], features), action) - old
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - recipe.clip_coef, 1 + recipe.clip_coef)
        policy_loss = jnp.maximum(-advantage * ratio, -advantage * clipped).sum() / batch
        value_loss = 0.5 * ((value - target) ** 2).sum() / batch
        entropy = (params["log_std"] + 0.5 * math.log(2 * math.pi * math.e)).sum() * advantage.size / batch
        loss = policy_loss - recipe.ent_coef * entropy + recipe.vf_coef * value_loss
        metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        clipfrac = (jnp.abs(ratio - 1) > recipe.clip_coef).sum() / batch
        return loss, metrics | {"approx_kl": ((ratio - 1) - log_ratio).sum() / batch, "clipfrac": clipfrac}

    def gradients(params: Any, data: tuple[Array, ...]) -> tuple[Any, dict[str, Array]]:
        of_rows = jax.grad(losses, has_aux=True)
        if strips == 1:
            return of_rows(params, data)
        parts = tuple(x.reshape(strips, steps // strips, *x.shape[1:]) for x in data)
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_rows, params, tuple(x[0] for x in parts)))

        def add(total: Any, part: tuple[Array, ...]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, of_rows(params, part)), None

        return lax.scan(add, none, parts)[0]

    def iterate(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
        params, adam, key = state
        key, start_key, noise_key = jax.random.split(key, 3)
        noise = jax.random.normal(noise_key, (steps, envs, n_actions))
        first = initial(jax.random.split(start_key, envs))
        final, (obs, action, log_prob, value, reward) = lax.scan(lambda s, n: act(params, s, n), first, noise)
        last = network(params["value"], seen(params, observe(final)))[..., 0]  # time alone ends an episode
        delta = reward + recipe.gamma * jnp.concatenate([value[1:], last[None]]) - value

        def backwards(after: Array, now: Array) -> tuple[Array, Array]:
            advantage = now + recipe.gamma * recipe.gae_lambda * after
            return advantage, advantage

        _, advantage = lax.scan(backwards, jnp.zeros(envs), delta, reverse=True)
        target = advantage + value
        normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8) if recipe.norm_adv else advantage
        found, metrics = gradients(params, (obs, action, log_prob, normal, target))
        params, adam = update(params, adam, found, recipe.learning_rate, recipe.max_grad_norm)
        metrics |= {"episodic_return": reward.sum(0).mean(), "episodes": jnp.asarray(envs, jnp.float32)}
        metrics["explained_variance"] = 1 - (target - value).var() / jnp.maximum(target.var(), 1e-8)
        return (params, adam, key), metrics

    def train(seed: Array) -> tuple[Any, dict[str, Array]]:
        key, trunk_key, policy_key, value_key = jax.random.split(jax.random.key(seed), 4)
        sizes = (n_obs, *recipe.hidden)
        params = {
            "trunk": initial_layers(trunk_key, sizes, math.sqrt(2.0)),
            "policy": initial_layers(policy_key, (sizes[-1], n_actions), 0.01),
            "value": initial_layers(value_key, (sizes[-1], 1), 1.0),
            "log_std": jnp.zeros(n_actions),
        }
        state, metrics = lax.scan(iterate, (params, initial_adam(params), key), length=iterations)
        return state[0], metrics

    return jax.jit(train)
