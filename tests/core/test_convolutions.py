"""Sums over wide windows with fixed weights are convolutions: right at the ends of the step, and as large as the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tempo_core as tp
from tempo_core.ir.ops import Conv, Dataflow
from tests import reference
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import assert_same
from tests.core.test_window_gradients import largest

Form = Callable[[tp.Tensor, tp.Tensor, Any, Any, Any], tp.Tensor]


def past(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    first = tp.max(t - W + 1, 0)
    length = t + 1 - first
    return k.flip(0).spatial[W - length : W] @ x[first : t + 1]


def future(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    stop = tp.min(t + W, T)
    return k.spatial[0 : stop - t] @ x[t:stop]


def window_first(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    stop = tp.min(t + W, T)
    return x[t:stop].transpose(1, 0) @ k.spatial[0 : stop - t]


def both_sides(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    first, stop = tp.max(t - 2, 0), tp.min(t - 2 + W, T)
    offset = first - (t - 2)
    return k.spatial[offset : offset + stop - first] @ x[first:stop]


def whole_windows(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    """Where the window ends before the step does; zero elsewhere."""
    y = tp.recurrence((2,), domain=(t,), name="y")
    y[t, t + W <= T] = tp.exp(k) @ x[t : t + W]
    y[t] = tp.full((2,), 0.0)
    return y


def summed_products(x: tp.Tensor, k: tp.Tensor, t: Any, T: Any, W: Any) -> tp.Tensor:
    stop = tp.min(t + W, T)
    weights = k.spatial[0 : stop - t]
    return (x[t:stop] * weights.reshape(stop - t, 1)).sum(0)


FORMS: dict[str, Form] = {
    form.__name__.replace("_", " "): form for form in (past, future, window_first, both_sides, whole_windows, summed_products)
}
NUMPY = tp.Config(backend="numpy")


def program(form: Form, with_gradients: bool = True) -> tuple[Any, Any, Any, list[tp.Tensor]]:
    """The loss of a form, with its leaves and gradients. The width is the bound of a step of its own."""
    ctx = tp.Context("t", "w")
    with ctx as ((t, T), (w, W)):
        x, k = tp.input("x", (2,), domain=(t,)), tp.input("k", (), domain=(w,))
        loss = (tp.sin(form(x, k[0:W], t, T, W)))[0:T].sum()
        gradients = tp.grad(loss, [x, k]) if with_gradients else []
    return ctx, {"T": T, "W": W}, (x, k, loss), gradients


@pytest.mark.parametrize("points, width", [(9, 4), (3, 5), (1, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_values(form: str, points: int, width: int) -> None:
    ctx, bounds, (x, k, loss), _ = program(FORMS[form], with_gradients=False)
    sizes = {bounds["T"]: points, bounds["W"]: width}
    arrays = {"x": normal(points, 2, seed=1), "k": normal(width, seed=2)}
    with ctx:
        gradients = assert_gradients(ctx, loss, [x, k], sizes, arrays)
    feed = {name: array.astype("float32") for name, array in arrays.items()}
    expected = reference.evaluate(ctx, [loss, *gradients], sizes, feed)
    for config in (NUMPY, tp.Config()) if (points, width) == (9, 4) else (NUMPY,):
        for result, value in zip(ctx.run(sizes, [loss, *gradients], feed, config), expected, strict=True):
            assert_same(result, value)


@pytest.mark.parametrize("form", FORMS)
def test_growth(form: str) -> None:
    """No value, forward or of the gradients, is larger than the step and the window together, times their number of elements."""
    ctx, bounds, (_, _, loss), gradients = program(FORMS[form])
    sizes = []
    for scale in (1, 2):
        at = {bounds["T"]: 200 * scale, bounds["W"]: 50 * scale}
        compiled = ctx.compile(at, [loss, *gradients], NUMPY)
        numbers = {"T": 200 * scale, "W": 50 * scale}
        sizes.append(largest(compiled.graph, {bound: numbers[bound.name] for bound in compiled.graph.bounds()}))
    assert sizes[1] <= 2 * sizes[0]


def conv_count(program: tp.Program[Any]) -> int:
    ops = [op for node in program.graph for op in (_inside(node.op) if isinstance(node.op, Dataflow) else [node.op])]
    return sum(isinstance(op, Conv) for op in ops)


def _inside(op: Dataflow) -> list[Any]:
    return [inner for inner, _, _ in op.body.instructions]


@pytest.mark.slow
def test_channels_features_and_other_steps() -> None:
    """y[b, t] = sum over k, c of x[b, t + k, c] w[k, c, f]: 20 points of 3 channels, for each row."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x, k = tp.input("x", (3,), domain=(b, t)), tp.input("k", (20, 3, 4))
        stop = tp.min(t + 20, T)
        y = tp.einsum("kc,kcf->f", x[b, t:stop], k.spatial[0 : stop - t])
        loss = (tp.sin(y))[0:B, 0:T].sum()
    sizes = {B: 2, T: 25}
    arrays = {"x": normal(2, 25, 3), "k": normal(20, 3, 4)}
    with ctx:
        gradients = assert_gradients(ctx, loss, [x, k], sizes, arrays)
    feed = {name: array.astype("float32") for name, array in arrays.items()}
    compiled = ctx.compile(sizes, [y, *gradients], NUMPY)
    assert conv_count(compiled) == 3
    for result, expected in zip(compiled.run(feed), reference.evaluate(ctx, [y, *gradients], sizes, feed), strict=True):
        assert_same(result, expected)


def test_weights_that_vary_with_the_point_stay_products() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", domain=(t,)), tp.input("k", (20,), domain=(t,))
        stop = tp.min(t + 20, T)
        y = k.spatial[0 : stop - t] @ x[t:stop]
    compiled = ctx.compile({T: 25}, [y], NUMPY)
    assert conv_count(compiled) == 0
    feed = {"x": normal(25).astype("float32"), "k": normal(25, 20).astype("float32")}
    assert_same(compiled.run(feed)[0], reference.evaluate(ctx, [y], {T: 25}, feed)[0])


def test_a_window_of_values_that_a_loop_computes_stays_in_the_loop() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        k = tp.input("k", (20,))
        x = tp.recurrence((), domain=(t,), name="x")
        x[0] = tp.full((), 1.0)
        first = tp.max(t - 19, 0)
        past = k.spatial[20 - (t + 1 - first) : 20] @ x[first : t + 1]
        x[t + 1] = tp.tanh(past)
        loss = x[0:T].sum()
    sizes, arrays = {T: 25}, {"k": normal(20)}
    with ctx:
        gradients = assert_gradients(ctx, loss, [k], sizes, arrays)
    feed = {"k": arrays["k"].astype("float32")}
    compiled = ctx.compile(sizes, [x, *gradients], NUMPY)
    assert conv_count(compiled) == 0
    for result, expected in zip(compiled.run(feed), reference.evaluate(ctx, [x, *gradients], sizes, feed), strict=True):
        assert_same(result, expected)


def test_a_contraction_of_what_a_range_adds() -> None:
    """Of a range of points, the range is the first dimension, and no view of a point has it."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x = tp.input("x", (3,), domain=(b, t), requires_grad=True)
        y = x[0 : b + 1, t:T].sum(0).logsumexp(0)
        loss = tp.tanh((y[tp.min(b + 1, B - 1) : B, t] @ y).sum())[0:B, 0:T].sum()
        assert_gradients(ctx, loss, [x], {B: 2, T: 3}, {"x": normal(2, 3, 3)})
