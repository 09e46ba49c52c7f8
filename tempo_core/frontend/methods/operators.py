"""Operators of tensors, and the functions of which they are. Operands broadcast; dtypes are promoted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tempo_core.errors import DTypeError, ShapeError
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.array_uses import ArrayUses
from tempo_core.frontend.methods.nodes import Value, apply, as_tensor
from tempo_core.frontend.methods.operands import broadcast_shapes, constant_op
from tempo_core.frontend.methods.shapes import Shapes, aligned, promoted
from tempo_core.ir import ops
from tempo_core.ir.types import is_float

F = TypeVar("F", bound=Callable[..., Any])
Tensor = TypeVar("Tensor", bound="Operators[Any]")


def computed_by(op: ops.Unary | ops.Binary | ops.Compare) -> Callable[[F], F]:
    """Decorator of a function that `op` computes. In the class of tensors, it is a function and a method at once."""

    def decorator(declared: F) -> F:
        @functools.wraps(declared)
        def function(*operands: Value, **named: Value) -> Any:
            values = (*operands, *(named[key] for key in ("x", "y") if key in named))
            tensors = (as_tensor(values[0]),) if isinstance(op, ops.Unary) else aligned(*values)
            return apply(op, *(_converted(x, op.function.takes) for x in tensors))

        return checked(function)  # type: ignore[return-value]

    return decorator


def _converted(x: Any, dtypes: tuple[str, ...]) -> Any:
    """An operand in a dtype that a function takes: bools count as 0 and 1, and integers become floats."""
    return x if x.dtype in dtypes or is_float(x.dtype) else x.astype("int32" if "int32" in dtypes else "float32")


def operator_of(function: Callable[..., Any], mirrored: bool = False) -> Callable[[F], F]:
    """Decorator of an operator that `function` computes; a `mirrored` one is for a tensor on the right."""

    def decorator(declared: F) -> F:
        @functools.wraps(declared)
        def operator(self: Operators[Any], other: Value) -> Any:
            if getattr(other, "__array_priority__", 0) > self.__array_priority__:
                return NotImplemented  # the other operand computes it: a complex number
            return function(other, self) if mirrored else function(self, other)

        return operator  # type: ignore[return-value]

    return decorator


class Operators(Shapes[Tensor], ArrayUses):
    """The operators of tensors."""

    __array_priority__ = 1000  # with an array on the left, NumPy leaves the operator to the tensor

    @computed_by(ops.Unary("neg"))
    def _negative(x: Value) -> Tensor:
        """`-x`; bools count as 0 and 1."""

    @computed_by(ops.Binary("add"))
    def _add(x: Value, y: Value) -> Tensor:
        """`x + y`, elementwise; bools count as 0 and 1."""

    @computed_by(ops.Binary("sub"))
    def _subtract(x: Value, y: Value) -> Tensor:
        """`x - y`, elementwise; bools count as 0 and 1."""

    @computed_by(ops.Binary("mul"))
    def _multiply(x: Value, y: Value) -> Tensor:
        """`x * y`, elementwise."""

    @computed_by(ops.Binary("div"))
    def _divide(x: Value, y: Value) -> Tensor:
        """`x / y`, elementwise; integers are divided as float32."""

    @computed_by(ops.Binary("pow"))
    def _power(x: Value, y: Value) -> Tensor:
        """`x ** y`, elementwise."""

    @computed_by(ops.Binary("floordiv"))
    def _floor_divide(x: Value, y: Value) -> Tensor:
        """`x // y`, elementwise: the quotient rounded down."""

    @computed_by(ops.Binary("mod"))
    def _remainder(x: Value, y: Value) -> Tensor:
        """`x % y`, elementwise: the remainder of `x // y`, with the sign of `y`."""

    @computed_by(ops.Binary("and"))
    def _bitwise_and(x: Value, y: Value) -> Tensor:
        """`x & y` of bools or integers, elementwise."""

    @computed_by(ops.Binary("or"))
    def _bitwise_or(x: Value, y: Value) -> Tensor:
        """`x | y` of bools or integers, elementwise."""

    @computed_by(ops.Binary("xor"))
    def _bitwise_xor(x: Value, y: Value) -> Tensor:
        """`x ^ y` of bools or integers, elementwise."""

    @computed_by(ops.Binary("maximum"))
    def _maximum(x: Value, y: Value) -> Tensor:
        """The greater of `x` and `y`, elementwise; NaN if one is NaN."""

    @computed_by(ops.Binary("minimum"))
    def _minimum(x: Value, y: Value) -> Tensor:
        """The lesser of `x` and `y`, elementwise; NaN if one is NaN."""

    @computed_by(ops.Compare("eq"))
    def _equal(x: Value, y: Value) -> Tensor:
        """`x == y`, elementwise, as a bool."""

    @computed_by(ops.Compare("ne"))
    def _not_equal(x: Value, y: Value) -> Tensor:
        """`x != y`, elementwise, as a bool."""

    @computed_by(ops.Compare("lt"))
    def _less(x: Value, y: Value) -> Tensor:
        """`x < y`, elementwise, as a bool."""

    @computed_by(ops.Compare("le"))
    def _less_equal(x: Value, y: Value) -> Tensor:
        """`x <= y`, elementwise, as a bool."""

    @computed_by(ops.Compare("gt"))
    def _greater(x: Value, y: Value) -> Tensor:
        """`x > y`, elementwise, as a bool."""

    @computed_by(ops.Compare("ge"))
    def _greater_equal(x: Value, y: Value) -> Tensor:
        """`x >= y`, elementwise, as a bool."""

    @checked
    def _bitwise_not(x: Value) -> Tensor:
        """Integers with all bits inverted; for bools, logical not."""
        tensor = as_tensor(x)
        return apply(ops.Unary("not"), tensor) if tensor.dtype == "bool" else inverted_bits(tensor)

    @checked
    def _matmul(x: Value, y: Value) -> Tensor:
        """Matrix product by NumPy's rules: vectors contract; leading dimensions broadcast."""
        a, b = factors(x, y)
        if a.rank == 0 or b.rank == 0:
            raise ShapeError(
                f"matmul takes vectors, matrices or stacks of them, got {a!r} and {b!r}", hint="to multiply by a number: x * y"
            )
        inner = b.rank - 2 if b.rank > 1 else 0
        if a.type.shape[-1] != b.type.shape[inner]:
            transposed = (
                ". To sum over the last size of both: x @ y.transpose()"
                if b.rank == 2 and a.type.shape[-1] == b.type.shape[1]
                else ""
            )
            raise ShapeError(
                f"cannot multiply {a!r} by {b!r}: the sizes {a.type.shape[-1]} and {b.type.shape[inner]} differ",
                hint=f"in x @ y, the last size of x must equal the {'last but one' if b.rank > 1 else 'only'} size of y{transposed}",
            )
        if b.rank <= 2:
            return apply(ops.Dot((a.rank - 1,), (inner,)), a, b)
        if a.rank == 1:
            return apply(ops.Dot((0,), (inner,)), a, b)
        batch = broadcast_shapes(a.type.shape[:-2], b.type.shape[:-2])
        a, b = a.broadcast_to((*batch, *a.type.shape[-2:])), b.broadcast_to((*batch, *b.type.shape[-2:]))
        shared = tuple(range(len(batch)))
        return apply(ops.Dot((a.rank - 1,), (b.rank - 2,), shared, shared), a, b)

    @staticmethod
    def _factors(x: Value, y: Value) -> tuple[Tensor, Tensor]:
        """Two operands of a product in one dtype; bools count as 0 and 1."""
        a, b = promoted(x, y)
        return (a.astype("int32"), b.astype("int32")) if a.dtype == "bool" else (a, b)

    # -- operators -------------------------------------------------------------------------------------------------------

    @operator_of(_add)
    def __add__(self, other: Value) -> Tensor: ...
    @operator_of(_add, mirrored=True)
    def __radd__(self, other: Value) -> Tensor: ...
    @operator_of(_subtract)
    def __sub__(self, other: Value) -> Tensor: ...
    @operator_of(_subtract, mirrored=True)
    def __rsub__(self, other: Value) -> Tensor: ...
    @operator_of(_multiply)
    def __mul__(self, other: Value) -> Tensor: ...
    @operator_of(_multiply, mirrored=True)
    def __rmul__(self, other: Value) -> Tensor: ...
    @operator_of(_divide)
    def __truediv__(self, other: Value) -> Tensor: ...
    @operator_of(_divide, mirrored=True)
    def __rtruediv__(self, other: Value) -> Tensor: ...
    @operator_of(_floor_divide)
    def __floordiv__(self, other: Value) -> Tensor: ...
    @operator_of(_floor_divide, mirrored=True)
    def __rfloordiv__(self, other: Value) -> Tensor: ...
    @operator_of(_remainder)
    def __mod__(self, other: Value) -> Tensor: ...
    @operator_of(_remainder, mirrored=True)
    def __rmod__(self, other: Value) -> Tensor: ...
    @operator_of(_power)
    def __pow__(self, other: Value) -> Tensor: ...
    @operator_of(_power, mirrored=True)
    def __rpow__(self, other: Value) -> Tensor: ...
    @operator_of(_matmul)
    def __matmul__(self, other: Value) -> Tensor: ...
    @operator_of(_matmul, mirrored=True)
    def __rmatmul__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_and)
    def __and__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_and, mirrored=True)
    def __rand__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_or)
    def __or__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_or, mirrored=True)
    def __ror__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_xor)
    def __xor__(self, other: Value) -> Tensor: ...
    @operator_of(_bitwise_xor, mirrored=True)
    def __rxor__(self, other: Value) -> Tensor: ...
    @operator_of(_less)
    def __lt__(self, other: Value) -> Tensor: ...
    @operator_of(_less_equal)
    def __le__(self, other: Value) -> Tensor: ...
    @operator_of(_greater)
    def __gt__(self, other: Value) -> Tensor: ...
    @operator_of(_greater_equal)
    def __ge__(self, other: Value) -> Tensor: ...
    @operator_of(_equal)
    def __eq__(self, other: Value) -> Tensor: ...  # type: ignore[override]
    @operator_of(_not_equal)
    def __ne__(self, other: Value) -> Tensor: ...  # type: ignore[override]

    __neg__, __invert__ = _negative, _bitwise_not

    def __hash__(self) -> int:
        return id(self)

    def __pos__(self: Tensor) -> Tensor:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **keywords: Any) -> Tensor:
        """Operators with an array on the left, such as `array + x`. Other functions of NumPy raise an ArgumentError."""
        function = next((each for each in self._of_ufuncs if each.__name__ == ufunc.__name__), None)
        if how == "__call__" and function is not None and not keywords and len(inputs) == 2:
            return function(*inputs)
        raise self._refusal(f"np.{ufunc.__name__}")

    _of_ufuncs = (
        _add, _subtract, _multiply, _divide, _floor_divide, _remainder, _power, _matmul, _bitwise_and, _bitwise_or,
        _equal, _not_equal, _less, _less_equal, _greater, _greater_equal,
    )  # fmt: skip


factors = Operators[Any]._factors


def inverted_bits(x: Tensor) -> Tensor:
    """`-x - 1` for signed integers, `largest - x` for unsigned ones, which reverses their order."""
    if is_float(x.dtype):
        raise DTypeError(f"~ takes bools or integers, got {x!r}", hint="compare first: ~(x > 0)")
    ones = constant_op(255 if x.dtype == "uint8" else 2**32 - 1 if x.dtype == "uint32" else -1, x.dtype)
    return x._bitwise_xor(apply(ones))


def reversed_order(x: Tensor) -> Tensor:
    """A tensor in reverse order: the greatest element of `x` becomes the least. Applied twice, it gives `x`."""
    return x._bitwise_not() if x.dtype == "bool" else -x if is_float(x.dtype) else inverted_bits(x)
