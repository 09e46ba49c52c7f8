"""Values of blocks that are repeated for each element of their block: elementwise operations on them in a dimension of blocks.

`reshape(broadcast(m))`, with `m` of [blocks, width] and the result of [blocks * size, width], has the element of block `k // size` at `k`.
XLA's CPU compiler would divide at each element that reads it. In the shape [blocks, size, width] it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from tempo_core.backends.base import Array, Setting, is_static
from tempo_core.ir import ops
from tempo_core.ir.ranges.elements import ELEMENTWISE


class Blocked:
    """The values of an island that also are in another shape with the same elements in the same order."""

    def __init__(self, at: Setting):
        self.at = at
        self.forms: dict[int, Array] = {}  # by slot: the value in a shape that has the dimensions of blocks
        self.repeated: dict[int, Array] = {}  # by slot: the values that repeat smaller ones

    def result(self, op: ops.Op, sources: Sequence[int], target: int, arrays: Sequence[Array]) -> Array | None:
        """The result of an operation on a value that has another shape; None for other operations and values."""
        shapes = [self.forms[s].shape for s in sources if s in self.forms]
        if not shapes:
            return None
        if isinstance(op, ELEMENTWISE):
            return self._elementwise(op, sources, target, arrays, shapes[0])
        first = arrays[sources[0]]
        if isinstance(op, ops.Slice) and sources[0] in self.forms and self._is_whole(op, first):
            self.forms[target] = self.forms[sources[0]]
            return first
        return None

    def _elementwise(
        self, op: ops.Op, sources: Sequence[int], target: int, arrays: Sequence[Array], shape: tuple[int, ...]
    ) -> Array:
        operands = [self.forms[s] if s in self.forms else arrays[s] for s in sources]
        (form,) = self.at.backend.kernel(op, [jnp.reshape(x, shape) for x in operands], self.at.env, self.at.seed)
        self.forms[target] = form
        return jnp.reshape(form, next(arrays[s].shape for s in sources))

    def _is_whole(self, op: ops.Slice, x: Array) -> bool:
        start, stop = self.at.value(op.start), self.at.value(op.stop)
        return op.stride == 1 and is_static(start) and is_static(stop) and (start, stop) == (0, x.shape[op.axis])

    def note(self, op: ops.Op, sources: Sequence[int], target: int, arrays: Sequence[Array]) -> None:
        """Remember a result that repeats values, and one that has them in another shape."""
        if isinstance(op, ops.Broadcast) and op.axes:
            self.repeated[target] = arrays[target]
        if isinstance(op, ops.Reshape):
            form = self.forms.get(sources[0], self.repeated.get(sources[0]))
            if form is not None and _dimensions(form) != _dimensions(arrays[target]):
                self.forms[target] = form


def _dimensions(x: Array) -> list[int]:
    return [size for size in x.shape if size != 1]
