"""Reductions of prefixes and suffixes, and their gradients: right, and linear in the number of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tests import reference
from tests.cases import cells
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import assert_same

# By name: a function of the slice r and of x at the reader's own point. All of shape (n, 2) and (2,).
REDUCTIONS: dict[str, Callable[[tp.Tensor, tp.Tensor], tp.Tensor]] = {
    "max": lambda r, x: r.max(0),
    "max over both": lambda r, x: r.max(),
    "min": lambda r, x: r.min(0),
    "prod": lambda r, x: r.prod(0),
    "prod over both": lambda r, x: r.prod(),
    "logsumexp": lambda r, x: r.logsumexp(0),
    "discounted": lambda r, x: tp.sin(r).discounted_sum(0.9),
    "discounted with signs": lambda r, x: r.discounted_sum(-0.5),
    "not discounted after the first": lambda r, x: r.discounted_sum(0.0),
    "mean": lambda r, x: r.mean(0),
    "var": lambda r, x: r.var(0),
    "var over both": lambda r, x: r.var(),
    "std": lambda r, x: (r.var(0) + 1).sqrt(),
    "softmax": lambda r, x: (tp.softmax(r, 0) * tp.sin(r)).sum(0),
    "attention": lambda r, x: tp.softmax(r.sum(1), 0) @ tp.sin(r),
    "log_softmax": lambda r, x: (tp.log_softmax(r, 0) * r).sum(0),
    "elements": lambda r, x: (tp.exp(r) * r).max(0),
    "sums of elements": lambda r, x: (tp.exp(r) * r).sum(0),
    "dot": lambda r, x: r.spatial[:, 0] @ tp.sin(r.spatial[:, 1]),
    "scaled": lambda r, x: (tp.sin(r) * x / (1 + x * x)).sum(0),
    "distances": lambda r, x: ((r - x) * tp.sin(r)).sum(0),
    "distances to the reader": lambda r, x: ((x - r) * x).sum(0),
    "squares": lambda r, x: tp.square(r - x).sum(0),
    "exponentials": lambda r, x: (tp.exp(r - x) * r * x).sum(0),
}
READS: dict[str, Callable[[tp.Tensor, Any, Any], tp.Tensor]] = {
    "prefix": lambda x, t, T: x[0 : t + 1],
    "suffix": lambda x, t, T: x[t:T],
}
OTHER_ENDS: dict[
    str, Callable[[tp.Tensor, Any, Any], tp.Tensor]
] = {  # several readers may read one of these, or in another order
    "prefix before": lambda x, t, T: x[0 : tp.max(t, 1)],
    "prefix from the end": lambda x, t, T: x[0 : T - t],
    "prefix of half the length": lambda x, t, T: x[0 : t // 2 + 1],
    "suffix after": lambda x, t, T: x[tp.min(t + 1, T - 1) : T],
}
ALL_READS = {**READS, **OTHER_ENDS}


def program(reduction: str, read: str) -> tuple[tp.Context, Any, tp.Tensor, tp.Tensor]:
    """A context, its bound, x over (t) of shape (2,), and a loss over (t)."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        return ctx, T, x, tp.tanh(REDUCTIONS[reduction](ALL_READS[read](x, t, T), x)) * (t + 1)


