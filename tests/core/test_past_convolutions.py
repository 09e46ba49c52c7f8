"""Convolutions with the whole past: right in each form of writing, with gradients, and by Fourier transforms where they are long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.past_sums import PAST_SUMS
from tempo_core.ir.udf import Library
from tempo_core.store.fingerprint import unwrapped
from tests import reference
from tests.cases import fast
from tests.core.gradient_checks import assert_gradients, normal

FORMS: dict[str, Callable[[Any, Any, Any, Any], tp.Tensor]] = {
    "sum of products": lambda k, x, t, T: (k[0 : t + 1].flip(0) * x[0 : t + 1]).sum(0),
    "past reversed": lambda k, x, t, T: tp.einsum("tc,tc->c", k[0 : t + 1], x[0 : t + 1].flip(0)),
    "suffix": lambda k, x, t, T: (k[0 : T - t] * x[t:T]).sum(0),
    "suffix reversed": lambda k, x, t, T: (k[t:T].flip(0) * x[t:T]).sum(0),
    "before": lambda k, x, t, T: (k[0:t].flip(0) * x[0:t]).sum(0),
    "one kernel": lambda k, x, t, T: (tp.exp(k.sum(0))[0 : t + 1].flip(0).expand_dims(1) * x[0 : t + 1]).sum(0),
    "repeated neighbour": lambda k, x, t, T: (
        tp.broadcast_to(k[tp.max(t - 1, 0)].sum(0), (2,))[0 : t + 1].flip(0) * x[0 : t + 1]
    ).sum(0),
    "channels": lambda k, x, t, T: tp.einsum("tc,td->cd", k[0 : t + 1].flip(0), x[0 : t + 1]),
}


def program(form: str) -> tuple[tp.Context, Any, list[tp.Tensor], list[tp.Tensor]]:
    """The value of a form with its first and second gradients, and its inputs."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", (2,), domain=(t,)), tp.input("k", (2,), domain=(t,))
        y = FORMS[form](k, x, t, T)
        first = tp.grad(tp.sin(y)[0:T].sum(), [x, k])
        second = tp.grad((first[0][0:T] ** 2).sum(), [x, k])
    return ctx, T, [y, *first, *second], [x, k]


def feed(points: int) -> dict[str, Any]:
    return {name: (0.3 * normal(points, 2, seed=seed)).astype("float32") for seed, name in enumerate("xk")}


def convolutions(program: tp.Program[Any]) -> int:
    """How many operations of a program convolve with the past."""
    each = [getattr(node.op, "body", None) for node in program.graph]
    inner = [op for body in each if body is not None for op, _, _ in body.instructions]
    functions = [unwrapped(getattr(op, "fn", None)) for op in (*inner, *(node.op for node in program.graph))]
    return sum(isinstance(fn, Library) and fn.name == PAST_SUMS for fn in functions)


