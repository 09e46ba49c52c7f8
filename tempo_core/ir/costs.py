"""What one execution of an op costs: its operations, and where its result is. One row an op.

The number of operations is that of the arithmetic on elements; a view has none, and a function of the user's counts what
the user says, or its results, as its inside is not ours to see. `place` says where a result is, after XLA's fusion on a CPU:

- `ALIAS`: where the operand is; nothing moves.
- `FUSED`: computed where it is read, and in memory only if several operations read it, or one that needs its operands in memory.
- `REDUCED`: in memory, but computed from operands that may be fused.
- `MEMORY`: in memory, and so are its operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tempo_core.errors import MissingRow
from tempo_core.ir import ops
from tempo_core.ir.ops import Op, Types, product
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, maximum
from tempo_core.symbolic.proof import provably_nonnegative

ALIAS, FUSED, REDUCED, MEMORY = "alias", "fused", "reduced", "memory"

RANDOM_WORK = 48  # operations a random number: XLA counts 48 for a uniform one, half of 20 rounds for two words

SCAN_WORK = 2  # operations an element: it is added to those before it in its block, and the sum to all blocks before (`backends/xla_cpu/cumulative.py`)

# These may be computed again for each of their readers: that costs less than to store them.
FREE = (ops.Broadcast, ops.Iota, ops.Eval, ops.Constant)

# These are computed in their reader, which asks of each element where it lies.
PADDINGS = (ops.Pad, ops.Concat)

# These read as many elements of their first operand as they give.
PARTS = (ops.Slice, ops.Gather)

# XLA on a CPU computes the operand of these before it reduces it; with the others, in the reduction's loop.
REDUCTIONS_OF_MEMORY = ("prod", "any", "all")


@dataclass(frozen=True)
class OpCost:
    """`operations` of (op, operand types, result types); `place` is one of the four, or a function of (op, operand types)."""

    operations: Callable[[Any, Types, Types], Expr]
    place: str | Callable[[Any, Types], str]


def size(type: TensorType) -> Expr:
    """The number of elements."""
    return elements(type.shape)


@functools.lru_cache(maxsize=4096)
def elements(shape: tuple[Expr, ...]) -> Expr:
    """The number of elements of a shape. A size that is negative at some points, where nobody needs the value, is 0 there."""
    return product(tuple(s if not s.steps or provably_nonnegative(s) else maximum(s, 0) for s in shape))


def _none(op: Op, inputs: Types, outputs: Types) -> Expr:
    return Expr.of(0)


def _result(op: Op, inputs: Types, outputs: Types) -> Expr:
    return sum((size(t) for t in outputs), Expr.of(0))


def _operand(op: Op, inputs: Types, outputs: Types) -> Expr:
    return size(inputs[0])


def _scanned(op: Op, inputs: Types, outputs: Types) -> Expr:
    return SCAN_WORK * size(inputs[0])


def _multiplied_and_added(op: Op, inputs: Types, outputs: Types) -> Expr:
    return 2 * size(inputs[0])


def _dot(op: ops.Dot, inputs: Types, outputs: Types) -> Expr:
    return 2 * size(outputs[0]) * elements(tuple(inputs[0].shape[axis] for axis in op.left_contract))


def _conv(op: ops.Conv, inputs: Types, outputs: Types) -> Expr:
    return 2 * size(outputs[0]) * elements(inputs[1].shape[:-1])  # the kernel's sizes, and the channels of a group


def _scattered(op: ops.ScatterAdd, inputs: Types, outputs: Types) -> Expr:
    return size(inputs[0]) if inputs[1].rank > op.batch else size(outputs[0])


def _indexed(op: ops.Gather | ops.ScatterAdd, inputs: Types) -> str:
    """A single index makes a slice, or a comparison with all positions."""
    return MEMORY if inputs[1].rank > 0 else FUSED


def _random(op: ops.Random, inputs: Types, outputs: Types) -> Expr:
    return RANDOM_WORK * size(outputs[0])


def _islands(op: ops.Dataflow, inputs: Types, outputs: Types) -> Expr:
    types = op.body.slot_types
    parts = (
        operations(each, tuple(types[s] for s in sources), tuple(types[s] for s in targets))
        for each, sources, targets in op.body.instructions
    )
    return sum(parts, Expr.of(0))


def _function(op: ops.Udf, inputs: Types, outputs: Types) -> Expr:
    return op.cost[0] if op.cost else _result(op, inputs, outputs)


def _reduced(op: ops.Reduce, inputs: Types) -> str:
    return MEMORY if op.fn in REDUCTIONS_OF_MEMORY else REDUCED


COSTS: Mapping[type[Op], OpCost] = {
    # sources
    ops.Constant: OpCost(_none, FUSED),
    ops.Iota: OpCost(_none, FUSED),
    ops.Eval: OpCost(_none, FUSED),
    ops.Input: OpCost(_none, MEMORY),
    ops.Random: OpCost(_random, MEMORY),
    # elementwise
    ops.Unary: OpCost(_result, FUSED),
    ops.Binary: OpCost(_result, FUSED),
    ops.Compare: OpCost(_result, FUSED),
    ops.Where: OpCost(_result, FUSED),
    ops.Cast: OpCost(_result, FUSED),
    ops.Identity: OpCost(_none, ALIAS),
    # views
    ops.Reshape: OpCost(_none, ALIAS),
    ops.Permute: OpCost(_none, FUSED),
    ops.Broadcast: OpCost(_none, FUSED),
    ops.Slice: OpCost(_none, FUSED),
    ops.Pad: OpCost(_none, FUSED),
    ops.Concat: OpCost(_none, FUSED),
    ops.Flip: OpCost(_none, FUSED),
    # indexing
    ops.Gather: OpCost(_result, _indexed),
    ops.ScatterAdd: OpCost(_scattered, _indexed),
    # reductions, scans, sorting
    ops.Reduce: OpCost(_operand, _reduced),
    ops.Argmax: OpCost(_operand, REDUCED),
    ops.Argsort: OpCost(_operand, MEMORY),  # times the logarithm of the axis' size: `sorted_axis`
    ops.CumSum: OpCost(_scanned, MEMORY),
    ops.CumMax: OpCost(_scanned, MEMORY),
    ops.LinearScan: OpCost(_multiplied_and_added, MEMORY),
    ops.DiscountedSum: OpCost(_multiplied_and_added, MEMORY),
    # contractions
    ops.Dot: OpCost(_dot, MEMORY),
    ops.Conv: OpCost(_conv, MEMORY),
    # structure
    ops.Merge: OpCost(_none, ALIAS),
    ops.Udf: OpCost(_function, MEMORY),
    ops.Sink: OpCost(_none, MEMORY),
    ops.End: OpCost(_none, MEMORY),
    ops.Output: OpCost(_none, MEMORY),
    ops.Dataflow: OpCost(_islands, MEMORY),
}


# XLA makes these a part of the operation that reads them, whatever their operands are. Views compute nothing: they move or repeat values.
OF_THEIR_READER = tuple(op for op, row in COSTS.items() if row.place in (ALIAS, FUSED))
VIEWS = tuple(op for op in OF_THEIR_READER if COSTS[op].operations is _none and op not in PADDINGS)


def _row(op: Op) -> OpCost:
    if type(op) not in COSTS:
        raise MissingRow(f"the costs of {type(op).__name__} are not in the table of tempo_core/ir/costs.py")
    return COSTS[type(op)]


def operations(op: Op, inputs: Types, outputs: Types) -> Expr:
    """The operations of one execution. Those of a sort are still to be multiplied by a logarithm (`sorted_axis`)."""
    return _row(op).operations(op, inputs, outputs)


def place(op: Op, inputs: Types) -> str:
    """Where the result of an op is."""
    where = _row(op).place
    return where if isinstance(where, str) else where(op, inputs)


def sorted_axis(op: Op, inputs: Types) -> Expr | None:
    """The size of the axis along which an op sorts; None for any other op."""
    return inputs[0].shape[op.axis] if isinstance(op, ops.Argsort) else None


def reads_in_memory(op: Op, inputs: Types, producer: Op | None, is_free: bool = False) -> bool:
    """Whether an op's operand, computed by `producer`, has to be in memory. `is_free`: it may be computed again for each reader.

    XLA computes a selection before it reduces it. It computes positions, and repeated values, inside of the gather that uses them.
    """
    if isinstance(op, ops.Gather) and is_free:
        return False
    where = place(op, inputs)
    return where == MEMORY or (where == REDUCED and isinstance(op, ops.Reduce) and isinstance(producer, ops.Where))
