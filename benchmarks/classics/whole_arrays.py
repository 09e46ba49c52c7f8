"""Searches, segments, scatters, small matrices and Fourier transforms, at each step of a loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- particle filter, with systematic resampling ------------------------------------------------------------------------------

STAY, SIGHT = 0.9, 2.0


def particles(random: Any, T: int, P: int) -> dict[str, Array]:
    return {
        "start": random.normal(size=P),
        "noise": 0.3 * random.normal(size=(T, P)),
        "offset": random.uniform(size=T),
        "seen": random.normal(size=T),
    }


def particle_filter(T: int, P: int) -> Traced:
    """The likelihood of what was seen."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        noise = tp.input("noise", (P,), domain=(t,))
        offset, seen = tp.input("offset", (), domain=(t,)), tp.input("seen", (), domain=(t,))
        x = tp.recurrence((P,), domain=(t,), name="x")
        fit = -SIGHT * (seen - x) ** 2
        picked = tp.searchsorted(fit.softmax(0).cumsum(0), (tp.arange(P) + offset) / P)
        x[0] = tp.input("start", (P,))
        x[t + 1] = STAY * x.take(picked) + noise
        outputs = [fit.logsumexp(0)[0:n_t].sum(0)]
    return Traced(ctx, {n_t: T}, outputs)


def particle_filter_by_hand(start: Array, noise: Array, offset: Array, seen: Array) -> Any:
    P = len(start)

    def step(x: Array, at: Any) -> Any:
        noise, offset, seen = at
        fit = -SIGHT * (seen - x) ** 2
        picked = jnp.searchsorted(jnp.cumsum(jax.nn.softmax(fit)), (jnp.arange(P) + offset) / P)
        return STAY * x[jnp.minimum(picked, P - 1)] + noise, jax.nn.logsumexp(fit)

    return (lax.scan(step, start, (noise, offset, seen))[1].sum(),)


# -- k-means ------------------------------------------------------------------------------------------------------------------


def cloud(random: Any, K: int, N: int, D: int, C: int) -> dict[str, Array]:
    return {"x": random.normal(size=(N, D)) + 4 * random.integers(0, 3, (N, 1)), "start": random.normal(size=(C, D)) * 3}


def k_means(K: int, N: int, D: int, C: int) -> Traced:
    """Each center becomes the mean of the points that are nearest to it."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        x = tp.input("x", (N, D))
        center = tp.recurrence((C, D), domain=(k,), name="center")
        nearest = ((center**2).sum(1) - 2.0 * x @ center.transpose()).argmin(1)
        count = tp.bincount(nearest, C)
        center[0] = tp.input("start", (C, D))
        center[k + 1] = tp.where(
            count.expand_dims(1) > 0, tp.segment_sum(x, nearest, C) / tp.maximum(count, 1).expand_dims(1), center
        )
        last = center[n_k - 1]
    return Traced(ctx, {n_k: K}, [last])


def k_means_by_hand(x: Array, start: Array, K: int) -> Any:
    C = len(start)

    def step(center: Array, _: None) -> Any:
        nearest = ((center**2).sum(1) - 2.0 * x @ center.T).argmin(1)
        count = jnp.bincount(nearest, length=C)[:, None]
        total = jax.ops.segment_sum(x, nearest, C)
        return jnp.where(count > 0, total / jnp.maximum(count, 1), center), None

    return (lax.scan(step, start, None, length=K - 1)[0],)


def k_means_by_products(x: Array, start: Array, K: int) -> Any:
    C = len(start)

    def step(center: Array, _: None) -> Any:
        nearest = ((center**2).sum(1) - 2.0 * x @ center.T).argmin(1)
        is_nearest = jax.nn.one_hot(nearest, C)
        count = is_nearest.sum(0)[:, None]
        return jnp.where(count > 0, is_nearest.T @ x / jnp.maximum(count, 1), center), None

    return (lax.scan(step, start, None, length=K - 1)[0],)


# -- Kalman filter, by Cholesky's factors -------------------------------------------------------------------------------------

NOISE, ERROR = 0.1, 0.5


def measured(random: Any, T: int, S: int, M: int) -> dict[str, Array]:
    return {
        "system": 0.9 * np.linalg.qr(random.normal(size=(S, S)))[0],
        "sight": random.normal(size=(M, S)),
        "y": random.normal(size=(T, M)),
    }


def kalman(T: int, S: int, M: int) -> Traced:
    """The likelihood of measurements, and its gradient."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        system, sight, y = tp.input("system", (S, S)), tp.input("sight", (M, S)), tp.input("y", (M,), domain=(t,))
        mean = tp.recurrence((S,), domain=(t,), name="mean")
        spread = tp.recurrence((S, S), domain=(t,), name="spread")
        factor = tp.linalg.cholesky(sight @ spread @ sight.transpose() + ERROR * tp.eye(M))
        surprise = tp.linalg.solve_triangular(factor, y - sight @ mean, lower=True)
        seen = tp.linalg.solve_triangular(factor, sight @ spread, lower=True)
        mean[0], spread[0] = tp.zeros((S,)), tp.eye(S)
        mean[t + 1] = system @ (mean + seen.transpose() @ surprise)
        spread[t + 1] = system @ (spread - seen.transpose() @ seen) @ system.transpose() + NOISE * tp.eye(S)
        likelihood = (-0.5 * (surprise**2).sum(0) - tp.log(tp.diagonal(factor)).sum(0))[0:n_t].sum(0)
        gradients = tp.grad(likelihood, wrt=[system, sight])
    return Traced(ctx, {n_t: T}, [likelihood, *gradients])


