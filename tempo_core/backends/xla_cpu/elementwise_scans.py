"""Linear recurrences of values that are computed as the scan meets them, in place of arrays of them.

The coefficients `exp(rate[t] * decay)` of a scan may be many times as large as `rate` and `decay`. XLA would write them to memory
before the loop of the scan, and read them in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
from jax import Array, lax

from tempo_core.backends import shared
from tempo_core.backends.base import Setting
from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE, sources, without
from tempo_core.prices import LEAST_PIECES_TO_TRANSPOSE, NUMBERS_IN_A_CACHE_LINE, is_fast, pays_to_compute_in_scan
from tempo_core.symbolic.expr import Expr

_COMPUTED = (*ELEMENTWISE, ops.Broadcast, ops.Permute, ops.Slice, ops.Dot)

Element = Callable[[Array], Array]  # the value at a position along a dimension
Producers = dict[int, tuple[ops.Op, tuple[int, ...]]]  # by slot: what computed its value, of which slots


@dataclass
class Elements:
    """The values of an island at single positions along one of their dimensions.

    `producers` has the op and the operands of each value. `arrays` counts the elements of the arrays that are read, and `operations` the
    operations on what is read; `is_fast` says whether vector instructions compute all of them.
    """

    at: Setting
    slots: list[Array]
    producers: Producers
    arrays: dict[int, int] = field(default_factory=dict)
    operations: int = 0
    is_fast: bool = True

    def of(self, slot: int, axis: int) -> Element:
        """The elements of a value along a dimension."""
        element = self._computed(slot, axis)
        if element is not None:
            self.operations += 1
            self.is_fast &= is_fast(self.producers[slot][0])
            return element
        array = self.slots[slot]
        self.arrays[slot] = array.size
        return element_of(array, axis)

    def _computed(self, slot: int, axis: int) -> Element | None:
        """The elements, from those of operands; None if they are read from the array."""
        op, operands = self.producers.get(slot, (None, ()))
        if isinstance(op, ops.Iota):
            return lambda position: jnp.asarray(position, jnp.int32)
        if isinstance(op, (ops.Slice, ops.Pad)) and op.axis == axis and getattr(op, "stride", 1) == 1:
            return self._shifted(operands[0], axis, self.at.value(op.start if isinstance(op, ops.Slice) else -op.low))
        if not isinstance(op, _COMPUTED) or (isinstance(op, ops.Dot) and op.left_contract):
            return None
        array_shapes = [tuple(map(Expr.of, self.slots[each].shape)) for each in (*operands, slot)]
        source = sources(op, array_shapes[:-1], array_shapes[-1])[axis]
        if source is None or (isinstance(op, ops.Dot) and None in source):
            return None
        inner = [self._whole(each) if k is None else self.of(each, k) for each, k in zip(operands, source, strict=True)]
        one = without(op, axis, source)
        return None if one is None else self._apply(one, inner)

    def _shifted(self, source: int, axis: int, start: int | Array) -> Element:
        """The elements `start` positions further on, with zeros for those outside of the dimension."""
        element, size = self.of(source, axis), self.slots[source].shape[axis]

        def shifted(position: Array) -> Array:
            place = position + start
            value = element(jnp.clip(place, 0, size - 1))
            return jnp.where((place >= 0) & (place < size), value, jnp.zeros_like(value))

        return shifted

    def _whole(self, slot: int) -> Element:
        """A value that does not vary along the dimension."""
        array = self.slots[slot]
        self.arrays[slot] = array.size
        return lambda position: array

    def _apply(self, op: ops.Op, elements: list[Element]) -> Element:
        kernel, env, seed = self.at.backend.kernel, self.at.env, self.at.seed
        return lambda position: kernel(op, [element(position) for element in elements], env, seed)[0]


def scanned(at: Setting, op: ops.LinearScan, slots: list[Array], producers: Producers, sources: Sequence[int]) -> Array:
    """A recurrence of an island, one element after the other. It computes its operands as it goes, where they would be large arrays."""
    coefficient, term = (operand(at, slots, producers, slot, op.axis) for slot in sources)
    like = shared.wide(jnp.moveaxis(slots[sources[1]], op.axis, 0))

    if not like.shape[0]:
        return slots[sources[1]]

    def step(before: Array, position: Array) -> tuple[Array, Array]:
        after = shared.wide(term(position)) + carried_part(shared.wide(coefficient(position)), before)
        return after, after

    start, positions = jnp.zeros(like.shape[1:], like.dtype), jnp.arange(like.shape[0], dtype=jnp.int32)
    results = lax.scan(step, start, positions, reverse=op.reverse)[1]
    return jnp.moveaxis(results, 0, op.axis).astype(slots[sources[1]].dtype)


def carried_part(coefficient: Array, before: Array) -> Array:
    """`coefficient * before`. A coefficient of zero gives zero even if `before` is infinite or NaN: it is a reset."""
    return jnp.where(coefficient == 0, jnp.zeros_like(before), coefficient * before)


def operand(at: Setting, slots: list[Array], producers: Producers, slot: int, axis: int) -> Element:
    """The elements of a scan's operand: computed in the scan if this reads much less, else read from the array."""
    elements, array = Elements(at, slots, producers), slots[slot]
    element = elements.of(slot, axis)
    if array.shape[axis] and pays_to_compute_in_scan(
        array.size, sum(elements.arrays.values()), elements.operations, elements.is_fast
    ):
        return element
    return element_of(array, axis)


def element_of(array: Array, axis: int) -> Element:
    """The elements of an array along an axis. If few numbers lie together at each position, the array is transposed first.

    Every number would come in a cache line of its own, and the neighbours that come with it would be read again.
    """
    pieces, together = math.prod(array.shape[:axis]), math.prod(array.shape[axis + 1 :])
    if pieces >= LEAST_PIECES_TO_TRANSPOSE and together < NUMBERS_IN_A_CACHE_LINE:
        array, axis = jnp.moveaxis(array, axis, 0), 0
    return lambda position: lax.dynamic_index_in_dim(array, position, axis, keepdims=False)
