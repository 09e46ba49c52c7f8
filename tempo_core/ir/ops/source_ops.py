"""Ops without tensor operands: constants, positions, expressions of steps, inputs, random numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tempo_core.ir.ops.base import Op, Types, check
from tempo_core.ir.ops.work import CALL, MEMORY, TAKEN, VIEWED, Work, size
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr

RANDOM_WORK = 48  # operations a random number: XLA counts 48 for a uniform one, half of 20 rounds for two words


def _of_random(op: Random, inputs: Types, outputs: Types) -> Expr:
    return RANDOM_WORK * size(outputs[0])


@dataclass(frozen=True)
class Constant(Op):
    """A literal array: `data` holds its bytes in row-major order, `sizes` its shape."""

    work = VIEWED
    dtype: str
    sizes: tuple[int, ...]
    data: bytes = field(repr=False)

    def infer(self, inputs: Types) -> Types:
        return (TensorType.of(self.dtype, *self.sizes),)


@dataclass(frozen=True)
class Iota(Op):
    """`0, 1, ..., size - 1` as int32."""

    work = VIEWED
    size: Expr

    def infer(self, inputs: Types) -> Types:
        return (TensorType("int32", (self.size,)),)


@dataclass(frozen=True)
class Eval(Op):
    """The value of a symbolic expression (int32) or condition (bool) at the node's point, as a scalar."""

    work = VIEWED
    value: Expr | Bool

    def infer(self, inputs: Types) -> Types:
        return (TensorType("bool" if isinstance(self.value, Bool) else "int32"),)


@dataclass(frozen=True)
class Input(Op):
    """An array that is fed when the program runs, by `name`."""

    work = TAKEN
    name: str
    dtype: str
    shape: tuple[Expr, ...]

    def infer(self, inputs: Types) -> Types:
        return (TensorType(self.dtype, self.shape),)


@dataclass(frozen=True)
class Random(Op):
    """Random numbers as a function of (run seed, `stream`, coordinates): operands are int32 coordinates of one shape `c`.

    Scalar coordinates (`c = ()`) give `shape`; after vectorization they are vectors, and the result is `c + shape`.
    `kind`: "uniform" in [0, 1), "normal" (float32), or "bits" (uint32). `stream` numbers the calls in a program. With `seeded`, the first
    coordinate is added to the seed: the numbers are those of a run with that seed, at the other coordinates.
    """

    work = Work(_of_random, MEMORY, CALL)
    kind: str
    stream: int
    shape: tuple[Expr, ...]
    seeded: bool = False

    def infer(self, inputs: Types) -> Types:
        same = inputs[0].shape if inputs else ()
        check(all(t.shape == same for t in inputs), "random coordinates must have one shape")
        return (TensorType("uint32" if self.kind == "bits" else "float32", (*same, *self.shape)),)
