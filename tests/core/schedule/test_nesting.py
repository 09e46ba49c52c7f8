"""Which statements isl is asked about: few, as its time grows fast with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.config import PASSES
from tempo_core.schedule import schedule
from tempo_core.schedule.nesting import _Nesting
from tests import reference
from tests.core.running import assert_all_same
from tests.core.schedule.checker import check


def parts_for_isl(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The statements of each question to isl's scheduler from now on."""
    asked: list[list[str]] = []
    by_isl = _Nesting._by_isl
    monkeypatch.setattr(_Nesting, "_by_isl", lambda self, part, *rest: (asked.append(part), by_isl(self, part, *rest))[1])
    return asked


@pytest.mark.parametrize("shared", [False, True])
def test_isl_sees_only_what_a_hard_step_needs(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """A cycle that reads both ways has no plain loop; ninety operations beside it, which may share a value with it, have one."""
    asked = parts_for_isl(monkeypatch)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (), domain=(t,)), tp.input("y", (), domain=(t,))
        before = tp.recurrence((), domain=(t,), name="before")
        backwards = tp.recurrence((), domain=(t,), name="backwards")
        before[0] = x[0]
        before[t] = tp.sin(backwards[t - 1])
        backwards[t, t + 2 < T] = tp.tanh(before[t + 2] + x)
        backwards[t] = x
        forwards = tp.recurrence((), domain=(t,), name="forwards")
        forwards[0] = 0.0
        value: Any = forwards
        for _ in range(45):
            value = tp.sin(value) + (x if shared else y)
        forwards[t + 1] = value
        last = backwards * forwards if shared else forwards
        config = tp.Config(backend="numpy", disable=PASSES)
        outputs, fed = [backwards, last], {"x": np.ones(4, "float32"), "y": np.ones(4, "float32")}
        results = ctx.run({T: 4}, outputs, fed, config)
    assert asked and all(len(part) < 10 for part in asked)
    for result, right in zip(results, reference.evaluate(ctx, outputs, {T: 4}, fed), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 9])
def test_a_loop_that_runs_backwards_needs_no_isl(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """The gradient of a recurrence runs backwards, after the recurrence; so does the recurrence of every second layer."""
    asked = parts_for_isl(monkeypatch)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (), domain=(t,)), tp.input("w", (), requires_grad=True)
        down = tp.recurrence((), domain=(t,), name="down")
        down[T - 1] = x[T - 1]
        down[t - 1] = tp.tanh(down * w + x[t - 1])
        up = tp.recurrence((), domain=(t,), name="up")
        up[0] = x[0]
        up[t, (t % 3 == 1) | (t >= 4)] = tp.tanh(up[t - 1] + down)
        up[t] = tp.sin(up[t - 1] * down)
        loss = up[0:T].sum()
        loss.backward()
        outputs = [loss, w.grad]
        fed = {"x": np.linspace(-1, 1, length).astype("float32"), "w": np.float32(0.7)}
        program = ctx.compile({T: length}, outputs, tp.Config(backend="numpy", disable=("vectorize", "lift")))
    assert not asked
    for result, right in zip(program.run(fed), reference.evaluate(ctx, outputs, {T: length}, fed), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_a_counter_inside_a_backwards_loop_has_a_name_of_its_own(length: int) -> None:
    """Inside a loop that runs backwards, isl builds a second loop: the gradient's gradient of a recurrence that reads `t // 2`."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,), requires_grad=True)
        h = tp.recurrence((1,), domain=(t,), name="h")
        h[0] = 0.5
        h[t] = tp.where(h[t // 2] > 0.2, x, h[t // 2] * 0.7)
        ahead = h[tp.min(t + 1, T) : tp.min(t + 4, T)].discounted_sum(0.9)
        loss = tp.tanh(((h.sum())[0:T].sum() + (ahead.sum())[0:T].sum() + x[0:T].sum()) * 0.1)
        (first,) = tp.grad(loss, wrt=[x])
        outputs = tp.grad(tp.tanh((first * first)[0:T].sum() + loss), wrt=[x])
    program = ctx.compile({T: length}, outputs, tp.Config(disable=("vectorize(t)",)))
    check(schedule(program.graph, program.bounds), strict=False)


def test_points_that_all_read_one_point_are_not_near_it() -> None:
    """With that wish, isl's scheduler crashed for this program (islpy 2026.2.2): it took the process with it, or gave a schedule without statements."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(i, t), streamed=True)
        u = tp.recurrence((), domain=(i, t), name="u")
        u[i, t, t < 3] = x
        u[i, t] = tp.sin(u[i, t % 3]) - x
        v = tp.recurrence((), domain=(i, t), name="v")
        v[0, 0] = x[0, 0]
        v[i, t + 1] = tp.tanh(v * 0.9 + x)
        v[i + 1, 0] = (v * 0.9 + 0.2)[i, T - 1]
        outputs = [u[tp.max(i - t, 0) : i + 1, T // 2], v[i, tp.max(t - 3, 0) : tp.min(t + 4, T)], v]
    bounds, inputs = {I: 3, T: 6}, {"x": np.random.default_rng(0).normal(size=(3, 6)).astype("float32")}
    results = ctx.run(bounds, outputs, inputs, tp.Config(backend="numpy"))
    assert_all_same(results, reference.evaluate(ctx, outputs, bounds, inputs), 1e-5)


def test_what_reads_the_most_of_a_backwards_loop_runs_in_it() -> None:
    """The gradient of the addends of a gated sum: point by point as the gradient of the sum goes back, of which no point is kept."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, gate = tp.input("x", (8,), domain=(t,)), tp.input("gate", (8,), domain=(t,))
        total = tp.recurrence((8, 8), domain=(t,), name="total")
        tp.carry(total, tp.zeros((8, 8)), tp.sigmoid(gate).expand_dims(1) * total + x.expand_dims(1) * x)
        last = total[T - 1]
        (slope,) = tp.grad((last**2).sum(), wrt=[x])
    random = np.random.default_rng(0)
    fed = {name: random.normal(size=(5, 8)).astype("float32") for name in ("x", "gate")}
    expected = reference.evaluate(ctx, [last, slope], {T: 5}, fed)
    for result, right in zip(ctx.compile({T: 5}, [last, slope]).run(fed), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-4)
    points = 10_000
    program = ctx.compile({T: points}, [last, slope], tp.Config(disable=("vectorize(t)",)))
    assert program.plan().peak_device_bytes < 6 * points * 8 * 4, "no 64 numbers a point"
