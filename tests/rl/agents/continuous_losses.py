"""The losses of SAC and TD3 in plain JAX, over all rows of some steps, for given noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo_rl.recipe import SACRecipe, TD3Recipe

Arrays = Mapping[str, Any]


def network(w: Arrays, name: str, x: Any) -> Any:
    hidden = jnp.tanh(x @ w[f"{name}.0.weight"] + w[f"{name}.0.bias"])
    return hidden @ w[f"{name}.1.weight"] + w[f"{name}.1.bias"]


def squashed(w: Arrays, obs: Any, noise: Any) -> tuple[Any, Any]:
    """The action for the noise, and its log density by the change of variables, without the stable form."""
    mean, spread = jnp.split(network(w, "policy", obs), 2, -1)
    log_std = -5.0 + 3.5 * (jnp.tanh(spread) + 1.0)
    x = mean + jnp.exp(log_std) * noise
    density = jnp.exp(-0.5 * ((x - mean) / jnp.exp(log_std)) ** 2) / (jnp.exp(log_std) * np.sqrt(2 * np.pi))
    return jnp.tanh(x), jnp.log(density / (1.0 - jnp.tanh(x) ** 2)).sum(-1)


def values(w: Arrays, obs: Any, action: Any) -> tuple[Any, Any]:
    both = jnp.concatenate([obs, action], -1)
    return network(w, "q1", both)[..., 0], network(w, "q2", both)[..., 0]


def squares(w: Arrays, d: Arrays, aim: Any) -> Any:
    first, second = values(w, d["obs"], d["action"])
    return ((first - aim) ** 2).mean() + ((second - aim) ** 2).mean()


def sac_critics(recipe: SACRecipe, w: Arrays, target: Arrays, d: Arrays, noise: Any) -> Any:
    action, log_prob = squashed(w, d["final_observation"], noise)
    alpha = jnp.exp(w["log_alpha"]) if recipe.autotune else recipe.alpha
    following = jnp.minimum(*values(target, d["final_observation"], action)) - alpha * log_prob
    return squares(w, d, jax.lax.stop_gradient(d["reward"] + recipe.gamma * (1.0 - d["terminated"]) * following))


def sac_policy(recipe: SACRecipe, w: Arrays, critics: Arrays, d: Arrays, noise: Any) -> tuple[Any, Any]:
    """The loss of the policy and of the temperature; their gradients are those by `policy...` and `log_alpha`."""
    action, log_prob = squashed(w, d["obs"], noise)
    alpha = jax.lax.stop_gradient(jnp.exp(w["log_alpha"])) if recipe.autotune else recipe.alpha
    loss = (alpha * log_prob - jnp.minimum(*values(critics, d["obs"], action))).mean()
    tuning = (-jnp.exp(w["log_alpha"]) * (jax.lax.stop_gradient(log_prob) - 1.0)).mean() if recipe.autotune else 0.0
    return loss, tuning


def td3_critics(recipe: TD3Recipe, w: Arrays, target: Arrays, d: Arrays, noise: Any) -> Any:
    smoothing = jnp.clip(noise * recipe.policy_noise, -recipe.noise_clip, recipe.noise_clip)
    action = jnp.clip(jnp.tanh(network(target, "policy", d["final_observation"])) + smoothing, -1.0, 1.0)
    following = jnp.minimum(*values(target, d["final_observation"], action))
    return squares(w, d, d["reward"] + recipe.gamma * (1.0 - d["terminated"]) * following)


def td3_policy(recipe: TD3Recipe, w: Arrays, critics: Arrays, d: Arrays, noise: Any) -> tuple[Any, Any]:
    return -values(critics, d["obs"], jnp.tanh(network(w, "policy", d["obs"])))[0].mean(), 0.0


CONTINUOUS = {"sac": (sac_critics, sac_policy), "td3": (td3_critics, td3_policy)}
