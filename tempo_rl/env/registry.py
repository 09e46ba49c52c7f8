"""The functional (JAX) environments, recognised by their ids without importing anything."""

from __future__ import annotations

import re

# id -> (functional environment, steps after which an episode is truncated: as Gymnasium registers them, or None for those of a rollout)
FUNCTIONAL: dict[str, tuple[str, int | None]] = {
    "phys2d/CartPole-v0": ("gymnasium.envs.phys2d.cartpole:CartPoleFunctional", 200),
    "phys2d/CartPole-v1": ("gymnasium.envs.phys2d.cartpole:CartPoleFunctional", 500),
    "phys2d/Pendulum-v0": ("gymnasium.envs.phys2d.pendulum:PendulumFunctional", 200),
    "jax/Acrobot-v1": ("tempo_rl.env.classic:Acrobot", 500),
    "jax/CartPole-v1": ("tempo_rl.env.classic:CartPole", 500),
    "jax/Catch-v0": ("tempo_rl.env.catch:Catch", 1000),
    "jax/MountainCarContinuous-v0": ("tempo_rl.env.classic:MountainCarContinuous", 999),
    "jax/Pendulum-v1": ("tempo_rl.env.classic:Pendulum", 200),
    "Trivial": ("tempo_rl.env.trivial:Trivial", None),
}


def is_functional(env_id: str) -> bool:
    """Whether `env_id` names a functional environment: one of `FUNCTIONAL`, one of Brax, or a `module:Class` of your own.

    A `module:Name-v0` of Gymnasium, which ends in a version, is a host environment.
    """
    return env_id in FUNCTIONAL or env_id.startswith("brax/") or (":" in env_id and re.search(r"-v\d+$", env_id) is None)
