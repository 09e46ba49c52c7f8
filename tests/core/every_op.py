"""The op set, for tests that walk over it, and the table of ops.

`ROWS` has a row for each op that is a function of arrays, with operands whose first size is a bound T. From it come the tests of the op's types, text,
dtypes on both backends, costs, gradient, and of vectorization, padding and tiles; a new op needs a row here, and `test_every_op_has_a_row_or_a_reason`
of `ir/test_ops.py` names the op without one. The tables of these tests have further rows, for parameters and operands that are special there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from tempo_core.ir import ops
from tempo_core.ir.costs import ALIAS, FUSED, MEMORY, REDUCED, every_op
from tempo_core.ir.ops import Op, Types
from tempo_core.ir.types import DTYPES, FLOATS, INTEGERS, TensorType
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

EVERY_OP = tuple(sorted((op for op in every_op() if op.__module__.startswith("tempo_core.ir")), key=lambda c: c.__name__))
each_op = pytest.mark.parametrize("op", EVERY_OP, ids=lambda c: c.__name__)

BOUND = Symbol("T")
T, ONE, TWO, THREE = BOUND.expr, *map(Expr.of, (1, 2, 3))
NUMBERS = (*FLOATS, *INTEGERS)


@dataclass(frozen=True, eq=False)
class Row:
    """An op, the types of its operands and of its result, its operations and where its result is.

    `dtypes`: of an operand of float32, which the op takes in its place; none if it has the same dtype always. `has_slope`: its gradient is tested
    by finite differences, if it has one.
    """

    op: Op
    operands: Types
    result: TensorType
    operations: Expr | int
    place: str
    dtypes: tuple[str, ...] = DTYPES
    has_slope: bool = True

    @property
    def name(self) -> str:
        return "-".join(filter(None, (type(self.op).__name__, getattr(self.op, "fn", ""))))

    def sized(self, size: IntoExpr) -> tuple[Op, list[TensorType]]:
        """The op and the types of its operands for this size in place of T."""
        values = {BOUND: size}
        parameters = {f.name: _substituted(getattr(self.op, f.name), values) for f in fields(self.op)}
        return replace(self.op, **parameters), [operand.substitute(values) for operand in self.operands]

    def drawn(self, size: int) -> tuple[Op, list[np.ndarray]]:
        """The op and operands for this size: floats, truth values, and positions 0 to 2."""
        op, types = self.sized(size)
        draw = np.random.default_rng(3)
        arrays = []
        for operand in types:
            shape = tuple(map(int, operand.shape))
            array = draw.normal(size=shape) if operand.dtype == "float32" else draw.integers(0, 3, shape)
            arrays.append(array.astype(operand.dtype))
        return op, arrays


def _substituted(value: Any, values: Mapping[Symbol, IntoExpr]) -> Any:
    if isinstance(value, tuple):
        return tuple(_substituted(part, values) for part in value)
    return value.substitute(values) if isinstance(value, Expr) else value


def f32(*shape: IntoExpr) -> TensorType:
    return TensorType.of("float32", *shape)


def i32(*shape: IntoExpr) -> TensorType:
    return TensorType.of("int32", *shape)


def truth(*shape: IntoExpr) -> TensorType:
    return TensorType.of("bool", *shape)


F = f32(T, 6)
CONV = ops.Conv((1,), (ONE,), (ONE,), (1,), (1,), ONE)

ROWS = [
    Row(ops.Constant("int8", (2,), b"\x01\x02"), (), TensorType.of("int8", 2), 0, FUSED),
    Row(ops.Iota(T), (), i32(T), 0, FUSED, ()),
    Row(ops.Eval(T), (), i32(), 0, FUSED, ()),
    Row(ops.Random("normal", 0, (T,)), (), f32(T), ops.RANDOM_WORK * T, MEMORY, ()),
    Row(ops.Unary("exp"), (F,), F, 6 * T, FUSED, FLOATS),
    Row(ops.Binary("mul"), (F, F), F, 6 * T, FUSED, NUMBERS),
    Row(ops.Compare("lt"), (F, F), truth(T, 6), 6 * T, FUSED),
    Row(ops.Where(), (truth(T, 6), F, F), F, 6 * T, FUSED),
    Row(ops.Cast("int32"), (F,), i32(T, 6), 6 * T, FUSED, has_slope=False),
    Row(ops.Identity(), (F,), F, 0, ALIAS),
    Row(ops.Reshape((6 * T,)), (F,), f32(6 * T), 0, ALIAS),
    Row(ops.Permute((1, 0)), (F,), f32(6, T), 0, FUSED),
    Row(ops.Broadcast((TWO, T, Expr.of(6)), (1, 2)), (F,), f32(2, T, 6), 0, FUSED),
    Row(ops.Slice(1, ONE, THREE), (F,), f32(T, 2), 0, FUSED),
    Row(ops.Pad(1, ONE, TWO), (F,), f32(T, 9), 0, FUSED),
    Row(ops.Concat(0), (F, F), f32(2 * T, 6), 0, FUSED),
    Row(ops.Flip(0), (F,), F, 0, FUSED),
    Row(ops.Gather(0), (F, i32(5)), f32(5, 6), 30, MEMORY),
    *(Row(ops.Scatter(0, T, fn=fn), (f32(5, 6), i32(5)), F, 30, MEMORY, NUMBERS) for fn in ops.COMBINING),
    Row(ops.Update("set", 0), (F, f32(5, 6), i32(5)), F, 30, MEMORY, has_slope=False),
    *(Row(ops.Update(fn, 0), (F, f32(5, 6), i32(5)), F, 30, MEMORY, NUMBERS, has_slope=False) for fn in ops.COMBINING),
    Row(ops.Reduce("sum", (0,)), (F,), f32(6), 6 * T, REDUCED, NUMBERS),
    Row(ops.Argmax(0), (F,), i32(6), 6 * T, REDUCED),
    Row(ops.Argsort(0), (F,), i32(T, 6), 6 * T, MEMORY),
    Row(ops.CumSum(0), (F,), F, 6 * ops.SCAN_WORK * T, MEMORY, NUMBERS),
    Row(ops.CumMax(0), (F,), F, 6 * ops.SCAN_WORK * T, MEMORY),
    Row(ops.LinearScan(0), (F, F), F, 12 * T, MEMORY, NUMBERS),
    Row(ops.DiscountedSum(0, 0.9), (F,), f32(6), 12 * T, MEMORY, FLOATS),
    Row(ops.Dot((1,), (0,)), (F, f32(6, 5)), f32(T, 5), 60 * T, MEMORY, NUMBERS),
    Row(CONV, (F, f32(2, 6, 5)), f32(T + 1, 5), 120 * (T + 1), MEMORY, NUMBERS),
]

NO_FUNCTION = {  # of arrays alone
    ops.Input: "it is fed", ops.Merge: "it is state", ops.Udf: "it is what the user says", ops.Sink: "it gives nothing",
    ops.End: "it gives nothing", ops.Output: "it gives nothing", ops.Dataflow: "it is what its instructions are",
}  # fmt: skip