@pytest.mark.parametrize(("reduction", "read"), cells(REDUCTIONS, ALL_READS))
def test_gradients_are_right(reduction: str, read: str) -> None:
    ctx, T, x, loss = program(reduction, read)
    inputs = {"x": normal(4, 2, seed=1)}
    with ctx:
        (gradient,) = assert_gradients(ctx, loss, [x], {T: 4}, inputs)
    for size in (4, 1):
        single = {"x": inputs["x"][:size].astype("float32")}
        expected = reference.evaluate(ctx, [loss, gradient], {T: size}, single)
        for config in (tp.Config(backend="numpy"), tp.Config(backend="numpy", disable=("lift",))):
            for result, value in zip(ctx.run({T: size}, [loss, gradient], single, config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{config}")


@pytest.mark.parametrize(("reduction", "read"), cells(REDUCTIONS, ALL_READS))
def test_gradients_of_gradients_are_right(reduction: str, read: str) -> None:
    """A rule that is right for the first gradient may have left out terms that are 0 in it, and whose slopes are not."""
    ctx, T, x, loss = program(reduction, read)
    with ctx:
        (gradient,) = tp.grad(loss, wrt=[x])
        assert_gradients(ctx, tp.sin(gradient).sum(), [x], {T: 3}, {"x": normal(3, 2, seed=1)})


@pytest.mark.parametrize(("reduction", "read"), cells(REDUCTIONS, ALL_READS))
def test_nothing_is_spread_over_pairs_of_points(reduction: str, read: str) -> None:
    """Operations, and the elements of every value, grow with T, not with its square."""
    ctx, T, x, loss = program(reduction, read)
    with ctx:
        gradient = tp.grad(loss, wrt=[x])
    few, many = (elements(ctx.compile({T: size}, outputs=[loss, *gradient])) for size in (64, 256))
    assert many < 5 * few


def elements(program: Any) -> int:
    """The number of elements that the statements of a compiled program read and write."""
    graph, bounds = program.graph, program.bounds

    def count(type: Any) -> int:
        return math.prod(max(size.evaluate(bounds), 0) for size in type.shape)

    total = 0
    for node in graph:
        types = [*node.outputs, *graph.input_types(node)]
        if isinstance(node.op, ops.Dataflow):
            types += node.op.body.slot_types
        points = math.prod(step.bound_expr.evaluate(bounds) for step in node.domain.steps)
        total += points * sum(map(count, types))
    return total


OF_NOTHING: dict[str, Callable[[tp.Tensor, tp.Tensor], tp.Tensor]] = {
    "sum": lambda r, x: r.sum(0),
    "sum over both": lambda r, x: r.sum(),
    "max": lambda r, x: r.max(0),
    "min over both": lambda r, x: r.min(),
    "prod": lambda r, x: r.prod(0),
    "exponentials": lambda r, x: (tp.exp(r - x) * r * x).sum(0),
    "distances": lambda r, x: ((r - x) * tp.sin(r)).sum(0),
    "squares": lambda r, x: tp.square(r - x).sum(0),
    "running products": lambda r, x: tp.cumprod(r, 0).sum(0),
    "running maxima": lambda r, x: tp.cummax(r, 0).sum(0),
}


@pytest.mark.parametrize("scan", [tp.cumsum, tp.cumprod, tp.cummax, tp.cummin], ids=lambda scan: scan.__name__)
def test_each_scan_of_no_elements_has_a_gradient(scan: Callable[[tp.Tensor, int], tp.Tensor]) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (1,), domain=(t,), requires_grad=True)
        (scan(x.spatial[:-1], 0).sum()[0:T].sum() + x.sum()[0:T].sum()).backward()
    np.testing.assert_array_equal(ctx.run({T: 2}, x.grad, {"x": np.ones((2, 1), "float32")}), np.ones((2, 1)))


@pytest.mark.parametrize(("reduction", "read"), cells(OF_NOTHING, ("prefix", "suffix")))
def test_empty_ranges_have_gradients(reduction: str, read: str) -> None:
    """The first reader of `x[0:t]`, and the last one of `x[t + 1:T]`, read nothing; so do several readers of `x[0:max(t - 1, 0)]`."""
    for shift in (0, 1):
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
            r = x[0 : tp.max(t - shift, 0)] if read == "prefix" else x[tp.min(t + 1 + shift, T) : T]
            loss = tp.tanh(OF_NOTHING[reduction](r, x)) * (t + 1)
            gradients = tp.grad(loss, wrt=[x])
        for size in (4, 2, 1):
            inputs = {"x": normal(size, 2, seed=1).astype("float32")}
            expected = reference.evaluate(ctx, [loss], {T: size}, inputs)[0]
            results = ctx.run({T: size}, [loss, *gradients], inputs, tp.Config(backend="numpy"))
            assert_same(results[0], expected, 1e-5)
            for point in np.ndindex(size, 2):
                moved = [{"x": inputs["x"].astype("float64")} for _ in range(2)]
                for values, sign in zip(moved, (1, -1), strict=True):
                    values["x"][point] += sign * 1e-3
                ends = [
                    np.sum(ctx.run({T: size}, [loss], {"x": m["x"].astype("float32")}, tp.Config(backend="numpy"))[0])
                    for m in moved
                ]
                np.testing.assert_allclose(results[1][point], (ends[0] - ends[1]) / 2e-3, atol=5e-3)


def test_the_discount_of_a_prefix_begins_at_its_first_point() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (), domain=(t,)), name="x")
        loss = tp.sin(x[0 : t + 1].discounted_sum(0.5)) * (t + 1)
        assert_gradients(ctx, loss, [x], {T: 4}, {"x": normal(4, seed=1)})


def test_the_gradient_through_the_greatest_of_its_own_past() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = x[0]
        h[t] = tp.tanh(h[0:t].max(0) * 0.7 + x) + tp.logsumexp(h[0:t], 0)
        assert_gradients(ctx, h * (t + 1), [x], {T: 4}, {"x": normal(4, 2, seed=1)})


@pytest.mark.parametrize("read", READS)
def test_equal_extremes_share_the_gradient(read: str) -> None:
    ctx = tp.Context("t")
    values = np.array([[1, 0], [3, 3], [2, 3], [3, 1], [0, 3]], "float32")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        weight = tp.input("w", (), domain=(t,))
        r = READS[read](x, t, T)
        gradients = tp.grad(r.max() * weight, wrt=[x]) + tp.grad(r.min(0) * weight, wrt=[x])
    weights = np.array([1, 10, 100, 1000, 10000], "float32")
    results = ctx.run({T: 5}, gradients, {"x": values, "w": weights})
    for result, extreme, axes in zip(results, (np.max, np.min), ((0, 1), (0,)), strict=True):
        expected = np.zeros((5, 2))
        for point in range(5):
            here = slice(0, point + 1) if read == "prefix" else slice(point, 5)
            is_extreme = values[here] == extreme(values[here], axis=axes, keepdims=True)
            expected[here] += weights[point] * is_extreme / is_extreme.sum(axes, keepdims=True)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("read", READS)
