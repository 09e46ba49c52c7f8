"""Dependences along steps: directions, nests of loops, branches as vertices."""

from __future__ import annotations

import doctest
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_core.ir import dependence
from tempo_core.ir.dependence import (
    Arc,
    Nest,
    Vertex,
    direction,
    forward_order,
    latest_levels,
    loop_nest,
    strongly_connected,
    vertices_of,
)
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Merge
from tempo_core.symbolic.expr import Symbol
from tests.graph_parser import parse

I, T = Symbol("i", "I"), Symbol("t", "T")


def parts(graph: Graph, some: Nest) -> Any:
    """A nest as lists of names; `h.1` is branch 1 of h, and a cycle that no loop carries is a set."""
    names = [
        parts(graph, part)
        if isinstance(part, Nest)
        else f"{graph[part.node].name}{f'.{part.branch}' if part.branch >= 0 else ''}"
        for part in some.parts
    ]
    return set(names) if some.cyclic else names


def nested(text: str, *steps: Symbol) -> Any:
    graph = parse("steps i<I t<T\n" + text)
    return parts(graph, loop_nest(graph, steps))


# -- directions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "along_i", "along_t"),
    [
        ("i, t", "=", "="),
        ("i, t - 1", "=", "<"),
        ("i + 2, t", ">", "="),
        ("i - 1, t + 1", "<", ">"),
        ("i, 0", "=", "<="),
        ("i, T - 1", "=", ">="),
        ("t, i", "*", "*"),
        ("i, T - t - 1", "=", "*"),
        ("i, (t//2)", "=", "<="),
        ("i, 2*(t//2)", "=", "<="),
        ("i, 3*(t//2)", "=", "*"),
        ("i, 2*(t//2) - 1", "=", "<"),
        ("i, (t%3)", "=", "<="),
        ("i, 2*t", "=", ">="),
        ("i, 2*t + 1", "=", ">"),
        ("i, max(t - 1, 0)", "=", "<="),
        ("i, min(t + 3, T - 1)", "=", ">="),
        ("i, 0:t", "=", "<"),
        ("i, 0:t + 1", "=", "<="),
        ("i, max(t - 3, 0):t + 1", "=", "<="),
        ("i, max(t - 3, 0):t", "=", "<"),
        ("i, t:T", "=", ">="),
        ("i, t + 1:T", "=", ">"),
        ("i, t:min(t + 3, T)", "=", ">="),
        ("i, 2*(t//2):min(2*(t//2) + 2, T)", "=", "*"),
        ("i, 2*(t//2):t + 1", "=", "<="),
        ("i, (t%2):t + 1:2", "=", "<="),
        ("i, t:T:3", "=", ">="),
        ("0:I, t", "*", "="),
    ],
)
def test_directions(index: str, along_i: str, along_t: str):
    graph = parse(
        f"""\
steps i<I t<T
%0 = Eval(value=i + t)() : int32[] over (i, t)
%1 = Identity()(%0[{index}]) : int32[] over (i, t)
"""
    )
    edge = graph[1].inputs[0]
    assert direction(graph, graph[1], edge, I) == along_i
    assert direction(graph, graph[1], edge, T) == along_t


def test_steps_that_one_side_lacks_have_no_direction():
    graph = parse(
        """\
steps i<I t<T
%0 = Eval(value=i)() : int32[] over (i)
%1 = Identity()(%0[i]) : int32[] over (i, t)
%2 = Reduce(fn="sum", axes=(0,))(%1[i, 0:T]) : int32[] over (i)
"""
    )
    assert direction(graph, graph[1], graph[1].inputs[0], T) == "*"
    assert direction(graph, graph[1], graph[1].inputs[0], I) == "="
    assert direction(graph, graph[2], graph[2].inputs[0], T) == "*"


# -- nests ------------------------------------------------------------------------------------------------------------

STATE = """\
%0 start = Constant(int32[], 1)() : int32[] over ()
%1 h = Merge(type=int32[])(%0 if t == 0, %2[i, t - 1] if t >= 1) : int32[] over (i, t)
%2 next = Unary(fn="neg")(%1[i, t]) : int32[] over (i, t)
%3 shown = Unary(fn="abs")(%2[i, t]) : int32[] over (i, t)
"""


