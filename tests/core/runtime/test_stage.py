"""The staged executor between device programs: host results, stores, and programs that several bounds share."""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors, prices
from tempo_core.backends.jax_backend import JaxBackend


class Machine:
    """A state on the host that returns several results per call, always in the same memory."""

    def __init__(self) -> None:
        self.state, self.flag = np.zeros(3, "float32"), np.zeros((), "bool")

    def __call__(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        self.state += action
        self.flag[...] = self.state[0] > 3
        return self.state, self.flag, self.state[:2]


def program(machine: Any, specs: Any = None, **bounds: int) -> tuple[tp.Program, Any]:
    """h[t + 1] is computed from the machine's results for h[t] and from the input."""
    specs = specs or [tp.spec((3,)), tp.spec((), "bool"), tp.spec((2,))]
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, unread = tp.input("x", domain=(t,)), tp.input("unread", (2,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = 1.0
        state, flag, two = tp.udf(machine, h, outputs=specs, kind="host", stateful=True)
        h[t + 1] = tp.where(flag, h * 0.5, h) + (state.sum() - two.sum()) * 0 + x
        return ctx.compile({T: 6}, {"state": state, "h": h, "unread": unread}), T


FED = {"x": np.zeros(6, "float32"), "unread": np.ones(2, "float32")}


def test_results_of_the_host_are_copied_and_go_to_the_device_together(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    compiled, _ = program(machine)
    results = compiled.run(FED)
    assert results["h"].tolist() == [1, 1, 1, 1, 0.5, 0.25]
    assert results["state"][:, 0].tolist() == [1, 2, 3, 4, 4.5, 4.75]
    moved: list[Any] = []
    to_device = JaxBackend.to_device
    monkeypatch.setattr(JaxBackend, "to_device", lambda self, array: (moved.append(array), to_device(self, array))[1])
    machine.state[:] = 0
    again = compiled.run(FED)
    assert again["h"].tolist() == results["h"].tolist()
    assert len(moved) == 1  # `x`, which the loop reads; and not one transfer for each of three results at each of six points


def test_device_programs_take_what_they_read() -> None:
    compiled, _ = program(Machine())
    segments = compiled._staged.segments
    reading = {name: [bool(segment.counters) for segment in segments if name in segment.inputs] for name in ("x", "unread")}
    assert reading == {"x": [True, False], "unread": [False]}  # in the loop and with its last point, and after it


def test_dtypes_that_the_device_lacks_are_refused() -> None:
    compiled, _ = program(lambda h: (np.zeros(3, "int64"), np.zeros((), bool), np.zeros(2, "int64")), [
        tp.spec((3,), "int64"), tp.spec((), "bool"), tp.spec((2,), "int64"),
    ])  # fmt: skip
    with pytest.raises(errors.DTypeError, match="int64 needs JAX's 64-bit mode"):
        compiled.run(FED)


def test_device_programs_are_shared_while_they_live() -> None:
    compiled, T = program(Machine())
    compiled.run(FED)
    longer = compiled.with_bounds({T: 9})
    longer.run({"x": np.zeros(9), "unread": np.ones(2)})
    executables = compiled.backend.executables
    assert compiled.backend is longer.backend
    before = len(executables)
    assert before == compiled.compiles + longer.compiles
    del longer
    gc.collect()
    assert len(executables) == compiled.compiles < before
    compiled.run(FED)


def test_programs_that_read_other_parts_of_equal_stores_are_not_shared() -> None:
    """A store in two parts: the result is in the second of them for two points, and in the first for three.

    The device programs have one text if arguments that they do not use are left out.
    """
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.recurrence((1,), domain=(i, t), name="x")
        x[i, T - 1] = 0.7
        x[i, t] = tp.sin(x[i, t + 1 : T].mean(0))
        result = x[I // 2, T - 1]
    small = {"LEAST_SECONDS_OF_COPIES": 0.0}
    with patch.multiple(prices, **small):
        program = ctx.compile({I: 4, T: 2}, result, tp.Config(disable=("trim",), launch_seconds=0.0))
        for sizes in ((4, 2), (4, 3), (7, 5)):
            other = program.with_bounds(dict(zip((I, T), sizes, strict=True)))
            np.testing.assert_allclose(other.run(), [0.7], rtol=1e-6)


def test_compiled_ahead_of_time() -> None:
    compiled, _ = program(Machine())
    expected = program(Machine())[0].run(FED)
    assert compiled.compiles == 0 and compiled.compile() is compiled
    compiles = compiled.compiles
    assert compiles == len(compiled._staged.segments)
    for value, other in zip(compiled.run(FED), expected, strict=True):
        np.testing.assert_array_equal(value, other)
    assert compiled.compiles == compiles
