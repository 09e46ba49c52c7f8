"""PPO written by hand in JAX: the whole training run is one jitted function of the seed, loops are `lax.scan`.

In the style of PureJaxRL, with the same environment, networks, initial values, hyperparameters and treatment of truncated
episodes as `tempo_rl`'s PPO. Random numbers are JAX's own, so single runs differ while their distribution is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = Any
Layers = list[tuple[Array, Array]]  # weights [in, out] and biases [out]


class Rollout(NamedTuple):
    """The results of T steps of B environments, each [T, B, ...]."""

    obs: Array
    action: Array
    log_prob: Array
    reward: Array
    terminated: Array
    done: Array
    final_obs: Array
    episode_return: Array


def make_training(
    recipe: Any, single: Any, iterations: int, hear: Callable[[Array, Array], None] | None = None
) -> Callable[[Array], tuple[Any, dict[str, Array]]]:
    """A jitted function from a uint32 seed to the parameters after `iterations`, and each iteration's metrics [iterations].

    `recipe` is a `tempo_rl` PPO recipe, `single` a `SingleEnvironment` with discrete actions. `hear` is called on the host after each
    iteration, with its number and its mean return.
    """
    envs, steps, hidden = recipe.num_envs, recipe.num_steps, tuple(recipe.hidden)
    n_obs, n_actions = math.prod(single.observations.shape), single.actions.count
    learn = learner(recipe, iterations)
    reset, advance = jax.vmap(single.initial), jax.vmap(single.step)

    def key_data(key: Array) -> Array:
        return jax.random.bits(key, (envs, 2), "uint32")

    def act(params: Any, state: Array, obs: Array, key: Array) -> tuple[Array, Array, Rollout]:
        action_key, env_key = jax.random.split(key)
        logits = network(params["policy"], obs)
        action = jax.random.categorical(action_key, logits).astype(jnp.int32)
        log_prob = log_probability(logits, action)
        state, following, reward, terminated, truncated, final, episode_return, _ = advance(state, action, key_data(env_key))
        return state, following, Rollout(obs, action, log_prob, reward, terminated, terminated | truncated, final, episode_return)

    def iterate(state: Any, number: Array) -> tuple[Any, dict[str, Array]]:
        params, adam, env_state, obs, key = state
        key, act_key, learn_key = jax.random.split(key, 3)

        def step(now: tuple[Array, Array], step_key: Array) -> tuple[tuple[Array, Array], Rollout]:
            env_state, obs, seen = act(params, *now, step_key)
            return (env_state, obs), seen

        (env_state, obs), rollout = lax.scan(step, (env_state, obs), jax.random.split(act_key, steps))
        params, adam, metrics = learn(params, adam, rollout, learn_key, number)
        if hear is not None:
            jax.debug.callback(hear, number, metrics["episodic_return"], ordered=True)
        return (params, adam, env_state, obs, key), metrics

    def train(seed: Array) -> tuple[Any, dict[str, Array]]:
        key, env_key, policy_key, value_key = jax.random.split(jax.random.key(seed), 4)
        params = {
            "policy": initial_layers(policy_key, (n_obs, *hidden, n_actions), 0.01),
            "value": initial_layers(value_key, (n_obs, *hidden, 1), 1.0),
        }
        env_state, obs = reset(key_data(env_key))
        state = (params, initial_adam(params), env_state, obs, key)
        state, metrics = lax.scan(iterate, state, jnp.arange(iterations, dtype=jnp.float32))
        return state[0], metrics

    return jax.jit(train)


def learner(recipe: Any, iterations: int) -> Callable[..., tuple[Any, Any, dict[str, Array]]]:
    """The function that learns from a rollout: parameters and optimizer's state after all epochs, and metrics."""
    batch = recipe.num_envs * recipe.num_steps

    def advantages(params: Any, rollout: Rollout) -> tuple[Array, Array]:
        """Generalized advantage estimates and values, [T, B] each. Values of all steps are computed at once."""
        value = network(params["value"], rollout.obs)[..., 0]
        next_value = network(params["value"], rollout.final_obs)[..., 0]
        delta = rollout.reward + recipe.gamma * jnp.where(rollout.terminated, 0.0, next_value) - value
        decay = jnp.where(rollout.done, 0.0, recipe.gamma * recipe.gae_lambda)

        def backwards(after: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            now = at[0] + at[1] * after
            return now, now

        _, advantage = lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)
        return advantage, value

    def loss_of(params: Any, obs: Array, action: Array, old: Array, advantage: Array, target: Array, old_value: Array) -> Any:
        if recipe.norm_adv:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        logits, value = network(params["policy"], obs), network(params["value"], obs)[..., 0]
        log_ratio = log_probability(logits, action) - old
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - recipe.clip_coef, 1 + recipe.clip_coef)
        policy_loss = jnp.maximum(-advantage * ratio, -advantage * clipped).mean()
        error = (value - target) ** 2
        if recipe.clip_vloss:
            near = old_value + jnp.clip(value - old_value, -recipe.clip_coef, recipe.clip_coef)
            error = jnp.maximum(error, (near - target) ** 2)
        value_loss = 0.5 * error.mean()
        every = jax.nn.log_softmax(logits)
        entropy = -(jnp.exp(every) * every).sum(-1).mean()
        loss = policy_loss - recipe.ent_coef * entropy + recipe.vf_coef * value_loss
        clipfrac = (jnp.abs(ratio - 1) > recipe.clip_coef).mean(dtype=jnp.float32)
        metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return loss, metrics | {"approx_kl": ((ratio - 1) - log_ratio).mean(), "clipfrac": clipfrac}

    def learn(params: Any, adam: Any, rollout: Rollout, learn_key: Array, number: Array) -> tuple[Any, Any, dict[str, Array]]:
        advantage, value = advantages(params, rollout)
        target = advantage + value
        data = (rollout.obs, rollout.action, rollout.log_prob, advantage, target, value)
        flat = [x.reshape(batch, *x.shape[2:]) for x in data]
        rate = recipe.learning_rate * (1 - number / iterations) if recipe.anneal_lr else recipe.learning_rate

        def minibatch(learner: Any, rows: Array) -> tuple[Any, dict[str, Array]]:
            params, adam = learner
            gradients, metrics = jax.grad(loss_of, has_aux=True)(params, *(x[rows] for x in flat))
            return update(params, adam, gradients, rate, recipe.max_grad_norm), metrics

        def epoch(learner: Any, epoch_key: Array) -> tuple[Any, dict[str, Array]]:
            order = jnp.argsort(jax.random.bits(epoch_key, (batch,)))  # jax.random.permutation sorts twice
            return lax.scan(minibatch, learner, order.reshape(recipe.num_minibatches, -1))

        (params, adam), losses = lax.scan(epoch, (params, adam), jax.random.split(learn_key, recipe.update_epochs))
        metrics = {name: x.mean() for name, x in losses.items()}
        ended = rollout.done.sum()
        finished = (rollout.episode_return * rollout.done).sum() / jnp.maximum(ended, 1)
        metrics |= {"episodic_return": jnp.where(ended > 0, finished, jnp.nan), "episodes": ended.astype(jnp.float32)}
        metrics["explained_variance"] = 1 - (target - value).var() / jnp.maximum(target.var(), 1e-8)
        return params, adam, metrics

    return learn


