"""Elementwise ops: the operands have one shape, and the result has it too."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, check, same_shape
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.expr import Expr

UNARY = (
    "neg", "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "floor", "ceil", "round", "trunc", "not", "isfinite", "isnan",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "atan2", "logaddexp", "maximum", "minimum", "floordiv", "mod", "and", "or", "xor")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Unary(Op):
    """An elementwise function of one operand; `fn` is one of `UNARY`."""

    fn: str

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        if self.fn == "not":
            check(x.dtype == "bool", f"`not` takes bool, got {x}", DTypeError)
        elif self.fn in ("isfinite", "isnan"):
            return (TensorType("bool", x.shape),)
        elif self.fn in ("neg", "abs", "sign"):
            check(x.dtype != "bool", f"`{self.fn}` takes numbers, got {x}; cast it with .astype('int32')", DTypeError)
        else:
            check(is_float(x.dtype), f"`{self.fn}` takes a float tensor, got {x}; cast it with .astype('float32')", DTypeError)
        return inputs


@dataclass(frozen=True)
class Binary(Op):
    """An elementwise function of two operands of one type; `fn` is one of `BINARY`.

    Integer `floordiv` and `mod` round down, and are 0 where the divisor is 0; integers wrap around.
    """

    fn: str

    def infer(self, inputs: Types) -> Types:
        a, b = inputs
        same_shape(self.fn, inputs)
        check(a.dtype == b.dtype, f"`{self.fn}` takes operands of one dtype, got {a} and {b}", DTypeError)
        if self.fn in ("div", "atan2", "logaddexp"):
            check(is_float(a.dtype), f"`{self.fn}` takes floats, got {a}", DTypeError)
        if self.fn in ("add", "sub", "mul", "pow", "floordiv", "mod"):
            check(a.dtype != "bool", f"`{self.fn}` takes numbers, got bool; cast with .astype('int32')", DTypeError)
        if self.fn in ("and", "or", "xor"):
            check(not is_float(a.dtype), f"`{self.fn}` takes bool or integers, got {a}", DTypeError)
        return (a,)


@dataclass(frozen=True)
class Compare(Op):
    """An elementwise comparison giving bool; `fn` is one of `COMPARE`."""

    fn: str

    def infer(self, inputs: Types) -> Types:
        same_shape(self.fn, inputs)
        check(
            inputs[0].dtype == inputs[1].dtype,
            f"`{self.fn}` takes operands of one dtype, got {inputs[0]} and {inputs[1]}",
            DTypeError,
        )
        return (TensorType("bool", inputs[0].shape),)


@dataclass(frozen=True)
class Where(Op):
    """`where(condition, a, b)`, elementwise.

    With a `length` it is a mask: the condition holds at the first `length` positions along `axis`, and nowhere else.
    `passes/shapes/pad.py` builds such masks and states the length. `passes/tiles/tile.py` uses it to compute only what the mask keeps.
    """

    axis: int = 0
    length: Expr | None = None

    def infer(self, inputs: Types) -> Types:
        condition, a, b = inputs
        check(self.length is None or 0 <= self.axis < a.rank, f"a mask along axis {self.axis} of {a}")
        same_shape("where", inputs)
        check(condition.dtype == "bool", f"`where` takes a bool condition, got {condition}", DTypeError)
        check(a.dtype == b.dtype, f"`where` takes values of one dtype, got {a} and {b}", DTypeError)
        return (a,)


@dataclass(frozen=True)
class Cast(Op):
    """Conversion to `dtype` (floats to integers round towards zero and saturate, NaN becomes 0)."""

    dtype: str

    def infer(self, inputs: Types) -> Types:
        return (TensorType(self.dtype, inputs[0].shape),)


@dataclass(frozen=True)
class Identity(Op):
    """The operand itself; `stop_gradient` ends differentiation here."""

    stop_gradient: bool = False

    def infer(self, inputs: Types) -> Types:
        return inputs
