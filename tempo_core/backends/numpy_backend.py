"""Kernels in NumPy: for the interpreter and the reference, and as a check of the JAX kernels."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tempo_core.backends import shared
from tempo_core.backends.base import Array, Backend, Kernel, Seed, Setting, StepValues, host_udf, numpy_dtype, traced_udf
from tempo_core.ir import ops


def _of_python(fn: str) -> Callable[..., Array]:
    """A function of Python's, for each number in float64."""
    function = np.frompyfunc(getattr(math, fn), 1, 1)
    return lambda xp, x: np.asarray(function(x.astype(np.float64))).astype(x.dtype)


UNARY = {**{fn: _of_python(fn) for fn in ops.UNARY if hasattr(math, fn)}, **shared.UNARY}


def cast(at: Setting, op: ops.Cast, x: Array) -> Array:
    """The conversions of XLA: floats saturate when they become integers, and NaN becomes 0."""
    dtype = numpy_dtype(op.dtype)
    if dtype.kind in "iu" and x.dtype.kind not in "iub":
        limits = np.iinfo(dtype)
        x = x.astype(np.float64)
        whole = np.where(np.isnan(x), 0.0, np.trunc(x))
        inside = np.where((whole >= limits.min) & (whole <= limits.max), whole, 0.0).astype(dtype)
        above, below = whole >= float(limits.max), whole <= float(limits.min)
        return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))
    return x.astype(dtype)


# -- reductions and scans ---------------------------------------------------------------------------------------------


def argmax(at: Setting, op: ops.Argmax, x: Array) -> Array:
    if not x.shape[op.axis]:
        return np.zeros((*x.shape[: op.axis], *x.shape[op.axis + 1 :]), np.int32)
    return np.argmax(x, axis=op.axis).astype(np.int32)


def cumulative(function: np.ufunc) -> Kernel:
    """The kernel of cumulative sums or maxima."""

    def kernel(at: Setting, op: ops.CumSum | ops.CumMax, x: Array) -> Array:
        wide = shared.wide(np.flip(x, op.axis) if op.reverse else x)
        total = function.accumulate(wide, axis=op.axis, dtype=wide.dtype).astype(x.dtype)
        return np.flip(total, op.axis) if op.reverse else total

    return kernel


def linear_scan(at: Setting, op: ops.LinearScan, coefficients: Array, terms: Array) -> Array:
    c, b = (np.moveaxis(shared.wide(a), op.axis, 0) for a in (coefficients, terms))
    result = np.zeros_like(b)
    before = np.zeros(b.shape[1:], b.dtype)
    for k in reversed(range(len(b))) if op.reverse else range(len(b)):
        before = b[k] + np.where(c[k] == 0, 0, c[k] * before).astype(
            b.dtype
        )  # a zero coefficient gives zero, even after an infinity or NaN
        result[k] = before
    return np.moveaxis(result, 0, op.axis).astype(terms.dtype)


def discounted_sum(at: Setting, op: ops.DiscountedSum, x: Array) -> Array:
    wide = shared.wide(x)
    weights = shared.discount_weights(op.gamma, x.shape[op.axis]).astype(wide.dtype)
    return np.tensordot(weights, wide, axes=((0,), (op.axis,))).astype(x.dtype)


def dot(at: Setting, op: ops.Dot, left: Array, right: Array) -> Array:
    left_free, right_free = op.left_free(left.ndim), op.right_free(right.ndim)
    a = np.transpose(shared.wide(left), (*op.left_batch, *left_free, *op.left_contract))
    b = np.transpose(shared.wide(right), (*op.right_batch, *op.right_contract, *right_free))
    batch = tuple(left.shape[k] for k in op.left_batch)
    rows = tuple(left.shape[k] for k in left_free)
    columns = tuple(right.shape[k] for k in right_free)
    inner = math.prod(left.shape[k] for k in op.left_contract)
    product = np.matmul(a.reshape((*batch, math.prod(rows), inner)), b.reshape((*batch, inner, math.prod(columns))))
    return product.reshape((*batch, *rows, *columns)).astype(left.dtype)


