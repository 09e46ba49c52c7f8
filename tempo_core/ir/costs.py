"""Costs of ops: which are a part of their reader, and what has to be in memory, after XLA's fusion on a CPU. Each op says its own `work`."""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.ops import Op, Types
from tempo_core.ir.ops.work import ALIAS, CHEAP, DEAR, FUSED, MEMORY, PLAIN, REDUCED, nothing
from tempo_core.symbolic.expr import Expr

# These may be computed again for each of their readers: that costs less than to store them.
FREE = (ops.Broadcast, ops.Iota, ops.Eval, ops.Constant)

# These are computed in their reader, which asks of each element where it lies.
PADDINGS = (ops.Pad, ops.Concat)

# These read as many elements of their first operand as they give.
PARTS = (ops.Slice, ops.Gather)


def every_op(base: type[Op] = Op) -> list[type[Op]]:
    """The op set."""
    return [op for each in base.__subclasses__() for op in (each, *every_op(each))]


# XLA makes these a part of the operation that reads them, whatever their operands are. Views compute nothing: they move or repeat values.
OF_THEIR_READER = tuple(op for op in every_op() if op.work.place in (ALIAS, FUSED))
VIEWS = tuple(op for op in OF_THEIR_READER if op.work.operations is nothing and op not in PADDINGS)
ELEMENTWISE = (CHEAP, PLAIN, DEAR)  # classes of ops (`Op.cost_class`)


def operations(op: Op, inputs: Types, outputs: Types) -> Expr:
    """The operations of one execution. Those of a sort are still to be multiplied by a logarithm (`sorted_axis`)."""
    return op.work.operations(op, inputs, outputs)


def place(op: Op, inputs: Types) -> str:
    """Where the result of an op is."""
    where = op.work.place
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
