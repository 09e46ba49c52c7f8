"""Products of arrays in JAX: contractions in the form in which XLA's compilers need no copies of the operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Call, Setting
from tempo_core.ir import ops
from tempo_core.ir.types import TensorType

# The precision of products in float32 contractions. None is XLA's default: full float32 on the CPU; on newer GPUs TensorFloat-32
# (10 bits of mantissa, several times as fast), which is good for training. `lax.Precision.HIGHEST` forces full float32 there.
DOT_PRECISION: lax.Precision | None = None


@dataclass(frozen=True)
class Shares:
    """The dimension of each operand of a product that lies in parts on so many `devices`; None if an operand has none."""

    devices: int
    left: int | None = None
    right: int | None = None


# In a `with` of `shared_by`: the shares of a product of values of two types, or None if neither has any.
_SHARES: ContextVar[Callable[[TensorType, TensorType], Shares | None]] = ContextVar("shares", default=lambda left, right: None)


@contextmanager
def shared_by(shares: Callable[[TensorType, TensorType], Shares | None]) -> Iterator[None]:
    """Products that are traced inside are those of operands with these shares, by their types."""
    token = _SHARES.set(shares)
    try:
        yield
    finally:
        _SHARES.reset(token)


def with_shares(op: ops.Op, types: Sequence[TensorType]) -> ops.Op:
    """The op, for operands of these types with their shares."""
    shares = _SHARES.get()(*types) if isinstance(op, ops.Dot) else None
    return op if shares is None else Call(partial(dot, shares=shares), (op,))


def dot(at: Setting, op: ops.Dot, left: Array, right: Array, shares: Shares | None = None) -> Array:
    """A product of arrays with batch dimensions, then one contracted and one free at most: several are made one by reshapes.

    XLA's CPU compiler transposes both operands of a product that contracts two dimensions; once they are one, there is nothing
    to transpose. Their order is that of the larger operand, so that only the smaller one may have to move. Batch dimensions stay
    apart: that is as good, and a store that was written just before is copied for a reshape.

    A dimension that lies in parts on several devices becomes two, the devices and the points of each, and the devices stay apart: XLA would
    gather the whole operand on each device to make one dimension of it and others.

    Without a contracted dimension it is a plain multiplication, which XLA makes a part of the operation that reads it.
    """
    if not op.left_contract:
        return outer_product(op, left, right)
    larger_left = left.size >= right.size
    batch = _in_order(op.left_batch if larger_left else op.right_batch)
    contract = _in_order(op.left_contract if larger_left else op.right_contract)
    left_axis, right_axis = (None, None) if shares is None else _axes(op, shares)
    devices = 1 if shares is None else shares.devices
    left_free, right_free = op.left_free(left.ndim), op.right_free(right.ndim)
    left_batch, right_batch = [op.left_batch[k] for k in batch], [op.right_batch[k] for k in batch]
    wide_left = _Wide(left, left_batch, [op.left_contract[k] for k in contract], left_free, left_axis, devices)
    wide_right = _Wide(right, right_batch, [op.right_contract[k] for k in contract], right_free, right_axis, devices)
    batch_axes = tuple(range(len(batch)))
    accumulate = jnp.float32 if left.dtype in (jnp.bfloat16, jnp.float16) else left.dtype
    product = lax.dot_general(
        wide_left.array,
        wide_right.array,
        ((wide_left.contracted, wide_right.contracted), (batch_axes, batch_axes)),
        precision=DOT_PRECISION,
        preferred_element_type=accumulate,
    )
    batch_sizes = [left.shape[k] for k in left_batch]
    sizes, order = list(batch_sizes), list(range(len(batch)))
    for wide in (wide_left, wide_right):
        order += [len(sizes) + k for k in wide.order_of_free]
        sizes += wide.sizes_of_free
    result = jnp.transpose(jnp.reshape(product, sizes), order)
    free_sizes = [*(left.shape[k] for k in left_free), *(right.shape[k] for k in right_free)]
    result = jnp.reshape(result, [*batch_sizes, *free_sizes])
    places = [*_in_order(batch), *range(len(batch), result.ndim)]
    return jnp.transpose(result, places).astype(left.dtype)


def outer_product(op: ops.Dot, left: Array, right: Array) -> Array:
    """The products of all pairs of elements at the same places of the batch dimensions."""
    left_free, right_free = op.left_free(left.ndim), op.right_free(right.ndim)
    left, right = jnp.transpose(left, (*op.left_batch, *left_free)), jnp.transpose(right, (*op.right_batch, *right_free))
    batch = len(op.left_batch)
    left = jnp.reshape(left, (*left.shape, *(1 for _ in right_free)))
    right = jnp.reshape(right, (*right.shape[:batch], *(1 for _ in left_free), *right.shape[batch:]))
    return left * right


def _in_order(axes: Sequence[int]) -> list[int]:
    """The positions of `axes`, that of the least first."""
    return sorted(range(len(axes)), key=axes.__getitem__)


def _axes(op: ops.Dot, shares: Shares) -> tuple[int | None, int | None]:
    """The dimension of each operand that becomes two. Dimensions that are contracted with each other become two both or none."""
    for own, contract in ((shares.left, op.left_contract), (shares.right, op.right_contract)):
        if own in contract:
            place = contract.index(own)
            return op.left_contract[place], op.right_contract[place]
    return (None if shares.left in op.left_batch else shares.left, None if shares.right in op.right_batch else shares.right)


class _Wide:
    """An operand with its batch dimensions first, then those contracted and the free ones, each made one.

    The innermost dimension stays innermost, so that an operand that has to move does so in long pieces. Without contracted or free
    dimensions, there is no dimension for them. Dimension `axis` becomes two, and the first of them, of `devices` elements, stays apart.
    """

    def __init__(
        self, x: Array, batch: Sequence[int], contract: Sequence[int], free: Sequence[int], axis: int | None, devices: int
    ):
        groups = [list(free), list(contract)] if x.ndim - 1 in contract else [list(contract), list(free)]
        shape = list(x.shape)
        if axis is not None:
            shape[axis : axis + 1] = [devices, shape[axis] // devices]
        now = {k: k if axis is None or k < axis else k + 1 for k in range(x.ndim)}  # the dimensions with `axis` as two
        parts: list[list[int]] = [[now[k]] for k in batch]
        contracted: list[int] = []
        for group in groups:
            apart = [[axis]] if axis is not None and axis in group else []
            pieces = [*apart, [now[k] for k in group]] if group else []
            if group == list(contract):
                contracted = list(range(len(parts), len(parts) + len(pieces)))
            parts += pieces
        order = [k for part in parts for k in part]
        moved = jnp.transpose(jnp.reshape(x, shape), order)
        self.array = jnp.reshape(moved, [math.prod(shape[k] for k in part) for part in parts])
        self.contracted = tuple(contracted)
        lying = [*([axis] if axis is not None and axis in free else []), *(now[k] for k in free)]
        self.sizes_of_free = [shape[k] for k in lying]
        self.order_of_free = _in_order(lying)
