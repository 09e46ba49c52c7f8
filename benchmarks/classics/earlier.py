"""Values before the start: series that reach back over lags, and the last few updates of an optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- ARMA: the conditional likelihood, and its gradient -----------------------------------------------------------------------


def series(random: Any, B: int, T: int, P: int, Q: int) -> dict[str, Array]:
    return {"x": random.normal(size=(B, T)), "phi": random.normal(size=P) / (2 * P), "theta": random.normal(size=Q) / (2 * Q)}


def arma(B: int, T: int, P: int, Q: int) -> Traced:
    """What each value differs from its forecast by P values and Q errors before it, all of them 0 before the start."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x = tp.input("x", domain=(b, t), before=0.0)
        phi, theta = tp.input("phi", (P,)), tp.input("theta", (Q,))
        error = tp.recurrence((), domain=(b, t), name="error", before=0.0)
        known = (phi * x[b, t - P : t]).sum(0)
        error[b, t] = x - known - sum(theta.index(0, k) * error[b, t - Q + k] for k in range(Q))
        loss = (error**2)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=[phi, theta])
    return Traced(ctx, {n_b: B, n_t: T}, [loss, *gradients])


def arma_by_hand(x: Array, phi: Array, theta: Array) -> Any:
    """The part of the values is a convolution, that of the errors a loop."""

    def loss_of(phi: Array, theta: Array) -> Array:
        padded = jnp.pad(x, ((0, 0), (len(phi), 0)))
        T = x.shape[1]
        free = x - sum(phi[k] * padded[:, k : k + T] for k in range(len(phi)))

        def step(before: tuple[Array, ...], free: Array) -> Any:
            error = free - sum(theta[k] * before[k] for k in range(len(before)))
            return (*before[1:], error), error

        _, errors = lax.scan(step, (jnp.zeros(len(x)),) * len(theta), free.T)
        return (errors**2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1))(phi, theta)
    return loss, *gradients


# -- Holt-Winters: level, trend and seasons -------------------------------------------------------------------------------------


def seasons(random: Any, B: int, T: int, M: int) -> dict[str, Array]:
    season = np.sin(2 * np.pi * np.arange(T) / M)
    rates = {"alpha": np.float32(0.3), "beta": np.float32(0.1), "gamma": np.float32(0.2)}
    return {"x": season + 0.1 * random.normal(size=(B, T)), "start": random.normal(size=B), **rates}


def holt_winters(B: int, T: int, M: int) -> Traced:
    """The error of forecasts, and its gradient by the three rates. Seasons of M points are 0 before the start."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x, start = tp.input("x", domain=(b, t)), tp.input("start", domain=(b,))
        alpha, beta, gamma = (tp.input(name) for name in ("alpha", "beta", "gamma"))
        level = tp.recurrence((), domain=(b, t), name="level", before=start)
        trend = tp.recurrence((), domain=(b, t), name="trend", before=0.0)
        season = tp.recurrence((), domain=(b, t), name="season", before=0.0)
        forecast = level[b, t - 1] + trend[b, t - 1]
        level[b, t] = alpha * (x - season[b, t - M]) + (1 - alpha) * forecast
        trend[b, t] = beta * (level - level[b, t - 1]) + (1 - beta) * trend[b, t - 1]
        season[b, t] = gamma * (x - level) + (1 - gamma) * season[b, t - M]
        loss = ((x - forecast - season[b, t - M]) ** 2)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=[alpha, beta, gamma])
    return Traced(ctx, {n_b: B, n_t: T}, [loss, *gradients])


def holt_winters_by_hand(x: Array, start: Array, alpha: Array, beta: Array, gamma: Array, M: int) -> Any:
    """Seasons in a ring."""

    def loss_of(alpha: Array, beta: Array, gamma: Array) -> Array:
        def step(carry: Any, at: Any) -> Any:
            level, trend, ring = carry
            t, x = at
            forecast, season = level + trend, ring[t % M]
            after = alpha * (x - season) + (1 - alpha) * forecast
            trend = beta * (after - level) + (1 - beta) * trend
            ring = ring.at[t % M].set(gamma * (x - after) + (1 - gamma) * season)
            return (after, trend, ring), x - forecast - season

        nothing = jnp.zeros_like(start)
        times = jnp.arange(x.shape[1])
        _, errors = lax.scan(step, (start, nothing, jnp.zeros((M, len(start)))), (times, x.T))
        return (errors**2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(alpha, beta, gamma)
    return loss, *gradients


def holt_winters_by_rows(x: Array, start: Array, alpha: Array, beta: Array, gamma: Array, M: int) -> Any:
    """Seasons in an array that moves on by one row."""

    def loss_of(alpha: Array, beta: Array, gamma: Array) -> Array:
        def step(carry: Any, x: Array) -> Any:
            level, trend, rows = carry
            forecast, season = level + trend, rows[0]
            after = alpha * (x - season) + (1 - alpha) * forecast
            trend = beta * (after - level) + (1 - beta) * trend
            rows = jnp.concatenate([rows[1:], (gamma * (x - after) + (1 - gamma) * season)[None]])
            return (after, trend, rows), x - forecast - season

        _, errors = lax.scan(step, (start, jnp.zeros_like(start), jnp.zeros((M, len(start)))), x.T)
        return (errors**2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(alpha, beta, gamma)
    return loss, *gradients


# -- L-BFGS: directions from the last few updates ------------------------------------------------------------------------------------


def quadratic(random: Any, K: int, N: int, M: int) -> dict[str, Array]:
    return {"scale": np.exp(random.uniform(0.0, 2.0, N)), "target": random.normal(size=N), "x": random.normal(size=N)}


RATE = 0.5


def l_bfgs(K: int, N: int, M: int) -> Traced:
    """K steps with the last M updates, by two loops over them. Updates before the start are zero, and so are their weights."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        scale, target, first = (tp.input(name, (N,)) for name in ("scale", "target", "x"))
        x = tp.recurrence((N,), domain=(k,), name="x", before=first)
        slope = (scale * (x - target) + 0.1 * tp.tanh(x)).before(0.0)
        moved, turned = (x - x[k - 1]).before(0.0), (slope - slope[k - 1]).before(0.0)
        curved = (moved * turned).sum(0)
        weight = tp.where(curved > 1e-10, 1.0 / tp.maximum(curved, 1e-10), 0.0).before(0.0)

        down = tp.recurrence((N,), domain=(k, i), name="down")  # from the newest update to the oldest
        share = weight[k - i] * (moved[k - i] * down).sum(0)
        rest = down - share * turned[k - i]
        tp.carry(down, slope, rest, kept=(k,))
        up = tp.recurrence((N,), domain=(k, i), name="up")  # and back
        change = share - weight[k - i] * (turned[k - i] * up).sum(0)
        length = tp.where(curved > 1e-10, curved / tp.maximum((turned**2).sum(0), 1e-10), 0.1)
        direction = up + change * moved[k - i]
        tp.carry(up, length * rest[k, n_i - 1], direction, kept=(k,), reverse=True)
        tp.carry(x, first, x - RATE * direction[k, 0])
    return Traced(ctx, {n_k: K, n_i: M}, [x[n_k - 1]])


