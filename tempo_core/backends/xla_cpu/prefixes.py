"""Products of prefixes, tile by tile: `softmax(q @ keys[0:t + 1]) @ values[0:t + 1]` reads what exists.

A prefix is padded to its largest length, and masked past its end. In XLA's programs for CPUs, a product reads neither a part of an array nor
through a mask: all positions would be written to memory first. A tile stays in the cache, and there are as many as the prefix has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Prefix, Setting
from tempo_core.backends.products import accumulated, dot
from tempo_core.backends.xla_cpu.elementwise_scans import Producers
from tempo_core.ir import ops
from tempo_core.ir.axes import Source, reduced, sources, tiled
from tempo_core.ir.types import TensorType
from tempo_core.prices import LEAST_BYTES_FOR_TILES, POINTS_OF_A_TILE
from tempo_core.symbolic.expr import Expr


class Prefixes:
    """The operands of an island that are prefixes, by slot, and their products. `slots`, `types` and `producers` are the island's."""

    def __init__(
        self,
        at: Setting,
        operands: Sequence[Array | Prefix],
        slots: Sequence[Array],
        types: Sequence[TensorType],
        producers: Producers,
    ):
        self.at, self.slots, self.types, self.producers = at, slots, types, producers
        self.operands = {
            slot: x for slot, x in enumerate(operands) if isinstance(x, Prefix) and x.whole.nbytes >= LEAST_BYTES_FOR_TILES
        }

    def product(self, op: ops.Dot, operands: Sequence[int], target: int) -> Array | None:
        """A product with a prefix; None for others."""
        axes: list[tuple[int | None, Source]] = [(None, each) for each in reduced(op)]
        axes += [(k, each) for k, each in enumerate(self._sources(op, operands, target)) if each is not None]
        for axis, along in axes if self.operands else ():
            prefixes = [self._prefix(slot, k, axis is None) for slot, k in zip(operands, along, strict=True)]
            if any(prefixes):
                return self._by_tiles(op, operands, along, prefixes, axis, self.at.shape(self.types[target].shape))
        return None

    def _sources(self, op: ops.Op, operands: Sequence[int], target: int) -> Sequence[Source | None]:
        return sources(op, [self.types[slot].shape for slot in operands], self.types[target].shape)

    def _prefix(self, slot: int, axis: int | None, is_summed: bool) -> Prefix | None:
        """The prefix that a value is along an axis, after operations on single positions of it. A mask with zeros is left to the sum."""
        op, operands = self.producers.get(slot, (None, ()))
        if axis is None or op is None:
            return self.operands.get(slot) if axis == 0 else None
        if isinstance(op, ops.Where) and op.axis == axis and is_summed and self._is_zero(operands[2]):
            prefix = self._prefix(operands[1], axis, is_summed)
            return prefix if prefix is not None and prefix.length == op.length else None
        source = self._sources(op, operands, slot)[axis] if len(operands) == 1 else None
        prefix = None if source is None else self._prefix(operands[0], source[0], is_summed)
        return None if prefix is None else replace(prefix, part=self._after(op, axis, prefix))

    def _after(self, op: ops.Op, axis: int, prefix: Prefix) -> Callable[[Array, int], Array]:
        """Parts of a prefix, after an operation that gives its positions along an axis."""

        def part(start: Array, count: int) -> Array:
            positions = [prefix.part(start, count)]
            return self.at.backend.kernel(tiled(op, axis, Expr.of(count)), positions, self.at.env, self.at.seed)[0]

        return part

    def _is_zero(self, slot: int) -> bool:
        op, inputs = self.producers.get(slot, (None, ()))
        return self._is_zero(inputs[0]) if isinstance(op, ops.Broadcast) else isinstance(op, ops.Constant) and not any(op.data)

    def _by_tiles(
        self,
        op: ops.Dot,
        operands: Sequence[int],
        along: Source,
        prefixes: Sequence[Prefix | None],
        axis: int | None,
        shape: tuple[int, ...],
    ) -> Array:
        """A product whose operands are `prefixes`, or not, and go `along` these as `axis` of the result does; None if it is their sum."""
        prefix = next(filter(None, prefixes))
        length, dtype = self.at.value(prefix.length), prefix.whole.dtype
        size, total = min(POINTS_OF_A_TILE, prefix.most), accumulated(dtype) if axis is None else dtype

        def add(number: Array, result: Array) -> Array:
            start = jnp.minimum(number * size, prefix.most - size)  # the last tile may begin in the one before

            def tile(slot: int, place: int | None, prefix: Prefix | None) -> Array:
                if place is None:
                    return self.slots[slot].astype(total)
                if prefix is None:
                    return lax.dynamic_slice_in_dim(self.slots[slot], start, size, place).astype(total)
                part = prefix.part(start, size)
                positions = start + lax.broadcasted_iota(jnp.int32, part.shape, place)
                counts = (positions >= number * size) & (positions < length)
                return (part if axis is not None else jnp.where(counts, part, jnp.zeros_like(part))).astype(total)

            product = dot(self.at, op, *map(tile, operands, along, prefixes))
            return result + product if axis is None else lax.dynamic_update_slice_in_dim(result, product, start, axis)

        return lax.fori_loop(0, (length + size - 1) // size, add, jnp.zeros(shape, total)).astype(dtype)
