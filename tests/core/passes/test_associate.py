"""associate: the factors of a chain of products are multiplied in the order with the fewest operations."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.ops import Dot, Permute
from tempo_core.passes.base import renumbered
from tempo_core.passes.order.associate import Associate, inner_products
from tempo_core.passes.order.chains import Tree, chain, members
from tempo_core.passes.order.chains import products as pairs
from tests import reference
from tests.core.passes.support import Golden, after, check, ops_of
from tests.core.running import assert_all_same
from tests.graph_parser import parse

DOT = "left_contract=(1,), right_contract=(0,)"

# A[32, 16] @ B[16, t] @ C[t, 8], at each t
ISSUE = f"""\
steps t<T
%0 A = Input(name="A", dtype="float32", shape=(32, 16))() : float32[32, 16] over ()
%1 = Input(name="B", dtype="float32", shape=(16, T))() : float32[16, T] over ()
%2 = Input(name="C", dtype="float32", shape=(T, 8))() : float32[T, 8] over ()
%3 B = Slice(axis=1, start=0, stop=t)(%1) : float32[16, t] over (t)
%4 C = Slice(axis=0, start=0, stop=t)(%2) : float32[t, 8] over (t)
%5 = Dot({DOT})(%0, %3[t]) : float32[32, t] over (t)
%6 y = Dot({DOT})(%5[t], %4[t]) : float32[32, 8] over (t)
%7 = Output(position=0)(%6[0:T]) over ()
"""


def vectors(*, first: bool = True) -> str:
    """(A @ B) @ x, or A @ (B @ x), for constant matrices and a vector at each t."""
    last = f"%4 y = Dot({DOT})(%3, %2[t])" if first else f"%4 y = Dot({DOT})(%0, %3[t])"
    inner = f"%3 = Dot({DOT})(%0, %1) : float32[6, 6] over ()" if first else f"%3 = Dot({DOT})(%1, %2[t]) : float32[40] over (t)"
    return f"""\
steps t<T
%0 A = Input(name="A", dtype="float32", shape=(6, 40))() : float32[6, 40] over ()
%1 B = Input(name="B", dtype="float32", shape=(40, 6))() : float32[40, 6] over ()
%2 x = Input(name="x", dtype="float32", shape=(6,))() : float32[6] over (t)
{inner}
{last} : float32[6] over (t)
%5 = Output(position=0)(%4[0:T]) over ()
"""


def is_changed(graph: Graph, text: str) -> bool:
    return to_text(graph) != to_text(renumbered(parse(text)))


def test_an_order_that_is_best_at_some_points_only_is_not_taken():
    """768 t operations, or 128 t + 4096: the second order has fewer from t = 7 on."""
    assert not is_changed(after(ISSUE, Associate(loops=True)), ISSUE)
    assert not is_changed(after(ISSUE, Associate(but=("t",))), ISSUE)


def test_a_size_that_varies_is_its_largest_where_all_points_are_computed_at_once(golden: Golden):
    """768 (T - 1) operations at each point, or 128 (T - 1) + 4096: the second order has fewer from T = 8 on."""
    check(golden, "associate", ISSUE, Associate(), bounds={"T": 10})


@pytest.mark.parametrize("first", [True, False])
def test_a_product_of_constants_counts_once(first: bool, golden: Golden):
    """Either 960 operations a point, or 2880 once and 72 a point: the second from 4 points on."""
    name = f"associate_constants_{'first' if first else 'last'}"
    graph = check(golden, name, vectors(first=first), Associate(), bounds={"T": 5})
    assert sorted(len(node.domain.steps) for node in graph if isinstance(node.op, Dot)) == [0, 1]


def test_vectors_are_multiplied_first(golden: Golden):
    text = f"""\
