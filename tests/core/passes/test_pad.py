"""pad: its effect on graphs as text, and each of its rules against the unpadded values."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ShapeError
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Op
from tempo_core.ir.types import TensorType
from tempo_core.ir.verify import verify
from tempo_core.passes.shapes.pad import RULES, Pad
from tempo_core.symbolic.domain import Domain, Point, Range, full_range
from tempo_core.symbolic.expr import Expr, Symbol, minimum
from tests import reference
from tests.core.every_op import EVERY_OP, ROWS, each_op
from tests.core.gradient_checks import assert_gradients
from tests.core.passes.support import Golden, check, fed, ops_of
from tests.core.running import assert_all_same, assert_same
from tests.graph_parser import parse

PADDED = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T, 2))() : float32[T, 2] over ()
%1 = Eval(value=t)() : int32[] over (t)
%2 = Gather(axis=0)(%0, %1[t]) : float32[2] over (t)
%3 doubled = Binary(fn="add")(%2[t:min(t + 3, T)], %2[t:min(t + 3, T)]) : float32[min(t + 3, T) - t, 2] over (t)
%4 = Reduce(fn="sum", axes=(1,))(%3[t]) : float32[min(t + 3, T) - t] over (t)
%5 = Reduce(fn="max", axes=(0,))(%4[t]) : float32[] over (t)
%6 whole = Reduce(fn="sum", axes=(0, 1))(%2[0:T]) : float32[] over ()
%7 = Dot(left_contract=(0,), right_contract=(0,))(%3[t], %3[t]) : float32[2, 2] over (t)
%8 = Output(position=0)(%5[0:T]) over ()
%9 = Output(position=1)(%6) over ()
%10 = Output(position=2)(%7[0:T]) over ()
"""


def test_pad(golden: Golden):
    graph = check(golden, "pad", PADDED, Pad())
    verify(graph, static=True)


FLATTENED = """\
steps i<I b<B
%0 x = Input(name="x", dtype="float32", shape=(B, 2))() : float32[B, 2] over ()
%1 = Eval(value=i)() : int32[] over (i)
%2 = Cast(dtype="float32")(%1[i]) : float32[] over (i)
%3 = Broadcast(shape=(B, 2), axes=())(%2[i]) : float32[B, 2] over (i)
%4 = Binary(fn="add")(%0, %3[i]) : float32[B, 2] over (i)
%5 replay = Identity()(%4[max(i - 3, 0):i + 1]) : float32[i - max(i - 3, 0) + 1, B, 2] over (i)
%6 flat = Reshape(shape=(i*B - B*max(i - 3, 0) + B, 2))(%5[i]) : float32[i*B - B*max(i - 3, 0) + B, 2] over (i)
%7 = Reduce(fn="sum", axes=(0,))(%6[i]) : float32[2] over (i)
%8 = Output(position=0)(%7[0:I]) over ()
"""


def test_a_flattened_window_is_padded_to_its_own_size_alone():
    """A window of four timesteps of B rows each is at most 4*B rows, however long the history is."""
    graph = Pad().apply(parse(FLATTENED))
    verify(graph, static=True)
    (flat,) = [node for node in graph if node.name == "flat" and isinstance(node.op, ops.Reshape)]
    assert str(flat.outputs[0]) == "float32[B*min(4, I), 2]"


