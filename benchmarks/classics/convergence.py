"""Iterations of which only the last value is wanted: solvers until they converge, averages over time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced
from benchmarks.classics.linear_algebra import positive

# -- conjugate gradients until the rest is small ------------------------------------------------------------------------------

SMALL = 1e-8  # the square of the rest, relative to that of the right side


def systems(random: Any, N: int, K: int) -> dict[str, Array]:
    return {"matrix": positive(random, 1, N)[0], "y": random.normal(size=(N,))}


def conjugate_gradients(N: int, K: int) -> Traced:
    """K iterations at most."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        matrix, y = tp.input("matrix", (N, N)), tp.input("y", (N,))
        x, rest, direction = (tp.recurrence((N,), domain=(k,), name=name) for name in ("x", "rest", "direction"))
        image = matrix @ direction
        square = (rest**2).sum(0)
        length = square / (direction * image).sum(0)
        following = rest - length * image
        x[0], rest[0], direction[0] = tp.zeros((N,)), y, y
        x[k + 1] = x + length * direction
        rest[k + 1] = following
        direction[k + 1] = following + (following**2).sum(0) / square * direction
        ctx.ends(k, when=square < SMALL * (y**2).sum(0))
    return Traced(ctx, {n_k: K}, [x[n_k - 1]])


def conjugate_gradients_by_hand(matrix: Array, y: Array, K: int) -> Any:
    enough = SMALL * (y**2).sum()

    def goes_on(carry: Any) -> Array:
        k, _, _, _, square = carry
        return (k < K - 1) & (square >= enough)

    def step(carry: Any) -> Any:
        k, x, rest, direction, square = carry
        image = matrix @ direction
        length = square / (direction @ image)
        rest = rest - length * image
        following = rest @ rest
        return k + 1, x + length * direction, rest, rest + following / square * direction, following

    return (lax.while_loop(goes_on, step, (0, jnp.zeros_like(y), y, y, y @ y))[1],)


# -- an equilibrium, approached by relaxation ---------------------------------------------------------------------------------


def relaxed(K: int) -> float:
    """The part of a step: convergence takes about a tenth of K iterations."""
    return min(0.5, 100 / K)


def equations(random: Any, B: int, H: int, K: int) -> dict[str, Array]:
    return {"weight": random.normal(size=(H, H)) / (3 * np.sqrt(H)), "x": random.normal(size=(B, H))}


def equilibrium(B: int, H: int, K: int) -> Traced:
    """z = tanh(z @ weight + x), in K iterations at most."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        weight, x = tp.input("weight", (H, H)), tp.input("x", (B, H))
        z = tp.recurrence((B, H), domain=(k,), name="z")
        image = tp.tanh(z @ weight + x)
        z[0] = tp.zeros((B, H))
        z[k + 1] = (1 - relaxed(K)) * z + relaxed(K) * image
        ctx.ends(k, when=abs(image - z).max((0, 1)) < 1e-4)
        count = tp.ones(()) * n_k
    return Traced(ctx, {n_k: K}, [z[n_k - 1], count])


def equilibrium_by_hand(weight: Array, x: Array, K: int) -> Any:
    def image_of(z: Array) -> Array:
        return jnp.tanh(z @ weight + x)

    def goes_on(carry: Any) -> Array:
        k, z, image = carry
        return (k < K - 1) & (jnp.abs(image - z).max() >= 1e-4)

    def step(carry: Any) -> Any:
        k, z, image = carry
        z = (1 - relaxed(K)) * z + relaxed(K) * image
        return k + 1, z, image_of(z)

    k, z, _ = lax.while_loop(goes_on, step, (0, jnp.zeros_like(x), image_of(jnp.zeros_like(x))))
    return z, k + 1.0


# -- an implicit method: each time has a solver in it -------------------------------------------------------------------------

STEP, PART = 0.1, 0.4  # the length of a step of time; the part of a step of relaxation


def decays(random: Any, T: int, K: int, N: int) -> dict[str, Array]:
    return {
        "rate": random.uniform(0.1, 3.0, (N,)),
        "weight": random.normal(size=(N, N)) / np.sqrt(N),
        "start": random.normal(size=(N,)),
    }


def implicit(T: int, K: int, N: int) -> Traced:
    """Decay is implicit, solved in K iterations; what is driven by the state is explicit."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, n_t), (k, n_k)):
        rate, weight, start = tp.input("rate", (N,)), tp.input("weight", (N, N)), tp.input("start", (N,))
        y = tp.recurrence((N,), domain=(t,), name="y")
        trial = tp.recurrence((N,), domain=(t, k), name="trial")
        explicit = y + STEP * tp.tanh(y @ weight)
        trial[t, 0] = y
        trial[t, k + 1] = (1 - PART) * trial + PART * (explicit - STEP * rate * trial)
        y[0] = start
        y[t + 1] = trial[t, n_k - 1]
    return Traced(ctx, {n_t: T, n_k: K}, [y[n_t - 1]])


