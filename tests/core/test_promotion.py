"""The common dtype of two operands: the whole table, against JAX's; Python numbers, NumPy numbers and steps; too large numbers."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import DTypeError
from tempo_core.ir.types import DTYPES, INTEGERS
from tests import reference
from tests.core.running import assert_all_same

ORDER = ("bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64")
TABLE = """
bool      bool     int8     uint8    int32    uint32   int64    float16  bfloat16 float32  float64
int8      int8     int8     int32    int32    int32    int64    float16  bfloat16 float32  float64
uint8     uint8    int32    uint8    int32    uint32   int64    float16  bfloat16 float32  float64
int32     int32    int32    int32    int32    int32    int64    float16  bfloat16 float32  float64
uint32    uint32   int32    uint32   int32    uint32   int64    float16  bfloat16 float32  float64
int64     int64    int64    int64    int64    int64    int64    float16  bfloat16 float32  float64
float16   float16  float16  float16  float16  float16  float16  float16  float32  float32  float64
bfloat16  bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 float32  bfloat16 float32  float64
float32   float32  float32  float32  float32  float32  float32  float32  float32  float32  float64
float64   float64  float64  float64  float64  float64  float64  float64  float64  float64  float64
"""
# Pairs for which JAX takes a dtype that Tempo does not have, or 64 bits.
UNLIKE_JAX = {("int8", "uint8"): "int16", ("int8", "uint32"): "int64", ("int32", "uint32"): "int64"}


def test_the_whole_table() -> None:
    rows = [line.split() for line in TABLE.strip().splitlines()]
    assert set(ORDER) == set(DTYPES) and [row[0] for row in rows] == list(ORDER)
    for row in rows:
        for right, expected in zip(ORDER, row[1:], strict=True):
            assert tp.promote(row[0], right) == tp.promote(right, row[0]) == expected, (row[0], right)


@pytest.mark.parametrize("left, right", itertools.combinations_with_replacement(ORDER, 2))
def test_the_table_is_that_of_jax_but_for_what_the_docstring_says(left: str, right: str) -> None:
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(True):
        theirs = str(jnp.promote_types(left, right))
    assert theirs == UNLIKE_JAX.get((left, right), tp.promote(left, right))


# the tensor's dtype, the number: the dtype of their sum
WEAK: list[tuple[str, Any, str]] = [
    *((dtype, 1, "int32" if dtype == "bool" else dtype) for dtype in ORDER),
    *((dtype, 1.5, dtype if "float" in dtype else "float32") for dtype in ORDER),
    *((dtype, True, "int32" if dtype == "bool" else dtype) for dtype in ORDER),  # bools are added as int32
    ("float16", np.float32(1), "float32"),
    ("float16", np.float64(1), "float32"),  # 64 bits count as 32
    ("int8", np.int64(1), "int32"),
    ("bfloat16", np.int32(1), "bfloat16"),
    ("int8", [1.0], "float32"),
]


@pytest.mark.parametrize("dtype, number, expected", WEAK, ids=str)
def test_numbers(dtype: str, number: Any, expected: str) -> None:
    with tp.Context("t"):
        x = tp.zeros((1,), dtype)
        assert (x + number).dtype == (number + x).dtype == (x * number).dtype == expected
        assert tp.where(True, x, number).dtype == (expected if (dtype, type(number)) != ("bool", bool) else "bool")


def test_steps_are_weak_with_floats_and_int32_with_others() -> None:
    with tp.Context("t") as ((t, T),):
        dtypes = {dtype: (tp.zeros((), dtype) + t).dtype for dtype in ("bfloat16", "float32", "int8", "int32", "uint8", "bool")}
        assert dtypes == {
            "bfloat16": "bfloat16",
            "float32": "float32",
            "int8": "int32",
            "int32": "int32",
            "uint8": "int32",
            "bool": "int32",
        }
        assert (t * 0.5).dtype == "float32" and (tp.zeros((), "float16") * (T - 1)).dtype == "float16"


def test_what_changes_the_dtype_by_itself() -> None:
    with tp.Context("t"):
        for dtype in INTEGERS:
            x = tp.ones((2, 2), dtype)
            wide = {"int8": "int32", "uint8": "uint32"}.get(dtype, dtype)
            assert {f.dtype for f in (x / x, tp.exp(x), x.mean(), tp.std(x), tp.arctan2(x, x), x.softmax())} == {"float32"}
            assert {f.dtype for f in (x.sum(), x.prod(), x.cumsum(), x.cumprod())} == {wide}
            assert {f.dtype for f in (-x, x**2, x // x, x % x, x @ x, x.max(), x.cummax(), x.sort(), ~x, x & x)} == {dtype}
            assert {f.dtype for f in (x.argmax(), x.argsort(), x.count_nonzero())} == {"int32"}
        truth = tp.ones((2, 2), "bool")
        assert {f.dtype for f in (truth + truth, -truth, truth.sum(), truth @ truth, truth // truth)} == {"int32"}
        assert {f.dtype for f in (truth & truth, ~truth, truth.max(), truth.any(), tp.maximum(truth, truth))} == {"bool"}
        for dtype in ("bfloat16", "float16"):
            x = tp.ones((2, 2), dtype)
            kept = (
                x + 1,
                x.sum(),
                x.mean(),
                x @ x,
                tp.exp(x),
                x.softmax(),
                x / 2,
                x.cumsum(),
                x.discounted_sum(0.9),
                tp.gelu(x),
                x.std(),
            )
            assert {f.dtype for f in kept} == {dtype}


@pytest.mark.parametrize(
    "dtype, number", [("int8", 128), ("uint8", -1), ("int32", 2**31), ("uint32", -1), ("int8", float("nan")), ("uint8", 256.0)]
)
def test_a_number_that_a_dtype_does_not_hold_is_refused(dtype: str, number: float) -> None:
    with tp.Context("t"):
        with pytest.raises(DTypeError, match=f"{dtype} does not hold"):
            tp.constant(number, dtype)
        with pytest.raises(DTypeError, match=f"{dtype} does not hold"):
            tp.full((2,), number, dtype)
        if isinstance(number, int):
            with pytest.raises(DTypeError, match="does not hold") as raised:
                tp.ones((2,), dtype) + number
            assert raised.value.where.startswith(__file__)
    with tp.Context("t"), pytest.raises(DTypeError, match="int32 does not hold"):
        tp.constant(np.array([2**40]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint8", "uint32"])
def test_a_program_in_one_dtype_is_the_same_everywhere(dtype: str) -> None:
    """A recurrence, windows, sums and products over time, by the reference and compiled."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), dtype, domain=(t,))
        h = tp.recurrence((3,), dtype, domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.where(x[t + 1] > 2, x[t + 1] * 2, h + 1)
        past, whole = x[0 : t + 1], x[0:T]
        outputs = [
            h,
            past.sum(0),
            past.max(0),
            past.cummax(0).sum(0),
            (past @ x).max(),
            whole.cumsum(0),
            whole.sort(0, descending=True),
            -h // 2,
            h % 3,
        ]
    data = np.random.default_rng(0).integers(0, 4, (5, 3))
    inputs = {"x": data.astype("float32").astype(jnp.dtype(dtype))}
    expected = reference.evaluate(ctx, outputs, {T: 5}, inputs)
    for config in (tp.Config(), tp.Config(backend="numpy")):
        results = ctx.run({T: 5}, outputs=outputs, inputs=inputs, config=config)
        assert [np.asarray(f).dtype for f in results] == [np.asarray(e).dtype for e in expected]
        assert_all_same([np.asarray(f, "float64") for f in results], [np.asarray(e, "float64") for e in expected], 1e-2)


def test_the_mean_of_float16_has_no_sum_beyond_its_range() -> None:
    ctx, data = tp.Context("t"), np.array([60000, 60000, 59968, 59904], "float16")
    with ctx as ((t, T),):
        x = tp.input("x", (), "float16", domain=(t,))
        outputs = [x[0:T].mean(0), x[0 : t + 1].mean(0), (x[0:T] / 60).var(0), x[0:T].std(0)]
    results = ctx.run({T: 4}, outputs, {"x": data}, tp.Config(backend="numpy"))
    wide = data.astype("float32")
    expected = [
        wide.mean(),
        [wide[: k + 1].mean() for k in range(4)],
        (data / np.float16(60)).astype("float32").var(),
        wide.std(),
    ]
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == np.float16
        np.testing.assert_allclose(result, value, rtol=2e-3)
