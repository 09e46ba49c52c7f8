"""Bounds on gradients."""

from __future__ import annotations

from collections.abc import Sequence

import tempo_core.frontend.functions as fn
from tempo_core.frontend.tensor import Tensor


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all elements of all tensors."""
    squares = [fn.total(fn.square(g)) for g in tensors]
    norm = squares[0]
    for square in squares[1:]:
        norm = norm + square
    return fn.sqrt(norm)


def clip_by_global_norm(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Gradients scaled so that their global norm is at most `max_norm` (Pascanu et al., 2013, arXiv:1211.5063)."""
    scale = fn.minimum_of(max_norm / (global_norm(gradients) + 1e-6), 1.0)
    return [g * scale for g in gradients]


def clip_by_value(gradients: Sequence[Tensor], max_value: float) -> list[Tensor]:
    """Gradients with each element brought into ±`max_value`."""
    return [fn.minimum_of(fn.maximum_of(g, -max_value), max_value) for g in gradients]
