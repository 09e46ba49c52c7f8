"""Statements whose points are in many pieces: their lifetimes and schedules are bounded, and never too short."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.schedule import constraints, lifetimes, schedule
from tests import reference
from tests.cases import cells
from tests.core.schedule.checker import check

Condition = Any
CONDITIONS: dict[str, Any] = {  # of the number of a branch and its two steps
    "modulo": lambda k, i, t: (t % (k + 3) == k) | ((t >= 3 * k + 2) & (t < 3 * k + 6) & ~(t == 3 * k + 4)),
    "spans": lambda k, i, t: ((t >= 3 * k) & (t < 3 * k + 2)) | ((t >= 9 + k) & ~((t == 10 + k) | (t == 12))),
    "two steps": lambda k, i, t: ((i + t) % (k + 2) == 0) | (~(t >= i + k) & (t % 2 == 1)),
    "apart": lambda k, i, t: ((i == k) & ~(t == 3)) | (t == 2 * k + 1),
}


def branches(name: str, count: int, clamped: bool) -> tuple[tp.Context, dict[Any, int], list[tp.Tensor], dict[str, Any]]:
    """A recurrence with branches, and its gradient. Branch k reads the point k % 3 + 1 before it, or, if clamped, the first."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (), domain=(i, t), requires_grad=True)
        r = tp.recurrence((), domain=(i, t), name="r")
        r[i, 0] = x[i, 0]
        for k in range(count):
            back = k % 3 + 1
            before = r[i, tp.max(t - back, 0)] if clamped else r[i, t - back]
            r[i, t, (t >= (1 if clamped else back)) & CONDITIONS[name](k, i, t)] = tp.tanh(before * (1 + 0.1 * k) + x)
        r[i, t, t >= 1] = r[i, t - 1] * 0.5 + x
        y = (r * r[i, tp.max(t - 4, 0)]).named("y")
        loss = y[0:I, 0:T].sum()
        loss.backward()
    values = np.random.default_rng(0).normal(size=(3, 14)).astype("float32")
    return ctx, {I: 3, T: 14}, [loss, y, x.grad], {"x": values}


@pytest.mark.parametrize(("name", "clamped"), cells(CONDITIONS, (False, True), fast=[("apart", True)]))
def test_bounded_lifetimes_are_long_enough(name: str, clamped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All statements are bounded here. No slot is overwritten before its last read, and few are more than the exact ones."""
    ctx, bounds, outputs, fed = branches(name, 3, clamped)
    config = tp.Config(backend="numpy", disable=("vectorize",))
    exact = ctx.compile(bounds, outputs, config)
    for module, constant in ((lifetimes, "MOST_PIECES_TO_COMPARE"), (constraints, "MOST_PIECES")):
        monkeypatch.setattr(module, constant, 0)
    scheduled = schedule(exact.graph, exact.bounds)
    check(scheduled, strict=False)
    monkeypatch.undo()
    for module, constant in ((lifetimes, "MOST_PIECES_TO_COMPARE"), (constraints, "MOST_PIECES")):
        monkeypatch.setattr(module, constant, 10**6)
    by_isl = schedule(exact.graph, exact.bounds)
    monkeypatch.undo()
    sizes = [math.prod(s.size for s in each.storage.values()) for each in (by_isl, scheduled)]
    assert sizes[0] <= sizes[1]
    for result, right in zip(exact.run(fed), reference.evaluate(ctx, outputs, bounds, fed), strict=True):
        np.testing.assert_allclose(result, right, rtol=2e-4, atol=1e-5)