def test_a_loop_over_a_step_carries_what_it_reads_of_earlier_points():
    assert nested(STATE, I, T) == ["start", "h.0", ["h.1", "next"], "shown"]


def test_a_step_that_carries_nothing_is_no_loop():
    assert nested(STATE, I) == ["start", "h.0", {"h.1", "next"}, "shown"]
    assert nested(STATE) == ["start", "h.0", {"h.1", "next"}, "shown"]


def test_loops_run_backwards_too():
    assert nested(STATE.replace("t == 0", "t + 1 == T").replace("t - 1] if t >= 1", "t + 1] if T >= t + 2"), T) == [
        "start", "h.0", ["h.1", "next"], "shown",
    ]  # fmt: skip


@pytest.mark.parametrize("index", ["i, T - t - 1", "i, 0", "i, 0:t + 1"])
def test_what_no_loop_carries_stays_a_cycle(index: str):
    text = STATE.replace("%2[i, t - 1]", "%4[i, t]") + f'%4 far = Reduce(fn="sum", axes=())(%2[{index}]) : int32[] over (i, t)\n'
    assert nested(text, I, T) == ["start", "h.0", {"next", "far", "h.1"}, "shown"]


TWO_LOOPS = """\
%0 start = Constant(int32[], 1)() : int32[] over ()
%1 w = Merge(type=int32[])(%0 if i == 0, %6[i - 1] if i >= 1) : int32[] over (i)
%2 free = Unary(fn="neg")(%1[i]) : int32[] over (i)
%3 h = Merge(type=int32[])(%2[i] if t == 0, %4[i, t - 1] if t >= 1) : int32[] over (i, t)
%4 next = Unary(fn="abs")(%3[i, t]) : int32[] over (i, t)
%5 last = Identity()(%4[i, T - 1]) : int32[] over (i)
%6 after = Binary(fn="add")(%5[i], %2[i]) : int32[] over (i)
"""


def test_loops_inside_loops():
    """If the loop over i carries the update of w, the loop over t is a separate part."""
    assert nested(TWO_LOOPS, I, T) == ["start", "w.0", ["w.1", "free", "h.0", ["h.1", "next"], "last", "after"]]


def test_a_step_that_one_of_them_lacks_cannot_be_the_outer_loop():
    """t cannot carry the outer cycle, because w has no t; i carries no dependence of the inner cycle."""
    assert nested(TWO_LOOPS, T) == ["start", "w.0", {"free", "h.0", "h.1", "next", "last", "after", "w.1"}]
    assert nested(TWO_LOOPS, I) == ["start", "w.0", ["w.1", "free", "h.0", {"h.1", "next"}, "last", "after"]]


def test_the_first_step_that_carries_something_is_the_outermost():
    both = STATE.replace("%2[i, t - 1] if t >= 1", "%2[i - 1, t - 1] if t >= 1")
    graph = parse("steps i<I t<T\n" + both)
    (inner,) = [p for p in loop_nest(graph, [I, T]).parts if isinstance(p, Nest)]
    assert [part.node for part in inner.parts if isinstance(part, Vertex)] == [1, 2]
    assert len(inner.arcs) == 1  # only the identity read remains; the read along both steps is carried


def test_the_arcs_of_a_nest_are_those_no_loop_around_carries():
    graph = parse("steps i<I t<T\n" + TWO_LOOPS)
    outer, over_i, over_t = loop_nest(graph, [I, T]).nests()
    assert Arc(Vertex(1, 1), 1, Vertex(6)) in outer.arcs
    assert Arc(Vertex(1, 1), 1, Vertex(6)) not in over_i.arcs
    assert Arc(Vertex(3, 1), 1, Vertex(4)) in over_i.arcs
    assert Arc(Vertex(3, 1), 1, Vertex(4)) not in over_t.arcs
    assert [len(n.vertices) for n in (outer, over_i, over_t)] == [9, 7, 2]


# -- branches ---------------------------------------------------------------------------------------------------------


def test_each_branch_of_a_merge_is_a_vertex():
    graph = parse("steps i<I t<T\n" + STATE)
    assert vertices_of(graph[1]) == [Vertex(1, 0), Vertex(1, 1)]
    assert vertices_of(graph[2]) == [Vertex(2)]


