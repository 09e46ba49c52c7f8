"""Each smooth function at its special points: value and first three derivatives, as in JAX or as in the table."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.core.points import ANY, NOT_SMOOTH, SMOOTH, Smooth

ALONG = (1.0, 0.5, -2.0)  # the direction in which reductions are differentiated again
TOLERANCE = {"float64": 1e-9, "float32": 3e-5}


def stacked(row: Smooth) -> list[np.ndarray]:
    """The operands of a row: an array with all points for each; of vectors, one array with a row for each point."""
    points = np.array([p.at for p in row.points])
    return [points] if row.vector else list(points.T)


def ours(row: Smooth, dtype: str) -> list[np.ndarray]:
    ctx = tp.Context("t")
    values = stacked(row)
    with ctx as ((_, T),):
        leaves = [tp.input(f"x{k}", value.shape, dtype) for k, value in enumerate(values)]
        along = tp.constant(np.array(ALONG), dtype)
        orders: list[list[tp.Tensor]] = [[row.ours(*leaves)]]
        for order in range(3):
            if row.vector:
                (before,) = orders[-1]
                orders.append(tp.grad((before if before.rank == 1 else before * along).sum(), leaves))
            else:
                first = orders[-1] if order < 2 else [orders[-1][0], orders[-1][-1]][: len(leaves)]
                orders.append([g for f in first for g in tp.grad(f.sum(), leaves)])
        outputs = [x for tensors in orders for x in tensors]
        computed = reference.evaluate(ctx, outputs, {T: 1}, {f"x{k}": v.astype(dtype) for k, v in enumerate(values)})
    return grouped(computed, orders)


def theirs(row: Smooth) -> list[np.ndarray]:
    along = np.array(ALONG)

    def total(function: Any) -> Any:
        def summed(*x: Any) -> Any:
            y = function(*x)
            return (y * along if y.ndim == 2 else y).sum()

        return summed

    with jax.enable_x64(True):
        values = [jnp.asarray(v) for v in stacked(row)]
        functions: list[list[Any]] = [[row.jax]]
        for order in range(3):
            first = functions[-1] if order < 2 else [functions[-1][0], functions[-1][-1]][: len(values)]
            functions.append([jax.grad(total(f), k) for f in first for k in range(len(values))])
        every = [f for group in functions for f in group]
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            program = jax.jit(lambda *x: [f(*x) for f in every]).lower(*values)
        computed = [np.asarray(v) for v in program.compile({"xla_backend_optimization_level": 0})(*values)]
    return grouped(computed, functions)


def grouped(values: list[np.ndarray], orders: list[list[Any]]) -> list[np.ndarray]:
    """By order: an array with a row for each point."""
    result, start = [], 0
    for order in orders:
        parts = [np.asarray(v) for v in values[start : start + len(order)]]
        result.append(np.concatenate([p.reshape(len(p), -1) for p in parts], 1))
        start += len(order)
    return result


def differences(row: Smooth, point: int, order: int, dtype: str, value: np.ndarray, by_jax: np.ndarray) -> str:
    """The error of a derivative at a point, as text; "" if it is right."""
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
        right = by_jax.astype(dtype)
    said = row.points[point].right.get(order, (ANY,) * len(right))
    assert len(said) == len(right), f"{row.name} at {row.points[point].at} has {len(right)} derivatives of order {order}"
    right = np.array([r if s is ANY else s for r, s in zip(right, said, strict=True)], dtype)
    compared = np.array([s is not ANY or order not in row.points[point].right for s in said])
    scale = np.abs(right[np.isfinite(right)]).max(initial=1e-2)
    same = np.isclose(value, right, TOLERANCE[dtype], TOLERANCE[dtype] * scale, equal_nan=True)
    if (same | ~compared).all():
        return ""
    return f"{dtype}, derivative {order} at {row.points[point].at}: {value.tolist()}, not {right.tolist()}"


@pytest.mark.parametrize("name", SMOOTH)
def test_a_function_at_its_special_points(name: str) -> None:
    """In float64 the values of JAX in float64; in float32 the same numbers, rounded."""
    row, wrong = SMOOTH[name], []
    by_jax = theirs(row)
    for dtype in ("float64", "float32"):
        results = ours(row, dtype)
        for number, point in enumerate(row.points):
            orders = [k for k in range(4) if k not in point.nowhere]
            wrong += [differences(row, number, k, dtype, results[k][number], by_jax[k][number]) for k in orders]
    assert not any(wrong), "\n" + "\n".join(filter(None, wrong))


@pytest.mark.parametrize("name", [name for name in tp.__all__ if inspect.isfunction(getattr(tp, name))])
def test_every_function_has_points_or_a_reason(name: str) -> None:
    assert (name in SMOOTH) != (name in NOT_SMOOTH), f"tp.{name} needs a row of its special points in tests/core/points.py"


def test_what_is_said_to_be_right_has_a_reason() -> None:
    assert not [(row.name, p.at) for row in SMOOTH.values() for p in row.points if p.right and not p.why]


def test_of_no_elements() -> None:
    """Sums are 0, products 1, a maximum and the logarithm of a sum are -inf; means do not exist. Gradients have no elements."""
    right = {
        tp.sum: 0,
        tp.prod: 1,
        tp.norm: 0,
        tp.logsumexp: -np.inf,
        tp.Tensor.max: -np.inf,
        tp.Tensor.min: np.inf,
        tp.mean: np.nan,
    }
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x = tp.input("x", (2, 0))
        values = [function(x, -1) for function in right]
        slopes = [tp.grad(value.sum(), [x])[0] for value in values]
        same = [tp.softmax(x), tp.log_softmax(x), tp.cumsum(x, -1), tp.cumprod(x, -1)]
        results = reference.evaluate(ctx, [*values, *slopes, *same], {T: 1}, {"x": np.zeros((2, 0))})
    for value, target in zip(results, right.values(), strict=False):
        np.testing.assert_array_equal(value, np.full(2, target, "float32"))
    assert {np.shape(value) for value in results[len(right) :]} == {(2, 0)}


def test_infinities_become_the_largest_numbers_of_the_dtype() -> None:
    for dtype in ("float32", "float64", "float16"):
        ctx = tp.Context("t")
        with ctx as ((_, T),):
            x = tp.input("x", (3,), dtype)
            y = tp.nan_to_num(x)
        (result,) = reference.evaluate(ctx, [y], {T: 1}, {"x": np.array([np.inf, -np.inf, np.nan], dtype)})
        assert result.tolist() == [np.finfo(dtype).max, np.finfo(dtype).min, 0.0]


def test_a_logistic_regression_that_starts_at_zero_has_a_hessian() -> None:
    """The Hessian of `mean(softplus(-y * x @ w))` at w = 0 is `x.T @ x / 4 / n`; a softplus of functions with a kink would give 0."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(8, 3)), np.sign(draw.normal(size=8))
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        w = tp.input("w", (3,), "float64")
        margin = tp.constant(y, "float64") * (tp.constant(x, "float64") @ w)
        for loss in (tp.mean(tp.softplus(-margin)), -tp.mean(tp.log_sigmoid(margin)), tp.mean(tp.logaddexp(-margin, 0.0))):
            (slope,) = tp.grad(loss, [w])
            rows = [tp.grad(slope.index(0, k), [w])[0] for k in range(3)]
            results = reference.evaluate(ctx, rows, {T: 1}, {"w": np.zeros(3)})
            np.testing.assert_allclose(results, x.T @ x / 4 / len(x), rtol=1e-12)


FORMULAS = (
    "softplus",
    "log_sigmoid",
    "logaddexp",
    "hypot",
    "arctan2",
    "silu",
    "gelu",
    "arcsin",
    "logsumexp",
)  # that choose between two


def test_xla_keeps_values_and_slopes_at_special_points() -> None:
    """XLA's algebra must not undo the care of the formulas: one staged program of values and gradients against the reference."""
    ctx, outputs, inputs = tp.Context("t"), [], {}
    with ctx as ((_, T),):
        for name in FORMULAS:
            values = {f"{name}{k}": v.astype("float32") for k, v in enumerate(stacked(SMOOTH[name]))}
            leaves = [tp.input(key, value.shape) for key, value in values.items()]
            result = SMOOTH[name].ours(*leaves)
            outputs += [result, *tp.grad(result.sum(), leaves)]
            inputs.update(values)
    expected = reference.evaluate(ctx, outputs, {T: 1}, inputs)
    for results, right in zip(ctx.run({T: 1}, outputs=outputs, inputs=inputs), expected, strict=True):
        np.testing.assert_allclose(results, right, rtol=3e-5, atol=1e-6)
