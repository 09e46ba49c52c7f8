"""fuse: islands of operations with one domain; no island depends on itself through a statement outside of it."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Constant, Dataflow, Udf
from tempo_core.ir.verify import InvalidGraphError, verify
from tempo_core.passes.keep.fuse import Fuse
from tempo_core.schedule import schedule
from tempo_core.symbolic.expr import Symbol
from tests.core.passes.support import Golden, after, check, ops_of, outputs
from tests.graph_parser import parse

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Eval(value=t)() : int32[] over (t)
%3 = Gather(axis=0)(%0, %1[i]) : float32[T] over (i)
%4 x = Gather(axis=0)(%3[i], %2[t]) : float32[] over (i, t)
"""


def islands(graph: Graph) -> list[list[str]]:
    """The content of each island: the names of its functions, or of its ops."""
    return [[getattr(op, "fn", type(op).__name__) for op, _, _ in island.body.instructions] for island in ops_of(graph, Dataflow)]


CHAIN = """\
%5 a = Unary(fn="exp")(%4[i, t]) : float32[] over (i, t)
%6 b = Binary(fn="add")(%5[i, t], %4[i, t]) : float32[] over (i, t)
%7 c = Binary(fn="mul")(%6[i, t], %5[i, t]) : float32[] over (i, t)
%8 = Output(position=0)(%6[0:I, 0:T]) over ()
%9 = Output(position=1)(%7[0:I, 0:T]) over ()
"""


def test_operations_of_one_domain_become_one(golden: Golden):
    graph = check(golden, "fuse", HEAD + CHAIN, Fuse())
    assert [len(island.body.results) for island in ops_of(graph, Dataflow)] == [2]
    assert {"exp", "add", "mul"} <= set(islands(graph)[0])


DETOURS = {
    "another time": '%6 b = Unary(fn="tanh")(%5[i, max(t - 1, 0)]) : float32[] over (i, t)',
    "a range": '%6 b = Reduce(fn="sum", axes=(0,))(%5[i, 0:t + 1 to T]) : float32[] over (i, t)',
    "the mirrored time": '%6 b = Unary(fn="tanh")(%5[i, T - t - 1]) : float32[] over (i, t)',
    "the host": '%6 b = Udf(fn="half", types=(float32[],), kind="host")(%5[i, t]) : float32[] over (i, t)',
    "fewer points": "%6 b = Merge(type=float32[])(%5[i, t] if t >= 1, %4[i, 0]) : float32[] over (i, t)",
}


def half(x):
    return (x * 0.5,)


@pytest.mark.parametrize("what", DETOURS)
def test_operations_that_reach_each_other_through_something_outside(what: str):
    """Exp and mul have one domain and an identity edge; through b, one must run before the other."""
    text = HEAD + CHAIN.replace('%6 b = Binary(fn="add")(%5[i, t], %4[i, t]) : float32[] over (i, t)', DETOURS[what])
    graph = after(text, Fuse(), functions={"half": half})
    assert not any({"exp", "mul"} <= set(island) for island in islands(graph))
    schedule(graph, {Symbol("I"): 2, Symbol("T"): 3})  # it has an order


LOOP = """\
%5 h = Merge(type=float32[])(%4[i, t] if t == 0, %9[i, t - 1] if t >= 1) : float32[] over (i, t)
%6 a = Unary(fn="exp")(%5[i, t]) : float32[] over (i, t)
%7 b = Binary(fn="add")(%6[i, t], %4[i, t]) : float32[] over (i, t)
%8 seen = Binary(fn="mul")(%6[i, t], %5[i, t]) : float32[] over (i, t)
%9 next = Unary(fn="tanh")(%7[i, t]) : float32[] over (i, t)
%10 = Output(position=0)(%8[0:I, 0:T]) over ()
"""


def test_islands_inside_a_loop(golden: Golden):
    graph = check(golden, "fuse_loop", HEAD + LOOP, Fuse())
    assert ["exp", "add", "tanh"] in islands(graph)  # operations that only read results of the loop are not part of its islands


OUTER = """\
%5 w = Merge(type=float32[])(%3 if i == 0, %9[i - 1] if i >= 1) : float32[] over (i)
%6 p = Unary(fn="sin")(%5[i]) : float32[] over (i)
%7 h = Merge(type=float32[])(%6[i] if t == 0, %8[i, t - 1] if t >= 1) : float32[] over (i, t)
%8 q = Binary(fn="mul")(%7[i, t], %6[i]) : float32[] over (i, t)
%9 r = Binary(fn="add")(%7[i, T - 1], %6[i]) : float32[] over (i)
%10 = Output(position=0)(%9[0:I]) over ()
"""


def test_a_loop_between_two_operations_keeps_them_apart():
    """sin runs before the loop over t and add after it, though both run once per iteration of i."""
    text = (HEAD + OUTER).replace("(%3 if i == 0", "(%4[0, 0] if i == 0")
    text = text.replace('%9 r = Binary(fn="add")(%7[i, T - 1], %6[i])', '%9 r = Binary(fn="add")(%8[i, T - 1], %6[i])')
    graph = after(text, Fuse())
    assert not any({"sin", "add"} <= set(island) for island in islands(graph))
    schedule(graph, {Symbol("I"): 2, Symbol("T"): 3})


