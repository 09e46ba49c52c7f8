"""Kernels that are the same code for NumPy and `jax.numpy`. Their results have the dtypes that the ops declare.

16-bit numbers are accumulated in 32 bits: sums, products, scans and contractions round once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo_core.backends import prng
from tempo_core.backends.base import Array, Kernel, Setting, numpy_dtype
from tempo_core.errors import MissingRow
from tempo_core.ir import ops
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr

_NARROW = (numpy_dtype("bfloat16"), numpy_dtype("float16"))


def wide(x: Array) -> Array:
    """`x` in the dtype in which it is accumulated: float32 for 16-bit floats, its own dtype for others."""
    return x.astype(np.float32) if x.dtype in _NARROW else x


def empty_conv(at: Setting, op: ops.Conv, x: Array, w: Array) -> Array | None:
    """Zeros, where a spatial dimension of `x` or of the kernel has no elements; None where all have some.

    The gradients of a convolution without results are such convolutions. To XLA these are errors, and `n` elements at a distance
    reach over `(n - 1) * distance + 1`, which is less than none for none.
    """
    n, batch = op.spatial, x.shape[: -op.spatial - 1]
    space, kernel = x.shape[len(batch) : -1], w.shape[:n]
    if 0 not in (*space, *kernel):
        return None
    out = at.shape([op.out_size(k, Expr.of(space[k]), Expr.of(kernel[k])) for k in range(n)])
    return at.xp.zeros((*batch, *out, w.shape[-1]), x.dtype)


# -- sources ----------------------------------------------------------------------------------------------------------


def constant(at: Setting, op: ops.Constant) -> Array:
    return at.xp.asarray(np.frombuffer(op.data, numpy_dtype(op.dtype)).reshape(op.sizes))


def iota(at: Setting, op: ops.Iota) -> Array:
    return at.xp.arange(max(at.size(op.size), 0), dtype=np.int32)


def evaluated(at: Setting, op: ops.Eval) -> Array:
    dtype = np.bool_ if isinstance(op.value, Bool) else np.int32
    value = at.value(op.value)
    return value.astype(dtype) if hasattr(value, "astype") else at.xp.asarray(np.asarray(value, dtype))


def random(at: Setting, op: ops.Random, *coordinates: Array) -> Array:
    return prng.random(at.xp, op.kind, at.seed, op.stream, coordinates, at.shape(op.shape), op.seeded)


# -- elementwise ------------------------------------------------------------------------------------------------------


def _sigmoid(xp: Any, x: Array) -> Array:
    small = xp.exp(-xp.abs(x))  # at most 1: no overflow on either side
    one = x.dtype.type(1)
    return xp.where(x >= 0, one / (one + small), small / (one + small))


def _power(xp: Any, x: Array, y: Array) -> Array:
    """Powers. Negative powers of integers round towards zero: those of 1 and -1 are 1 or -1, others are 0."""
    if np.issubdtype(y.dtype, np.signedinteger):
        result, zero = xp.power(x, xp.maximum(y, y.dtype.type(0))), x.dtype.type(0)
        unit = xp.where(y % 2 == 0, xp.abs(x), x)
        return xp.where(y < 0, xp.where(xp.abs(x) == 1, unit, zero), result)
    return xp.power(x, y)


def _log_of_exponentials(xp: Any, x: Array, y: Array) -> Array:
    """The larger operand, and the logarithm of what is left without it. Equal operands, also infinite ones, differ by 0."""
    equal, zero = x == y, x.dtype.type(0)
    gap = xp.where(equal, zero, x) - xp.where(equal, zero, y)
    return xp.maximum(x, y) + xp.log1p(xp.exp(-xp.abs(gap)))


def _quotient(name: str) -> Callable[[Any, Array, Array], Array]:
    """Division that rounds down, or its remainder. An integer divided by 0 gives 0, as hardware does not define that quotient."""

    def function(xp: Any, x: Array, y: Array) -> Array:
        if not np.issubdtype(y.dtype, np.integer):
            return getattr(xp, name)(x, y)
        zero = y == 0
        return xp.where(zero, y, getattr(xp, name)(x, xp.where(zero, y.dtype.type(1), y)))

    return function


def _of_numpy(functions: Mapping[str, ops.Function]) -> dict[str, Callable[..., Array]]:
    """The functions that NumPy and `jax.numpy` have. A backend has further ones of its own."""

    def by_name(name: str) -> Callable[..., Array]:
        return lambda xp, *operands: getattr(xp, name)(*operands)

    names = {fn: row.numpy or fn for fn, row in functions.items()}
    return {fn: by_name(name) for fn, name in names.items() if hasattr(np, name)}


UNARY: Mapping[str, Callable[..., Array]] = {
    **_of_numpy(ops.UNARY),
    "rsqrt": lambda xp, x: xp.reciprocal(xp.sqrt(x)),
    "sigmoid": _sigmoid,
}

BINARY: Mapping[str, Callable[..., Array]] = {
    **_of_numpy(ops.BINARY),
    "pow": _power,
    "logaddexp": _log_of_exponentials,
    "floordiv": _quotient("floor_divide"),
    "mod": _quotient("mod"),
}

COMPARE: Mapping[str, Callable[..., Array]] = _of_numpy(ops.COMPARE)


def elementwise(table: Mapping[str, Callable[..., Array]]) -> Kernel:
    """The kernel of an op whose field `fn` names a row of `table`."""

    def kernel(at: Setting, op: Any, *operands: Array) -> Array:
        return row(table, at, op)(at.xp, *operands)

    return kernel


def row(table: Mapping[str, Callable[..., Array]], at: Setting, op: Any) -> Callable[..., Array]:
    """The row of an op's function."""
    if op.fn not in table:
        raise MissingRow(f"the {at.backend.name} backend has no kernel for {type(op).__name__} {op.fn}")
    return table[op.fn]


