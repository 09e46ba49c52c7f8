"""Islands of operations in JAX: what XLA's CPU compiler would compute together, element by element, and should not.

Paddings read dear values from memory, and their sums are in memory (`apart`). Gathers at positions that follow each other are slices
(`consecutive`). What is updated is read before (`in_place`). Scans compute large operands as they go, and what takes a part of their
elements (`picked_scans`). Products of large slices run in parts (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from tempo_core.backends.base import Array, Parts, Setting
from tempo_core.backends.products import dot, shares_of
from tempo_core.backends.scopes import instruction_scope
from tempo_core.backends.xla_cpu.apart import Apart, counter
from tempo_core.backends.xla_cpu.consecutive import has_few_elements, in_slices, sliced, starts
from tempo_core.backends.xla_cpu.elementwise_scans import Producers
from tempo_core.backends.xla_cpu.in_place import Updates
from tempo_core.backends.xla_cpu.parts import in_parts
from tempo_core.backends.xla_cpu.picked_scans import PickedScans
from tempo_core.ir import ops
from tempo_core.prices import LEAST_LENGTH_TO_SLICE


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    """The operations of an island."""
    island = _Island(at, op.body, operands)
    for number, (instruction, sources, targets) in enumerate(op.body.instructions):
        with instruction_scope(number):
            island.run(number, instruction, sources, targets)
    return tuple(island.apart.result(s, island.slots[s]) for s in op.body.results)


class _Island:
    """The values of an island: an array for each slot."""

    def __init__(self, at: Setting, body: ops.Dataflowed, operands: Sequence[Array]):
        self.at, self.types = at, body.slot_types
        self.slots: list[Array] = [*operands, *[None] * (len(body.slot_types) - len(operands))]
        self.producers: Producers = {}
        self.apart = Apart(at)
        self.starts = starts(body)
        self.updates = Updates(body, at.env)
        self.on_cpu = jax.default_backend() == "cpu"
        is_traced = any(isinstance(x, jax.core.Tracer) for x in operands)
        # Outside of a program, each call would compile the loop of a scan.
        self.picked = PickedScans(at, body) if self.on_cpu and is_traced else None

    def run(self, number: int, op: ops.Op, sources: Sequence[int], targets: Sequence[int]) -> None:
        if self.picked is not None and targets[0] in self.picked.in_loop:
            for slot, result in self.picked.results(targets[0], self.slots, self.producers).items():
                self.slots[slot] = result
            return
        results = self.updates.results(number, sources, targets, self.slots, self._results(op, sources))
        for target, result in zip(targets, results, strict=True):
            self.slots[target] = result
        self.producers[targets[0]] = (op, tuple(sources))
        self.apart.note(op, sources, targets)

    def _results(self, op: ops.Op, sources: Sequence[int]) -> tuple[Array, ...]:
        first = self.slots[sources[0]] if sources else None
        from_memory = self.apart.from_memory(op, sources, () if first is None or isinstance(first, Parts) else first.shape)
        values = [self.apart.put(self.slots[s]) if s in from_memory else self.slots[s] for s in sources]
        if isinstance(op, ops.Update):
            values = self.updates.operands(sources[0], values)
        if isinstance(op, ops.Gather) and sources[1] in self.starts and not op.batch:
            x, positions = values
            if self.on_cpu and min(x.shape[op.axis], positions.size) >= LEAST_LENGTH_TO_SLICE:
                scalar, sign = self.starts[sources[1]]
                return (sliced(x, op.axis, positions, sign * self.slots[scalar]),)
        if isinstance(op, ops.Gather) and counter(self.at.env) is not None and has_few_elements(op, *values):
            return (in_slices(op, *values),)
        if isinstance(op, ops.Dot) and self.on_cpu:
            product = in_parts(self.at, op, sources, self.slots, self.producers)
            if product is not None:
                return (product,)
        if isinstance(op, ops.Dot) and (shares := shares_of(*(self.types[s] for s in sources))) is not None:
            left, right = values
            return (dot(self.at, op, left, right, shares),)
        return tuple(self.at.backend.kernel(op, values, self.at.env, self.at.seed))
