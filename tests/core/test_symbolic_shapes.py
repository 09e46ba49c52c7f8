"""Sizes, positions and amounts as expressions of steps and bounds: in every function that takes them, in every executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.core.gradient_checks import assert_gradients
from tests.core.running import SETTINGS, assert_same

Build = Callable[[Any, Any, Any, Any, tp.Tensor, tp.Tensor], tp.Tensor]
KERNEL = np.arange(12, dtype="float32").reshape(3, 2, 2) - 5
WEIGHTS = np.random.default_rng(4).normal(size=(2, 4)).astype("float32")

# Of x over t of shape (2,), and past = x[0:t + 1], whose first size varies.
DIFFERENTIABLE: dict[str, Build] = {
    "reshape, with the dimension after": lambda i, t, T, p, x, _: p.reshape(-1) * tp.arange(2 * t + 2),
    "reshape, with the dimension before": lambda i, t, T, p, x, _: p.transpose(1, 0).reshape(-1) * tp.arange(2 * t + 2),
    "reshape, of two that vary": lambda i, t, T, p, x, _: (p @ p.transpose(1, 0)).reshape((t + 1) * (t + 1)),
    "reshape, taking one apart": lambda i, t, T, p, x, _: tp.repeat(p, t + 1, 1).reshape(t + 1, 2, t + 1),
    "broadcast_to": lambda i, t, T, p, x, _: tp.broadcast_to(x.sum() * p.sum(1), (3, t + 1)),
    "full": lambda i, t, T, p, x, _: tp.full((t + 1, T - t), 2.0) * p.index(1, 0).expand_dims(1),
    "arange": lambda i, t, T, p, x, _: tp.arange(t // 2, T + t) * x.sum(),
    "arange with a step": lambda i, t, T, p, x, _: tp.arange(t, 2 * T, 2) * x.sum(),
    "spatial slice": lambda i, t, T, p, x, _: p.spatial[t // 2 : t + 1],
    "spatial slice with a stride": lambda i, t, T, p, x, _: p.spatial[: t + 1 : 2],
    "spatial slice past the end": lambda i, t, T, p, x, _: p.spatial[t // 2 : T + 1] * 3,
    "index": lambda i, t, T, p, x, _: p.index(0, t // 2) * p.index(0, t),
    "index by data": lambda i, t, T, p, x, _: p.take(tp.arange(t + 1) // 2),
    "pad": lambda i, t, T, p, x, _: tp.pad(p, ((t, T - t), (0, 0))),
    "concatenate": lambda i, t, T, p, x, _: tp.concatenate([p, x[t:T], p * 2]),
    "split": lambda i, t, T, p, x, _: tp.split(p, [t // 2], 0)[1] * 2,
    "repeat": lambda i, t, T, p, x, _: tp.repeat(p, t + 1, 0),
    "tile": lambda i, t, T, p, x, _: tp.tile(p, (2, t + 1)),
    "roll": lambda i, t, T, p, x, _: tp.roll(p, t // 2) * tp.arange(t + 1).expand_dims(1),
    "roll of a fixed size": lambda i, t, T, p, x, _: tp.roll(tp.concatenate([x, x * x]), t) * tp.arange(4),
    "flip": lambda i, t, T, p, x, _: p.flip(0) * p,
    "cumprod": lambda i, t, T, p, x, _: tp.cumprod(p, 0) + tp.cumprod(p, 0, reverse=True),
    "cummax": lambda i, t, T, p, x, _: tp.cummax(p) + tp.cummin(p, reverse=True),
    "sort": lambda i, t, T, p, x, _: tp.sort(p, 0) * tp.arange(t + 1).expand_dims(1),
    "sort, descending": lambda i, t, T, p, x, _: tp.sort(p, 0, descending=True) * tp.arange(t + 1).expand_dims(1),
    "top_k": lambda i, t, T, p, x, _: tp.top_k(p, 1, 0)[0],
    "median": lambda i, t, T, p, x, _: tp.median(p, 0),
    "std": lambda i, t, T, p, x, _: tp.std(p, 0) + tp.norm(p, 0),
    "prod": lambda i, t, T, p, x, _: p.prod((0, 1)),
    "tril": lambda i, t, T, p, x, _: tp.tril(p @ p.transpose(1, 0)),
    "diagonal": lambda i, t, T, p, x, _: tp.diagonal(p @ p.transpose(1, 0)),
    "eye": lambda i, t, T, p, x, _: tp.eye(t + 1, T) @ x[0:T],
    "scatter": lambda i, t, T, p, x, _: tp.scatter(p, t // 2, x * 3),
    "index_add": lambda i, t, T, p, x, _: tp.index_add(p, tp.arange(t + 1) // 2, p),
    "einsum": lambda i, t, T, p, x, w: tp.einsum("ti,ij->tj", p, w),
    "conv": lambda i, t, T, p, x, _: tp.conv(p, tp.constant(KERNEL)),
    "conv with strides": lambda i, t, T, p, x, _: tp.conv(p, tp.constant(KERNEL), stride=2),
    "conv, a leading dimension varies": lambda i, t, T, p, x, w: tp.conv(p.expand_dims(2) * w, tp.constant(KERNEL.reshape(3, 4, 1))),
    "conv, by what varies": lambda i, t, T, p, x, w: tp.conv(tp.ones((2 * T, 2)), p.expand_dims(2) * w.sum(0), padding="VALID"),
    "conv with a kernel a step": lambda i, t, T, p, x, w: tp.conv(w.transpose(1, 0), (tp.constant(KERNEL) * x), padding=[(t, 1)]),
    "of no elements": lambda i, t, T, p, x, _: x[0:t].take(tp.constant([0, 3, -1])) + x[0:t].sum(0),
}  # fmt: skip
OTHERS: dict[str, Build] = {
    "random, an inner size": lambda i, t, T, p, x, _: tp.random.normal((3, t + 1), domain=(t,)),
    "random, two sizes, two steps": lambda i, t, T, p, x, _: tp.random.uniform((t + 1, i + 1, 2), domain=(i, t)),
    "random, the domain is that of the sizes": lambda i, t, T, p, x, _: tp.random.bits((2, t + 1)),
    "argmax, argmin of none": lambda i, t, T, p, x, _: x[0:t].argmax(0) + p.argmin(0),
    "argsort with NaN": lambda i, t, T, p, x, _: tp.where(p > 1, np.nan, p).argsort(0),
    "cumsum of bools": lambda i, t, T, p, x, _: (p > 0).cumsum(0),
}


def inputs() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(4, 2)).astype("float32"), "w": WEIGHTS}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """The results of all rows, from one program for each setting."""
    ctx, every = tp.Context("i", "t"), {**DIFFERENTIABLE, **OTHERS}
    with ctx as ((i, I), (t, T)):
        x, w = tp.input("x", (2,), domain=(t,)), tp.input("w", (2, 4))
        past = x[0 : t + 1] * 1
        outputs = [build(i, t, T, past, x, w) for build in every.values()]
    by_setting = {"reference": reference.evaluate(ctx, outputs, {I: 2, T: 4}, inputs())}
    for setting in SETTINGS:
        by_setting[setting] = ctx.run({I: 2, T: 4}, outputs=outputs, inputs=inputs(), config=SETTINGS[setting])
    return {name: dict(zip(every, values, strict=True)) for name, values in by_setting.items()}


@pytest.mark.slow
def test_sizes_and_positions_may_vary(results: dict[str, Any]) -> None:
    for setting in SETTINGS:
        for name, values in results[setting].items():
            assert_same(values, results["reference"][name], 1e-4, f"{name}, {setting}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_what_varies(name: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (2,), domain=(t,)), tp.input("w", (2, 4))
        value = DIFFERENTIABLE[name](t, t, T, x[0 : t + 1] * 1, x, w)
        loss = (tp.sin(value) * 2).sum()
        assert_gradients(ctx, loss, [x], {T: 3}, {**inputs(), "x": inputs()["x"][:3]})


def test_random_numbers_are_those_of_the_true_shape() -> None:
    """Random numbers depend on an element's row-major number: an inner size that varies moves the numbers, but does not change them."""
    rows = []
    for build in (lambda t, T: tp.random.normal((3, t + 1), domain=(t,)), lambda t, T: tp.random.normal((3 * T,), domain=(t,))):
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            rows += ctx.run({T: 4}, outputs=[build(t, T)])
    varying, whole = rows
    for t, drawn in enumerate(varying):
        assert drawn.shape == (3, t + 1)
        np.testing.assert_array_equal(drawn.reshape(-1), whole[t, : 3 * (t + 1)])
