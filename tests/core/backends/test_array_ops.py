"""Sources, reductions, scans, contraction, views and indexing against plain NumPy loops and formulas."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from tempo_core.backends import jax_backend
from tempo_core.errors import DTypeError
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType
from tempo_core.prices import SHORT_AXIS
from tempo_core.symbolic.expr import Expr, maximum, minimum
from tests.core.backends.support import JAX, NUMPY, T, array, check, normal, run, t


def sizes(*values):
    return tuple(map(Expr.of, values))


# -- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint8", "int32", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_constant(dtype, shape):
    values = array(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype)
    check(ops.Constant(dtype, shape, values.tobytes()), [], values)


def test_iota():
    check(ops.Iota(T.expr - 1), [], np.arange(4), env={T: 5})
    check(ops.Iota(Expr.of(0)), [], np.arange(0))


def test_eval():
    env = {T: 9, t: 7}
    check(ops.Eval(minimum(t.expr + 5, T.expr) * 2 - t.expr // 2), [], np.int32(15), env=env)
    check(ops.Eval(maximum(t.expr - 3, 0) % 3), [], np.int32(1), env=env)
    check(ops.Eval(T.expr), [], np.int32(9), env=env)
    check(ops.Eval(-t.expr // 2), [], np.int32(-4), env=env)  # rounds down
    check(ops.Eval((t.expr >= 7) & (t.expr < T.expr)), [], np.bool_(True), env=env)
    check(ops.Eval(t.expr == 3), [], np.bool_(False), env=env)


# -- reductions and scans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("fn", ops.REDUCE)
def test_reduce(fn, axes):
    x = normal(2, 3, 4)
    if fn in ("any", "all"):
        x = x > (0.8 if fn == "any" else -0.8)
    check(ops.Reduce(fn, axes), [x], getattr(np, fn)(x if x.dtype == bool else x.astype(np.float64), axis=axes))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "bfloat16"])
@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
def test_reductions_keep_the_dtype(fn, dtype):
    x = array([[1, 2], [3, 4], [2, 2]], dtype)
    check(ops.Reduce(fn, (0,)), [x], getattr(np, fn)(x.astype(np.float64), axis=0).astype(x.dtype))


def test_narrow_floats_are_summed_in_float32():
    x = array(np.ones(1000), "bfloat16")  # in bfloat16, 256 + 1 is 256
    check(ops.Reduce("sum", (0,)), [x], 1000.0, rtol=0)
    check(ops.Dot((0,), (0,)), [x, x], 1000.0, rtol=0)
    check(ops.CumSum(0), [x], array(np.arange(1, 1001), "bfloat16"), rtol=1e-2)
    check(ops.DiscountedSum(0, 1.0), [x], 1000.0, rtol=0)


def test_reductions_of_nothing():
    empty = normal(0, 2)
    expected = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
    for fn, value in expected.items():
        check(ops.Reduce(fn, (0,)), [empty], np.full(2, value))
    check(ops.Reduce("max", (0,)), [array(np.zeros((0,)), "int32")], np.int32(-(2**31)))
    check(ops.Reduce("any", (0,)), [array(np.zeros((0,)), "bool")], np.bool_(False))
    check(ops.Reduce("max", (0,)), [array(np.zeros((0,)), "bool")], np.bool_(False))
    check(ops.Reduce("min", (0,)), [array(np.zeros((0,)), "bool")], np.bool_(True))


def test_argmax_gives_the_first():
    check(ops.Argmax(1), [array([[1, 3, 3, 2], [5, 5, 5, 5]])], [1, 0])
    check(ops.Argmax(0), [array([False, True, True], "bool")], np.int32(1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("axis", [0, 1])
def test_argmax_of_many_gives_the_first(dtype, axis):
    """Where it is two reductions: of numbers with many equal maxima, of infinities, and of numbers that are not."""
    x = np.random.default_rng(0).integers(0, 4, (SHORT_AXIS + 3, SHORT_AXIS)).astype("float32")
    x[:, 3] = x[5] = 0
    if dtype in ("float32", "bfloat16"):
        x[:, 7] = x[9] = -np.inf
        x[17, 20] = x[22, 20] = x[17, 24] = np.nan
        x[30] = np.inf
    x = x > 2 if dtype == "bool" else x
    check(ops.Argmax(axis), [array(x, dtype)], np.argmax(x, axis))


@pytest.mark.parametrize("length", [4, SHORT_AXIS + 3])
def test_argmax_on_a_gpu_takes_the_first_nan(length, monkeypatch):
    """XLA's own takes any of several there, so that of floats is two reductions, of whatever length; that of integers is XLA's."""
    x = np.zeros((length, 2), "float32")
    x[1:3, 0] = np.nan
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert run(JAX, ops.Argmax(0), x)[0].tolist() == [1, 0]
    assert "argmax" not in str(jax.make_jaxpr(lambda x: JAX.kernel(ops.Argmax(0), [x], {}, 0))(x))
    assert "argmax" in str(jax.make_jaxpr(lambda x: JAX.kernel(ops.Argmax(0), [x], {}, 0))(np.zeros_like(x, "int32")))


def test_the_first_position_on_a_gpu_is_sorted(monkeypatch):
    """There, the first one of XLA's `top_k` is a NaN of either sign."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jaxprs = [
        str(jax.make_jaxpr(lambda x, n=n: JAX.kernel(ops.Argsort(0, n), [x], {}, 0))(np.zeros(5, "float32"))) for n in (1, 2)
    ]
    assert ["top_k" in jaxpr for jaxpr in jaxprs] == [False, True]


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "bfloat16"])
def test_argsort_is_stable(dtype):
    x = array([[3, 1, 2, 1], [0, 0, 0, 0]], dtype)
    check(ops.Argsort(1), [x], [[1, 3, 2, 0], [0, 1, 2, 3]])
    check(ops.Argsort(0), [x], [[1, 1, 1, 1], [0, 0, 0, 0]])
    many = np.arange(200) % 2  # sorting algorithms that are not stable are on few elements
    check(ops.Argsort(0), [array(many, dtype)], [*range(0, 200, 2), *range(1, 200, 2)])


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "bool"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_positions_are_those_of_the_whole_order(axis, dtype):
    """With equal elements; of floats, zeros of both signs are equal, and each NaN comes last. (NumPy does not sort NaN of bfloat16.)"""
    values = np.random.default_rng(0).integers(-2, 3, (9, 9)).astype("float32")
    if "float" in dtype:
        nan = np.nan if dtype == "float32" else 1.0
        special = [0.0, -0.0, nan, -nan, np.inf, -np.inf, -0.0, 0.0]
        values[0, 1:], values[1:, 0] = special, special
    x = array(values, dtype)
    order = np.argsort(x, axis=axis, stable=True)
    for count in (0, 1, 4, 9):
        check(ops.Argsort(axis, count), [x], order.take(range(count), axis).astype("int32"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum(axis, reverse):
    x = normal(5, 3)
    expected = np.zeros(x.shape)
    for k in range(x.shape[axis]):
        part = np.take(x, range(k, x.shape[axis]) if reverse else range(k + 1), axis)
        np.moveaxis(expected, axis, 0)[k] = part.astype(np.float64).sum(axis)
    check(ops.CumSum(axis, reverse), [x], expected)
    check(ops.CumSum(0), [array([1, 2, 3], "int32")], [1, 3, 6])


def linear_scan(c, b, reverse):
    y, before = np.zeros(b.shape), 0.0
    for k in reversed(range(len(b))) if reverse else range(len(b)):
        before = b[k].astype(np.float64) + c[k].astype(np.float64) * before
        y[k] = before
    return y


@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # scans go element by element on a CPU, and as a tree on a GPU
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7,), (6, 2, 3), (0, 2)])
def test_linear_scan(shape, reverse, platform, monkeypatch):
    monkeypatch.setattr(jax_backend.jax, "default_backend", lambda: platform)
    c, b = normal(*shape, seed=1), normal(*shape, seed=2)
    expected = linear_scan(c, b, reverse)
    check(ops.LinearScan(0, reverse), [c, b], expected, rtol=1e-5)
    last = len(shape) - 1
    check(
        ops.LinearScan(last, reverse),
        [np.moveaxis(c, 0, last), np.moveaxis(b, 0, last)],
        np.moveaxis(expected, 0, last),
        rtol=1e-5,
    )


