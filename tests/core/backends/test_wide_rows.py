"""Sums of wide rows are products with ones, on a CPU, and many sums of few numbers are written out; what other reductions of rows hold is a
part of the plan."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tempo_core.backends.xla_cpu.wide_rows import held
from tempo_core.prices import LEAST_WIDTH_TO_MULTIPLY

pytestmark = pytest.mark.cpu

WIDTH = LEAST_WIDTH_TO_MULTIPLY // 4


@pytest.mark.parametrize(("axes", "shape"), [((0,), (3, 4, WIDTH)), ((0, 1), (2, 3, 4 * WIDTH)), ((1,), (3, 0, 4 * WIDTH))])
def test_sums_and_gradients(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", shape, domain=(t,))
        total = x.sum(axes)
        (slope,) = tp.grad((total**2).sum(), [x])
    values = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    totals, slopes = ctx.compile({T: 2}, [total, slope]).run({"x": values})
    expected = values.sum(tuple(axis + 1 for axis in axes), dtype=np.float64)
    assert np.allclose(totals, expected, atol=1e-4)
    kept = np.expand_dims(expected, tuple(axis + 1 for axis in axes))
    assert np.allclose(slopes, np.broadcast_to(2 * kept, slopes.shape), atol=1e-3)


@pytest.mark.parametrize(
    ("width", "fn", "dtype", "products"),
    [
        (4 * WIDTH, "sum", "float32", 1),
        (4 * WIDTH - 1, "sum", "float32", 0),
        (4 * WIDTH, "max", "float32", 0),
        (4 * WIDTH, "sum", "int32", 0),
    ],
)
def test_wide_sums_of_floats_are_products(width: int, fn: str, dtype: str, products: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (width,), dtype, domain=(t,))
        y = getattr(x[0:T], fn)(0)
    program = ctx.compile({T: 3}, y)
    program.plan().usage  # noqa: B018 -- compiles
    (segment,) = program._staged.segments
    instructions = [i for c in parse(segment.compiled.as_text()).computations.values() for i in c.instructions]
    assert sum(i.opcode == "dot" for i in instructions) == products


@pytest.mark.parametrize(
    ("axes", "shape", "reductions"),
    [
        ((2,), (200, 40, 4), 0),
        ((0, 2), (2, 2000, 4), 0),
        ((2,), (200, 40, 16), 1),  # more numbers
        ((2,), (2, 40, 4), 1),  # few sums
    ],
)
def test_many_sums_of_few_numbers_are_written_out(axes: tuple[int, ...], shape: tuple[int, ...], reductions: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x = tp.input("x", shape)
        program = ctx.compile({T: 1}, [x.sum(axes)])
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(program.run({"x": values})[0], values.sum(axes), atol=1e-5)
    assert program._staged is not None
    (segment,) = program._staged.segments
    instructions = [i for c in parse(segment.compiled.as_text()).computations.values() for i in c.instructions]
    assert sum(i.opcode == "reduce" for i in instructions) == reductions


REDUCTION = """
%fused_computation (param_0.2: f32[{shape}]) -> f32[3000] {
  %param_0.2 = f32[{shape}]{1,0} parameter(0)
  %multiply.2 = f32[{shape}]{1,0} multiply(%param_0.2, %param_0.2)
  %constant.1 = f32[] constant(0)
  ROOT %reduce_sum.0 = f32[3000]{0} reduce(%multiply.2, %constant.1), dimensions={{axes}}, to_apply=%region_0.1
}

ENTRY %main.2 (inputs_0_.1: f32[{shape}]) -> f32[3000] {
  %inputs_0_.1 = f32[{shape}]{1,0} parameter(0)
  ROOT %fusion = f32[3000]{0} fusion(%inputs_0_.1), kind=kCustom, calls=%fused_computation, backend_config={"fusion_config":{"kind":"{kind}"}}
}
"""


@pytest.mark.parametrize(
    ("shape", "axes", "kind", "bytes"),
    [
        ("6000,3000", "0", "__ynn_fusion", 6000 * 3000 * 4 // 10),
        ("60,100,3000", "0,1", "__ynn_fusion", 6000 * 3000 * 4 // 10),
        ("10,60,50", "0", "__ynn_fusion", 10 * 3000 * 4 // 10),
        ("60,60000", "0", "__ynn_fusion", 60 * 60000 * 4),  # not more than there is
        ("3000,6000", "1", "__ynn_fusion", 0),
        ("6000,3000", "0", "another", 0),
    ],
)
def test_what_a_reduction_holds(shape: str, axes: str, kind: str, bytes: int) -> None:
    text = REDUCTION.replace("{shape}", shape).replace("{axes}", axes).replace("{kind}", kind)
    assert held(text) == pytest.approx(bytes, rel=1e-6)
    assert held(text + text.replace("fused_computation", "other").replace(shape, "2,50")) == held(text), "one at a time"
