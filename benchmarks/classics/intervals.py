"""Tables over intervals, from a point of one step to a point of another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def pairs(random: Any, N: int) -> dict[str, Array]:
    return {"w": random.normal(size=(N, N))}


# -- what grows from the start of each interval ---------------------------------------------------------------------------------


def growing(N: int) -> Traced:
    """Each interval adds to the mean of those that begin where it does, and end before it; the gradient of the whole."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        w = tp.input("w", domain=(i, j))
        total = tp.recurrence((), domain=(i, j), name="total")
        total[i, j, i < j] = tp.tanh(w + total[i, i:j].mean(0))
        total[i, j, i == j] = w
        total[i, j] = 0.0
        (gradient,) = tp.grad((total**2)[0:n_i, 0:n_j].sum(), wrt=[w])
    return Traced(ctx, {n_i: N, n_j: N}, [total, gradient])


def growing_by_hand(w: Array) -> Any:
    """A loop over the ends, for all starts at once, with the sum of each start."""

    def loss_of(w: Array) -> Any:
        starts = jnp.arange(len(w))

        def step(whole: Array, at: Any) -> Any:
            j, w = at
            longer = jnp.tanh(w + whole / jnp.maximum(j - starts, 1))
            value = jnp.where(starts < j, longer, jnp.where(starts == j, w, 0.0))
            return whole + value, value

        _, rows = lax.scan(step, jnp.zeros(len(w)), (jnp.arange(w.shape[1]), w.T))
        return (rows**2).sum(), rows.T

    (_, total), gradient = jax.value_and_grad(loss_of, has_aux=True)(w)
    return total, gradient


CLASSICS = [
    Classic(
        "growing intervals",
        growing,
        {"scan": growing_by_hand},
        pairs,
        {"tiny": {"N": 5}, "small": {"N": 16}, "full": {"N": 1200}},
    ),
]