def where(at: Setting, op: ops.Where, condition: Array, x: Array, y: Array) -> Array:
    return at.xp.where(condition, x, y)


def identity(at: Setting, op: ops.Identity, x: Array) -> Array:
    return x


# -- reductions -------------------------------------------------------------------------------------------------------


def least(dtype: Any) -> Any:
    """The maximum of no elements, which changes no maximum."""
    least = False if dtype == np.bool_ else np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -math.inf
    return np.dtype(dtype).type(least)  # with its dtype: for JAX, a Python int is an int32


def _greatest(dtype: Any) -> Any:
    greatest = True if dtype == np.bool_ else np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else math.inf
    return np.dtype(dtype).type(greatest)


def unwritten(op: ops.Scatter, dtype: Any) -> Any:
    """The number of a position that no update has."""
    number = op.unwritten
    return np.dtype(dtype).type(number) if isinstance(number, float) else least(dtype) if number == "lowest" else _greatest(dtype)


REDUCE: Mapping[str, Callable[[Any, Array, tuple[int, ...]], Array]] = {
    "sum": lambda xp, x, axes: xp.sum(x, axis=axes, dtype=x.dtype),
    "prod": lambda xp, x, axes: xp.prod(x, axis=axes, dtype=x.dtype),
    "max": lambda xp, x, axes: xp.max(x, axis=axes, initial=least(x.dtype)),
    "min": lambda xp, x, axes: xp.min(x, axis=axes, initial=_greatest(x.dtype)),
    "any": lambda xp, x, axes: xp.any(x, axis=axes),
    "all": lambda xp, x, axes: xp.all(x, axis=axes),
}


def reduce(at: Setting, op: ops.Reduce, x: Array) -> Array:
    return row(REDUCE, at, op)(at.xp, wide(x), op.axes).astype(x.dtype)


def argsort(at: Setting, op: ops.Argsort, x: Array) -> Array:
    positions = at.xp.argsort(x, axis=op.axis, stable=True).astype(np.int32)
    return positions if op.count is None else positions[(slice(None),) * op.axis + (slice(0, op.count),)]


def discount_weights(gamma: float, size: int) -> np.ndarray[Any, Any]:
    """`gamma**k` as float64 `[size]`. Each power is computed by itself: no error accumulates, and late powers fade to 0."""
    return np.power(float(gamma), np.arange(size, dtype=np.float64))


# -- views ------------------------------------------------------------------------------------------------------------


def reshape(at: Setting, op: ops.Reshape, x: Array) -> Array:
    return at.xp.reshape(x, at.shape(op.shape))


def permute(at: Setting, op: ops.Permute, x: Array) -> Array:
    return at.xp.transpose(x, op.order)


def broadcast(at: Setting, op: ops.Broadcast, x: Array) -> Array:
    shape = at.shape(op.shape)
    aligned = at.xp.reshape(x, [shape[k] if k in op.axes else 1 for k in range(len(shape))])
    return at.xp.broadcast_to(aligned, shape)


def concat(at: Setting, op: ops.Concat, *parts: Array) -> Array:
    return at.xp.concatenate(parts, axis=op.axis)


def flip(at: Setting, op: ops.Flip, x: Array) -> Array:
    return at.xp.flip(x, op.axis)


# -- structure --------------------------------------------------------------------------------------------------------


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    slots: list[Array] = [None] * len(op.body.slot_types)
    slots[: len(operands)] = operands
    for instruction, sources, targets in op.body.instructions:
        results = at.backend.kernel(instruction, [slots[s] for s in sources], at.env, at.seed)
        for target, result in zip(targets, results, strict=True):
            slots[target] = result
    return tuple(slots[s] for s in op.body.results)


SHARED: Mapping[type[ops.Op], Kernel] = {
    ops.Constant: constant, ops.Iota: iota, ops.Eval: evaluated, ops.Random: random,
    ops.Binary: elementwise(BINARY), ops.Compare: elementwise(COMPARE), ops.Where: where, ops.Identity: identity,
    ops.Reduce: reduce, ops.Argsort: argsort,
    ops.Reshape: reshape, ops.Permute: permute, ops.Broadcast: broadcast, ops.Concat: concat, ops.Flip: flip,
    ops.Dataflow: dataflow,
}  # fmt: skip
