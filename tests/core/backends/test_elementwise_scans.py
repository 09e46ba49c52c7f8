"""Linear recurrences of values that are computed as the scan meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import reference
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.ir import ops
from tempo_core.ir.graph import Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests.core.gradient_checks import normal
from tests.core.running import assert_same

LENGTH, WIDTH = 64, 32


def type_of(*sizes: int) -> TensorType:
    return TensorType("float32", tuple(map(Expr.of, sizes)))


def island(repeats: int) -> ops.Dataflow:
    """The scan of `exp(x[t])`, repeated, with the terms `x[t]`, repeated."""
    whole = type_of(LENGTH, WIDTH, repeats)
    instructions = (
        (ops.Broadcast(whole.shape, (0, 1)), (0,), (1,)),
        (ops.Unary("exp"), (1,), (2,)),
        (ops.LinearScan(0), (2, 1), (3,)),
    )
    return ops.Dataflow(Dataflowed((type_of(LENGTH, WIDTH),), instructions, (3,), (type_of(LENGTH, WIDTH), whole, whole, whole)))


@pytest.mark.parametrize(("repeats", "is_computed"), [(16, True), (2, False)])
def test_large_operands_are_not_written_to_memory(repeats: int, is_computed: bool) -> None:
    op = island(repeats)
    compiled = jax.jit(lambda x: JaxBackend().kernel(op, [x], {}, 0)).lower(np.zeros((LENGTH, WIDTH), np.float32)).compile()
    operand = 4 * LENGTH * WIDTH * repeats
    assert (compiled.memory_analysis().temp_size_in_bytes < operand) == is_computed


def selective(t: Any, T: Any, x: tp.Tensor, y: tp.Tensor) -> tp.Tensor:
    """Coefficients and terms of products of vectors."""
    s = tp.recurrence((8, 8), domain=(t,), name="s")
    new = x.expand_dims(1) * y
    s[0] = new[0]
    s[t] = tp.exp(-(x**2).expand_dims(1) * 0.1) * s[t - 1] + new
    return tp.tanh(s)


def resets(t: Any, T: Any, x: tp.Tensor, y: tp.Tensor) -> tp.Tensor:
    """Coefficients that are zero, and terms that depend on the place."""
    s = tp.recurrence((8, 8), domain=(t,), name="s")
    s[T - 1] = x[T - 1].expand_dims(1) + y[T - 1]
    keep = tp.where(x > 0, y, 0.0).expand_dims(1)
    s[t] = keep * s[t + 1] + (x * (t + 1)).expand_dims(1) + tp.zeros((8, 8))
    return tp.sin(s)


@pytest.mark.parametrize("program", [selective, resets])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_values_and_gradients(program: Callable[..., tp.Tensor], length: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = (tp.input(name, (8,), domain=(t,)) for name in "xy")
        z = program(t, T, x, y)
        outputs = [z, *tp.grad((z * z).sum(), [x, y])]
    inputs = {name: normal(length, 8, seed=seed).astype("float32") for seed, name in enumerate("xy")}
    expected = reference.evaluate(ctx, outputs, {T: length}, inputs)
    for result, value in zip(ctx.run({T: length}, outputs, inputs), expected, strict=True):
        assert_same(result, value, 1e-4)


def test_a_product_without_contraction_is_a_multiplication() -> None:
    op = ops.Dot((), (), (0,), (1,))
    function = jax.jit(lambda a, b: JaxBackend().kernel(op, [a, b], {}, 0)[0])
    left, right = normal(3, 2, 4, seed=0).astype("float32"), normal(5, 3, seed=1).astype("float32")
    assert "dot" not in function.lower(left, right).as_text()
    np.testing.assert_array_equal(function(left, right), np.einsum("bij,kb->bijk", left, right))
