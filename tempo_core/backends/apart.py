"""Values that XLA's CPU compiler computes by themselves: what is dear is not computed together with a padding, element by element.

XLA computes a padding as a part of its reader: for each element it asks whether the element lies inside, so it makes no vector instructions
of what it computes there. An exponential then takes ten times as long. A branch on a loop's counter, which XLA does not decide, holds its
operand in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core.backends import elementwise_scans, shifted
from tempo_core.backends.base import Array, Setting, is_static
from tempo_core.ir import ops
from tempo_core.prices import is_dear_in_padding, pays_to_slice

_OF_ITS_READER = (
    ops.Unary, ops.Binary, ops.Compare, ops.Where, ops.Cast, ops.Identity, ops.Reshape, ops.Permute, ops.Broadcast, ops.Slice, ops.Flip,
)  # fmt: skip


def dataflow(at: Setting, op: ops.Dataflow, *operands: Array) -> tuple[Array, ...]:
    """An island in which paddings read dear values from memory, and dear functions padded ones, and scans compute their operands."""
    on_cpu = jax.default_backend() == "cpu" and any(isinstance(x, jax.core.Tracer) for x in operands)
    producers: dict[int, tuple[ops.Op, tuple[int, ...]]] = {}
    slots: list[Array] = [None] * len(op.body.slot_types)
    slots[: len(operands)] = operands
    counter = _counter(at)
    dear: set[int] = set()  # computed by dear functions, unless they are in memory
    padded: set[int] = set()
    followed = shifted.starts(op.body)
    for instruction, sources, targets in op.body.instructions:
        pads, is_dear = _pads(instruction, at, slots[sources[0]] if sources else None), is_dear_in_padding(instruction)
        from_memory = counter is not None and (pads or is_dear)
        unwanted = dear if pads else padded
        values = [_apart(slots[s], counter) if from_memory and s in unwanted else slots[s] for s in sources]
        if isinstance(instruction, ops.Gather) and _is_slice(instruction, sources, values, followed):
            scalar, sign = followed[sources[1]]
            results: tuple[Array, ...] = (shifted.sliced(values[0], instruction.axis, values[1], sign * slots[scalar]),)
        elif isinstance(instruction, ops.LinearScan) and on_cpu:  # outside of a program, each call would compile the scan's loop
            results = (elementwise_scans.scanned(at, instruction, slots, producers, sources),)
        else:
            results = at.backend.kernel(instruction, values, at.env, at.seed)
            producers[targets[0]] = (instruction, sources)
        for target, result in zip(targets, results, strict=True):
            slots[target] = result
        is_fused = isinstance(instruction, _OF_ITS_READER)
        if is_dear or (is_fused and not dear.isdisjoint(sources)):
            dear.update(targets)
        if pads or (is_fused and not is_dear and not padded.isdisjoint(sources)):
            padded.update(targets)
    return tuple(slots[s] for s in op.body.results)


def _is_slice(op: ops.Gather, sources: Sequence[int], values: Sequence[Array], followed: Mapping[int, shifted.Start]) -> bool:
    on_cpu = jax.default_backend() == "cpu"
    return sources[1] in followed and not op.batch and pays_to_slice(values[0].shape[op.axis], values[1].size, on_cpu)


def _pads(op: ops.Op, at: Setting, x: Array) -> bool:
    """Whether elements of an op's result lie outside of its operand, or of one of them."""
    if not isinstance(op, ops.Slice):
        return isinstance(op, (ops.Pad, ops.Concat))
    start, stop = at.value(op.start), at.value(op.stop)
    return bool(is_static(start) and is_static(stop) and (start < 0 or stop > x.shape[op.axis]))


def _counter(at: Setting) -> Any:
    """A step whose value is not known while the program is compiled; None outside of loops, and on other devices than a CPU."""
    if jax.default_backend() != "cpu":
        return None
    return next((value for value in at.env.values() if not is_static(value)), None)


def _apart(x: Array, counter: Any) -> Array:
    return lax.cond(counter >= 0, lambda x: x, jnp.zeros_like, x)  # steps are never negative