INF, NOT = np.inf, np.nan
# coefficients, terms, the values of the recurrence in order
HARD_SCANS = {
    "a reset forgets what is infinite": ([2, 2, 0, 2], [1, INF, 1, 1], [1, INF, 1, 3]),
    "a reset forgets NaN": ([2, 2, 0, 2], [1, NOT, 1, 1], [1, NOT, 1, 3]),
    "an infinite coefficient after a reset": ([1, 0, INF, 1], [1, 1, 1, 1], [1, 1, INF, INF]),
    "an infinite coefficient and a reset that are composed first": ([1, 1, 0, INF], [1, 1, 1, 1], [1, 2, 1, INF]),
    "a reset after an infinite coefficient": ([1, INF, 0, 1], [1, 1, 1, 1], [1, INF, 1, 2]),
    "coefficients that overflow before there is a value": ([1e30] * 7 + [1.0], [0] * 7 + [1], [0] * 7 + [1]),
    "coefficients that overflow and come back": (
        [1, 1e30, 1e30, 1e-30, 1e-30, 1],
        [1e-25, 0, 0, 0, 0, 0],
        [1e-25, 1e5, 1e35, 1e5, 1e-25, 1e-25],
    ),
    "coefficients that vanish and come back": (
        [1, 1e-30, 1e-30, 1e30, 1e30, 1],
        [1e25, 0, 0, 0, 0, 0],
        [1e25, 1e-5, 1e-35, 1e-5, 1e25, 1e25],
    ),
    "signs": ([-1, -2, 3, -1], [1, 1, 1, 1], [1, -1, -2, 3]),
}