FITTED = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Identity()(%0[0:t + 1]) : int32[t + 1] over (t)
%2 = Identity()(%1[T // 2]) : int32[(T//2) + 1] over ()
%3 = Binary(fn="add")(%1[t - 1], %0[0:t]) : int32[t] over (t) where t >= 1
%4 = Reduce(fn="sum", axes=(0,))(%3[t]) : int32[] over (t) where t >= 1
%5 = Output(position=0)(%2) over ()
%6 = Output(position=1)(%4[1:T]) over ()
"""


def test_one_point_of_a_varying_shape_is_cut_to_its_size(golden: Golden):
    graph = check(golden, "pad_fitted", FITTED, Pad())
    verify(graph, static=True)
    assert len(ops_of(graph, ops.Slice)) == 2


RESULTS = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Identity()(%0[0:t + 1]) : int32[t + 1] over (t)
%2 = Broadcast(shape=(T - 3, t + 1), axes=())(%0[t]) : int32[T - 3, t + 1] over (t)
%3 = Iota(size=t - 3)() : int32[t - 3] over (t)
%4 = Reduce(fn="sum", axes=(0,))(%0[t:min(t + 2, T) to 5]) : int32[] over (t)
%5 = Output(position=0)(%1[t]) over (t) where t <= T - 2
%6 = Output(position=1)(%0[t:T]) over (t)
%7 = Output(position=2)(%2[t]) over (t)
%8 = Output(position=3)(%3[t]) over (t)
%9 = Output(position=4)(%4[t]) over (t)
"""


def test_results_are_padded_and_not_cut(golden: Golden):
    """They are trimmed where they are handed out. Static sizes stay as they are, and a size is never below 0."""
    verify(check(golden, "pad_results", RESULTS, Pad(), same=False), static=True)


STATIC = """\
steps t<T
%0 = Eval(value=t)() : int32[] over (t)
%1 = Reduce(fn="sum", axes=(0,))(%0[0:T]) : int32[] over ()
%2 = Reduce(fn="sum", axes=(0,))(%0[t:T to T]) : int32[] over (t)
%3 = Output(position=0)(%1) over ()
%4 = Output(position=1)(%2[0:T]) over ()
"""


def test_a_graph_of_static_shapes_is_left_alone():
    """Ranges of one length, and those that are padded already, are static too."""
    graph = parse(STATIC)
    assert Pad().apply(graph) is graph


MERGED = """\
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(T,))() : float32[T] over ()
%1 = Slice(axis=0, start=0, stop=t + 1)(%0) : float32[t + 1] over (t)
%2 = Unary(fn="exp")(%1[t]) : float32[t + 1] over (t)
%3 m = Merge(type=float32[t + 1])(%1[t] if t == 0, %2[t]) : float32[t + 1] over (t)
%4 = Reduce(fn="sum", axes=(0,))(%3[t]) : float32[] over (t)
%5 = Output(position=0)(%4[0:T]) over ()
"""


def test_branches_of_a_varying_shape_get_the_largest(golden: Golden):
    verify(check(golden, "pad_merged", MERGED, Pad()), static=True)


# -- one rule an op -----------------------------------------------------------------------------------------------------

t = Symbol("t", "T")
T, N, TWO, THREE = t.bound_expr, t.expr + 1, Expr.of(2), Expr.of(3)
NUMBERS = {Symbol("T"): 4}

POINTWISE = {
    ops.Unary,
    ops.Binary,
    ops.Compare,
    ops.Where,
    ops.Cast,
    ops.Identity,
    ops.Permute,
}  # padding in the operands is padding in the result
HAS_NEUTRAL = {op for op in EVERY_OP if op.neutral is not Op.neutral}
NO_VARYING_SHAPE = {ops.Constant, ops.Eval, ops.Input, ops.End}
HANDLED_BEFORE = {ops.Merge, ops.Output}  # by `_Padding` itself: one is refused, the other trimmed
MADE_LATER = {ops.Dataflow, ops.Update}

A, B, M, V = (TensorType("float32", shape) for shape in ((N, TWO), (TWO, N), (N, N), (N,)))


def index(*shape: Expr) -> TensorType:
    return TensorType("int32", shape)


def conv(stride: int, high: Expr | int = 1, low: Expr | int = 1, groups: int = 1) -> Op:
    return ops.Conv((stride,), (Expr.of(low),), (Expr.of(high),), (1,), (1,), Expr.of(groups))


def conv_of_images(stride: int) -> Op:
    return ops.Conv((stride, 1), (Expr.of(1),) * 2, (Expr.of(1),) * 2, (1, 1), (1, 1), Expr.of(1))


EXAMPLES: list[tuple[Op, list[TensorType]]] = [
    *(row.sized(N) for row in ROWS if row.operands),
    (ops.Binary("div"), [A, A]),
    *((ops.Reduce(fn, axes), [type]) for fn in ("sum", "prod", "max", "min") for axes, type in [((0,), A), ((1,), A), ((0, 1), M)]),
    *((ops.Reduce(fn, (0,)), [TensorType("bool", (N, TWO))]) for fn in ("any", "all")),
    (ops.Reduce("max", (0,)), [index(N)]),
    (ops.Argmax(1), [M]),
    (ops.Argsort(0), [index(N)]),
    (ops.CumSum(0, True), [A]),
    (ops.CumMax(0, True), [A]),
    (ops.LinearScan(1, True), [B, B]),
    (ops.DiscountedSum(0, 0.5), [A]),
    (ops.Dot((0,), (0,)), [A, A]),
    (ops.Dot((1,), (0,)), [M, A]),
    (ops.Dot((1,), (1,), (0,), (0,)), [M, M]),
    (ops.Dot((1,), (0,)), [A, B]),
    (conv(stride=1), [TensorType("float32", (N, THREE, TWO)), TensorType("float32", (TWO, TWO, TWO))]),  # a leading dimension varies
    (conv(stride=2), [A, TensorType("float32", (TWO, TWO, THREE))]),  # a spatial one
    (conv(stride=1, high=2 * T), [A, TensorType("float32", (N, TWO, THREE))]),  # the kernel's
    (conv(stride=1), [TensorType("float32", (THREE, N)), TensorType("float32", (TWO, N, THREE))]),  # the channels
    (conv(stride=1), [TensorType("float32", (THREE, TWO)), TensorType("float32", (TWO, TWO, N))]),  # the features
    (conv(stride=1, high=N), [TensorType("float32", (THREE, TWO)), TensorType("float32", (TWO, TWO, TWO))]),  # the padding after
    (conv(stride=1, groups=2), [TensorType("float32", (N, Expr.of(4))), TensorType("float32", (TWO, TWO, TWO))]),
    (conv_of_images(stride=2), [TensorType("float32", (N, THREE, TWO)), TensorType("float32", (TWO, TWO, TWO, TWO))]),
    (conv_of_images(stride=1), [TensorType("float32", (TWO, THREE, N, TWO)), TensorType("float32", (TWO, THREE, TWO, TWO))]),
    (ops.Iota(N), []),
    (ops.Iota(T - t.expr), []),
    (ops.Broadcast((N, TWO), (1,)), [TensorType("float32", (TWO,))]),
    (ops.Broadcast((TWO, N, N), (1,)), [V]),
    (ops.Random("normal", 1, (N,)), [index()]),
    (ops.Random("uniform", 2, (N, TWO)), [index()]),
    (ops.Random("uniform", 2, (TWO, N)), [index()]),
    (ops.Random("uniform", 2, (TWO, N, N)), [index()]),
    (ops.Reshape((N, Expr.of(1), TWO)), [A]),
    (ops.Reshape((N * 1, TWO)), [TensorType("float32", (N, Expr.of(1), TWO))]),
    (ops.Reshape((TWO * N,)), [B]),
    (ops.Reshape((N, TWO)), [B]),
    (ops.Reshape((2 * N, N)), [TensorType("float32", (N, 2 * N))]),
    (ops.Reshape((Expr.of(1), Expr.of(1), Expr.of(1), N, THREE)), [TensorType("float32", (THREE, N, Expr.of(1), Expr.of(1), Expr.of(1)))]),
    (ops.Reshape((N * N,)), [M]),
    (ops.Reshape((N, N)), [TensorType("float32", (N * N,))]),
    (ops.Slice(0, Expr.of(1), N), [A]),
    (ops.Slice(0, Expr.of(0), N + 2), [A]),  # past the end of what is padded: zeros
    (ops.Slice(0, Expr.of(-1), N - 1), [A]),
    (ops.Slice(0, Expr.of(-1), N + 1), [A]),
    (ops.Slice(0, Expr.of(1), N + 1), [A]),
    (ops.Slice(0, Expr.of(-2), TWO), [A]),
    (ops.Slice(0, Expr.of(-1), N + 2, 2), [A]),
    (ops.Slice(1, Expr.of(0), N), [A]),
    (ops.Slice(0, t.expr // 2, N, 2), [A]),
    (ops.Slice(0, Expr.of(0), TWO), [A]),
    (ops.Slice(0, t.expr - 1, N), [A]),  # before the start at t = 0
    (ops.Pad(0, Expr.of(1), TWO), [A]),
    (ops.Pad(0, T - N, Expr.of(0)), [A]),
    (ops.Pad(1, t.expr, Expr.of(1)), [A]),
    (ops.Pad(1, Expr.of(1), t.expr), [A]),
    (ops.Pad(0, Expr.of(0), -t.expr), [A]),
    (ops.Concat(0), [A, TensorType("float32", (TWO, TWO)), A]),
    (ops.Concat(1), [A, A]),
    (ops.Flip(1), [A]),
    (ops.Gather(0), [A, index()]),
    (ops.Gather(0), [A, index(N)]),
    (ops.Gather(1), [A, index(N)]),
    (ops.Gather(1, 1), [M, index(N, TWO)]),
    (ops.Gather(0), [TensorType("float32", (t.expr, TWO)), index(N)]),  # of no elements at t = 0: zeros
    (ops.Scatter(0, TWO), [A, index(N)]),
    (ops.Scatter(1, N), [A, index(TWO)]),
    (ops.Scatter(1, THREE, 1), [B, index(TWO, N)]),
    (ops.Scatter(0, N + 1), [V, index(N)]),
    *((ops.Scatter(0, TWO, fn=fn), [A, index(N)]) for fn in ops.COMBINING),
]  # fmt: skip


@each_op
def test_each_op_has_a_rule_or_a_reason(op: type[Op]):
    listed = [set(RULES), HAS_NEUTRAL, POINTWISE, NO_VARYING_SHAPE, HANDLED_BEFORE, MADE_LATER]
    assert sum(op in some for some in listed) == 1, (
        f"give {op.__name__} a neutral element, or a row in passes/shapes/pad.py; or add it to POINTWISE, if its padding may be anything"
    )
    tested = {type(example) for example, _ in EXAMPLES} | {ops.Udf, ops.Sink}  # whose tests are below
    assert op in tested or op not in set(RULES) | HAS_NEUTRAL | POINTWISE, f"give {op.__name__} a row in tests/core/every_op.py"


def operand(graph: Graph, number: int, type: TensorType) -> Edge:
    """A value of varying shape at each t, cut out of a larger input."""
    shape = tuple(T if size.steps else size for size in type.shape)
    node = graph.add(ops.Input(f"x{number}", type.dtype, shape), domain=Domain())
    edge = Edge(node.id)
    for axis, size in enumerate(type.shape):
        if size.steps:
            cut = graph.add(ops.Slice(axis, Expr.of(0), size), [edge], domain=Domain((t,)))
            edge = Edge(cut.id, (Point(t.expr),))
    return edge


def trimmed(values: np.ndarray, type: TensorType) -> list[np.ndarray]:
    rows = []
    for k, value in enumerate(values):
        sizes = [size.evaluate({**NUMBERS, t: k}) for size in type.shape]
        rows.append(np.asarray(value)[tuple(slice(n) for n in sizes)])
    return rows


@pytest.mark.parametrize(("op", "types"), EXAMPLES, ids=lambda part: str(part) if isinstance(part, Op) else "")
def test_a_padded_op_gives_the_same_within_the_true_shape(op: Op, types: list[TensorType]):
    graph = Graph((t,))
    edges = [operand(graph, number, type) for number, type in enumerate(types)]
    node = graph.add(op, edges, domain=Domain((t,)))
    graph.add(ops.Output(0), [Edge(node.id, (full_range(t),))], domain=Domain())
    inputs = fed(graph, {"T": 4})
    padded = Pad().apply(graph)
    verify(padded)
    assert all(type.is_static for node in padded for type in node.outputs)
    largest = [max(size.evaluate({**NUMBERS, t: k}) for k in range(4)) for size in node.outputs[0].shape]
    assert [size.evaluate(NUMBERS) for size in padded[node.id].outputs[0].shape] == largest
    (expected,), (result,) = (reference.evaluate(g, None, NUMBERS, inputs) for g in (graph, padded))
    for k, (value, right) in enumerate(zip(trimmed(result, node.outputs[0]), expected, strict=True)):
        assert_same(value, right, where=f"t = {k}")


def padded(op: Op, types: list[TensorType]) -> Graph:
    """An op of operands of varying shapes, padded."""
    graph = Graph((t,))
    graph.add(op, [operand(graph, number, type) for number, type in enumerate(types)], domain=Domain((t,)), name="tested")
    return Pad().apply(graph)


@pytest.mark.parametrize(
    ("op", "types", "never"),
    [
        (ops.Reshape((N, Expr.of(1), TWO)), [A], ops.Gather),
        (ops.Reshape((N, N, Expr.of(1), TWO)), [TensorType("float32", (N, N, TWO))], ops.Gather),
        (ops.Reshape((TWO * N,)), [A], ops.Gather),
        (ops.Reshape((N, TWO)), [TensorType("float32", (TWO * N,))], ops.Gather),
        (conv(stride=1), [TensorType("float32", (THREE, TWO)), TensorType("float32", (TWO, TWO, N))], ops.Where),
        (ops.Gather(0), [A, index()], ops.Where),
        (ops.Slice(0, Expr.of(-1), N - 1), [A], ops.Gather),
        (ops.Slice(0, Expr.of(-1), N - 1), [A], ops.Where),
        (ops.Slice(0, Expr.of(1), N + 1), [A], ops.Gather),
    ],
    ids=[
        "a dimension of one",
        "a dimension of one after two",
        "one dimension of two",
        "two dimensions of one",
        "features",
        "positions where there are elements",
        "moved back",
        "moved back, with no element past the end",
        "moved forward",
    ],
)
def test_what_keeps_its_place_is_not_moved_and_what_is_not_summed_not_masked(op: Op, types: list[TensorType], never: type[Op]):
    nodes = [node for node in padded(op, types) if node.name == "tested"]
    assert nodes and not any(isinstance(node.op, never) for node in nodes)


@pytest.mark.parametrize(
    ("op", "x", "w", "what"),
    [
        (conv(1, low=t.expr), (THREE, TWO), (TWO, TWO, TWO), "padding varies"),
        (conv(1, groups=2), (THREE, 2 * N), (TWO, N, TWO), "groups vary"),
        (conv(1, groups=2), (THREE, TWO), (TWO, Expr.of(1), 2 * N), "groups vary"),
    ],
    ids=["padding before", "channels of groups", "features of groups"],
)
def test_convolutions_that_cannot_be_padded(op: Op, x: tuple[Expr, ...], w: tuple[Expr, ...], what: str):
    with pytest.raises(ShapeError, match=f"is a convolution whose {what} with the step"):
        padded(op, [TensorType("float32", x), TensorType("float32", w)])


def test_what_lies_in_the_padding_is_never_seen():
    """Wrong values in the padding, even NaN, do not change sums, products, contractions and scans."""
    graph = Graph((t,))
    x = operand(graph, 0, A)
    logs = graph.add(ops.Unary("log"), [Edge(x.source, x.index)], domain=Domain((t,)))  # log(0) of the padding is -inf
    bad = graph.add(ops.Binary("sub"), [Edge(logs.id, x.index)] * 2, domain=Domain((t,)))  # -inf - -inf is NaN
    edge = Edge(bad.id, (Point(t.expr),))
    readers = [
        ops.Reduce("sum", (0,)),
        ops.Reduce("max", (0,)),
        ops.CumSum(0, True),
        ops.DiscountedSum(0, 0.5),
        ops.Argsort(0),
        ops.Flip(0),
    ]
    nodes = [graph.add(op, [edge], domain=Domain((t,))) for op in readers]
    nodes.append(graph.add(ops.Dot((0,), (0,)), [edge, edge], domain=Domain((t,))))
    for position, node in enumerate(nodes):
        graph.add(ops.Output(position), [Edge(node.id, (full_range(t),))], domain=Domain())
    inputs = {"x0": np.abs(fed(graph, {"T": 4})["x0"]) + 1}
    with np.errstate(all="ignore"):
        results = reference.evaluate(Pad().apply(graph), None, NUMBERS, inputs)
        expected = reference.evaluate(graph, None, NUMBERS, inputs)
    for node, values, right in zip(nodes, results, expected, strict=True):
        for value, true in zip(trimmed(values, node.outputs[0]), right, strict=True):
            assert np.isfinite(value).all(), node.label
            assert_same(value, true, where=node.label)


@pytest.mark.parametrize(("compared", "fn"), [("eq", "all"), ("ne", "any")])
def test_padding_says_neither_yes_nor_no(compared: str, fn: str):
    """Where all elements are true, so are "all"; where none is, neither is "any"."""
    graph = Graph((t,))
    x = operand(graph, 0, A)
    truth = graph.add(ops.Compare(compared), [x, x], domain=Domain((t,)))
    node = graph.add(ops.Reduce(fn, (0,)), [Edge(truth.id, x.index)], domain=Domain((t,)))
    graph.add(ops.Output(0), [Edge(node.id, (full_range(t),))], domain=Domain())
    (result,) = reference.evaluate(Pad().apply(graph), None, NUMBERS, fed(graph, {"T": 4}))
    np.testing.assert_array_equal(result, np.full((4, 2), fn == "all"))


# -- what leaves the program, and what is refused -----------------------------------------------------------------------


def test_functions_on_the_host_get_arrays_in_their_true_shapes():
    ctx, seen = tp.Context("t"), []

    def length(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(x.size, "int32"), np.asarray(x.sum())

    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,)) * 1
        tp.sink(lambda now, past, t: seen.append((t, now.shape, past.tolist())), x, x[0 : t + 1].sum(1))
        sizes, sums = tp.udf(length, x[t : tp.min(t + 2, T)], outputs=[tp.spec((), "int32"), tp.spec()], kind="host")
    data = np.arange(6, dtype="float32").reshape(3, 2)
    for config in (tp.Config(), tp.Config(backend="numpy")):
        seen.clear()
        counts, total = ctx.run({T: 3}, outputs=[sizes, sums], inputs={"x": data}, config=config)
        assert counts.tolist() == [4, 4, 2] and total.tolist() == [6, 14, 9]
        assert sorted(seen) == [(0, (2,), [1]), (1, (2,), [1, 5]), (2, (2,), [1, 5, 9])]


def refusal(make) -> str:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        outputs = make(tp.input("x", (2,), domain=(t,)) * 1, t, T)
    with pytest.raises(ShapeError) as error:
        ctx.compile({T: 3}, outputs=outputs)
    assert "test_pad.py" in str(error.value)
    assert error.value.hint
    return str(error.value)


def test_functions_of_jax_need_one_shape():
    def make(x, t, T):
        return tp.udf(lambda past: (past.sum(),), x[0 : t + 1], outputs=[tp.spec()], name="total")

    assert "total" in refusal(make)


def test_a_recurrence_may_have_a_shape_that_varies():
    """Concatenations of past values, and of future values, have their true shapes at every point, in gradients too."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        past, ahead = tp.recurrence((t + 1, 2), domain=(t,), name="past"), tp.recurrence((T - t,), domain=(t,), name="ahead")
        past[0] = x[0].expand_dims(0)
        past[t + 1] = tp.concatenate([past * 2, x[t + 1].expand_dims(0)])
        ahead[T - 1] = x[T - 1].sum().reshape(1)
        ahead[t] = tp.concatenate([x.sum().reshape(1), ahead[t + 1].cumsum(0)])
        loss = (past * past).sum() + ahead.sum() + past[T - 1].sum()
        (gradient,) = assert_gradients(ctx, loss, [x], {T: 3}, {"x": np.arange(6.0).reshape(3, 2)})
        with pytest.raises(ShapeError, match="varies with t, but t is not in its domain"):
            tp.recurrence((t + 1,), name="fixed")
    outputs, inputs = [past, ahead, loss, gradient], {"x": np.arange(6, dtype="float32").reshape(3, 2)}
    expected = reference.evaluate(ctx, outputs, {T: 3}, inputs)
    for config in (tp.Config(), tp.Config(backend="numpy"), tp.Config(backend="numpy", disable=("vectorize",))):
        assert_all_same(ctx.run({T: 3}, outputs=outputs, inputs=inputs, config=config), expected)


def test_a_varying_dimension_takes_in_the_ones_after_it_and_gives_them_up():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        flat = (x[0 : t + 1] * 3).reshape(-1)
        again = flat.reshape(t + 1, 2).sum(0)
    data = np.arange(6, dtype="float32").reshape(3, 2)
    for config in (tp.Config(), tp.Config(backend="numpy"), tp.Config(backend="numpy", disable=("pad",))):
        rows, sums = ctx.run({T: 3}, outputs=[flat, again], inputs={"x": data}, config=config)
        assert [row.tolist() for row in rows] == [[0, 3], [0, 3, 6, 9], [0, 3, 6, 9, 12, 15]]
        assert sums.tolist() == [[0, 3], [6, 12], [18, 27]]


def test_the_largest_size_of_a_window_is_its_width():
    graph = Graph((t,))
    value = graph.add(ops.Eval(t.expr))
    window = Range(t.expr, minimum(t.expr + 3, T))
    node = graph.add(ops.Reduce("sum", (0,)), [Edge(value.id, (window,))])
    graph.add(ops.Output(0), [Edge(node.id, (full_range(t),))], domain=Domain())
    reads = [
        e.index[0]
        for n in Pad().apply(graph)
        for e in n.inputs
        if e.index and isinstance(e.index[0], Range) and e.index[0].size is not None
    ]
    assert [str(read.size) for read in reads] == ["min(3, T)"]


def test_a_merge_whose_branches_come_later():
    """Its branches get their shapes after it, along both dimensions that vary."""
    context = tp.Context("b", "i", "t")
    with context as ((b, B), (i, I), (t, T)):
        x = tp.input("x", domain=(b, i, t))
        parts = x[0 : tp.max(b, 1), tp.min(i + 1, I) : tp.min(i + 5, I), t // 11 * 11 : t + 1].sum(0)
        both = parts.discounted_sum(0.9).discounted_sum(0.9)
        last = both[tp.max(b - 1, 0), tp.min((i + 3) % 3, I - 1), T - 1 - t : T].sum(-1)
        outputs = tp.grad(tp.tanh(last[0:B, 0:I, 0:T].sum()), [x])
    bounds, inputs = {B: 2, I: 3, T: 4}, {"x": np.random.default_rng(3).normal(size=(2, 3, 4)).astype("float32")}
    result = context.run(bounds, outputs, inputs, config=tp.Config(backend="numpy"))
    assert_all_same(result, reference.evaluate(context, outputs, bounds, inputs), 1e-5)
