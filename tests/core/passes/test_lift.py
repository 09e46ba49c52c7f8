"""lift: reductions over prefixes, suffixes and windows, and linear recurrences, as scans over the whole step."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir.ops import Argmax, Concat, CumMax, CumSum, DiscountedSum, LinearScan, Merge, Reduce
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.ranges.lift import Lift
from tests import reference
from tests.cases import fast
from tests.core.passes.support import Golden, after, check, ops_of
from tests.core.running import assert_all_same

HEAD = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(I, T))() : float32[I, T] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Eval(value=t)() : int32[] over (t)
%3 = Gather(axis=0)(%0, %1[i]) : float32[T] over (i)
%4 = Gather(axis=0)(%3[i], %2[t]) : float32[] over (i, t)
"""
TAIL = "%99 = Output(position=0)(%9[0:I, 0:T]) over ()\n"
TERMS = '%5 = Unary(fn="exp")(%4[i, t]) : float32[] over (i, t)\n'


@pytest.mark.parametrize(
    ("name", "op", "read", "scans"),
    [
        ("prefix", 'Reduce(fn="sum", axes=(0,))', "0:t + 1", (CumSum,)),
        ("suffix", 'Reduce(fn="sum", axes=(0,))', "t:T", (CumSum,)),
        ("discounted", "DiscountedSum(axis=0, gamma=0.5)", "t:T", (LinearScan,)),
        ("window", 'Reduce(fn="sum", axes=(0,))', "t:min(t + 3, T)", ()),
        ("discounted_window", "DiscountedSum(axis=0, gamma=0.5)", "t:min(t + 4, T)", ()),
        ("prefix_max", 'Reduce(fn="max", axes=(0,))', "0:t + 1", (CumMax,)),
        ("prefix_before", 'Reduce(fn="max", axes=(0,))', "0:t", (CumMax,)),
        ("suffix_min", 'Reduce(fn="min", axes=(0,))', "t:T", (CumMax,)),
        ("prefix_prod", 'Reduce(fn="prod", axes=(0,))', "0:t + 1", (LinearScan, CumMax)),
        ("backward_window", 'Reduce(fn="max", axes=(0,))', "max(t - 2, 0):t + 1", ()),
    ],
)
def test_reductions_over_ranges(golden: Golden, name: str, op: str, read: str, scans: tuple[type, ...]):
    text = HEAD + TERMS + f"%9 = {op}(%5[i, {read}]) : float32[] over (i, t)\n" + TAIL
    graph = check(golden, f"lift_{name}", text, Lift(), Simplify())
    assert not ops_of(graph, Reduce, DiscountedSum)
    assert tuple(map(type, ops_of(graph, CumSum, CumMax, LinearScan))) == scans


@pytest.mark.parametrize("read", ["0:t + 1", "t:T", "t + 1:T"])
def test_first_positions_of_greatest_elements(golden: Golden, read: str):
    text = HEAD + TERMS + f"%9 = Argmax(axis=0)(%5[i, {read}]) : int32[] over (i, t)\n" + TAIL
    name = {"0:t + 1": "prefix", "t:T": "suffix", "t + 1:T": "rest"}[read]
    assert not ops_of(check(golden, f"lift_argmax_{name}", text, Lift(), Simplify()), Argmax)


def test_blocks_are_reduced_once_a_block(golden: Golden):
    text = (
        HEAD
        + TERMS
        + '%9 = Reduce(fn="max", axes=(0,))(%5[i, t // 2 * 2:min(t // 2 * 2 + 2, T)]) : float32[] over (i, t)\n'
        + TAIL
    )
    (reduce,) = (n for n in check(golden, "lift_blocks", text, Lift(), Simplify()) if isinstance(n.op, Reduce))
    assert "t" not in map(str, reduce.domain.steps)


