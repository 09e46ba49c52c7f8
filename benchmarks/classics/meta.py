"""Gradients of gradients: meta-learning, hypergradients, penalties on gradients, curvature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def network(x: Any, hidden: Any, out: Any, package: Any) -> Any:
    """One hidden layer, in either language."""
    return package.tanh(x @ hidden) @ out


def layers(random: Any, inner: int, H: int, outer: int = 1) -> dict[str, Array]:
    return {"hidden": random.normal(size=(inner, H)) / np.sqrt(inner), "out": random.normal(size=(H, outer)) / np.sqrt(H)}


# -- MAML: learn a start from which few steps suffice -----------------------------------------------------------------------------

INNER, OUTER = 0.1, 0.05  # rates


def tasks(random: Any, I: int, B: int, K: int, N: int, H: int) -> dict[str, Array]:
    """In each iteration B tasks, with N pairs to learn from and N to be judged by."""
    shape = (I, B, N, 2)
    return layers(random, 2, H) | {name: random.normal(size=shape) for name in ("learn", "judge")}


def truth(x: Any, package: Any) -> Any:
    return package.sin(x).sum(-1, keepdims=True)


def maml(I: int, B: int, K: int, N: int, H: int) -> Traced:
    """Iterations, tasks and steps of learning are steps. The gradient of the start flows through the gradients of the tasks."""
    ctx = tp.Context("i", "b", "k")
    with ctx as ((i, n_i), (b, n_b), (k, n_k)):
        learn, judge = tp.input("learn", (N, 2), domain=(i, b)), tp.input("judge", (N, 2), domain=(i, b))
        start = [tp.recurrence(shape, domain=(i,), name=name) for name, shape in (("hidden", (2, H)), ("out", (H, 1)))]
        fast = [tp.recurrence(s.shape, domain=(i, b, k), name=f"fast_{s.name}") for s in start]
        error = ((network(learn, *fast, tp) - truth(learn, tp)) ** 2).mean()
        for w, s, gradient in zip(fast, start, tp.grad(error, wrt=fast), strict=True):
            w[i, b, 0] = s
            w[i, b, k + 1] = w - INNER * gradient
        learned = [w[i, b, n_k - 1] for w in fast]
        loss = ((network(judge, *learned, tp) - truth(judge, tp)) ** 2).mean()[i, 0:n_b].mean(0)
        for s, gradient in zip(start, tp.grad(loss, wrt=start), strict=True):
            s[0] = tp.input(f"{s.name}", s.shape)
            s[i + 1] = s - OUTER * gradient
    return Traced(ctx, {n_i: I, n_b: B, n_k: K}, [loss, start[0][n_i - 1]])


def maml_by_hand(hidden: Array, out: Array, learn: Array, judge: Array, K: int) -> Any:
    """Tasks are mapped, the steps of learning are written out."""

    def error(weights: Any, x: Array) -> Array:
        return ((network(x, *weights, jnp) - truth(x, jnp)) ** 2).mean()

    def task(start: Any, learn: Array, judge: Array) -> Array:
        weights = start
        for _ in range(K - 1):
            weights = jax.tree.map(lambda w, g: w - INNER * g, weights, jax.grad(error)(weights, learn))
        return error(weights, judge)

    def step(start: Any, at: Any) -> Any:
        mapped = lambda start: jax.vmap(task, (None, 0, 0))(start, *at).mean()  # noqa: E731
        loss, gradients = jax.value_and_grad(mapped)(start)
        return jax.tree.map(lambda w, g: w - OUTER * g, start, gradients), (loss, start[0])

    _, (losses, hiddens) = lax.scan(step, (hidden, out), (learn, judge))
    return losses, hiddens[-1]


def maml_by_hand_in_scans(hidden: Array, out: Array, learn: Array, judge: Array, K: int) -> Any:
    """As above, with the steps of learning in a scan."""

    def error(weights: Any, x: Array) -> Array:
        return ((network(x, *weights, jnp) - truth(x, jnp)) ** 2).mean()

    def task(start: Any, learn: Array, judge: Array) -> Array:
        def inner(weights: Any, _: None) -> Any:
            return jax.tree.map(lambda w, g: w - INNER * g, weights, jax.grad(error)(weights, learn)), None

        return error(lax.scan(inner, start, None, length=K - 1)[0], judge)

    def step(start: Any, at: Any) -> Any:
        mapped = lambda start: jax.vmap(task, (None, 0, 0))(start, *at).mean()  # noqa: E731
        loss, gradients = jax.value_and_grad(mapped)(start)
        return jax.tree.map(lambda w, g: w - OUTER * g, start, gradients), (loss, start[0])

    _, (losses, hiddens) = lax.scan(step, (hidden, out), (learn, judge))
    return losses, hiddens[-1]


# -- hypergradients: of the rates and of the decay, through all steps of learning -------------------------------------------------


def regression(random: Any, K: int, N: int, D: int) -> dict[str, Array]:
    x, judged = random.normal(size=(N, D)), random.normal(size=(N, D))
    weight = random.normal(size=D)
    return {
        "x": x,
        "y": (x @ weight > 0) * 1.0,
        "judged": judged,
        "wanted": (judged @ weight > 0) * 1.0,
        "rate": random.uniform(0.1, 0.5, (K,)),
        "decay": random.uniform(0.0, 0.1, (D,)),
    }


def cross_entropy(logits: Any, y: Any, softplus: Any) -> Any:
    return (softplus(logits) - y * logits).mean()


def hypergradient(K: int, N: int, D: int) -> Traced:
    """Logistic regression; a rate for each step, a decay for each weight."""
    ctx = tp.Context("k")
    with ctx as ((k, n_k),):
        x, y, judged, wanted = (tp.input(name, shape) for name, shape in regression_shapes(N, D))
        rate, decay = tp.input("rate", domain=(k,)), tp.input("decay", (D,))
        w = tp.recurrence((D,), domain=(k,), name="w")
        loss = cross_entropy(x @ w, y, tp.softplus) + 0.5 * (decay * w**2).sum()
        (gradient,) = tp.grad(loss, wrt=[w])
        w[0] = tp.zeros((D,))
        w[k + 1] = w - rate * gradient
        judgement = cross_entropy(judged @ w[n_k - 1], wanted, tp.softplus)
        gradients = tp.grad(judgement, wrt=[rate, decay])
    return Traced(ctx, {n_k: K}, [judgement, *gradients])


def regression_shapes(N: int, D: int) -> list[tuple[str, tuple[int, ...]]]:
    return [("x", (N, D)), ("y", (N,)), ("judged", (N, D)), ("wanted", (N,))]


def hypergradient_by_hand(x: Array, y: Array, judged: Array, wanted: Array, rate: Array, decay: Array) -> Any:
    def judgement(rate: Array, decay: Array) -> Array:
        def loss_of(w: Array) -> Array:
            return cross_entropy(x @ w, y, jax.nn.softplus) + 0.5 * (decay * w**2).sum()

        def step(w: Array, rate: Array) -> Any:
            return w - rate * jax.grad(loss_of)(w), None

        w, _ = lax.scan(step, jnp.zeros_like(decay), rate[:-1])
        return cross_entropy(judged @ w, wanted, jax.nn.softplus)

    value, gradients = jax.value_and_grad(judgement, (0, 1))(rate, decay)
    return value, *gradients


# -- a learned optimizer ----------------------------------------------------------------------------------------------------------


def problems(random: Any, B: int, K: int, D: int, H: int) -> dict[str, Array]:
    return {
        "matrix": random.normal(size=(B, D, D)) / np.sqrt(D),
        "y": random.normal(size=(B, D)),
        "enter": random.normal(size=(H,)),
        "state": random.normal(size=(H, H)) / np.sqrt(H),
        "leave": 0.1 * random.normal(size=(H,)),
    }


def learned_optimizer(B: int, K: int, D: int, H: int) -> Traced:
    """A small recurrent network maps each weight's gradient to its change (Andrychowicz et al., 2016), here with second order."""
    ctx = tp.Context("b", "k")
    with ctx as ((b, n_b), (k, n_k)):
        matrix, y = tp.input("matrix", (D, D), domain=(b,)), tp.input("y", (D,), domain=(b,))
        enter, state, leave = tp.input("enter", (H,)), tp.input("state", (H, H)), tp.input("leave", (H,))
        w = tp.recurrence((D,), domain=(b, k), name="w")
        memory = tp.recurrence((D, H), domain=(b, k), name="memory")
        loss = ((matrix @ w - y) ** 2).sum(0)
        (gradient,) = tp.grad(loss, wrt=[w])
        after = tp.tanh(memory @ state + gradient.expand_dims(1) * enter)
        w[b, 0], memory[b, 0] = tp.zeros((D,)), tp.zeros((D, H))
        w[b, k + 1], memory[b, k + 1] = w - after @ leave, after
        total = loss[0:n_b, 0:n_k].mean()
        gradients = tp.grad(total, wrt=[enter, state, leave])
    return Traced(ctx, {n_b: B, n_k: K}, [total, *gradients])