steps t<T
%0 A = Input(name="A", dtype="float32", shape=(8, 7))() : float32[8, 7] over ()
%1 B = Input(name="B", dtype="float32", shape=(7, 9))() : float32[7, 9] over ()
%2 C = Input(name="C", dtype="float32", shape=(9, 5))() : float32[9, 5] over ()
%3 x = Input(name="x", dtype="float32", shape=(5,))() : float32[5] over ()
%4 = Dot({DOT})(%0, %1) : float32[8, 9] over ()
%5 = Dot({DOT})(%4, %2) : float32[8, 5] over ()
%6 y = Dot({DOT})(%5, %3) : float32[8] over ()
%7 = Output(position=0)(%6) over ()
"""
    graph = check(golden, "associate_vectors", text, Associate())
    assert all(node.outputs[0].rank == 1 for node in graph if isinstance(node.op, Dot))


BATCHES = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(4, 2, 1))() : float32[4, 2, 1] over (t)
%1 y = Input(name="y", dtype="float32", shape=(2, 1, 6))() : float32[2, 1, 6] over (t)
%2 z = Input(name="z", dtype="{dtype}", shape=(3, 2, 6))() : {dtype}[3, 2, 6] over ()
%3 = Dot(left_contract=(2,), right_contract=(1,), left_batch=(1,), right_batch=(0,))(%0[t], %1[t]) : float32[2, 4, 6] over (t)
%4 = Permute(order=(1, 0, 2))(%3[t]) : float32[4, 2, 6] over (t)
%5 w = Dot(left_contract=(2,), right_contract=(2,), left_batch=(1,), right_batch=(1,))(%4[t], %2) : float32[2, 4, 3] over (t)
%6 = Output(position=0)(%5[0:T]) over ()
"""


def test_batches_and_transpositions(golden: Golden):
    graph = check(golden, "associate_batches", BATCHES.format(dtype="float32"), Associate())
    assert all(node.outputs[0].shape[0] == 2 for node in graph if isinstance(node.op, Dot)), "the batch stays the first dimension"
    assert ops_of(graph, Permute) == []


def test_numbers_of_few_bits_and_integers_stay_in_their_order():
    for dtype in ("bfloat16", "int32"):
        text = BATCHES.format(dtype="float32").replace("float32", dtype)
        assert not is_changed(after(text, Associate()), text)


@pytest.mark.parametrize(
    "read",
    [
        "%9 = Output(position=1)(%3[0:T]) over ()\n",
        '%8 = Unary(fn="exp")(%3[t]) : float32[2, 4, 6] over (t)\n%9 = Output(position=1)(%8[0:T]) over ()\n',
    ],
)
def test_a_product_with_another_reader_is_left_alone(read: str):
    text = BATCHES.format(dtype="float32") + read
    assert not is_changed(after(text, Associate()), text)


def test_a_product_that_is_read_at_another_point_is_left_alone():
    text = BATCHES.format(dtype="float32").replace("(%3[t])", "(%3[T - 1 - t])")
    assert not is_changed(after(text, Associate()), text)


def orders(first: int, last: int) -> list[Tree]:
    """All orders of a chain of matrices."""
    if first == last:
        return [first]
    return [pair for cut in range(first, last) for pair in itertools.product(orders(first, cut), orders(cut + 1, last))]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_all_orders_and_no_larger_product(seed: int):
    generator = np.random.default_rng(seed)
    sizes = [int(2**power) for power in generator.uniform(0, 8, 6)]
    ctx = tp.Context()
    with ctx:
        matrices = [tp.input(f"m{k}", shape) for k, shape in enumerate(itertools.pairwise(sizes))]
        product = functools.reduce(operator.matmul, matrices)
    root = ctx.graph[product.node.id]
    products = chain(ctx.graph, root, inner_products(ctx.graph))
    assert products is not None and len(products.factors) == 5

    def work(tree: Tree) -> int:
        return products.operations(tree).constant

    best = products.best({})
    assert work(best) == min(map(work, orders(0, 4)))
    elements = [sizes[min(group)] * sizes[max(group) + 1] for pair in pairs(best) for group in map(members, pair)]
    largest = [sizes[k] * sizes[k + 1] for k in range(5)] + [sizes[0] * sizes[5]]
    assert max(elements) <= max(largest)


def test_orders_that_are_each_best_for_some_large_bounds_leave_it_as_written():
    """I * I * 4 and T * 4 each win somewhere, for as large bounds as you like."""
    text = f"""\
steps i<I t<T
%0 a = Input(name="a", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%1 b = Input(name="b", dtype="float32", shape=(T, I))() : float32[T, I] over ()
%2 c = Input(name="c", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%3 = Dot({DOT})(%0, %1) : float32[I, I] over ()
%4 y = Dot({DOT})(%3, %2) : float32[I, T] over ()
%5 = Output(position=0)(%4) over ()
"""
    assert not is_changed(after(text, Associate()), text)


