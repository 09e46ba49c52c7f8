"""Which statements isl is asked about: few, as its time grows fast with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import reference
from tempo_core.config import PASSES
from tempo_core.schedule.nesting import _Nesting


@pytest.mark.parametrize("shared", [False, True])
def test_isl_sees_only_what_a_hard_step_needs(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """A recurrence that runs backwards has no plain loop; ninety operations beside it, which may share a value with it, have one."""
    asked: list[list[str]] = []
    by_isl = _Nesting._by_isl
    monkeypatch.setattr(_Nesting, "_by_isl", lambda self, part, *rest: (asked.append(part), by_isl(self, part, *rest))[1])
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (), domain=(t,)), tp.input("y", (), domain=(t,))
        backwards = tp.recurrence((), domain=(t,), name="backwards")
        backwards[T - 1] = x[T - 1]
        backwards[t] = tp.tanh(backwards[t + 1] + x)
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
