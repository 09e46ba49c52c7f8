"""Statistics over time: of the past, of windows, of blocks."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def values(random: Any, T: int, D: int, **_: int) -> dict[str, Array]:
    return {"x": random.normal(size=(T, D)), "weight": random.normal(size=(T, D))}


def weighted(y: Any, x: Any, weight: Any, t: Any, n_t: Any) -> Any:
    """y, and the gradient of its weighted sum by x."""
    (gradient,) = tp.grad((y * weight)[0:n_t].sum(), wrt=[x])
    return [y, gradient]


def with_gradient(function: Any) -> Any:
    """A form by hand from a function of x [T, D]: its result, and the gradient of its weighted sum."""

    def form(x: Array, weight: Array) -> Any:
        y, pull = jax.vjp(function, x)
        return y, *pull(weight)

    return form


# -- of the past ----------------------------------------------------------------------------------------------------------------------


def prefix(reduce: Any) -> Any:
    """The program of a reduction over the past, with its gradient."""

    def program(T: int, D: int) -> Traced:
        ctx = tp.Context("t")
        with ctx as ((t, n_t),):
            x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D,), domain=(t,))
            y = reduce(x[0 : t + 1])
            outputs = weighted(y, x, weight, t, n_t)
        return Traced(ctx, {n_t: T}, outputs)

    return program


def softmax_average(past: tp.Tensor) -> tp.Tensor:
    return (past.softmax(0) * past).sum(0)


def prefix_max_by_hand(x: Array) -> Array:
    return lax.cummax(x, 0)


def prefix_max_by_scan(x: Array) -> Array:
    def step(most: Array, x: Array) -> Any:
        most = jnp.where(x > most, x, most)
        return most, most

    return lax.scan(step, jnp.full(x.shape[1:], -jnp.inf), x)[1]


def prefix_logsumexp_by_hand(x: Array) -> Array:
    return lax.cumlogsumexp(x, 0)


def prefix_logsumexp_by_scan(x: Array) -> Array:
    def step(total: Array, x: Array) -> Any:
        total = jnp.logaddexp(total, x)
        return total, total

    return lax.scan(step, jnp.full(x.shape[1:], -1e30), x)[1]


def prefix_softmax_by_scan(x: Array) -> Array:
    def step(carry: Any, x: Array) -> Any:
        most, total, mass = carry
        following = jnp.maximum(most, lax.stop_gradient(x))
        kept, new = jnp.exp(most - following), jnp.exp(x - following)
        total, mass = total * kept + new * x, mass * kept + new
        return (following, total, mass), total / mass

    nothing = jnp.zeros(x.shape[1:])
    return lax.scan(step, (jnp.full(x.shape[1:], -1e30), nothing, nothing), x)[1]


def prefix_std_by_hand(x: Array) -> Array:
    """By the mean of squares of x less its first value."""
    count = jnp.arange(1, len(x) + 1, dtype=jnp.float32)[:, None]
    moved = x - lax.stop_gradient(x[0])
    mean = jnp.cumsum(moved, 0) / count
    return jnp.cumsum(moved**2, 0) / count - mean**2


# -- of a window ------------------------------------------------------------------------------------------------------------------------


def window(reduce: Any) -> Any:
    """The program of a reduction over the last W points, with its gradient."""

    def program(T: int, D: int, W: int) -> Traced:
        ctx = tp.Context("t")
        with ctx as ((t, n_t),):
            x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D,), domain=(t,))
            y = reduce(x[tp.max(t - W + 1, 0) : t + 1])
            outputs = weighted(y, x, weight, t, n_t)
        return Traced(ctx, {n_t: T}, outputs)

    return program


def shifted(x: Array, W: int, fill: float) -> Array:
    """[W, T, ...]: x of k points ago; `fill` before the first point."""
    padded = jnp.concatenate([jnp.full((W - 1, *x.shape[1:]), fill), x])
    return jnp.stack([padded[W - 1 - k : W - 1 - k + len(x)] for k in range(W)])


def windowed(function: Any) -> Any:
    """A form by hand from a function of x [T, D] and of the window's length."""

    def form(x: Array, weight: Array, W: int) -> Any:
        y, pull = jax.vjp(lambda x: function(x, W), x)
        return y, *pull(weight)

    return form