def fed(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def test_operations_are_those_of_the_best_order():
    """960 operations at each point as it is written; a product of the constant matrices is 2880 once and 72 at each point.

    To gather the vector takes 6 more.
    """
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, b, x = tp.input("A", (6, 40)), tp.input("B", (40, 6)), tp.input("x", (6,), domain=(t,))
        y = a @ (b @ x)
    data = fed({"A": (6, 40), "B": (40, 6), "x": (20, 6)})
    config = tp.Config(backend="numpy", disable=("pad", "vectorize"))
    program = ctx.compile({T: 20}, [y], config)
    assert program.cost().numbers["operations"] == 2880 + (72 + 6) * 20
    as_written = ctx.compile({T: 20}, [y], tp.Config(backend="numpy", disable=("pad", "vectorize", "associate")))
    assert as_written.cost().numbers["operations"] == (960 + 6) * 20
    assert_all_same(program.run(data), reference.evaluate(ctx, [y], {T: 20}, data))
    assert "72*T + 2880 operations in all, not 960*T" in str(program.explain())


def recurrent() -> tuple[tp.Context, tp.Expr, list[tp.Tensor]]:
    """A chain with growing slices in a loop, one with constant matrices, and the gradient of both."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, b, x = tp.input("A", (6, 4)), tp.input("B", (4, 6)), tp.input("x", (6,), domain=(t,))
        h = tp.recurrence((6,), domain=(t,), name="h")
        h[0] = x[0]
        seen = x[0:t]
        grown = (tp.outer(h, tp.ones((3,))) @ tp.ones((3, 6)) @ seen.transpose()) @ seen
        h[t + 1] = tp.tanh((a @ (b @ h) + grown.sum(0)) * 0.1 + x[t + 1])
        return ctx, T, [h, *tp.grad((h * h)[0:T].sum(), [a, b, x])]


def test_values_and_gradients_in_a_loop():
    ctx, T, tensors = recurrent()
    data = fed({"A": (6, 4), "B": (4, 6), "x": (9, 6)})
    expected = reference.evaluate(ctx, tensors, {T: 9}, data)
    assert_all_same(ctx.run({T: 9}, tensors, data), expected)


def test_the_gradient_of_a_weight_is_a_chain_too():
    """x.T @ (g @ v.T), over all points: 2 * 64 * T * (2 + 8) operations as it is written, 2 * 8 * 2 * (T + 64) in the other order."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w, v, x = tp.input("w", (8, 64)), tp.input("v", (64, 2)), tp.input("x", (8,), domain=(t,))
        loss = (tp.tanh(x @ w @ v) ** 2).sum()[0:T].mean()
        tensors = [loss, *tp.grad(loss, [w])]
    data = fed({"w": (8, 64), "v": (64, 2), "x": (50, 8)})
    program = ctx.compile({T: 50}, tensors)
    assert_all_same(program.run(data), reference.evaluate(ctx, tensors, {T: 50}, data))
    products = 2 * 8 * 2 * (64 + 50) * 2  # forwards and backwards
    assert products < program.cost().numbers["operations"] < products + 2000


def test_a_bound_that_a_run_chooses():
    """One order serves all bounds."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, b, c = tp.input("A", (32, 16)), tp.input("B", (16, T)), tp.input("C", (T, 8))
        y = (a @ b.spatial[:, 0:t]) @ c.spatial[0:t]
    program = ctx.compile({T: tp.upto(12)}, [y])
    assert "multiplied as `" in str(program.explain())
    for bound in (1, 7, 8, 12):
        data = fed({"A": (32, 16), "B": (16, bound), "C": (bound, 8)})
        assert_all_same(program.run(data, bounds={T: bound}), reference.evaluate(ctx, [y], {T: bound}, data), 1e-5)
    assert program.compiles == 1


def test_a_bound_that_a_run_finds_out():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, b, x = tp.input("A", (6, 40)), tp.input("B", (40, 6)), tp.input("x", (6,), domain=(t,))
        y = a @ (b @ x)
        ctx.ends(t, when=x.sum() > 2.5)
    data = fed({"A": (6, 40), "B": (40, 6), "x": (9, 6)})
    program = ctx.compile({T: 9}, [y])
    assert_all_same(program.run(data), ctx.compile({T: 9}, [y], tp.Config(disable=("associate",))).run(data), 1e-5)
