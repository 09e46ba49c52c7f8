"""wavefront: tables that neither of two steps can be vectorized over run by diagonals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir.dependence import loop_nest
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Input, Merge
from tempo_core.passes.batch.wavefront import Wavefront
from tempo_core.passes.shapes.pad import Pad
from tempo_core.runtime.lower.padding import matters
from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Symbol
from tests import reference
from tests.cases import fast
from tests.core.passes.programs import PROGRAMS
from tests.core.passes.programs.hard_tables import softmin, table
from tests.core.passes.support import Golden, check
from tests.core.running import assert_all_same

TABLE = """
steps i<I t<T
%0 cost = Input(name="cost", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Gather(axis=0)(%0, %1[i]) : float32[T] over (i)
%3 = Eval(value=t)() : int32[] over (t)
%4 = Gather(axis=0)(%2[i], %3[t]) : float32[] over (i, t)
%5 d = Merge(type=float32[])(%4[0, t] if i == 0, %4[i, 0] if t == 0, %13[i, t]) : float32[] over (i, t)
%6 = Binary(fn="minimum")(%5[i - 1, t], %5[i, t - 1]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%7 = Binary(fn="sub")(%6[i, t], %5[i - 1, t - 1]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%8 = Unary(fn="tanh")(%7[i, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%9 = Unary(fn="sin")(%6[i, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%10 = Binary(fn="mul")(%8[i, t], %9[i, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%11 = Unary(fn="cos")(%5[i - 1, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%12 = Binary(fn="add")(%10[i, t], %11[i, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%13 = Binary(fn="add")(%12[i, t], %4[i, t]) : float32[] over (i, t) where (i >= 1) & (t >= 1)
%14 = Output(position=0)(%5[I - 1, T - 1]) : float32[] over ()
"""


def test_wavefront(golden: Golden) -> None:
    check(golden, "wavefront", TABLE.replace(" : float32[] over ()\n", " over ()\n"), Wavefront())


def test_a_table_of_vectors_with_few_operations_stays_a_loop() -> None:
    """XLA makes machine code of such a loop, with vectors of its own. A table of numbers has no other vectors than its diagonals."""
    few, many = (
        lambda cost, up, left, corner: cost + tp.minimum(up, left),
        lambda cost, up, left, corner: cost + softmin(up, left, corner),
    )
    assert _runs_by_diagonals(_graph(few))
    assert not _runs_by_diagonals(_graph(few, 2))
    assert _runs_by_diagonals(_graph(many, 2))


def test_steps_that_stay_loops() -> None:
    graph = Pad().apply(_graph(lambda cost, up, left, corner: cost + softmin(up, left, corner)))
    assert Wavefront(but=("t",)).apply(graph).order == graph.order


@pytest.mark.parametrize(("I", "T"), [(3, 9), (9, 3)])
def test_vectors_lie_along_the_step_with_fewer_points(I: int, T: int) -> None:
    graph = Pad().apply(_graph(lambda cost, up, left, corner: cost + softmin(up, left, corner)))
    numbers = {Symbol("I"): I, Symbol("T"): T}
    after = Wavefront(tuple(numbers.items())).apply(graph)
    over_diagonals = [node for node in after if after.order[0] in node.domain or after.order[1] in node.domain]
    sizes = {size.evaluate(numbers) for node in over_diagonals if isinstance(node.op, Merge) for size in node.outputs[0].shape}
    assert sizes == {3}
    assert [after.is_for({Symbol("I"): i, Symbol("T"): t}) for i, t in ((I, T), (T, I), (T, T))] == [True, False, True]


def test_of_a_table_of_which_the_last_value_is_read_two_diagonals_are_kept() -> None:
    context = tp.Context("i", "t")
    with context as ((i, I), (t, T)):
        x, y = tp.input("x", domain=(i,)), tp.input("y", domain=(t,))
        d = table(i, t, (x - y) ** 2, softmin)
        program = context.compile({I: 50, T: 60}, [d[I - 1, T - 1]])
    assert max(math.prod(program._staged.lowering.shape(key)) for key in program.scheduled.storage) == 2 * 50


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.hard_on == "wavefront"])
def test_which_programs_run_by_diagonals(name: str) -> None:
    context, tensors = PROGRAMS[name].build()
    graph = Wavefront().apply(Pad().apply(with_outputs(context, tensors)))
    assert ("diagonal" in [step.name for step in graph.order]) == (not name.startswith("no_table"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    fast(
        ["table_of_rows_and_columns", "table_of_splits", "table_of_whole_rows_and_columns", "table_of_parts_of_rows"],
        "table_of_whole_rows_and_columns",
    ),
)
def test_ranges_for_bounds_of_all_orders(name: str) -> None:
    """On some diagonals no interval ends inside of the rows: nothing reads a range there, which would be longer than any that is read."""
    context, outputs = PROGRAMS[name].build()
    rows, columns = context.graph.order
    for I, T in [(1, 1), (2, 1), (1, 4), (2, 6), (6, 2), (3, 4), (5, 5)]:
        bounds = {rows.bound_symbol: I, columns.bound_symbol: T}
        assert_right(context, bounds, outputs, [tp.Config(backend="numpy"), tp.Config(executor="interpreted", backend="numpy")])


@pytest.mark.parametrize("sizes", fast([[2, 1], [1, 1], [4, 4], [3, 5]], [3, 5]))
def test_a_table_with_limits_keeps_to_the_diagonals_of_its_points(sizes: list[int]) -> None:
    """A recurrence that begins after the first diagonal has no branch there, and nothing reads it there."""
    context, outputs = PROGRAMS["table_with_limits"].build()
    bounds = dict(zip((step.bound_symbol for step in context.graph.order), sizes, strict=True))
    assert_right(context, bounds, outputs, [tp.Config(executor="interpreted", backend="numpy"), tp.Config(backend="numpy")])


def assert_right(context: tp.Context, bounds: Any, outputs: list[tp.Tensor], configs: list[tp.Config]) -> None:
    random = np.random.default_rng(3)
    fed = {
        node.op.name: random.normal(size=[int(size.evaluate(bounds)) for size in node.op.shape]).astype("float32")
        for node in with_outputs(context, outputs)
        if isinstance(node.op, Input)
    }
    expected = reference.evaluate(context, outputs, bounds, fed)
    for config in configs:
        assert_all_same(context.run(bounds, outputs, fed, config=config), expected, 1e-4)


def test_diagonals_that_a_column_reads_are_neither_copied_nor_masked() -> None:
    """Elements past the last diagonal are masked once they are gathered: zeros in their places would be written for each diagonal."""
    context, outputs = PROGRAMS["table_of_splits"].build()
    rows, columns = context.graph.order
    program = context.compile({rows.bound_symbol: 8, columns.bound_symbol: 8}, outputs[:1])
    padded = [
        matters(node, position, 0, index.true_length)
        for node in program.graph
        for position, edge in enumerate(node.inputs)
        for index in edge.index
        if isinstance(index, Range) and index.size is not None
    ]
    assert padded and not any(padded)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", fast([[3, 4, 5], [1, 3, 3], [3, 1, 4], [2, 4, 1], [4, 2, 2], [2, 6, 3]], [3, 4, 5]))
def test_a_table_for_all_sweeps(sizes: list[int]) -> None:
    """Each point reads the new values above and to the left, and the values of the sweep before below and to the right."""
    context = tp.Context("k", "i", "j")
    with context as ((k, K), (i, I), (j, J)):
        source = tp.input("source", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j), name="u")
        u[0, i, j] = source
        u[k, 0, j] = 0.5
        u[k, I - 1, j] = 1.0
        u[k, i, 0] = source[i, 0]
        u[k, i, J - 1] = 2.0
        new, old = softmin(u[k, i - 1, j], u[k, i, j - 1], source), softmin(u[k - 1, i + 1, j], u[k - 1, i, j + 1], source)
        u[k, i, j] = tp.tanh(new) + 0.5 * tp.sin(old)
        outputs = [u[K - 1, i, j], *tp.grad((u * u)[K - 1, 0:I, 0:J].sum((0, 1)), [source])]
    assert _runs_by_diagonals(with_outputs(context, outputs))
    fed = {"source": np.random.default_rng(1).normal(size=sizes[1:]).astype("float32")}
    bounds = dict(zip((K, I, J), sizes, strict=True))
    results = [context.run(bounds, outputs, fed, config=tp.Config(backend="numpy", disable=off)) for off in ((), ("wavefront",))]
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def _graph(update: Callable[..., Any], *shape: int) -> Graph:
    context = tp.Context("i", "t")
    with context as ((i, I), (t, T)):
        cost = tp.input("cost", shape, domain=(i, t))
        d = tp.recurrence(shape, domain=(i, t), name="d")
        d[0, t] = cost[0, t]
        d[i, 0] = cost[i, 0]
        d[i, t] = update(cost, d[i - 1, t], d[i, t - 1], d[i - 1, t - 1])
        return with_outputs(context, [d[I - 1, T - 1]])


def _runs_by_diagonals(graph: Graph) -> bool:
    """Whether the pass leaves no cycle that a loop over a new step does not carry."""
    after = Wavefront().apply(Pad().apply(graph))
    outer = [step for step in graph.order if step.name == "k"]
    diagonals = [step for step in after.order if step not in graph.order]
    return bool(diagonals) and not any(nest.cyclic for nest in loop_nest(after, [*outer, *diagonals]).nests())