def implicit_by_hand(rate: Array, weight: Array, start: Array, T: int, K: int) -> Any:
    def step(y: Array, _: None) -> Any:
        explicit = y + STEP * jnp.tanh(y @ weight)
        relax = lambda _, trial: (1 - PART) * trial + PART * (explicit - STEP * rate * trial)  # noqa: E731
        return lax.fori_loop(0, K - 1, relax, y), None

    return (lax.scan(step, start, None, length=T - 1)[0],)


# -- averages over time ---------------------------------------------------------------------------------------------------------

KEEP, RATE = 0.99, 0.02


def samples(random: Any, T: int, B: int, D: int) -> dict[str, Array]:
    x = random.normal(size=(T, B, D))
    return {"x": x, "target": x @ random.normal(size=(D, D)) / np.sqrt(D) + 0.1 * random.normal(size=(T, B, D))}


def averaged_weights(T: int, B: int, D: int) -> Traced:
    """A linear model learns; the average of its weights is used."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, target = tp.input("x", (B, D), domain=(t,)), tp.input("target", (B, D), domain=(t,))
        weight = tp.recurrence((D, D), domain=(t,), name="weight")
        average = tp.recurrence((D, D), domain=(t,), name="average")
        weight[0], average[0] = tp.zeros((D, D)), tp.zeros((D, D))
        loss = ((x @ weight - target) ** 2).sum() / 2
        (gradient,) = tp.grad(loss, wrt=[weight])
        weight[t + 1] = weight - RATE * gradient
        average[t + 1] = KEEP * average + (1 - KEEP) * weight
        last = average[n_t - 1]
    return Traced(ctx, {n_t: T}, [last])


def averaged_weights_by_hand(x: Array, target: Array) -> Any:
    def step(carry: Any, at: Any) -> Any:
        weight, average = carry
        x, target = at
        gradient = x.T @ (x @ weight - target)
        return (weight - RATE * gradient, KEEP * average + (1 - KEEP) * weight), None

    D = x.shape[2]
    (_, average), _ = lax.scan(step, (jnp.zeros((D, D)), jnp.zeros((D, D))), (x[:-1], target[:-1]))
    return (average,)


def vectors(random: Any, T: int, D: int) -> dict[str, Array]:
    return {"x": random.normal(size=(T, D)), "weight": random.normal(size=(D, D)) / np.sqrt(D)}


def averaged_products(T: int, D: int) -> Traced:
    """The average of outer products of inputs, and the gradient of its weighted sum."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D, D))
        average = tp.recurrence((D, D), domain=(t,), name="average")
        tp.carry(average, tp.zeros((D, D)), KEEP * average + (1 - KEEP) * x.expand_dims(1) * x)
        last = average[n_t - 1]
        (gradient,) = tp.grad((last * weight).sum(), wrt=[x])
    return Traced(ctx, {n_t: T}, [last, gradient])


def averaged_products_by_scan(x: Array, weight: Array) -> Any:
    def total(x: Array) -> Any:
        def step(average: Array, x: Array) -> Any:
            return KEEP * average + (1 - KEEP) * x[:, None] * x, None

        last, _ = lax.scan(step, jnp.zeros_like(weight), x[:-1])
        return (last * weight).sum(), last

    (_, last), gradient = jax.value_and_grad(total, has_aux=True)(x)
    return last, gradient


