"""Contractions as XLA sees them: dimensions of one kind are one, so that nothing is transposed that need not be."""

from __future__ import annotations

import random

import jax
import numpy as np
import pytest

from benchmarks.hlo import parse
from tempo_core.ir import ops
from tests.cases import first
from tests.core.backends.support import JAX, normal


def drawn(seed: int) -> tuple[ops.Dot, np.ndarray, np.ndarray]:
    """A random contraction with its operands: up to two batch, three contracted and two free dimensions, in any order."""
    draw = random.Random(seed)
    kinds = {"batch": draw.randint(0, 2), "contract": draw.randint(0, 3)}
    sizes = {(kind, k): draw.choice((1, 1, 2, 3, 0)) for kind, count in kinds.items() for k in range(count)}
    axes: list[dict[str, tuple[int, ...]]] = []
    operands = []
    for side in range(2):
        free = {("free", k): draw.choice((1, 2, 4)) for k in range(draw.randint(0, 2))}
        labels = [*sizes, *free]
        draw.shuffle(labels)
        operands.append(normal(*({**sizes, **free}[label] for label in labels), seed=side))
        axes.append({kind: tuple(labels.index((kind, k)) for k in range(count)) for kind, count in kinds.items()})
    (left, right) = axes
    return ops.Dot(left["contract"], right["contract"], left["batch"], right["batch"]), operands[0], operands[1]


@pytest.mark.parametrize("seed", first(10, range(40)))
def test_random_contractions(seed):
    op, left, right = drawn(seed)
    (result,) = JAX.kernel(op, [left, right], {})
    dimensions = ((op.left_contract, op.right_contract), (op.left_batch, op.right_batch))
    expected = jax.lax.dot_general(left.astype(np.float32), right.astype(np.float32), dimensions)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def moved(op: ops.Dot, *shapes: tuple[int, ...]) -> set[str]:
    """The names of what the compiled product copies or transposes."""

    def product(*operands):
        return JAX.kernel(op, operands, {})[0]

    compiled = jax.jit(product).lower(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)).compile()
    instructions = [i for c in parse(compiled.as_text()).computations.values() for i in c.instructions]
    return {i.opcode for i in instructions} & {"copy", "transpose"}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers lay operands out themselves")
@pytest.mark.parametrize(
    "op, shapes",
    [
        (ops.Dot((0, 1), (0, 1)), [(40, 16, 8), (40, 16, 6)]),  # the gradient of a weight, over time and rows
        (ops.Dot((1, 0), (1, 0)), [(40, 16, 8), (40, 16, 6)]),  # the same in another order
        (ops.Dot((2,), (0,)), [(40, 16, 8), (8, 6)]),
        (ops.Dot((0,), (0,)), [(40, 16, 8), (40, 6)]),
        (ops.Dot((2,), (3,), (0, 1), (0, 1)), [(2, 4, 8), (2, 4, 40, 8)]),  # attention's scores
        (ops.Dot((2,), (2,), (0, 1), (0, 1)), [(2, 4, 40), (2, 4, 40, 8)]),  # and its mean of values
    ],
)
def test_nothing_moves(op, shapes):
    assert not moved(op, *shapes)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers lay operands out themselves")
def test_of_contracted_dimensions_in_two_orders_only_the_smaller_operand_moves():
    op = ops.Dot((0, 1), (1, 0))

    def product(left, right):
        return JAX.kernel(op, (left, right), {})[0]

    compiled = jax.jit(product).lower(np.zeros((40, 16, 64), "f"), np.zeros((16, 40, 2), "f")).compile()
    module = parse(compiled.as_text())
    sizes = [i.bytes for c in module.computations.values() for i in c.instructions if i.opcode in ("copy", "transpose")]
    assert sizes and max(sizes) <= 16 * 40 * 2 * 4