def test_each_reader_has_constants_of_its_own(golden: Golden):
    """Constants, counters and repetitions are part of their readers' islands, and not statements."""
    text = (
        HEAD
        + """\
%5 = Constant(float32[], 2.0)() : float32[] over ()
%6 = Broadcast(shape=(3,), axes=())(%5) : float32[3] over ()
%7 = Eval(value=t)() : int32[] over (t)
%8 = Cast(dtype="float32")(%7[t]) : float32[] over (t)
%9 = Broadcast(shape=(3,), axes=())(%8[T - t - 1]) : float32[3] over (t)
%10 y = Binary(fn="mul")(%9[t], %6) : float32[3] over (t)
%11 z = Unary(fn="exp")(%6) : float32[3] over ()
%12 = Output(position=0)(%10[0:T]) over ()
%13 = Output(position=1)(%11) over ()
"""
    )
    graph = check(golden, "fuse_sources", text, Fuse())
    assert not any(isinstance(node.op, Constant) for node in graph)
    assert len(islands(graph)) == 2


def test_large_constants_are_not_repeated():
    numbers = ", ".join(["1.0"] * 16)
    text = f"""\
steps t<T
%0 = Constant(float32[16], [{numbers}])() : float32[16] over ()
%1 = Unary(fn="exp")(%0) : float32[16] over ()
%2 = Unary(fn="tanh")(%1) : float32[16] over ()
%3 = Output(position=0)(%2) over ()
"""
    assert "Constant" in islands(after(text, Fuse()))[0]
    wide = text.replace("float32[16], [" + numbers, "float32[4, 16], [" + ", ".join(["1.0"] * 64)).replace(
        "float32[16] over", "float32[4, 16] over"
    )
    graph = after(wide, Fuse())
    assert len(ops_of(graph, Constant)) + sum("Constant" in island for island in islands(graph)) == 1


def test_functions_with_a_state_are_statements():
    text = HEAD + CHAIN.replace('Unary(fn="exp")', 'Udf(fn="half", types=(float32[],), stateful=True)')
    graph = after(text, Fuse(), functions={"half": half})
    assert [op.stateful for op in ops_of(graph, Udf)] == [True]


def test_a_functions_outputs_leave_the_island_each():
    text = HEAD + CHAIN.replace(
        '%5 a = Unary(fn="exp")(%4[i, t]) : float32[]',
        '%5 a = Udf(fn="half", types=(float32[], float32[]))(%4[i, t]) : float32[], float32[]',
    ).replace("%6[0:I, 0:T]", "%5[0:I, 0:T].1")
    graph = after(text, Fuse(), functions={"half": lambda x: (x, x)})
    assert sorted(edge.output for node in graph if not node.outputs for edge in node.inputs) == [0, 1]


def test_a_broken_island_is_found_by_the_verifier():
    """The mistake that levels prevent: the same chain, fused by hand around its detour."""
    text = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Dataflow()(%0[t], %2[t]) : int32[] over (t) {
  $0 : int32[]
  $1 : int32[]
  $2 = Binary(fn="add")($0, $1) : int32[]
  give $2
}
%2 = Identity()(%1[max(t - 1, 0)]) : int32[] over (t)
%3 = Output(position=0)(%2[0:T]) over ()
"""
    with pytest.raises(InvalidGraphError, match="depends on itself with no Merge between"):
        after(text, Fuse())


@pytest.mark.parametrize("window", [None, 5])
def test_a_training_program_has_few_statements(window: int | None):
    from tests.core.programs import reinforce

    ctx, bounds, outputs = reinforce(window)
    on, off = (ctx.compile(bounds, outputs=outputs, config=tp.Config(disable=disabled)).graph for disabled in ((), ("fuse",)))
    verify(on)
    assert len(on) * 3 < len(off)


def test_a_range_of_repeated_values_is_a_repeated_range():
    """A loop keeps its vectors for all points, not the matrices that repeat them."""
    text = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(3,))() : float32[3] over ()
%1 h = Merge(type=float32[3])(%0 if t == 0, %2[t - 1] if t >= 1) : float32[3] over (t)
%2 = Unary(fn="tanh")(%1[t]) : float32[3] over (t)
%3 = Broadcast(shape=(2, 3), axes=(1,))(%2[t]) : float32[2, 3] over (t)
%4 = Unary(fn="exp")(%3[0:T]) : float32[T, 2, 3] over ()
%5 = Output(position=0)(%4) over ()
"""
    graph = after(text, Fuse())
    assert all(node.domain.steps == () for node in graph if any(type.rank >= 2 for type in node.outputs))
    for length in (1, 4):
        np.testing.assert_array_equal(outputs(graph, {"T": length})[0], outputs(parse(text), {"T": length})[0])
