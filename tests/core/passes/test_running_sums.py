"""lift: contractions of running sums of outer products (linear attention, with and without decay), in blocks of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import prices
from tempo_core.compiler import with_outputs
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import CumSum, LinearScan
from tempo_core.passes.pipeline import pipeline
from tests import reference
from tests.cases import fast
from tests.core.gradient_checks import normal
from tests.core.running import assert_same

Step = tuple[Any, Any]


@pytest.fixture(autouse=True)
def small_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "LEAST_ELEMENTS_OF_A_BLOCKED_SUM", 1)


Program = Callable[[Step, Step, tp.Tensor, tp.Tensor, tp.Tensor], tp.Tensor]


def outer(k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    return k.expand_dims(1) * v


def state(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    return q @ s


def carried(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    after = s + outer(k, v)
    tp.carry(s, tp.zeros((3, 3)), after, kept=(b[0],))
    return q @ after


def of_neighbours(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """The sum of the points before each one, and its contraction by the other factor."""
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    y = tp.recurrence((3,), domain=(b[0], t[0]), name="y")
    y[b[0], 0] = q[b[0], 0]
    y[b[0], t[0]] = s[b[0], t[0] - 1] @ q
    return y


def from_the_end(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], t[1] - 1] = new[b[0], t[1] - 1]
    s[b[0], t[0]] = s[b[0], t[0] + 1] + new
    return (s * q.expand_dims(1)).sum(0)


def of_heads(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """A dimension that both factors share, and queries with a dimension of their own."""
    heads = [tp.stack([x, x * 0.5]) for x in (k, v)]
    s = tp.recurrence((2, 3, 3), domain=(b[0], t[0]), name="s")
    new = heads[0].expand_dims(2) * heads[1].expand_dims(1)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    queries = tp.stack([tp.stack([q, tp.sin(q), q * q]), tp.stack([tp.cos(q), q * 0.5, tp.tanh(q)])])
    return tp.tanh(queries @ s).sum((0, 1))


def shared_keys(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """One sum for all rows of the batch, contracted with the queries of each."""
    new = outer(k[0, t[0]], v[0, t[0]])
    s = tp.recurrence((3, 3), domain=(t[0],), name="s")
    s[0] = new[0]
    s[t[0]] = s[t[0] - 1] + new
    return q @ s


def of_a_prefix(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    return q @ outer(k, v)[b[0], 0 : t[0] + 1].sum(0)


def of_row_vectors(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """Queries with a dimension of one element, which the gradient's outer products contract."""
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    after = s + outer(k, v)
    tp.carry(s, tp.zeros((3, 3)), after, kept=(b[0],))
    return (q.expand_dims(0) @ after).sum(0)


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (state, carried, of_neighbours, from_the_end, of_heads, shared_keys, of_a_prefix, of_row_vectors)
}


def program(name: str) -> tuple[tp.Context, Any, Any, list[tp.Tensor]]:
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        q, k, v = (tp.input(each, (3,), domain=(b, t)) for each in "qkv")
        y = PROGRAMS[name]((b, B), (t, T), q, k, v)
        return ctx, B, T, [y, *tp.grad((tp.sin(y) * (t + 1)).sum(), [q, k, v])]


def lifted(ctx: tp.Context, outputs: list[tp.Tensor]) -> Graph:
    """The graph after all passes up to lift."""
    graph = with_outputs(ctx, outputs)
    for each in pipeline():
        graph = each.apply(graph)
        if each.name == "lift":
            break
    return graph


def scans_of_states(graph: Graph) -> set[str]:
    """The numbers of points of the scans whose elements are matrices."""
    scans = [node.outputs[0] for node in graph if isinstance(node.op, (CumSum, LinearScan))]
    return {str(type.shape[0]) for type in scans if [str(size) for size in type.shape[-2:]] == ["3", "3"]}


def fed(b: int, t: int) -> dict[str, np.ndarray]:
    return {each: normal(b, t, 3, seed=seed).astype("float32") for seed, each in enumerate("qkv")}


