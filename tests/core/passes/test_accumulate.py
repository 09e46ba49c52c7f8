"""accumulate: what a loop computes and something reduces has an accumulator, and is not kept for all iterations."""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Merge
from tempo_core.passes.ranges.accumulate import Accumulate
from tests.core.passes.support import Golden, after, check

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(2,))() : float32[2] over ()
"""

FORWARDS = """\
%1 h = Merge(type=float32[2])(%0[] if t == 0, %2[t - 1] if t >= 1) : float32[2] over (t)
%2 c = Unary(fn="tanh")(%1[t]) : float32[2] over (t)
"""

BACKWARDS = """\
%1 h = Merge(type=float32[2])(%0[] if t + 1 == T, %2[t + 1] if T >= t + 2) : float32[2] over (t)
%2 c = Unary(fn="tanh")(%1[t]) : float32[2] over (t)
"""

SUM = """\
%3 s = Reduce(fn="sum", axes=(0,))(%2[0:T]) : float32[2] over ()
%4 = Output(position=0)(%3) over ()
"""


def accumulators(graph: Graph) -> int:
    return sum(isinstance(node.op, Merge) for node in graph) - 1


def test_a_sum_follows_its_loop_forwards(golden: Golden):
    graph = check(golden, "accumulate_forwards", HEAD + FORWARDS + SUM, Accumulate())
    (total,) = [n for n in graph if isinstance(n.op, Merge) and n.name != "h"]
    assert [str(e.condition) for e in total.inputs] == ["t == 0", "t >= 1"]


def test_a_sum_follows_its_loop_backwards(golden: Golden):
    graph = check(golden, "accumulate_backwards", HEAD + BACKWARDS + SUM, Accumulate())
    (total,) = [n for n in graph if isinstance(n.op, Merge) and n.name != "h"]
    assert [str(e.condition) for e in total.inputs] == ["t + 1 == T", "T >= t + 2"]


def test_a_reduction_of_its_own_past_is_not_computed_anew(golden: Golden):
    text = """\
%1 h = Merge(type=float32[2])(%0[] if t == 0, %3[t - 1] if t >= 1) : float32[2] over (t)
%2 m = Reduce(fn="max", axes=(0,))(%1[0:t + 1]) : float32[2] over (t)
%3 c = Unary(fn="tanh")(%2[t]) : float32[2] over (t)
%4 = Output(position=0)(%1[0:T]) over ()
"""
    graph = check(golden, "accumulate_own_past", HEAD + text, Accumulate(running=True))
    assert not any(type(n.op).__name__ == "Reduce" for n in graph)


def test_what_is_kept_in_any_case_is_reduced_after_the_loop():
    read = "%5 = Output(position=1)(%2[0:T]) over ()\n"
    assert accumulators(after(HEAD + FORWARDS + SUM + read, Accumulate())) == 0
    assert accumulators(after(HEAD + FORWARDS + SUM, Accumulate())) == 1


def test_two_reductions_of_one_value_both_accumulate():
    more = '%5 = Reduce(fn="max", axes=(0, 1))(%2[0:T]) : float32[] over ()\n%6 = Output(position=1)(%5) over ()\n'
    assert accumulators(after(HEAD + FORWARDS + SUM + more, Accumulate())) == 2


def test_half_precision_is_rounded_once():
    text = (HEAD + FORWARDS + SUM).replace("float32", "bfloat16")
    graph = after(text, Accumulate())
    (total,) = [n for n in graph if isinstance(n.op, Merge) and n.name != "h"]
    assert total.outputs[0].dtype == "float32"


def test_the_gradient_of_a_bias_needs_no_store_over_the_loop():
    """A recurrent network: its states are kept for the gradient, the contributions to the gradient of the bias are not."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, b, w = tp.input("x", (8,), domain=(t,)), tp.input("b", (8,)), tp.input("w", (8, 8))
        h = tp.recurrence((8,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.tanh(h @ w + x[t + 1] + b)
        loss = (h * h)[0:T].sum((0, 1))
        (gradient,) = tp.grad(loss, [b])

    def bytes_a_step(*disable: str) -> int:
        programs = [ctx.compile({T: steps}, outputs=gradient, config=tp.Config(disable=disable)) for steps in (100, 200)]
        small, large = (sum(tensor.bytes for tensor in program.plan().tensors) for program in programs)
        return (large - small) // 100

    assert bytes_a_step("accumulate") - bytes_a_step() == 8 * 4


def test_what_a_part_of_a_batch_adds_to_a_gradient_is_a_product() -> None:
    """Outer products of the rows of a micro-batch are contracted: they are not made one by one and then added up."""
    with (ctx := tp.Context("m", "b")) as ((m, M), (b, B)):
        x, w = tp.input("x", (3,), domain=(m, b)), tp.input("w", (3, 5), requires_grad=True)
        tp.tanh(x @ w)[0:M, 0:B].sum().backward()
    program = ctx.compile({M: 4, B: 7}, w.grad, tp.Config(disable=("vectorize(m)",)))
    assert "for m in 0:4" in program.text("program")
    products = [line for line in program.text("sdg").splitlines() if "= Dot(" in line]
    assert len(products) == 2 and not any("left_contract=()" in line for line in products)


def test_what_is_accumulated_may_have_sizes_that_vary() -> None:
    """Before sizes are padded, the accumulator's start varies with the steps of its sizes."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (3,), domain=(i, t))
        kept = tp.recurrence((3,), domain=(i, t), name="kept")
        kept[i, 0] = x[i, 0]
        kept[i, t + 1] = kept * 0.5 + x[i, t + 1]
        sums = tp.tanh(kept[0 : i + 1, t])[i, 0:T].sum(0)
    config = tp.Config(backend="numpy", disable=("simplify", "pad", "vectorize"))
    program = ctx.compile({I: 3, T: 4}, sums.sum(), config)
    assert "reduced in the loop" in str(program.explain())
    values = np.random.default_rng(0).normal(size=(3, 4, 3)).astype("float32")
    kept = [values[:, 0]]
    for k in range(1, 4):
        kept.append(kept[-1] * 0.5 + values[:, k])
    wanted = [np.tanh(np.stack(kept)[:, : i + 1]).sum() for i in range(3)]
    np.testing.assert_allclose(program.run({"x": values}), wanted, rtol=1e-5)
