"""Tables that loops write at positions of data: which nodes become updates, in place in XLA's program, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import Instruction, parse
from tempo_core import prices
from tempo_core.ir import ops
from tempo_core.passes.keep.update import Update
from tests import reference
from tests.cases import fast, first
from tests.core.passes.support import after
from tests.core.running import assert_all_same

ROWS, STEPS = 400, 12


def rows(at: tp.Tensor) -> tp.Tensor:
    return at.one_hot(ROWS).expand_dims(1)


Next = Callable[[tp.Tensor, tp.Tensor, tp.Tensor], tp.Tensor]  # of a table, a position and a value

WRITES: dict[str, Next] = {
    "mask": lambda table, at, x: tp.where((tp.arange(ROWS) == at).expand_dims(1), x, table),
    "mask, other way round": lambda table, at, x: tp.where((at == tp.arange(ROWS)).expand_dims(1), x, table),
    "mask and condition": lambda table, at, x: tp.where(((x.sum() > 0) & (tp.arange(ROWS) == at)).expand_dims(1), x, table),
    "mask, a value for each place": lambda table, at, x: tp.where((tp.arange(ROWS) == at).expand_dims(1), table * 2.0 + x, table),
    "one-hot products": lambda table, at, x: (1.0 - rows(at)) * table + rows(at) * x,
    "one-hot of a cell": lambda table, at, x: table + (x.sum() * rows(at)) * (tp.arange(2) == 1).astype("float32"),
    "one-hot, taken away": lambda table, at, x: table - 0.5 * (rows(at) * x),
    "zeroed": lambda table, at, x: (1.0 - rows(at)) * table,
    "masked addend": lambda table, at, x: table + tp.where((tp.arange(ROWS) == at).expand_dims(1), x, 0.0),
    "scatter": lambda table, at, x: table.scatter(at, x),
    "scatter of several": lambda table, at, x: table.scatter(tp.stack([at, at * 2 % ROWS, at]), tp.stack([x, x * 2.0, x * 3.0])),
    "index_add": lambda table, at, x: table.index_add(at, x),
    "index_add of several": lambda table, at, x: table.index_add(tp.stack([at, at + 1, at]), tp.stack([x, x * 2.0, x * 3.0])),
    "a multiple of several": lambda table, at, x: (
        table - 0.5 * tp.zeros((ROWS, 2)).index_add(tp.stack([at, at + 1, at]), tp.stack([x, x * 2.0, x * 3.0]))
    ),
    "one after the other": lambda table, at, x: table.index_add(at, x).scatter(at + 1, table.index(0, at) * 0.5),
    "some outside": lambda table, at, x: table.scatter(at - ROWS // 2, x),
    "scatter of a cell": lambda table, at, x: table.scatter((at, at % 2), x.sum(), (0, 1)),
    "added to a cell": lambda table, at, x: table.scatter((at, 1), x.sum(), (0, 1), "add"),
    "least of cells": lambda table, at, x: table.scatter((tp.stack([at, at + 1]), [1, 0]), x, (0, 1), "min"),
    "greatest of a row": lambda table, at, x: table.scatter(at, x, mode="max"),
    "product of several": lambda table, at, x: table.scatter(
        tp.stack([at, at + 1, at]), tp.stack([x, x * 2.0, x * 3.0]), mode="mul"
    ),
}


def program(write: Next, **options: Any) -> tuple[tp.Context, dict[Any, int], list[tp.Tensor], dict[str, Any], tp.Program[Any]]:
    """A table that is read at a position, which the values that were read decide, and written there."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        table = tp.recurrence((ROWS, 2), domain=(t,), name="table")
        at = tp.recurrence((), "int32", domain=(t,), name="at")
        row = table.index(0, at)
        table[0], at[0] = tp.zeros((ROWS, 2)), 5
        table[t + 1] = write(table, at, x + row)
        at[t + 1] = ((at * 7 + 3) + (row.sum() > 0).astype("int32")) % ROWS
        outputs = [row[0:T], at[0:T], table[T - 1]]
    arrays = {"x": np.random.default_rng(0).normal(size=(STEPS, 2)).astype("float32")}
    return ctx, {T: STEPS}, outputs, arrays, ctx.compile({T: STEPS}, outputs, tp.Config(**options))


