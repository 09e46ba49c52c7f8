"""Each row of `passes/rules.py`: it applies to what its comment says, and gives the same numbers on random inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_core import reference
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.types import TensorType
from tempo_core.ir.verify import verify
from tempo_core.passes.base import Builder
from tempo_core.passes.rules import RULES, View
from tempo_core.symbolic.condition import FALSE, TRUE
from tempo_core.symbolic.domain import Domain, Point, full_range
from tempo_core.symbolic.expr import Expr, Symbol
from tests.core.passes.support import fed
from tests.core.running import assert_same

I, t = Symbol("i", "I"), Symbol("t", "T")
BOUNDS = {"I": 2, "T": 3}


class Make:
    """Draws a small graph over the steps i, t. Operands are read at the reader's own point, or mirrored in time."""

    def __init__(self, draw: st.DrawFn):
        self.draw, self.graph = draw, Graph((I, t))

    def sizes(self, rank: int | None = None) -> tuple[Expr, ...]:
        rank = self.draw(st.integers(0, 3)) if rank is None else rank
        return tuple(self.draw(st.sampled_from([Expr.of(1), Expr.of(2), Expr.of(3), t.bound_expr])) for _ in range(rank))

    def input(self, shape: tuple[Expr, ...], dtype: str = "float32", domain: tuple[Symbol, ...] | None = None) -> Edge:
        """An input with a value at each point of some steps."""
        chosen = self.draw(st.sampled_from([(), (t,), (I, t)])) if domain is None else domain
        value = self.add(ops.Input(f"x{len(self.graph)}", dtype, (*(s.bound_expr for s in chosen), *shape)))
        for step in chosen:
            value = self.add(ops.Gather(0), value, self.add(ops.Eval(step.expr)))
        return value

    def moved(self, edge: Edge) -> Edge:
        source = self.graph[edge.source]
        mirrored = t in source.domain and self.draw(st.booleans())
        back = t.bound_expr - 1 - t.expr
        return Edge(edge.source, tuple(Point(back if s == t and mirrored else s.expr) for s in source.domain.steps))

    def add(self, op: ops.Op, *edges: Edge) -> Edge:
        node = self.graph.add(op, edges)
        return Edge(node.id, tuple(Point(s.expr) for s in node.domain.steps))

    def number(self, value: Any, dtype: str, shape: tuple[Expr, ...] = ()) -> Edge:
        scalar = self.add(ops.Constant(dtype, (), np.asarray(value, dtype).tobytes()))
        return self.add(ops.Broadcast(shape, ()), scalar) if shape else scalar

    def axis(self, shape: tuple[Expr, ...]) -> int:
        return self.draw(st.integers(0, len(shape) - 1))

    def dtype(self, *among: str) -> str:
        return self.draw(st.sampled_from(among or ("float32", "float64", "int32", "uint8", "bool")))


def identity(make: Make) -> Edge:
    return make.add(ops.Identity(make.draw(st.booleans())), make.moved(make.input(make.sizes(), make.dtype())))


def only_branch(make: Make) -> Edge:
    shape = make.sizes()
    value, other = make.moved(make.input(shape, domain=(I, t))), make.input(shape, domain=(I, t))
    return make.add(ops.Merge(TensorType("float32", shape)), value, other)


def cast_to_itself(make: Make) -> Edge:
    dtype = make.dtype()
    return make.add(ops.Cast(dtype), make.moved(make.input(make.sizes(), dtype)))


def cast_twice(make: Make) -> Edge:
    inner = make.add(ops.Cast(make.dtype()), make.moved(make.input(make.sizes(), "bool")))
    source = make.graph[inner.source].outputs[0].dtype
    return make.add(
        ops.Cast(make.draw(st.sampled_from([d for d in ("float32", "int32", "uint8", "bool") if d != source]))), make.moved(inner)
    )


def eval_number(make: Make) -> Edge:
    return make.add(ops.Eval(Expr.of(make.draw(st.integers(-(2**31), 2**31 - 1)))))


def double_negation(make: Make) -> Edge:
    fn = make.draw(st.sampled_from(["neg", "not"]))
    x = make.input(make.sizes(), "bool" if fn == "not" else make.dtype("float32", "int32", "uint8"))
    return make.add(ops.Unary(fn), make.moved(make.add(ops.Unary(fn), make.moved(x))))


