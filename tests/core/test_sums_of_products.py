"""A sum of products is a contraction if its factors were broadcast against each other; the values are those of the sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir import ops
from tests.core.gradient_checks import assert_gradients, normal

# (the sum of x[3, 4] and y, the shape of y, whether it is a contraction)
CASES: dict[str, tuple[Callable[[tp.Tensor, tp.Tensor], tp.Tensor], tuple[int, ...], bool]] = {
    "a row": (lambda x, y: (x * y).sum(-1), (4,), True),
    "a row, on the left": (lambda x, y: (y * x).sum(1), (4,), True),
    "a column": (lambda x, y: (x * y).sum(0), (3, 1), True),
    "the mean": (lambda x, y: (x * y).mean(1), (4,), True),
    "kept dimension": (lambda x, y: (x * y).sum(1, keepdims=True), (4,), True),
    "matrices": (lambda x, y: (x.expand_dims(1) * y).sum(-1), (5, 4), True),
    "stacks of rows": (lambda x, y: (y * x).sum(-1), (2, 3, 4), True),
    "transposed result": (lambda x, y: (x * y.expand_dims(1)).sum(-1), (5, 4), True),
    "more dimensions": (lambda x, y: (x.expand_dims(0).expand_dims(3) * y).sum(2), (2, 3, 4, 6), True),
    "one shape": (lambda x, y: (x * y).sum(1), (3, 4), False),
    "the repeated dimension": (lambda x, y: (x * y).sum(0), (4,), False),
    "both dimensions": (lambda x, y: (x * y).sum(), (4,), False),
    "an outer product's": (lambda x, y: (x.expand_dims(2) * y).sum(1), (5,), False),
    "a scalar": (lambda x, y: (x * y).sum(1), (), False),
    "a power": (lambda x, y: ((x * y) ** 2).sum(1), (4,), False),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_of_products(name: str) -> None:
    build, shape, contracts = CASES[name]
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (3, 4), domain=(t,)), tp.input("y", shape, domain=(t,))
        result = build(x, y)
        is_dot = any(isinstance(node.op, ops.Dot) for node in ctx.graph)
        assert is_dot == contracts
        values = {"x": normal(2, 3, 4, seed=1), "y": normal(2, *shape, seed=2)}
        assert_gradients(ctx, (tp.sin(result) * (t + 1)).sum(), [x, y], {T: 2}, values)
    (sums,) = ctx.run({T: 2}, [result], {k: v.astype("float32") for k, v in values.items()})
    expected = np.stack([_numpy(name, values["x"][k], values["y"][k]) for k in range(2)])
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)


def _numpy(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same sum by NumPy."""

    class Array(np.ndarray):
        def expand_dims(self, axis: int) -> np.ndarray:
            return np.expand_dims(self, axis).view(Array)

    build, _, _ = CASES[name]
    return np.asarray(build(x.view(Array), y.view(Array)))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_sums_of_other_dtypes_stay(dtype: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x, y = tp.input("x", (3, 4), dtype, domain=(t,)), tp.input("y", (4,), dtype, domain=(t,))
        (x * y).sum(1)
        assert not any(isinstance(node.op, ops.Dot) for node in ctx.graph)


def test_a_product_of_another_point_is_summed_as_it_is() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (3, 4), domain=(t,)), tp.input("y", (4,), domain=(t,))
        products = (x * y).named("products")
        before = products[tp.max(t - 1, 0)].sum(1)
        assert not any(isinstance(node.op, ops.Dot) for node in ctx.graph)
    values = {"x": normal(3, 3, 4, seed=1).astype("float32"), "y": normal(3, 4, seed=2).astype("float32")}
    (sums,) = ctx.run({T: 3}, [before], values)
    np.testing.assert_allclose(sums[2], (values["x"][1] * values["y"][1]).sum(1), rtol=1e-5)
