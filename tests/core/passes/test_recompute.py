"""recompute: a backward loop computes cheap values of the forward loop again, so that fewer have to be kept."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir import ops
from tempo_core.ir.graph import Graph
from tempo_core.passes.keep.cut import beyond_the_cut
from tempo_core.passes.keep.recompute import Recompute
from tests import reference
from tests.cases import fast
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

# A maximum of the state and an input, and its gradient: the state is kept anyway.
MAXIMUM = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 3))() : float32[T, 3] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[3] over (t)
%3 = Constant(float32[], 0.0)() : float32[] over ()
%4 = Broadcast(shape=(3,), axes=())(%3) : float32[3] over ()
%5 h = Merge(type=float32[3])(%4 if t == 0, %9[t - 1] if t >= 1) : float32[3] over (t)
%6 larger = Compare(fn="gt")(%5[t], %2[t]) : bool[3] over (t)
%7 chosen = Where()(%6[t], %5[t], %2[t]) : float32[3] over (t)
%8 most = Unary(fn="abs")(%7[t]) : float32[3] over (t)
%9 after = Unary(fn="{fn}")(%8[t]) : float32[3] over (t)
%10 g = Merge(type=float32[3])(%9[t] if t + 1 == T, %12[t + 1] if T >= t + 2) : float32[3] over (t)
%11 slope = Binary(fn="mul")(%10[t], %8[t]) : float32[3] over (t)
%12 back = Where()(%6[t], %11[t], %4) : float32[3] over (t)
%13 = Output(position=0)(%12[0:T]) over ()
"""


def kept(graph: Graph) -> set[str]:
    """The names of the values of the forward loop that the backward loop reads."""
    forward, backward = ({n.id for n in graph if n.name in names} for names in (("h", "after"), ("g", "back", "slope")))
    again = {edge.source for n in backward for edge in graph[n].inputs} - backward - forward
    waiting, read = sorted(again), set()
    while waiting:
        node = graph[waiting.pop()]
        if node.name:
            read.add(node.name)
        elif isinstance(node.op, (ops.Compare, ops.Where, ops.Unary)):
            waiting += [edge.source for edge in node.inputs]
    return read - {"x", "g", "slope", "back"}


def test_what_cheap_operations_give_is_computed_again(golden: Golden):
    graph = check(golden, "recompute", MAXIMUM.replace("{fn}", "tanh"), Recompute())
    assert kept(graph) == {"h"}, "the mask and the maximum follow from the state and the input"


def test_without_the_pass_everything_is_kept():
    assert kept(after(MAXIMUM.replace("{fn}", "tanh"))) == {"larger", "most"}


def test_what_is_dear_stays_kept():
    text = MAXIMUM.replace('Unary(fn="abs")', 'Unary(fn="exp")').replace("{fn}", "tanh")
    assert kept(after(text, Recompute())) == {"larger", "most"}, "the mask is smaller than the state"


def test_a_loop_in_the_same_direction_reads_what_the_first_one_computed():
    forward = MAXIMUM.replace("%9[t] if t + 1 == T, %12[t + 1] if T >= t + 2", "%9[t] if t == 0, %12[t - 1] if t >= 1")
    text = forward.replace("{fn}", "tanh")
    assert len(after(text, Recompute())) == len(after(text))


def test_products_of_floats_are_kept():
    """A product may become one operation with a sum, and give other bits."""
    text = MAXIMUM.replace('%8 most = Unary(fn="abs")(%7[t])', '%8 most = Binary(fn="mul")(%7[t], %7[t])').replace("{fn}", "tanh")
    assert "most" in kept(after(text, Recompute()))


