"""Every op in every dtype: the two backends agree, and a dtype that an op does not take is refused when the op is built.

All rows of a dtype are one JAX program. 64-bit dtypes run on NumPy alone: JAX has them only in its 64-bit mode.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from tempo_core.backends import jax_backend, shared
from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import DTypeError, MissingRow
from tempo_core.ir import ops
from tempo_core.ir.types import DTYPES, FLOATS, INTEGERS, TensorType, is_float
from tempo_core.symbolic.expr import Expr
from tests.core import every_op
from tests.core.backends.support import JAX, NUMPY, array, type_of
from tests.core.every_op import each_op, f32, i32

ANY, NUMBERS, WHOLE = DTYPES, (*FLOATS, *INTEGERS), (*INTEGERS, "bool")
ON_JAX = tuple(d for d in DTYPES if np.dtype(numpy_dtype(d)).itemsize < 8)
NUMPY_ONLY = tuple(d for d in DTYPES if d not in ON_JAX)
NEVER_HERE = {
    ops.Input, ops.Merge, ops.Udf, ops.Sink, ops.End, ops.Output, ops.Dataflow,  # the runtime and users' functions decide about these
    ops.Iota, ops.Eval, ops.Random,  # have the same dtype always
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Row:
    """An op, the dtypes that it takes, and the types of its operands; those of float32 stand for every dtype."""

    op: ops.Op
    dtypes: tuple[str, ...]
    operands: tuple[TensorType, ...] = (f32(4, 3),)

    @property
    def name(self) -> str:
        shown = getattr(self.op, "fn", "") or ""
        return f"{type(self.op).__name__}{'-' if shown else ''}{shown}"


TAKES_ALL = {"neg": NUMBERS, "abs": NUMBERS, "sign": NUMBERS, "not": ("bool",), "isfinite": ANY, "isnan": ANY}
PAIRS = {
    "div": FLOATS,
    "atan2": FLOATS,
    "logaddexp": FLOATS,
    "maximum": ANY,
    "minimum": ANY,
    "and": WHOLE,
    "or": WHOLE,
    "xor": WHOLE,
}
REDUCED = {"sum": NUMBERS, "prod": NUMBERS, "max": ANY, "min": ANY, "any": ("bool",), "all": ("bool",)}
X = f32(4, 3)
FUNCTIONS = (ops.Unary, ops.Binary, ops.Compare, ops.Reduce, ops.Cast)  # each of their functions has a row here

ROWS = [
    *(Row(ops.Unary(fn), TAKES_ALL.get(fn, FLOATS)) for fn in ops.UNARY),
    *(Row(ops.Binary(fn), PAIRS.get(fn, NUMBERS), (X, X)) for fn in ops.BINARY),
    *(Row(ops.Compare(fn), ANY, (X, X)) for fn in ops.COMPARE),
    *(Row(ops.Reduce(fn, (1,)), REDUCED[fn]) for fn in ops.REDUCE),
    *(Row(ops.Cast(dtype), ANY) for dtype in ON_JAX),
    *(
        Row(row.sized(4)[0], row.dtypes, tuple(row.sized(4)[1]))
        for row in every_op.ROWS
        if row.dtypes and type(row.op) not in FUNCTIONS
    ),
    Row(ops.Argsort(1, 2), ANY),
    Row(ops.LinearScan(0, True), NUMBERS, (X, X)),
    Row(ops.Slice(0, Expr.of(1), Expr.of(6), 2), ANY),
    Row(ops.Pad(1, Expr.of(1), Expr.of(-1)), ANY),
    Row(ops.Scatter(1, Expr.of(4)), NUMBERS, (X, i32(3))),
]
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}


@functools.cache
def value(dtype: str, shape: tuple[int, ...], number: int) -> np.ndarray:
    """Operand `number`: numbers at the ends of the dtype, zeros as divisors, and both signs."""
    generator, sizes = np.random.default_rng(3), (number + 1, *shape)
    if dtype == "bool":
        return array(generator.integers(0, 2, sizes)[number], dtype)
    if is_float(dtype):
        return array(generator.normal(size=sizes)[number].clip(-1, 1), dtype)
    limits = np.iinfo(dtype)
    return array(generator.choice([limits.min, limits.max, 0, 1, 2, 3, 7, limits.max // 3], sizes)[number], dtype)


def operands(row: Row, dtype: str) -> list[np.ndarray]:
    shapes = [tuple(map(int, operand.shape)) for operand in row.operands]
    return [
        value(dtype, shape, k) if operand.dtype == "float32" else np.resize([2, 0, 1], shape).astype(operand.dtype)
        for k, (operand, shape) in enumerate(zip(row.operands, shapes, strict=True))
    ]


@functools.cache
def on_jax(dtype: str) -> dict[Row, np.ndarray]:
    """The results of all rows that take a dtype, by one program."""
    rows = [row for row in ROWS if dtype in row.dtypes and has_kernel(row.op)]

    def program(operands_of_rows: list[list[Any]]) -> list[Any]:
        return [JAX.kernel(row.op, args, {})[0] for row, args in zip(rows, operands_of_rows, strict=True)]

    results = jax.jit(program)([operands(row, dtype) for row in rows])
    return {row: np.asarray(result) for row, result in zip(rows, results, strict=True)}


def has_kernel(op: ops.Op) -> bool:
    """Whether JAX's tables have a row for an op. `test_backend.py` fails for an op without one; the tests here leave it out."""
    functions = {ops.Unary: jax_backend.UNARY, ops.Binary: shared.BINARY, ops.Compare: shared.COMPARE, ops.Reduce: shared.REDUCE}
    return type(op) in JAX.kernels and getattr(op, "fn", "") in functions.get(type(op), {getattr(op, "fn", ""): None})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_op_gives_the_same_on_both_backends_or_is_refused(row: Row, dtype: str) -> None:
    arguments = operands(row, dtype)
    if dtype not in row.dtypes:
        with pytest.raises(DTypeError):
            row.op.infer(tuple(map(type_of, arguments)))
        return
    (declared,) = row.op.infer(tuple(map(type_of, arguments)))
    (result,) = NUMPY.kernel(row.op, arguments, {})
    assert result.dtype == numpy_dtype(declared.dtype) and result.shape == tuple(map(int, declared.shape))
    if dtype in NUMPY_ONLY:
        return
    if not has_kernel(row.op):
        raise MissingRow(f"the jax backend has no kernel for {row.name}")
    expected = on_jax(dtype)[row]
    assert expected.dtype == result.dtype
    if result.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
    else:
        tolerance = TOLERANCE[declared.dtype]
        np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=tolerance, atol=tolerance)