def kalman_by_hand(system: Array, sight: Array, y: Array) -> Any:
    M, S = sight.shape

    def likelihood(system: Array, sight: Array) -> Array:
        def step(carry: Any, y: Array) -> Any:
            mean, spread = carry
            factor = jnp.linalg.cholesky(sight @ spread @ sight.T + ERROR * jnp.eye(M))
            right = jnp.concatenate([(y - sight @ mean)[:, None], sight @ spread], 1)
            both = jax.scipy.linalg.solve_triangular(factor, right, lower=True)
            surprise, seen = both[:, 0], both[:, 1:]
            mean = system @ (mean + seen.T @ surprise)
            spread = system @ (spread - seen.T @ seen) @ system.T + NOISE * jnp.eye(S)
            return (mean, spread), -0.5 * (surprise**2).sum() - jnp.log(jnp.diagonal(factor)).sum()

        return lax.scan(step, (jnp.zeros(S), jnp.eye(S)), y)[1].sum()

    value, gradients = jax.value_and_grad(likelihood, (0, 1))(system, sight)
    return value, *gradients


# -- Burgers' equation, by Fourier transforms ---------------------------------------------------------------------------------

VISCOSITY, STEP = 0.05, 1e-3


def wave(random: Any, K: int, N: int) -> dict[str, Array]:
    x = np.arange(N) * 2 * np.pi / N
    return {"start": np.sin(x) + 0.3 * np.cos(2 * x)}


def burgers(K: int, N: int) -> Traced:
    """The slope is that of the spectrum, the friction is exact."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        frequency = tp.constant(np.arange(N // 2 + 1, dtype="float32"))
        decay = tp.exp(-VISCOSITY * STEP * frequency**2)
        u = tp.recurrence((N,), domain=(k,), name="u")
        flow = tp.fft.rfft(0.5 * u * u) * tp.Complex(tp.zeros_like(frequency), frequency)
        u[0] = tp.input("start", (N,))
        u[k + 1] = tp.fft.irfft((tp.fft.rfft(u) - STEP * flow) * decay, N)
        outputs = [(u**2).mean(0)[0:n_k], u[n_k - 1]]
    return Traced(ctx, {n_k: K}, outputs)


def burgers_by_hand(start: Array, K: int) -> Any:
    N = len(start)
    frequency = jnp.arange(N // 2 + 1, dtype="float32")
    decay = jnp.exp(-VISCOSITY * STEP * frequency**2)

    def step(u: Array, _: None) -> Any:
        flow = 1j * frequency * jnp.fft.rfft(0.5 * u * u)
        after = jnp.fft.irfft((jnp.fft.rfft(u) - STEP * flow) * decay, N)
        return after, (after**2).mean()

    last, energy = lax.scan(step, start, None, length=K - 1)
    return jnp.concatenate([(start**2).mean()[None], energy]), last


# -- walkers that prefer places where few have been ---------------------------------------------------------------------------


def walkers(random: Any, T: int, W: int, N: int) -> dict[str, Array]:
    return {"row": random.integers(0, N, W), "column": random.integers(0, N, W), "turn": random.integers(0, 4, (T, W))}


def walk(T: int, W: int, N: int) -> Traced:
    """How often each place was visited, and when last."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        turn = tp.input("turn", (W,), "int32", domain=(t,))
        row, column = (tp.recurrence((W,), "int32", domain=(t,), name=name) for name in ("row", "column"))
        visits, last = (tp.recurrence((N, N), "int32", domain=(t,), name=name) for name in ("visits", "last"))
        direction = (turn + visits.take((row, column), (0, 1))) % 4
        row[0], column[0] = tp.input("row", (W,), "int32"), tp.input("column", (W,), "int32")
        row[t + 1] = (row + tp.where(direction < 2, direction * 2 - 1, 0)) % N
        column[t + 1] = (column + tp.where(direction < 2, 0, direction * 2 - 5)) % N
        visits[0] = last[0] = tp.zeros((N, N), "int32")
        visits[t + 1] = visits.scatter((row, column), 1, (0, 1), "add")
        last[t + 1] = last.scatter((row, column), t, (0, 1), "max")
        outputs = [visits[n_t - 1], last[n_t - 1]]
    return Traced(ctx, {n_t: T}, outputs)