# A recurrent network: the slope of tanh follows from its value, which is the next state.
NETWORK = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 3))() : float32[T, 3] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[3] over (t)
%3 = Constant(float32[], 0.0)() : float32[] over ()
%4 = Broadcast(shape=(3,), axes=())(%3) : float32[3] over ()
%5 h = Merge(type=float32[3])(%4 if t == 0, %7[t - 1] if t >= 1) : float32[3] over (t)
%6 sum = Binary(fn="add")(%5[t], %2[t]) : float32[3] over (t)
%7 next = Unary(fn="tanh")(%6[t]) : float32[3] over (t)
%8 g = Merge(type=float32[3])(%4 if t + 1 == T, %10[t + 1] if T >= t + 2) : float32[3] over (t)
%9 slope = Binary(fn="mul")(%8[t], %7[t]) : float32[3] over (t) where {where}
%10 back = Unary(fn="exp")({back}) : float32[3] over (t)
%11 = Output(position=0)(%10[0:T]) over ()
{also}"""
EVERYWHERE = NETWORK.replace("{where}", "t < T").replace("{back}", "%9[t]")
BUT_THE_LAST = (
    NETWORK.replace("{where}", "T >= t + 2")
    .replace("{back}", "%12[t]")
    .replace("%10 back", "%12 = Merge(type=float32[3])(%9[t] if T >= t + 2, %4 if true) : float32[3] over (t)\n%10 back")
)
KEPT = "%13 = Output(position=1)(%5[0:T]) over ()\n"


def read_by_slope(graph: Graph) -> str:
    (slope,) = (node for node in graph if node.name == "slope")
    return f"{graph[slope.inputs[1].source].name}{list(map(str, slope.inputs[1].index))}"


def test_a_state_that_is_kept_is_read_in_place_of_the_value_that_it_becomes(golden: Golden):
    graph = check(golden, "recompute_state", BUT_THE_LAST.replace("{also}", KEPT), Recompute())
    assert read_by_slope(graph) == "h['t + 1']"


@pytest.mark.parametrize(
    "text",
    [
        BUT_THE_LAST.replace("{also}", ""),  # nothing else needs the states
        EVERYWHERE.replace("{also}", KEPT),  # there is no state after the last point
        BUT_THE_LAST.replace("{also}", KEPT + "%14 = Output(position=2)(%7[0:T]) over ()\n"),  # the values are kept too
        BUT_THE_LAST.replace("{also}", KEPT).replace("%4 if t == 0, %7[t - 1] if t >= 1", "%4 if t <= 1, %7[t - 1] if t >= 1"),
    ],
)
def test_a_value_is_read_where_no_state_has_it_or_none_is_kept(text: str):
    assert read_by_slope(after(text, Recompute())) == "next['t']"


def test_a_state_over_more_steps_than_the_value_is_not_read():
    """All points along t have the same next value: it is of no point along t."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, bound), (t, T)):
        x = tp.input("x", (3,), domain=(i,))
        h = tp.recurrence((3,), domain=(i, t), name="h")
        h[0, t] = x[0]
        h[i + 1, t] = tp.tanh(h[i, 0:T].mean(0) + x)
        gradients = tp.grad(h[0:bound, 0:T].sum(), [x])
    bounds, arrays = {bound: 4, T: 3}, {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}
    result = ctx.run(bounds, outputs=gradients, inputs=arrays, config=tp.Config(disable=("vectorize(t)",)))
    assert_all_same(result, reference.evaluate(ctx, gradients, bounds, arrays))


def test_a_recurrent_network_keeps_its_states_once():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (4,), domain=(t,)), tp.input("w", (4, 4))
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0] = tp.zeros((4,))
        h[t + 1] = tp.tanh(h @ w + x)
        loss = (h[T - 1] ** 2).sum()
        gradients = tp.grad(loss, [w])
    arrays = {"x": np.linspace(-1, 1, 36, dtype=np.float32).reshape(9, 4), "w": np.eye(4, dtype=np.float32) / 2}
    program = ctx.compile({T: 9}, gradients)
    kept = [tensor.name for tensor in program.plan().tensors if np.prod(tensor.slots) > 1]
    assert "h" in kept and "next h" not in kept
    assert_all_same(program.run(arrays), reference.evaluate(ctx, gradients, {T: 9}, arrays))


@pytest.mark.parametrize(
    ("prices", "arcs", "sources", "sinks", "beyond"),
    [
        ({"a": 1}, [], ["a"], ["a"], set()),  # what is read and cannot be computed again
        ({"a": 2, "b": 1}, [("a", "b")], ["a"], ["b"], set()),
        ({"a": 1, "b": 2}, [("a", "b")], ["a"], ["b"], {"b"}),
        ({"a": 1, "b": 1}, [("a", "b")], ["a"], ["b"], set()),  # of equal cuts, the one near the sink
        ({"a": 3, "b": 2, "c": 2}, [("a", "b"), ("a", "c")], ["a"], ["b", "c"], {"b", "c"}),
        ({"a": 2, "b": 2, "c": 3}, [("a", "c"), ("b", "c")], ["a", "b"], ["c"], set()),
        ({"a": 5, "b": 1, "c": 4, "d": 4}, [("a", "b"), ("b", "c"), ("b", "d")], ["a"], ["c", "d"], {"c", "d"}),
        ({"a": 9}, [], [], ["a"], {"a"}),  # what follows from nothing costs nothing
    ],
)
def test_a_minimum_cut(prices, arcs, sources, sinks, beyond):
    assert beyond_the_cut(prices, arcs, sources, sinks) == beyond


@pytest.mark.parametrize("T", fast([1, 2, 7], 7))
@pytest.mark.parametrize("B", fast([1, 3], 3))
def test_gradients_through_time_are_the_same(T, B):
    """Ties, selections and NaN: the masks are those of the forward loop."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        x = tp.input("x", (3,), domain=(b, t))
        h = tp.recurrence((3,), domain=(b, t), name="h")
        h[b, 0] = tp.maximum(x[b, 0], 0.0)
        h[b, t] = tp.maximum(h[b, t - 1] - x, tp.where(x > 0, h[b, t - 1], x)) + tp.minimum(h[b, t - 1], tp.tanh(x))
        (gradient,) = tp.grad(h[0:n_b, n_t - 1].sum(), wrt=[x])
        outputs = [h[0:n_b, n_t - 1], gradient]
    generator = np.random.default_rng(T)
    values = generator.integers(-2, 3, (B, T, 3)).astype(np.float32)
    values[0, 0, 0] = np.nan
    results = [
        ctx.run({n_b: B, n_t: T}, outputs=outputs, inputs={"x": values}, config=tp.Config(disable=disabled))
        for disabled in ((), ("recompute",))
    ]
    assert_all_same(*results)