@pytest.mark.parametrize("name", HARD_SCANS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_linear_scan_of_what_is_not_tame(name, reverse, platform, monkeypatch):
    monkeypatch.setattr(jax_backend.jax, "default_backend", lambda: platform)
    c, b, expected = (np.array(values, "float32") for values in HARD_SCANS[name])
    if reverse:
        c, b, expected = c[::-1], b[::-1], expected[::-1]
    for backend in (NUMPY, JAX):
        (result,) = run(backend, ops.LinearScan(0, reverse), c, b)
        np.testing.assert_allclose(result, expected, rtol=1e-5, err_msg=backend.name)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_linear_scan_of_integers_wraps(platform, monkeypatch):
    monkeypatch.setattr(jax_backend.jax, "default_backend", lambda: platform)
    c, b = array([3, 100, 100, 0, 7], "int8"), array([1, 2, 3, 4, 5], "int8")
    check(ops.LinearScan(0), [c, b], np.array([1, 102, -37, 4, 33], "int8"))  # 102 * 100 + 3 = 10,203 = 40 * 256 - 37
    c, b = array([2, 3, 5, 7, 2, 3], "int32"), array([1, 2, 3, 4, 5, 6], "int32")
    check(ops.LinearScan(0), [c, b], np.array([1, 5, 28, 200, 405, 1221], "int32"))


def test_cummax():
    x = array([[1.0, 3.0, 2.0, 5.0], [NOT, 1.0, INF, 0.0]])
    check(ops.CumMax(1), [x], [[1, 3, 3, 5], [NOT, NOT, NOT, NOT]])
    check(ops.CumMax(1, True), [x[:1]], [[5, 5, 5, 5]])
    check(ops.CumMax(0), [array([True, False], "bool")], np.array([True, True]))
    check(ops.CumMax(0), [array(np.zeros((0, 2)))], np.zeros((0, 2)))


def test_of_no_elements_there_are_zeros():
    nothing = array(np.zeros((0, 2)))
    check(ops.Gather(0), [nothing, array([0, 5, -1], "int32")], np.zeros((3, 2)))
    check(ops.Argmax(0), [nothing], np.zeros(2, "int32"))
    check(ops.Argmax(1), [array(np.zeros((2, 0, 3)))], np.zeros((2, 3), "int32"))


def test_linear_scan_is_a_discounted_return():
    rewards, done = array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 0])
    keep = array(0.5 * (1 - done))
    check(ops.LinearScan(0, reverse=True), [keep, rewards], [1 + 0.5 * 2, 2.0, 3 + 0.5 * 4, 4.0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, -0.9])
