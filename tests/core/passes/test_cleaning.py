"""dce, cse and narrow remove values that nobody reads, equal values, and points that nobody reads."""

from __future__ import annotations

import pytest

from tempo_core.ir.ops import Binary, Constant, Eval, Reduce, Udf, Unary
from tempo_core.passes.clean.cse import Cse
from tempo_core.passes.clean.dce import Dce
from tempo_core.passes.clean.narrow import Narrow
from tests.core.passes.support import Golden, after, check, ops_of

DEAD = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 unread = Input(name="unread", dtype="float32", shape=(T,))() : float32[T] over ()
%2 = Unary(fn="exp")(%0) : float32[T] over ()
%3 = Unary(fn="log")(%1) : float32[T] over ()
%4 loop = Merge(type=float32[T])(%0 if t == 0, %5[t - 1] if t >= 1) : float32[T] over (t)
%5 = Unary(fn="neg")(%4[t]) : float32[T] over (t)
%6 counted = Udf(fn="count", types=(float32[],), kind="host", stateful=True)(%7[t]) : float32[] over (t)
%7 = Eval(value=t)() : int32[] over (t)
%8 = Udf(fn="count", types=(float32[],), kind="host")(%7[t]) : float32[] over (t)
%9 = Sink(fn="count")(%7[t]) over (t) where t >= 2
%10 = Output(position=0)(%2) over ()
"""


def count(*arrays, **point):
    return arrays


def test_dce_keeps_outputs_sinks_and_stateful_functions(golden: Golden):
    graph = check(golden, "dce", DEAD, Dce(), count=count)
    assert [op.stateful for op in ops_of(graph, Udf)] == [True]


TWICE = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 4))() : float32[T, 4] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 again = Eval(value=t)() : int32[] over (t)
%3 = Gather(axis=0)(%0, %1[t]) : float32[4] over (t)
%4 = Gather(axis=0)(%0, %2[t]) : float32[4] over (t)
%5 = Unary(fn="exp")(%3[t]) : float32[4] over (t)
%6 = Unary(fn="exp")(%4[t]) : float32[4] over (t)
%7 = Unary(fn="exp")(%4[T - t - 1]) : float32[4] over (t)
%8 same = Binary(fn="add")(%5[t], %6[t]) : float32[4] over (t)
%9 mirrored = Binary(fn="add")(%5[t], %6[T - t - 1]) : float32[4] over (t)
%10 other = Binary(fn="add")(%3[t], %7[t]) : float32[4] over (t)
%11 = Output(position=0)(%8[0:T]) over ()
%12 = Output(position=1)(%9[0:T]) over ()
%13 = Output(position=2)(%10[0:T]) over ()
"""


def test_cse_compares_operands_with_their_index(golden: Golden):
    """One operation on two reads of one source is two values."""
    graph = check(golden, "cse", TWICE, Cse())
    assert len(ops_of(graph, Binary)) == 3  # x[t] + y[t], x[t] + y[T-1-t] and x[t] + exp(y[T-1-t]) are three values
    assert len(ops_of(graph, Unary)) == 2


DIFFERENT = {
    "parameters": ('Reduce(fn="sum", axes=(0,))', 'Reduce(fn="max", axes=(0,))'),
    "index": ("(%1[0:t + 1]) : float32[] over (t)\n%4", "(%1[t:T]) : float32[] over (t)\n%4"),
    "stride": ("(%1[0:t + 1]) : float32[] over (t)\n%4", "(%1[0:t + 1:2]) : float32[] over (t)\n%4"),
    "domain": ("(%1[0:t + 1]) : float32[] over (t)\n%4", "(%1[0:t + 1]) : float32[] over (t) where t >= 1\n%4"),
}


@pytest.mark.parametrize("what", ["nothing", *DIFFERENT])
def test_cse_wants_everything_equal(what: str):
    text = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Cast(dtype="float32")(%0[t]) : float32[] over (t)
%2 = Reduce(fn="sum", axes=(0,))(%1[0:t + 1]) : float32[] over (t)
%3 = Reduce(fn="sum", axes=(0,))(%1[0:t + 1]) : float32[] over (t)
%4 = Output(position=0)(%2[1:T]) over ()
%5 = Output(position=1)(%3[1:T]) over ()
"""
    if what != "nothing":
        old, new = DIFFERENT[what]
        assert old in text
        text = new.join(text.rsplit(old, 1))
    assert len(ops_of(after(text, Cse()), Reduce)) == (1 if what == "nothing" else 2)


def test_cse_keeps_calls_with_a_state_and_the_outputs_of_a_function_apart():
    text = """\
