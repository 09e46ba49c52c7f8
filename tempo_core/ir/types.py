"""Types of tensors: a dtype and a shape whose sizes are symbolic expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.symbolic.lazy import lazy

FLOATS = ("float32", "bfloat16", "float16", "float64")
ROUNDED_ONCE = ("bfloat16", "float16")  # sums and products of these are computed in float32
INTEGERS = ("int8", "uint8", "int32", "uint32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
ITEM_SIZE = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "uint32": 4,
    "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


@dataclass(frozen=True)
class TensorType:
    """One value's dtype and shape. A size may depend on bounds and, before `pad`, on the steps of the node's domain."""

    dtype: str
    shape: tuple[Expr, ...] = ()

    @staticmethod
    def of(dtype: str, *shape: IntoExpr) -> TensorType:
        return TensorType(dtype, tuple(map(Expr.of, shape)))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @lazy
    def is_static(self) -> bool:
        """No size depends on a step."""
        return not any(size.steps for size in self.shape)

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> TensorType:
        return TensorType(self.dtype, tuple(size.substitute(values) for size in self.shape))

    def size_in_bytes(self, bounds: Mapping[Symbol, int]) -> int:
        count = ITEM_SIZE[self.dtype]
        for size in self.shape:
            count *= size.evaluate(bounds)
        return count

    def __str__(self) -> str:
        return self._text

    @lazy
    def _text(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
