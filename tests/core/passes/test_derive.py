"""derive: what follows cheaply from a value that a loop keeps anyway is not kept too."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.passes.keep.derive import Derive
from tempo_core.prices import MOST_DERIVED_OPERATIONS
from tests import reference
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

HEAD = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(3,))() : float32[3] over ()
%1 h = Merge(type=float32[3])(%0 if t == 0, %9[t] if t >= 1) : float32[3] over (t)
"""
TAIL = """\
%9 next = Binary(fn="add")(%8[t], %1[t - 1]) : float32[3] over (t) where t >= 1
%10 = Output(position=0)(%1[0:T]) over ()
"""
NEGATED = """\
%2 negated = Unary(fn="neg")(%1[t]) : float32[3] over (t)
%8 turned = Merge(type=float32[3])(%2[t - 1] if t >= 2, %0) : float32[3] over (t)
"""


def read_at_neighbours(graph: Graph) -> set[str]:
    """The nodes that are read at another point than the reader's own."""
    edges = [edge for node in graph for edge in node.inputs if not edge.is_own_point(graph[edge.source].domain)]
    return {graph[edge.source].name for edge in edges}


def test_a_value_that_follows_from_the_kept_one_is_computed_by_its_reader(golden: Golden) -> None:
    graph = check(golden, "derive", HEAD + NEGATED + TAIL, Derive())
    assert read_at_neighbours(graph) == {"h"}


@pytest.mark.parametrize(
    "op", ['Unary(fn="exp")(%1[t])', 'Binary(fn="div")(%0, %1[t])', "Gather(axis=0)(%0, %3[t])"], ids=["exp", "div", "gather"]
)
def test_what_costs_more_is_kept(op: str) -> None:
    text = HEAD + "%3 = Iota(size=3)() : int32[3] over (t)\n" + NEGATED.replace('Unary(fn="neg")(%1[t])', op) + TAIL
    assert read_at_neighbours(after(text, Derive())) == {"h", "negated"}


def test_long_chains_are_kept() -> None:
    chain = NEGATED.replace("%2 negated", "%20").replace("%2[", "%20[")
    for k in range(20, 20 + MOST_DERIVED_OPERATIONS):
        chain = chain.replace("%8 turned", f'%{k + 1} = Binary(fn="add")(%{k}[t], %0) : float32[3] over (t)\n%8 turned')
    chain = chain.replace("(%20[t - 1] if", f"(%{20 + MOST_DERIVED_OPERATIONS}[t - 1] if")
    assert len(read_at_neighbours(after(HEAD + chain + TAIL, Derive()))) == 2
    shorter = chain.replace(f"(%{20 + MOST_DERIVED_OPERATIONS}[t - 1] if", f"(%{19 + MOST_DERIVED_OPERATIONS}[t - 1] if")
    assert read_at_neighbours(after(HEAD + shorter + TAIL, Derive())) == {"h"}


def test_a_value_that_is_kept_for_other_readers_stays() -> None:
    more = "%11 = Output(position=1)(%2[0:T]) over ()\n"
    assert "negated" in read_at_neighbours(after(HEAD + NEGATED + TAIL + more, Derive()))


def test_a_value_of_another_distance_is_no_reason() -> None:
    text = (HEAD + NEGATED + TAIL).replace("%1[t - 1])", "%0)")
    assert read_at_neighbours(after(text, Derive())) == {"h", "negated"}, "the result reads all of h"


def test_gradients_of_a_stencil_keep_one_value() -> None:
    """The three products of the gradient are computed by the sum that reads them."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, n_k), (i, n_i)):
        start = tp.input("start", domain=(i,))
        u = tp.recurrence((), domain=(k, i), name="u")
        u[0, i] = start
        u[k, 0] = u[k - 1, 0]
        u[k, n_i - 1] = u[k - 1, n_i - 1]
        u[k, i] = u[k - 1, i] + 0.2 * (u[k - 1, i - 1] - 2 * u[k - 1, i] + u[k - 1, i + 1])
        (gradient,) = tp.grad((u[n_k - 1, i] ** 2)[0:n_i].sum(0), wrt=[start])
    stores = [
        len(ctx.compile({n_k: 5, n_i: 6}, [gradient], tp.Config(disable=off)).scheduled.storage) for off in ((), ("derive",))
    ]
    assert stores[0] < stores[1]
    for sizes in ((5, 6), (2, 3), (3, 1), (1, 2)):
        bounds, inputs = (
            {n_k: sizes[0], n_i: sizes[1]},
            {"start": np.random.default_rng(0).normal(size=sizes[1]).astype("float32")},
        )
        expected = reference.evaluate(ctx, [gradient], bounds, inputs)
        assert_all_same(ctx.run(bounds, outputs=[gradient], inputs=inputs), expected)