def test_reductions_of_blocks_of_what_blocks_reduce_to() -> None:
    """The exponentials of a block are of distances to its maximum, which is one for the block: no reader has exponentials of its own."""
    context = tp.Context("i", "t")
    with context as ((i, I), (t, T)):
        x = tp.input("x", (2,), domain=(i, t))
        block = x[i, t // 3 * 3 : tp.min(t // 3 * 3 + 3, T)]
        outputs = [block.logsumexp(0), (block.softmax(0) * tp.sin(block)).sum(0), (block - block.mean(0)).prod(0)]
    graph = Simplify().apply(Lift().apply(Simplify().apply(with_outputs(context, outputs))))
    assert not [n for n in graph if isinstance(n.op, Reduce) and "t" in map(str, n.domain.steps)]
    fed = {"x": np.random.default_rng(2).normal(size=(2, 8, 2)).astype("float32")}
    for length in (1, 3, 8):
        assert_all_same(
            context.run({I: 2, T: length}, outputs, {"x": fed["x"][:, :length]}, config=tp.Config(backend="numpy")),
            reference.evaluate(context, outputs, {I: 2, T: length}, {"x": fed["x"][:, :length]}),
        )


ELEMENTS = """\
%5 = Unary(fn="exp")(%4[i, 0:t + 1]) : float32[t + 1] over (i, t)
%6 = Broadcast(shape=(t + 1,), axes=())({other}) : float32[t + 1] over (i, t)
%7 = Binary(fn="mul")(%5[i, t], %6[i, t]) : float32[t + 1] over (i, t)
%9 = Reduce(fn="max", axes=(0,))(%7[i, t]) : float32[] over (i, t)
"""


def test_functions_of_the_elements_are_computed_once_a_point(golden: Golden):
    text = HEAD + "%11 = Gather(axis=0)(%3[i], %1[i]) : float32[] over (i)\n"
    same = text + ELEMENTS.format(other="%11[i]") + TAIL
    assert not ops_of(check(golden, "lift_elements", same, Lift(), Simplify()), Reduce)
    varying = text + ELEMENTS.format(other="%4[i, t]") + TAIL
    assert ops_of(after(varying, Lift()), Reduce)  # a factor that differs from range to range


@pytest.mark.parametrize(
    ("what", "line"),
    [
        (
            "powers of a window that begins later",
            "%9 = DiscountedSum(axis=0, gamma=0.5)(%5[i, max(t - 2, 0):t + 1]) : float32[] over (i, t)",
        ),
        ("a stride", '%9 = Reduce(fn="sum", axes=(0,))(%5[i, 0:t + 1:2]) : float32[] over (i, t)'),
        ("the past of another step", '%9 = Reduce(fn="sum", axes=(0,))(%5[min(t, I - 1), 0:t + 1]) : float32[] over (i, t)'),
        ("ends of two steps", '%9 = Reduce(fn="sum", axes=(0,))(%5[i, 0:min(i + t + 1, T)]) : float32[] over (i, t)'),
        ("a constant range", '%9 = Reduce(fn="sum", axes=(0,))(%5[i, 0:T]) : float32[] over (i, t)'),
    ],
)
def test_reductions_that_stay(what: str, line: str):
    graph = after(HEAD + TERMS + line + "\n" + TAIL, Lift())
    assert ops_of(graph, Reduce, DiscountedSum) and not ops_of(graph, CumSum, LinearScan), what


STREAMED = """\
%5 h = Merge(type=float32[])(%4[i, t] if t == 0, %6[i, t - 1] if t >= 1) : float32[] over (i, t)
%6 = Unary(fn="tanh")(%5[i, t]) : float32[] over (i, t)
%9 = Reduce(fn="sum", axes=(0,))(%5[i, {read}]) : float32[] over (i, t)
"""


def test_a_window_of_what_a_loop_makes_is_reduced_as_the_loop_goes():
    assert ops_of(after(HEAD + STREAMED.format(read="t:min(t + 2, T)") + TAIL, Lift()), Reduce)
    assert not ops_of(after(HEAD + STREAMED.format(read="0:t + 1") + TAIL, Lift()), Reduce)


INSIDE = """\
%9 = Reduce(fn="max", axes=(0,))(%4[i, {read}]) : float32[] over (i, t){where}
"""


@pytest.mark.parametrize(
    ("read", "where", "results"),
    [
        ("t - 1:t + 2", " where (T >= t + 2) & (t >= 1)", "1:T - 1"),
        ("max(t - 2, 1):min(t + 2, T - 1)", " where T >= 3", "0:T"),
    ],
)
def test_windows_that_are_not_cut_or_are_cut_within_the_step(read: str, where: str, results: str):
    """Windows inside of the step, and those between other limits than its ends."""
    tail = TAIL.replace("0:T", results)
    text = HEAD + INSIDE.format(read=read, where=where) + tail
    graph = check(lambda *_: None, "", text, Lift(), Simplify(), bounds={"I": 2, "T": 5})
    assert not ops_of(graph, Reduce)
    assert bool(ops_of(graph, Concat)) == (read != "t - 1:t + 2")  # elements of no effect beside those that there are


def test_a_recurrence_with_coefficients_of_another_steps_points():
    """`c` over i is read at t: where I is smaller than T, those points do not exist, and neither does the value."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        c, x = tp.input("c", domain=(i,)), tp.input("x", domain=(i, t))
        h = tp.recurrence((), domain=(i, t))
        h[i, 0] = x[i, 0] / c[0]
        h[i, t] = (x + 0.5 * h[i, t - 1]) / c[t]
    program = ctx.compile({I: 4, T: 4}, [h])
    assert "LinearScan" in program.text("sdg")
    inputs = {"c": np.linspace(1, 2, 4, dtype="float32"), "x": np.ones((4, 4), "float32")}
    assert_all_same(program.run(inputs), reference.evaluate(ctx, [h], {I: 4, T: 4}, inputs), 1e-5)


IN_A_LOOP = """\
%5 h = Merge(type=float32[])(%4[i, t] if t == {first}, %7[i, {neighbour}] if {rest}) : float32[] over (i, t)
%6 = Unary(fn="tanh")(%5[i, t]) : float32[] over (i, t)
%9 = Reduce(fn="sum", axes=(0,))(%6[i, {read}]) : float32[] over (i, t)
%7 = Binary(fn="mul")(%9[i, t], %4[i, t]) : float32[] over (i, t)
"""


def test_a_loop_carries_the_reduction_of_what_it_computes(golden: Golden):
    forwards = IN_A_LOOP.format(first="0", neighbour="t - 1", rest="t >= 1", read="0:t + 1")
    backwards = IN_A_LOOP.format(first="T - 1", neighbour="t + 1", rest="t <= T - 2", read="t:T")
    for name, loop in (("loop", forwards), ("loop_backwards", backwards)):
        graph = check(golden, f"lift_{name}", HEAD + loop + TAIL, Lift(), Simplify())
        assert not ops_of(graph, Reduce, CumSum) and len(ops_of(graph, Merge)) == 2
    window = forwards.replace("0:t + 1", "max(t - 1, 0):t + 1")
    assert ops_of(after(HEAD + window + TAIL, Lift()), Reduce)  # the sum of the points before this one is not a sum of windows


def test_reductions_against_the_order_of_the_loop_wait_for_its_end():
    graph = after(HEAD + STREAMED.format(read="t:T") + TAIL, Lift())
    assert ops_of(graph, CumSum) and len(ops_of(graph, Merge)) == 1


def test_a_reduction_of_what_two_loops_make_waits_for_their_ends():
    """Values of a loop forwards and of one backwards have no order, and neither has a range without the reader's own point."""
    loops = """\
%5 h = Merge(type=float32[])(%4[i, t] if t == 0, %6[i, t - 1] if t >= 1) : float32[] over (i, t)
%6 = Unary(fn="tanh")(%5[i, t]) : float32[] over (i, t)
%7 g = Merge(type=float32[])(%4[i, t] if t == T - 1, %8[i, t + 1] if t <= T - 2) : float32[] over (i, t)
%8 = Unary(fn="tanh")(%7[i, t]) : float32[] over (i, t)
%10 = Binary(fn="add")(%6[i, t], %8[i, t]) : float32[] over (i, t)
%9 = Reduce(fn="sum", axes=(0,))(%10[i, 0:t]) : float32[] over (i, t)
"""
    graph = after(HEAD + loops + TAIL, Lift())
    assert ops_of(graph, CumSum) and len(ops_of(graph, Merge)) == 2


def test_inside_a_loop_over_another_step_all_points_are_there():
    text = """\
%5 h = Merge(type=float32[])(%4[i, t] if i == 0, %9[i - 1, t] if i >= 1) : float32[] over (i, t)
%9 = Reduce(fn="sum", axes=(0,))(%5[i, 0:t + 1]) : float32[] over (i, t)
"""
    assert ops_of(after(HEAD + text + TAIL, Lift()), CumSum)


def recurrence(value: str, first: str = "t == 0", rest: str = "t >= 1", back: str = "t - 1") -> str:
    return (
        HEAD
        + f"%9 a = Merge(type=float32[])(%4[i, t] if {first}, %8[i, {back}] if {rest}) : float32[] over (i, t)\n"
        + '%5 c = Unary(fn="tanh")(%4[i, t]) : float32[] over (i, t)\n'
        + value
        + TAIL
    )


LINEAR = """\
%6 = Binary(fn="mul")(%5[i, t], %9[i, t]) : float32[] over (i, t)
%8 = Binary(fn="sub")(%6[i, t], %4[i, t]) : float32[] over (i, t)
"""
RESET = """\
%6 = Compare(fn="lt")(%4[i, t], %5[i, t]) : bool[] over (i, t)
%7 = Unary(fn="neg")(%9[i, t]) : float32[] over (i, t)
%8 = Where()(%6[i, t], %7[i, t], %5[i, t]) : float32[] over (i, t)
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("linear", recurrence(LINEAR)),
        ("reset", recurrence(RESET)),
        ("backwards", recurrence(LINEAR, "t == T - 1", "t <= T - 2", "t + 1")),
    ],
)
def test_linear_recurrences(golden: Golden, name: str, text: str):
    graph = check(golden, f"lift_{name}", text, Lift(), Simplify())
    assert [op.reverse for op in ops_of(graph, LinearScan)] == [name == "backwards"]


NOT_LINEAR = {
    "a square": '%8 = Binary(fn="mul")(%9[i, t], %9[i, t]) : float32[] over (i, t)\n',
    "a denominator": '%8 = Binary(fn="div")(%5[i, t], %9[i, t]) : float32[] over (i, t)\n',
    "a function": '%8 = Unary(fn="tanh")(%9[i, t]) : float32[] over (i, t)\n',
    "two neighbours": '%8 = Binary(fn="add")(%9[i, t], %9[i, max(t - 1, 0)]) : float32[] over (i, t)\n',
    "a test on itself": (
        '%6 = Compare(fn="lt")(%9[i, t], %5[i, t]) : bool[] over (i, t)\n'
        "%8 = Where()(%6[i, t], %9[i, t], %5[i, t]) : float32[] over (i, t)\n"
    ),
}


@pytest.mark.parametrize("what", NOT_LINEAR)
def test_recurrences_that_stay(what: str):
    graph = after(recurrence(NOT_LINEAR[what]), Lift())
    assert not ops_of(graph, LinearScan)
    assert len(ops_of(graph, Merge)) == 1


def test_recurrences_of_a_step_that_stays_a_loop_stay():
    assert not ops_of(after(recurrence(LINEAR), Lift(but=("t",))), LinearScan)
    assert ops_of(after(recurrence(LINEAR), Lift(but=("i",))), LinearScan)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (32,), domain=(t,))
        c = tp.recurrence((32, 32), domain=(t,), name="c")
        c[0] = tp.zeros((32, 32))
        c[t + 1] = c * 0.9 + x.reshape(32, 1) * x
    program = ctx.compile({T: 50}, c[T - 1], tp.Config(disable=("vectorize(t)",)))
    assert program.plan().peak_device_bytes < 4 * 32 * 32 * 4 + 50 * 32 * 4, "one point at a time is in memory"


def test_integer_recurrences_stay():
    """Sums of integers wrap around; a scan of products would too, but the pass does not create one."""
    text = recurrence(LINEAR).replace("float32", "int32").replace('fn="tanh"', 'fn="neg"')
    assert not ops_of(after(text, Lift()), LinearScan)


def test_long_discounted_sums_do_not_underflow():
    """Gamma**t is zero in float32 long before the end, so the scan must not divide by it."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        returns = tp.input("r", domain=(t,))[t:T].discounted_sum(0.95)
    rewards = np.random.default_rng(0).normal(size=4000).astype("float32")
    expected, after = np.zeros(4000), 0.0
    for k in reversed(range(4000)):
        expected[k] = after = rewards[k] + 0.95 * after
    (result,) = ctx.run({T: 4000}, outputs=[returns], inputs={"r": rewards}, config=tp.Config(backend="numpy"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_reset_forgets_what_is_infinite_or_not_a_number():
    """`where(reset, x, c * a[t - 1])` is a scan with the coefficient 0 at a reset: an infinity before it has no effect after it."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, c = tp.input("x", (2,), domain=(t,)), tp.input("c", (2,), domain=(t,))
        reset = tp.input("reset", (2,), "bool", domain=(t,))
        updates = [
            lambda a: tp.where(reset, x, c * a),
            lambda a: tp.where(reset, x, c * a + x),
            lambda a: x + c * tp.where(reset, 0, a),
            lambda a: tp.where(reset, 0, a) - x,
        ]
        outputs = []
        for update in updates:
            state = tp.recurrence((2,), domain=(t,))
            state[0] = x[0]
            state[t] = update(state[t - 1])
            outputs.append(state)
    inputs = {
        "x": np.array([[1, np.inf], [np.nan, 1], [2, 3], [np.inf, 1], [1, 1], [2, 2]], "float32"),
        "c": np.array([[1, 2], [np.inf, 1], [1, 1], [0.5, 3], [2, -1], [1, 1]], "float32"),
        "reset": np.array([[0, 0], [0, 1], [1, 0], [0, 1], [1, 1], [0, 0]], bool),
    }
    expected = reference.evaluate(ctx, outputs, {T: 6}, inputs)
    for config in (tp.Config(), tp.Config(backend="numpy")):
        program = ctx.compile({T: 6}, outputs=outputs, config=config)
        assert program.text("sdg").count("LinearScan") >= len(updates)
        for result, right in zip(program.run(inputs), expected, strict=True):
            np.testing.assert_array_equal(result, right)


def averages(batch: bool, backwards: bool, factor: float) -> tuple[tp.Context, tp.Bound, list[tp.Tensor]]:
    """An average of outer products, of which only the last point is read; and its gradients."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, start = tp.input("x", (2, 3), domain=(t,)), tp.input("start", (2, 3, 3))
        products = x.expand_dims(2) * x.expand_dims(1) if batch else x.index(0, 0).expand_dims(1) * x.index(0, 1)
        first = start if batch else start.index(0, 0)
        average = tp.recurrence(first.shape, domain=(t,), name="average")
        if backwards:
            average[T - 1] = first
            average[t] = factor * average[t + 1] + products
        else:
            average[0] = first
            average[t + 1] = average * factor + products
        last = average[0] if backwards else average[T - 1]
        gradients = tp.grad((last**2).sum(), wrt=[x, start])
    return ctx, T, [last, *gradients]


@pytest.mark.parametrize("factor", fast([1.0, 0.5, 0.01], 0.5))
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("batch", fast([False, True], True))
def test_the_last_point_of_an_average_of_outer_products_is_one_product(batch: bool, backwards: bool, factor: float):
    ctx, T, outputs = averages(batch, backwards, factor)
    random = np.random.default_rng(0)
    for length in (1, 2, 40):
        inputs = {
            name: random.normal(size=shape).astype("float32") for name, shape in (("x", (length, 2, 3)), ("start", (2, 3, 3)))
        }
        expected = reference.evaluate(ctx, outputs, {T: length}, inputs)
        program = ctx.compile({T: length}, outputs)
        assert_all_same(program.run(inputs), expected, 1e-4)
        assert length == 1 or not ("LinearScan" in program.text("sdg") or "for t" in program.text())


@pytest.mark.parametrize("change", ["minus", "more than one", "read elsewhere"])
def test_other_recurrences_are_no_powers(change: str):
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        average = tp.recurrence((3, 3), domain=(t,), name="average")
        average[0] = tp.zeros((3, 3))
        average[t + 1] = {"minus": -0.5, "more than one": 1.5}.get(change, 0.5) * average + x.expand_dims(1) * x
        outputs = [average[T - 1]] + ([average[T - 2]] if change == "read elsewhere" else [])
    graph = Lift().apply(Simplify().apply(with_outputs(ctx, outputs)))
    assert ops_of(graph, LinearScan)


def test_what_is_infinite_stays_infinite_in_powers():
    """`0.01 ** 40` is zero in float32, and an infinity times zero would be NaN."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, start = tp.input("x", (2,), domain=(t,)), tp.input("start", (2,))
        state = tp.recurrence((2,), domain=(t,), name="state")
        state[0] = start
        state[t + 1] = 0.01 * state
        outputs = [state, (state.expand_dims(1) * x).sum(0), tp.einsum("ta,tb->ab", x[0:T], state[0:T])]
    inputs = {"x": np.ones((40, 2), "float32"), "start": np.array([np.inf, 1.0], "float32")}
    program = ctx.compile({T: 40}, outputs)
    assert "LinearScan" not in program.text("sdg") and "pow" in program.text("sdg")
    assert_all_same(program.run(inputs), reference.evaluate(ctx, outputs, {T: 40}, inputs))
