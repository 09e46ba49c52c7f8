"""Tests of the engine of simplify; `test_rules.py` tests each rule with random numbers."""

from __future__ import annotations

from tempo_core.ir.graph_text import to_text
from tempo_core.ir.ops import Binary, Dot, Identity, Merge, Reduce
from tempo_core.passes.clean.simplify import Simplify
from tests.core.passes.support import Golden, after, check, ops_of

NEEDLESS = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2, 3))() : float32[T, 2, 3] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[2, 3] over (t)
%3 = Constant(float32[], 2.0)() : float32[] over ()
%4 = Constant(float32[], 0.5)() : float32[] over ()
%5 = Binary(fn="mul")(%3, %4) : float32[] over ()
%6 = Broadcast(shape=(2, 3), axes=())(%5) : float32[2, 3] over ()
%7 = Binary(fn="mul")(%2[t], %6) : float32[2, 3] over (t)
%8 = Reshape(shape=(6,))(%7[T - t - 1]) : float32[6] over (t)
%9 = Reshape(shape=(3, 2))(%8[t]) : float32[3, 2] over (t)
%10 = Permute(order=(1, 0))(%9[t]) : float32[2, 3] over (t)
%11 = Dot(left_contract=(1,), right_contract=(1,))(%10[t], %7[t]) : float32[2, 2] over (t)
%12 = Reduce(fn="sum", axes=(0,))(%11[t]) : float32[2] over (t)
%13 = Reduce(fn="sum", axes=(0,))(%12[t]) : float32[] over (t)
%14 = Output(position=0)(%13[0:T]) over ()
"""


def test_simplify(golden: Golden):
    graph = check(golden, "simplify", NEEDLESS, Simplify())
    assert not ops_of(graph, Binary)
    assert [op.axes for op in ops_of(graph, Reduce)] == [(0, 1)]


ENDS = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[] over (t)
%3 = Constant(float32[], 0.0)() : float32[] over ()
%4 = Merge(type=float32[])(%2[0] if t == 0, %3) : float32[] over (t)
%5 = Merge(type=float32[])(%2[T - 1] if (T >= 2) & (t + 1 == T), %3) : float32[] over (t)
%6 = Binary(fn="add")(%4[t], %5[t]) : float32[] over (t)
%7 = Output(position=0)(%6[0:T]) over ()
"""


def test_contributions_at_both_ends_are_one_selection():
    graph = after(ENDS, Simplify())
    (merge,) = (node for node in graph if isinstance(node.op, Merge))
    assert [str(edge.index[0]) for edge in merge.inputs[:2]] == ["t", "t"] and not ops_of(graph, Binary)


BATCHED = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 7, 3))() : float32[T, 7, 3] over ()
%1 y = Input(name="y", dtype="float32", shape=(T, 7, 2))() : float32[T, 7, 2] over ()
%2 = Dot(left_contract=(1,), right_contract=(1,), left_batch=(0,), right_batch=(0,))(%0, %1) : float32[T, 3, 2] over ()
%3 = Reduce(fn="sum", axes=(0,))(%2) : float32[3, 2] over ()
%4 = Output(position=0)(%3) over ()
"""


def test_a_sum_over_the_batch_of_a_product_is_one_product(golden: Golden):
    """The gradient of weights stays a matrix product after vectorization."""
    graph = check(golden, "simplify_dot", BATCHED, Simplify())
    assert not ops_of(graph, Reduce)
    assert [op.left_contract for op in ops_of(graph, Dot)] == [(1, 0)]


UNREACHABLE = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Identity()(%0[T - t - 1]) : int32[] over (t)
%2 = Output(position=0)(%1[0:T]) over ()
"""


def test_a_reader_that_cannot_look_through_keeps_what_it_reads():
    """A slice of a mirrored view is not a slice; the rule applies once, and changes nothing."""
    graph = after(UNREACHABLE, Simplify())
    assert len(ops_of(graph, Identity)) == 1
    assert to_text(graph) == UNREACHABLE


def test_simplify_ends_where_nothing_changes():
    once = to_text(after(NEEDLESS, Simplify()))
    assert to_text(after(once, Simplify())) == once


def test_slices_of_a_simplified_value_are_slices_of_its_operand():
    text = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Cast(dtype="float32")(%0[t]) : float32[] over (t)
%2 = Identity()(%1[t - 1]) : float32[] over (t) where t >= 1
%3 = Reduce(fn="sum", axes=(0,))(%2[1:t + 1 to T]) : float32[] over (t) where t >= 1
%4 = Output(position=0)(%3[1:T]) over ()
"""
    assert "(%1[0:t to T])" in to_text(after(text, Simplify()))
