"""n-step TD on pictures by hand in JAX: one scan that collects the whole rollout and one that learns; or one loop that keeps n pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.memory.ring import PIXELS, SHAPE, move, picture, policy

Array = Any


def make_learning(steps: int, n: int, gamma: float, rate: float, with_window: bool) -> Callable[..., tuple[Array, Array]]:
    """A jitted function from weights [H, P] and [H] and the first places [B] to the weights of the last step."""
    powers = gamma ** jnp.arange(n, dtype=jnp.float32)[:, None]

    def value(weights: tuple[Array, Array], pictures: Array) -> Array:
        w, v = weights
        return jnp.tanh(jnp.einsum("bp,hp->bh", pictures.reshape(-1, PIXELS).astype(jnp.float32), w) / 255) @ v

    def learn(weights: Any, now: Array, returns: Array, ahead: Array, weight: Array) -> Any:
        target = returns + weight * value(weights, ahead)
        gradients = jax.grad(lambda weights: 0.5 * ((target - value(weights, now)) ** 2).mean())(weights)
        return jax.tree.map(lambda w, g: w - rate * g, weights, gradients)

    def act(place: Array, _: Any = None) -> tuple[Array, tuple[Array, Array]]:
        following, reward = move(place, policy(place))
        return following, (picture(place), reward)

    def with_rollout(weights: Any, place: Array) -> Any:
        _, (obs, reward) = lax.scan(act, place, length=steps)
        later = jnp.concatenate([reward, jnp.zeros((n, *place.shape))])

        def update(weights: Any, t: Array) -> tuple[Any, None]:
            returns = (powers * lax.dynamic_slice_in_dim(later, t, n)).sum(0)
            last = jnp.minimum(t + n, steps - 1)
            return learn(weights, obs[t], returns, obs[last], jnp.where(t + n < steps, gamma**n, 0.0)), None

        return lax.scan(update, weights, jnp.arange(steps - 1))[0]

    def with_ring(weights: Any, place: Array) -> Any:
        def see(t: Array, state: Any) -> Any:
            weights, place, obs, reward = state
            following, (pictures, now) = act(place)
            return weights, following, obs.at[t % slots].set(pictures), reward.at[t % slots].set(now)

        def update(t: Array, state: Any) -> Any:
            weights, place, obs, reward = state
            returns = sum(jnp.where(t + k < steps, gamma**k, 0.0) * reward[(t + k) % slots] for k in range(n))
            weight = jnp.where(t + n < steps, gamma**n, 0.0)
            return learn(weights, obs[t % slots], returns, obs[(t + n) % slots], weight), place, obs, reward

        slots = n + 1
        obs, reward = jnp.zeros((slots, *place.shape, *SHAPE), jnp.uint8), jnp.zeros((slots, *place.shape))
        state = lax.fori_loop(0, n, see, (weights, place, obs, reward))
        state = lax.fori_loop(n, steps, lambda t, state: update(t - n, see(t, state)), state)
        return lax.fori_loop(steps - n, steps - 1, update, state)[0]

    return jax.jit(lambda w, v, place: (with_ring if with_window else with_rollout)((w, v), place))
