"""Places on a ring, whose number is a bound."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- a wave that goes around ------------------------------------------------------------------------------------------------------


def wave_inputs(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"start": random.normal(size=N), "speed": random.uniform(0.1, 0.5, N)}


def wave(K: int, N: int) -> Traced:
    """K steps of advection and diffusion with a slope limiter, and the gradient of the last state's energy by speed and start."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        start, speed = tp.input("start", domain=(i,)), tp.input("speed", domain=(i,))
        u = tp.recurrence((), domain=(k, i), name="u")
        here, left, right = u[k - 1, i], u[k - 1, (i - 1) % n_i], u[k - 1, (i + 1) % n_i]
        u[0, i] = start
        u[k, i] = here - speed * tp.tanh(right - left) / 2 + 0.1 * (right - 2 * here + left)
        last = u[n_k - 1, i]
        gradients = tp.grad((last**2)[0:n_i].sum(), wrt=[start, speed])
    return Traced(ctx, {n_k: K, n_i: N}, [last, *gradients])


def wave_by_hand(start: Array, speed: Array, K: int) -> Any:
    def loss_of(start: Array, speed: Array) -> Any:
        def step(u: Array, _: None) -> Any:
            left, right = jnp.roll(u, 1), jnp.roll(u, -1)
            return u - speed * jnp.tanh(right - left) / 2 + 0.1 * (right - 2 * u + left), None

        last, _ = lax.scan(step, start, None, length=K - 1)
        return (last**2).sum(), last

    (_, last), gradients = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(start, speed)
    return last, *gradients


CLASSICS = [
    Classic(
        "wave on a ring",
        wave,
        {"rolls": wave_by_hand},
        wave_inputs,
        {
            "tiny": {"K": 4, "N": 5},
            "small": {"K": 20, "N": 20},
            "full": {"K": 500, "N": 4000},
            "long": {"K": 100_000, "N": 16},
        },
    ),
]