# -- networks ---------------------------------------------------------------------------------------------------------


def initial_layers(key: Array, sizes: tuple[int, ...], last_gain: float) -> Layers:
    """Orthogonal weights with gain sqrt(2), and `last_gain` for the last layer; zero biases."""
    gains = [math.sqrt(2.0)] * (len(sizes) - 2) + [last_gain]
    keys = jax.random.split(key, len(gains))
    orthogonal = [jax.nn.initializers.orthogonal(gain) for gain in gains]
    return [(orthogonal[k](keys[k], (sizes[k], sizes[k + 1])), jnp.zeros(sizes[k + 1])) for k in range(len(gains))]


def network(layers: Layers, x: Array) -> Array:
    """`x` (..., in) through linear layers with tanh between them."""
    for k, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        x = jnp.tanh(x) if k < len(layers) - 1 else x
    return x


def log_probability(logits: Array, action: Array) -> Array:
    """log p(action), by a one-hot sum."""
    return (jax.nn.log_softmax(logits) * jax.nn.one_hot(action, logits.shape[-1])).sum(-1)


# -- Adam with clipping by the global norm ----------------------------------------------------------------------------


def initial_adam(params: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, zeros, jnp.zeros(())


def update(params: Any, adam: Any, gradients: Any, rate: Array, max_grad_norm: float | None) -> tuple[Any, Any]:
    """Parameters and optimizer state after one step."""
    first, second, count = adam
    if max_grad_norm is not None:
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
        scale = jnp.minimum(max_grad_norm / (norm + 1e-6), 1.0)
        gradients = jax.tree.map(lambda g: g * scale, gradients)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    correction = 1 - 0.9**count, 1 - 0.999**count

    def step(w: Array, m: Array, v: Array) -> Array:
        return w - rate * (m / correction[0]) / (jnp.sqrt(v / correction[1]) + 1e-5)

    return jax.tree.map(step, params, first, second), (first, second, count)