def folded_numbers(make: Make) -> Edge:
    dtype = make.dtype("float32", "float64", "int32", "uint8", "int64", "float16")
    fn = make.draw(st.sampled_from(["add", "sub", "mul", "div"] if dtype.startswith("float") else ["add", "sub", "mul"]))
    if dtype.startswith("float"):
        values = [make.draw(st.floats(-3e4, 3e4, width=16)) for _ in range(2)]
        if fn == "div":
            values[1] = values[1] or 1.0
    else:
        limits = np.iinfo(dtype)
        values = [make.draw(st.integers(limits.min, limits.max)) for _ in range(2)]
    shape = make.sizes()
    return make.add(ops.Binary(fn), *(make.number(v, dtype, shape) for v in values))


def neutral_numbers(make: Make) -> Edge:
    fn, number, slots = make.draw(
        st.sampled_from([("add", 0, (0, 1)), ("sub", 0, (1,)), ("mul", 1, (0, 1)), ("div", 1, (1,)), ("pow", 1, (1,))])
    )
    dtype = make.dtype("float32", "float64") if fn in ("div", "pow") else make.dtype("float32", "int32", "int64", "uint8")
    shape = make.sizes()
    operands = [make.moved(make.input(shape, dtype)), make.number(number, dtype, shape)]
    return make.add(ops.Binary(fn), *(operands if make.draw(st.sampled_from(slots)) else operands[::-1]))


def where_constant(make: Make) -> Edge:
    shape = make.sizes()
    test = make.add(ops.Eval(make.draw(st.sampled_from([TRUE, FALSE]))))
    test = make.add(ops.Broadcast(shape, ()), test) if shape else test
    return make.add(ops.Where(), test, make.moved(make.input(shape)), make.moved(make.input(shape)))


def sum_of_broadcast(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    repeated = sorted(make.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    kept = tuple(a for a in range(len(shape)) if a not in repeated)
    x = make.input(tuple(shape[a] for a in kept), make.dtype("float32", "int32", "uint8"))
    return make.add(ops.Reduce("sum", tuple(repeated)), make.moved(make.add(ops.Broadcast(shape, kept), make.moved(x))))


def drawn_dot(make: Make, batch: int) -> Edge:
    """A contraction of permuted operands, with `batch` batch axes, one contracted and up to one free axis on each side."""
    shared, contracted = make.sizes(batch), make.sizes(1)
    operands, places = [], []
    for _ in range(2):
        free = make.sizes(make.draw(st.integers(0, 1)))
        shape = (*shared, *contracted, *free)
        order = make.draw(st.permutations(range(len(shape))))
        operands.append(make.moved(make.input(tuple(shape[k] for k in order))))
        places.append([order.index(k) for k in range(len(shape))])
    (left, right) = places
    return make.add(ops.Dot((left[batch],), (right[batch],), tuple(left[:batch]), tuple(right[:batch])), *operands)


def reduce_of_permuted(make: Make) -> Edge:
    fn = make.draw(st.sampled_from(["sum", "max"]))
    shape = make.sizes(make.draw(st.integers(1, 4)))
    order = tuple(make.draw(st.permutations(range(len(shape)))))
    axes = make.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    turned = make.add(ops.Permute(order), make.moved(make.input(shape)))
    return make.add(ops.Reduce(fn, tuple(sorted(axes))), make.moved(turned))


def sum_of_dot_batch(make: Make) -> Edge:
    batch = make.draw(st.integers(1, 2))
    product = drawn_dot(make, batch)
    rank = make.graph.edge_type(product).rank
    axes = make.draw(st.sets(st.integers(0, rank - 1), min_size=1).filter(lambda some: any(a < batch for a in some)))
    return make.add(ops.Reduce("sum", tuple(sorted(axes))), make.moved(product))


def reduce_reduce(make: Make) -> Edge:
    fn = make.draw(st.sampled_from(["sum", "prod", "max", "min", "any", "all"]))
    shape = make.sizes(make.draw(st.integers(2, 4)))
    first = sorted(make.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1)))
    second = sorted(make.draw(st.sets(st.integers(0, len(shape) - len(first) - 1), min_size=1)))
    x = make.input(shape, "bool" if fn in ("any", "all") else "float32")
    return make.add(ops.Reduce(fn, tuple(second)), make.moved(make.add(ops.Reduce(fn, tuple(first)), make.moved(x))))