def test_large_and_infinite_numbers(read: str) -> None:
    """Exponents do not overflow, and a prefix of -inf gives no NaN."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (), domain=(t,)), name="x")
        r = READS[read](x, t, T)
        y = r.logsumexp(0)
        (gradient,) = tp.grad(y, wrt=[x])
    inf = math.inf
    for values in ([1e4, -1e4, 1e4, 0.0], [-inf, -inf, 3.0, -1000.0], [-inf, 500.0, inf, 2.0], [-1e4, -inf, -inf, -1e4]):
        numbers = np.array(values)
        slices = [slice(0, k + 1) if read == "prefix" else slice(k, 4) for k in range(4)]
        expected, slopes = np.zeros(4), np.zeros(4)
        for k, here in enumerate(slices):
            top = numbers[here].max()
            expected[k] = top
            if np.isfinite(top):  # if it is infinite, the result does not vary
                weights = np.exp(numbers[here] - top)
                expected[k] += np.log(weights.sum())
                slopes[here] += weights / weights.sum()
        for config in (tp.Config(), tp.Config(backend="numpy", disable=("lift",))):
            results = ctx.run({T: 4}, [y, gradient], {"x": numbers.astype("float32")}, config)
            np.testing.assert_allclose(results[0], expected, rtol=1e-5)
            np.testing.assert_allclose(results[1], slopes, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("read", READS)
def test_variances_of_distant_numbers(read: str) -> None:
    """The mean of squares minus the square of the mean would lose every digit."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        y = READS[read](tp.input("x", (), domain=(t,)), t, T).var(0)
    x = (4096 + np.random.default_rng(1).integers(0, 8, 500)).astype("float32")
    exact = x.astype("float64")
    expected = [exact[: k + 1].var() if read == "prefix" else exact[k:].var() for k in range(500)]
    np.testing.assert_allclose(ctx.run({T: 500}, y, {"x": x}), expected, rtol=1e-3, atol=1e-3)


def test_in_a_loop() -> None:
    """x depends on the reductions of its own prefix: the gradient is a part of the loop."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.sin(h[0 : t + 1].max(0) * x[t + 1]) + h[0 : t + 1].var(0) + h[0 : t + 1].logsumexp(0) - h[0 : t + 1].prod(0)
        assert_gradients(ctx, tp.square(h), [x], {T: 4}, {"x": normal(4, 2, seed=2)})


def test_readers_over_another_step() -> None:
    """Readers over (i, t) of a source over (t): contributions are summed over i too."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        w = apply(ops.Identity(), tp.input("w", (2,), domain=(i,)), name="w")
        loss = (x[0 : t + 1] * w).max(0) * (t + 1) + tp.exp(x[t:T] * 0.1 - w).sum(0) + x[t:T].prod(0) * w
        assert_gradients(ctx, loss, [x, w], {I: 2, T: 3}, {"x": normal(3, 2, seed=3), "w": normal(2, 2, seed=4)})


@pytest.mark.parametrize("end", ["half", "before"])
def test_a_gradient_that_not_every_point_has(end: str) -> None:
    """Prefixes of half the length end at the first points only: the others get a gradient from blocks alone."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        later = x[t:T].discounted_sum(0.9)
        y = later[0 : t // 2 + 1 if end == "half" else tp.max(t, 1)].discounted_sum(0.9)
        blocks = later[t // 2 * 2 : tp.min(t // 2 * 2 + 2, T)].discounted_sum(0.9)
        assert_gradients(ctx, tp.tanh((y + blocks).sum()[0:T].sum() * 0.1), [x], {T: 4}, {"x": normal(4, 2, seed=1)})


AT_SOME_POINTS: dict[str, Callable[[tp.Tensor, Any, Any], tp.Tensor]] = {
    "max": lambda x, t, T: x[0:t].max(0),
    "prod": lambda x, t, T: x[0:t].prod(0),
    "logsumexp": lambda x, t, T: x[0:t].logsumexp(0),
    "var": lambda x, t, T: x[t:T].var(0),
    "discounted": lambda x, t, T: x[0:t].discounted_sum(0.8),
    "max of a block": lambda x, t, T: x[t // 2 * 2 : tp.min(t // 2 * 2 + 2, T)].max(0),
    "prod of a block": lambda x, t, T: x[t // 2 * 2 : tp.min(t // 2 * 2 + 2, T)].prod(0),
}


@pytest.mark.parametrize("form", AT_SOME_POINTS)
def test_readers_at_some_points(form: str) -> None:
    """Every second point reads a range: right, and linear, though the readers of a point are no range."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        y = tp.recurrence((2,), domain=(t,), name="y")
        y[t, t % 2 == 1] = AT_SOME_POINTS[form](x, t, T)
        y[t] = x
        (gradient,) = assert_gradients(ctx, tp.tanh(y) * (t + 1), [x], {T: 5}, {"x": normal(5, 2, seed=1)})
    few, many = (elements(ctx.compile({T: size}, outputs=[gradient])) for size in (64, 256))
    assert many < 5 * few
