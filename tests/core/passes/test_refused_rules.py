"""Graphs to which a rule must not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.types import TensorType
from tempo_core.passes.clean.rules import BY_OP, View
from tempo_core.symbolic.condition import equal
from tempo_core.symbolic.domain import Domain, full_range
from tempo_core.symbolic.expr import Expr
from tests.core.passes.rule_graphs import Make, t

X = TensorType.of("float32", 2, 3)


def refused(kind: type[ops.Op], graph: Graph, edge: Edge) -> bool:
    node = graph[edge.source]
    assert isinstance(node.op, kind)
    return all(rule.replacement(View(graph, node, Builder(graph, node))) is None for rule in BY_OP[kind])


@pytest.fixture
def make() -> Make:
    return Make(lambda strategy: pytest.fail("nothing is drawn here"))


def test_sums_along_axes_that_are_not_repeated_stay(make: Make):
    wide = make.add(ops.Broadcast((Expr.of(4), Expr.of(2)), (1,)), make.input((Expr.of(2),), domain=(t,)))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("sum", (1,)), wide))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("sum", (0, 1)), wide))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("max", (0,)), wide))


def test_sums_over_a_count_that_varies_stay(make: Make):
    wide = make.add(ops.Broadcast((t.expr + 1,), ()), make.input((), domain=(t,)))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("sum", (0,)), wide))


def test_sums_over_slices_of_results_stay(make: Make):
    """A slice of sums does not become a sum of slices: the rules apply to points only."""
    inner = make.add(ops.Reduce("sum", (0,)), make.input((Expr.of(2), Expr.of(3)), domain=(t,)))
    sliced = Edge(inner.source, (full_range(t),))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("sum", (1,)), sliced))


def test_a_product_keeps_the_order_of_its_free_axes(make: Make):
    a, b = make.input((Expr.of(2), Expr.of(3), Expr.of(4)), domain=()), make.input((Expr.of(4),), domain=())
    turned = make.add(ops.Permute((1, 0, 2)), a)
    assert refused(ops.Dot, make.graph, make.add(ops.Dot((2,), (0,)), turned, b))


def test_numbers_that_are_not_neutral_stay(make: Make):
    x = make.input((), domain=())
    one, zero = make.number(1.0), make.number(0.0)
    for fn, left, right in [("add", x, one), ("sub", zero, x), ("div", one, x), ("mul", x, zero), ("pow", one, x)]:
        assert refused(ops.Binary, make.graph, make.add(ops.Binary(fn), left, right)), fn
    assert refused(ops.Binary, make.graph, make.add(ops.Binary("div"), one, zero))


def test_a_row_of_positions_for_each_point_is_no_identity(make: Make):
    """`Iota` over a step, read over a range of it, is a matrix of positions."""
    node = make.graph.add(ops.Iota(Expr.of(2)), domain=Domain((t,)))
    x = make.input((Expr.of(2),), domain=())
    assert refused(ops.Gather, make.graph, make.add(ops.Gather(0), x, Edge(node.id, (full_range(t),))))


def test_a_branch_stays_if_points_lie_between_it_and_the_next_one(make: Make):
    x = make.input((), domain=(t,))
    first = replace(x, condition=equal(t.expr, Expr.of(0)))
    merge = make.graph.add(ops.Merge(TensorType("float32")), [first, replace(x, condition=t.expr >= 2)], domain=Domain((t,)))
    assert refused(ops.Merge, make.graph, Edge(merge.id, x.index))


def test_parts_that_overlap_are_added(make: Make):
    x = make.input((), domain=(t,))
    first = replace(x.substitute({t: 0}), condition=equal(t.expr, Expr.of(0)))
    parts = [
        make.add(ops.Merge(TensorType("float32")), part, make.number(0)) for part in (first, replace(x, condition=t.expr >= 0))
    ]
    assert refused(ops.Binary, make.graph, make.add(ops.Binary("add"), *parts))


def test_a_branch_with_a_condition_stays(make: Make):
    x, y = make.input((), domain=(t,)), make.input((), domain=(t,))
    merge = make.graph.add(ops.Merge(TensorType("float32")), [replace(x, condition=t.expr >= 1), y], domain=Domain((t,)))
    assert refused(ops.Merge, make.graph, Edge(merge.id, x.index))