def dot_of_permuted(make: Make) -> Edge:
    """The permutation keeps the order of the free axes: here there is at most one on each side."""
    dot = drawn_dot(make, make.draw(st.integers(0, 2)))
    node = make.graph[dot.source]
    operands = []
    for slot in range(2):
        rank = make.graph.edge_type(node.inputs[slot]).rank
        order = tuple(make.draw(st.permutations(range(rank))))
        operands.append((order, make.moved(make.add(ops.Permute(order), node.inputs[slot]))))
    ((left, a), (right, b)) = operands
    assert isinstance(node.op, ops.Dot)
    contract = tuple(left.index(k) for k in node.op.left_contract), tuple(right.index(k) for k in node.op.right_contract)
    batch = tuple(left.index(k) for k in node.op.left_batch), tuple(right.index(k) for k in node.op.right_batch)
    return make.add(ops.Dot(*contract, *batch), a, b)


def reshape_to_itself(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Reshape(shape), make.moved(make.input(shape)))


def reshape_reshape(make: Make) -> Edge:
    shape = make.sizes()
    flat = make.add(ops.Reshape((ops.product(shape),)), make.moved(make.input(shape)))
    return make.add(ops.Reshape((*reversed(shape), Expr.of(1))), make.moved(flat))


def permute_by_nothing(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Permute(tuple(range(len(shape)))), make.moved(make.input(shape)))


def permute_permute(make: Make) -> Edge:
    """Of two permutations that are not the identity, which an earlier row takes."""
    shape = make.sizes(3)
    orders = st.permutations(range(3)).map(tuple).filter(lambda order: order != (0, 1, 2))
    return make.add(
        ops.Permute(make.draw(orders)), make.moved(make.add(ops.Permute(make.draw(orders)), make.moved(make.input(shape))))
    )


def broadcast_to_itself(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Broadcast(shape, tuple(range(len(shape)))), make.moved(make.input(shape)))


def broadcast_broadcast(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(2, 4)))
    first = sorted(make.draw(st.sets(st.integers(0, len(shape) - 1), max_size=len(shape) - 1)))
    second = sorted(make.draw(st.sets(st.sampled_from(first)))) if first else []
    x = make.input(tuple(shape[a] for a in second))
    inner = make.add(ops.Broadcast(tuple(shape[a] for a in first), tuple(first.index(a) for a in second)), make.moved(x))
    return make.add(ops.Broadcast(shape, tuple(first)), make.moved(inner))


