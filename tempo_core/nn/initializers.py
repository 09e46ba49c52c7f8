"""Initial values of parameters: functions from a shape to a tensor without steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import tempo_core.frontend.functions as fn
from tempo_core.errors import ShapeError
from tempo_core.frontend import random
from tempo_core.frontend.tensor import Tensor

Initializer = Callable[[tuple[int, ...]], Tensor]


def constant(value: float) -> Initializer:
    """Every element `value`."""
    return lambda shape: fn.full(shape, value)


def uniform_fan_in(fan_in: int) -> Initializer:
    """Uniform in ±1/sqrt(fan_in)."""
    limit = 1 / math.sqrt(fan_in)
    return lambda shape: random.uniform(shape, -limit, limit)


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
    from tempo_core.frontend.sources import spec, udf

    (basis,) = udf(_qr_basis, matrix, outputs=[spec(matrix.shape)], name="orthonormal_columns")
    return basis


def _qr_basis(matrix):  # type: ignore[no-untyped-def]
    import jax.numpy as jnp

    basis, upper = jnp.linalg.qr(matrix)
    signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(matrix.dtype)
    return (basis * signs[None, :],)
