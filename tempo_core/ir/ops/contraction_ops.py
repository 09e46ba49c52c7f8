"""Contractions: the general one, and convolution."""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.errors import DTypeError
from tempo_core.ir.ops.base import Op, Types, check
from tempo_core.ir.ops.work import MEMORY, PRODUCT, Work, elements, size
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr


def _multiplied(op: Dot, inputs: Types, outputs: Types) -> Expr:
    return 2 * size(outputs[0]) * elements(tuple(inputs[0].shape[axis] for axis in op.left_contract))


def _convolved(op: Conv, inputs: Types, outputs: Types) -> Expr:
    return 2 * size(outputs[0]) * elements(inputs[1].shape[:-1])  # the kernel's sizes, and the channels of a group


@dataclass(frozen=True)
class Dot(Op):
    """General contraction. Output dimensions: batch (in the order given), then the left's free, then the right's free."""

    work = Work(_multiplied, MEMORY, PRODUCT)
    left_contract: tuple[int, ...]
    right_contract: tuple[int, ...]
    left_batch: tuple[int, ...] = ()
    right_batch: tuple[int, ...] = ()

    def infer(self, inputs: Types) -> Types:
        a, b = inputs
        check(a.dtype == b.dtype, f"a contraction takes operands of one dtype, got {a} and {b}", DTypeError)
        check(a.dtype != "bool", f"a contraction takes numbers, got {a}; cast with .astype('int32')", DTypeError)
        for i, j in zip(self.left_contract + self.left_batch, self.right_contract + self.right_batch, strict=True):
            check(
                a.shape[i] == b.shape[j],
                f"contraction of {a} with {b}: size {a.shape[i]} (axis {i}) against {b.shape[j]} (axis {j})",
            )
        batch = tuple(a.shape[i] for i in self.left_batch)
        left = tuple(a.shape[i] for i in self.left_free(a.rank))
        right = tuple(b.shape[j] for j in self.right_free(b.rank))
        return (TensorType(a.dtype, batch + left + right),)

    def left_free(self, rank: int) -> tuple[int, ...]:
        return tuple(i for i in range(rank) if i not in self.left_contract + self.left_batch)

    def right_free(self, rank: int) -> tuple[int, ...]:
        return tuple(j for j in range(rank) if j not in self.right_contract + self.right_batch)


@dataclass(frozen=True)
class Conv(Op):
    """Convolution, as in deep learning (the kernel is not flipped), of (x, w) over their spatial dimensions.

    x is `[*batch, *spatial, channels]`, w is `[*kernel, channels // groups, features]`, the result `[*batch, *out, features]`:
    `out[p, f] = sum over k, c of x[p * stride + k * dilation - low, c] * w[k, c, f]`, where x is zero outside of its axes, and
    has `spread - 1` zeros between two of its elements. With `groups`, the channels and the features are cut into as many blocks,
    and each block of features sees one block of channels. The fields hold one number per spatial dimension; `high` zeros
    stand past the end (a negative `high` cuts elements off). The gradients of a convolution are convolutions.
    """

    work = Work(_convolved, MEMORY, PRODUCT)
    strides: tuple[int, ...]
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    dilation: tuple[int, ...]
    spread: tuple[int, ...]
    groups: Expr

    @property
    def spatial(self) -> int:
        """The number of spatial dimensions."""
        return len(self.strides)

    def out_size(self, k: int, size: Expr, kernel: Expr) -> Expr:
        """The size of output dimension k for an input and a kernel of these sizes."""
        return (self.span(k, size) + self.low[k] + self.high[k] - self.extent(k, kernel)) // self.strides[k] + 1

    def high_for(self, k: int, size: Expr, kernel: Expr, out: Expr) -> Expr:
        """The value of `high` of dimension k that gives an output of size `out`."""
        return (out - 1) * self.strides[k] + self.extent(k, kernel) - self.low[k] - self.span(k, size)

    def span(self, k: int, size: Expr) -> Expr:
        """The size of x with the zeros between its elements."""
        return (size - 1) * self.spread[k] + 1

    def extent(self, k: int, kernel: Expr) -> Expr:
        """The number of elements that a kernel of this size reaches over."""
        return (kernel - 1) * self.dilation[k] + 1

    def infer(self, inputs: Types) -> Types:
        x, w = inputs
        n = self.spatial
        check(x.dtype == w.dtype, f"a convolution takes operands of one dtype, got {x} and {w}", DTypeError)
        check(x.dtype != "bool", f"a convolution takes numbers, got {x}; cast with .astype('int32')", DTypeError)
        check(w.rank == n + 2, f"the kernel of a convolution over {n} dimensions has {n + 2}, got {w}")
        check(x.rank >= n + 1, f"a convolution over {n} dimensions takes [..., {n} sizes, channels], got {x}")
        check(
            x.shape[-1] == w.shape[n] * self.groups,
            f"a convolution in {self.groups} group(s) of {x}, which has {x.shape[-1]} channels, with {w}, which takes {w.shape[n]} a group",
        )
        rest = w.shape[-1] % self.groups
        check(not rest.is_constant or rest == 0, f"{w.shape[-1]} features do not divide into {self.groups} groups")
        before = x.rank - n - 1
        out = tuple(self.out_size(k, x.shape[before + k], w.shape[k]) for k in range(n))
        for k, length in enumerate(out):
            fits = not length.is_constant or length.constant >= 0
            check(fits, f"the kernel of {w} is larger than {x} with its padding, along spatial dimension {k}")
        return (TensorType(x.dtype, (*x.shape[:before], *out, w.shape[-1])),)
