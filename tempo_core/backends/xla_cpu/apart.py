"""Values that XLA's CPU compiler computes by themselves: what is dear is not computed together with a padding, element by element, and a
sum of paddings is computed once for all of its readers.

XLA computes a padding as a part of its reader: for each element it asks whether the element lies inside, so it makes no vector instructions
of what it computes there. An exponential then takes ten times as long. A branch on a loop's counter, which XLA does not decide, holds its
operand in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core.backends.base import Array, Setting, is_static
from tempo_core.ir import costs, ops
from tempo_core.prices import LEAST_PADDINGS_OF_A_SUM, is_dear_function
from tempo_core.symbolic.expr import StepValues


class Apart:
    """The values of an island that are computed by dear functions, and those that are padded, unless they are in memory."""

    def __init__(self, at: Setting):
        self.at, self._counter = at, counter(at.env)
        self._dear: set[int] = set()
        self._padded: set[int] = set()
        self._paddings: dict[int, frozenset[int]] = {}  # by slot: the paddings from which a value is computed, element by element
        self._pads = False  # the operation at hand

    def from_memory(self, op: ops.Op, sources: Sequence[int], shape: Sequence[int]) -> set[int]:
        """The operands that an operation should read from memory. The first one has this shape."""
        self._pads = self._is_padding(op, shape)
        if self._counter is None or not (self._pads or is_dear_function(op)):
            return set()
        return set(sources) & (self._dear if self._pads else self._padded)

    def put(self, x: Array) -> Array:
        """`x` in memory."""
        return lax.cond(self._counter >= 0, lambda x: x, jnp.zeros_like, x)  # steps are never negative

    def note(self, op: ops.Op, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Remember how an operation's results are computed."""
        is_dear = is_dear_function(op)
        is_fused = isinstance(op, costs.OF_THEIR_READER) and not isinstance(op, costs.PADDINGS)
        if is_dear or (is_fused and not self._dear.isdisjoint(sources)):
            self._dear.update(targets)
        if self._pads or (is_fused and not is_dear and not self._padded.isdisjoint(sources)):
            self._padded.update(targets)

        if isinstance(op, ops.Pad):
            self._paddings[targets[0]] = frozenset(targets)
        elif is_fused:
            self._paddings[targets[0]] = frozenset().union(*(self._paddings.get(s, frozenset()) for s in sources))

    def result(self, slot: int, x: Array) -> Array:
        """A result of the island: in memory, if it is computed from several paddings (a gradient of shifted reads).

        XLA computes it again in each of its readers. Then it does not compute the paddings there, but writes each of them to memory.
        """
        is_apart = self._counter is not None and len(self._paddings.get(slot, ())) >= LEAST_PADDINGS_OF_A_SUM
        return self.put(x) if is_apart else x

    def _is_padding(self, op: ops.Op, shape: Sequence[int]) -> bool:
        """Whether elements of an op's result lie outside of its operand, or of one of them."""
        if not isinstance(op, ops.Slice):
            return isinstance(op, costs.PADDINGS)
        start, stop = self.at.value(op.start), self.at.value(op.stop)
        return bool(is_static(start) and is_static(stop) and (start < 0 or stop > shape[op.axis]))


def counter(env: StepValues) -> Any:
    """A step whose value is not known while the program is compiled; None outside of loops, and on other devices than a CPU."""
    if jax.default_backend() != "cpu":
        return None
    return next((value for value in env.values() if not is_static(value)), None)
