"""Kernels in JAX. Each can be traced, alone or inside of a whole staged program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core import prices
from tempo_core.backends import aligned, shared
from tempo_core.backends.base import Array, Backend, Call, Parts, Setting, host_udf, is_static, numpy_dtype, traced_udf
from tempo_core.backends.island import dataflow
from tempo_core.backends.products import DOT_PRECISION, dot
from tempo_core.backends.xla_cpu import PASSES
from tempo_core.backends.xla_cpu.cumulative import in_blocks, start_of_scan
from tempo_core.backends.xla_cpu.loops import carried_part
from tempo_core.errors import DTypeError
from tempo_core.ir import ops
from tempo_core.symbolic.condition import Bool


def _of_lax(fn: str) -> Callable[..., Array]:
    return lambda xp, x: getattr(lax, fn)(x)


UNARY = {
    **{fn: _of_lax(fn) for fn in ops.UNARY if hasattr(lax, fn)},
    **shared.UNARY,
    "rsqrt": _of_lax("rsqrt"),
    "sigmoid": _of_lax("logistic"),
}


def cast(at: Setting, op: ops.Cast, x: Array) -> Array:
    dtype = supported(op.dtype)
    if dtype.kind == "u" and jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.maximum(x, 0)  # XLA on the CPU makes -1.0 the greatest uint32
    return x.astype(dtype)


def supported(dtype: str) -> np.dtype[Any]:
    """The dtype of a name. Raises DTypeError for 64 bits if JAX's 64-bit mode is off: JAX would silently take 32 bits."""
    requested = numpy_dtype(dtype)
    if requested.itemsize == 8 and not jax.config.jax_enable_x64:
        raise DTypeError(
            f"{dtype} needs JAX's 64-bit mode, which is off",
            hint=f'use {dtype[:-2]}32, or write before anything runs: jax.config.update("jax_enable_x64", True)',
        )
    return requested


def constant(at: Setting, op: ops.Constant) -> Array:
    supported(op.dtype)
    return shared.constant(at, op)


# -- reductions and scans ---------------------------------------------------------------------------------------------


def reduce(at: Setting, op: ops.Reduce, x: Array) -> Array:
    """A sum of wide rows is a product with ones: XLA's reduction on a CPU writes them all to memory first, in an order of its own.

    Many sums of few numbers each are written out: the reduction makes no vector instructions of them.
    """
    if op.fn != "sum" or x.dtype != np.float32 or jax.default_backend() != "cpu":
        return shared.reduce(at, op, x)
    count, width = math.prod(x.shape[axis] for axis in op.axes), math.prod(x.shape[max(op.axes, default=x.ndim) + 1 :])
    if width >= prices.LEAST_WIDTH_TO_MULTIPLY:
        ones = jnp.ones([x.shape[axis] for axis in op.axes], x.dtype)
        return lax.dot_general(ones, x, ((tuple(range(ones.ndim)), op.axes), ((), ())), precision=DOT_PRECISION)
    if not 0 < count <= prices.MOST_WRITTEN_OUT or x.size < count * prices.LEAST_SUMS_TO_WRITE_OUT:
        return shared.reduce(at, op, x)
    for axis in sorted(op.axes, reverse=True):
        x = functools.reduce(lax.add, (lax.index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis])))
    return x


def argmax(at: Setting, op: ops.Argmax, x: Array) -> Array:
    """The place of the maximum is the first that equals it, or is NaN: a maximum is NaN if an element is."""
    length = x.shape[op.axis]
    if not length:
        return jnp.zeros((*x.shape[: op.axis], *x.shape[op.axis + 1 :]), jnp.int32)
    is_float, is_on_cpu = jnp.issubdtype(x.dtype, jnp.floating), jax.default_backend() == "cpu"
    if length < prices.SHORT_AXIS if is_on_cpu else not is_float:  # a GPU takes any NaN of several
        return lax.argmax(x, op.axis, jnp.int32)
    is_greatest = x == jnp.max(x, op.axis, keepdims=True)
    if is_float:
        is_greatest |= jnp.isnan(x)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, op.axis)
    return jnp.min(jnp.where(is_greatest, positions, jnp.int32(length)), op.axis)