def window_max_by_reduction(x: Array, W: int) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (W, 1), (1, 1), ((W - 1, 0), (0, 0)))


def window_max_by_shifts(x: Array, W: int) -> Array:
    return shifted(x, W, -jnp.inf).max(0)


def window_max_by_doubling(x: Array, W: int) -> Array:
    """Maxima of 1, 2, 4, ... points, and two that overlap."""

    def later(x: Array, by: int) -> Array:
        return jnp.concatenate([jnp.full((by, x.shape[1]), -jnp.inf), x[:-by]])

    length = 1
    while 2 * length <= W:
        x, length = jnp.maximum(x, later(x, length)), 2 * length
    return jnp.maximum(x, later(x, W - length)) if length < W else x


def window_variance_by_shifts(x: Array, W: int) -> Array:
    count = jnp.minimum(jnp.arange(1, len(x) + 1), W).astype(jnp.float32)[:, None]
    parts, is_inside = shifted(x, W, 0.0), shifted(jnp.ones_like(x), W, 0.0)
    mean = parts.sum(0) / count
    return (is_inside * (parts - mean) ** 2).sum(0) / count


def window_softmax_by_shifts(x: Array, W: int) -> Array:
    parts = shifted(x, W, -1e30)
    return (jax.nn.softmax(parts, 0) * parts).sum(0)


def slices(x: Array, W: int, fill: float) -> list[Array]:
    """x of k points ago for each k < W, as slices of one array, which XLA reads where it needs them."""
    padded = jnp.concatenate([jnp.full((W - 1, *x.shape[1:]), fill), x])
    return [padded[W - 1 - k : W - 1 - k + len(x)] for k in range(W)]


def window_variance_by_slices(x: Array, W: int) -> Array:
    at = jnp.arange(len(x))[:, None]
    count = jnp.minimum(at + 1, W).astype(jnp.float32)
    parts = slices(x, W, 0.0)
    mean = functools.reduce(jnp.add, parts) / count
    squares = [jnp.where(at >= k, (part - mean) ** 2, 0.0) for k, part in enumerate(parts)]
    return functools.reduce(jnp.add, squares) / count


def window_variance_by_moments(x: Array, W: int) -> Array:
    """The mean of squares less the square of the mean, of x less its mean; sums by doubling."""
    count = jnp.minimum(jnp.arange(1, len(x) + 1), W).astype(jnp.float32)[:, None]
    moved = x - lax.stop_gradient(x.mean(0))
    return window_sum(moved**2, W) / count - (window_sum(moved, W) / count) ** 2


def window_sum(x: Array, W: int) -> Array:
    """Sums of 1, 2, 4, ... points; the binary digits of W say which of them make up a window."""

    def later(x: Array, by: int) -> Array:
        return jnp.concatenate([jnp.zeros((by, x.shape[1])), x[:-by]]) if by else x

    total, done, length = jnp.zeros_like(x), 0, 1
    while length <= W:
        if W & length:
            total, done = total + later(x, done), done + length
        x, length = x + later(x, length), 2 * length
    return total


def window_softmax_by_slices(x: Array, W: int) -> Array:
    parts = slices(x, W, -1e30)
    greatest = lax.stop_gradient(functools.reduce(jnp.maximum, parts))
    shares = [jnp.exp(part - greatest) for part in parts]
    weighed = functools.reduce(jnp.add, [share * part for share, part in zip(shares, parts, strict=True)])
    return weighed / functools.reduce(jnp.add, shares)


# -- a finite impulse response ------------------------------------------------------------------------------------------------------------


def taps(random: Any, T: int, D: int, W: int) -> dict[str, Array]:
    return values(random, T, D) | {"kernel": random.normal(size=(W,)) / W}


