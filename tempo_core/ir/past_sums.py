"""Convolutions with the whole past, computed for all points at once, by Fourier transforms."""

from __future__ import annotations

from typing import Any


def past_sums(left: Any, right: Any, labels: str) -> Any:
    """`y[t] = sum over s <= t of left[t - s] * right[s]`, along the first dimension of all three.

    `labels` name the other dimensions as in `einsum`: of `left`, `right` and the result.
    The gradients are such sums too, of what comes in reverse order.
    """
    import jax  # the IR itself needs no JAX

    @jax.custom_vjp
    def sums(left: Any, right: Any) -> Any:
        return _or_by_distance(_by_transforms(left, right, labels), left, right, labels)

    def forward(left: Any, right: Any) -> Any:
        return sums(left, right), (left, right)

    def backward(operands: Any, gradient: Any) -> Any:
        first, second, result = _each(labels)
        later = jax.numpy.flip(gradient, 0)
        parts = ((operands[1], f"{result},{second}->{first}"), (operands[0], f"{result},{first}->{second}"))
        return tuple(jax.numpy.flip(past_sums(later, other, each), 0) for other, each in parts)

    sums.defvjp(forward, backward)
    return sums(left, right)


PAST_SUMS = f"{past_sums.__module__}.{past_sums.__name__}"


def _each(labels: str) -> list[str]:
    """The labels of the operands and of the result."""
    return labels.replace("->", ",").split(",")


def _with(labels: str, *points: str) -> str:
    """The labels, and those of points before them: of the operands and of the result."""
    left, right, result = (point + each for point, each in zip(points, _each(labels), strict=True))
    return f"{left},{right}->{result}"


def _by_transforms(left: Any, right: Any, labels: str) -> Any:
    """By products of Fourier transforms, of a size with small factors at which the ends do not meet."""
    from jax import numpy as jnp

    points = left.shape[0]
    size = min(m << max((2 * points - 2) // m, 1).bit_length() for m in (1, 3, 5, 9, 15))
    parts = (jnp.moveaxis(jnp.fft.rfft(jnp.moveaxis(x, 0, -1), size), -1, 0) for x in (left, right))
    products = jnp.einsum(_with(labels, "F", "F", "F"), *parts, precision="highest")
    return jnp.moveaxis(jnp.fft.irfft(jnp.moveaxis(products, 0, -1), size)[..., :points], -1, 0)


def _or_by_distance(y: Any, left: Any, right: Any, labels: str) -> Any:
    """The sums `y`, if all are finite: one infinite term is in all of them. Else a loop takes one distance of points after the other.

    Then an infinite value, or one near to it, is in the sums of its own points alone.
    """
    import jax
    from jax import numpy as jnp

    points = jnp.arange(left.shape[0])

    def further(distance: Any, y: Any) -> Any:
        terms = jnp.einsum(_with(labels, "", "T", "T"), left[distance], jnp.roll(right, distance, 0), precision="highest")
        return y + jnp.where(jnp.expand_dims(points >= distance, tuple(range(1, y.ndim))), terms, 0)

    is_finite = jnp.isfinite(y).all()
    return jax.lax.fori_loop(0, jnp.where(is_finite, 0, len(points)), further, jnp.where(is_finite, y, 0))
