"""checkpoint: values of a loop are kept at the ends of segments, and computed again segment by segment by the loop that goes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.ops import Udf
from tempo_core.passes.keep.checkpoint import Checkpoint, goes_back
from tests.cases import fast, first
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

HEAD = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 x = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%3 h = Merge(type=float32[2])(%2[0] if t == 0, %4[t - 1] if t >= 1) : float32[2] over (t)
%4 f = Unary(fn="tanh")(%3[t]) : float32[2] over (t)
%5 g = Merge(type=float32[2])(%2[T - 1] if t == T - 1, %7[t + 1] if T >= t + 2) : float32[2] over (t)
%6 = Binary(fn="mul")(%5[t], %4[t]) : float32[2] over (t)
%7 = Binary(fn="sub")(%6[t], %3[t]) : float32[2] over (t)
%8 = Output(position=0)(%7[0]) over ()
%9 = Output(position=1)(%5[0:T]) over ()
"""


@pytest.mark.parametrize("points", [1, 3, 6, 7])
def test_the_loop_back_runs_over_segments(points: int, golden: Golden) -> None:
    graph = check(golden, "checkpoint", HEAD, Checkpoint((("t", 3),)), bounds={"T": points})
    assert [str(bound) for bound in graph.derived] == ["T_SEGMENT", "T_WITHIN"]


def test_a_step_without_a_loop_back_stays() -> None:
    text = HEAD.replace("%7[t + 1] if T >= t + 2", "%4[t]").replace("%5[t], %4[t]", "%4[t], %4[t]")
    assert not after(text, Checkpoint((("t", 3),))).derived


