"""Padded ranges that are read without zeros past their end, where operations mask them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tempo_core import prices
from tempo_core.ir.ops import Dataflow, Dot
from tempo_core.runtime.lower.padding import matters
from tempo_core.symbolic.domain import Range
from tests import reference
from tests.core.running import SETTINGS, assert_all_same

T, B, H = 9, 3, 4


def attention(keys_sum: bool = False) -> tuple[tp.Context, Any, list[tp.Tensor]]:
    """Attention over the past in each iteration i. The keys of later positions are those of the iteration before."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, iterations), (t, length)):
        x = tp.input("x", (B, H), domain=(i, t))
        state = tp.recurrence((B, H), domain=(i, t), name="state")
        keys = (x * 2.0 + state * 0.0).named("keys")
        past = keys[i, 0 : t + 1]
        scores = (past * state.expand_dims(0) if keys_sum else past.transpose(1, 0, 2) @ state.expand_dims(-1)).sum(-1)
        total = scores.sum(0) if keys_sum else tp.softmax(scores, 1).max(1)
        state[i, 0] = x[i, 0]
        state[i, t + 1] = state * 0.5 + total.reshape(B, 1) * 0.1
        return ctx, {iterations: 2, length: T}, [state]


def reads(program: tp.Program) -> list[tuple[bool, bool]]:
    """For each padded range: whether the padding matters, and whether the reader has a product."""
    found = []
    for node in program.graph:
        for position, edge in enumerate(node.inputs):
            ranges = [index for index in edge.index if isinstance(index, Range)]
            for dimension, index in enumerate(ranges):
                if index.size is not None and isinstance(node.op, Dataflow):
                    products = any(isinstance(op, Dot) for op, _, _ in node.op.body.instructions)
                    found.append((matters(node, position, dimension, index.true_length), products))
    return found


@pytest.mark.parametrize("keys_sum", [False, True])
def test_values_where_the_padding_holds_infinities(keys_sum: bool) -> None:
    ctx, bounds, outputs = attention(keys_sum)
    x = np.random.default_rng(0).normal(size=(2, T, B, H)).astype("float32")
    x[0, T - 1] = np.inf  # read by nobody in i = 0, and left in the store for i = 1
    expected = reference.evaluate(ctx, outputs, bounds, {"x": x})
    assert np.isfinite(expected[0]).all()
    for config in SETTINGS.values():
        assert_all_same(ctx.compile(bounds, outputs, config).run({"x": x}), expected, 1e-4)


def test_scores_that_are_masked_need_no_zeros_in_the_keys() -> None:
    ctx, bounds, outputs = attention()
    assert (False, True) in reads(ctx.compile(bounds, outputs))


def test_keys_without_zeros_are_not_copied() -> None:
    ctx, bounds, outputs = attention()
    program = ctx.compile(bounds, outputs)
    program.run({"x": np.zeros((2, T, B, H), "float32")})
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]  # type: ignore[union-attr]
    selects = [i for m in modules for c in m.computations.values() for i in c.instructions if i.opcode == "select"]
    if jax.default_backend() == "cpu":
        assert all(np.prod(shape.sizes) < T * B * H for i in selects for shape in i.shapes)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers write in place")
def test_a_large_store_that_is_written_and_read_in_a_loop_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = {}
    for least in (0.0, 1.0):
        monkeypatch.setattr(prices, "LEAST_SECONDS_OF_COPIES", least)
        ctx, bounds, outputs = attention()
        program = ctx.compile(bounds, outputs)
        x = np.random.default_rng(0).normal(size=(2, T, B, H)).astype("float32")
        assert_all_same(program.run({"x": x}), reference.evaluate(ctx, outputs, bounds, {"x": x}), 1e-4)
        assert program._staged is not None
        modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]  # type: ignore[union-attr]
        loops = [(m, loop) for m in modules for loop in m.loops()]
        inside = [i for m, loop in loops for i in m.operations(loop.body) if i.opcode == "copy"]
        copies[least] = sum(np.prod(shape.sizes) >= T * B * H for i in inside for shape in i.shapes)
    assert copies[0.0] == 0


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers write in place")
def test_a_store_is_not_copied_for_a_window_that_is_read_before_its_next_value_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sum of the window is read once more after the write, through a window of its own."""
    monkeypatch.setattr(prices, "LEAST_SECONDS_OF_COPIES", 0.0)
    points = 50
    ctx = tp.Context("t")
    with ctx as ((t, length),):
        state = tp.recurrence((2,), domain=(t,), name="state")
        state[0] = tp.input("start", (2,))
        reward = (state**2).sum(0)
        gained = reward[tp.max(t - 3, 0) : t].discounted_sum(0.9)
        score = (gained[tp.max(t - 7, 0) : t + 1] * state[tp.max(t - 7, 0) : t + 1].sum(1)).mean()
        state[t + 1] = tp.tanh(0.9 * state + score)
        outputs = [reward, score]
    program = ctx.compile({length: points}, outputs)
    fed = {"start": np.array([0.3, -0.7], "float32")}
    assert_all_same(program.run(fed), reference.evaluate(ctx, outputs, {length: points}, fed), 1e-4)
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]  # type: ignore[union-attr]
    inside = [i for m in modules for loop in m.loops() for i in m.operations(loop.body)]
    whole = [i.opcode for i in inside for shape in i.shapes if shape.sizes == (points,)]
    assert "copy" not in whole and whole
