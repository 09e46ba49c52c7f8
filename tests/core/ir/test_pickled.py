"""Fingerprints and files of graphs: equal for equal graphs in every process, and without the user's functions."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.graph_text import to_text
from tempo_core.store.fingerprint import Functions, Lines, fingerprint
from tempo_core.store.pickled import PickleError, dumps, loads
from tempo_core.symbolic.condition import FALSE, TRUE, Comparison
from tempo_core.symbolic.expr import Expr, Symbol
from tests.core.programs import reinforce
from tests.graph_parser import parse

TEXT = """
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over (t) @ "a.py:3"
%1 = Constant(float32[2], [1.0, 2.0])() : float32[2] over ()
%2 h = Merge(type=float32[4])(%0[0] if t == 0, %2[t - 1] if t >= 1) : float32[4] over (t) @ "a.py:4"
%3 = Reduce(fn="sum", axes=(0,))(%2[0:t + 1]) : float32[4] over (t) @ "a.py:5"
%4 = Output(position=0)(%3[0:T]) : over ()
"""
NONE = Functions(parse(TEXT))


def of_graph(graph: Graph, functions: Functions | None = None) -> str:
    return fingerprint((graph.order, tuple(graph), graph.derived), functions)


def changed(node_id: int, change: Callable[[Node], Node]) -> Graph:
    graph = parse(TEXT)
    graph.put(change(graph[node_id]))
    return graph


def test_equal_graphs_have_one_fingerprint() -> None:
    assert of_graph(parse(TEXT)) == of_graph(parse(TEXT)) == of_graph(loads(dumps(parse(TEXT), NONE), NONE))
    # From another process: Python's own hashes of texts and steps would differ here.
    assert fingerprint(("a", 1, None, Symbol("t", "T"))) == "6212f1235effdfe40f5557fa42528d64146a2e4ff7c69e930f2bbf6577d67cec"


def test_lines_are_numbers() -> None:
    def of_lines(graph: Graph) -> str:
        return fingerprint(tuple(graph), NONE, Lines(graph))

    graph, other = parse(TEXT), parse(TEXT.replace("a.py:4", "b.py:14").replace("a.py:5", "b.py:15"))
    swapped = parse(TEXT.replace("a.py:4", "*").replace("a.py:3", "a.py:4").replace("*", "a.py:3"))
    assert of_lines(graph) == of_lines(other) == of_lines(swapped) and of_graph(graph) != of_graph(other)
    assert of_lines(parse(TEXT.replace("a.py:4", "a.py:3"))) != of_lines(graph)  # two nodes on one line
    assert of_lines(changed(1, lambda n: replace(n, where="a.py:3"))) != of_lines(graph)  # a line for a node without one
    assert of_lines(changed(0, lambda n: replace(n, name="a.py:7"))) != of_lines(graph)  # a name is no line
    data = dumps(graph, NONE, Lines(graph))
    assert b"a.py" not in data and data == dumps(other, NONE, Lines(other))
    assert to_text(loads(data, NONE, Lines(other))) == to_text(other)


@pytest.mark.parametrize(
    "graph",
    [
        changed(0, lambda n: replace(n, name="y")),
        changed(0, lambda n: replace(n, where="a.py:9")),
        changed(0, lambda n: replace(n, op=replace(n.op, name="y"))),  # type: ignore[call-arg]
        changed(1, lambda n: replace(n, op=ops.Constant("float32", (2,), np.float32([1, 2.5]).tobytes()))),
        changed(2, lambda n: replace(n, inputs=n.inputs[::-1])),
        changed(3, lambda n: replace(n, op=replace(n.op, fn="max"))),  # type: ignore[call-arg]
        changed(3, lambda n: replace(n, inputs=parse(TEXT.replace("0:t + 1", "0:t"))[3].inputs)),
        parse(TEXT.replace("t<T", "t<U").replace("0:T", "0:U")),
        parse(TEXT.replace("%3[0:T]", "%2[0:T]")),
    ],
)  # fmt: skip
def test_other_graphs_have_others(graph: Graph) -> None:
    assert of_graph(graph) != of_graph(parse(TEXT))


def test_values_that_look_alike() -> None:
    t = Symbol("t", "T")
    values: list[Any] = [
        1, 1.0, True, "1", b"1", None, (1,), ((1,),), (1, 1), {1: 1}, frozenset({1}), -1, -2, "", (), t, Symbol("t"), t.expr, t.expr + 1,
        t.expr * -1, t.expr * -2, np.int32(1), np.float32(1), TRUE, FALSE, Comparison(">=", t.expr), Comparison(">=", t.expr, True),
        ("ab", "c"), ("a", "bc"),
    ]  # fmt: skip
    assert len({fingerprint(value) for value in values}) == len(values)


def test_functions_are_numbers() -> None:
    def graph(*functions: Any) -> tuple[str, Functions, Graph]:
        ctx = tp.Context()
        with ctx:
            x = tp.zeros(())
            total = sum((tp.udf(f, x, outputs=[tp.spec()], kind="host", name="f")[0] for f in functions), x)
            source = with_outputs(ctx, [total])
        table = Functions(source)
        return of_graph(source, table), table, source

    def one(a: Any) -> Any:
        return (a,)

    def two(a: Any) -> Any:
        return (a + 1,)

    assert graph(one, two)[0] == graph(two, one)[0] != graph(one, one)[0] == graph(two, two)[0]
    _, table, source = graph(one, two)
    _, others, _ = graph(two, one)
    copy = loads(dumps(source, table), others)
    assert [node.op.fn for node in copy if isinstance(node.op, ops.Udf)] == [two, one]  # the reader's functions
    with pytest.raises(TypeError, match="has no fingerprint"):
        of_graph(source)
    with pytest.raises(PickleError, match="one of the program's functions"):
        dumps(source, NONE)


class Counting:
    """A method is another object each time, and equal to itself."""

    def method(self, a: Any) -> Any:
        return (a,)


class Unhashable(Counting):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    def __call__(self, a: Any) -> Any:
        return (a,)


def test_methods_are_equal_and_objects_without_a_hash_are_apart() -> None:
    def numbers(first: Any, second: Any) -> list[int | None]:
        graph = Graph(())
        nodes = [graph.add(ops.Udf(f, (), "host", True)) for f in (first, second)]
        return [Functions(graph).number(node.op.fn) for node in nodes]  # type: ignore[attr-defined]

    counting = Counting()
    assert numbers(counting.method, counting.method) == [0, 0]
    assert numbers(counting.method, Counting().method) == [0, 1]
    assert numbers(Unhashable(), Unhashable()) == [0, 1]


@pytest.mark.parametrize("window", [None, 5])
def test_a_graph_is_read_as_it_was_written(window: int | None) -> None:
    ctx, bounds, outputs = reinforce(window)
    program = ctx.compile(bounds, outputs)
    functions = Functions(program.source)
    graph, root = loads(dumps((program.graph, program.scheduled.root), functions), functions)
    assert to_text(graph) == to_text(program.graph)
    assert of_graph(graph, functions) == of_graph(program.graph, functions)
    assert (graph.next_id, graph.range_lengths, graph.facts) == (program.graph.next_id, program.graph.range_lengths, {})
    assert root == program.scheduled.root


def test_there_is_one_true_and_one_false() -> None:
    true, false, step = loads(dumps((TRUE, FALSE, Symbol("t", "T")), NONE), NONE)
    assert true is TRUE and false is FALSE and step is Symbol("t", "T")


def test_hashes_are_not_written() -> None:
    expression = Symbol("t", "T").expr + 1
    hash(expression), expression.symbols
    copy = loads(dumps(expression, NONE), NONE)
    assert isinstance(copy, Expr) and set(vars(copy)) == {"terms"}
    assert hash(copy) == hash(expression) and bool(copy == expression)


@pytest.mark.parametrize("value", [os.system, print, np.zeros, object(), np.zeros(3), pytest])
def test_only_the_compilers_objects_are_written_and_read(value: Any) -> None:
    with pytest.raises(PickleError):
        dumps(("something", value), NONE)


def test_nothing_else_is_executed() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("exit 1",)

    for data in (pickle.dumps(Evil()), pickle.dumps(np.zeros(3)), b"", b"nonsense", pickle.dumps(os.system)):
        with pytest.raises(PickleError):
            loads(data, NONE)