def impulse_response(T: int, D: int, W: int) -> Traced:
    """y[t] = sum over k of kernel[k] x[t - k], with zeros before the first point."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D,), domain=(t,))
        kernel = tp.input("kernel", (W,))
        first = tp.max(t - W + 1, 0)
        length = t + 1 - first
        y = kernel.flip(0).spatial[W - length : W] @ x[first : t + 1]  # the oldest first
        gradients = tp.grad((y * weight)[0:n_t].sum(), wrt=[x, kernel])
    return Traced(ctx, {n_t: T}, [y, *gradients])


def impulse_response_by_convolution(x: Array, weight: Array, kernel: Array) -> Any:
    W = len(kernel)

    def respond(x: Array, kernel: Array) -> Array:
        signal = jnp.pad(x.T, ((0, 0), (W - 1, 0)))[:, None, :]
        return lax.conv_general_dilated(signal, kernel[::-1][None, None], (1,), "VALID")[:, 0].T

    y, pull = jax.vjp(respond, x, kernel)
    return y, *pull(weight)


def impulse_response_by_shifts(x: Array, weight: Array, kernel: Array) -> Any:
    W = len(kernel)

    def respond(x: Array, kernel: Array) -> Array:
        padded = jnp.pad(x, ((W - 1, 0), (0, 0)))
        return sum(kernel[k] * padded[W - 1 - k : W - 1 - k + len(x)] for k in range(W))

    y, pull = jax.vjp(respond, x, kernel)
    return y, *pull(weight)


# -- of blocks --------------------------------------------------------------------------------------------------------------------------------


def block_softmax(T: int, D: int, W: int) -> Traced:
    """Each point's share of its block's exponentials, by blocks of W."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (D,), domain=(t,)), tp.input("weight", (D,), domain=(t,))
        total = x[t // W * W : tp.min((t // W + 1) * W, n_t)].logsumexp(0)
        y = tp.exp(x - total)
        outputs = weighted(y, x, weight, t, n_t)
    return Traced(ctx, {n_t: T}, outputs)


def block_softmax_by_hand(x: Array, W: int) -> Array:
    """The last block may be shorter."""
    T, D = x.shape
    padded = jnp.pad(x, ((0, -T % W), (0, 0)), constant_values=-jnp.inf).reshape(-1, W, D)
    return jax.nn.softmax(padded, 1).reshape(-1, D)[:T]


# -- sums of rectangles -----------------------------------------------------------------------------------------------------------------------


def image(random: Any, M: int, N: int) -> dict[str, Array]:
    return {"x": random.normal(size=(M, N))}


def integral_image(M: int, N: int) -> Traced:
    """The sum of all above and to the left; rows and columns are steps."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, n_i), (j, n_j)):
        x = tp.input("x", domain=(i, j))
        y = x[0 : i + 1, 0 : j + 1].sum((0, 1))
        (gradient,) = tp.grad((y**2)[0:n_i, 0:n_j].mean(), wrt=[x])
    return Traced(ctx, {n_i: M, n_j: N}, [y, gradient])


def integral_image_by_hand(x: Array) -> Any:
    def mean_square(x: Array) -> Any:
        y = jnp.cumsum(jnp.cumsum(x, 0), 1)
        return (y**2).mean(), y

    (_, y), gradient = jax.value_and_grad(mean_square, has_aux=True)(x)
    return y, gradient


# -- counts by data ---------------------------------------------------------------------------------------------------------------------------


def symbols(random: Any, B: int, T: int, K: int) -> dict[str, Array]:
    return {"symbol": random.integers(0, K, (B, T))}


def adaptive_model(B: int, T: int, K: int) -> Traced:
    """The logarithm of each symbol's probability by the counts of the past: what an adaptive coder would pay."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        symbol = tp.input("symbol", (), "int32", domain=(b, t))
        one = symbol.one_hot(K)
        before = one[b, 0:t].sum(0)
        cost = tp.log(t + 1.0 * K) - tp.log(before.index(0, symbol) + 1.0)
        total = cost[b, 0:n_t].sum(0)
    return Traced(ctx, {n_b: B, n_t: T}, [total])


def adaptive_model_by_scan(symbol: Array, K: int) -> Any:
    B, T = symbol.shape
    rows = jnp.arange(B)

    def step(count: Array, at: Any) -> Any:
        t, symbol = at
        return count.at[rows, symbol].add(1.0), jnp.log(t + 1.0 * K) - jnp.log(count[rows, symbol] + 1.0)

    _, cost = lax.scan(step, jnp.zeros((B, K)), (jnp.arange(T, dtype=jnp.float32), symbol.T))
    return (cost.sum(0),)


def adaptive_model_by_sum(symbol: Array, K: int) -> Any:
    one = jax.nn.one_hot(symbol, K)
    count = ((jnp.cumsum(one, 1) - one) * one).sum(-1)
    cost = jnp.log(jnp.arange(symbol.shape[1]) + 1.0 * K) - jnp.log(count + 1.0)
    return (cost.sum(1),)


PAST = {
    "tiny": {"T": 6, "D": 2},
    "small": {"T": 50, "D": 2},
    "full": {"T": 12_000, "D": 64},
    "long": {"T": 100_000, "D": 1},
}
WINDOW = {
    "tiny": {"T": 7, "D": 2, "W": 3},
    "small": {"T": 50, "D": 2, "W": 5},
    "full": {"T": 50_000, "D": 32, "W": 10},
    "long": {"T": 100_000, "D": 1, "W": 10},
}
SYMBOLS = {
    "tiny": {"B": 2, "T": 6, "K": 3},
    "small": {"B": 1, "T": 30, "K": 4},
    "full": {"B": 16, "T": 6000, "K": 64},
    "long": {"B": 1, "T": 100_000, "K": 4},
}


def past_row(name: str, reduce: Any, forms: dict[str, Any]) -> Classic:
    forms = {form: with_gradient(function) for form, function in forms.items()}
    return Classic(f"prefix {name}", prefix(reduce), forms, values, PAST, tolerance=1e-3)


def window_row(name: str, reduce: Any, forms: dict[str, Any]) -> Classic:
    forms = {form: windowed(function) for form, function in forms.items()}
    return Classic(f"window {name}", window(reduce), forms, values, WINDOW)


CLASSICS = [
    past_row("max", lambda past: past.max(0), {"cummax": prefix_max_by_hand, "scan": prefix_max_by_scan}),
    past_row(
        "logsumexp",
        lambda past: past.logsumexp(0),
        {"cumlogsumexp": prefix_logsumexp_by_hand, "scan": prefix_logsumexp_by_scan},
    ),
    past_row("variance", lambda past: past.var(0), {"sums": prefix_std_by_hand}),
    past_row("softmax", softmax_average, {"scan": prefix_softmax_by_scan}),
    window_row(
        "max",
        lambda part: part.max(0),
        {"reduction": window_max_by_reduction, "shifts": window_max_by_shifts, "doubling": window_max_by_doubling},
    ),
    window_row(
        "variance",
        lambda part: part.var(0),
        {"shifts": window_variance_by_shifts, "slices": window_variance_by_slices, "moments": window_variance_by_moments},
    ),
    window_row("softmax", softmax_average, {"shifts": window_softmax_by_shifts, "slices": window_softmax_by_slices}),
    Classic(
        "impulse response",
        impulse_response,
        {"convolution": impulse_response_by_convolution, "shifts": impulse_response_by_shifts},
        taps,
        WINDOW,
    ),
    Classic(
        "impulse response, long",
        impulse_response,
        {"convolution": impulse_response_by_convolution, "shifts": impulse_response_by_shifts},
        taps,
        {"tiny": {"T": 30, "D": 2, "W": 18}, "small": {"T": 60, "D": 2, "W": 20}, "full": {"T": 12_000, "D": 16, "W": 64}},
    ),
    Classic("block softmax", block_softmax, {"reshape": windowed(block_softmax_by_hand)}, values, WINDOW),
    Classic(
        "integral image",
        integral_image,
        {"sums": integral_image_by_hand},
        image,
        {"tiny": {"M": 4, "N": 5}, "small": {"M": 10, "N": 12}, "full": {"M": 1000, "N": 1000}},
    ),
    Classic("adaptive model", adaptive_model, {"scan": adaptive_model_by_scan, "sum": adaptive_model_by_sum}, symbols, SYMBOLS),
]
