"""Reductions over a stack are elementwise operations of its parts: they keep vectors and diagonals, with the values and gradients of the reduction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo_core as tp
from tests.cases import cells
from tests.core.running import assert_all_same

REDUCTIONS: dict[str, Callable[[tp.Tensor], tp.Tensor]] = {
    "sum": lambda c: c.sum(0),
    "prod": lambda c: c.prod(0),
    "max": lambda c: c.max(0),
    "min": lambda c: c.min(0),
    "mean": lambda c: c.mean(0),
    "var": lambda c: c.var(0),
    "any": lambda c: (c > 0).any(0),
    "all": lambda c: (c > 0).all(0),
    "argmax": lambda c: c.argmax(0),
    "argmin": lambda c: c.argmin(0),
    "count": lambda c: tp.count_nonzero(c, 0),
    "logsumexp": lambda c: tp.logsumexp(c, 0),
    "softmax": lambda c: tp.softmax(c, 0).spatial[1:2].sum(0),
    "keepdims": lambda c: c.max(0, keepdims=True).sum(0),
}
DIFFERENTIABLE = ("sum", "max", "min", "mean", "var", "logsumexp")


def table(reduce: Callable[[tp.Tensor], tp.Tensor], gradient: bool = False) -> tuple[tp.Context, dict[object, int], tp.Tensor]:
    """A table whose points reduce a stack of their three neighbours, of which many are equal."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        w = tp.input("w", ())
        d = tp.recurrence((), domain=(i, j), name="d")
        d[0, j] = w
        d[i, 0] = w
        c = tp.stack([d[i - 1, j] * w, d[i, j - 1] * w, d[i - 1, j - 1] * w])
        d[i, j] = 0.5 * reduce(c).astype("float32") + 0.1
        result = tp.grad(d[I - 1, J - 1], [w])[0] if gradient else d
    return ctx, {I: 5, J: 4}, result


@pytest.mark.parametrize(
    ("name", "gradient"), cells(REDUCTIONS, [False, True], fast=lambda name, gradient: not gradient or name in ("sum", "max"))
)
def test_a_table_that_reduces_a_stack_runs_by_diagonals(name: str, gradient: bool) -> None:
    if gradient and name not in DIFFERENTIABLE:
        return
    ctx, bounds, result = table(REDUCTIONS[name], gradient)
    program = ctx.compile(bounds, result, config=tp.Config(backend="numpy"))
    assert "for diagonal in" in program.text("program")
    plain = ctx.compile(bounds, result, config=tp.Config(backend="numpy", disable=("simplify",)))
    assert_all_same([program.run({"w": np.float32(0.8)})], [plain.run({"w": np.float32(0.8)})])


def test_the_first_of_equal_parts_and_the_first_nan_win() -> None:
    nan = np.nan
    columns = np.array([[1, 2, 2], [2, 2, 1], [0, nan, nan], [nan, 3, nan], [-0.0, 0.0, -0.0]], "float32")
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        parts = [tp.input(name, (), domain=(t,)) for name in "abc"]
        c = tp.stack([part * 1.0 for part in parts])
        results = [c.argmax(0), c.argmin(0), c.max(0), c.min(0)]
    inputs = dict(zip("abc", columns.T, strict=True))
    highest, lowest, top, bottom = ctx.run({T: 5}, outputs=results, inputs=inputs)
    np.testing.assert_array_equal(highest, [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(lowest, [0, 2, 1, 0, 0])
    np.testing.assert_array_equal(top, [2, 2, nan, nan, 0])
    np.testing.assert_array_equal(bottom, [1, 1, nan, nan, 0])


def test_equal_extremes_share_the_gradient() -> None:
    ctx = tp.Context()
    with ctx:
        a, b, c = (tp.input(name, ()) for name in "abc")
        gradients = tp.grad(tp.stack([a, b, c]).max(0), [a, b, c])
    one, two = np.float32(1), np.float32(2)
    assert [float(g) for g in ctx.run({}, outputs=gradients, inputs={"a": two, "b": one, "c": two})] == [0.5, 0, 0.5]


def test_a_stack_of_many_parts_stays_one() -> None:
    """17 parts are one more than a window that is written out may have."""
    for count, is_stack in ((16, False), (17, True)):
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            x = tp.input("x", (), domain=(t,))
            h = tp.recurrence((), domain=(t,))
            h[0] = x[0]
            h[t + 1] = tp.sin(tp.stack([h * k for k in range(count)]).max(0)) + x
        assert ("Concat" in ctx.compile({T: 4}, h).text("sdg")) == is_stack


def test_parts_of_a_function_of_two_outputs_of_a_node() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        a, b = tp.udf(lambda x: (x * 10, x * 100), x, outputs=[tp.spec((2,))] * 2, kind="host", name="two")
        total = (tp.stack([x.sum(), x.sum() * 2]) + a * tp.sin(b)).sum(0)
    value = np.float32([[1, 2], [3, 5]])
    (result,) = ctx.run({T: 2}, outputs=[total], inputs={"x": value})
    np.testing.assert_allclose(result, 3 * value.sum(1) + (value * 10 * np.sin(value * 100)).sum(1), rtol=1e-5)


@pytest.mark.parametrize("disable", [(), ("vectorize(t)",)], ids=str)
def test_parts_of_functions_of_all_points(disable: tuple[str, ...]) -> None:
    """The axis of the parts comes after the one of the points, which the value of one point has not."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (2,), domain=(i, t))
        a, b = tp.udf(lambda x: (x * 10, x.astype("int32")), x, outputs=[tp.spec((2,)), tp.spec((2,), "int32")], kind="host")
        parts = b[i, 0:T].astype("float32").spatial
        last = tp.stack([a[i, T - 1].sum(), a[i, 0].sum()]).expand_dims(0)
        results = [(parts[:, 0:1] - parts[:, 1:2]).sum(1), (last * tp.sin(a[i, 0:T])).sum(1)]
    value = np.arange(12, dtype=np.float32).reshape(2, 3, 2) ** 2
    ends = 10 * value[:, [-1, 0]].sum(-1)[:, None]
    first, second = ctx.run({I: 2, T: 3}, outputs=results, inputs={"x": value}, config=tp.Config(disable=disable))
    np.testing.assert_allclose(first, value[..., 0] - value[..., 1])
    np.testing.assert_allclose(second, (ends * np.sin(value * 10)).sum(-1), rtol=1e-5)
