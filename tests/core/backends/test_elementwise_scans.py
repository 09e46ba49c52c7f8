"""Linear recurrences of values that are computed as the scan meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.graph import Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests import reference
from tests.core.gradient_checks import normal
from tests.core.running import assert_same

pytestmark = pytest.mark.cpu

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


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("pieces", "together", "is_transposed"), [(128, 1, True), (4, 1, False), (128, 16, False)])
def test_few_numbers_that_lie_together_are_transposed_first(
    pieces: int, together: int, is_transposed: bool, reverse: bool
) -> None:
    """Along the second dimension, each element of the scan lies in pieces."""
    whole = type_of(pieces, LENGTH, together)
    body = Dataflowed((whole, whole), ((ops.LinearScan(1, reverse), (0, 1), (2,)),), (2,), (whole, whole, whole))
    c, b = (normal(pieces, LENGTH, together, seed=seed).astype(np.float32) for seed in (0, 1))
    c[:, 3], c[0, 5] = 0, np.inf
    compiled = jax.jit(lambda c, b: JaxBackend().kernel(ops.Dataflow(body), [c, b], {}, 0)).lower(c, b).compile()
    in_pieces = {"%dynamic_slice" in line and f"f32[{pieces},1,{together}]" in line for line in compiled.as_text().splitlines()}
    assert in_pieces == ({False} if is_transposed else {False, True})
    expected, before = np.zeros_like(b), np.zeros((pieces, together), np.float32)
    with np.errstate(invalid="ignore"):
        for k in range(LENGTH)[:: -1 if reverse else 1]:
            before = expected[:, k] = b[:, k] + np.where(c[:, k] == 0, 0, c[:, k] * before)
    np.testing.assert_allclose(compiled(c, b)[0], expected, 1e-4)


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


def mask_island(reverse: bool) -> ops.Dataflow:
    """The number of equal elements in a row: the coefficient is whether the element before (with `reverse`: after) is the same."""
    whole, length = type_of(LENGTH, WIDTH), Expr.of(LENGTH)
    by, first, last = (1, 0, LENGTH - 1) if reverse else (-1, 1, LENGTH)
    slots, instructions = [whole], []
    for op, sources in (
        (ops.Slice(0, Expr.of(by), length + by), (0,)),
        (ops.Compare("eq"), (0, 1)),
        (ops.Cast("float32"), (2,)),
        (ops.Slice(0, Expr.of(first), Expr.of(last)), (3,)),
        (ops.Pad(0, Expr.of(first), Expr.of(LENGTH - last)), (4,)),
        (ops.LinearScan(0, reverse), (5, 0)),
    ):
        instructions.append((op, sources, (len(slots),)))
        slots += op.infer(tuple(slots[s] for s in sources))
    return ops.Dataflow(Dataflowed((whole,), tuple(instructions), (6,), tuple(slots)))


@pytest.mark.parametrize("reverse", [False, True])
def test_masks_of_neighbours_are_not_written_to_memory(reverse: bool) -> None:
    op, x = mask_island(reverse), np.random.default_rng(0).integers(0, 2, (LENGTH, WIDTH)).astype(np.float32)
    compiled = jax.jit(lambda x: JaxBackend().kernel(op, [x], {}, 0)).lower(x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < x.nbytes
    np.testing.assert_array_equal(compiled(x)[0], NumpyBackend().kernel(op, [x], {}, 0)[0])
