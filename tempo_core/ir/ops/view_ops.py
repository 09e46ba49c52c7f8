"""Views: the same elements under another shape or order, repeated, cut, padded or put together."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, along, check, replaced, without
from tempo_core.ir.ops.work import ALIAS, VIEW, VIEWED, Work, nothing, product
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements, in row-major order, under another `shape` of as many elements."""

    work = Work(nothing, ALIAS, VIEW)
    shape: tuple[Expr, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(product(x.shape) == product(self.shape), f"cannot reshape {x} to ({', '.join(map(str, self.shape))})")
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Permute(Op):
    """Transposition: output axis k is input axis `order[k]`."""

    work = VIEWED
    order: tuple[int, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(sorted(self.order) == list(range(x.rank)), f"cannot permute {x} by {self.order}")
        return (TensorType(x.dtype, tuple(x.shape[k] for k in self.order)),)


@dataclass(frozen=True)
class Broadcast(Op):
    """Repetition to `shape`: input axis k becomes output axis `axes[k]` (ascending, of equal size); the others repeat."""

    work = VIEWED
    shape: tuple[Expr, ...]
    axes: tuple[int, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        fits = len(self.axes) == x.rank and all(self.shape[a] == s for a, s in zip(self.axes, x.shape, strict=True))
        check(fits, f"cannot broadcast {x} to ({', '.join(map(str, self.shape))}) along {self.axes}")
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Slice(Op):
    """Elements `start, start + stride, ... < stop` of `axis`; zeros at positions outside the axis.

    A `start` or `stop` that depends on steps is allowed.
    """

    work = VIEWED
    axis: int
    start: Expr
    stop: Expr
    stride: int = 1

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        size = (self.stop - self.start + (self.stride - 1)) // self.stride
        return (TensorType(x.dtype, replaced(x.shape, self.axis, size)),)


@dataclass(frozen=True)
class Pad(Op):
    """`low` zeros before and `high` zeros after the elements of `axis`. The amounts may depend on steps.

    A negative amount cuts elements off.
    """

    work = VIEWED
    axis: int
    low: Expr
    high: Expr

    def infer(self, inputs: Types) -> Types:
        x = along(inputs[0], self.axis)
        return (TensorType(x.dtype, replaced(x.shape, self.axis, x.shape[self.axis] + self.low + self.high)),)


@dataclass(frozen=True)
class Concat(Op):
    """The operands, one after the other along `axis`."""

    work = VIEWED
    axis: int

    def infer(self, inputs: Types) -> Types:
        first = inputs[0]
        for other in inputs[1:]:
            check(other.dtype == first.dtype, f"`concatenate` takes one dtype, got {first} and {other}", DTypeError)
            check(
                without(other.shape, self.axis) == without(first.shape, self.axis),
                f"cannot concatenate {first} and {other} along axis {self.axis}",
            )
        total = functools.reduce(operator.add, (t.shape[self.axis] for t in inputs))
        return (TensorType(first.dtype, replaced(first.shape, self.axis, total)),)


@dataclass(frozen=True)
class Flip(Op):
    """The elements of `axis` in reverse order."""

    work = VIEWED
    axis: int

    def infer(self, inputs: Types) -> Types:
        return (along(inputs[0], self.axis),)
