"""Values that are repeated in their block: elementwise operations on them have a dimension of blocks."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends.jax_backend import JaxBackend
from tempo_core.ir import ops
from tempo_core.ir.graph import Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests import reference
from tests.core.gradient_checks import normal
from tests.core.running import assert_same

WIDTH = 6


def typed(*sizes: int) -> TensorType:
    return TensorType("float32", tuple(map(Expr.of, sizes)))


def island(blocks: int, size: int, stop: int) -> ops.Dataflow:
    """`tanh(x - repeated(m))` of `x` [stop, WIDTH] and `m` [blocks, WIDTH], with `stop` of all elements of blocks."""
    m, x, inside, whole = typed(blocks, WIDTH), typed(stop, WIDTH), typed(blocks, size, WIDTH), typed(blocks * size, WIDTH)
    instructions = (
        (ops.Broadcast(inside.shape, (0, 2)), (1,), (2,)),
        (ops.Reshape(whole.shape), (2,), (3,)),
        (ops.Slice(0, Expr.of(0), Expr.of(stop)), (3,), (4,)),
        (ops.Binary("sub"), (0, 4), (5,)),
        (ops.Unary("tanh"), (5,), (6,)),
    )
    return ops.Dataflow(Dataflowed((x, m), instructions, (6,), (x, m, inside, whole, x, x, x)))


def lowered(op: ops.Dataflow, *operands: Any) -> Any:
    return jax.jit(lambda *xs: JaxBackend().kernel(op, list(xs), {}, 0)).lower(*operands)


@pytest.mark.parametrize(("blocks", "size", "stop"), [(4, 5, 20), (4, 5, 17), (1, 5, 5), (4, 1, 4), (3, 2, 1)])
def test_an_operation_on_repeated_values_has_a_dimension_of_blocks(blocks: int, size: int, stop: int) -> None:
    x, m = normal(stop, WIDTH).astype("float32"), normal(blocks, WIDTH, seed=1).astype("float32")
    m[0, 0] = np.nan
    program = lowered(island(blocks, size, stop), x, m)
    shapes = re.findall(r"stablehlo.tanh .*tensor<(.*)xf32>", program.as_text())
    is_in_blocks = blocks > 1 and size > 1 and blocks * size == stop
    assert shapes == [f"{blocks}x{size}x{WIDTH}" if is_in_blocks else f"{stop}x{WIDTH}"]
    np.testing.assert_allclose(program.compile()(x, m)[0], np.tanh(x - np.repeat(m, size, 0)[:stop]), 1e-6)


@pytest.mark.parametrize(("T", "W"), [(1, 1), (1, 3), (6, 3), (7, 3), (8, 3), (5, 8), (6, 1)])
def test_softmax_in_blocks_and_its_gradient(T: int, W: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x, weight = tp.input("x", (2,), domain=(t,)), tp.input("weight", (2,), domain=(t,))
        y = tp.exp(x - x[t // W * W : tp.min((t // W + 1) * W, n_t)].logsumexp(0))
        outputs = [y, *tp.grad((y * weight)[0:n_t].sum(), [x])]
    inputs = {name: normal(T, 2, seed=seed).astype("float32") for seed, name in enumerate(("x", "weight"))}
    for value in (0.0, -np.inf):
        inputs["x"][T // 2, 0] = value
        expected = reference.evaluate(ctx, outputs, {n_t: T}, inputs)
        for result, wanted in zip(ctx.run({n_t: T}, outputs, inputs), expected, strict=True):
            assert_same(result, wanted, 1e-4)
