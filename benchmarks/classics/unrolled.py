"""Gradients of parameters through a loop: each iteration uses the same matrices, and adds to their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- optimal transport: Sinkhorn's iterations ---------------------------------------------------------------------------------

SMOOTH = 0.5


def transport(random: Any, K: int, N: int, M: int) -> dict[str, Array]:
    return {"cost": random.uniform(size=(N, M))}


def sinkhorn(K: int, N: int, M: int) -> Traced:
    """In logarithms, between uniform distributions; the gradient of the whole cost by the matrix of costs."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        cost = tp.input("cost", (N, M))
        rows = tp.recurrence((N,), domain=(k,), name="rows")
        columns = tp.recurrence((M,), domain=(k,), name="columns")
        rows_after = -SMOOTH * (((columns - cost) / SMOOTH).logsumexp(1) + float(np.log(N)))
        columns_after = -SMOOTH * (((rows_after.expand_dims(1) - cost) / SMOOTH).logsumexp(0) + float(np.log(M)))
        tp.carry(rows, tp.zeros((N,)), rows_after)
        tp.carry(columns, tp.zeros((M,)), columns_after)
        plan = tp.exp((rows[n_k - 1].expand_dims(1) + columns[n_k - 1] - cost) / SMOOTH)
        total = (plan * cost).sum()
        (gradient,) = tp.grad(total, wrt=[cost])
    return Traced(ctx, {n_k: K}, [total, plan, gradient])


def sinkhorn_by_hand(cost: Array, K: int) -> Any:
    N, M = cost.shape

    def total_of(cost: Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            _, columns = carry
            rows = -SMOOTH * (jax.nn.logsumexp((columns - cost) / SMOOTH, 1) + np.log(N))
            columns = -SMOOTH * (jax.nn.logsumexp((rows[:, None] - cost) / SMOOTH, 0) + np.log(M))
            return (rows, columns), None

        (rows, columns), _ = lax.scan(step, (jnp.zeros(N), jnp.zeros(M)), None, length=K - 1)
        plan = jnp.exp((rows[:, None] + columns - cost) / SMOOTH)
        return (plan * cost).sum(), plan

    (total, plan), gradient = jax.value_and_grad(total_of, has_aux=True)(cost)
    return total, plan, gradient


# -- weights that change by Hebb's rule -----------------------------------------------------------------------------------------


def plastic_inputs(random: Any, T: int, H: int) -> dict[str, Array]:
    matrices = {name: random.normal(size=(H, H)) / (2 * np.sqrt(H)) for name in ("weight", "share")}
    return matrices | {"rate": np.float32(0.1), "x": random.normal(size=(T, H)), "target": random.normal(size=(T, H))}


def plastic(T: int, H: int) -> Traced:
    """Differentiable plasticity (Miconi et al., 2018): the trace of each connection has a share in its weight."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        weight, share, rate = tp.input("weight", (H, H)), tp.input("share", (H, H)), tp.input("rate")
        x, target = tp.input("x", (H,), domain=(t,)), tp.input("target", (H,), domain=(t,))
        h = tp.recurrence((H,), domain=(t,), name="h")
        trace = tp.recurrence((H, H), domain=(t,), name="trace")
        after = tp.tanh(h @ (weight + share * trace) + x)
        tp.carry(h, tp.zeros((H,)), after)
        tp.carry(trace, tp.zeros((H, H)), (1 - rate) * trace + rate * h.expand_dims(1) * after)
        loss = ((after - target) ** 2)[0:n_t].mean()
        gradients = tp.grad(loss, wrt=[weight, share, rate])
    return Traced(ctx, {n_t: T}, [loss, *gradients])


def plastic_by_hand(weight: Array, share: Array, rate: Array, x: Array, target: Array) -> Any:
    def loss_of(weight: Array, share: Array, rate: Array) -> Array:
        def step(carry: Any, x: Array) -> Any:
            h, trace = carry
            after = jnp.tanh(h @ (weight + share * trace) + x)
            return (after, (1 - rate) * trace + rate * h[:, None] * after), after

        _, states = lax.scan(step, (jnp.zeros_like(x[0]), jnp.zeros_like(weight)), x)
        return ((states - target) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2))(weight, share, rate)
    return loss, *gradients


# -- sparse codes by learned iterations ---------------------------------------------------------------------------------------------


def sparse_inputs(random: Any, K: int, B: int, D: int, H: int) -> dict[str, Array]:
    code = random.normal(size=(B, H)) * (random.uniform(size=(B, H)) < 0.2)
    dictionary = random.normal(size=(H, D)) / np.sqrt(H + D)
    return {
        "x": code @ dictionary,
        "code": code,
        "enter": dictionary.T / 4,
        "inner": np.eye(H) - dictionary @ dictionary.T / 4,
        "threshold": np.full((H,), 0.02),
    }


def sparse_codes(K: int, B: int, D: int, H: int) -> Traced:
    """LISTA (Gregor and LeCun, 2010): matrices and thresholds are the same in each iteration."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        x, code = tp.input("x", (B, D)), tp.input("code", (B, H))
        enter, inner, threshold = tp.input("enter", (D, H)), tp.input("inner", (H, H)), tp.input("threshold", (H,))
        z = tp.recurrence((B, H), domain=(k,), name="z")
        following = z @ inner + x @ enter
        tp.carry(z, tp.zeros((B, H)), tp.relu(following - threshold) - tp.relu(-following - threshold))
        last = z[n_k - 1]
        gradients = tp.grad(((last - code) ** 2).mean((0, 1)), wrt=[enter, inner, threshold])
    return Traced(ctx, {n_k: K}, [last, *gradients])


def sparse_codes_by_hand(x: Array, code: Array, enter: Array, inner: Array, threshold: Array, K: int) -> Any:
    def loss_of(enter: Array, inner: Array, threshold: Array) -> Any:
        projected = x @ enter

        def step(z: Array, _: None) -> Any:
            following = z @ inner + projected
            return jax.nn.relu(following - threshold) - jax.nn.relu(-following - threshold), None

        last, _ = lax.scan(step, jnp.zeros_like(code), None, length=K - 1)
        return ((last - code) ** 2).mean(), last

    (_, last), gradients = jax.value_and_grad(loss_of, (0, 1, 2), has_aux=True)(enter, inner, threshold)
    return last, *gradients


CLASSICS = [
    Classic(
        "Sinkhorn",
        sinkhorn,
        {"scan": sinkhorn_by_hand},
        transport,
        {
            "tiny": {"K": 4, "N": 3, "M": 4},
            "small": {"K": 20, "N": 5, "M": 5},
            "full": {"K": 100, "N": 100, "M": 100},
            "long": {"K": 100_000, "N": 3, "M": 4},
        },
    ),
    Classic(
        "Hebbian plasticity",
        plastic,
        {"scan": plastic_by_hand},
        plastic_inputs,
        {
            "tiny": {"T": 5, "H": 3},
            "small": {"T": 60, "H": 8},
            "full": {"T": 1000, "H": 64},
            "long": {"T": 100_000, "H": 4},
        },
    ),
    Classic(
        "learned sparse codes",
        sparse_codes,
        {"scan": sparse_codes_by_hand},
        sparse_inputs,
        {
            "tiny": {"K": 4, "B": 2, "D": 3, "H": 4},
            "small": {"K": 30, "B": 1, "D": 8, "H": 16},
            "full": {"K": 100, "B": 32, "D": 64, "H": 128},
            "long": {"K": 100_000, "B": 1, "D": 4, "H": 4},
        },
    ),
]
