"""Elementwise ops: the operands have one shape, and the result has it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, check, same_shape
from tempo_core.ir.ops.work import ALIAS, CHEAP, COMPUTED, DEAR, PLAIN, VIEW, Work, nothing
from tempo_core.ir.types import DTYPES, FLOATS, INTEGERS, TensorType
from tempo_core.symbolic.expr import Expr

NUMBERS, WHOLE, TRUTH = (*FLOATS, *INTEGERS), ("bool", *INTEGERS), ("bool",)
_WORDS = {
    FLOATS: "floats; cast it with .astype('float32')", NUMBERS: "numbers; cast it with .astype('int32')", WHOLE: "bool or integers",
    TRUTH: "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function of one number or two: the dtypes that it `takes`, and its name in NumPy, if that is another one.

    It gives the dtype of its operands, or truth values. `is_unbounded`: some finite operand gives an infinite result, or an infinite slope.
    Its kernels are NumPy's and JAX's functions of its name (`backends/shared.py`); its derivative is in `frontend/autodiff/slopes.py`.
    """

    takes: tuple[str, ...] = FLOATS
    numpy: str = ""
    is_unbounded: bool = False
    gives_truth: bool = False
    cost_class: str = CHEAP

    def infer(self, fn: str, type: TensorType) -> Types:
        """The type of the result, for the type of the operands. Raises DTypeError."""
        if type.dtype not in self.takes:
            what, *advice = _WORDS[self.takes].split(";")
            raise DTypeError(f"`{fn}` takes {what}, got {type}" + "".join(f";{each}" for each in advice))
        return (TensorType("bool", type.shape) if self.gives_truth else type,)


UNARY: Mapping[str, Function] = {
    "neg": Function(NUMBERS, "negative"),
    "abs": Function(NUMBERS),
    "sign": Function(NUMBERS),
    "exp": Function(cost_class=DEAR),
    "expm1": Function(cost_class=DEAR),
    "log": Function(is_unbounded=True, cost_class=DEAR),
    "log1p": Function(is_unbounded=True, cost_class=DEAR),
    "sqrt": Function(is_unbounded=True, cost_class=PLAIN),
    "rsqrt": Function(is_unbounded=True, cost_class=PLAIN),
    "sin": Function(cost_class=DEAR),
    "cos": Function(cost_class=DEAR),
    "tan": Function(is_unbounded=True, cost_class=DEAR),
    "asin": Function(is_unbounded=True, cost_class=DEAR),
    "acos": Function(is_unbounded=True, cost_class=DEAR),
    "atan": Function(cost_class=DEAR),
    "sinh": Function(cost_class=DEAR),
    "cosh": Function(cost_class=DEAR),
    "tanh": Function(cost_class=DEAR),
    "asinh": Function(cost_class=DEAR),
    "acosh": Function(is_unbounded=True, cost_class=DEAR),
    "atanh": Function(is_unbounded=True, cost_class=DEAR),
    "sigmoid": Function(cost_class=DEAR),
    "erf": Function(cost_class=DEAR),
    "floor": Function(cost_class=PLAIN),
    "ceil": Function(cost_class=PLAIN),
    "round": Function(FLOATS, "rint", cost_class=PLAIN),  # half to even
    "trunc": Function(cost_class=PLAIN),
    "not": Function(TRUTH, "logical_not"),
    "isfinite": Function(DTYPES, gives_truth=True),
    "isnan": Function(DTYPES, gives_truth=True),
}
BINARY: Mapping[str, Function] = {
    "add": Function(NUMBERS),
    "sub": Function(NUMBERS, "subtract"),
    "mul": Function(NUMBERS, "multiply"),
    "div": Function(FLOATS, "divide", is_unbounded=True, cost_class=PLAIN),
    "pow": Function(NUMBERS, is_unbounded=True, cost_class=DEAR),
    "atan2": Function(is_unbounded=True, cost_class=DEAR),
    "logaddexp": Function(cost_class=DEAR),
    "maximum": Function(DTYPES),
    "minimum": Function(DTYPES),
    "floordiv": Function(NUMBERS, "floor_divide", cost_class=PLAIN),
    "mod": Function(NUMBERS, is_unbounded=True, cost_class=PLAIN),
    "and": Function(WHOLE, "bitwise_and"),  # of bools, these are the logical functions
    "or": Function(WHOLE, "bitwise_or"),
    "xor": Function(WHOLE, "bitwise_xor"),
}
COMPARE: Mapping[str, Function] = {
    "eq": Function(DTYPES, "equal", gives_truth=True),
    "ne": Function(DTYPES, "not_equal", gives_truth=True),
    "lt": Function(DTYPES, "less", gives_truth=True),
    "le": Function(DTYPES, "less_equal", gives_truth=True),
    "gt": Function(DTYPES, "greater", gives_truth=True),
    "ge": Function(DTYPES, "greater_equal", gives_truth=True),
}


@dataclass(frozen=True)
class Unary(Op):
    """An elementwise function of one operand; `fn` is one of `UNARY`."""

    work = COMPUTED
    fn: str

    @property
    def function(self) -> Function:
        return UNARY[self.fn]

    @property
    def cost_class(self) -> str:
        return self.function.cost_class

    def infer(self, inputs: Types) -> Types:
        return self.function.infer(self.fn, inputs[0])


def _of_two(fn: str, function: Function, inputs: Types) -> Types:
    """The type that a function of two operands gives. They have one shape and one dtype."""
    a, b = inputs
    same_shape(fn, inputs)
    check(a.dtype == b.dtype, f"`{fn}` takes operands of one dtype, got {a} and {b}", DTypeError)
    return function.infer(fn, a)


@dataclass(frozen=True)
class Binary(Op):
    """An elementwise function of two operands of one type; `fn` is one of `BINARY`.

    Integer `floordiv` and `mod` round down, and are 0 where the divisor is 0; integers wrap around.
    """

    work = COMPUTED
    fn: str

    @property
    def function(self) -> Function:
        return BINARY[self.fn]

    @property
    def cost_class(self) -> str:
        return self.function.cost_class

    def infer(self, inputs: Types) -> Types:
        return _of_two(self.fn, self.function, inputs)


@dataclass(frozen=True)
class Compare(Op):
    """An elementwise comparison giving bool; `fn` is one of `COMPARE`."""

    work = COMPUTED
    fn: str

    @property
    def function(self) -> Function:
        return COMPARE[self.fn]

    def infer(self, inputs: Types) -> Types:
        return _of_two(self.fn, self.function, inputs)


@dataclass(frozen=True)
class Where(Op):
    """`where(condition, a, b)`, elementwise.

    With a `length` it is a mask: the condition holds at the first `length` positions along `axis`, and nowhere else.
    `passes/shapes/pad.py` builds such masks and states the length. `passes/tiles/tile.py` uses it to compute only what the mask keeps.
    """

    work = COMPUTED
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

    work = COMPUTED
    dtype: str

    def infer(self, inputs: Types) -> Types:
        return (TensorType(self.dtype, inputs[0].shape),)


@dataclass(frozen=True)
class Identity(Op):
    """The operand itself; `stop_gradient` ends differentiation here."""

    work = Work(nothing, ALIAS, VIEW)
    stop_gradient: bool = False

    def infer(self, inputs: Types) -> Types:
        return inputs