def walk_by_hand(row: Array, column: Array, turn: Array, N: int) -> Any:
    def step(carry: Any, at: Any) -> Any:
        row, column, visits, last, here = carry
        t, turn = at
        direction = (turn + here) % 4
        visits, last = visits.at[row, column].add(1), last.at[row, column].max(t)
        row = (row + jnp.where(direction < 2, direction * 2 - 1, 0)) % N
        column = (column + jnp.where(direction < 2, 0, direction * 2 - 5)) % N
        return (row, column, visits, last, visits[row, column]), None

    nothing = jnp.zeros((N, N), jnp.int32)
    times = jnp.arange(len(turn) - 1, dtype=jnp.int32)
    (_, _, visits, last, _), _ = lax.scan(step, (row, column, nothing, nothing, jnp.zeros_like(row)), (times, turn[:-1]))
    return visits, last


# -- connected components -----------------------------------------------------------------------------------------------------


def edges(random: Any, K: int, N: int, E: int) -> dict[str, Array]:
    return {"source": random.integers(0, N, E), "target": random.integers(0, N, E)}


def components(K: int, N: int, E: int) -> Traced:
    """Each point takes the least number of its neighbours, K times."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        source, target = tp.input("source", (E,), "int32"), tp.input("target", (E,), "int32")
        label = tp.recurrence((N,), "int32", domain=(k,), name="label")
        label[0] = tp.arange(N)
        label[k + 1] = label.scatter(target, label.take(source), mode="min")
        last = label[n_k - 1]
    return Traced(ctx, {n_k: K}, [last])


def components_by_hand(source: Array, target: Array, K: int, N: int) -> Any:
    def step(label: Array, _: None) -> Any:
        return label.at[target].min(label[source]), None

    return (lax.scan(step, jnp.arange(N, dtype=jnp.int32), None, length=K - 1)[0],)


CLASSICS = [
    Classic(
        "particle filter",
        particle_filter,
        {"scan": particle_filter_by_hand},
        particles,
        {
            "tiny": {"T": 5, "P": 8},
            "small": {"T": 20, "P": 32},
            "full": {"T": 500, "P": 4000},
            "long": {"T": 100_000, "P": 8},
        },
        tolerance=1e-2,
        reason="where rounding moves an edge across a position, another particle is picked",
    ),
    Classic(
        "k-means",
        k_means,
        {"segments": k_means_by_hand, "one-hot products": k_means_by_products},
        cloud,
        {
            "tiny": {"K": 4, "N": 9, "D": 2, "C": 3},
            "small": {"K": 10, "N": 50, "D": 2, "C": 4},
            "full": {"K": 50, "N": 5000, "D": 8, "C": 16},
        },
        tolerance=1e-2,
        reason="a point between two centers goes to one or the other",
    ),
    Classic(
        "Kalman filter, by factors",
        kalman,
        {"scan": kalman_by_hand},
        measured,
        {
            "tiny": {"T": 5, "S": 3, "M": 2},
            "small": {"T": 20, "S": 4, "M": 3},
            "full": {"T": 500, "S": 16, "M": 8},
            "long": {"T": 100_000, "S": 2, "M": 2},
        },
        tolerance=2e-3,
        reason="sums of float32 over many steps",
    ),
    Classic(
        "Burgers, by Fourier transforms",
        burgers,
        {"scan": burgers_by_hand},
        wave,
        {"tiny": {"K": 5, "N": 8}, "small": {"K": 20, "N": 32}, "full": {"K": 500, "N": 2048}, "long": {"K": 100_000, "N": 8}},
        tolerance=5e-3,
        reason="rounding errors of a flow grow",
    ),
    Classic(
        "walkers on a grid",
        walk,
        {"scan": walk_by_hand},
        walkers,
        {
            "tiny": {"T": 6, "W": 3, "N": 4},
            "small": {"T": 50, "W": 8, "N": 24},
            "full": {"T": 1000, "W": 64, "N": 256},
            "long": {"T": 100_000, "W": 2, "N": 32},
        },
    ),
    Classic(
        "connected components",
        components,
        {"scan": components_by_hand},
        edges,
        {
            "tiny": {"K": 4, "N": 8, "E": 6},
            "small": {"K": 10, "N": 300, "E": 200},
            "full": {"K": 50, "N": 10_000, "E": 8000},
            "long": {"K": 100_000, "N": 8, "E": 8},
        },
    ),
]