@pytest.mark.parametrize("axis", [0, 1])
def test_discounted_sum(gamma, axis):
    x = normal(4, 6)
    weights = gamma ** np.arange(x.shape[axis])
    check(ops.DiscountedSum(axis, gamma), [x], (np.moveaxis(x, axis, 0).astype(np.float64).T @ weights).T)


def test_discounted_sum_over_a_long_horizon():
    x = np.ones(20_000, np.float32)  # 0.99**20000 is 0 in float32
    check(ops.DiscountedSum(0, 0.99), [x], 100.0, rtol=1e-5)


# -- contraction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract, batch", [
    (((1,), (0,)), ((), ())),
    (((0,), (1,)), ((), ())),
    (((), ()), ((), ())),
    (((0, 1), (1, 0)), ((), ())),
    (((1, 0), (0, 1)), ((), ())),
    (((0,), (1,)), ((1,), (0,))),
    (((), ()), ((0, 1), (1, 0))),
])  # fmt: skip
def test_dot(contract, batch):
    lengths = {("l", k): 2 + k for k in range(3)}  # a size for each free axis, shared by contracted and batch pairs
    left, right = ["a", "b", "c"], ["d", "e", "f"]
    shape_left, shape_right = [lengths["l", k] for k in range(3)], [5, 6, 7]
    for i, j in zip(contract[0] + batch[0], contract[1] + batch[1], strict=True):
        right[j], shape_right[j] = left[i], shape_left[i]
    a, b = normal(*shape_left, seed=1), normal(*shape_right, seed=2)
    kept_left = [left[k] for k in range(3) if k not in contract[0] + batch[0]]
    kept_right = [right[k] for k in range(3) if k not in contract[1] + batch[1]]
    output = [left[k] for k in batch[0]] + kept_left + kept_right
    expected = np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(output)}", a.astype(np.float64), b.astype(np.float64))
    check(ops.Dot(*contract, *batch), [a, b], expected, rtol=1e-5)


def test_dot_of_integers_and_of_nothing():
    check(ops.Dot((0,), (0,)), [array([1, 2], "int32"), array([3, 4], "int32")], np.int32(11))
    check(ops.Dot((1,), (0,)), [normal(2, 0), normal(0, 3)], np.zeros((2, 3)))


@pytest.mark.torch
def test_dot_agrees_with_torch():
    import torch

    a, b = normal(4, 5, 6), normal(4, 6, 7, seed=1)
    check(ops.Dot((2,), (1,), (0,), (0,)), [a, b], torch.bmm(torch.tensor(a), torch.tensor(b)).numpy(), rtol=1e-5)


# -- views ------------------------------------------------------------------------------------------------------------


def test_reshape_permute_flip_concat():
    x = normal(2, 3, 4)
    check(
        ops.Reshape((T.expr * 2, Expr.of(4))), [x], x.reshape(6, 4), env={T: 3}, types=(TensorType.of("float32", 2, T.expr, 4),)
    )
    check(ops.Permute((2, 0, 1)), [x], np.transpose(x, (2, 0, 1)))
    check(ops.Flip(1), [x], x[:, ::-1])
    check(ops.Concat(1), [x, x[:, :1], x[:, :0]], np.concatenate([x, x[:, :1]], 1))
    check(ops.Concat(0), [x], x)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_broadcast(axes):
    x = normal(3, 3)
    expected = np.broadcast_to(np.expand_dims(x, ({0, 1, 2} - set(axes)).pop()), (3, 3, 3))
    check(
        ops.Broadcast((T.expr, T.expr, T.expr), axes), [x], expected, env={T: 3}, types=(TensorType("float32", (T.expr, T.expr)),)
    )
    check(ops.Broadcast(sizes(2, 3), ()), [array(1.5)], np.full((2, 3), 1.5))


def window(x, start, size, stride=1):
    return np.stack([x[k] if 0 <= k < len(x) else np.zeros_like(x[0]) for k in range(start, start + size * stride, stride)])


@pytest.mark.parametrize("offset, size", itertools.product([-9, -2, 0, 4, 9], [3, 6, 8]))
@pytest.mark.parametrize("step", [0, 5])
def test_slices_at_a_step(offset, size, step):
    x, env = normal(6, 2), {T: 6, t: step}
    op = ops.Slice(0, t.expr + offset, t.expr + offset + size)
    check(op, [x], window(x, step + offset, size), env=env)
    constant = ops.Slice(1, Expr.of(step + offset), Expr.of(step + offset + size))
    check(constant, [x.T], window(x, step + offset, size).T)