def learned_optimizer_by_hand(matrix: Array, y: Array, enter: Array, state: Array, leave: Array, K: int) -> Any:
    B, D = y.shape

    def total(enter: Array, state: Array, leave: Array) -> Array:
        def loss_of(w: Array) -> Array:
            return ((jnp.einsum("bmn,bn->bm", matrix, w) - y) ** 2).sum(1)

        def step(carry: Any, _: None) -> Any:
            w, memory = carry
            losses, pull = jax.vjp(loss_of, w)
            (gradient,) = pull(jnp.ones(B))
            after = jnp.tanh(memory @ state + gradient[:, :, None] * enter)
            return (w - after @ leave, after), losses

        _, losses = lax.scan(step, (jnp.zeros((B, D)), jnp.zeros((B, D, len(enter)))), None, length=K)
        return losses.mean()

    value, gradients = jax.value_and_grad(total, (0, 1, 2))(enter, state, leave)
    return value, *gradients


# -- a penalty on gradients -----------------------------------------------------------------------------------------------------------


def points(random: Any, B: int, D: int, H: int) -> dict[str, Array]:
    return layers(random, D, H) | {"x": random.normal(size=(B, D))}


def penalty(B: int, D: int, H: int) -> Traced:
    """A critic whose gradient by its operand should have the norm 1 (Gulrajani et al., 2017); the batch is a step."""
    ctx = tp.Context("b")
    with ctx as ((b, n_b),):
        hidden, out, x = tp.input("hidden", (D, H)), tp.input("out", (H, 1)), tp.input("x", (D,), domain=(b,))
        (slope,) = tp.grad(network(x, hidden, out, tp).sum(), wrt=[x])
        size = tp.sqrt((slope**2).sum(0))
        loss = ((size - 1) ** 2)[0:n_b].mean()
        gradients = tp.grad(loss, wrt=[hidden, out])
    return Traced(ctx, {n_b: B}, [size, *gradients])