def assert_near(result: Any, expected: Any) -> None:
    """Equal up to the rounding of transforms, which is that of the largest value."""
    assert np.abs(np.asarray(result) - np.asarray(expected)).max() <= 1e-5 * max(np.abs(expected).max(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("form", fast(FORMS, "sum of products"))
def test_values_and_gradients(form: str) -> None:
    ctx, T, outputs, _ = program(form)
    compiled = ctx.compile({T: 5}, outputs)
    assert convolutions(compiled) >= 1
    for result, expected in zip(compiled.run(feed(5)), reference.evaluate(ctx, outputs, {T: 5}, feed(5)), strict=True):
        assert_near(result, expected)


@pytest.mark.parametrize("form", ["sum of products", "suffix", "channels"])
def test_transforms_agree_with_all_pairs(form: str) -> None:
    ctx, T, outputs, _ = program(form)
    sums = ctx.compile({T: 140}, outputs[:1]).run(feed(140))[0]
    expected = ctx.run({T: 140}, outputs[:1], feed(140), tp.Config(backend="numpy", disable=("lift",)))[0]
    assert_near(sums, expected)
    assert np.abs(np.asarray(sums) - np.asarray(expected)).max() > 0  # the transforms did compute it


def test_gradients_are_those_of_differences() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", (2,), domain=(t,)), tp.input("k", (2,), domain=(t,))
        loss = tp.sin(FORMS["sum of products"](k, x, t, T))[0:T].sum()
        assert_gradients(ctx, loss, [x, k], {T: 4}, {"x": normal(4, 2), "k": normal(4, 2, seed=1)})


@pytest.mark.parametrize("points", [9, 150])
def test_an_infinity_is_in_the_sums_of_its_points_alone(points: int) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", domain=(t,)), tp.input("k", domain=(t,))
        y = (k[0 : t + 1].flip(0) * x[0 : t + 1]).sum(0)
    values = {"x": np.ones(points, "float32"), "k": np.ones(points, "float32")}
    values["x"][points - 2] = np.inf
    (result,) = ctx.run({T: points}, [y], values)
    assert np.allclose(result[: points - 2], np.arange(1, points - 1), rtol=1e-5)
    assert np.isposinf(np.asarray(result)[points - 2 :]).all()


@pytest.mark.parametrize("form", ["sum of products", "suffix"])
def test_a_bound_that_runs_choose(form: str) -> None:
    ctx, T, outputs, _ = program(form)
    results = ctx.compile({T: tp.upto(9)}, outputs).run(feed(5), bounds={T: 5})
    for result, expected in zip(results, reference.evaluate(ctx, outputs, {T: 5}, feed(5)), strict=True):
        assert_near(result, expected)


def test_what_a_loop_computes_stays_in_the_loop() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        k, x = tp.input("k", domain=(t,)), tp.recurrence((), domain=(t,), name="x")
        x[0] = tp.full((), 1.0)
        x[t + 1] = tp.tanh((k[0 : t + 1].flip(0) * x[0 : t + 1]).sum(0))
        outputs = [x, *tp.grad((x**2)[0:T].sum(), [k])]
    compiled, values = ctx.compile({T: 6}, outputs), {"k": normal(6).astype("float32")}
    assert convolutions(compiled) == 0
    for result, expected in zip(compiled.run(values), reference.evaluate(ctx, outputs, {T: 6}, values), strict=True):
        assert_near(result, expected)


@pytest.mark.parametrize(
    "form",
    [
        lambda k, x, t: (k[0 : t + 1] * x[0 : t + 1]).sum(0),
        lambda k, x, t: (k[0 : t + 1].flip(0) * x[0 : t + 1].flip(0)).sum(0),
        lambda k, x, t: (k[0 : t + 1].flip(0) * x[0 : t + 1]).max(0),
        lambda k, x, t: tp.exp(k[0 : t + 1].flip(0) + x[0 : t + 1]).sum(0),
        lambda k, x, t: (k[0:t].flip(0) * x[1 : t + 1]).sum(0),
        lambda k, x, t: (k[0 : tp.min(t + 1, 3)].flip(0) * x[0 : tp.min(t + 1, 3)]).sum(0),
    ],
)
def test_other_sums_are_none(form: Callable[..., tp.Tensor]) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", domain=(t,)), tp.input("k", domain=(t,))
        y = form(k, x, t)
    compiled, values = ctx.compile({T: 6}, [y]), {name: normal(6, seed=s).astype("float32") for s, name in enumerate("xk")}
    assert convolutions(compiled) == 0
    assert_near(compiled.run(values)[0], reference.evaluate(ctx, [y], {T: 6}, values)[0])


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_sums_that_must_be_exact_are_summed_directly(dtype: str) -> None:
    import jax

    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", dtype == "float64" or before)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, k = tp.input("x", domain=(t,), dtype=dtype), tp.input("k", domain=(t,), dtype=dtype)
        y = (k[0 : t + 1].flip(0) * x[0 : t + 1]).sum(0)
    try:
        compiled = ctx.compile({T: 6}, [y])
        assert convolutions(compiled) == 0
        values = np.arange(6, dtype=dtype) + 10_000
        assert np.asarray(compiled.run({"x": values, "k": values})[0]).tolist() == np.convolve(values, values)[:6].tolist()
    finally:
        jax.config.update("jax_enable_x64", before)
