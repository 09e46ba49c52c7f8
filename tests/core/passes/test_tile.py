"""tile: reductions run tile by tile; values that only they read are computed in tiles, and only as many as there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.ops import Binary, Dot, Gather, Merge, Reduce
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.passes.shapes.pad import Pad
from tempo_core.passes.tiles.tile import Tile
from tempo_core.schedule import Loop, walk
from tests import reference
from tests.core.passes.support import Golden, after, check, ops_of, outputs
from tests.core.running import assert_all_same
from tests.graph_parser import parse

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 x = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
"""

WHOLE = """\
%3 y = Unary(fn="exp")(%2[0:T]) : float32[T, 2] over ()
%4 total = Reduce(fn="sum", axes=(0,))(%3) : float32[2] over ()
%5 = Output(position=0)(%4) over ()
"""

PREFIX = """\
%3 y = Unary(fn="exp")(%2[0:t + 1]) : float32[t + 1, 2] over (t)
%4 high = Reduce(fn="max", axes=(0,))(%3[t]) : float32[2] over (t)
%5 = Output(position=0)(%4[0:T]) over ()
"""


def domains(graph: Graph, *kinds: type) -> list[str]:
    return [str(node.domain) for node in graph if isinstance(node.op, kinds)]


def sizes(size: int) -> Tile:
    return Tile(sizes=(("t", size),))


def test_a_whole_dimension(golden: Golden):
    graph = check(golden, "tile", HEAD + WHOLE, sizes(2))
    assert domains(graph, ops.Unary, Reduce) == ["(t_tile)", "(t_tile)"]
    assert [str(e) for e in graph.derived.values()] == ["((T + 1)//2)"]


def test_a_padded_dimension_is_computed_as_far_as_it_goes(golden: Golden):
    graph = check(golden, "tile_prefix", HEAD + PREFIX, Pad(), sizes(2))
    assert domains(graph, Reduce) == ["(t, t_tile) where t >= 2*t_tile"]


