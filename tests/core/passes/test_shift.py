"""shift: a reduction of a narrow window reads each of its points on its own."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import prices
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Dataflow, Gather, Reduce, Slice
from tempo_core.passes.ranges.shift import Shift
from tests import reference
from tests.cases import fast, first
from tests.core.passes.support import Golden, after, check, ops_of
from tests.core.running import assert_all_same

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Eval(value=t)() : int32[] over (t)
%3 = Gather(axis=0)(%0, %1[i]) : float32[T] over (i)
%4 x = Gather(axis=0)(%3[i], %2[t]) : float32[] over (i, t)
"""
TAIL = "%9 = Output(position=0)(%8[0:I, 0:T]) over ()\n"
WINDOWS = {
    "ahead": ("t:min(t + 3, T)", "min(t + 3, T) - t"),
    "back": ("max(t - 2, 0):t + 1", "t - max(t - 2, 0) + 1"),
    "around": ("max(t - 1, 0):min(t + 2, T)", "min(t + 2, T) - max(t - 1, 0)"),
}


def distances(window: str, fn: str = "sum") -> str:
    """`reduce(exp(x[window] - x[t]) * (0, 1, ...))`."""
    read, length = WINDOWS[window]
    return (
        HEAD
        + f"%5 = Broadcast(shape=({length},), axes=())(%4[i, t]) : float32[{length}] over (i, t)\n"
        + f'%6 = Binary(fn="sub")(%4[i, {read}], %5[i, t]) : float32[{length}] over (i, t)\n'
        + f'%7 = Unary(fn="exp")(%6[i, t]) : float32[{length}] over (i, t)\n'
        + f"%10 = Iota(size={length})() : int32[{length}] over (t)\n"
        + f'%11 = Cast(dtype="float32")(%10[t]) : float32[{length}] over (t)\n'
        + f'%12 = Binary(fn="mul")(%7[i, t], %11[t]) : float32[{length}] over (i, t)\n'
        + f'%8 y = Reduce(fn="{fn}", axes=(0,))(%12[i, t]) : float32[] over (i, t)\n'
        + TAIL
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_is_read_point_by_point(golden: Golden, window: str) -> None:
    assert not ops_of(check(golden, f"shift_{window}", distances(window), Shift()), Reduce)


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("points", [1, 2, 3, 9])
def test_windows_of_every_length(golden: Golden, fn: str, points: int) -> None:
    """Windows wider than the step, and a step of one point."""
    for window in WINDOWS:
        graph = after(distances(window, fn), Shift())
        assert not ops_of(graph, Reduce)
        check(lambda name, text: None, "", distances(window, fn), Shift(), bounds={"I": 2, "T": points})


def test_a_wide_window_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ops_of(after(distances("ahead"), Shift()), Reduce)
    monkeypatch.setattr(prices, "MOST_SHIFTS", 2)
    assert ops_of(after(distances("ahead"), Shift()), Reduce)
    monkeypatch.undo()
    monkeypatch.setattr(prices, "MOST_SHIFTED_OPERATIONS", 3)
    assert ops_of(after(distances("ahead"), Shift()), Reduce)


def instructions(graph: Graph, kind: type) -> int:
    """How many operations of a kind a graph has, in islands too."""
    inside = [op for n in graph if isinstance(n.op, Dataflow) for op, _, _ in n.op.body.instructions]
    return sum(isinstance(op, kind) for op in [*(n.op for n in graph), *inside])


def window_program(reduce, w: int = 4) -> tuple[tp.Context, object, list[tp.Tensor]]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        y = reduce(x[tp.max(t - w + 1, 0) : t + 1])
        (gradient,) = tp.grad((y * y)[0:T].sum(), [x])
        return ctx, T, [y, gradient]


REDUCTIONS = {
    "max": lambda w: w.max(0),
    "logsumexp": lambda w: w.logsumexp(0),
    "softmax": lambda w: (w.softmax(0) * w).sum(0),
    "variance": lambda w: w.var(0),
    "discounted": lambda w: w.discounted_sum(0.9),
}


@pytest.mark.parametrize("name", first(2, REDUCTIONS))
def test_no_gather_in_a_window_or_its_gradient(name: str) -> None:
    """Neither in our program, nor in XLA's: values and gradients are slices, and no value is larger than the input with its borders."""
    ctx, T, outputs = window_program(REDUCTIONS[name])
    program = ctx.compile({T: 400}, outputs)
    x = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    assert instructions(program.graph, Gather) == (name == "discounted")  # its window begins before t: it is read as it is
    assert instructions(program.graph, Slice) >= 4
    gathering = ctx.compile({T: 400}, outputs, tp.Config(disable=("shift",)))
    for ours, others in zip(program.run({"x": x}), gathering.run({"x": x}), strict=True):
        np.testing.assert_allclose(ours, others, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("points", fast([1, 3, 9], 3))
@pytest.mark.parametrize("name", first(3, REDUCTIONS))
def test_values_and_gradients(name: str, points: int) -> None:
    ctx, T, outputs = window_program(REDUCTIONS[name])
    inputs = {"x": np.random.default_rng(1).normal(size=(points, 3)).astype(np.float32)}
    expected = reference.evaluate(ctx, outputs, {T: points}, inputs)
    for config in (tp.Config(), tp.Config(backend="numpy"), tp.Config(disable=("shift",)), tp.Config(disable=("vectorize",))):
        assert_all_same(ctx.run({T: points}, outputs=outputs, inputs=inputs, config=config), expected, 1e-4)


def test_a_window_of_what_a_loop_computes_stays_a_slice() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        past = h[tp.max(t - 3, 0) : t]
        h[t] = x + (past * tp.softmax(past, 0)).sum(0)
        program = ctx.compile({T: 50}, [h])
    assert instructions(program.graph, Reduce) > 0
