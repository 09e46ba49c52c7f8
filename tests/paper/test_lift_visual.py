"""fig:lift_visual: y[t] = x[0:t + 1].sum() adds the same prefix again at each t; lifted, it is one cumulative sum of x[0:T].

A spatial index with t gives the value at each step. The paragraph around the figure also lifts a sum written as a recurrence.
"""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import CumSum, Eval, Gather, LinearScan, Merge, Reduce
from tempo_core.passes.clean.cse import Cse
from tempo_core.passes.clean.dce import Dce
from tempo_core.passes.clean.narrow import Narrow
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.ranges.lift import Lift
from tests.core.running import Case
from tests.paper.running import assert_agree, normal


def prefix_sum() -> Case:
    data, ctx = normal(6, 2), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        y = x[0 : t + 1].sum(0).named("y")
    return Case(ctx, {T: 6}, [y], [np.cumsum(data, 0)], {"x": data})


def recurrent_sum() -> Case:
    """fig:transformation_pipeline: a merge that copies the first product, and adds the current one to the sum before."""
    data, weights, ctx = normal(6, 2), normal(2, seed=1), tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (2,), domain=(t,)), tp.input("w", (2,))
        product = (x * w).named("product")
        s = tp.recurrence((2,), domain=(t,), name="s")
        s[0] = product[0]
        s[t] = s[t - 1] + product
        total = s[T - 1]
    return Case(ctx, {T: 6}, [total], [(data * weights).sum(0)], {"x": data, "w": weights})


def lifted(case: Case) -> tuple[Graph, Graph]:
    """The graph before and after this pass alone."""
    config = tp.Config(disable=("simplify", "dce", "cse", "narrow", "lift", "pad", "vectorize", "fuse"))
    graph = case.context.compile(case.bounds, case.outputs, config).source
    for each in (Dce(), Simplify(), Cse(), Narrow()):
        graph = each.apply(graph)
    return graph, Dce().apply(Lift().apply(graph))


def test_a_sum_of_a_prefix_becomes_one_cumulative_sum_indexed_by_t():
    before, after = lifted(prefix_sum())
    (sum_before,) = [n for n in before if isinstance(n.op, Reduce)]
    assert [str(i) for i in sum_before.inputs[0].index] == ["0:t + 1"] and str(sum_before.domain) == "(t)"
    assert not [n for n in after if isinstance(n.op, Reduce)]
    (scan,) = [n for n in after if isinstance(n.op, CumSum)]
    assert [str(i) for i in scan.inputs[0].index] == ["0:T"] and str(scan.domain) == "()", "no step: it runs once"
    (restored,) = [n for n in after if isinstance(n.op, Gather) and n.inputs[0].source == scan.id]
    index = after[restored.inputs[1].source]
    assert isinstance(index.op, Eval) and str(index.op.value) == "t" and str(restored.domain) == "(t)"


@pytest.mark.parametrize("pass_is_on", [True, False])
def test_the_schedule_with_and_without(pass_is_on, golden):
    """Without lifting, y[t] runs beside x[t] and adds up t + 1 values; with it, y waits for x[0:T], which is added up once."""
    case = prefix_sum()
    disable = ("vectorize",) if pass_is_on else ("vectorize", "lift")
    program = case.context.compile(case.bounds, case.outputs, tp.Config(disable=disable))
    golden(f"paper/lift_visual_{'after' if pass_is_on else 'before'}.txt", program.text("program", full=True))


def test_a_recurrent_sum_becomes_a_scan_and_runs_without_a_loop():
    """The cycle is gone, and then nothing prevents vectorizing. The paper turns it into a Sum; here it becomes a scan, whose last
    element is read: the sums before it cost nothing more."""
    case = recurrent_sum()
    before, after = lifted(case)
    assert [n.name for n in before if isinstance(n.op, Merge) and n.id in {e.source for m in before for e in m.inputs}] == ["s"]
    (scan,) = [n for n in after if isinstance(n.op, (CumSum, LinearScan))]
    assert not [n for n in after for e in n.inputs if isinstance(n.op, Merge) and e.source == scan.id]
    program = case.context.compile(case.bounds, case.outputs)
    assert "for " not in program.text("program", full=True)
    looped = case.context.compile(case.bounds, case.outputs, tp.Config(disable=("lift",)))
    assert "for t in" in looped.text("program", full=True)


@pytest.mark.parametrize("make", [prefix_sum, recurrent_sum])
def test_values(make):
    assert_agree(make())