def argsort(at: Setting, op: ops.Argsort, x: Array) -> Array:
    """The first positions of float32, or of what float32 holds exactly, come from XLA's `top_k`; the rest is sorted.

    `top_k` orders floats by their bits: a zero with a sign comes before one without, and a NaN is the greatest or the least by its sign.
    On a GPU, though, the first one of `top_k` is a NaN of either sign.
    """
    is_exact = jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits <= 32
    if op.count is None or not is_exact or (op.count == 1 and jax.default_backend() != "cpu"):
        return shared.argsort(at, op, x)
    x = jnp.moveaxis(x.astype(jnp.float32), op.axis, -1)
    order = jnp.where(jnp.isnan(x), -jnp.float32(jnp.nan), jnp.where(x == 0, jnp.float32(0), -x))
    return jnp.moveaxis(lax.top_k(order, op.count)[1].astype(jnp.int32), -1, op.axis)


def cumulative(at: Setting, op: ops.CumSum | ops.CumMax, x: Array) -> Array:
    adds, neutral = isinstance(op, ops.CumSum), start_of_scan(op, x.dtype)
    numbers = x.astype(neutral.dtype)
    if x.shape[op.axis] >= prices.MOST_WRITTEN_OUT**2 and jax.default_backend() == "cpu":
        return in_blocks(jnp.add if adds else jnp.maximum, numbers, op.axis, op.reverse, neutral).astype(x.dtype)
    return (lax.cumsum if adds else lax.cummax)(numbers, op.axis, reverse=op.reverse).astype(x.dtype)


def linear_scan(at: Setting, op: ops.LinearScan, coefficients: Array, terms: Array) -> Array:
    """A recurrence: one element after the other on the CPU; elsewhere a tree of log2(n) parallel rounds, each a launch.

    Measured on two CPU cores, in microseconds: (128, 8) 6 in order, 31 as a tree; (1000, 512) 170 and 1,040. Unrolling the
    loop only made it slower.
    """
    c, b = (jnp.moveaxis(shared.wide(a), op.axis, 0) for a in (coefficients, terms))
    scan = scan_in_order if jax.default_backend() == "cpu" else scan_as_a_tree
    return jnp.moveaxis(scan(c, b, op.reverse), 0, op.axis).astype(terms.dtype)


def scan_in_order(c: Array, b: Array, reverse: bool) -> Array:
    """`y[k] = b[k] + c[k] * y[k - 1]` along the first axis, one element after the other."""

    def step(before: Array, element: tuple[Array, Array]) -> tuple[Array, Array]:
        after = element[1] + carried_part(element[0], before)
        return after, after

    return lax.scan(step, jnp.zeros(b.shape[1:], b.dtype), (c, b), reverse=reverse)[1]


@functools.partial(jax.jit, static_argnums=2)  # outside of a program, each operation would be a launch
def scan_as_a_tree(c: Array, b: Array, reverse: bool) -> Array:
    """The same in parallel: affine maps `y -> b + c * y` are composed, pairs of pairs.

    This multiplies coefficients with each other before they meet a value; the recurrence itself never does. These products could
    overflow (infinite times a value of 0 would be NaN) or vanish. To avoid both, they are kept as fraction and exponent.
    """
    if not jnp.issubdtype(b.dtype, jnp.floating):
        return lax.associative_scan(_composed_integers, (c, b), reverse=reverse)[1]
    fraction, exponent = jnp.frexp(c)
    return lax.associative_scan(_composed, (fraction, exponent, b), reverse=reverse)[2]