steps t<T
%0 = Udf(fn="count", types=(float32[], float32[]), kind="host", stateful=True)() : float32[], float32[] over (t)
%1 = Udf(fn="count", types=(float32[], float32[]), kind="host", stateful=True)() : float32[], float32[] over (t)
%2 = Udf(fn="count", types=(float32[], float32[]))() : float32[], float32[] over (t)
%3 = Udf(fn="count", types=(float32[], float32[]))() : float32[], float32[] over (t)
%4 = Unary(fn="exp")(%2[t].1) : float32[] over (t)
%5 = Unary(fn="exp")(%3[t]) : float32[] over (t)
%6 = Unary(fn="exp")(%3[t].1) : float32[] over (t)
%7 = Output(position=0)(%4[0:T]) over ()
%8 = Output(position=1)(%5[0:T]) over ()
%9 = Output(position=2)(%6[0:T]) over ()
"""
    graph = after(text, Cse(), functions={"count": count})
    assert [op.stateful for op in ops_of(graph, Udf)].count(True) == 2
    assert len(ops_of(graph, Udf)) == 3
    assert len(ops_of(graph, Unary)) == 2


WIDE = """\
steps i<I t<T
%0 w = Input(name="w", dtype="float32", shape=(I,))() : float32[I] over ()
%1 = Eval(value=i)() : int32[] over (i, t)
%2 = Gather(axis=0)(%0, %1[i, t]) : float32[] over (i, t)
%3 = Unary(fn="exp")(%2[i, t]) : float32[] over (i, t)
%4 conditioned = Unary(fn="exp")(%2[i, t]) : float32[] over (i, t) where t >= 1
%5 ranged = Unary(fn="tanh")(%2[i, 0]) : float32[] over (i, t)
%6 counted = Cast(dtype="float32")(%7[i, t]) : float32[] over (i, t)
%7 = Eval(value=t)() : int32[] over (i, t)
%8 = Binary(fn="add")(%3[i, t], %6[i, t]) : float32[] over (i, t)
%9 = Reduce(fn="sum", axes=(0,))(%5[i, 0:T]) : float32[] over (i, t)
%10 state = Merge(type=float32[])(%4[i, T - 1] if t == 0, %9[i, t] if t >= 1) : float32[] over (i, t)
%11 = Output(position=0)(%8[0:I, 0:T]) over ()
%12 = Output(position=1)(%10[0:I, 0:T]) over ()
"""


def test_narrow_takes_out_steps_that_nothing_varies_with(golden: Golden):
    graph = check(golden, "narrow", WIDE, Narrow())
    domains = {node.name or str(node.op): str(node.domain) for node in graph}
    assert domains["conditioned"] == "(i)"  # its condition does not change its value
    assert domains["ranged"] == "(i, t)"  # a reader reads a range along t
    assert domains["counted"] == "(t)"
    assert domains["state"] == "(i, t)"


def test_narrow_computes_what_is_read_at_one_point_there_alone():
    text = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[] over (t)
%3 last = Unary(fn="exp")(%2[t]) : float32[] over (t)
%4 both = Unary(fn="sin")(%2[t]) : float32[] over (t)
%5 = Binary(fn="add")(%3[T - 1], %4[T - 1]) : float32[] over ()
%6 = Binary(fn="add")(%5, %4[0]) : float32[] over ()
%7 = Output(position=0)(%6) over ()
"""
    domains = {node.name: str(node.domain) for node in after(text, Narrow()) if node.name}
    assert domains == {"x": "()", "last": "()", "both": "(t)"}  # two points of `both` are read
    graph = after(text.replace("%4[0]", "%4[T - 1]"), Narrow())
    assert {str(node.domain) for node in graph} == {"()"}
    assert [str(n.op.value) for n in graph if isinstance(n.op, Eval)] == ["T - 1"]


def test_narrow_leaves_calls_on_the_host_where_they_are():
    text = """\
steps t<T
%0 = Constant(float32[], 1.0)() : float32[] over (t)
%1 = Udf(fn="count", types=(float32[],), kind="host")(%0[t]) : float32[] over (t)
%2 = Udf(fn="count", types=(float32[],))(%0[t]) : float32[] over (t)
%3 = Binary(fn="add")(%1[t], %2[t]) : float32[] over (t)
%4 = Output(position=0)(%3[0:T]) over ()
"""
    graph = after(text, Narrow(), functions={"count": count})
    assert {op.kind: str(node.domain) for node in graph for op in [node.op] if isinstance(op, Udf)} == {
        "host": "(t)",
        "jax": "()",
    }
    assert [str(n.domain) for n in graph if isinstance(n.op, Constant)] == ["()"]