def network(states: int = 1) -> tuple[tp.Context, Any, list[Any]]:
    """A recurrent network and its gradients; with two states, the second reads two points back."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (3, 4), domain=(t,)), tp.input("w", (4, 4))
        h = tp.recurrence((3, 4), domain=(t,), name="h")
        h[0] = tp.zeros((3, 4))
        value = h @ w + x if states == 1 else h @ w + x - h[tp.max(t - 2, 0)] * 0.3
        h[t + 1] = tp.tanh(value)
        loss = (h[T - 1] ** 2).sum() + h[0:T].mean(0).sum()
        gradients = tp.grad(loss, [w, x])
    return ctx, T, [loss, *gradients]


def data(T: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(T)
    return {"x": random.normal(size=(T, 3, 4)).astype("float32"), "w": random.normal(size=(4, 4)).astype("float32") / 2}


@pytest.mark.parametrize("executor", fast(["staged", "interpreted"], "interpreted"))
@pytest.mark.parametrize(("states", "T", "size"), first(2, [(1, 12, 4), (1, 13, 4), (2, 11, 3), (2, 2, 5), (1, 7, 1)]))
def test_gradients_are_the_same(states: int, T: int, size: int, executor: str) -> None:
    ctx, bound, outputs = network(states)
    plain, cut = (
        ctx.compile({bound: T}, outputs, tp.Config(executor=executor, **options)).run(data(T))
        for options in ({"disable": ("vectorize(t)",)}, {"checkpoint": {"t": size}})
    )
    assert_all_same(cut, plain)
    if executor == "interpreted" and states == 1:
        assert np.array_equal(plain[2], cut[2]), "the same operands give the same bits"


def bytes_of_stores(T: int, **options: Any) -> int:
    ctx, bound, outputs = network()
    return ctx.compile({bound: T}, outputs[:1] + outputs[1:2], tp.Config(**options)).plan().bytes


def test_what_is_kept_grows_with_the_root_of_the_points() -> None:
    few, many = bytes_of_stores(400, checkpoint={"t": 20}), bytes_of_stores(40_000, checkpoint={"t": 200})
    assert many < 11 * few
    assert bytes_of_stores(40_000, disable=("vectorize(t)",)) > 50 * many
    assert many < 0.01 * bytes_of_stores(100_000)


def test_loops_inside_of_a_loop_have_segments() -> None:
    ctx = tp.Context("e", "t")
    with ctx as ((e, E), (t, T)):
        w = tp.recurrence((4, 4), domain=(e,), name="w")
        x = tp.input("x", (4,), domain=(t,))
        h = tp.recurrence((4,), domain=(e, t), name="h")
        h[e, 0] = tp.zeros((4,))
        h[e, t + 1] = tp.tanh(h @ w + x)
        (slope,) = tp.grad((h[e, T - 1] ** 2).sum(), [w])
        w[0] = tp.input("start", (4, 4))
        w[e + 1] = w - 0.1 * slope
    inputs = {"x": data(9)["x"][:, 0], "start": data(9)["w"]}
    plain, cut = (ctx.compile({E: 3, T: 9}, w[E - 1], tp.Config(**options)) for options in ({}, {"checkpoint": {"t": 3}}))
    assert_all_same([cut.run(inputs)], [plain.run(inputs)])
    assert {"T_SEGMENT", "T_WITHIN"} <= {str(bound) for bound in cut.graph.derived}
    slots = {tensor.name: tensor.slots for tensor in cut.plan().tensors}
    assert 9 not in {slot for each in slots.values() for slot in each}, "nothing is kept for all points"


def test_what_the_host_computes_is_kept() -> None:
    calls = []

    def called(value: np.ndarray) -> tuple[np.ndarray]:
        calls.append(1)
        return (value * 2,)

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w = tp.input("w", (4,))
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0] = tp.ones((4,))
        (noise,) = tp.udf(called, h.detach(), outputs=[tp.spec((4,))], kind="host")
        h[t + 1] = tp.tanh(h * w) * noise
        (slope,) = tp.grad((h[T - 1] ** 2).sum(), [w])
    program = ctx.compile({T: 9}, slope, tp.Config(checkpoint={"t": 3}))
    plain = ctx.compile({T: 9}, slope).run({"w": np.full(4, 0.7, "float32")})
    calls.clear()
    assert_all_same([program.run({"w": np.full(4, 0.7, "float32")})], [plain])
    assert len(calls) <= 9 and sum(isinstance(node.op, Udf) for node in program.graph) == 1


def test_a_step_that_goes_back() -> None:
    ctx, bound, outputs = network()
    loops = tp.Config(disable=("vectorize(t)",))
    both, forward = ctx.compile({bound: 9}, outputs, loops), ctx.compile({bound: 9}, outputs[:1], loops)
    assert goes_back(both.graph, "t") and not goes_back(forward.graph, "t") and not goes_back(both.graph, "s")


def test_segments_of_segments_keep_less() -> None:
    ctx, bound, outputs = network()
    program = ctx.compile({bound: 1000}, outputs[:2], tp.Config(checkpoint={"t": (100, 10)}))
    most = max(max(tensor.slots, default=1) for tensor in program.plan().tensors if tensor.name != "x")
    assert most <= 11, "of each level, ten points or ends of segments are alive at a time"
    assert_all_same(program.run(data(1000)), ctx.compile({bound: 1000}, outputs[:2]).run(data(1000)))


@pytest.mark.parametrize("executor", ["staged", "interpreted"])
def test_the_host_sees_gradients_in_the_order_of_the_step(executor: str) -> None:
    seen: list[tuple[int, float]] = []
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (3, 4), domain=(t,)), tp.input("w", (4, 4))
        h = tp.recurrence((3, 4), domain=(t,), name="h")
        h[0] = tp.zeros((3, 4))
        h[t + 1] = tp.tanh(h @ w + x)
        (slope,) = tp.grad((h[T - 1] ** 2).sum(), [x])
        tp.sink(lambda value, t: seen.append((int(t), float(value))), slope.sum(), name="report")
    runs = []
    for options in ({}, {"checkpoint": {"t": 3}}):
        seen.clear()
        ctx.compile({T: 8}, slope, tp.Config(executor=executor, **options)).run(data(8))
        runs.append(list(seen))
    assert [at for at, _ in runs[1]] == list(range(8))
    np.testing.assert_allclose([value for _, value in runs[1]], [value for _, value in runs[0]], rtol=1e-5)