def conv(at: Setting, op: ops.Conv, x: Array, w: Array) -> Array:
    """Contract windows of x with the kernel, one group of channels after the other."""
    if (zeros := shared.empty_conv(at, op, x, w)) is not None:
        return zeros
    n, groups = op.spatial, at.size(op.groups)
    batch, space, kernel = x.shape[: -n - 1], tuple(range(1, n + 1)), w.shape[:n]
    spread = shared.wide(x).reshape((math.prod(batch), *x.shape[-n - 1 :]))
    for k, axis in enumerate(space):
        spread = _spread(spread, axis, op.spread[k])
        low, high = int(at.value(op.low[k])), int(at.value(op.high[k]))
        spread = _window(spread, axis, -low, max(spread.shape[axis] + low + high, 0))
    extents = tuple((size - 1) * op.dilation[k] + 1 for k, size in enumerate(kernel))
    out = tuple(max((spread.shape[a] - extents[k]) // op.strides[k] + 1, 0) for k, a in enumerate(space))
    features = w.shape[-1] // groups
    result = np.zeros((len(spread), *out, groups, features), spread.dtype)
    if result.size:
        windows = np.lib.stride_tricks.sliding_window_view(spread, extents, space)  # batch, out, channels, reach
        steps = (*op.strides, 1, *op.dilation)
        windows = windows[(slice(None), *(slice(None, None, s) for s in steps))]
        windows = windows.reshape((len(spread), *out, groups, w.shape[n], *kernel))
        blocks = shared.wide(w).reshape((*kernel, w.shape[n], groups, features))
        over = ((n + 1, *range(n + 2, 2 * n + 2)), (n, *range(n)))
        for g in range(groups):
            result[..., g, :] = np.tensordot(np.take(windows, g, n + 1), blocks[..., g, :], over)
    return result.reshape((*batch, *out, w.shape[-1])).astype(x.dtype)


def _spread(x: Array, axis: int, distance: int) -> Array:
    """`x` with `distance - 1` zeros between two elements of `axis`."""
    if distance == 1:
        return x
    result = np.zeros((*x.shape[:axis], (x.shape[axis] - 1) * distance + 1, *x.shape[axis + 1 :]), x.dtype)
    result[(*(slice(None),) * axis, slice(None, None, distance))] = x
    return result


# -- views with positions ---------------------------------------------------------------------------------------------


def _window(x: Array, axis: int, start: int, size: int) -> Array:
    """Elements `start ... start + size` of an axis, with zeros for those outside of it."""
    first, last = max(start, 0), min(start + size, x.shape[axis])
    before = (slice(None),) * axis
    if first == start and last == start + size:
        return x[(*before, slice(first, last))]
    result = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    if first < last:
        result[(*before, slice(first - start, last - start))] = x[(*before, slice(first, last))]
    return result


def sliced(at: Setting, op: ops.Slice, x: Array) -> Array:
    start = int(at.value(op.start))
    size = max(-(-(int(at.value(op.stop)) - start) // op.stride), 0)
    window = _window(x, op.axis, start, (size - 1) * op.stride + 1 if size else 0)
    return window[(*(slice(None),) * op.axis, slice(None, None, op.stride))]


def pad(at: Setting, op: ops.Pad, x: Array) -> Array:
    low, high = int(at.value(op.low)), int(at.value(op.high))
    return _window(x, op.axis, -low, max(x.shape[op.axis] + low + high, 0))


# -- indexing by data -------------------------------------------------------------------------------------------------


def _batch_grids(shape: tuple[int, ...], rank: int) -> tuple[Array, ...]:
    """For each batch dimension, its positions in a shape that broadcasts against an index of `rank` dimensions."""
    return tuple(np.arange(n).reshape((n, *(1,) * (rank - k - 1))) for k, n in enumerate(shape))


def gather(at: Setting, op: ops.Gather, x: Array, index: Array) -> Array:
    if x.shape[op.axis] == 0:
        x = _window(x, op.axis, 0, 1)
    index = np.clip(index, 0, x.shape[op.axis] - 1)
    if not op.batch:
        return np.take(x, index, axis=op.axis)
    grids = _batch_grids(x.shape[: op.batch], index.ndim)
    elements = np.moveaxis(x, op.axis, op.batch)[(*grids, index)]  # batch, index, before the axis, after it
    wide = index.ndim - op.batch
    return np.moveaxis(elements, range(op.batch, op.batch + wide), range(op.axis, op.axis + wide))


def scatter(at: Setting, op: ops.Scatter, updates: Array, index: Array) -> Array:
    size, wide = at.size(op.size), index.ndim - op.batch
    shape = (*updates.shape[: op.axis], size, *updates.shape[op.axis + wide :])
    return _put(np.full(shape, shared.unwritten(op, updates.dtype)), op.axis, op.batch, updates, index, op.fn)


def update(at: Setting, op: ops.Update, x: Array, updates: Array, index: Array) -> Array:
    flat = x.reshape((*x.shape[: op.axis], -1, *x.shape[op.axis + op.axes :])) if x.size else x
    return _put(flat, op.axis, op.batch, updates, index, op.fn).reshape(x.shape) if x.size else x


def _put(x: Array, axis: int, batch: int, updates: Array, index: Array, fn: str) -> Array:
    """`x` with updates at positions along `axis`, in place of what is there or combined with it. One more element takes those outside."""
    put: Any = operator.setitem if fn == "set" else getattr(np, ops.BINARY[fn].numpy or fn).at
    size, wide = x.shape[axis], index.ndim - batch
    source = shared.wide(np.moveaxis(updates, range(axis, axis + wide), range(batch, batch + wide)))
    inside = (index >= 0) & (index < size)
    shape = list(np.moveaxis(x, axis, batch).shape)
    shape[batch] += 1
    result = np.zeros(shape, source.dtype)
    within = (*(slice(None),) * batch, slice(size))
    result[within] = np.moveaxis(x, axis, batch)
    put(result, (*_batch_grids(x.shape[:batch], index.ndim), np.where(inside, index, size)), source)
    return np.moveaxis(result[within], batch, axis).astype(x.dtype)


# -- user-defined functions -------------------------------------------------------------------------------------------


def udf(at: Setting, op: ops.Udf, *operands: Array) -> tuple[Array, ...]:
    with np.errstate(**_USER_ERRORS):
        if op.kind == "host":
            return host_udf(at, op, *operands)
        from tempo_core.backends.jax_backend import JaxBackend  # NumPy programs without such functions do not need JAX

        jax = JaxBackend()
        return traced_udf(at, op, lambda result: np.asarray(jax.xp.asarray(result)), list(map(jax.to_device, operands)))


_USER_ERRORS: Any = np.geterr()  # users' functions keep NumPy's settings for floating-point errors


class NumpyBackend(Backend):
    """Kernels on NumPy arrays. Division by zero and overflow are silent, as in XLA."""

    name = "numpy"
    xp = np
    kernels = {
        **shared.SHARED,
        ops.Unary: shared.elementwise(UNARY), ops.Cast: cast, ops.Argmax: argmax,
        ops.CumSum: cumulative(np.add), ops.CumMax: cumulative(np.maximum), ops.LinearScan: linear_scan,
        ops.DiscountedSum: discounted_sum, ops.Dot: dot, ops.Conv: conv, ops.Slice: sliced, ops.Pad: pad,
        ops.Gather: gather, ops.Scatter: scatter, ops.Update: update, ops.Udf: udf,
    }  # fmt: skip

    def kernel(self, op: ops.Op, args: Sequence[Array], env: StepValues, seed: Seed = 0) -> tuple[Array, ...]:
        """See `Backend.kernel`."""
        with np.errstate(all="ignore"):
            results = super().kernel(op, args, env, seed)
        return tuple(np.asarray(r) for r in results)  # NumPy gives scalars where arrays have no dimensions

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def to_device(self, array: Array) -> Array:
        return np.asarray(array)
