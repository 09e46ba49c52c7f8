"""Bounds on gradients."""

from __future__ import annotations

from collections.abc import Sequence

import tempo_core.frontend.functions as fn
from tempo_core.frontend.aliases import Domain
from tempo_core.frontend.inputs import domain_steps
from tempo_core.frontend.tensor import Tensor
from tempo_core.symbolic.expr import Expr, Symbol


def global_norm(tensors: Sequence[Tensor], over: Domain = ()) -> Tensor:
    """The Euclidean norm of all elements of all tensors, at all points of the steps in `over`."""
    with tensors[0].context:
        steps = domain_steps(over)
    squares = [fn.sum(_at_all_points(fn.square(g), steps)) for g in tensors]
    return fn.sqrt(sum(squares[1:], squares[0]))


def clip_by_global_norm(gradients: Sequence[Tensor], max_norm: float, over: Domain = ()) -> list[Tensor]:
    """Gradients scaled so that their global norm is at most `max_norm` (Pascanu et al., 2013, arXiv:1211.5063).

    `over` are steps whose points are clipped together, such as layers.
    """
    scale = fn.minimum(max_norm / (global_norm(gradients, over) + 1e-6), 1.0)
    return [g * scale for g in gradients]


def _at_all_points(x: Tensor, over: tuple[Symbol, ...]) -> Tensor:
    """`x` with a dimension for each step of `over` that it varies with."""
    index = tuple(slice(Expr.of(0), s.bound_expr) if s in over else s.expr for s in x.domain.steps)
    return x[index] if set(over) & set(x.domain.steps) else x


def clip_by_value(gradients: Sequence[Tensor], max_value: float) -> list[Tensor]:
    """Gradients with each element brought into ±`max_value`."""
    return [fn.minimum(fn.maximum(g, -max_value), max_value) for g in gradients]
