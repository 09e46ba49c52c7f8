"""Filters over time: linear recurrences with small states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- Kalman filter: the likelihood of measurements, and its gradient ----------------------------------------------------------


def kalman_inputs(random: Any, B: int, T: int, S: int, M: int) -> dict[str, Array]:
    """A stable system with S states and M measurements."""
    system = 0.9 * np.linalg.qr(random.normal(size=(S, S)))[0]
    return {"system": system, "sight": random.normal(size=(M, S)), "y": random.normal(size=(B, T, M))}


NOISE, ERROR = 0.1, 0.5  # variances of the system's noise and of the measurements


def inverse_and_logdet(matrix: Any) -> tuple[Any, Any]:
    """Of a symmetric matrix [2, 2] (the last dimensions), in either language."""
    a, b, d = (matrix[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
    determinant = a * d - b * b
    return (d / determinant, -b / determinant, a / determinant), determinant


def kalman(B: int, T: int, S: int, M: int) -> Traced:
    """Two measurements, whose covariance is inverted by its formula. The covariance is the same for all sequences."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        system, sight = tp.input("system", (S, S)), tp.input("sight", (M, S))
        y = tp.input("y", (M,), domain=(b, t))
        mean = tp.recurrence((S,), domain=(b, t), name="mean")
        spread = tp.recurrence((S, S), domain=(t,), name="spread")
        seen = sight @ spread @ sight.transpose(1, 0) + ERROR * tp.eye(M)
        (p, q, r), determinant = inverse_and_logdet(seen.spatial)
        inverse = tp.stack([tp.stack([p, q]), tp.stack([q, r])])
        gain = spread @ sight.transpose(1, 0) @ inverse
        surprise = y - sight @ mean
        log_likelihood = -0.5 * ((surprise * (inverse @ surprise)).sum(0) + tp.log(determinant))
        mean[b, 0] = tp.zeros((S,))
        mean[b, t + 1] = system @ (mean + gain @ surprise)
        spread[0] = tp.eye(S)
        spread[t + 1] = system @ (spread - gain @ sight @ spread) @ system.transpose(1, 0) + NOISE * tp.eye(S)
        likelihood = log_likelihood[b, 0:n_t].sum(0)
        gradients = tp.grad(likelihood[0:n_b].mean(0), wrt=[system, sight])
    return Traced(ctx, {n_b: B, n_t: T}, [likelihood, *gradients])


def kalman_by_hand(system: Array, sight: Array, y: Array) -> Any:
    B, _, M = y.shape
    S = len(system)

    def mean_likelihood(system: Array, sight: Array) -> Any:
        def step(carry: Any, y: Array) -> Any:
            mean, spread = carry
            seen = sight @ spread @ sight.T + ERROR * jnp.eye(M)
            (p, q, r), determinant = inverse_and_logdet(seen)
            inverse = jnp.stack([jnp.stack([p, q]), jnp.stack([q, r])])
            gain = spread @ sight.T @ inverse
            surprise = y - mean @ sight.T
            log_likelihood = -0.5 * ((surprise * (surprise @ inverse)).sum(-1) + jnp.log(determinant))
            mean = (mean + surprise @ gain.T) @ system.T
            return (mean, system @ (spread - gain @ sight @ spread) @ system.T + NOISE * jnp.eye(S)), log_likelihood

        _, logs = lax.scan(step, (jnp.zeros((B, S)), jnp.eye(S)), y.swapaxes(0, 1))
        likelihood = logs.sum(0)
        return likelihood.mean(), likelihood

    (_, likelihood), gradients = jax.value_and_grad(mean_likelihood, (0, 1), has_aux=True)(system, sight)
    return likelihood, *gradients


# -- Rauch, Tung and Striebel's smoother ----------------------------------------------------------------------------------------