@each_op
def test_every_op_is_tested_in_every_dtype(op: type[ops.Op]) -> None:
    assert any(type(row.op) is op for row in ROWS) != (op in NEVER_HERE), f"give {op.__name__} a row in tests/core/every_op.py"


def same_bits_or_nan(result: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(result.astype("float64"), expected.astype("float64"))


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.75,
    -0.75,
    2.5,
    127.6,
    -128.6,
    255.5,
    300.0,
    -300.0,
    3e9,
    -3e9,
    7e4,
    1e39,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("source", [d for d in FLOATS if d in ON_JAX])
@pytest.mark.parametrize("target", ON_JAX)
def test_what_casts_do_with_what_does_not_fit(source: str, target: str) -> None:
    """Integers saturate, NaN becomes 0; bool is True for all numbers but 0; narrower floats round to the nearest or are infinite."""
    with np.errstate(over="ignore"):
        x = array(SPECIAL, source)
        (result,), (expected,) = (backend.kernel(ops.Cast(target), [backend.to_device(x)], {}) for backend in (NUMPY, JAX))
        same_bits_or_nan(result, np.asarray(expected))
        exact = x.astype("float64")
        if target in INTEGERS:
            limits = np.iinfo(target)
            right: Any = [0 if np.isnan(v) else int(np.clip(np.trunc(v), limits.min, limits.max)) for v in exact]
        else:
            right = exact != 0 if target == "bool" else x.astype(numpy_dtype(target))
    same_bits_or_nan(result, np.asarray(right))


@pytest.mark.parametrize("target", INTEGERS)
def test_casts_at_the_limits_of_an_integer(target: str) -> None:
    """The greatest 64-bit integer is not a float: the next float is one too large."""
    limits = np.iinfo(target)
    x = array([limits.min, limits.max, float(limits.max) + 1, limits.min - 1, 0], "float64")
    (result,) = NUMPY.kernel(ops.Cast(target), [x], {})
    np.testing.assert_array_equal(result, array([limits.min, limits.max, limits.max, limits.min, 0], target))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around_and_divide_by_zero_to_zero(dtype: str) -> None:
    limits = np.iinfo(dtype)
    low, high = limits.min, limits.max
    x, y = array([high, low, high, low, 5, low], dtype), array([1, 1, high, 0, 0, high], dtype)
    span = high - low + 1
    exact = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    }  # fmt: skip
    for fn, function in exact.items():
        expected = [(function(int(a), int(b)) - low) % span + low for a, b in zip(x, y, strict=True)]
        for backend in (NUMPY, *((JAX,) if dtype in ON_JAX else ())):
            (result,) = backend.kernel(ops.Binary(fn), [backend.to_device(x), backend.to_device(y)], {})
            assert np.asarray(result).tolist() == expected, (fn, backend.name)
    if low < 0:
        for backend in (NUMPY, *((JAX,) if dtype in ON_JAX else ())):
            args = [backend.to_device(array([low], dtype)), backend.to_device(array([-1], dtype))]
            assert [np.asarray(backend.kernel(ops.Binary(fn), args, {})[0]).tolist() for fn in ("floordiv", "mod", "mul")] == [
                [low], [0], [low]
            ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_are_accumulated_in_thirty_two(dtype: str) -> None:
    """4,096 ones and as many small numbers: in 16 bits, sums would stop growing."""
    x = array(np.full((1, 4096), 1 / 128) + 1, dtype)
    true = float(x.astype("float64").sum())
    cases: list[tuple[ops.Op, list[np.ndarray]]] = [
        (ops.Reduce("sum", (1,)), [x]),
        (ops.CumSum(1), [x]),
        (ops.Dot((1,), (0,)), [x, array(np.ones((4096, 1)), dtype)]),
        (ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(1)), [x.T, array(np.ones((4096, 1, 1)), dtype)]),
        (ops.LinearScan(1), [array(np.ones((1, 4096)), dtype), x]),
        (ops.Scatter(1, Expr.of(1)), [x, np.zeros(4096, "int32")]),
    ]
    for op, arguments in cases:
        for backend in (NUMPY, JAX):
            (result,) = backend.kernel(op, [backend.to_device(a) for a in arguments], {})
            assert abs(float(np.asarray(result).reshape(-1)[-1]) / true - 1) < 4e-3, (op, backend.name)