def penalty_by_hand(hidden: Array, out: Array, x: Array) -> Any:
    def loss_of(hidden: Array, out: Array) -> Any:
        slope = jax.grad(lambda x: network(x, hidden, out, jnp).sum())(x)
        size = jnp.sqrt((slope**2).sum(1))
        return ((size - 1) ** 2).mean(), size

    (_, size), gradients = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(hidden, out)
    return size, *gradients


# -- curvature of a recurrent network ---------------------------------------------------------------------------------------------------


def recurrent_inputs(random: Any, T: int, H: int) -> dict[str, Array]:
    return {
        "x": random.normal(size=(T, H)),
        "w": random.normal(size=(H, H)) / np.sqrt(H),
        "direction": random.normal(size=(H, H)) / np.sqrt(H),
    }


def curvature(T: int, H: int) -> Traced:
    """The product of the Hessian with a direction: the gradient of the gradient's product with it, twice through time."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, w, direction = tp.input("x", (H,), domain=(t,)), tp.input("w", (H, H)), tp.input("direction", (H, H))
        h = tp.recurrence((H,), domain=(t,), name="h")
        h[0] = tp.tanh(x[0])
        h[t] = tp.tanh(h[t - 1] @ w + x)
        loss = (h**2)[0:n_t].mean()
        (gradient,) = tp.grad(loss, wrt=[w])
        (product,) = tp.grad((gradient * direction).sum(), wrt=[w])
    return Traced(ctx, {n_t: T}, [loss, gradient, product])


def curvature_loss(x: Array, w: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h

    _, h = lax.scan(step, jnp.zeros(len(w)), x)
    return (h**2).mean()


def curvature_by_two_reverse(x: Array, w: Array, direction: Array) -> Any:
    """Backwards over backwards, as the program."""
    loss, gradient = jax.value_and_grad(curvature_loss, 1)(x, w)
    product = jax.grad(lambda w: (jax.grad(curvature_loss, 1)(x, w) * direction).sum())(w)
    return loss, gradient, product


def curvature_by_forward(x: Array, w: Array, direction: Array) -> Any:
    """Forwards over backwards."""
    (loss, gradient), (_, product) = jax.jvp(lambda w: jax.value_and_grad(curvature_loss, 1)(x, w), (w,), (direction,))
    return loss, gradient, product


CLASSICS = [
    Classic(
        "MAML, second order",
        maml,
        {"written out": maml_by_hand, "scans": maml_by_hand_in_scans},
        tasks,
        {
            "tiny": {"I": 3, "B": 2, "K": 3, "N": 3, "H": 4},
            "small": {"I": 5, "B": 2, "K": 3, "N": 5, "H": 8},
            "full": {"I": 14, "B": 32, "K": 6, "N": 10, "H": 40},
        },
        tolerance=1e-3,
        reason="iterations of learning make rounding errors grow",
    ),
    Classic(
        "hypergradient",
        hypergradient,
        {"scan": hypergradient_by_hand},
        regression,
        {
            "tiny": {"K": 4, "N": 5, "D": 3},
            "small": {"K": 10, "N": 10, "D": 4},
            "full": {"K": 200, "N": 2000, "D": 64},
            "long": {"K": 100_000, "N": 5, "D": 3},
        },
    ),
    Classic(
        "learned optimizer",
        learned_optimizer,
        {"scan": learned_optimizer_by_hand},
        problems,
        {
            "tiny": {"B": 2, "K": 4, "D": 3, "H": 2},
            "small": {"B": 1, "K": 10, "D": 4, "H": 4},
            "full": {"B": 16, "K": 200, "D": 16, "H": 16},
        },
        tolerance=1e-3,
        reason="iterations of learning make rounding errors grow",
    ),
    Classic(
        "gradient penalty",
        penalty,
        {"map": penalty_by_hand},
        points,
        {
            "tiny": {"B": 3, "D": 2, "H": 4},
            "small": {"B": 8, "D": 4, "H": 8},
            "full": {"B": 16_384, "D": 64, "H": 128},
        },
    ),
    Classic(
        "curvature of an RNN",
        curvature,
        {"two reverse": curvature_by_two_reverse, "forward over reverse": curvature_by_forward},
        recurrent_inputs,
        {
            "tiny": {"T": 5, "H": 3},
            "small": {"T": 20, "H": 8},
            "full": {"T": 2000, "H": 64},
            "long": {"T": 100_000, "H": 4},
        },
        tolerance=1e-3,
    ),
]