@pytest.mark.parametrize("bound", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("program", [WHOLE, PREFIX], ids=["whole", "prefix"])
def test_any_size_of_tiles(program: str, size: int, bound: int):
    before = parse(HEAD + program)
    changed = after(HEAD + program, Pad(), sizes(size))
    numbers = {"I": 1, "T": bound}
    assert_all_same(outputs(changed, numbers), outputs(before, numbers))


SHARED = """\
%3 y = Unary(fn="exp")(%2[0:T]) : float32[T, 2] over ()
%4 total = Reduce(fn="sum", axes=(0,))(%3) : float32[2] over ()
%5 = Output(position=0)(%4) over ()
%6 = Output(position=1)(%3) over ()
"""


def test_what_others_read_too_is_not_computed_twice():
    graph = after(HEAD + SHARED, sizes(2))
    assert domains(graph, ops.Unary) == ["()"], "nothing is gained where the whole is there"
    assert not ops_of(graph, Merge)


CONTRACTION = """\
%3 y = Unary(fn="exp")(%2[0:T]) : float32[T, 2] over ()
%4 = Dot(left_contract=(0,), right_contract=(0,))(%0, %3) : float32[2, 2] over ()
%5 = Output(position=0)(%4) over ()
"""


def test_a_contraction(golden: Golden):
    graph = check(golden, "tile_dot", HEAD + CONTRACTION, sizes(2))
    assert domains(graph, Dot) == ["(t_tile)"]
    assert any(isinstance(op, Binary) and op.fn == "add" for op in ops_of(graph, Binary))
    assert ops_of(graph, Gather), "of what is there as a whole, tiles are taken"


def test_only_the_named_step_and_only_what_may_not_fit():
    text = HEAD + WHOLE
    assert to_text(after(text, Tile(sizes=(("i", 2),)))) == to_text(after(text))
    window = HEAD + PREFIX.replace("0:t + 1", "max(t - 2, 0):t + 1").replace(
        "float32[t + 1, 2]", "float32[t - max(t - 2, 0) + 1, 2]"
    )
    assert not ops_of(after(window, Pad(), sizes(3)), Merge), "three points fit in a tile of three"
    assert ops_of(after(window, Pad(), sizes(2)), Merge)


def test_a_graph_with_made_steps_is_its_text():
    graph = after(HEAD + WHOLE, sizes(2))
    again = parse(to_text(graph))
    assert to_text(again) == to_text(graph)
    assert again.derived == graph.derived


def attention():
    """Each step attends to all steps before it; the prefix grows, and with it the number of its tiles."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        key = tp.recurrence((4,), domain=(t,), name="key")
        key[0] = x[0]
        seen = key[0 : t + 1]
        weights = (seen @ x).softmax(-1)
        key[t + 1] = (weights.reshape(1, t + 1) @ seen).reshape(4).tanh() + x[t + 1]
    return ctx, T, key


def test_attention_over_a_growing_prefix():
    ctx, T, key = attention()
    data = {"x": np.random.default_rng(0).normal(size=(7, 4)).astype("float32")}
    expected = reference.evaluate(ctx, [key], {T: 7}, data)
    for size in (1, 2, 3, 8):
        assert_all_same(ctx.run({T: 7}, [key], data, tp.Config(backend="numpy", tile={"t": size})), expected)
    assert_all_same(ctx.run({T: 7}, [key], data, tp.Config(tile={"t": 2})), expected)
    program = ctx.compile({T: 7}, [key], tp.Config(tile={"t": 2}))
    stops = {str(item.stop) for item in walk(program.scheduled.root) if isinstance(item, Loop)}
    assert "(t//2) + 1" in stops, "as many tiles as there are"


def test_gradients_of_what_is_tiled():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,), requires_grad=True)
        scores = (x * x[0]).sum(-1)
        loss = (scores[0:T].softmax(-1) * scores[0:T].tanh()).sum(0)
        loss.backward()
    data = {"x": np.random.default_rng(1).normal(size=(5, 3)).astype("float32")}
    expected = reference.evaluate(ctx, [loss, x.grad], {T: 5}, data)
    for options in ({"backend": "numpy"}, {}):
        assert_all_same(ctx.run({T: 5}, [loss, x.grad], data, tp.Config(tile={"t": 2}, **options)), expected)


def test_wrong_tiles():
    ctx, T, key = attention()
    with pytest.raises(tp.errors.ConfigError, match="names the step 'q'"):
        ctx.compile({T: 3}, [key], tp.Config(tile={"q": 2}))
    for wrong in ({"t": 0}, {"t": 1.5}, {"t": "64"}, {"t": True}, 3, ("t",)):
        with pytest.raises(tp.errors.ConfigError, match="tile"):
            tp.Config(tile=wrong)
    assert tp.Config(tile={T: 2}).tiles == (("T", 2),)


def test_a_choice_between_two_parts_is_no_mask():
    """A concatenation at a place that moves is a selection by position too, but it has elements past that place."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.tanh(tp.input("x", (2,), domain=(t,)))
        joined = tp.concatenate([x[t:T], x[0 : t + 1]]).max(0)
    data = {"x": np.random.default_rng(2).normal(size=(5, 2)).astype("float32")}
    expected = reference.evaluate(ctx, [joined], {T: 5}, data)
    for size in (2, 3):
        assert_all_same(ctx.run({T: 5}, [joined], data, tp.Config(backend="numpy", tile={"t": size})), expected)


def test_what_a_mask_keeps_is_stated_and_not_guessed():
    """The same operations without a stated length (`Where.length`) are tiled as a whole."""
    padded = Pad().apply(parse(HEAD + PREFIX))
    (mask,) = [node for node in padded if isinstance(node.op, ops.Where)]
    assert (mask.op.axis, str(mask.op.length)) == (0, "t + 1")
    stated = domains(sizes(2).apply(padded), Reduce)
    padded.put(replace(mask, op=ops.Where()))
    assert stated != domains(sizes(2).apply(padded), Reduce) == ["(t, t_tile)"]


def test_a_vectorized_mask_keeps_its_statement_while_its_length_is_one_number():
    """Along i all lengths are t + 1; along t they differ, and the mask is an ordinary choice."""
    padded = parse("""
    steps i<I t<T
    %0 = Iota(size=T)() : int32[T] over ()
    %1 = Eval(value=t + 1)() : int32[] over (t)
    %2 = Broadcast(shape=(T,), axes=())(%1[t]) : int32[T] over (t)
    %3 = Compare(fn="lt")(%0, %2[t]) : bool[T] over (t)
    %4 = Eval(value=i)() : int32[] over (i)
    %5 = Broadcast(shape=(T,), axes=())(%4[i]) : int32[T] over (i)
    %6 = Constant(int32[], 0)() : int32[] over ()
    %7 = Broadcast(shape=(T,), axes=())(%6) : int32[T] over ()
    %8 = Where(length=t + 1)(%3[t], %5[i], %7) : int32[T] over (i, t)
    %9 = Reduce(fn="sum", axes=(0,))(%8[i, t]) : int32[] over (i, t)
    %10 = Reduce(fn="sum", axes=(0, 1))(%9[0:I, 0:T]) : int32[] over ()
    %11 = Output(position=0)(%10) over ()
    """)
    along_i = [n.op for n in Vectorize(but=("t",)).apply(padded) if isinstance(n.op, ops.Where)]
    along_t = [n.op for n in Vectorize(but=("i",)).apply(padded) if isinstance(n.op, ops.Where)]
    assert [(op.axis, str(op.length)) for op in along_i] == [(1, "t + 1")] and along_t == [ops.Where()]


def test_a_mask_with_other_readers_hides_what_lies_past_the_end() -> None:
    """The gradient of the flip reads the mask of `v[0:t + 1]` too, so that it is no tile's own: the last of two tiles ends early."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        v = tp.input("v", (), domain=(t,), requires_grad=True)
        loss = (v[0 : t + 1].flip(0) ** 2).sum()[0:T].sum()
        (slope,) = tp.grad(loss, wrt=[v])
        config = tp.Config(backend="numpy", disable=("vectorize(t)",), tile={"t": 4})
        total, slopes = ctx.run({T: 5}, [loss, slope], {"v": np.arange(1, 6, dtype="float32")}, config)
    assert total == 105
    assert slopes.tolist() == [10, 16, 18, 16, 10]
