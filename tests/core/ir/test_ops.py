"""Shape and dtype rules: the result of each op, and its refusal of wrong operands."""

from __future__ import annotations

import pytest

from tempo_core.errors import DTypeError, ShapeError
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, Symbol, minimum
from tests.core.every_op import NO_FUNCTION, ROWS, each_op, f32, i32, truth

T = Symbol("T").expr
B = Symbol("B").expr
t = Symbol("t", "T").expr


def sizes(*values):
    return tuple(map(Expr.of, values))


def conv(strides=(1, 1), low=(0, 0), high=(0, 0), dilation=(1, 1), spread=(1, 1), groups=1):
    return ops.Conv(strides, sizes(*low), sizes(*high), dilation, spread, Expr.of(groups))


RULES = [
    *((row.op, row.operands, row.result) for row in ROWS),
    (ops.Constant("int8", (2, 3), bytes(6)), [], TensorType.of("int8", 2, 3)),
    (ops.Eval(t + 1), [], i32()),
    (ops.Eval(t >= 1), [], truth()),
    (ops.Input("x", "float32", sizes(T, 4)), [], f32(T, 4)),
    (ops.Random("normal", 0, sizes(3)), [], f32(3)),
    (ops.Random("uniform", 0, sizes(3)), [i32(), i32()], f32(3)),
    (ops.Random("bits", 0, sizes(3)), [i32(B), i32(B)], TensorType.of("uint32", B, 3)),
    (ops.Unary("neg"), [i32(2)], i32(2)),
    (ops.Unary("not"), [truth(2)], truth(2)),
    (ops.Unary("isfinite"), [f32(2)], truth(2)),
    (ops.Binary("add"), [i32(T), i32(T)], i32(T)),
    (ops.Binary("div"), [f32(T), f32(T)], f32(T)),
    (ops.Binary("and"), [truth(), truth()], truth()),
    (ops.Cast("bfloat16"), [f32(3)], TensorType.of("bfloat16", 3)),
    (ops.Identity(True), [f32(3)], f32(3)),
    (ops.Reduce("sum", (0, 2)), [f32(B, 3, T)], f32(3)),
    (ops.Reduce("any", (0,)), [truth(B)], truth()),
    (ops.Argmax(1), [f32(B, 4)], i32(B)),
    (ops.Argsort(0), [f32(B, 4)], i32(B, 4)),
    (ops.Argsort(1, 3), [f32(B, 4)], i32(B, 3)),
    (ops.CumSum(0, True), [f32(T)], f32(T)),
    (ops.CumMax(0, True), [i32(T)], i32(T)),
    (ops.DiscountedSum(0, 0.9), [f32(T - t, 2)], f32(2)),
    (ops.Dot((2,), (1,), (0,), (2,)), [f32(B, 3, 4), f32(7, 4, B)], f32(B, 3, 7)),
    (ops.Dot((), ()), [f32(2), f32(3)], f32(2, 3)),
    (conv(low=(1, 1), high=(1, 1)), [f32(B, 8, T, 2), f32(3, 3, 2, 5)], f32(B, 8, T, 5)),
    (conv(strides=(2, 3)), [f32(B, T, 8, 9, 2), f32(3, 3, 2, 5)], f32(B, T, 3, 3, 5)),
    (conv(dilation=(2, 1), spread=(1, 2)), [f32(8, 5, 2), f32(3, 3, 2, 5)], f32(4, 7, 5)),
    (conv(groups=B), [f32(8, 8, 2 * B), f32(8, 8, 2, 3 * B)], f32(1, 1, 3 * B)),
    (ops.Reshape(sizes(2 * B, 3)), [f32(B, 6)], f32(2 * B, 3)),
    (ops.Permute((2, 0, 1)), [f32(B, 3, T)], f32(T, B, 3)),
    (ops.Broadcast(sizes(B, 3, T), (0, 2)), [f32(B, T)], f32(B, 3, T)),
    (ops.Slice(0, t, minimum(t + 5, T)), [f32(T, 2)], f32(minimum(t + 5, T) - t, 2)),
    (ops.Slice(1, Expr.of(1), Expr.of(6), 2), [f32(2, 6)], f32(2, 3)),
    (ops.Slice(1, Expr.of(0), T, 2), [f32(2, T)], f32(2, (T + 1) // 2)),
    (ops.Pad(0, t, T - t), [f32(4)], f32(T + 4)),
    (ops.Concat(1), [f32(B, 2), f32(B, T), f32(B, 1)], f32(B, T + 3)),
    (ops.Gather(1), [f32(T, 4, 5), i32(B, 2)], f32(T, B, 2, 5)),
    (ops.Gather(2, 1), [f32(B, 3, 4, 5), i32(B, 7)], f32(B, 3, 7, 5)),
    (ops.Scatter(1, T), [f32(3, B, 2, 5), i32(B, 2)], f32(3, T, 5)),
    (ops.Scatter(1, T, 1), [f32(B, 5), i32(B)], f32(B, T, 5)),
    (ops.Update("set", 1), [f32(3, T, 5), f32(3, B, 2, 5), i32(B, 2)], f32(3, T, 5)),
    (ops.Update("add", 1, 1), [f32(B, T, 5), f32(B, 5), i32(B)], f32(B, T, 5)),
    (ops.Update("set", 1, axes=2), [f32(3, T, 5, 2), f32(3, B, 2), i32(B)], f32(3, T, 5, 2)),
    (ops.Merge(f32(3)), [f32(3), f32(3)], f32(3)),
    (ops.Udf(max, (f32(T),)), [i32()], f32(T)),
]


@pytest.mark.parametrize("op, inputs, expected", RULES, ids=[f"{type(r[0]).__name__}-{k}" for k, r in enumerate(RULES)])
def test_what_an_op_gives(op, inputs, expected):
    assert op.infer(tuple(inputs)) == (expected,)


def test_ops_that_give_nothing():
    assert ops.Output(0).infer((f32(3),)) == ()
    assert ops.Sink(print).infer((f32(3), i32())) == ()
    assert ops.End().infer((TensorType("bool"),)) == ()


def test_an_island_gives_its_results():
    body = ops.Dataflowed(
        (f32(3),), ((ops.Unary("exp"), (0,), (1,)), (ops.Compare("gt"), (0, 1), (2,))), (2, 1), (f32(3), f32(3), truth(3))
    )
    assert ops.Dataflow(body).infer((f32(3),)) == (truth(3), f32(3))


ERRORS = [
    (ops.Random("normal", 0, ()), [i32(), i32(B)], ShapeError, "random coordinates must have one shape"),
    (ops.Unary("exp"), [i32(2)], DTypeError, r"`exp` takes floats, got int32\[2\]; cast it with"),
    (ops.Unary("not"), [f32()], DTypeError, "`not` takes bool"),
    (ops.Binary("add"), [f32(2), f32(3)], ShapeError, r"add takes operands of one shape, got float32\[2\], float32\[3\]"),
    (ops.Binary("add"), [f32(T), f32(B)], ShapeError, r"float32\[T\], float32\[B\]"),
    (ops.Binary("add"), [f32(2), i32(2)], DTypeError, "`add` takes operands of one dtype"),
    (ops.Binary("div"), [i32(2), i32(2)], DTypeError, "`div` takes floats"),
    (ops.Binary("mul"), [truth(2), truth(2)], DTypeError, "`mul` takes numbers, got bool"),
    (ops.Binary("and"), [f32(2), f32(2)], DTypeError, "`and` takes bool or integers"),
    (ops.Compare("eq"), [f32(2), i32(2)], DTypeError, "`eq` takes operands of one dtype"),
    (ops.Compare("eq"), [f32(2), f32(1)], ShapeError, "eq takes operands of one shape"),
    (ops.Where(1, Expr.of(1)), [truth(2), f32(2), f32(2)], ShapeError, "a mask along axis 1 of"),
    (ops.Where(), [i32(2), f32(2), f32(2)], DTypeError, "`where` takes a bool condition"),
    (ops.Where(), [truth(2), f32(2), i32(2)], DTypeError, "`where` takes values of one dtype"),
    (ops.Where(), [truth(), f32(2), f32(2)], ShapeError, "where takes operands of one shape"),
    (ops.Reduce("sum", (1,)), [f32(2)], ShapeError, r"reduction over axes \(1,\)"),
    (ops.Reduce("any", (0,)), [f32(2)], DTypeError, "`any` takes bool"),
    (ops.Reduce("sum", (0,)), [truth(2)], DTypeError, "`sum` takes numbers"),
    (ops.Argmax(2), [f32(2, 2)], ShapeError, "axis 2 of a tensor with 2 dimensions"),
    (ops.Argsort(0), [f32()], ShapeError, "axis 0 of a tensor with 0 dimensions"),
    (ops.Argsort(0, 5), [f32(4)], ShapeError, "the first 5 positions of axis 0, which has 4 elements"),
    (ops.Argsort(0, 1), [f32(B, 4)], ShapeError, "the first 1 positions of axis 0, which has B elements"),
    (ops.CumSum(1), [f32(3)], ShapeError, "axis 1"),
    (ops.CumSum(0), [truth(3)], DTypeError, "`cumsum` takes numbers"),
    (ops.LinearScan(0), [f32(3), f32(2)], ShapeError, "linear scan takes operands of one shape"),
    (ops.LinearScan(0), [f32(3), i32(3)], DTypeError, "linear scan takes operands of one dtype"),
    (ops.DiscountedSum(0, 0.9), [i32(3)], DTypeError, "`discounted_sum` takes floats"),
    (ops.Dot((1,), (0,)), [f32(2, 3), f32(4, 5)], ShapeError, r"size 3 \(axis 1\) against 4 \(axis 0\)"),
    (ops.Dot((1,), (0,)), [f32(2, T), f32(B, 5)], ShapeError, r"size T \(axis 1\) against B \(axis 0\)"),
    (ops.Dot((1,), (0,)), [f32(2, 3), i32(3, 5)], DTypeError, "contraction takes operands of one dtype"),
    (ops.Reshape(sizes(7)), [f32(2, 3)], ShapeError, r"cannot reshape float32\[2, 3\] to \(7\)"),
    (ops.Permute((0, 0)), [f32(2, 3)], ShapeError, r"cannot permute float32\[2, 3\] by \(0, 0\)"),
    (ops.Broadcast(sizes(4, 3), (0,)), [f32(3)], ShapeError, r"cannot broadcast float32\[3\] to \(4, 3\) along \(0,\)"),
    (ops.Slice(1, Expr.of(0), Expr.of(1)), [f32(3)], ShapeError, "axis 1"),
    (ops.Pad(1, Expr.of(0), Expr.of(1)), [f32(3)], ShapeError, "axis 1"),
    (ops.Concat(0), [f32(3, 2), f32(3, 3)], ShapeError, "cannot concatenate"),
    (ops.Concat(0), [f32(3), i32(3)], DTypeError, "`concatenate` takes one dtype"),
    (ops.Flip(1), [f32(3)], ShapeError, "axis 1"),
    (ops.Gather(0), [f32(3), f32(3)], DTypeError, "an index tensor is int32"),
    (ops.Gather(1), [f32(3), i32(3)], ShapeError, "cannot index axis 1"),
    (ops.Gather(0, 1), [f32(3, 3), i32(3)], ShapeError, "cannot index axis 0"),
    (ops.Gather(1, 1), [f32(3, 4), i32(2)], ShapeError, "batch dimensions"),
    (ops.Scatter(0, T), [f32(3), f32(3)], DTypeError, "an index tensor is int32"),
    (ops.Scatter(0, T), [f32(3), i32(2)], ShapeError, "cannot scatter"),
    (ops.Update("set", 0), [f32(3), f32(2), f32(2)], DTypeError, "an index tensor is int32"),
    (ops.Update("set", 0), [f32(3), i32(2), i32(2)], DTypeError, "have its dtype"),
    (ops.Update("add", 0), [truth(3), truth(2), i32(2)], DTypeError, "`add` takes numbers, got bool"),
    (ops.Update("set", 0), [f32(3), f32(3), i32(2)], ShapeError, "updates of"),
]


@pytest.mark.parametrize("op, inputs, error, message", ERRORS, ids=[f"{type(e[0]).__name__}-{k}" for k, e in enumerate(ERRORS)])
def test_what_an_op_refuses(op, inputs, error, message):
    with pytest.raises(error, match=message):
        op.infer(tuple(inputs))


@each_op
def test_every_op_has_a_row_or_a_reason(op):
    has_a_row = any(type(row.op) is op for row in ROWS)
    assert has_a_row != (op in NO_FUNCTION), f"give {op.__name__} a row in tests/core/every_op.py"
    assert op.work, f"say in `work` of {op.__name__} what it costs"


def test_symbols_are_those_of_the_parameters():
    assert {s.name for s in ops.Slice(0, t, minimum(t + 5, T)).symbols} == {"t", "T"}
    assert {s.name for s in ops.Reshape((T, B)).symbols} == {"T", "B"}
    assert {s.name for s in ops.Eval(t >= 1).symbols} == {"t"}
    assert {s.name for s in ops.Udf(max, (f32(T),)).symbols} == {"T"}
    assert {s.name for s in ops.Scatter(0, B).symbols} == {"B"}
    body = ops.Dataflowed((), ((ops.Iota(T), (), (0,)),), (0,), (i32(T),))
    assert {s.name for s in ops.Dataflow(body).symbols} == {"T"}
    assert ops.Unary("exp").symbols == frozenset()


def test_ops_are_values():
    assert ops.Slice(0, t, t + 5) == ops.Slice(0, t, 5 + t)
    assert hash(ops.Slice(0, t, t + 5)) == hash(ops.Slice(0, t, 5 + t))
    assert ops.Slice(0, t, t + 5) != ops.Slice(0, t, t + 6)
    assert ops.Udf(max, ()) != ops.Udf(min, ())