def averaged_products_by_product(x: Array, weight: Array) -> Any:
    """All addends at once: one product of matrices."""

    def total(x: Array) -> Any:
        share = (1 - KEEP) * KEEP ** jnp.arange(len(x) - 2, -1, -1.0)[:, None]
        last = (share * x[:-1]).T @ x[:-1]
        return (last * weight).sum(), last

    (_, last), gradient = jax.value_and_grad(total, has_aux=True)(x)
    return last, gradient


def averaged_states(T: int, D: int) -> Traced:
    """The average of outer products of a network's states."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D, D))
        h = tp.recurrence((D,), domain=(t,), name="h")
        average = tp.recurrence((D, D), domain=(t,), name="average")
        tp.carry(h, tp.zeros((D,)), tp.tanh(h @ weight + x))
        tp.carry(average, tp.zeros((D, D)), KEEP * average + (1 - KEEP) * h.expand_dims(1) * h)
    return Traced(ctx, {n_t: T}, [average[n_t - 1]])


def averaged_states_by_scan(x: Array, weight: Array) -> Any:
    def step(carry: Any, x: Array) -> Any:
        h, average = carry
        return (jnp.tanh(h @ weight + x), KEEP * average + (1 - KEEP) * h[:, None] * h), None

    (_, average), _ = lax.scan(step, (jnp.zeros_like(x[0]), jnp.zeros_like(weight)), x[:-1])
    return (average,)


def averaged_states_by_product(x: Array, weight: Array) -> Any:
    """All states first, then one product of matrices."""

    def step(h: Array, x: Array) -> Any:
        return jnp.tanh(h @ weight + x), h

    _, h = lax.scan(step, jnp.zeros_like(x[0]), x[:-1])
    share = (1 - KEEP) * KEEP ** jnp.arange(len(h) - 1, -1, -1.0)[:, None]
    return ((share * h).T @ h,)


VECTORS = {
    "tiny": {"T": 6, "D": 3},
    "small": {"T": 500, "D": 16},
    "full": {"T": 10_000, "D": 64},
    "long": {"T": 100_000, "D": 8},
}
CLASSICS = [
    Classic(
        "conjugate gradients until converged",
        conjugate_gradients,
        {"while": conjugate_gradients_by_hand},
        systems,
        {
            "tiny": {"N": 5, "K": 10},
            "small": {"N": 32, "K": 500},
            "full": {"N": 256, "K": 10_000},
            "long": {"N": 16, "K": 100_000},
        },
        tolerance=1e-3,
        reason="each iteration divides by what is left of the error",
    ),
    Classic(
        "equilibrium until converged",
        equilibrium,
        {"while": equilibrium_by_hand},
        equations,
        {
            "tiny": {"B": 2, "H": 3, "K": 30},
            "small": {"B": 1, "H": 8, "K": 500},
            "full": {"B": 16, "H": 32, "K": 10_000},
            "long": {"B": 1, "H": 8, "K": 100_000},
        },
        tolerance=1e-3,
        reason="one iteration more or less",
    ),
    Classic(
        "implicit method",
        implicit,
        {"loops": implicit_by_hand},
        decays,
        {
            "tiny": {"T": 4, "K": 3, "N": 3},
            "small": {"T": 50, "K": 10, "N": 8},
            "full": {"T": 1000, "K": 10, "N": 256},
            "long": {"T": 100_000, "K": 4, "N": 4},
        },
    ),
    Classic(
        "average of weights",
        averaged_weights,
        {"scan": averaged_weights_by_hand},
        samples,
        {
            "tiny": {"T": 6, "B": 2, "D": 3},
            "small": {"T": 500, "B": 2, "D": 8},
            "full": {"T": 10_000, "B": 4, "D": 32},
            "long": {"T": 100_000, "B": 1, "D": 4},
        },
    ),
    Classic(
        "average of products",
        averaged_products,
        {"scan": averaged_products_by_scan, "product": averaged_products_by_product},
        vectors,
        VECTORS,
    ),
    Classic(
        "average of a network's states",
        averaged_states,
        {"scan": averaged_states_by_scan, "product": averaged_states_by_product},
        vectors,
        VECTORS,
    ),
]
