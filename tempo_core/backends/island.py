"""Islands of operations in JAX: slices and padding one after the other are one slice and one padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core.backends.base import Array, Setting, is_static
from tempo_core.backends.parts import Part
from tempo_core.ir import ops


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    """The operations of an island.

    XLA combines slices and padding along one axis. Those along several axes it leaves apart, and where one of them is computed
    inside of another one, it branches at each element. Here they are combined, also across a negation or a product with a number.
    """
    island = _Island(at, [*operands, *[None] * (len(op.body.slot_types) - len(operands))])
    for instruction, sources, targets in op.body.instructions:
        if not island.takes_part(instruction, sources, targets[0]):
            results = at.backend.kernel(instruction, [island.array(s) for s in sources], at.env, at.seed)
            for target, result in zip(targets, results, strict=True):
                island.arrays[target] = result
            island.note(instruction, sources, targets[0])
    return tuple(island.array(s) for s in op.body.results)


class _Island:
    """The values of an island: an array for each slot, or a part of an array (with zeros around it) that nobody has needed yet."""

    def __init__(self, at: Setting, arrays: list[Array]):
        self.at, self.arrays = at, arrays
        self.parts: dict[int, tuple[Array, Part]] = {}
        self.numbers: dict[int, float] = {}  # the slots that repeat one number

    def array(self, slot: int) -> Array:
        if self.arrays[slot] is None:
            self.arrays[slot] = _cut(*self.parts[slot])
        return self.arrays[slot]

    def note(self, op: ops.Op, sources: Sequence[int], target: int) -> None:
        """Remember a result that is one number, repeated."""
        if isinstance(op, ops.Constant) and op.sizes == () and op.dtype in ("float32", "float64"):
            self.numbers[target] = np.frombuffer(op.data, op.dtype)[0].item()
        if isinstance(op, ops.Broadcast) and sources[0] in self.numbers:
            self.numbers[target] = self.numbers[sources[0]]

    def takes_part(self, op: ops.Op, sources: Sequence[int], target: int) -> bool:
        """Make the result of an operation a part of an array, if it is one."""
        if isinstance(op, (ops.Slice, ops.Pad)):
            array, part = self.parts.get(sources[0]) or (self.array(sources[0]), None)
            part = _windowed(self.at, op, part or Part.of(array.shape))
            if part is not None:
                self.parts[target] = array, part
            return part is not None
        slot = self._scaled(op, sources)
        if slot not in self.parts:
            return False
        array, part = self.parts[slot]
        factors = [array if s == slot else jnp.asarray(self.numbers[s], array.dtype) for s in sources]
        self.parts[target] = self.at.backend.kernel(op, factors, self.at.env, self.at.seed)[0], part
        return True

    def _scaled(self, op: ops.Op, sources: Sequence[int]) -> int:
        """The operand of which an operation gives a multiple; -1 for other operations. A multiple of zero is zero, up to its sign."""
        if isinstance(op, ops.Unary) and op.fn == "neg":
            return sources[0]
        if isinstance(op, ops.Binary) and op.fn == "mul":
            finite = [s for s in sources if math.isfinite(self.numbers.get(s, math.nan))]
            others = [s for s in sources if s not in finite]
            return others[0] if len(others) == 1 and len(finite) == 1 else -1
        return -1


def _windowed(at: Setting, op: ops.Slice | ops.Pad, part: Part) -> Part | None:
    """What a slice or padding takes of a part; None for a stride, and where the start is known only when the program runs."""
    if isinstance(op, ops.Pad):
        start, size = at.value(-op.low), part.shape[op.axis] + at.size(op.low + op.high)
    elif op.stride == 1:
        start, size = at.value(op.start), at.size(op.stop - op.start)
    else:
        return None
    return part.window(op.axis, start, max(size, 0)) if is_static(start) else None


def _cut(x: Array, part: Part) -> Array:
    starts, ends = zip(*part.source, strict=True)
    inside = lax.slice(x, starts, ends)
    widths: list[Any] = [(low, high, 0) for low, high in part.padding]
    return lax.pad(inside, jnp.zeros((), x.dtype), widths) if any(map(any, part.padding)) else inside