@pytest.mark.parametrize("stride, size, start", [(2, 3, 0), (2, 2, 1), (3, 2, 4), (2, 1, 5)])
def test_strided_slices(stride, size, start):
    x = normal(6, 2)
    for stop in range(start + (size - 1) * stride + 1, start + size * stride + 1):
        check(ops.Slice(0, Expr.of(start), Expr.of(stop), stride), [x], window(x, start, size, stride))
    check(ops.Slice(0, t.expr, t.expr + size * stride, stride), [x], window(x, start, size, stride), env={T: 9, t: start})


def test_empty_slice():
    check(ops.Slice(0, Expr.of(2), Expr.of(2)), [normal(4, 3)], np.zeros((0, 3)))
    check(ops.Slice(0, t.expr, t.expr), [normal(4, 3)], np.zeros((0, 3)), env={T: 4, t: 2})


def test_slices_whose_size_depends_on_a_step_run_where_steps_are_numbers():
    x, env = normal(6, 2), {T: 6, t: 2}
    op = ops.Slice(0, t.expr, T.expr)
    for backend in (NUMPY, JAX):
        np.testing.assert_array_equal(run(backend, op, x, env=env)[0], x[2:])


@pytest.mark.parametrize("low, high", [(0, 0), (2, 3), (-2, 0), (0, -1), (-2, 5), (4, -2)])
def test_pad(low, high):
    x = normal(5, 2)
    expected = window(x, -low, 5 + low + high)
    check(ops.Pad(0, Expr.of(low), Expr.of(high)), [x], expected)
    for step in (0, 1, 3):
        moving = ops.Pad(0, low + 1 - t.expr, high - 1 + t.expr)
        check(moving, [x], window(x, step - low - 1, 5 + low + high), env={T: 9, t: step})


# -- indexing by data -------------------------------------------------------------------------------------------------


def gathered(x, index, axis, batch):
    """By its definition, element by element; positions outside are clamped."""
    index = np.clip(index, 0, x.shape[axis] - 1)
    inner = index.shape[batch:]
    result = np.zeros((*x.shape[:axis], *inner, *x.shape[axis + 1 :]), x.dtype)
    for at in np.ndindex(*result.shape):
        before, middle, after = at[:axis], at[axis : axis + len(inner)], at[axis + len(inner) :]
        result[at] = x[(*before, index[(*at[:batch], *middle)], *after)]
    return result


FUNCTIONS = {"add": (np.add, 0), "mul": (np.multiply, 1), "maximum": (np.maximum, -np.inf), "minimum": (np.minimum, np.inf)}


def scattered(updates, index, axis, size, batch, fn="add"):
    inner, (function, start) = index.shape[batch:], FUNCTIONS[fn]
    result = np.full((*updates.shape[:axis], size, *updates.shape[axis + len(inner) :]), float(start))
    for at in np.ndindex(*updates.shape):
        place = index[(*at[:batch], *at[axis : axis + len(inner)])]
        if 0 <= place < size:
            where = (*at[:axis], place, *at[axis + len(inner) :])
            result[where] = function(result[where], updates[at])
    return result


INDEXED = [
    (0, 0, ()),
    (1, 0, ()),
    (2, 0, (3,)),
    (1, 0, (2, 3)),
    (0, 0, (0,)),
    (1, 1, ()),
    (1, 1, (3,)),
    (2, 1, (3,)),
    (2, 2, (2, 2)),
    (2, 2, ()),
]


@pytest.mark.parametrize("axis, batch, inner", INDEXED)
def test_gather(axis, batch, inner):
    x = normal(2, 3, 4)
    index = np.random.default_rng(0).integers(-3, 7, (*x.shape[:batch], *inner)).astype(np.int32)
    check(ops.Gather(axis, batch), [x, index], gathered(x, index, axis, batch))


