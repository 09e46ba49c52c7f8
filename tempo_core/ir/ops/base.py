"""The base of all ops, a frozen dataclass with its shape and dtype rule in `infer`; and the checks that rules share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from tempo_core.errors import DTypeError, ShapeError
from tempo_core.ir.ops.work import Types, Work
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.lazy import lazy


def check(condition: bool | Bool, message: str, error: type[ShapeError] | type[DTypeError] = ShapeError) -> None:
    if not condition:
        raise error(message)


def same_shape(name: str, types: Types) -> None:
    if not all(t.shape == types[0].shape for t in types):
        raise ShapeError(f"{name} takes operands of one shape, got {', '.join(map(str, types))}")


@dataclass(frozen=True)
class Op:
    """Base of all ops. `infer` gives the output types for the input types, or raises a `TempoError`.

    `work` is what an execution costs. `neutral` is the element past the end of the dimensions along which an op works that changes nothing
    ("lowest", "highest", or "last" in sorted order); None if any element may be there.
    """

    work: ClassVar[Work]

    @property
    def neutral(self) -> float | str | None:
        return None

    def infer(self, inputs: Types) -> Types:
        raise AssertionError(f"{type(self).__name__} defines no shape rule")

    @property
    def cost_class(self) -> str:
        """What an operation of it costs (`ir/ops/work.py`)."""
        return self.work.cost_class

    @property
    def parts(self) -> tuple[Op, ...]:
        """The operations that it is: those in an island, else itself."""
        return (self,)

    @property
    def updated(self) -> frozenset[int]:
        """The operands whose place its results may take."""
        return frozenset()

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        """The steps and bounds in the op's own parameters."""
        symbols: set[Symbol] = set()
        for f in fields(self):
            value = getattr(self, f.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, (Expr, Bool)):
                    symbols |= part.symbols
        return frozenset(symbols)


def along(type: TensorType, axis: int) -> TensorType:
    check(0 <= axis < type.rank, f"axis {axis} of a tensor with {type.rank} dimensions")
    return type


def without(shape: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
    check(0 <= axis < len(shape), f"axis {axis} of a tensor with {len(shape)} dimensions")
    return (*shape[:axis], *shape[axis + 1 :])


def replaced(shape: tuple[Expr, ...], axis: int, size: Expr) -> tuple[Expr, ...]:
    check(0 <= axis < len(shape), f"axis {axis} of a tensor with {len(shape)} dimensions")
    return (*shape[:axis], size, *shape[axis + 1 :])
