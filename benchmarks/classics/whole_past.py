"""Convolutions with the whole past: a response to everything before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def signals(random: Any, B: int, T: int) -> dict[str, Array]:
    return {
        "x": random.normal(size=(B, T)),
        "kernel": random.normal(size=T),
        "weight": random.normal(size=(B, T)),
    }


def convolution(B: int, T: int) -> Traced:
    """y[b, t] = sum over s <= t of kernel[t - s] * x[b, s], and the gradients of a weighted sum."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x, weight = tp.input("x", domain=(b, t)), tp.input("weight", domain=(b, t))
        kernel = tp.input("kernel", domain=(t,))
        y = (kernel[0 : t + 1].flip(0) * x[b, 0 : t + 1]).sum(0)
        gradients = tp.grad((y * weight)[0:n_b, 0:n_t].sum(), wrt=[x, kernel])
    return Traced(ctx, {n_b: B, n_t: T}, [y, *gradients])


def by_fourier(x: Array, kernel: Array, weight: Array) -> Any:
    T = len(kernel)

    def respond(x: Array, kernel: Array) -> Array:
        return jnp.fft.irfft(jnp.fft.rfft(kernel, 2 * T) * jnp.fft.rfft(x, 2 * T), 2 * T)[:, :T]

    y, pull = jax.vjp(respond, x, kernel)
    return y, *pull(weight)


CLASSICS = [
    Classic(
        "convolution with the whole past",
        convolution,
        {"transforms": by_fourier},
        signals,
        {
            "tiny": {"B": 2, "T": 6},
            "small": {"B": 4, "T": 200},
            "full": {"B": 32, "T": 10_000},
            "long": {"B": 1, "T": 100_000},
        },
        reason="sums of float32 by Fourier transforms, whose rounding is that of the largest value",
    )
]
