"""Products of slices of stores, part by part: the same values, without a copy of the slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tests import reference, targets
from tests.core.running import assert_all_same

pytestmark = pytest.mark.cpu


def of_two_stores(ctx: tp.Context, t: Any, T: Any) -> list[Any]:
    x, w = tp.input("x", (2, 3), domain=(t,)), tp.input("w", (3, 3))
    h = tp.recurrence((2, 3), domain=(t,), name="h")
    h[0] = tp.zeros((2, 3))
    h[t + 1] = tp.tanh(h @ w + x)
    return list(tp.grad((h[T - 1] ** 2).sum(), [w]))


def of_a_slice_and_a_whole(ctx: tp.Context, t: Any, T: Any) -> list[Any]:
    x, y = tp.input("x", (11, 3)), tp.input("y", (8, 4))
    return [x.spatial[1:9].transpose() @ y]


def of_slices_that_stay(ctx: tp.Context, t: Any, T: Any) -> list[Any]:
    """Along a dimension that is not contracted, and of every other element."""
    x, y, z = tp.input("x", (11, 3)), tp.input("y", (11, 4)), tp.input("z", (6, 4))
    return [x.spatial[:, 1:].transpose() @ y, x.spatial[::2].transpose() @ z]


@pytest.mark.parametrize(("make", "loops"), [(of_two_stores, 1), (of_a_slice_and_a_whole, 1), (of_slices_that_stay, 0)])
@pytest.mark.parametrize("bytes", [1, 8, 32, 10**9])
def test_products_of_slices(make: Callable[..., list[Any]], loops: int, bytes: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        outputs = make(ctx, t, T)
    random = np.random.default_rng(0)
    specs = ctx.compile({T: 11}, outputs).inputs
    inputs = {name: random.normal(size=spec.whole).astype(np.float32) for name, spec in specs.items()}
    plain = while_loops(ctx.compile({T: 11}, outputs), inputs, outputs, ctx, {T: 11})
    with targets.numbers(cache_bytes=3 * bytes):
        cut = while_loops(ctx.compile({T: 11}, outputs), inputs, outputs, ctx, {T: 11})
    if bytes in (1, 10**9):
        assert cut - plain == (loops if bytes == 1 else 0), "one part needs no loop"


def while_loops(program: tp.Program[Any], inputs: Any, outputs: Any, ctx: tp.Context, bounds: Any) -> int:
    """The number of loops in the device programs, after a run with the right results."""
    assert_all_same(program.run(inputs), reference.evaluate(ctx, outputs, bounds, inputs))
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]  # type: ignore[union-attr]
    return sum(i.opcode == "while" for module in modules for c in module.computations.values() for i in c.instructions)
