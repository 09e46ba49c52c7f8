"""What agents of continuous control share: actions at random, noise that goes on from step to step, and target networks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tempo_core as tp
from tempo_rl.recipe import ContinuousRecipe

Point = tuple[tp.Expr, tp.Expr, tp.Expr]  # (i, t, b): iteration, time, environment


def noise_of(recipe: ContinuousRecipe, shape: tuple[int, ...], point: Point) -> tp.Tensor:
    """Standard normal noise over `point`, whose correlation from one step of an environment to the next is `noise_correlation`.

    It is the autoregressive process n[t + 1] = ρ n[t] + √(1 - ρ²) ε, so that each step by itself has the same distribution for any ρ.
    """
    rho = recipe.noise_correlation
    fresh = tp.random.normal(shape, domain=point)
    if not rho:
        return fresh
    noise = tp.recurrence(shape, domain=point, name="noise")
    tp.carry(
        noise, tp.random.normal(shape, domain=(point[2],)), rho * noise + math.sqrt(1.0 - rho * rho) * fresh, kept=(point[2],)
    )
    return noise


def at_random_first(recipe: ContinuousRecipe, action: tp.Tensor, noise: tp.Tensor, point: Point) -> tp.Tensor:
    """Uniform actions between -1 and 1 in the first `learning_starts` environment steps, and then `action`.

    The uniform numbers are 2 Φ(noise) - 1, so that they are as correlated as the noise.
    """
    i, t, _ = point
    uniform = tp.erf(noise * math.sqrt(0.5))
    before = (i * recipe.num_steps + t) * recipe.num_envs < recipe.learning_starts
    return tp.where(before, uniform, action)


def targets_of(parameters: Mapping[str, tp.Tensor], domain: tuple[tp.Expr, ...]) -> dict[str, tp.Recurrence]:
    """Parameters of target networks over `domain`, which `follow` assigns."""
    return {name: tp.recurrence(w.shape, w.dtype, domain=domain, name=f"target.{name}") for name, w in parameters.items()}


def follow(
    targets: Mapping[str, tp.Recurrence], parameters: Mapping[str, tp.Tensor], updated: Mapping[str, tp.Tensor], tau: float
) -> None:
    """Target networks begin as `parameters`, and move by the share `tau` of the way towards `updated` (Lillicrap et al., 2016)."""
    for name, target in targets.items():
        first = parameters[name][(0,) * len(parameters[name].domain.steps)]
        tp.carry(target, first, target + tau * (updated[name] - target))
