"""Reductions, scans and sorting along axes."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, along, check, same_shape, without
from tempo_core.ir.ops.work import MEMORY, REDUCED, SCAN, SORT, Work, each_operand
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.expr import Expr

REDUCE = ("sum", "prod", "max", "min", "any", "all")
# By reducing function: the element that changes no result (`literal` of `ir/builder.py` explains the words).
NEUTRAL: dict[str, float | str] = {"sum": 0.0, "prod": 1.0, "max": "lowest", "min": "highest", "any": 0.0, "all": 1.0}


SCAN_WORK = 2  # operations an element: it is added to those before it in its block, and the sum to all blocks before (`backends/xla_cpu/cumulative.py`)


def _reduced(op: Reduce, inputs: Types) -> str:
    """XLA on a CPU computes the operand of some reductions before it reduces it; with the others, in the reduction's loop."""
    return MEMORY if op.fn in ("prod", "any", "all") else REDUCED


@dataclass(frozen=True)
class Reduce(Op):
    """Reduction over `axes` (ascending), which disappear; `fn` is one of `REDUCE`."""

    work = Work(each_operand(), _reduced, REDUCED)
    fn: str
    axes: tuple[int, ...]

    @property
    def neutral(self) -> float | str:
        return NEUTRAL[self.fn]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(all(0 <= a < x.rank for a in self.axes), f"reduction over axes {self.axes} of {x}")
        if self.fn in ("any", "all"):
            check(x.dtype == "bool", f"`{self.fn}` takes bool, got {x}", DTypeError)
        elif self.fn in ("sum", "prod"):
            check(x.dtype != "bool", f"`{self.fn}` takes numbers, got {x}; cast it with .astype('int32')", DTypeError)
        return (TensorType(x.dtype, tuple(s for a, s in enumerate(x.shape) if a not in self.axes)),)


@dataclass(frozen=True)
class Argmax(Op):
    """The first position of the greatest element along `axis`, as int32; of the first NaN if there is one; 0 without elements."""

    work = Work(each_operand(), REDUCED, REDUCED)
    neutral = "lowest"
    axis: int

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        return (TensorType("int32", without(x.shape, self.axis)),)


@dataclass(frozen=True)
class Argsort(Op):
    """The positions that sort the operand along `axis`, ascending and stable, as int32: all of them, or the first `count`."""

    work = Work(each_operand(), MEMORY, SORT)  # times the logarithm of the axis' size: `costs.sorted_axis`
    neutral = "last"
    axis: int
    count: int | None = None

    def infer(self, inputs: Types) -> Types:
        shape = list(along(inputs[0], self.axis).shape)
        if self.count is not None:
            size = shape[self.axis]
            is_inside = size.is_constant and 0 <= self.count <= size.constant
            check(is_inside, f"the first {self.count} positions of axis {self.axis}, which has {size} elements")
            shape[self.axis] = Expr.of(self.count)
        return (TensorType("int32", tuple(shape)),)


@dataclass(frozen=True)
class CumSum(Op):
    """Cumulative sum along `axis`: `y[k] = x[0] + ... + x[k]`; with `reverse`, of the suffix `x[k] + ... + x[-1]`."""

    work = Work(each_operand(SCAN_WORK), MEMORY, SCAN)
    neutral = 0.0
    axis: int
    reverse: bool = False

    def infer(self, inputs: Types) -> Types:
        x = along(inputs[0], self.axis)
        check(x.dtype != "bool", "`cumsum` takes numbers, got bool; cast with .astype('int32')", DTypeError)
        return inputs


@dataclass(frozen=True)
class CumMax(Op):
    """Cumulative maximum along `axis`: `y[k] = max(x[0], ..., x[k])`; with `reverse`, of the suffix. NaN stays once it is met."""

    work = Work(each_operand(SCAN_WORK), MEMORY, SCAN)
    neutral = "lowest"
    axis: int
    reverse: bool = False

    def infer(self, inputs: Types) -> Types:
        return (along(inputs[0], self.axis),)


@dataclass(frozen=True)
class LinearScan(Op):
    """First-order linear recurrence of (coefficients c, terms b) along `axis`: `y[k] = b[k] + c[k] * y[k - 1]`.

    With `reverse`, `y[k] = b[k] + c[k] * y[k + 1]`. The value before the first element is zero. A `c[k]` of 0 forgets the
    value before, also if it is infinite or NaN. Discounted returns and generalised advantage estimation have this form.
    """

    work = Work(each_operand(2), MEMORY, SCAN)
    neutral = 0.0
    axis: int
    reverse: bool = False

    def infer(self, inputs: Types) -> Types:
        same_shape("linear scan", inputs)
        check(
            inputs[0].dtype == inputs[1].dtype,
            f"a linear scan takes operands of one dtype, got {inputs[0]} and {inputs[1]}",
            DTypeError,
        )
        check(inputs[0].dtype != "bool", f"a linear scan takes numbers, got {inputs[0]}; cast with .astype('int32')", DTypeError)
        return (along(inputs[1], self.axis),)


@dataclass(frozen=True)
class DiscountedSum(Op):
    """`sum_k gamma**k * x[k]` along `axis`, which disappears."""

    work = Work(each_operand(2), MEMORY, SCAN)
    neutral = 0.0
    axis: int
    gamma: float

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(is_float(x.dtype), f"`discounted_sum` takes floats, got {x}", DTypeError)
        return (TensorType(x.dtype, without(x.shape, self.axis)),)
