"""The order in which the dimensions of stores lie, and that no store is transposed for the products that read it."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tempo_core.runtime.lower.layouts import Use
from tests import reference
from tests.core.running import SETTINGS, assert_all_same

T, B, H = 12, 6, 8

cpu_only = pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers lay operands out themselves")


def rnn(batch: str) -> tuple[tp.Context, Any, list[tp.Tensor]]:
    """The gradient of a recurrent network's loss, with a batch of B rows as a step or as a dimension."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, rows), (t, length)):
        x = tp.input("x", (H,) if batch == "step" else (B, H), domain=(b, t) if batch == "step" else (t,))
        w, u = tp.input("w", (H, H), requires_grad=True), tp.input("u", (H, H), requires_grad=True)
        h = tp.recurrence(x.shape, domain=(b, t) if batch == "step" else (t,), name="h")
        here = (b,) if batch == "step" else ()
        h[(*here, 0)] = tp.tanh(x[(*here, 0)] @ w)
        h[(*here, t + 1)] = tp.tanh(h @ u + x[(*here, t + 1)] @ w)
        every = (slice(0, rows), slice(0, length)) if batch == "step" else (slice(0, length),)
        loss = (h[every] ** 2).mean()
        gradients = tp.grad(loss, [w, u])
        return ctx, {rows: B, length: T}, [loss, *gradients]


def inputs(batch: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(B, T, H)).astype("float32")
    w, u = (random.normal(size=(H, H)).astype("float32") / 3 for _ in range(2))
    return {"x": x if batch == "step" else x.transpose(1, 0, 2).copy(), "w": w, "u": u}


def attention() -> tuple[tp.Context, Any, list[tp.Tensor]]:
    ctx = tp.Context("t")
    with ctx as ((t, length),):
        layer = tp.nn.MultiHeadAttention(H, 2, fed=True)
        x = tp.recurrence((B, H), domain=(t,), name="x")
        x[0] = tp.input("x", (B, H))
        x[t + 1] = layer(x, over=t)
        return ctx, {length: T}, [x[length - 1]]


def staged(program: tp.Program) -> Any:
    assert program._staged is not None
    return program._staged


def layouts(program: tp.Program) -> dict[str, tuple[int, ...]]:
    """The shapes of stores with several slots, by the node's name."""
    lowering = staged(program).lowering
    return {
        f"{program.graph[key[0]].name}.{key[1]}": lowering.shape(key)
        for key, storage in program.scheduled.storage.items()
        if storage.size > 1
    }


def transposed(program: tp.Program, *sizes: int) -> int:
    """The number of transpositions of arrays with these sizes, in any order, in the compiled program, also inside of fusions.

    A fusion that takes a part of what it transposes moves that part alone, and is not counted.
    """
    count = 0
    for module in (parse(segment.compiled.as_text()) for segment in staged(program).segments):
        computations = module.computations
        calls = [i for c in computations.values() for i in c.instructions if i.opcode == "fusion"]
        parts = {name for i in calls if math.prod(i.shapes[0].sizes) < math.prod(sizes) for name in i.called["calls"]}
        for name, computation in computations.items():
            for i in computation.instructions:
                count += i.opcode == "transpose" and sorted(i.shapes[0].sizes) == sorted(sizes) and name not in parts
    return count


@pytest.mark.parametrize("batch", ["step", "dimension"])
def test_values(batch: str) -> None:
    ctx, bounds, outputs = rnn(batch)
    results = [ctx.compile(bounds, outputs, config).run(inputs(batch)) for config in SETTINGS.values()]
    for result in results[1:]:
        assert_all_same(result, [np.asarray(value) for value in results[0]], 1e-4)


@cpu_only
@pytest.mark.parametrize("batch", ["step", "dimension"])
def test_no_store_is_transposed_for_the_gradient_of_a_weight(batch: str) -> None:
    ctx, bounds, outputs = rnn(batch)
    program = ctx.compile(bounds, outputs)
    program.run(inputs(batch))
    assert transposed(program, T, B, H) == (batch == "step")  # once, the fed array, which lies [b, t]


def test_keys_lie_by_heads() -> None:
    ctx, bounds, outputs = attention()
    shapes = layouts(ctx.compile(bounds, outputs))
    assert (B, 2, T, H // 2) in shapes.values(), shapes


@cpu_only
def test_attention_transposes_no_store() -> None:
    ctx, bounds, outputs = attention()
    program = ctx.compile(bounds, outputs)
    program.run({name: np.zeros(spec.whole, "float32") for name, spec in program.inputs.items()})
    assert transposed(program, B, 2, T, H // 2) == 0


def test_a_point_of_a_layer_is_read_as_one_slice() -> None:
    """A part of all points of a layer would count as much as all of them: XLA then makes no kernel of the loop."""
    ctx = tp.Context("l", "t")
    with ctx as ((layer, layers), (t, length)):
        w = tp.input("w", (layers, H, H), requires_grad=True)
        x = tp.input("x", (length, H))
        h = tp.recurrence((H,), domain=(layer, t), name="h")
        h[0, 0] = x.index(0, 0)
        h[0, t] = tp.tanh(x.index(0, t) + h[0, t - 1] @ w.index(0, 0))
        h[layer, 0] = tp.tanh(h[layer - 1, 0])
        h[layer, t] = tp.tanh(h[layer - 1, t] + h[layer, t - 1] @ w.index(0, layer))
        loss = (h[layers - 1, 0:length] ** 2).mean()
        (gradient,) = tp.grad(loss, [w])
        program = ctx.compile({layers: 2, length: T}, [loss, gradient])
    random = np.random.default_rng(0)
    inputs = {"w": random.normal(size=(2, H, H)).astype("float32"), "x": random.normal(size=(T, H)).astype("float32")}
    expected = reference.evaluate(ctx, [loss, gradient], {layers: 2, length: T}, inputs)
    assert_all_same(program.run(inputs), expected, 1e-4)
    modules = [parse(segment.compiled.as_text()) for segment in staged(program).segments]
    in_loops = [i for m in modules for loop in m.loops() for each in m.operations(loop.body) for i in m.inside(each)]
    slices = [i.shapes[0].sizes for i in in_loops if i.opcode in ("slice", "dynamic-slice")]
    assert slices and (1, T, H) not in slices


@pytest.mark.parametrize(
    "groups, contracted, order, met",
    [
        (((0,), (1,), (2,)), (), (0, 1, 2), True),
        (((0,), (1,), (2,)), (), (1, 0, 2), False),
        (((0,), (1, 2), (3,)), (1, 2), (0, 2, 1, 3), True),  # contracted dimensions may lie in any order,
        (((0,), (1, 2), (3,)), (1, 2), (1, 0, 2, 3), False),  # but together,
        (((0,), (1, 2), (3,)), (3,), (0, 2, 1, 3), False),  # others not
        (((0,), (1,), (2,)), (), (0, 2), True),  # a dimension that is repeated lies nowhere
    ],
)
def test_what_an_operation_wants(groups: Any, contracted: Any, order: Any, met: bool) -> None:
    assert Use(groups, frozenset(contracted)).is_met(order) is met