def updates(program: tp.Program[Any]) -> list[ops.Update]:
    return [part for node in program.graph for part in node.op.parts if isinstance(part, ops.Update)]


def copies_in_loops(program: tp.Program[Any]) -> list[Instruction]:
    """The copies of whole tables in loops of XLA's programs."""
    assert program._staged is not None
    program._staged.compile_segments()
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments]
    in_loops = [each for module in modules for loop in module.loops() for each in module.operations(loop.body)]
    assert in_loops
    return [each for each in in_loops if each.opcode == "copy" and each.bytes >= ROWS * 4]


@pytest.mark.parametrize("name", first(10, WRITES))
@pytest.mark.parametrize("options", fast([{}, {"backend": "numpy"}, {"disable": ("fuse",)}], {}), ids=str)
def test_writes_at_positions_of_data_are_updates(name: str, options: dict[str, Any]) -> None:
    ctx, bounds, outputs, arrays, compiled = program(WRITES[name], **options)
    assert updates(compiled)
    assert_all_same(compiled.run(arrays), reference.evaluate(ctx, outputs, bounds, arrays))


@pytest.mark.parametrize(
    "name",
    fast(
        [
            "mask",
            "one-hot products",
            "scatter",
            "index_add",
            "index_add of several",
            "one after the other",
            "scatter of a cell",
            "least of cells",
            "product of several",
        ],
        "mask",
        "index_add of several",
        "scatter of a cell",
    ),
)
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers place copies in other ways")
def test_updates_are_in_place(name: str) -> None:
    *_, compiled = program(WRITES[name])
    assert not copies_in_loops(compiled)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers place copies in other ways")
