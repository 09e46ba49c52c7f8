"""Paddings and dear functions: in a loop, neither is computed inside of the other."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import Module, parse
from tests.core.running import assert_all_same

pytestmark = pytest.mark.cpu

MOVES = {
    "pad": lambda x: tp.pad(x.spatial[1:], (0, 1)),
    "concatenation": lambda x: tp.concatenate([x.spatial[1:], x.spatial[:1]]),
}


def program(make):
    """A loop over t of a vector of 50 elements."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        x = tp.input("x", (50,), domain=(t,))
        h = tp.recurrence((50,), domain=(t,), name="h")
        h[0] = x[0]
        h[t] = make(h[t - 1], x)
        return ctx, n_t, [h[n_t - 1]]


def modules(program) -> list[Module]:
    return [parse(segment.compiled.as_text()) for segment in program._staged.segments if segment.compiled is not None]


def run(make, **config):
    ctx, bound, outputs = program(make)
    compiled = ctx.compile({bound: 9}, outputs, config=tp.Config(**config))
    return compiled, compiled.run({"x": np.random.default_rng(1).normal(size=(9, 50)).astype(np.float32)})


def fusions_with_both(compiled) -> int:
    """The number of fusions that compute both exponentials and paddings."""
    kinds = [
        {i.opcode for i in computation.instructions}
        for module in modules(compiled)
        for computation in module.computations.values()
    ]
    return sum({"exponential", "pad"} <= each for each in kinds)


@pytest.mark.parametrize("move", MOVES)
def test_a_padding_reads_dear_values_from_memory(move):
    def make(before, x):
        return before * 0.5 + MOVES[move](tp.exp(before) * x)

    compiled, result = run(make)
    assert fusions_with_both(compiled) == 0
    assert_all_same(result, run(make, backend="numpy")[1])


@pytest.mark.parametrize("move", MOVES)
def test_a_dear_function_reads_padded_values_from_memory(move):
    def make(before, x):
        return tp.exp(MOVES[move](before) * 0.5 - tp.abs(x) - 1.0)

    compiled, result = run(make)
    assert fusions_with_both(compiled) == 0
    assert_all_same(result, run(make, backend="numpy")[1])


def test_cheap_values_are_computed_inside_of_a_padding():
    compiled, _ = run(lambda before, x: before * 0.5 + MOVES["pad"](tp.maximum(before, x)))
    assert not any(
        i.opcode == "conditional" for module in modules(compiled) for c in module.computations.values() for i in c.instructions
    )


def test_a_sum_of_paddings_is_computed_once_for_all_its_readers():
    """The gradient of a stencil: in its loop, no operation only pads."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        source = tp.input("source", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j), name="u")
        u[0, i, j] = 0.0
        u[k, 0, j] = 0.0
        u[k, n_i - 1, j] = 0.0
        u[k, i, 0] = 0.0
        u[k, i, n_j - 1] = 0.0
        around = u[k - 1, i - 1, j] + u[k - 1, i + 1, j] + u[k - 1, i, j - 1] + u[k - 1, i, j + 1]
        u[k, i, j] = 0.25 * (around + source)
        last = u[n_k - 1, i, j]
        outputs = tp.grad((last**2)[0:n_i, 0:n_j].sum(), wrt=[source])
    fed = {"source": np.random.default_rng(1).normal(size=(12, 13)).astype(np.float32)}
    bounds = {n_k: 9, n_i: 12, n_j: 13}
    compiled = ctx.compile(bounds, outputs)
    gradient = compiled.run(fed)
    only_pad = [
        instruction
        for module in modules(compiled)
        for loop in module.loops()
        for instruction in module.operations(loop.body)
        if {"pad"} <= {i.opcode for i in module.inside(instruction)} <= {"pad", "slice", "parameter", "constant"}
    ]
    assert not only_pad
    assert_all_same(gradient, ctx.compile(bounds, outputs, config=tp.Config(backend="numpy")).run(fed))