def l_bfgs_by_hand(scale: Array, target: Array, x: Array, K: int, M: int) -> Any:
    """The last updates in arrays that move on by a row."""

    def two_loops(slope: Array, moved: Array, turned: Array, weight: Array, length: Array) -> Array:
        def down(rest: Array, at: Any) -> Any:
            moved, turned, weight = at
            share = weight * (moved @ rest)
            return rest - share * turned, share

        def up(rest: Array, at: Any) -> Any:
            moved, turned, weight, share = at
            return rest + (share - weight * (turned @ rest)) * moved, None

        rest, share = lax.scan(down, slope, (moved, turned, weight))
        direction, _ = lax.scan(up, length * rest, (moved, turned, weight, share), reverse=True)
        return direction

    def step(carry: Any, _: None) -> Any:
        x, before, slope_before, moved, turned, weight = carry
        slope = scale * (x - target) + 0.1 * jnp.tanh(x)
        moved = jnp.concatenate([(x - before)[None], moved[:-1]])
        turned = jnp.concatenate([(slope - slope_before)[None], turned[:-1]])
        curved = moved[0] @ turned[0]
        weight = jnp.concatenate([jnp.where(curved > 1e-10, 1.0 / jnp.maximum(curved, 1e-10), 0.0)[None], weight[:-1]])
        length = jnp.where(curved > 1e-10, curved / jnp.maximum((turned[0] ** 2).sum(), 1e-10), 0.1)
        direction = two_loops(slope, moved, turned, weight, length)
        return (x - RATE * direction, x, slope, moved, turned, weight), None

    rows = jnp.zeros((M, len(x)))
    (x, *_), _ = lax.scan(step, (x, x, jnp.zeros_like(x), rows, rows, jnp.zeros(M)), None, length=K - 1)
    return (x,)


UPDATES = {
    "tiny": {"K": 5, "N": 3, "M": 3},
    "small": {"K": 20, "N": 8, "M": 5},
    "full": {"K": 200, "N": 5000, "M": 10},
    "long": {"K": 100_000, "N": 4, "M": 4},
}
ARMA = {
    "tiny": {"B": 2, "T": 7, "P": 3, "Q": 2},
    "small": {"B": 1, "T": 50, "P": 3, "Q": 2},
    "full": {"B": 256, "T": 2000, "P": 8, "Q": 4},
    "long": {"B": 1, "T": 100_000, "P": 4, "Q": 2},
}
SEASONS = {
    "tiny": {"B": 2, "T": 9, "M": 4},
    "small": {"B": 1, "T": 48, "M": 12},
    "full": {"B": 256, "T": 2000, "M": 24},
    "long": {"B": 1, "T": 100_000, "M": 24},
}
CLASSICS = [
    Classic("ARMA", arma, {"scan": arma_by_hand}, series, ARMA),
    Classic("Holt-Winters", holt_winters, {"ring": holt_winters_by_hand, "rows": holt_winters_by_rows}, seasons, SEASONS),
    Classic("L-BFGS", l_bfgs, {"rows": l_bfgs_by_hand}, quadratic, UPDATES, tolerance=1e-3, reason="steps of an optimizer"),
]