@pytest.mark.parametrize("name", fast(PROGRAMS, "carried", "from_the_end"))
def test_values_and_gradients(name: str) -> None:
    ctx, B, T, outputs = program(name)
    for b, t in ((2, 5), (1, 1), (1, 33), (2, 70)):
        expected = reference.evaluate(ctx, outputs, {B: b, T: t}, fed(b, t))
        configs = [tp.Config(backend="numpy"), tp.Config(backend="numpy", disable=("simplify",))]
        for config in (*configs, *((tp.Config(),) if t == 70 else ())):
            for result, value in zip(ctx.run({B: b, T: t}, outputs, fed(b, t), config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{name}, {b}, {t}, {config}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_sum_is_there_for_each_point(name: str) -> None:
    """What runs along t are the sums of blocks; but for a few programs, the gradients' too."""
    ctx, _, _, outputs = program(name)
    graph = lifted(ctx, outputs[:1] if name in ("of_neighbours", "of_heads", "shared_keys") else outputs)
    assert scans_of_states(graph) == {"((T + 31)//32)"}


def test_small_sums_are_kept_at_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine numbers a point are less than the pairs of points in a block."""
    monkeypatch.undo()
    ctx, _, _, outputs = program("state")
    assert scans_of_states(lifted(ctx, outputs)) == {"T"}


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["state", "of_neighbours", "from_the_end"])
def test_points_outside_of_a_sum_do_not_count(name: str, number: float) -> None:
    """Their weight is zero, but 0 times infinity would be NaN."""
    ctx, B, T, outputs = program(name)
    compiled, reads = ctx.compile({B: 1, T: 40}, outputs[:1], tp.Config(backend="numpy")), reference.Structure()
    for where, point in (("v", 3), ("k", 4), ("q", 2), ("v", 35)):
        inputs = fed(1, 40)
        inputs[where][0, point, 1] = number
        expected = reference.evaluate(ctx, outputs[:1], {B: 1, T: 40}, inputs, structure=reads)
        for result, value in zip(compiled.run(inputs), expected, strict=True):
            np.testing.assert_array_equal(np.isfinite(result), np.isfinite(value), err_msg=f"{where}, {point}")


# -- gates --------------------------------------------------------------------------------------------------------------------

Gate = Callable[[tp.Tensor], tp.Tensor | float]
# By name: the shape of an input, and the gate that is made of it, which multiplies a state of shape (2, 3, 3).
GATES: dict[str, tuple[tuple[int, ...], Gate]] = {
    "a number": ((), lambda a: 0.9),
    "a negative number": ((), lambda a: -0.8),
    "of each point": ((), lambda a: a),
    "of a head": ((2,), lambda a: a.expand_dims(1).expand_dims(2)),
    "of a row": ((2, 3), lambda a: a.expand_dims(2)),
    "of a column of all heads": ((3,), lambda a: a),
    "functions": ((2,), lambda a: (tp.exp(-tp.square(a)) * tp.tanh(a + 1.0)).expand_dims(1).expand_dims(2) * 0.9),
    "resets": ((2,), lambda a: tp.where(a > 0.0, 0.9, 0.0).expand_dims(1).expand_dims(2)),
    "great": ((2,), lambda a: (2.0 * a).expand_dims(1).expand_dims(2)),
}


def gated(name: str, form: str) -> tuple[tp.Context, Any, Any, list[tp.Tensor]]:
    shape, gate = GATES[name]
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        q, k, v = (tp.input(each, (2, 3), domain=(b, t)) for each in "qkv")
        a = tp.input("a", shape, domain=(b, t))
        s = tp.recurrence((2, 3, 3), domain=(b, t), name="s")
        new = k.expand_dims(2) * v.expand_dims(1)
        after = s
        if form == "indexed":
            s[b, 0] = new[b, 0]
            s[b, t] = gate(a) * s[b, t - 1] + new
        elif form == "carried":
            after = gate(a) * s + new
            tp.carry(s, tp.zeros((2, 3, 3)), after, kept=(b,))
        else:
            s[b, T - 1] = new[b, T - 1]
            s[b, t] = s[b, t + 1] * gate(a) + new
        y = (q.expand_dims(2) * after).sum(1)
        inputs = [q, k, v] if name in ("a number", "a negative number", "resets") else [q, k, v, a]
        return ctx, B, T, [y, *tp.grad((tp.sin(y) * (t + 1)).sum(), inputs)]


def gated_inputs(name: str, b: int, t: int) -> dict[str, np.ndarray]:
    inputs = {each: normal(b, t, 2, 3, seed=seed).astype("float32") for seed, each in enumerate("qkv")}
    a = np.random.default_rng(3).uniform(-1.0, 1.0, (b, t, *GATES[name][0])).astype("float32")
    a[:, 1::5] = 0.0
    return inputs | {"a": a}


@pytest.mark.parametrize("form", fast(["indexed", "carried", "from the end"], "indexed"))
@pytest.mark.parametrize("name", fast(GATES, "of a row", "resets"))
def test_values_and_gradients_with_gates(name: str, form: str) -> None:
    """Gates of zero and negative ones among them; numbers of points that blocks do not divide."""
    ctx, B, T, outputs = gated(name, form)
    assert scans_of_states(lifted(ctx, outputs)) == {
        "((T + 7)//8)" if name in ("of a row", "of a column of all heads") else "((T + 31)//32)"
    }
    for b, t in ((2, 5), (1, 1), (1, 33), (2, 70)):
        inputs = gated_inputs(name, b, t)
        expected = reference.evaluate(ctx, outputs, {B: b, T: t}, inputs)
        for config in (tp.Config(backend="numpy"), *((tp.Config(),) if t == 33 else ())):
            for result, value in zip(ctx.run({B: b, T: t}, outputs, inputs, config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{name}, {form}, {b}, {t}")


@pytest.mark.parametrize("name", fast(["of a head", "of a row"], "of a head"))
def test_gates_over_many_points(name: str) -> None:
    """The product of all gates is zero in float32 long before the end: nothing is divided by it."""
    ctx, B, T, outputs = gated(name, "carried")
    inputs = gated_inputs(name, 1, 700)
    inputs["a"] = np.abs(inputs["a"])
    blocks = ctx.run({B: 1, T: 700}, outputs, inputs)
    for result, value in zip(blocks, ctx.run({B: 1, T: 700}, outputs, inputs, tp.Config(disable=("lift",))), strict=True):
        assert_same(result, value, 1e-4)


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("form", fast(["indexed", "from the end"], "indexed"))
@pytest.mark.parametrize("name", fast(["a number", "of each point", "of a head", "of a row"], "of each point"))
def test_gates_and_what_is_not_finite(name: str, form: str, number: float) -> None:
    """What is not finite stays in the sum up to the end: zero times infinity is NaN."""
    ctx, B, T, outputs = gated(name, form)
    compiled, reads = ctx.compile({B: 1, T: 40}, outputs, tp.Config(backend="numpy")), reference.Structure()
    for where, point in (("v", 3), ("k", 4), ("q", 2), ("v", 35), ("a", 3), ("a", 33)):
        inputs = gated_inputs(name, 1, 40)
        inputs["a"] = np.abs(inputs["a"]) + 0.1
        inputs[where].reshape(40, -1)[point, -1] = number
        expected = reference.evaluate(ctx, outputs[:1], {B: 1, T: 40}, inputs, structure=reads)
        for result, value in zip(compiled.run(inputs)[:1], expected, strict=True):
            np.testing.assert_array_equal(np.isfinite(result), np.isfinite(value), err_msg=f"{where}, {point}")


def test_a_selection_forgets_what_is_not_finite() -> None:
    """`where(new, 0, s)` is a gate of zero that forgets infinities too."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k, v = (tp.input(each, (3,), domain=(t,)) for each in "qkv")
        s = tp.recurrence((3, 3), domain=(t,), name="s")
        is_new = tp.input("is_new", (), "bool", domain=(t,))
        after = tp.where(is_new, 0.0, s) + outer(k, v)
        tp.carry(s, tp.zeros((3, 3)), after)
        y = q @ after
    assert scans_of_states(lifted(ctx, [y])) == {"((T + 31)//32)"}
    inputs = {each: normal(50, 3, seed=seed).astype("float32") for seed, each in enumerate("qkv")}
    inputs["v"][3, 1] = inputs["k"][36, 0] = math.inf
    inputs["is_new"] = np.isin(np.arange(50), (7, 20, 45))
    (expected,) = reference.evaluate(ctx, [y], {T: 50}, inputs)
    (result,) = ctx.run({T: 50}, [y], inputs, tp.Config(backend="numpy"))
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    assert np.isfinite(expected[7:36]).all() and not np.isfinite(expected[3:7]).all()


def test_values_of_heads_that_share_their_keys() -> None:
    """A gate of a head, which only one of the factors has: the keys are those of all heads (Mamba-2)."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k = (tp.input(each, (3,), domain=(t,)) for each in "qk")
        v, a = tp.input("v", (2, 3), domain=(t,)), tp.input("a", (2,), domain=(t,))
        s = tp.recurrence((2, 3, 3), domain=(t,), name="s")
        after = a.expand_dims(1).expand_dims(2) * s + k.expand_dims(1) * v.expand_dims(1)
        tp.carry(s, tp.zeros((2, 3, 3)), after)
        y = q @ after
        outputs = [y, *tp.grad(tp.sin(y)[0:T].sum(), [q, k, v, a])]
    assert scans_of_states(lifted(ctx, outputs)) == {"((T + 31)//32)"}
    inputs = {"q": normal(40, 3), "k": normal(40, 3, seed=1), "v": normal(40, 2, 3, seed=2), "a": normal(40, 2, seed=3)}
    inputs = {name: value.astype("float32") for name, value in inputs.items()}
    expected = reference.evaluate(ctx, outputs, {T: 40}, inputs)
    for result, value in zip(ctx.run({T: 40}, outputs, inputs), expected, strict=True):
        assert_same(result, value, 1e-4)


def test_gates_that_parameters_learn() -> None:
    """A gate that is the same at all points, and its gradient."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k, v = (tp.input(each, (2, 3), domain=(t,)) for each in "qkv")
        a = tp.input("a", (2,))
        s = tp.recurrence((2, 3, 3), domain=(t,), name="s")
        after = tp.sigmoid(a).expand_dims(1).expand_dims(2) * s + k.expand_dims(2) * v.expand_dims(1)
        tp.carry(s, tp.zeros((2, 3, 3)), after)
        y = (q.expand_dims(2) * after).sum(1)
        outputs = [y, *tp.grad(tp.sin(y)[0:T].sum(), [q, k, v, a])]
    assert scans_of_states(lifted(ctx, outputs)) == {"((T + 31)//32)"}
    inputs = {each: normal(40, 2, 3, seed=seed).astype("float32") for seed, each in enumerate("qkv")}
    inputs["a"] = np.array([0.5, -1.0], "float32")
    expected = reference.evaluate(ctx, outputs, {T: 40}, inputs)
    for result, value in zip(ctx.run({T: 40}, outputs, inputs), expected, strict=True):
        assert_same(result, value, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", fast(["of each point", "of a row"], "of a row"))
def test_numbers_of_points_that_a_run_chooses(name: str) -> None:
    ctx, B, T, outputs = gated(name, "carried")
    program = ctx.compile({B: 2, T: tp.upto(40)}, outputs)
    for t in (1, 8, 33, 40):
        inputs = gated_inputs(name, 2, t)
        expected = reference.evaluate(ctx, outputs, {B: 2, T: t}, inputs)
        for result, value in zip(program.run(inputs, bounds={T: t}), expected, strict=True):
            assert_same(result, value, 1e-4, f"{t}")


# -- what stays -----------------------------------------------------------------------------------------------------------------


def test_sums_of_another_row_stay() -> None:
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        q, k = (tp.input(each, (3,), domain=(b, t)) for each in "qk")
        y = q @ outer(q, k)[0, 0 : t + 1].sum(0)
    inputs = {each: normal(2, 5, 3, seed=seed).astype("float32") for seed, each in enumerate("qk")}
    (expected,) = reference.evaluate(ctx, [y], {B: 2, T: 5}, inputs)
    assert_same(ctx.run({B: 2, T: 5}, [y], inputs, tp.Config(backend="numpy"))[0], expected)


STAYING: dict[str, Callable[[Any, tp.Tensor, tp.Tensor], tp.Tensor]] = {
    "a result": lambda s, q, k: s,
    "another function of the sum": lambda s, q, k: tp.sin(s) @ q,
    "a product with itself": lambda s, q, k: s @ s,
    "a contraction of both factors": lambda s, q, k: (s * (q.expand_dims(1) * k)).sum((0, 1)),
}


@pytest.mark.parametrize("what", STAYING)
def test_sums_that_are_read_otherwise_stay(what: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k = (tp.input(each, (3,), domain=(t,)) for each in "qk")
        s = tp.recurrence((3, 3), domain=(t,), name="s")
        s[0] = outer(q, k)[0]
        s[t] = s[t - 1] + outer(q, k)
        y = STAYING[what](s, q, k)
    assert scans_of_states(lifted(ctx, [y])) == {"T"}
    inputs = {each: normal(5, 3, seed=seed).astype("float32") for seed, each in enumerate("qk")}
    (expected,) = reference.evaluate(ctx, [y], {T: 5}, inputs)
    assert_same(ctx.run({T: 5}, [y], inputs, tp.Config(backend="numpy"))[0], expected)
