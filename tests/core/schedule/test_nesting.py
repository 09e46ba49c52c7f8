"""Which statements isl is asked about: few, as its time grows fast with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.config import PASSES
from tempo_core.schedule.nesting import _Nesting


def test_isl_sees_only_what_is_connected_with_a_hard_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrence that runs backwards has no plain loop; fifty operations beside it, which it does not read, have one."""
    asked: list[list[str]] = []
    by_isl = _Nesting._by_isl
    monkeypatch.setattr(_Nesting, "_by_isl", lambda self, part, *rest: (asked.append(part), by_isl(self, part, *rest))[1])
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        backwards = tp.recurrence((), domain=(t,), name="backwards")
        backwards[T - 1] = x[T - 1]
        backwards[t] = tp.tanh(backwards[t + 1] + x)
        forwards = tp.recurrence((), domain=(t,), name="forwards")
        forwards[0] = 0.0
        value: Any = forwards
        for _ in range(25):
            value = tp.sin(value) + x
        forwards[t + 1] = value
        config = tp.Config(backend="numpy", disable=PASSES)
        found = ctx.run({T: 4}, [backwards, forwards], {"x": np.ones(4, "float32")}, config)
    assert asked and all(len(part) < 10 for part in asked)
    expected = [1.0]
    for _ in range(3):
        expected.insert(0, np.tanh(expected[0] + 1))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    assert found[1][0] == 0 and np.isfinite(found[1]).all()
