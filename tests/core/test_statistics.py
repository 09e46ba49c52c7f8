"""Statistics of prefixes and suffixes, written in several ways: right, and as precise far from zero as the sums that they replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.cases import cells, first
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.growth.table import RANGES, STATISTICS
from tests.core.running import assert_same

READS = ("prefix", "suffix")


def program(name: str, read: str) -> tuple[tp.Context, Any, tp.Tensor, tp.Tensor]:
    """A context, its bound, x over (t), and a loss over (t): a statistic of x, y and weights w."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y, w = (tp.input(each, domain=(t,)) for each in "xyw")
        return ctx, T, x, STATISTICS[name](*(RANGES[read](each, t, T) for each in (x, y, w))) * (1.0 + x * y * w)


def numbers(size: int) -> dict[str, np.ndarray]:
    return {"x": normal(size, seed=1), "y": normal(size, seed=2), "w": 0.5 + normal(size, seed=3) ** 2}


@pytest.mark.parametrize(("name", "read"), cells(STATISTICS, READS))
def test_values_and_gradients(name: str, read: str) -> None:
    ctx, T, x, loss = program(name, read)
    with ctx:
        (gradient,) = assert_gradients(ctx, loss, [x], {T: 5}, numbers(5))
    for size in (5, 1):
        fed = {each: values.astype("float32") for each, values in numbers(size).items()}
        expected = reference.evaluate(ctx, [loss, gradient], {T: size}, fed)
        results = ctx.run({T: size}, [loss, gradient], fed, tp.Config(backend="numpy"))
        for result, value in zip(results, expected, strict=True):
            assert_same(result, value, 1e-4, name)


# How far float32 may be from float64, relative to the mean size of the terms. The mean of the past is a float32 too, so that the third and
# fourth powers of distances from it are off where the numbers are far from zero, however they are summed.
PRECISION = {
    "variance, power": 1e-6, "variance, contraction": 1e-6, "covariance": 1e-6, "correlation, of standard scores": 1e-6,
    "variance, weighted": 1e-4, "skewness, power": 1e-3, "kurtosis, power": 2e-4,
}  # fmt: skip


@pytest.mark.parametrize("name", first(2, PRECISION))
def test_distant_numbers(name: str) -> None:
    """Numbers whose mean is a thousand times their deviation: sums of powers would lose every digit."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        inputs = [tp.input(each, domain=(t,)) for each in "xyw"]
        y = STATISTICS[name](*(each[0 : t + 1] for each in inputs)) + 0.0 * inputs[1] * inputs[2]
    fed = {each: values.astype("float32") for each, values in numbers(200).items()}
    fed["x"] += np.float32(1000)
    fed["y"] += fed["x"]
    (result,) = ctx.run({T: 200}, [y], fed)
    (exact,) = reference.evaluate(
        ctx, [y], {T: 200}, {each: values.astype("float64") for each, values in fed.items()}, dtype="float64"
    )
    size = np.maximum(np.abs(exact), 1.0 if "skewness" in name else 0.0)
    assert np.max(np.abs(result - exact)[20:] / size[20:]) < PRECISION[name]
