"""Each row of `passes/batch/batching.py`: an op over a step, vectorized, gives the same value at each point as before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tempo_core.ir import ops
from tempo_core.ir.axes import ROWS
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Op
from tempo_core.ir.types import TensorType
from tempo_core.ir.verify import verify
from tempo_core.passes.batch.batching import RULES, evaluated
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.symbolic.domain import Domain, Point, full_range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tests import reference
from tests.core import every_op
from tests.core.every_op import each_op
from tests.core.passes.support import fed
from tests.core.running import assert_same

i, t = Symbol("i", "I"), Symbol("t", "T")
T, TWO, THREE, FOUR = t.bound_expr, Expr.of(2), Expr.of(3), Expr.of(4)
NUMBERS = {Symbol("I"): 2, Symbol("T"): 5}

NEVER_BATCHED: dict[type[Op], str] = {
    ops.Input: "has no step",
    ops.Output: "has no step",
    ops.Sink: "is called at each point",
    ops.End: "is looked at in each iteration",
    ops.Merge: "is vectorized by passes/batch/vectorize.py itself",
    ops.Constant: "never varies: it is repeated as a whole",
    ops.Iota: "never varies after pad: it is repeated as a whole",
    ops.Dataflow: "is made after vectorization",
    ops.Update: "is made after vectorization",
}

X, XS, XSS = TensorType("float32", (TWO,)), TensorType("float32", (TWO, THREE)), TensorType("float32", (FOUR, TWO, THREE))


def index(*shape: Expr) -> TensorType:
    return TensorType("int32", shape)


def halves(a, b):
    return a * 0.5, (a * b).sum()


def conv(groups: int) -> Op:
    return ops.Conv((2,), (Expr.of(1),), (TWO,), (1,), (1,), Expr.of(groups))


EXAMPLES: dict[type[Op], list[tuple[Op, list[TensorType]]]] = {
    ops.Where: [
        (ops.Where(), [TensorType("bool", (TWO,)), X, X]),
        (ops.Where(0, Expr.of(1)), [TensorType("bool", (TWO,)), X, X]),
    ],
    ops.Identity: [(ops.Identity(True), [XS])],
    ops.Random: [(ops.Random("normal", 3, (TWO, THREE)), [index(), index()])],
    ops.Reduce: [(ops.Reduce("sum", (0, 2)), [XSS]), (ops.Reduce("max", (1,)), [XS])],
    ops.Argsort: [(ops.Argsort(0), [XS]), (ops.Argsort(0, 1), [XS])],
    ops.CumSum: [(ops.CumSum(1, True), [XS])],
    ops.CumMax: [(ops.CumMax(1, True), [XS])],
    ops.DiscountedSum: [(ops.DiscountedSum(1, 0.5), [XS])],
    ops.Dot: [
        (ops.Dot((1,), (0,)), [XS, TensorType("float32", (THREE, FOUR))]),
        (ops.Dot((2,), (1,), (0,), (0,)), [XSS, TensorType("float32", (FOUR, THREE, TWO))]),
        (ops.Dot((0, 1), (0, 1)), [XS, XS]),
        (ops.Dot((), ()), [X, XS]),
    ],
    ops.Conv: [
        (conv(1), [TensorType("float32", (FOUR, THREE, TWO)), TensorType("float32", (TWO, TWO, THREE))]),
        (conv(2), [TensorType("float32", (THREE, FOUR)), TensorType("float32", (TWO, TWO, FOUR))]),
    ],
    ops.Permute: [(ops.Permute((2, 0, 1)), [XSS])],
    ops.Broadcast: [(ops.Broadcast((FOUR, TWO, THREE), (1, 2)), [XS]), (ops.Broadcast((THREE,), ()), [TensorType("float32")])],
    ops.Slice: [
        (ops.Slice(1, Expr.of(1), THREE), [XS]),
        (ops.Slice(1, t.expr, t.expr + 2), [XS]),  # past the end at the last points: zeros
        (ops.Slice(0, t.expr - 1, t.expr + 3, 2), [XSS]),
        (ops.Slice(0, minimum(t.expr, 2), minimum(t.expr, 2) + 2), [XSS]),
        (ops.Slice(0, minimum(t.expr, 3) - 1, minimum(t.expr, 3) + 1), [XSS]),  # before the start at the first point
    ],
    ops.Pad: [(ops.Pad(1, Expr.of(1), TWO), [XS]), (ops.Pad(0, t.expr, T - 1 - t.expr), [XS]), (ops.Pad(1, -t.expr, t.expr), [XS])],
    ops.Concat: [(ops.Concat(1), [XS, XS, TensorType("float32", (TWO, FOUR))])],
    ops.Gather: [
        (ops.Gather(0), [XS, index()]),
        (ops.Gather(1), [XSS, index(THREE)]),
        (ops.Gather(1), [XSS, index(TWO, TWO)]),
        (ops.Gather(2, 1), [XSS, index(FOUR, TWO)]),
    ],
    ops.Scatter: [
        (ops.Scatter(1, FOUR), [XS, index(THREE)]),
        (ops.Scatter(0, FOUR), [XSS, index(FOUR, TWO)]),
        (ops.Scatter(1, FOUR, 1), [XSS, index(FOUR, TWO)]),
        (ops.Scatter(0, FOUR), [X, index(TWO)]),
        *((ops.Scatter(0, FOUR, fn=fn), [XSS, index(FOUR, TWO)]) for fn in ops.COMBINING),
    ],
    ops.Eval: [(ops.Eval(t.expr * 2 + 1), []), (ops.Eval((t.expr >= 1) & (i.expr == 1)), [])],
    ops.Udf: [(ops.Udf(halves, (X, TensorType("float32"))), [X, X])],
}  # fmt: skip
for row in every_op.ROWS:
    if type(row.op) not in NEVER_BATCHED and row.operands:
        EXAMPLES.setdefault(type(row.op), []).append(row.sized(2))


@each_op
def test_each_op_has_a_row_or_a_reason(op: type[Op]):
    assert (op in RULES or op in ROWS) != (op in NEVER_BATCHED), (
        f"give {op.__name__} a row in passes/batch/batching.py, or say in NEVER_BATCHED why it has none"
    )
    assert op in NEVER_BATCHED or EXAMPLES.get(op), f"give {op.__name__} a row in tests/core/every_op.py"


def built(op: Op, types: Sequence[TensorType], steps: Sequence[tuple[Symbol, ...]]) -> Graph:
    """The op over i and t, of operands that vary with the given steps; its outputs are read at all points."""
    graph = Graph((i, t))

    def add(op: Op, *edges: Edge) -> Edge:
        node = graph.add(op, edges)
        return Edge(node.id, tuple(Point(s.expr) for s in node.domain.steps))

    operands = []
    for number, (type, domain) in enumerate(zip(types, steps, strict=True)):
        value = add(ops.Input(f"x{number}", type.dtype, (*(s.bound_expr for s in domain), *type.shape)))
        for step in domain:
            value = add(ops.Gather(0), value, add(ops.Eval(step.expr)))
        operands.append(value)
    node = graph.add(op, operands, domain=Domain((i, t)), name="tested")
    whole = (full_range(i), full_range(t))
    for output in range(len(node.outputs)):
        copy = graph.add(ops.Identity(), [Edge(node.id, tuple(Point(s.expr) for s in (i, t)), output)], domain=Domain((i, t)))
        graph.add(ops.Output(output), [Edge(copy.id, whole)], domain=Domain())
    return graph


CASES = [(kind, number) for kind, examples in EXAMPLES.items() for number in range(len(examples))]


@pytest.mark.parametrize(("kind", "number"), CASES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_vectorized_op_gives_the_same(kind: type[Op], number: int):
    """With every choice of operands that vary with the step t alone, with both steps, or with neither."""
    op, types = EXAMPLES[kind][number]
    for steps in itertools.product([(), (t,), (i, t)], repeat=len(types)):
        graph = built(op, types, steps)
        verify(graph)
        numbers = {bound.name: size for bound, size in NUMBERS.items()}
        expected = reference.evaluate(graph, None, NUMBERS, fed(graph, numbers))
        vectorized = Vectorize().apply(graph)
        verify(vectorized, static=True)
        assert not any(node.domain.steps for node in vectorized if not isinstance(node.op, ops.Output)), steps
        results = reference.evaluate(vectorized, None, NUMBERS, fed(graph, numbers))
        for value, right in zip(results, expected, strict=True):
            assert_same(value, right, where=f"{op} of operands over {steps}")


def test_products_stay_products():
    """A vectorized contraction is one contraction, not a broadcast product and a sum."""
    for op, types in EXAMPLES[ops.Dot]:
        for steps in [[(t,), ()], [(), (t,)], [(t,), (t,)]]:
            vectorized = Vectorize().apply(built(op, types, steps))
            kinds = [type(node.op) for node in vectorized]
            assert kinds.count(ops.Dot) == 1
            assert not {ops.Binary, ops.Reduce} & set(kinds)


def test_an_operand_that_does_not_vary_is_not_repeated():
    one, other = [(t,), ()], [(), (t,)]
    for kind, steps in ((ops.Dot, one), (ops.Dot, other), (ops.Gather, one), (ops.Gather, other), (ops.Scatter, one)):
        for op, types in EXAMPLES[kind]:
            if not getattr(op, "batch", 0):
                graph = Vectorize().apply(built(op, types, steps))
                repeated = [graph[node.inputs[0].source].op for node in graph if isinstance(node.op, ops.Broadcast)]
                assert not any(isinstance(each, ops.Input) for each in repeated), op


def test_no_parameter_names_a_step_that_is_a_dimension():
    for op, types in [(ops.Where(0, t.expr + 1), EXAMPLES[ops.Where][0][1]), (ops.Slice(0, t.expr % 2, t.expr % 2 + 1), [XSS])]:
        for node in Vectorize().apply(built(op, types, [(t,)] * len(types))):
            assert t not in node.op.symbols, node.op


def test_windows_that_stay_inside_their_operand_are_not_masked():
    """At every point: elsewhere zeros take the place of what is not there."""
    start = minimum(t.expr, 2)
    for window, masked in [((start, start + 2), False), ((start - 1, start + 1), True), ((start + 1, start + 3), True)]:
        vectorized = Vectorize().apply(built(ops.Slice(0, *window), [XSS], [()]))
        assert any(isinstance(node.op, ops.Where) for node in vectorized) == masked, window


EXPRESSIONS = [
    t.expr, T - 1 - t.expr, t.expr * 2 + i.expr, t.expr // 2 * 2, t.expr % 3, minimum(t.expr + 2, T - 1), maximum(t.expr - 3, 0),
    minimum(maximum(t.expr - i.expr, 0), T - 1), t.expr * t.expr, t.expr * i.expr - 3, (t.expr + i.expr) % 2, Expr.of(4), i.expr,
]  # fmt: skip
CONDITIONS = [
    t.expr >= 2, t.expr == i.expr, t.expr != T - 1, (t.expr % 2 == 0) | (i.expr == 1), (t.expr >= 1) & (t.expr <= 3), ~(t.expr == 0),
    i.expr == 1, (t.expr >= 1) & (i.expr == 0),
]  # fmt: skip


@pytest.mark.parametrize("value", [*EXPRESSIONS, *CONDITIONS], ids=str)
def test_expressions_at_all_points_of_a_step(value):
    graph = Graph((i, t))
    like = graph.add(ops.Eval(i.expr), domain=Domain((i,)))
    build = Builder(graph, like)
    vector = evaluated(value, t, build)
    graph.add(ops.Output(0), [Edge(vector.source, (full_range(i),))], domain=Domain())
    verify(graph)
    (result,) = reference.evaluate(graph, None, NUMBERS)
    points = [[value.evaluate({**NUMBERS, i: a, t: b}) for b in range(5)] for a in range(2)]
    np.testing.assert_array_equal(result, points)