def test_a_read_does_not_meet_a_branch_that_cannot_define_its_point():
    """The first minibatch of an iteration reads the iteration before, and no later minibatch of its own iteration."""
    text = """\
%0 start = Constant(int32[], 1)() : int32[] over ()
%1 w = Merge(type=int32[])(%2[i] if t == 0, %3[i, t - 1] if t >= 1) : int32[] over (i, t)
%2 first = Binary(fn="add")(%0, %4[i]) : int32[] over (i)
%3 next = Unary(fn="neg")(%1[i, t]) : int32[] over (i, t)
%4 begin = Merge(type=int32[])(%0 if i == 0, %5[i - 1] if i >= 1) : int32[] over (i)
%5 seen = Identity()(%1[i, 0]) : int32[] over (i)
"""
    assert nested(text, I, T) == ["start", "begin.0", ["begin.1", "first", "w.0", "seen"], ["w.1", "next"]]


def test_branches_that_read_each_other_at_one_point_are_no_cycle():
    """Even and odd points: the index alone does not say which branch a read meets, so it may meet both."""
    text = """\
%0 start = Constant(int32[], 1)() : int32[] over ()
%1 a = Merge(type=int32[])(%0 if t == 0, %1[i, 0] if t == 1, %1[i, 1] if t >= 2) : int32[] over (i, t)
"""
    assert nested(text, I) == ["start", "a.0", "a.1", "a.2"]


def test_a_loop_carries_ranges_of_the_past():
    """A slice of the strict past binds nothing inside the loop; a slice up to the present does."""
    text = STATE + '%4 past = Reduce(fn="sum", axes=(0,))(%2[i, 0:t]) : int32[] over (i, t)\n'
    with_past = text.replace("(%1[i, t])", "(%4[i, t])")
    assert nested(with_past, I, T) == ["start", "h.0", ["past", "next"], "h.1", "shown"]
    present = (
        STATE.replace("(%1[i, t])", "(%4[i, t])")
        + '%4 past = Reduce(fn="sum", axes=(0,))(%1[i, 0:t + 1]) : int32[] over (i, t)\n'
    )
    assert nested(present, I, T) == ["start", "h.0", ["h.1", "past", "next"], "shown"]


def test_a_range_may_meet_every_branch():
    text = """\
%0 start = Constant(int32[], 1)() : int32[] over ()
%1 a = Merge(type=int32[])(%0 if t == 0, %2[i, t] if t >= 1) : int32[] over (i, t)
%2 past = Reduce(fn="sum", axes=(0,))(%1[i, 0:t]) : int32[] over (i, t)
"""
    assert nested(text, I, T) == ["start", "a.0", ["past", "a.1"]]


# -- orders -----------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))))
)
def test_strongly_connected_components(drawn: tuple[int, set[tuple[int, int]]]):
    """A check against reachability, point by point; sources come before readers."""
    count, reads = drawn
    vertices = [Vertex(k) for k in range(count)]
    components = strongly_connected(vertices, [(Vertex(reader), Vertex(source)) for reader, source in reads])
    reaches = {(a, b): a == b or (a, b) in reads for a, b in itertools.product(range(count), repeat=2)}
    for via, a, b in itertools.product(range(count), repeat=3):
        reaches[a, b] |= reaches[a, via] and reaches[via, b]
    assert sorted(v.node for members in components for v in members) == list(range(count))
    component = {v.node: k for k, members in enumerate(components) for v in members}
    for a, b in itertools.product(range(count), repeat=2):
        assert (component[a] == component[b]) == (reaches[a, b] and reaches[b, a])
        if reaches[a, b]:
            assert component[b] <= component[a]


def test_forward_order_puts_operands_first_except_a_merges():
    graph = parse("steps i<I t<T\n" + TWO_LOOPS)
    order = forward_order(graph)
    assert sorted(order) == sorted(graph.nodes)
    for node in graph:
        for edge in () if isinstance(node.op, Merge) else node.inputs:
            assert order.index(edge.source) < order.index(node.id)


def test_levels_are_as_late_as_readers_allow():
    """A source without sources waits for its reader; a value without readers comes as early as possible."""
    costs = {0: {}, 1: {0: 1}, 2: {}, 3: {1: 1, 2: 0}, 4: {0: 1}, 5: {}}
    assert latest_levels(costs) == {0: 0, 1: 1, 2: 2, 3: 2, 4: 1, 5: 0}
    assert doctest.testmod(dependence).failed == 0