@pytest.mark.parametrize("fn", ops.COMBINING)
@pytest.mark.parametrize("axis, batch, inner", INDEXED)
def test_scatter(axis, batch, inner, fn):
    index = np.random.default_rng(0).integers(-3, 8, ((2, 3, 4)[:batch]) + inner).astype(np.int32)
    updates = normal(*(2, 3, 4)[:axis], *inner, *(2, 3, 4)[axis + 1 :])
    check(ops.Scatter(axis, T.expr, batch, fn), [updates, index], scattered(updates, index, axis, 5, batch, fn), env={T: 5})


@pytest.mark.parametrize("axis, batch, inner", INDEXED)
def test_update(axis, batch, inner):
    x, random = normal(2, 3, 4), np.random.default_rng(0)
    index = random.integers(-3, 7, (*x.shape[:batch], *inner)).astype(np.int32)
    updates = normal(*x.shape[:axis], *inner, *x.shape[axis + 1 :])
    for fn, (function, _) in FUNCTIONS.items():
        result = function(x, scattered(updates, index, axis, x.shape[axis], batch, fn))
        check(ops.Update(fn, axis, batch), [x, updates, index], result)
    if not inner:  # those of `set` differ
        is_written = scattered(np.ones_like(updates), index, axis, x.shape[axis], batch) > 0
        written = np.where(is_written, scattered(updates, index, axis, x.shape[axis], batch), x)
        check(ops.Update("set", axis, batch), [x, updates, index], written)


@pytest.mark.parametrize("inner", [(), (3,)])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_several_axes_are_one_axis_to_an_update(fn, inner):
    x, index = normal(2, 3, 4, 2), np.random.default_rng(0).integers(-3, 15, inner).astype(np.int32)
    updates = normal(2, *inner, 2)
    result = FUNCTIONS[fn][0](x.reshape(2, 12, 2), scattered(updates, index, 1, 12, 0, fn)).reshape(x.shape)
    check(ops.Update(fn, 1, axes=2), [x, updates, index], result)
    check(ops.Update(fn, 1, axes=2), [x[:, :, :0], updates, index], x[:, :, :0])


def test_several_elements_are_set():
    x, index = array([1.0, 2.0, 3.0, 4.0]), array([2, -1, 0, 9], "int32")
    check(ops.Update("set", 0), [x, array([5.0, 6.0, 7.0, 8.0]), index], [7.0, 2.0, 5.0, 4.0])


def test_scatter_add_adds_up_and_drops():
    index = array([1, 1, -1, 5, 4, 2], "int32")
    check(ops.Scatter(0, Expr.of(5)), [array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), index], [0.0, 3.0, 32.0, 0.0, 16.0])
    check(ops.Scatter(0, Expr.of(3)), [array([1, 1, 1, 0, 0, 0], "int32"), array([0, 0, 7, 0, 0, 0], "int32")], [2, 0, 0])
    for outside in (-1, 3):
        check(ops.Scatter(0, Expr.of(3)), [array(1.0), array(outside, "int32")], np.zeros(3))


def test_narrow_floats_are_scattered_in_float32():
    updates, index = array(np.ones(1000), "bfloat16"), array(np.zeros(1000), "int32")
    check(ops.Scatter(0, Expr.of(2)), [updates, index], [1000.0, 0.0], rtol=0)


# -- 64 bits ----------------------------------------------------------------------------------------------------------


def test_64_bits_are_refused_where_jax_would_drop_them():
    with pytest.raises(DTypeError, match="float64 needs JAX's 64-bit mode"):
        JAX.kernel(ops.Cast("float64"), [JAX.zeros((2,), "float32")], {})
    with pytest.raises(DTypeError, match="int64 needs"):
        JAX.to_device(np.zeros(2, np.int64))
    with pytest.raises(DTypeError, match="int64 needs"):
        JAX.kernel(ops.Constant("int64", (), np.int64(1).tobytes()), [], {})
    (result,) = run(NUMPY, ops.Cast("float64"), array([0.1]))
    assert result.dtype == np.float64


def test_64_bits_work_where_they_are_on():
    with jax.enable_x64(True):
        (result,) = run(JAX, ops.Unary("exp"), np.array([1.0]))
        np.testing.assert_allclose(result, np.exp([1.0]), rtol=1e-15)
        (order,) = run(JAX, ops.Argsort(0), np.array([2.0, 1.0]))
        assert order.tolist() == [1, 0]
