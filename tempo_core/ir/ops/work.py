"""What one execution of an op costs: its operations, and where its result is. Each op has a `work`.

The number of operations is that of the arithmetic on elements; a view has none, and a function of the user's counts what
the user says, or its results, as its inside is not ours to see. `place` says where a result is, after XLA's fusion on a CPU:

- `ALIAS`: where the operand is; nothing moves.
- `FUSED`: computed where it is read, and in memory only if several operations read it, or one that needs its operands in memory.
- `REDUCED`: in memory, but computed from operands that may be fused.
- `MEMORY`: in memory, and so are its operands.

`cost_class` says what an operation of it costs, for the choices that ask only that:

- `HELD`: nothing is computed; the value is handed over, or is there.
- `VIEW`: elements are moved or repeated, or follow from positions.
- `INDEXED`: elements at positions that data decides are read or written.
- `CHEAP`: a vector instruction an element.
- `PLAIN`: some of them, as a division.
- `DEAR`: some ten of them: XLA computes the function by a polynomial.
- `REDUCED`, `PRODUCT`, `SORT`: reductions, contractions, sorts.
- `SCAN`: each element waits for the one before it.
- `CALL`: many operations in one: functions of the user's, random numbers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, maximum
from tempo_core.symbolic.proof import provably_nonnegative

Types = tuple[TensorType, ...]

ALIAS, FUSED, REDUCED, MEMORY = "alias", "fused", "reduced", "memory"
HELD, VIEW, INDEXED, CHEAP, PLAIN, DEAR = "held", "view", "indexed", "cheap", "plain", "dear"
PRODUCT, SORT, SCAN, CALL = "product", "sort", "scan", "call"


@dataclass(frozen=True)
class Work:
    """`operations` of (op, operand types, result types); `place` is one of the four, or a function of (op, operand types).

    An elementwise function has the `cost_class` of its row.
    """

    operations: Callable[[Any, Types, Types], Expr]
    place: str | Callable[[Any, Types], str]
    cost_class: str


def product(sizes: tuple[Expr, ...]) -> Expr:
    return functools.reduce(operator.mul, sizes, Expr.of(1))


@functools.lru_cache(maxsize=4096)
def elements(shape: tuple[Expr, ...]) -> Expr:
    """The number of elements of a shape. A size that is negative at some points, where nobody needs the value, is 0 there."""
    return product(tuple(s if not s.steps or provably_nonnegative(s) else maximum(s, 0) for s in shape))


def size(type: TensorType) -> Expr:
    """The number of elements."""
    return elements(type.shape)


def nothing(op: Any, inputs: Types, outputs: Types) -> Expr:
    return Expr.of(0)


def each_result(op: Any, inputs: Types, outputs: Types) -> Expr:
    return sum((size(t) for t in outputs), Expr.of(0))


def each_operand(times: int = 1) -> Callable[[Any, Types, Types], Expr]:
    """So many operations for each element of the first operand."""
    return lambda op, inputs, outputs: times * size(inputs[0])


VIEWED, COMPUTED, TAKEN = Work(nothing, FUSED, VIEW), Work(each_result, FUSED, CHEAP), Work(nothing, MEMORY, HELD)
