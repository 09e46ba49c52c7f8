"""Gathers at positions that follow each other from a start among the data: slices, with the values of gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp

LEAST, MOST = -(2**31), 2**31 - 1
POSITIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "ahead": (lambda n, k: tp.arange(n) + k, lambda n, k: np.arange(n, dtype=np.int32) + k),
    "from": (lambda n, k: k + tp.arange(n), lambda n, k: np.arange(n, dtype=np.int32) + k),
    "back": (lambda n, k: tp.arange(n) - k, lambda n, k: np.arange(n, dtype=np.int32) - k),
    "back, from 0 on": (
        lambda n, k: tp.maximum(tp.arange(n) - k, 0),
        lambda n, k: np.maximum(np.arange(n, dtype=np.int32) - k, 0),
    ),
    "not below -3": (lambda n, k: tp.maximum(-3, tp.arange(n) + k), lambda n, k: np.arange(n, dtype=np.int32) + k),
    "not below 5": (lambda n, k: tp.maximum(tp.arange(n) + k, 5), lambda n, k: np.maximum(np.arange(n, dtype=np.int32) + k, 5)),
    "mirrored": (lambda n, k: k - tp.arange(n), lambda n, k: k - np.arange(n, dtype=np.int32)),
}
SLICES = ("ahead", "from", "back", "back, from 0 on", "not below -3")


def program(name: str, axis: int, count: int, lengths: tuple[int, int]) -> tp.Program[list[Any]]:
    ctx = tp.Context("t")
    with ctx as ((_, bound),):
        x, k = tp.input("x", lengths), tp.input("k", (), "int32")
        return ctx.compile({bound: 1}, [x.take(POSITIONS[name][0](count, k), axis)])


@pytest.mark.parametrize("count", [40, 90])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", POSITIONS)
def test_values(name: str, axis: int, count: int) -> None:
    lengths = (60, 3) if axis == 0 else (3, 60)
    x = np.random.default_rng(0).normal(size=lengths).astype(np.float32)
    x[0, 0], x[-1, -1] = np.nan, np.inf
    compiled = program(name, axis, count, lengths)
    for k in (0, 1, -1, 7, -59, 59, 60, -60, 89, -90, 1000, LEAST, LEAST + 1, MOST, MOST - 20):
        with np.errstate(over="ignore"):
            places = np.clip(POSITIONS[name][1](count, np.int32(k)), 0, 59)
        (result,) = compiled.run({"x": x, "k": np.int32(k)})
        np.testing.assert_array_equal(result, np.take(x, places, axis), err_msg=f"k = {k}")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices gather fast")
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_that_follow_each_other_are_a_slice(name: str) -> None:
    def gathers(length: int) -> bool:
        compiled = program(name, 0, length, (length, 3))
        compiled.run({"x": np.ones((length, 3), np.float32), "k": np.int32(1)})
        assert compiled._staged is not None
        return any(" gather(" in s.compiled.as_text() for s in compiled._staged.segments if s.compiled is not None)

    assert gathers(60) == (name not in SLICES)
    assert gathers(8), "a few elements are gathered"
