"""capacity: bounds that a run chooses become steps of which a run takes one point, and sizes become the capacity."""

from __future__ import annotations

import numpy as np
import pytest

from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.verify import verify
from tempo_core.passes.base import renumbered
from tempo_core.passes.batch.vectorize import Vectorize
from tempo_core.passes.shapes.capacity import Capacity
from tempo_core.passes.tiles.tile import Tile
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.schedule import schedule
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.limits import UpTo
from tests.core.passes.support import Golden, fed, outputs
from tests.core.running import assert_same
from tests.graph_parser import parse

SUMS = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%3 s = Merge(type=float32[2])(%2[t] if t == 0, %4[t - 1] if t >= 1) : float32[2] over (t)
%4 c = Binary(fn="add")(%3[t], %5[t + 1]) : float32[2] over (t) where T >= t + 2
%5 = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%6 rest = Reduce(fn="sum", axes=(0,))(%2[t:T to T]) : float32[2] over (t)
%7 = Eval(value=T)() : int32[] over ()
%8 = Output(position=0)(%3[0:T]) over ()
%9 = Output(position=1)(%6[0:T]) over ()
%10 = Output(position=2)(%7) over ()
"""

TILED = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%3 y = Unary(fn="tanh")(%2[t]) : float32[2] over (t)
%4 all = Reduce(fn="sum", axes=(0,))(%3[0:T]) : float32[2] over ()
%5 = Output(position=0)(%4) over ()
"""


def results(graph: Graph, source: Graph, capacity: int, n: int) -> dict[int, np.ndarray]:
    """The results of a run that chooses T = n, in a program for T up to a capacity."""
    (last,) = graph.chosen
    numbers = graph.all_bounds({last.bound_symbol: capacity, Symbol("I"): 3})
    bounds = RunBounds(
        source, graph, {Symbol("T"): capacity, Symbol("I"): 3}, {Symbol("T"): UpTo(capacity)}, lambda numbers: None
    )
    feeds = Feeds(fed(source, {"T": n, "I": 3}), {}, chosen=bounds.chosen({Symbol("T"): n}), fit=bounds.fitted)
    return Interpreter(schedule(graph, numbers), NumpyBackend()).run(feeds)


@pytest.mark.parametrize("least", [1, 3])
def test_a_bound_is_a_step(golden: Golden, least: int) -> None:
    source = parse(SUMS)
    lifted = Capacity(((Symbol("T"), least),)).apply(source)
    verify(lifted, static=True, after="capacity")
    text = to_text(renumbered(lifted))
    assert to_text(parse(text)) == text
    golden(f"passes/capacity{'' if least == 1 else '_at_least'}.txt", f"{SUMS}\n# after capacity\n{text}")
    for n in range(least, 7):
        expected = outputs(source, {"T": n, "I": 3})
        values = results(renumbered(lifted), source, 6, n)
        for position, value in enumerate(expected):
            there = np.asarray(values[position])
            assert_same(there[tuple(map(slice, np.shape(value)))], value, 1e-6, f"output {position} for T = {n}")


def test_derived_bounds_follow(golden: Golden) -> None:
    """The number of tiles of a step depends on the bound that a run chooses."""
    tiled = Tile(sizes=(("t", 2),)).apply(Vectorize(masked=("t",)).apply(parse(TILED)))
    lifted = renumbered(Capacity(((Symbol("T"), 1),)).apply(tiled))
    verify(lifted, static=True, after="capacity")
    assert {str(bound): str(size) for bound, size in lifted.derived.items()} == {"T_TILE_max": "((T_max + 1)//2)"}
    for n in (1, 4, 5):
        (expected,) = outputs(parse(TILED), {"T": n})
        assert_same(results(lifted, parse(TILED), 6, n)[0], expected, 1e-6)


def test_without_such_bounds_the_graph_stays() -> None:
    source = parse(SUMS)
    assert Capacity().apply(source) is source


def test_names_that_are_taken() -> None:
    source = parse(SUMS.replace("i<I", "i<T_max"))
    lifted = Capacity(((Symbol("T"), 1),)).apply(source)
    assert [step.name for step in lifted.chosen] == ["T_last_"] and len(set(lifted.order)) == 3
    assert all(isinstance(node.op, (ops.Input, ops.Constant)) or lifted.chosen[0] in node.domain for node in lifted)
