"""Gradients of windows and blocks: right in first and second order, and linear in the number of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tempo_core as tp
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Dataflow, product
from tests import reference
from tests.cases import cells
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import assert_same

PATTERNS: dict[str, Callable[[Any, Any, Any], tp.Tensor]] = {
    "the past": lambda x, t, T: x[tp.max(t - 2, 0) : t + 1],
    "the future": lambda x, t, T: x[t : tp.min(t + 3, T)],
    "both sides": lambda x, t, T: x[tp.max(t - 1, 0) : tp.min(t + 2, T)],
    "every second point": lambda x, t, T: x[tp.max(t - 4, 0) : t + 1 : 2],
    "a block": lambda x, t, T: x[t // 3 * 3 : tp.min(t // 3 * 3 + 3, T)],
    "the block so far": lambda x, t, T: x[t // 3 * 3 : t + 1],
    "a slower window": lambda x, t, T: x[t // 2 : tp.min(t // 2 + 2, T)],
    "a window backwards": lambda x, t, T: x[tp.max(T - 3 - t, 0) : T - t],
    "points far apart": lambda x, t, T: x[tp.min(t % 3, T - 1)] * tp.ones((1,)),
}
REDUCTIONS: dict[str, Callable[[tp.Tensor], tp.Tensor]] = {
    "max": lambda w: w.max(0),
    "prod": lambda w: w.prod(0),
    "logsumexp": lambda w: tp.logsumexp(w, 0),
    "softmax": lambda w: (tp.softmax(w, 0) * w * w).sum(0),
    "deviation": lambda w: tp.sqrt(((w - w.mean(0)) ** 2).mean(0) + 0.5),
    "argmax": lambda w: tp.take(w * w, tp.argmax(w, 0), 0),
    "matmul": lambda w: tp.tanh(w @ w),
    "any": lambda w: tp.where((w > 1.0).any(0), w.sum(0), (w * w).sum(0)),
}
SECOND_ORDER = ("max", "softmax")


def program(pattern: str, reduction: str, order: int = 1) -> tuple[tp.Context, Any, tp.Tensor, tp.Tensor]:
    """A context, its bound, its input and the gradient of the given order, each but the last squared and summed."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        value = REDUCTIONS[reduction](PATTERNS[pattern](x, t, T))
        for _ in range(order):
            (value,) = tp.grad((value * value).sum() if value.rank else value * value, [x])
    return ctx, T, x, value


def largest(graph: Graph, bounds: dict[Any, int]) -> int:
    """The number of elements of the largest value, at all of its points together."""
    most = 0
    for node in graph:
        types = node.op.body.slot_types if isinstance(node.op, Dataflow) else node.outputs
        points = product(tuple(step.bound_expr for step in node.domain.steps)).evaluate(bounds)
        most = max([most, *(points * product(type.shape).evaluate(bounds) for type in types)])
    return most


@pytest.mark.parametrize(("pattern", "reduction"), cells(PATTERNS, REDUCTIONS))
def test_growth(pattern: str, reduction: str) -> None:
    """No value of the gradients grows faster than the number of points."""
    for order in (1, 2) if reduction in SECOND_ORDER else (1,):
        ctx, T, _, gradient = program(pattern, reduction, order)
        sizes = []
        for points in (200, 400):
            compiled = ctx.compile({T: points}, outputs=gradient, config=tp.Config(backend="numpy"))
            sizes.append(largest(compiled.graph, dict.fromkeys(compiled.graph.bounds(), points)))
        assert sizes[1] <= 2 * sizes[0], f"order {order}: {sizes}"


@pytest.mark.parametrize(("pattern", "reduction"), cells(PATTERNS, REDUCTIONS))
def test_values(pattern: str, reduction: str) -> None:
    """Against finite differences, and compiled against the reference; with windows wider than the step and of one point."""
    for order, points in ((1, 1), (1, 7), *([(2, 7)] if reduction in SECOND_ORDER else [])):
        ctx, T, x, value = program(pattern, reduction, order - 1)
        with ctx:
            loss = value * value
        array = normal(points, seed=3)
        (gradient,) = assert_gradients(ctx, loss, [x], {T: points}, {"x": array})
        feed = {"x": array.astype("float32")}
        (expected,) = reference.evaluate(ctx, [gradient], {T: points}, feed)
        assert_same(ctx.run({T: points}, gradient, feed, tp.Config(backend="numpy")), expected)
