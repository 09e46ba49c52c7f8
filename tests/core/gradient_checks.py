"""Gradients against central finite differences in float64, through the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tempo_core as tp
from tests import reference


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def assert_gradients(
    ctx: tp.Context, loss: tp.Tensor, leaves: Sequence[tp.Tensor], bounds: dict[Any, int], inputs: dict[str, np.ndarray]
) -> list[tp.Tensor]:
    """The gradients of `loss`, summed over its points, by input tensors agree with central differences.

    The check is in each element of a small tensor, and along three random directions of a large one.
    """
    gradients = tp.grad(loss, wrt=leaves)
    structure: reference.Structure = {}
    doubles = {name: array.astype("float64") for name, array in inputs.items()}

    def total(moved: dict[str, np.ndarray]) -> float:
        (value,) = reference.evaluate(ctx, [loss], bounds, moved, dtype="float64", structure=structure)
        return float(np.sum(value))

    for leaf, gradient in zip(leaves, gradients, strict=True):
        assert gradient.domain.steps == leaf.domain.steps
        (result,) = reference.evaluate(ctx, [gradient], bounds, doubles, dtype="float64", structure=structure)
        array = doubles[leaf.name]
        few = array.size <= 4 or not leaf.domain.steps
        directions = np.eye(array.size) if few else np.random.default_rng(5).normal(size=(3, array.size))
        for direction in directions.reshape(-1, *array.shape):
            high, low = (total({**doubles, leaf.name: array + h * direction}) for h in (1e-5, -1e-5))
            slope = (high - low) / 2e-5
            np.testing.assert_allclose(
                np.sum(result * direction), slope, rtol=1e-6, atol=1e-7, err_msg=f"gradient of {leaf.name}"
            )
    return gradients
