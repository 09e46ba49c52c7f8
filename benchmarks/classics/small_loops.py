"""Loops whose iterations are a few small kernels: sampling, pursuit, seasons."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- sampling by diffusion --------------------------------------------------------------------------------------------------


def denoiser(random: Any, T: int, B: int, D: int, H: int) -> dict[str, Array]:
    return {
        "enter": random.normal(size=(D, H)) / np.sqrt(D),
        "bias": random.normal(size=(T, H)),  # of each time
        "leave": random.normal(size=(H, D)) / np.sqrt(H),
        "beta": np.linspace(1e-4, 0.02, T),
        "noise": random.normal(size=(T, B, D)),
    }


def sampling(T: int, B: int, D: int, H: int) -> Traced:
    """From noise at the last time to a sample at the first (Ho et al., 2020)."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        enter, leave = tp.input("enter", (D, H)), tp.input("leave", (H, D))
        bias, beta = tp.input("bias", (H,), domain=(t,)), tp.input("beta", domain=(t,))
        noise = tp.input("noise", (B, D), domain=(t,))
        kept = tp.exp(tp.log(1 - beta)[0 : t + 1].sum(0))
        x = tp.recurrence((B, D), domain=(t,), name="x")
        guess = tp.silu(x @ enter + bias) @ leave
        mean = (x - beta / tp.sqrt(1 - kept) * guess) / tp.sqrt(1 - beta)
        x[n_t - 1] = noise[n_t - 1]
        x[t - 1] = mean + tp.sqrt(beta) * noise[t - 1]
        sample = mean[0]
    return Traced(ctx, {n_t: T}, [sample])


def sampling_by_hand(enter: Array, bias: Array, leave: Array, beta: Array, noise: Array) -> Any:
    kept = jnp.cumprod(1 - beta)

    def mean(x: Array, part: Array, scale: Array, bias: Array) -> Array:
        return scale * (x - part * (jax.nn.silu(x @ enter + bias) @ leave))

    def step(x: Array, at: Any) -> Any:
        part, scale, bias, spread, noise = at
        return mean(x, part, scale, bias) + spread * noise, None

    part, scale, spread = beta / jnp.sqrt(1 - kept), 1 / jnp.sqrt(1 - beta), jnp.sqrt(beta)
    over = (part[1:], scale[1:], bias[1:], spread[1:], noise[:-1])
    x, _ = lax.scan(step, noise[-1], over, reverse=True)
    return (mean(x, part[0], scale[0], bias[0]),)


# -- matching pursuit: the atom that explains most, again and again ---------------------------------------------------------


def atoms(random: Any, K: int, N: int, D: int) -> dict[str, Array]:
    dictionary = random.normal(size=(N, D))
    return {"atom": dictionary / np.linalg.norm(dictionary, axis=1, keepdims=True), "signal": random.normal(size=(D,))}


def pursuit(K: int, N: int, D: int) -> Traced:
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        atom, signal = tp.input("atom", (N, D)), tp.input("signal", (D,))
        rest = tp.recurrence((D,), domain=(k,), name="rest")
        match = atom @ rest
        best = abs(match).argmax(0)
        share = match.index(0, best)
        tp.carry(rest, signal, rest - share * atom.index(0, best))
    return Traced(ctx, {n_k: K}, [best, share])


def pursuit_by_hand(atom: Array, signal: Array, K: int) -> Any:
    def step(rest: Array, _: None) -> Any:
        match = atom @ rest
        best = jnp.abs(match).argmax().astype(jnp.int32)
        share = match[best]
        return rest - share * atom[best], (best, share)

    return lax.scan(step, signal, None, length=K)[1]


# -- argmax of a few: a greedy walk -------------------------------------------------------------------------------------------


def walks(random: Any, T: int, A: int) -> dict[str, Array]:
    return {"weight": random.normal(size=(A, A)), "bonus": random.normal(size=(T, A))}