def _composed(first: tuple[Array, Array, Array], second: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """The map that is `first`, then `second`, each `y -> b + fraction * 2**exponent * y`."""
    product = carried_part(second[0], first[0])
    fraction, shift = jnp.frexp(jnp.where(first[0] == 0, jnp.zeros_like(product), product))
    exponent = jnp.clip(first[1] + second[1] + shift, -(2**28), 2**28)
    carried = jnp.where(second[0] == 0, jnp.zeros_like(first[2]), jnp.ldexp(second[0] * first[2], second[1]))
    return fraction, exponent, second[2] + carried


def _composed_integers(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    return second[0] * first[0], second[1] + second[0] * first[1]


def discounted_sum(at: Setting, op: ops.DiscountedSum, x: Array) -> Array:
    wide = shared.wide(x)
    weights = jnp.asarray(shared.discount_weights(op.gamma, x.shape[op.axis]).astype(wide.dtype))
    dimensions = (((0,), (op.axis,)), ((), ()))  # memory-bound: full precision costs nothing
    return lax.dot_general(weights, wide, dimensions, precision=lax.Precision.HIGHEST).astype(x.dtype)


def conv(at: Setting, op: ops.Conv, x: Array, w: Array) -> Array:
    if (zeros := shared.empty_conv(at, op, x, w)) is not None:
        return zeros
    n = op.spatial
    batch, space = x.shape[: -n - 1], tuple(range(1, n + 1))
    layout = lax.ConvDimensionNumbers((0, n + 1, *space), (n + 1, n, *range(n)), (0, n + 1, *space))
    narrow = x.dtype in (jnp.bfloat16, jnp.float16)
    padding, spread = list(zip(map(at.size, op.low), map(at.size, op.high), strict=True)), op.spread
    source = jnp.reshape(x, (math.prod(batch), *x.shape[-n - 1 :]))
    is_unknown = jax.default_backend() != "cpu" and not jnp.issubdtype(x.dtype, jnp.floating)  # cuDNN convolves no integers
    if is_unknown or any(amount < 0 for pair in padding for amount in pair):
        # Cut first: XLA's convolution on the CPU (jaxlib 0.10) gives wrong numbers for padding such as (-1, 1) in two dimensions.
        widths = [(*pair, distance - 1) for pair, distance in zip(padding, spread, strict=True)]
        source = lax.pad(source, jnp.zeros((), x.dtype), [(0, 0, 0), *widths, (0, 0, 0)])
        padding, spread = [(0, 0)] * n, (1,) * n
    if is_unknown:
        result = _conv_as_products(op, source, w, at.size(op.groups))
    else:
        result = lax.conv_general_dilated(
            source, w, op.strides, padding, spread, op.dilation, layout, at.size(op.groups), precision=DOT_PRECISION,
            preferred_element_type=jnp.float32 if narrow else x.dtype,
        )  # fmt: skip
    return jnp.reshape(result, (*batch, *result.shape[1:])).astype(x.dtype)


def _conv_as_products(op: ops.Conv, x: Array, w: Array, groups: int) -> Array:
    """A convolution without padding as a sum of products, one for each element of the kernel: `[batch, *out, features]`."""
    kernel, (channels, features) = w.shape[: op.spatial], w.shape[op.spatial :]
    reach = [(size - 1) * distance + 1 for size, distance in zip(kernel, op.dilation, strict=True)]
    out = [(size - far) // by + 1 for size, far, by in zip(x.shape[1:-1], reach, op.strides, strict=True)]
    total = jnp.zeros((len(x), *out, groups, features // groups), x.dtype)
    for place in np.ndindex(*kernel):
        first = [k * distance for k, distance in zip(place, op.dilation, strict=True)]
        last = [at + (size - 1) * by + 1 for at, size, by in zip(first, out, op.strides, strict=True)]
        part = lax.slice(x, (0, *first, 0), (len(x), *last, x.shape[-1]), (1, *op.strides, 1))
        blocks = jnp.reshape(w[place], (channels, groups, features // groups))
        total += jnp.einsum("...gc,cgf->...gf", jnp.reshape(part, (*part.shape[:-1], groups, channels)), blocks)
    return jnp.reshape(total, (*total.shape[:-2], features))


# -- views with positions ---------------------------------------------------------------------------------------------


def _window(x: Array, axis: int, start: Any, size: int) -> Array:
    """Elements `start ... start + size` of an axis, with zeros for those outside of it. `start` may be traced."""
    length = x.shape[axis]
    if is_static(start):
        first = min(max(start, 0), length)
        inside = lax.slice_in_dim(x, first, min(max(start + size, first), length), axis=axis)
        before = min(max(-start, 0), size)
        return _padded(inside, axis, before, size - before - inside.shape[axis])
    if size <= length:  # a window that sticks out is moved inside; then its elements move back
        first = jnp.clip(start, 0, length - size)
        x, start, length = lax.dynamic_slice_in_dim(x, first, size, axis), start - first, size
    place = jnp.clip(start + size, 0, length + size)
    return lax.dynamic_slice_in_dim(_padded(x, axis, size, size), place, size, axis)


def _padded(x: Array, axis: int, low: int, high: int) -> Array:
    if not low and not high:
        return x
    widths = [(low, high, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    return lax.pad(x, jnp.zeros((), x.dtype), widths)


def sliced(at: Setting, op: ops.Slice, x: Array) -> Array:
    size = max(at.size((op.stop - op.start + (op.stride - 1)) // op.stride), 0)
    window = _window(x, op.axis, at.value(op.start), (size - 1) * op.stride + 1 if size else 0)
    return window if op.stride == 1 else lax.slice_in_dim(window, 0, window.shape[op.axis], op.stride, op.axis)


def pad(at: Setting, op: ops.Pad, x: Array) -> Array:
    size = max(x.shape[op.axis] + at.size(op.low + op.high), 0)
    return _window(x, op.axis, at.value(-op.low), size)


# -- indexing by data -------------------------------------------------------------------------------------------------


def evaluated(at: Setting, op: ops.Eval) -> Array:
    """A value of steps. A number stays one (a NumPy array), also while a program is traced."""
    value = at.value(op.value)
    return (
        np.asarray(value, np.bool_ if isinstance(op.value, Bool) else np.int32) if is_static(value) else shared.evaluated(at, op)
    )


def gather(at: Setting, op: ops.Gather, x: Array | Parts, index: Array) -> Array:
    if isinstance(x, Parts):
        return x.element(op.axis, index)
    axis = op.axis - op.batch
    if x.shape[op.axis] == 0:
        x = _padded(x, op.axis, 0, 1)

    def take(x: Array, index: Array) -> Array:
        if index.ndim == 0:
            return lax.dynamic_index_in_dim(x, jnp.clip(index, 0, x.shape[axis] - 1), axis, keepdims=False)
        return jnp.take(x, index, axis=axis, mode="clip")

    return _batched(take, op.batch)(x, index)


def scatter(at: Setting, op: ops.Scatter, updates: Array, index: Array) -> Array:
    axis, size, unwritten = op.axis - op.batch, at.size(op.size), shared.unwritten(op, shared.wide(updates).dtype)

    def combined(updates: Array, index: Array) -> Array:
        if index.ndim == 0:  # XLA fuses a comparison with the positions; it does not fuse a scatter
            shape = (*updates.shape[:axis], size, *updates.shape[axis:])
            here = lax.broadcasted_iota(jnp.int32, shape, axis) == jnp.broadcast_to(index, shape)
            spread = lax.broadcast_in_dim(updates, shape, [k for k in range(len(shape)) if k != axis])
            return jnp.where(here, spread, jnp.full(shape, unwritten))
        shape = (*updates.shape[:axis], size, *updates.shape[axis + index.ndim :])
        places = jnp.where(index < 0, jnp.full_like(index, size), index)  # JAX would count negative places from the end
        return _put(op.fn, jnp.full(shape, unwritten).at[(*(slice(None),) * axis, places)], updates)

    return _batched(combined, op.batch)(shared.wide(updates), index).astype(updates.dtype)


def update(at: Setting, op: ops.Update, x: Array, updates: Array, index: Array) -> Array:
    axis, sets = op.axis - op.batch, op.fn == "set"

    def put(x: Array, updates: Array, index: Array) -> Array:
        sizes, after = x.shape[axis : axis + op.axes], x.shape[axis + op.axes :]
        if index.ndim == 0:
            place = jnp.clip(index, 0, math.prod(sizes) - 1)
            starts = (*(np.int32(0),) * axis, *_coordinates(place, sizes), *(np.int32(0),) * len(after))
            present = lax.dynamic_slice(x, starts, (*x.shape[:axis], *(1,) * op.axes, *after))
            new = jnp.reshape(updates, present.shape)
            new = new if sets else shared.BINARY[op.fn](jnp, shared.wide(present), shared.wide(new)).astype(x.dtype)
            return lax.dynamic_update_slice(x, jnp.where(place == index, new, present), starts)
        places = jnp.where(index < 0, jnp.full_like(index, math.prod(sizes)), index)
        spots = (x if sets else shared.wide(x)).at[(*(slice(None),) * axis, *_coordinates(places, sizes))]
        return _put(op.fn, spots, updates if sets else shared.wide(updates)).astype(x.dtype)

    return x if 0 in x.shape[op.axis : op.axis + op.axes] else _batched(put, op.batch)(x, updates, index)


def _coordinates(places: Array, sizes: tuple[int, ...]) -> list[Array]:
    """Positions that count several axes as one, row after row, as positions along each: those past the end are past that of the first."""
    if len(sizes) == 1:
        return [places]
    row = jnp.full_like(places, sizes[-1])
    return [*_coordinates(lax.div(places, row), sizes[:-1]), lax.rem(places, row)]


def _put(fn: str, spots: Any, updates: Array) -> Array:
    """An array with updates at `spots`, of which those outside are dropped: JAX's methods are `set`, `add`, `mul`, `max` and `min`."""
    return getattr(spots, fn[:3])(updates, mode="drop")


def _batched(function: Callable[..., Array], dimensions: int) -> Callable[..., Array]:
    for _ in range(dimensions):
        function = jax.vmap(function)
    return function


# -- user-defined functions -------------------------------------------------------------------------------------------


def udf(at: Setting, op: ops.Udf, *operands: Array) -> tuple[Array, ...]:
    if op.kind == "host":
        return host_udf(at, op, *operands)
    return traced_udf(at, op, jnp.asarray, operands)


def called(at: Setting, op: Call, *operands: Array) -> Any:
    return op.fn(at, *op.parameters, *operands)


class JaxBackend(Backend):
    """Kernels on JAX arrays, on JAX's default device."""

    name = "jax"
    xp = jnp
    kernels = {
        **shared.SHARED,
        ops.Constant: constant, ops.Eval: evaluated, ops.Unary: shared.elementwise(UNARY), ops.Cast: cast,
        ops.Reduce: reduce, ops.Argmax: argmax, ops.Argsort: argsort, ops.CumSum: cumulative,
        ops.CumMax: cumulative, ops.LinearScan: linear_scan, ops.DiscountedSum: discounted_sum, ops.Dot: dot, ops.Conv: conv, ops.Slice: sliced, ops.Pad: pad,
        ops.Gather: gather, ops.Scatter: scatter, ops.Update: update, ops.Udf: udf, ops.Dataflow: dataflow, Call: called,
    }  # fmt: skip

    @property
    def passes(self) -> Sequence[Callable[..., None]]:  # type: ignore[override]
        return PASSES if jax.default_backend() == "cpu" else ()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)

    def to_device(self, array: Array) -> Array:
        if isinstance(array, jax.Array):
            return array
        array = np.asarray(array)
        supported(array.dtype.name)
        return jax.device_put(aligned.copied(array, array.dtype) if aligned.is_copied_from_a_file(array) else array)