def smoother(B: int, T: int, S: int) -> Traced:
    """Each state is measured with noise, and moves to the one before it: S measurements and S x S gains that are constants of time."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        level, y = tp.input("level", (S,)), tp.input("y", (S,), domain=(b, t))
        before = tp.recurrence((S,), domain=(b, t), name="before")  # the mean before the measurement at t
        spread = tp.recurrence((S,), domain=(t,), name="spread")
        gain = spread / (spread + ERROR)
        after, narrow = before + gain * (y - before), (1 - gain) * spread
        before[b, 0], spread[0] = tp.zeros((S,)), tp.ones((S,))
        before[b, t + 1], spread[t + 1] = level * after, level**2 * narrow + NOISE
        back = narrow * level / spread[t + 1]
        smooth = tp.recurrence((S,), domain=(b, t), name="smooth")
        smooth_spread = tp.recurrence((S,), domain=(t,), name="smooth_spread")
        smooth[b, n_t - 1], smooth_spread[n_t - 1] = after[b, n_t - 1], narrow[n_t - 1]
        smooth[b, t] = after + back * (smooth[b, t + 1] - before[b, t + 1])
        smooth_spread[t] = narrow + back**2 * (smooth_spread[t + 1] - spread[t + 1])
        (gradient,) = tp.grad((smooth[0:n_b, 0:n_t] ** 2).mean(), wrt=[level])
    return Traced(ctx, {n_b: B, n_t: T}, [smooth, smooth_spread, gradient])


def smoother_inputs(random: Any, B: int, T: int, S: int) -> dict[str, Array]:
    return {"level": random.uniform(0.5, 0.99, (S,)), "y": random.normal(size=(B, T, S))}


def smoother_by_hand(level: Array, y: Array) -> Any:
    B, _, S = y.shape

    def mean_square(level: Array) -> Any:
        def forwards(carry: Any, y: Array) -> Any:
            before, spread = carry
            gain = spread / (spread + ERROR)
            after, narrow = before + gain * (y - before), (1 - gain) * spread
            following = level * after, level**2 * narrow + NOISE
            return following, (after, narrow, *following)

        def backwards(carry: Any, at: Any) -> Any:
            smooth, smooth_spread = carry
            after, narrow, following, spread = at
            back = narrow * level / spread
            now = after + back * (smooth - following), narrow + back**2 * (smooth_spread - spread)
            return now, now

        _, each = lax.scan(forwards, (jnp.zeros((B, S)), jnp.ones((S,))), y.swapaxes(0, 1))
        last = each[0][-1], each[1][-1]
        _, (smooth, spread) = lax.scan(backwards, last, tuple(part[:-1] for part in each), reverse=True)
        smooth = jnp.concatenate([smooth, last[0][None]]).swapaxes(0, 1)
        return (smooth**2).mean(), (smooth, jnp.concatenate([spread, last[1][None]]))

    (_, smooth), gradient = jax.value_and_grad(mean_square, has_aux=True)(level)
    return *smooth, gradient


# -- an infinite impulse response: two values back --------------------------------------------------------------------------------


def resonator(B: int, T: int) -> Traced:
    """y[t] = x[t] + p y[t - 1] + q y[t - 2]"""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x, p, q = tp.input("x", domain=(b, t)), tp.input("p"), tp.input("q")
        y = tp.recurrence((), domain=(b, t), name="y")
        y[b, 0] = x[b, 0]
        y[b, 1] = x[b, 1] + p * y[b, 0]
        y[b, t] = x + p * y[b, t - 1] + q * y[b, t - 2]
        gradients = tp.grad((y[0:n_b, 0:n_t] ** 2).mean(), wrt=[x, p, q])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def resonator_inputs(random: Any, B: int, T: int) -> dict[str, Array]:
    return {"x": random.normal(size=(B, T)), "p": 1.2, "q": -0.7}


def resonator_by_hand(x: Array, p: Array, q: Array) -> Any:
    def mean_square(x: Array, p: Array, q: Array) -> Any:
        def step(carry: Any, x: Array) -> Any:
            one, two = carry
            now = x + p * one + q * two
            return (now, one), now

        nothing = jnp.zeros(x.shape[:1])
        _, y = lax.scan(step, (nothing, nothing), x.swapaxes(0, 1))
        return (y**2).mean(), y.swapaxes(0, 1)

    (_, y), gradients = jax.value_and_grad(mean_square, (0, 1, 2), has_aux=True)(x, p, q)
    return y, *gradients


# -- spiking neurons: leak, integrate, fire -------------------------------------------------------------------------------------


def spikes(T: int, N: int) -> Traced:
    """Neurons that excite each other; a spike sets its neuron's voltage back. The gradient of a spike is that of a sigmoid."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (N,), domain=(t,)), tp.input("weight", (N, N))
        voltage = tp.recurrence((N,), domain=(t,), name="voltage")
        smooth = tp.sigmoid(8.0 * (voltage - 1.0))
        spike = smooth + (tp.where(voltage > 1.0, 1.0, 0.0) - smooth).detach()
        voltage[0] = x[0]
        voltage[t + 1] = 0.9 * voltage * (1.0 - spike) + spike @ weight + x[t + 1]
        rate = spike[0:n_t].mean(0)
        (gradient,) = tp.grad(((rate - 0.2) ** 2).sum(), wrt=[weight])
    return Traced(ctx, {n_t: T}, [rate, gradient])


