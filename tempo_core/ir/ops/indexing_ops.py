"""Indexing by data."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, check
from tempo_core.ir.ops.work import FUSED, INDEXED, MEMORY, Work, each_result, product, size
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr


def _scattered(op: Scatter, inputs: Types, outputs: Types) -> Expr:
    return size(inputs[0]) if inputs[1].rank > op.batch else size(outputs[0])


def _of_updates(op: Update, inputs: Types, outputs: Types) -> Expr:
    return size(inputs[1])


def _indexed(op: Gather | Scatter, inputs: Types) -> str:
    """A single index makes a slice, or a comparison with all positions."""
    return MEMORY if inputs[1].rank > 0 else FUSED


@dataclass(frozen=True)
class Gather(Op):
    """`x[..., index, ...]` along `axis`, for (x, int32 index): the index's dimensions stand where `axis` stood.

    The first `batch` dimensions of both operands are shared (`axis >= batch`). A scalar index removes the axis.
    Indices outside the axis are clamped to its ends; an axis without elements gives zeros. With a `length`, elements from there on are
    padding: wherever an index reaches it, the result is masked, so that anything may stand there (`runtime/lower/padding.py`).
    """

    work = Work(each_result, _indexed, INDEXED)
    axis: int
    batch: int = 0
    length: Expr | None = None

    def infer(self, inputs: Types) -> Types:
        x, index = inputs
        check(index.dtype == "int32", f"an index tensor is int32, got {index}", DTypeError)
        check(self.batch <= self.axis < x.rank, f"cannot index axis {self.axis} of {x}")
        check(x.shape[: self.batch] == index.shape[: self.batch], f"batch dimensions of {x} and {index} differ")
        return (TensorType(x.dtype, (*x.shape[: self.axis], *index.shape[self.batch :], *x.shape[self.axis + 1 :])),)


# What updates of one position do to each other and to what is there, and the element that this leaves as it is.
COMBINING: dict[str, float | str] = {"add": 0.0, "mul": 1.0, "maximum": "lowest", "minimum": "highest"}


@dataclass(frozen=True)
class Scatter(Op):
    """`size` elements along `axis`, each the sum of those (updates, int32 index) that have its position; with "add", the transpose of `Gather`.

    `fn` is one of `COMBINING`, whose element a position has that none of them has. Updates have the shape that `Gather(axis, batch)`
    gives for that index. Indices outside the axis are dropped.
    """

    work = Work(_scattered, _indexed, INDEXED)
    axis: int
    size: Expr
    batch: int = 0
    fn: str = "add"

    @property
    def unwritten(self) -> float | str:
        """The element of a position that no update has."""
        return COMBINING[self.fn]

    def infer(self, inputs: Types) -> Types:
        updates, index = inputs
        check(index.dtype == "int32", f"an index tensor is int32, got {index}", DTypeError)
        check(updates.dtype != "bool", f"a scatter takes numbers, got {updates}; cast with .astype('int32')", DTypeError)
        wide = index.rank - self.batch
        check(
            updates.shape[: self.batch] == index.shape[: self.batch]
            and updates.shape[self.axis : self.axis + wide] == index.shape[self.batch :],
            f"cannot scatter {updates} by {index} along axis {self.axis}",
        )
        return (TensorType(updates.dtype, (*updates.shape[: self.axis], self.size, *updates.shape[self.axis + wide :])),)


@dataclass(frozen=True)
class Update(Op):
    """`x` with other elements at positions of `axis`, for (x, updates, int32 index): `set` in place of those of x, or `fn`
    of both, which is one of `COMBINING`.

    Updates have the shape that `Gather(axis, batch)` gives for that index. Indices outside the axis are dropped. For `set`, those inside
    differ from each other. So many `axes`, of which `axis` is the first, are one axis to the index, in row-major order. Only what is at
    these positions is written, where nothing reads x later (`backends/xla_cpu/kept.py`).
    """

    work = Work(_of_updates, MEMORY, INDEXED)
    fn: str
    axis: int
    batch: int = 0
    axes: int = 1

    @property
    def updated(self) -> frozenset[int]:
        return frozenset({0})

    def infer(self, inputs: Types) -> Types:
        x, updates, index = inputs
        several = x.shape[self.axis : self.axis + self.axes]
        flat = TensorType(x.dtype, (*x.shape[: self.axis], product(several), *x.shape[self.axis + self.axes :]))
        (part,) = Gather(self.axis, self.batch).infer((flat, index))
        check(updates.dtype == x.dtype, f"updates of {x} have its dtype, got {updates}", DTypeError)
        check(self.fn == "set" or x.dtype != "bool", f"`{self.fn}` takes numbers, got {x}", DTypeError)
        check(updates.shape == part.shape, f"updates of {x} at {index} are {part}, got {updates}")
        return (x,)
