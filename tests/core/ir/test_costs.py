"""What ops cost: a row for each, with the number of its operations."""

from __future__ import annotations

import pytest

from tempo_core.ir import costs, ops
from tempo_core.ir.ops import Op, work
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr
from tests.core.every_op import ROWS, T, each_op, f32, i32, truth


def double(x):
    return (x,)


ISLAND = ops.Dataflowed(
    (f32(T, 3),),
    ((ops.Unary("exp"), (0,), (1,)), (ops.Reduce("sum", (1,)), (1,), (2,))),
    (2,),
    (f32(T, 3), f32(T, 3), f32(T)),
)
CONV = ops.Conv((1,), (Expr.of(0),), (Expr.of(0),), (1,), (1,), Expr.of(2))

# op, operand types, operations, place
EXAMPLES = [
    *((row.op, row.operands, row.operations, row.place) for row in ROWS),
    (ops.Input("x", "float32", (T,)), [], 0, costs.MEMORY),
    (ops.Gather(0), [f32(T, 3), i32()], 3, costs.FUSED),
    (ops.Scatter(0, T), [f32(3), i32()], 3 * T, costs.FUSED),
    (ops.Reduce("prod", (0,)), [f32(T, 3)], 3 * T, costs.MEMORY),
    (ops.Dot((2,), (1,), (0,), (0,)), [f32(4, T, 3), f32(4, 3, 5)], 120 * T, costs.MEMORY),
    (CONV, [f32(T, 4), f32(3, 2, 6)], 2 * (T - 2) * 6 * 3 * 2, costs.MEMORY),
    (ops.Merge(f32(T)), [f32(T)], 0, costs.ALIAS),
    (ops.Udf(double, (f32(T),)), [f32(T)], T, costs.MEMORY),
    (ops.Udf(double, (f32(T),), cost=(7 * T, Expr.of(9))), [f32(T)], 7 * T, costs.MEMORY),
    (ops.Sink(double), [f32(T)], 0, costs.MEMORY),
    (ops.End(), [TensorType("bool")], 0, costs.MEMORY),
    (ops.Output(0), [f32(T)], 0, costs.MEMORY),
    (ops.Dataflow(ISLAND), [f32(T, 3)], 6 * T, costs.MEMORY),
]


@each_op
def test_each_op_has_an_example(op: type[Op]) -> None:
    assert any(type(each) is op for each, *_ in EXAMPLES), f"give {op.__name__} a row in tests/core/every_op.py"


@pytest.mark.parametrize(
    ("op", "inputs", "number", "place"), EXAMPLES, ids=[f"{type(op).__name__}{k}" for k, (op, *_) in enumerate(EXAMPLES)]
)
def test_operations_and_place(op: Op, inputs: list[TensorType], number: Expr | int, place: str) -> None:
    types = tuple(inputs)
    assert costs.operations(op, types, op.infer(types)) == number
    assert costs.place(op, types) == place


def test_what_is_a_part_of_its_reader_follows_from_the_places() -> None:
    fused = {type(op) for op, _, _, place in EXAMPLES if place in (costs.FUSED, costs.ALIAS)}
    assert set(costs.OF_THEIR_READER) == fused - {ops.Gather, ops.Scatter}  # these two with a single index alone
    computing = {ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast}
    assert set(costs.VIEWS) == set(costs.OF_THEIR_READER) - computing - set(costs.PADDINGS)


def test_classes_follow_from_places_and_operations() -> None:
    """A view computes nothing, and what is computed is of a class that says so."""
    views = {type(op) for op, *_ in EXAMPLES if op.cost_class == work.VIEW}
    assert views == {*costs.VIEWS, *costs.PADDINGS} - {ops.Merge}
    held = {type(op) for op, *_ in EXAMPLES if op.cost_class == work.HELD}
    assert held == {ops.Merge, ops.Input, ops.Output, ops.Sink, ops.End}
    assert all(number == 0 for op, _, number, _ in EXAMPLES if op.cost_class in (work.VIEW, work.HELD))
    assert all(number != 0 for op, _, number, _ in EXAMPLES if op.cost_class not in (work.VIEW, work.HELD))


def test_functions_have_classes_of_their_own() -> None:
    of = {fn: ops.Unary(fn).cost_class for fn in ops.UNARY} | {fn: ops.Binary(fn).cost_class for fn in ops.BINARY}
    assert {of[fn] for fn in ("neg", "add", "mul", "maximum", "and", "isnan")} == {work.CHEAP} == {ops.Compare("lt").cost_class}
    assert {of[fn] for fn in ("sqrt", "div", "mod", "floor")} == {work.PLAIN}
    assert {of[fn] for fn in ("exp", "tanh", "pow", "logaddexp")} == {work.DEAR}


def test_only_sorts_take_a_logarithm() -> None:
    assert costs.sorted_axis(ops.Argsort(1), (f32(T, 3),)) == 3
    assert costs.sorted_axis(ops.CumSum(1), (f32(T, 3),)) is None


@pytest.mark.parametrize(
    ("op", "inputs", "producer", "is_free", "expected"),
    [
        (ops.Reduce("sum", (0,)), [f32(T)], ops.Unary("exp"), False, False),
        (ops.Reduce("sum", (0,)), [f32(T)], ops.Where(), False, True),
        (ops.Reduce("any", (0,)), [truth(T)], None, False, True),
        (ops.Argmax(0), [f32(T)], ops.Where(), False, False),
        (ops.Unary("exp"), [f32(T)], ops.Where(), False, False),
        (ops.Dot((0,), (0,)), [f32(T), f32(T)], ops.Unary("exp"), False, True),
        (ops.Gather(0), [f32(T), i32(3)], ops.Unary("exp"), False, True),
        (ops.Gather(0), [f32(T), i32(3)], ops.Broadcast((T,), ()), True, False),
    ],
)
def test_which_operands_have_to_be_in_memory(op, inputs, producer, is_free, expected) -> None:
    assert costs.reads_in_memory(op, tuple(inputs), producer, is_free) == expected
