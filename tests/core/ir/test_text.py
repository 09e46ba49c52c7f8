"""The graph's text: its form, and round trips without loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.graph_text import function_table, to_text
from tempo_core.ir.ops import Constant, Dataflow, Eval, Input, Op, Sink, Udf
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.expr import Expr
from tests.core.every_op import ROWS, each_op
from tests.core.ir.strategies import ORDER, SAMPLES, STEPS, a_function, another_function, graphs
from tests.graph_parser import GraphTextError, parse

PREFIX_SUMS = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over (t) @ "train.py:3"
%1 = Reduce(fn="sum", axes=(0,))(%0[0:t + 1]) : float32[4] over (t)
%2 w = Merge(type=float32[4])(%1[0] if t == 0, %2[t - 1] if t >= 1) : float32[4] over (t) where t >= 2
%3 = Gather(axis=0)(%0[0:T:2 to 7], %4) : float32[4] over ()
%4 = Constant(int32[], 3)() : int32[] over ()
%5 = Dataflow()(%2[t], %1[t]) : float32[4] over (t) {
  $0 : float32[4]
  $1 : float32[4]
  $2 = Binary(fn="add")($0, $1) : float32[4]
  $3 = Unary(fn="exp")($2) : float32[4]
  give $3
}
%6 = Output(position=0)(%5[t]) over (t)
"""


def contents(op: Any) -> Any:
    """An op as a comparable value: without this, bodies of islands would be compared by identity."""
    if not isinstance(op, Dataflow):
        return op
    body = op.body
    return (
        body.input_types,
        tuple((contents(inner), operands, results) for inner, operands, results in body.instructions),
        body.results,
        body.slot_types,
    )


def assert_same(left: Graph, right: Graph) -> None:
    assert left.order == right.order
    assert list(left.nodes) == list(right.nodes)
    for a, b in zip(left, right, strict=True):
        assert contents(a.op) == contents(b.op)
        assert dataclasses.replace(a, op=b.op) == b


def test_text_reads_and_prints_the_same():
    graph = parse(PREFIX_SUMS)
    assert to_text(graph) == PREFIX_SUMS
    assert graph[3].inputs[0].index[0].length.terms == Expr.of(7).terms
    assert graph[2].name == "w" and graph[0].where == "train.py:3"


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graphs())
def test_round_trip_of_random_graphs(graph: Graph):
    functions = {"a": a_function, "b": another_function}
    text = to_text(graph, functions)
    again = parse(text, functions)
    assert_same(graph, again)
    assert to_text(again, functions) == text


@each_op
def test_the_samples_hold_every_op(op: type[Op]):
    samples = (*SAMPLES, *(row.op for row in ROWS))
    assert any(type(sample) is op for sample in samples) != (op is Dataflow), (
        f"give {op.__name__} a row in tests/core/every_op.py"
    )


@pytest.mark.parametrize("op", [*SAMPLES, *(row.op for row in ROWS)], ids=lambda op: type(op).__name__)
def test_round_trip_of_every_op(op: Op):
    graph = Graph(ORDER)
    types = op.infer(()) if isinstance(op, (Constant, Eval, Input, Udf)) else ()
    graph.put(Node(0, op, Domain(ORDER), (), types))
    functions = function_table(graph)
    again = parse(to_text(graph), functions)
    assert_same(graph, again)
    assert op == again[0].op


def test_fields_at_their_defaults_are_left_out():
    text = to_text(parse("steps t<T\n%0 = CumSum(axis=1, reverse=False)() : float32[4, 4] over (t)\n"))
    assert "CumSum(axis=1)()" in text


@pytest.mark.parametrize("value", [0.1, -0.0, float("inf"), float("nan"), 1e-45])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_constants_keep_every_bit(value: float, dtype: str):
    for sizes in ((), (2,), (5, 5)):
        data = np.full(sizes, value, np.dtype(dtype)).tobytes()
        graph = Graph(())
        graph.add(Constant(dtype, sizes, data))
        assert parse(to_text(graph))[0].op.data == data


def test_long_constants_can_be_left_out_for_reading():
    graph = Graph(())
    graph.add(Constant("float32", (100,), bytes(400)))
    short = to_text(graph, full_constants=False)
    assert "%0 = Constant(float32[100], ...)() : float32[100] over ()" in short
    with pytest.raises(GraphTextError, match="left out"):
        parse(short)


def test_functions_of_one_name_are_told_apart():
    def make(number: int) -> Any:
        def log(*arrays: Any, **point: int) -> int:
            return number

        return log

    first, second = make(1), make(2)
    graph = Graph(ORDER)
    value = graph.add(Eval(STEPS[2]))
    for function in (first, second, first):
        graph.add(Sink(function), (Edge(value.id, (Point(STEPS[2]),)),))
    functions = function_table(graph)
    assert list(functions.values()) == [first, second]
    again = parse(to_text(graph), functions)
    assert [node.op.fn for node in again if isinstance(node.op, Sink)] == [first, second, first]
    with pytest.raises(ValueError, match="no name in the table"):
        to_text(graph, {})


def test_comments_and_empty_lines_are_passed_over():
    assert len(parse("# a graph\n\nsteps t<T\n  # of one node\n  %7 = Iota(size=T)() : int32[T] over ()\n")) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("%0 = Iota(size=Z)() : int32[4] over ()", "line 2: unknown step or bound `Z`; there are t, T"),
        ("%0 = Iota(length=4)() : int32[4] over ()", "Iota has no field `length`; it has size"),
        ("%0 = Frobnicate()() : int32[4] over ()", "unknown op `Frobnicate`"),
        ("%0 = Iota(size=4)() : int32[4] over (T)", "`T` is not a step of this graph"),
        ("%0 = Iota(size=4)() : int32 over ()", "`int32` is not a type"),
        ("%0 = Iota(size=t >= 1)() : int32[4] over ()", "is a condition, and an expression is needed"),
        ("%0 = Flip(axis=0)(%1[t] if t) : int32[4] over ()", "is an expression, and a condition is needed"),
        ("%0 = Flip(axis=0)(1[t]) : int32[4] over ()", "`1[t]` is not an edge"),
        ("x = Iota(size=4)() : int32[4] over ()", "a node reads"),
        ('%0 = Sink(fn="log")() over ()', 'no function is given for "log"'),
        ("%0 = Dataflow()() : int32[4] over () {", "an island ends with a line `}`"),
        ("%0 = Iota(size=4)() : int32[4] over ()\n%0 = Iota(size=4)() : int32[4] over ()", "line 3: %0 is defined twice"),
    ],
)
def test_errors_name_the_line_and_the_problem(line: str, problem: str):
    with pytest.raises(GraphTextError) as error:
        parse(f"steps t<T\n{line}\n")
    assert problem in str(error.value)
    assert line.split("\n")[0] in str(error.value) or "defined twice" in problem or "island" in problem