def whole_slice(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    axis = make.axis(shape)
    return make.add(ops.Slice(axis, Expr.of(0), shape[axis]), make.moved(make.input(shape)))


def pad_by_nothing(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    return make.add(ops.Pad(make.axis(shape), Expr.of(0), Expr.of(0)), make.moved(make.input(shape)))


def concat_of_one(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    return make.add(ops.Concat(make.axis(shape)), make.moved(make.input(shape)))


def gather_all(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    axis = make.axis(shape)
    return make.add(ops.Gather(axis), make.moved(make.input(shape)), make.add(ops.Iota(shape[axis])))


def gather_of_broadcast(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    axis = make.axis(shape)
    kept = sorted(make.draw(st.sets(st.sampled_from([a for a in range(len(shape)) if a != axis])))) if len(shape) > 1 else []
    repeated = make.add(ops.Broadcast(shape, tuple(kept)), make.moved(make.input(tuple(shape[a] for a in kept))))
    index = make.input(make.sizes(make.draw(st.integers(0, 2))), "int32")
    return make.add(ops.Gather(axis), make.moved(repeated), index)


# One generator for each row of `RULES`, in its order.
EXAMPLES: dict[type[ops.Op], tuple[Callable[[Make], Edge], ...]] = {
    ops.Identity: (identity,),
    ops.Merge: (only_branch,),
    ops.Cast: (cast_to_itself, cast_twice),
    ops.Eval: (eval_number,),
    ops.Unary: (double_negation,),
    ops.Binary: (folded_numbers, neutral_numbers),
    ops.Where: (where_constant,),
    ops.Reduce: (sum_of_broadcast, reduce_of_permuted, sum_of_dot_batch, reduce_reduce),
    ops.Dot: (dot_of_permuted,),
    ops.Reshape: (reshape_to_itself, reshape_reshape),
    ops.Permute: (permute_by_nothing, permute_permute),
    ops.Broadcast: (broadcast_to_itself, broadcast_broadcast),
    ops.Slice: (whole_slice,),
    ops.Pad: (pad_by_nothing,),
    ops.Concat: (concat_of_one,),
    ops.Gather: (gather_all, gather_of_broadcast),
}
ROWS = [(kind, row) for kind, rules in RULES.items() for row in range(len(rules))]


def test_each_row_has_an_example():
    missing = [kind.__name__ for kind, rules in RULES.items() if len(EXAMPLES.get(kind, ())) != len(rules)]
    assert not missing, f"give each new rule of {missing} a generator in EXAMPLES"


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=lambda part: getattr(part, "__name__", str(part)))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_rule_applies_to_its_example_and_keeps_the_numbers(kind: type[ops.Op], row: int, data: st.DataObject):
    make = Make(data.draw)
    edge = EXAMPLES[kind][row](make)
    graph, node = make.graph, make.graph[edge.source]
    replaced = RULES[kind][row](View(graph, node, Builder(graph, node)))
    assert replaced is not None, "the rule does not apply"
    assert replaced.source != node.id
    assert graph.edge_type(replaced) == node.outputs[0]
    for position, value in enumerate((edge, replaced)):
        copy = graph.add(ops.Identity(), [value], domain=node.domain)  # in the node's own steps
        graph.add(ops.Output(position), [Edge(copy.id, tuple(map(full_range, node.domain.steps)))], domain=Domain())
    verify(graph)
    numbers = {Symbol(name): size for name, size in BOUNDS.items()}
    with np.errstate(all="ignore"):
        expected, found = reference.evaluate(graph, None, numbers, fed(graph, BOUNDS))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected)) if expected.dtype.kind == "f" else None
    assert_same(np.nan_to_num(found), np.nan_to_num(expected), 1e-5)


# -- where a rule must not apply ----------------------------------------------------------------------------------------

X = TensorType.of("float32", 2, 3)


def refused(kind: type[ops.Op], graph: Graph, edge: Edge) -> bool:
    node = graph[edge.source]
    assert isinstance(node.op, kind)
    return all(rule(View(graph, node, Builder(graph, node))) is None for rule in RULES[kind])


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
    """A slice of sums is no sum of slices: the rules look at points only."""
    inner = make.add(ops.Reduce("sum", (0,)), make.input((Expr.of(2), Expr.of(3)), domain=(t,)))
    sliced = Edge(inner.source, (full_range(t),))
    assert refused(ops.Reduce, make.graph, make.add(ops.Reduce("sum", (1,)), sliced))


def test_a_product_keeps_the_order_of_its_free_axes(make: Make):
    a, b = make.input((Expr.of(2), Expr.of(3), Expr.of(4)), domain=()), make.input((Expr.of(4),), domain=())
    turned = make.add(ops.Permute((1, 0, 2)), a)
    assert refused(ops.Dot, make.graph, make.add(ops.Dot((2,), (0,)), turned, b))


def test_casts_that_lose_something_stay(make: Make):
    inner = make.add(ops.Cast("int32"), make.input((), "float32", domain=()))
    assert refused(ops.Cast, make.graph, make.add(ops.Cast("float32"), inner))


def test_numbers_that_are_not_neutral_stay(make: Make):
    x = make.input((), domain=())
    one, zero = make.number(1.0, "float32"), make.number(0.0, "float32")
    for fn, left, right in [("add", x, one), ("sub", zero, x), ("div", one, x), ("mul", x, zero), ("pow", one, x)]:
        assert refused(ops.Binary, make.graph, make.add(ops.Binary(fn), left, right)), fn
    assert refused(ops.Binary, make.graph, make.add(ops.Binary("div"), one, zero))


def test_a_row_of_positions_for_each_point_is_no_identity(make: Make):
    """`Iota` over a step, read over a range of it, is a matrix of positions."""
    node = make.graph.add(ops.Iota(Expr.of(2)), domain=Domain((t,)))
    x = make.input((Expr.of(2),), domain=())
    assert refused(ops.Gather, make.graph, make.add(ops.Gather(0), x, Edge(node.id, (full_range(t),))))


def test_a_branch_with_a_condition_stays(make: Make):
    x = make.input((), domain=(t,))
    merge = make.graph.add(ops.Merge(TensorType("float32")), [Edge(x.source, x.index, 0, t.expr >= 1), x], domain=Domain((t,)))
    assert refused(ops.Merge, make.graph, Edge(merge.id, x.index))
