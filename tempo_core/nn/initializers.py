"""Initial values of parameters: functions from a shape to a tensor without steps.

Initializers that scale by the fan take weights as [..., n_in, n_out], as `Linear` and the convolutions store them: the dimensions
before the last two (a kernel's extent) count for both fans.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tempo_core.frontend.functions as fn
from tempo_core.errors import ShapeError
from tempo_core.frontend import random
from tempo_core.frontend.tensor import Tensor

__all__ = [
    "Initializer", "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform", "normal",
    "ones", "orthogonal", "uniform", "uniform_fan_in", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip

Shape = tuple[int, ...]
Initializer = Callable[[Shape], Tensor]


def constant(value: float) -> Initializer:
    """Every element `value`."""
    return lambda shape: fn.full(shape, value)


def zeros() -> Initializer:
    return constant(0.0)


def ones() -> Initializer:
    return constant(1.0)


def normal(std: float = 1.0, mean: float = 0.0) -> Initializer:
    """Normal with standard deviation `std`."""
    return lambda shape: random.normal(shape) * std + mean


def uniform(low: float, high: float) -> Initializer:
    """Uniform in [low, high)."""
    return lambda shape: random.uniform(shape, low, high)


def uniform_fan_in(fan_in: int) -> Initializer:
    """Uniform in ±1/sqrt(fan_in)."""
    if fan_in < 1:
        raise ShapeError(f"the weights have a fan_in of {fan_in}", hint="use widths of at least 1: tp.nn.Linear(4, 2)")
    limit = 1 / math.sqrt(fan_in)
    return uniform(-limit, limit)


def fans(shape: Shape) -> tuple[int, int]:
    """(fan_in, fan_out) of weights [..., n_in, n_out]: the inputs of each output, and the outputs that each input goes to."""
    if len(shape) < 2:
        raise ShapeError(
            f"weights of shape {shape} have no fan: they need [..., n_in, n_out]",
            hint="use tp.nn.normal(std) or tp.nn.uniform(low, high)",
        )
    extent = math.prod(shape[:-2])
    return extent * shape[-2], extent * shape[-1]


def glorot_uniform(gain: float = 1.0) -> Initializer:
    """Uniform with variance 2 / (fan_in + fan_out), times gain² (Glorot and Bengio, 2010)."""
    return lambda shape: _uniform(shape, gain * math.sqrt(2 / sum(fans(shape))))


def glorot_normal(gain: float = 1.0) -> Initializer:
    """Normal with variance 2 / (fan_in + fan_out), times gain² (Glorot and Bengio, 2010)."""
    return lambda shape: random.normal(shape) * (gain * math.sqrt(2 / sum(fans(shape))))


def he_uniform(gain: float = math.sqrt(2)) -> Initializer:
    """Uniform with variance gain² / fan_in; the gain is that of ReLU (He et al., 2015, arXiv:1502.01852)."""
    return lambda shape: _uniform(shape, gain / math.sqrt(fans(shape)[0]))


def he_normal(gain: float = math.sqrt(2)) -> Initializer:
    """Normal with variance gain² / fan_in; the gain is that of ReLU (He et al., 2015, arXiv:1502.01852)."""
    return lambda shape: random.normal(shape) * (gain / math.sqrt(fans(shape)[0]))


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def _uniform(shape: Shape, std: float) -> Tensor:
    return random.uniform(shape, -std * math.sqrt(3), std * math.sqrt(3))


def orthogonal(gain: float = 1.0) -> Initializer:
    """A matrix with orthonormal rows or columns (whichever are fewer), times `gain` (Saxe et al., 2014, arXiv:1312.6120).

    The orthonormal basis is Q of the QR decomposition of a normal matrix, with signs that make the diagonal of R positive.
    """

    def initialize(shape: tuple[int, ...]) -> Tensor:
        if len(shape) != 2:
            raise ShapeError(f"orthogonal initialisation makes matrices, not shape {shape}")
        rows, columns = shape
        tall = (max(rows, columns), min(rows, columns))
        basis = _orthonormal_columns(random.normal(tall))
        return (basis if rows >= columns else basis.transpose()) * gain

    return initialize


def _orthonormal_columns(matrix: Tensor) -> Tensor:
    """Q of the QR decomposition with a positive diagonal, by `jax.numpy.linalg.qr`."""
    from tempo_core.frontend.inputs import spec, udf

    (basis,) = udf(_qr_basis, matrix, outputs=[spec(matrix.shape)], name="orthonormal_columns")
    return basis


def _qr_basis(matrix):  # type: ignore[no-untyped-def]
    import jax.numpy as jnp

    basis, upper = jnp.linalg.qr(matrix)
    signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(matrix.dtype)
    return (basis * signs[None, :],)
