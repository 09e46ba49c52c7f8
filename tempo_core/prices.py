"""The fixed rules behind choices that depend on a price: vectorize or loop, write out or roll, keep or compute again.

Each rule is a constant or a function with its reason. No pass holds a threshold of its own. A cost model will take the place of
these rules; until then, they can be read here in one go.
"""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.symbolic.expr import Expr

# Vectorize or loop: ops that are much faster at once than point by point. A group with one of them is vectorized, even if more
# values have to be kept for it.
FASTER_AT_ONCE = (ops.Dot, ops.Conv, ops.CumSum, ops.CumMax, ops.LinearScan, ops.DiscountedSum, ops.Argsort, ops.Udf)

# Trim: ops whose second copy (of a peeled last iteration) costs next to nothing, and ops whose second copy costs much.
FREE_TO_COPY = (ops.Merge, ops.Eval, ops.Iota, ops.Broadcast, ops.Gather, ops.Reshape, ops.Identity, ops.Cast, ops.Constant)
DEAR_TO_COPY = (ops.Dot, ops.Conv, ops.Udf, ops.Argsort)

NOMINAL = 16  # the value of every bound in comparisons of sizes, where bounds are not known yet

# Schedule: 60 connected statements take isl some tenths of a second, 160 take seconds, some hundred take hours.
MOST_STATEMENTS_FOR_ISL = 60


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def copy_weight(node: Node) -> int:
    """The rough cost of a second copy of a node in a program."""
    return 0 if isinstance(node.op, FREE_TO_COPY) else 10 if isinstance(node.op, DEAR_TO_COPY) else 1


# Unroll: on a CPU, a loop over layers is written out if each iteration would copy at least so many bytes of weights or of stores out
# of a larger array. A copy of 64 KiB takes some 5 microseconds, about as long as the operations that a small layer needs anyway.
LEAST_BYTES_TO_UNROLL = 64 * 1024
# XLA's CPU compiler takes about a millisecond for each operation that is written out: 10 seconds for the longest loops.
MOST_OPERATIONS_TO_UNROLL = 10_000
SECONDS_TO_COMPILE_AN_OPERATION = 1e-3


def pays_to_unroll(trips: int, operations: int, copied_bytes: int, on_cpu: bool) -> bool:
    """Whether to write out a loop inside another loop, whose iterations have so many operations and would each copy so many bytes.

    Elsewhere than on a CPU, products read their operands out of larger arrays, and loops stay loops.
    """
    return on_cpu and copied_bytes >= LEAST_BYTES_TO_UNROLL and trips * operations <= MOST_OPERATIONS_TO_UNROLL


# Write alone: XLA's CPU compiler repeats a write into a store in each operation that reads the store next, each on a copy of the whole
# store. A loop of one iteration around the write keeps it from that; such a loop takes some 2 microseconds.
LEAST_BYTES_TO_WRITE_ALONE = 64 * 1024


def pays_to_write_alone(store_bytes: int, on_cpu: bool) -> bool:
    """Whether to write into a store of this size in a loop of its own, where a range of the store is read in the same loop."""
    return on_cpu and store_bytes >= LEAST_BYTES_TO_WRITE_ALONE
