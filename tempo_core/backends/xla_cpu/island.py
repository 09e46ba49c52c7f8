"""Islands of operations in JAX: what XLA's CPU compiler would compute together, element by element, and should not.

Slices and padding one after the other are one slice and one padding (`parts`). Paddings read dear values from memory, and their sums are in
memory (`apart`). Gathers at positions that follow each other are slices (`shifted`). Recurrences compute large operands as they go
(`elementwise_scans`), and so do scans with what takes a part of their elements (`picked_scans`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core.backends.base import Array, Parts, Setting, is_static
from tempo_core.backends.products import dot, shares_of
from tempo_core.backends.scopes import instruction_scope
from tempo_core.backends.xla_cpu import consecutive as shifted
from tempo_core.backends.xla_cpu import elementwise_scans
from tempo_core.backends.xla_cpu.apart import Apart
from tempo_core.backends.xla_cpu.parts import Part
from tempo_core.backends.xla_cpu.picked_scans import PickedScans
from tempo_core.ir import ops
from tempo_core.prices import LEAST_LENGTH_TO_SLICE


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    """The operations of an island."""
    island = _Island(at, op.body, operands)
    for number, (instruction, sources, targets) in enumerate(op.body.instructions):
        with instruction_scope(number):
            island.run(instruction, sources, targets)
    return tuple(island.apart.result(s, island.array(s)) for s in op.body.results)


class _Island:
    """The values of an island: an array for each slot, or a part of an array (with zeros around it) that nobody has needed yet."""

    def __init__(self, at: Setting, body: ops.Dataflowed, operands: Sequence[Array]):
        self.at, self.types = at, body.slot_types
        self.arrays: list[Array] = [*operands, *[None] * (len(body.slot_types) - len(operands))]
        self.parts: dict[int, tuple[Array, Part]] = {}
        self.numbers: dict[int, float] = {}  # the slots that repeat one number
        self.producers: elementwise_scans.Producers = {}
        self.apart = Apart(at)
        self.starts = shifted.starts(body)
        self.uses = Counter(s for _, sources, _ in body.instructions for s in sources)
        self.on_cpu = jax.default_backend() == "cpu"
        self.is_traced = any(isinstance(x, jax.core.Tracer) for x in operands)
        # Outside of a program, each call would compile the loop of a scan.
        self.picked = PickedScans(at, body) if self.on_cpu and self.is_traced else None

    def array(self, slot: int) -> Array:
        if self.arrays[slot] is None:
            self.arrays[slot] = _cut(*self.parts[slot])
        return self.arrays[slot]

    def run(self, op: ops.Op, sources: Sequence[int], targets: Sequence[int]) -> None:
        if self.picked is not None and targets[0] in self.picked.in_loop:
            self._compute_parts()
            for slot, result in self.picked.results(targets[0], self.arrays, self.producers).items():
                self.arrays[slot] = result
            return
        from_memory = self.apart.from_memory(op, sources, self._shape(sources[0]) if sources else ())
        if not self._takes_part(op, sources, targets[0], from_memory):
            for target, result in zip(targets, self._results(op, sources, from_memory), strict=True):
                self.arrays[target] = result
            self._note_number(op, sources, targets[0])
        self.producers[targets[0]] = (op, tuple(sources))
        self.apart.note(op, sources, targets)

    def _results(self, op: ops.Op, sources: Sequence[int], from_memory: set[int]) -> tuple[Array, ...]:
        if isinstance(op, ops.LinearScan) and self.on_cpu and self.is_traced:
            self._compute_parts()
            return (elementwise_scans.scanned(self.at, op, self.arrays, self.producers, sources),)
        values = [self.apart.put(self.array(s)) if s in from_memory else self.array(s) for s in sources]
        if isinstance(op, ops.Gather) and sources[1] in self.starts and not op.batch:
            x, positions = values
            if self.on_cpu and min(x.shape[op.axis], positions.size) >= LEAST_LENGTH_TO_SLICE:
                scalar, sign = self.starts[sources[1]]
                return (shifted.sliced(x, op.axis, positions, sign * self.array(scalar)),)
        if isinstance(op, ops.Dot) and (shares := shares_of(*(self.types[s] for s in sources))) is not None:
            left, right = values
            return (dot(self.at, op, left, right, shares),)
        return tuple(self.at.backend.kernel(op, values, self.at.env, self.at.seed))

    def _compute_parts(self) -> None:
        for part in self.parts:
            self.array(part)

    # -- slices and padding -------------------------------------------------------------------------------------------

    def _shape(self, slot: int) -> tuple[int, ...]:
        array = self.arrays[slot]
        return self.parts[slot][1].shape if array is None else () if isinstance(array, Parts) else array.shape

    def _note_number(self, op: ops.Op, sources: Sequence[int], target: int) -> None:
        """Remember a result that is one number, repeated."""
        if isinstance(op, ops.Constant) and op.sizes == () and op.dtype in ("float32", "float64"):
            self.numbers[target] = np.frombuffer(op.data, op.dtype)[0].item()
        if isinstance(op, ops.Broadcast) and sources[0] in self.numbers:
            self.numbers[target] = self.numbers[sources[0]]

    def _takes_part(self, op: ops.Op, sources: Sequence[int], target: int, from_memory: set[int]) -> bool:
        """Make the result of an operation a part of an array, if it is one.

        XLA combines slices and padding along one axis. Those along several axes it leaves apart, and where one of them is computed
        inside of another one, it branches at each element. Here they are combined, also across a negation or a product with a number.
        """
        if isinstance(op, (ops.Slice, ops.Pad)):
            array, part = self._part(sources[0])
            part = None if part is None else _windowed(self.at, op, part)
            if part is not None:
                self.parts[target] = self.apart.put(array) if sources[0] in from_memory else array, part
            return part is not None
        slot = self._scaled(op, sources)
        if slot not in self.parts:
            return False
        array, part = self.parts[slot]
        factors = [array if s == slot else jnp.asarray(self.numbers[s], array.dtype) for s in sources]
        self.parts[target] = self.at.backend.kernel(op, factors, self.at.env, self.at.seed)[0], part
        return True

    def _part(self, slot: int) -> tuple[Array, Part | None]:
        """The array and the part of it that a value is. What several operations read is an array of its own."""
        if slot in self.parts and self.uses[slot] == 1:
            return self.parts[slot]
        array = self.array(slot)
        return array, None if isinstance(array, Parts) else Part.of(array.shape)

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