def test_what_is_read_by_other_statements_is_read_before() -> None:
    """A value that only a result needs is read before the update of the same iteration."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, p = tp.input("x", (), domain=(t,)), tp.input("p", (), "int32", domain=(t,))
        queue = tp.recurrence((ROWS,), domain=(t,), name="queue")
        head, tail = (tp.recurrence((), "int32", domain=(t,), name=name) for name in ("head", "tail"))
        queue[0], head[0], tail[0] = tp.zeros((ROWS,)), 0, 0
        pushes = p == 1
        queue[t + 1] = tp.where(pushes & (tp.arange(ROWS) == tail % ROWS), x, queue)
        tail[t + 1] = tail + pushes.astype("int32")
        pops = ~pushes & (tail > head)
        head[t + 1] = head + pops.astype("int32")
        y = tp.where(pops, queue.index(0, head % ROWS), 0.0)
    program = ctx.compile({T: 30}, [y[0:T]])
    assert updates(program)
    assert not copies_in_loops(program)
    random = np.random.default_rng(0)
    arrays = {"x": random.normal(size=30).astype("float32"), "p": random.integers(0, 2, 30).astype("int32")}
    assert_all_same(program.run(arrays), reference.evaluate(ctx, [y[0:T]], {T: 30}, arrays))


@pytest.mark.parametrize(
    "write",
    [
        lambda table, at, x: tp.where((tp.arange(ROWS) == at).expand_dims(1), x, table * 0.5),  # all elements change
        lambda table, at, x: tp.where((tp.arange(ROWS) <= at).expand_dims(1), x, table),  # many positions
        lambda table, at, x: table + tp.where((tp.arange(ROWS) == at).expand_dims(1), x, 0.5),
        lambda table, at, x: table * rows(at) + x,
        lambda table, at, x: table - tp.tanh(0.5 + tp.zeros((ROWS, 2)).index_add(tp.stack([at, at]), tp.stack([x, x]))),
        lambda table, at, x: tp.tanh(table.scatter(at, x)),
    ],
)
def test_other_recurrences_stay(write: Next) -> None:
    ctx, bounds, outputs, arrays, compiled = program(write)
    assert not updates(compiled)
    assert_all_same(compiled.run(arrays), reference.evaluate(ctx, outputs, bounds, arrays))


COUNTS = """\
steps t<T
%0 n = Input(name="n", dtype="int32", shape=(T,))() : int32[T] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 at = Gather(axis=0)(%0, %1[t]) : int32[] over (t)
%3 = Constant(float32[], 1.0)() : float32[] over ()
%4 = Broadcast(shape=(SIZE,), axes=())(%3) : float32[SIZE] over ()
%5 counts = Merge(type=float32[SIZE])(%4 if t == 0, %7[t - 1] if t >= 1) : float32[SIZE] over (t)
%6 = Scatter(axis=0, size=SIZE)(%3, %2[t]) : float32[SIZE] over (t)
%7 next = Binary(fn="add")(%5[t], %6[t]) : float32[SIZE] over (t)
%8 = Output(position=0)(%5[T - 1]) over ()
"""


@pytest.mark.parametrize("size", [prices.LEAST_LENGTH_TO_UPDATE - 1, prices.LEAST_LENGTH_TO_UPDATE])
def test_short_tables_stay(size: int) -> None:
    graph = after(COUNTS.replace("SIZE", str(size)), Update())
    (update,) = (node for node in graph if node.name == "next")
    assert (update.op == ops.Update("add", 0)) == (size == prices.LEAST_LENGTH_TO_UPDATE)
    assert [graph[edge.source].name for edge in update.inputs][:1] == ["counts"]


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_which_one_element_is_not_zero_are_reads(axis: int) -> None:
    shape = (ROWS, 2) if axis == 0 else (2, ROWS)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, p = tp.input("x", shape, domain=(t,)), tp.input("p", (), "int32", domain=(t,))
        total = tp.recurrence((2,), domain=(t,))
        row = (p.one_hot(ROWS).expand_dims(1 - axis) * tp.sin(x + total.expand_dims(axis))).sum(axis)
        tp.carry(total, tp.zeros((2,)), total * 0.5 + row)
    places = np.array([3, -1, ROWS, ROWS - 1, 0], np.int32)  # outside: zeros
    arrays = {"x": np.random.default_rng(0).normal(size=(5, *shape)).astype("float32"), "p": places}
    compiled = ctx.compile({T: 5}, [total[0:T]])
    parts = [part for node in compiled.graph for part in node.op.parts]
    assert any(isinstance(part, ops.Gather) for part in parts)
    assert not any(isinstance(part, ops.Reduce) for part in parts)
    assert_all_same(compiled.run(arrays), reference.evaluate(ctx, [total[0:T]], {T: 5}, arrays))


@pytest.mark.parametrize("dimensions", [False, True], ids=["alone", "of several rows"])
def test_a_table_that_decides_where_its_step_ends_is_written_in_place(dimensions: bool) -> None:
    ctx = tp.Context("t", "r")
    with ctx as ((t, T), (r, R)):
        domain = (t, r) if dimensions else (t,)
        table = tp.recurrence((ROWS, 2), domain=domain, name="table")
        at = tp.recurrence((), "int32", domain=domain, name="at")
        written = table.scatter(tp.stack([at, at + 1]), tp.stack([at, at * 2]).astype("float32").expand_dims(1), 0).named(
            "written"
        )
        rest = domain[1:]
        table[(0, *rest)], at[(0, *rest)] = tp.zeros((ROWS, 2)), 1 + (r if dimensions else 0)
        table[(t + 1, *rest)], at[(t + 1, *rest)] = written, at + 1 + (written.index(0, at).sum() > 4.0).astype("int32")
        ctx.ends(t, when=written.sum() > 60.0)
        outputs = {"T": tp.zeros((), "int32") + T, "at": at, "sum": written.sum()}
    bounds = {T: 30, R: 2}
    program = ctx.compile(bounds, outputs)
    assert len(updates(program)) == 1 and copies_in_loops(program) == []
    results, plain = program.run(), ctx.run(bounds, outputs, config=tp.Config(backend="numpy", disable=("update",)))
    assert 3 < results["T"] < 30
    for name, value in plain.items():
        np.testing.assert_array_equal(results[name], value)
