"""Elementwise kernels and casts: functions against those of JAX in float64 (`tests/core/points.py`), others against plain numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_core.ir import ops
from tests.core.backends.support import BACKENDS, array, check, normal, run
from tests.core.points import SMOOTH

X = np.array([-3.5, -2.5, -1.0, -0.25, -1e-4, 0.0, 1e-4, 0.5, 1.5, 2.5, 9.0])
X = np.concatenate([X, X / 10, np.abs(X) + 1])  # some are in the domain of each function

ROWS = {row.op: row for row in SMOOTH.values() if row.op is not None}


def within_the_domain(op: ops.Op, *operands: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The operands for which the function of JAX is finite in float64, and its results."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        results = np.asarray(ROWS[op].jax(*(jnp.asarray(x.astype(np.float64)) for x in operands)))
    inside = np.isfinite(results)
    assert inside.sum() >= 10
    return [x[inside] for x in operands], results[inside]


@pytest.mark.parametrize("op", [op for op in ROWS if isinstance(op, ops.Unary)], ids=lambda op: op.fn)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_unary_on_floats(op, dtype):
    operands, results = within_the_domain(op, array(X, dtype))  # of the operand as the dtype rounds it
    check(op, operands, results, rtol={"float32": 4e-6, "bfloat16": 3e-2, "float16": 4e-3}[dtype])


@pytest.mark.parametrize("fn", ops.UNARY)
def test_every_unary_function_is_tested(fn):
    has_a_row = ops.Unary(fn) in ROWS
    assert has_a_row != (fn in ("not", "isfinite", "isnan")), f"give the function of {fn} a row in tests/core/points.py"


@pytest.mark.parametrize("fn", ["neg", "abs", "sign"])
def test_unary_on_integers(fn):
    check(ops.Unary(fn), [array([-3, 0, 7], "int32")], {"neg": [3, 0, -7], "abs": [3, 0, 7], "sign": [-1, 0, 1]}[fn])


def test_not_and_isfinite():
    check(ops.Unary("not"), [array([True, False], "bool")], [False, True])
    check(ops.Unary("isfinite"), [array([1.0, np.inf, -np.inf, np.nan])], [True, False, False, False])
    check(ops.Unary("isfinite"), [array([1, 2], "int32")], [True, True])
    check(ops.Unary("isnan"), [array([1.0, np.inf, -np.inf, np.nan])], [False, False, False, True])
    check(ops.Unary("isnan"), [array([1, 2], "int32")], [False, False])


def test_sigmoid_does_not_overflow():
    check(ops.Unary("sigmoid"), [array([-1e4, -88.0, 88.0, 1e4])], [0.0, np.exp(-88.0), 1.0, 1.0])


@pytest.mark.parametrize("op", [op for op in ROWS if isinstance(op, ops.Binary)], ids=lambda op: op.fn)
def test_binary_on_floats(op):
    operands, results = within_the_domain(op, normal(40, seed=1), normal(40, seed=2))
    check(op, operands, results, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_binary_on_integers(dtype):
    x, y = array([7, -7, 7, -7, 0, 6], dtype), array([3, 3, -3, -3, 5, 2], dtype)
    expected = {
        "add": [10, -4, 4, -10, 5, 8],
        "sub": [4, -10, 10, -4, -5, 4],
        "maximum": [7, 3, 7, -3, 5, 6],
        "minimum": [3, -7, -3, -7, 0, 2],
        "floordiv": [2, -3, -3, 2, 0, 3],  # rounds down
        "mod": [1, 2, -2, -1, 0, 0],  # has the divisor's sign
        "and": [3, 1, 5, -7, 0, 2],
        "or": [7, -5, -1, -3, 5, 6],
        "xor": [4, -6, -6, 4, 5, 4],
    }
    for fn, values in expected.items():
        check(ops.Binary(fn), [x, y], values)


def test_integer_powers():
    x, y = array([2, -2, 1, -1, -1, 3, 0], "int32"), array([5, 3, -2, -2, -3, -1, 0], "int32")
    check(ops.Binary("pow"), [x, y], [32, -8, 1, 1, -1, 0, 1])


def test_unsigned_arithmetic_wraps():
    check(ops.Binary("add"), [array(2**32 - 1, "uint32"), array(2, "uint32")], 1)
    check(ops.Binary("sub"), [array([0], "uint32"), array([1], "uint32")], [2**32 - 1])


@pytest.mark.parametrize("fn", ["and", "or", "xor"])
def test_connectives(fn):
    x, y = array([True, True, False, False], "bool"), array([True, False, True, False], "bool")
    expected = {"and": [1, 0, 0, 0], "or": [1, 1, 1, 0], "xor": [0, 1, 1, 0]}[fn]
    check(ops.Binary(fn), [x, y], np.array(expected, bool))


def test_maximum_passes_nan_on():
    check(ops.Binary("maximum"), [array([np.nan, 1.0]), array([0.0, np.nan])], [np.nan, np.nan])


@pytest.mark.parametrize("fn", ops.BINARY)
def test_every_binary_function_is_tested(fn):
    has_a_row = ops.Binary(fn) in ROWS
    assert has_a_row != (fn in ("and", "or", "xor")), f"give the function of {fn} a row in tests/core/points.py"


@pytest.mark.parametrize("fn", ops.COMPARE)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
def test_compare(fn, dtype):
    x, y = array([1, 2, 3], dtype), array([2, 2, 2], dtype)
    expected = {"eq": "010", "ne": "101", "lt": "100", "le": "110", "gt": "001", "ge": "011"}[fn]
    check(ops.Compare(fn), [x, y], np.array([c == "1" for c in expected]))


def test_where():
    check(ops.Where(), [array([True, False], "bool"), array([1.0, 2.0]), array([3.0, 4.0])], [1.0, 4.0])


def test_division_by_zero_is_silent():
    check(ops.Binary("div"), [array([1.0, -1.0, 0.0]), array([0.0, 0.0, 0.0])], [np.inf, -np.inf, np.nan])
    check(ops.Unary("log"), [array(0.0)], -np.inf)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "uint32"])
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_casts_to_integers_saturate_and_round_towards_zero(dtype, source):
    limits = np.iinfo(dtype)
    x = array([3.75, -3.75, np.nan, np.inf, -np.inf, 1e20, -1e20, 0.0], source)
    low = limits.min
    check(ops.Cast(dtype), [x], np.array([3, max(-3, low), 0, limits.max, low, limits.max, low, 0], dtype))


def test_other_casts():
    check(ops.Cast("float32"), [array([1, 0], "bool")], [1.0, 0.0])
    check(ops.Cast("bool"), [array([0.0, 0.5, np.nan])], [False, True, True])
    check(ops.Cast("bfloat16"), [array([1.0, 3.14159])], [1.0, 3.140625])
    check(ops.Cast("int8"), [array([300, -1], "int32")], np.array([44, -1]))
    check(ops.Cast("uint32"), [array([-1], "int32")], np.array([2**32 - 1]))
    check(ops.Cast("float32"), [array(7, "uint32")], 7.0)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
def test_no_promotion_of_scalars(backend):
    (result,) = run(backend, ops.Binary("mul"), array(3.0), array(4.0))
    assert result.dtype == np.float32 and result.shape == ()
    assert isinstance(result, np.ndarray)