def spikes_inputs(random: Any, T: int, N: int) -> dict[str, Array]:
    return {"x": random.uniform(0.0, 0.8, (T, N)), "weight": random.normal(size=(N, N)) * 0.1 / np.sqrt(N)}


def spikes_by_hand(x: Array, weight: Array) -> Any:
    def error(weight: Array) -> Any:
        def step(voltage: Array, following: Array) -> Any:
            smooth = jax.nn.sigmoid(8.0 * (voltage - 1.0))
            spike = smooth + lax.stop_gradient(jnp.where(voltage > 1.0, 1.0, 0.0) - smooth)
            return 0.9 * voltage * (1.0 - spike) + spike @ weight + following, spike

        _, spike = lax.scan(step, x[0], jnp.concatenate([x[1:], x[:1]]))
        rate = spike.mean(0)
        return ((rate - 0.2) ** 2).sum(), rate

    (_, rate), gradient = jax.value_and_grad(error, has_aux=True)(weight)
    return rate, gradient


KALMAN = {
    "tiny": {"B": 2, "T": 5, "S": 3, "M": 2},
    "small": {"B": 1, "T": 20, "S": 4, "M": 2},
    "full": {"B": 32, "T": 500, "S": 8, "M": 2},
    "long": {"B": 1, "T": 100_000, "S": 2, "M": 2},
}
SMOOTHER = {
    "tiny": {"B": 2, "T": 5, "S": 3},
    "small": {"B": 1, "T": 20, "S": 4},
    "full": {"B": 64, "T": 500, "S": 16},
    "long": {"B": 1, "T": 100_000, "S": 4},
}
RESONATOR = {
    "tiny": {"B": 2, "T": 5},
    "small": {"B": 1, "T": 50},
    "full": {"B": 256, "T": 2000},
    "long": {"B": 4, "T": 100_000},
}
SPIKES = {
    "tiny": {"T": 12, "N": 4},
    "small": {"T": 20, "N": 8},
    "full": {"T": 1000, "N": 256},
    "long": {"T": 100_000, "N": 8},
}
CLASSICS = [
    Classic("Kalman filter", kalman, {"scan": kalman_by_hand}, kalman_inputs, KALMAN),
    Classic("Kalman smoother", smoother, {"scan": smoother_by_hand}, smoother_inputs, SMOOTHER),
    Classic("resonator", resonator, {"scan": resonator_by_hand}, resonator_inputs, RESONATOR),
    Classic("spiking neurons", spikes, {"scan": spikes_by_hand}, spikes_inputs, SPIKES),
]