def walk(T: int, A: int) -> Traced:
    """To the place that is worth most now; a place that was visited is worth less, and recovers."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        weight, bonus = tp.input("weight", (A, A)), tp.input("bonus", (A,), domain=(t,))
        tired = tp.recurrence((A,), domain=(t,), name="tired")
        place = tp.recurrence((), "int32", domain=(t,), name="place")
        following = (weight.index(0, place) + bonus - tired).argmax(0)
        tp.carry(tired, tp.zeros((A,)), 0.9 * tired + following.one_hot(A))
        tp.carry(place, 0, following)
    return Traced(ctx, {n_t: T}, [following])


def walk_by_hand(weight: Array, bonus: Array) -> Any:
    def step(carry: Any, bonus: Array) -> Any:
        tired, place = carry
        following = (weight[place] + bonus - tired).argmax().astype(jnp.int32)
        return ((0.9 * tired).at[following].add(1.0), following), following

    return (lax.scan(step, (jnp.zeros(len(weight)), jnp.int32(0)), bonus)[1],)


# -- a level with seasons ---------------------------------------------------------------------------------------------------------


def seasonal(random: Any, T: int, B: int, P: int) -> dict[str, Array]:
    season = random.normal(size=(P,))
    return {"x": season[np.arange(T) % P] + np.cumsum(0.1 * random.normal(size=(B, T)), 1), "season": season}


def seasons(T: int, B: int, P: int) -> Traced:
    """A level that follows x less its season, whose error has a limit; the gradient of the errors by the seasons."""
    ctx = tp.Context("b", "t", "p")
    with ctx as ((b, n_b), (t, n_t), (p, n_p)):
        x, season = tp.input("x", domain=(b, t)), tp.input("season", domain=(p,))
        level = tp.recurrence((), domain=(b, t), name="level")
        error = x - season[t % P] - level
        tp.carry(level, 0.0, level + 0.3 * tp.tanh(error), kept=(b,))
        loss = (error**2)[0:n_b, 0:n_t].mean()
        (gradient,) = tp.grad(loss, wrt=[season])
    return Traced(ctx, {n_b: B, n_t: T, n_p: P}, [level, gradient])


def seasons_by_hand(x: Array, season: Array) -> Any:
    B, T = x.shape

    def loss_of(season: Array) -> Any:
        def step(level: Array, x: Array) -> Any:
            error = x - level
            return level + 0.3 * jnp.tanh(error), (level, error)

        _, (level, error) = lax.scan(step, jnp.zeros(B), x.T - season[jnp.arange(T) % len(season)][:, None])
        return (error**2).mean(), level.T

    (_, level), gradient = jax.value_and_grad(loss_of, has_aux=True)(season)
    return level, gradient


CLASSICS = [
    Classic(
        "sampling by diffusion",
        sampling,
        {"scan": sampling_by_hand},
        denoiser,
        {
            "tiny": {"T": 5, "B": 2, "D": 2, "H": 3},
            "small": {"T": 100, "B": 4, "D": 2, "H": 16},
            "full": {"T": 1000, "B": 64, "D": 8, "H": 64},
            "long": {"T": 100_000, "B": 1, "D": 2, "H": 4},
        },
    ),
    Classic(
        "matching pursuit",
        pursuit,
        {"scan": pursuit_by_hand},
        atoms,
        {
            "tiny": {"K": 4, "N": 5, "D": 3},
            "small": {"K": 20, "N": 32, "D": 8},
            "full": {"K": 500, "N": 1000, "D": 64},
            "long": {"K": 100_000, "N": 8, "D": 2},
        },
    ),
    Classic(
        "greedy walk",
        walk,
        {"scan": walk_by_hand},
        walks,
        {
            "tiny": {"T": 6, "A": 4},
            "small": {"T": 500, "A": 8},
            "full": {"T": 10_000, "A": 32},
            "long": {"T": 100_000, "A": 8},
        },
    ),
    Classic(
        "level with seasons",
        seasons,
        {"scan": seasons_by_hand},
        seasonal,
        {
            "tiny": {"T": 7, "B": 2, "P": 3},
            "small": {"T": 500, "B": 1, "P": 12},
            "full": {"T": 10_000, "B": 64, "P": 24},
            "long": {"T": 100_000, "B": 1, "P": 12},
        },
    ),
]
