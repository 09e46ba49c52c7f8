"""Gathers at positions that follow each other from a start among the data: slices, with the values of gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.classics.table import load
from benchmarks.hlo import parse
from tempo_core.backends.base import Call
from tempo_core.backends.xla_cpu.slices import has_few_elements, pieces
from tempo_core.ir.ops import Dataflowed, Gather
from tempo_core.ir.types import TensorType
from tests.core.backends.support import JAX, steered

pytestmark = pytest.mark.cpu

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


@pytest.mark.parametrize("is_of_rows", [False, True])
def test_few_elements_at_any_positions(is_of_rows: bool) -> None:
    x = np.arange(450, dtype=np.float32).reshape(5, 90)
    op = Gather(1, batch=int(is_of_rows))

    def has_few(width: int) -> bool:
        types = (TensorType.of("float32", 5, width), TensorType.of("int32", 5))
        return has_few_elements(steered(Dataflowed(types, (), (), types)), op, 0, 1)

    assert not has_few(9)  # a small value is gathered
    assert has_few(90) == is_of_rows  # 25 elements are more than 8
    for positions in ([0, 3, 8, 2, 2], [-4, 92, LEAST, MOST, 7]):
        clamped = np.clip(positions, 0, 89)
        expected = x[np.arange(5), clamped] if is_of_rows else x[:, clamped]
        (result,) = JAX.kernel(Call(pieces, (op,)), [jax.numpy.asarray(x), jax.numpy.asarray(positions, np.int32)], {})
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rows", "has_gathers"), [(4, False), (8, False), (20, True)])
def test_diagonals_of_a_table_with_few_rows_are_slices(rows: int, has_gathers: bool) -> None:
    traced = load()["local alignment"].program(B=1, M=rows, N=80)
    program = traced.compile()
    program.run({"score": np.random.default_rng(0).normal(size=(1, rows, 80)).astype(np.float32)})
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]
    in_loops = [i.opcode for m in modules for loop in m.loops() for each in m.operations(loop.body) for i in m.inside(each)]
    assert ("gather" in in_loops) == has_gathers


@pytest.mark.parametrize("count", [8, 16])
def test_elements_at_positions_of_data_are_few_kernels(count: int) -> None:
    """Read and written in one iteration, as in prioritized replay: more than eight slices would be a kernel each."""
    length = 3001
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        noise = tp.input("noise", (count,), domain=(t,))
        priority = tp.recurrence((length,), domain=(t,), name="priority")
        places = (noise * 3000.0).astype("int32")
        error = 1.0 / priority.index(0, places) - noise
        priority[0] = tp.ones((length,))
        priority[t + 1] = priority.scatter(places, abs(error) + 0.01)
    program = ctx.compile({T: 40}, [priority[T - 1]])
    given = np.random.default_rng(0).random((40, count)).astype(np.float32)
    (result,) = program.run({"noise": given})
    expected = np.ones(length, np.float32)
    for row in given[:-1]:
        at = (row * np.float32(3000.0)).astype(np.int32)
        expected[at] = np.abs(1 / expected[at] - row) + np.float32(0.01)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments if segment.compiled is not None]
    assert sum(each.opcode == "fusion" for m in modules for loop in m.loops() for each in m.operations(loop.body)) <= 8
