"""precompute: the part of a function that needs nothing from the loop around it becomes a function of its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.ops import Udf
from tempo_core.ir.partial import parts
from tempo_core.ir.types import TensorType
from tempo_core.passes.batch.precompute import Precompute
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.symbolic.expr import Expr
from tests.core.passes.programs.hard_loops import reset_now_and_then


def number(dtype: str = "float32", *sizes: int) -> TensorType:
    return TensorType(dtype, tuple(map(Expr.of, sizes)))


OPERANDS, RESULTS = [number("float32", 2), number("float32", 2), number("uint32", 2)], [number("float32", 2)] * 2 + [number()]


def test_the_parts_together_are_the_function():
    """Keys of random numbers cannot be stored: the late part makes them again."""
    divided = parts(reset_now_and_then, OPERANDS, RESULTS, (1, 2))
    assert divided is not None
    state, x, bits = jnp.ones(2), jnp.asarray([0.5, -1.0]), jnp.asarray([3, 4], "uint32")
    between = divided.early(x, bits)
    assert [(value.dtype, value.shape) for value in between] == [
        (t.dtype, tuple(s.constant for s in t.shape)) for t in divided.between
    ]
    for result, expected in zip(divided.late(state, x, bits, *between), reset_now_and_then(state, x, bits), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda s, x, bits: (s + x, x, s.sum()),  # nothing before the state
        lambda s, x, bits: (s, x),  # fewer results than declared
        lambda s, x, bits: 1 / 0,
    ],
)
def test_other_functions_have_no_parts(fn: Any):
    assert parts(fn, OPERANDS, RESULTS, (1, 2)) is None


def graph_of(fn: Any, recurrent: bool = True) -> Graph:
    ctx = tp.Context("i", "t")
    with ctx as ((i, _), (t, T)):
        x = tp.input("x", (2,), domain=(i, t))
        s = tp.recurrence((2,), domain=(i, t), name="s")
        bits = tp.random.bits((2,), domain=(i, t))
        following, _, total = tp.udf(fn, s if recurrent else x, x, bits, outputs=[tp.spec((2,)), tp.spec((2,)), tp.spec()])
        s[i, 0] = x[i, 0]
        s[i, t + 1] = following
    return with_outputs(ctx, [s[i, T - 1], total[i, T - 1]])


def functions(graph: Graph) -> list[Node]:
    return [node for node in graph if isinstance(node.op, Udf)]


def test_what_needs_nothing_from_the_loop_leaves_it():
    divided = Precompute().apply(graph_of(reset_now_and_then))
    assert len(functions(divided)) == 2
    assert sorted(str(node.domain) for node in functions(Vectorize(but=("i",)).apply(divided))) == ["(i)", "(i, t)"]


def test_functions_outside_of_loops_and_small_parts_stay_whole():
    assert len(functions(Precompute().apply(graph_of(reset_now_and_then, recurrent=False)))) == 1
    assert len(functions(Precompute().apply(graph_of(lambda s, x, bits: (s * jnp.exp(x), x * 2, x.sum() + s.sum()))))) == 1
