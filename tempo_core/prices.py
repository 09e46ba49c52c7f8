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

# Vectorize: ops of many operations each, which leave a loop that they do not depend on (a draw of random numbers is about 100
# operations of XLA), and the most elements that may be kept for this, with the nominal number for each bound.
MANY_OPERATIONS = (ops.Random, ops.Udf)
MOST_KEPT = 4096

# Precompute: the fewest operations of a function's part that are worth a function of their own.
FEWEST_OPERATIONS = 8

# Vectorize: the most regions (of all other steps) that the branches of a recurrence may have. Each is a selection of its own.
MOST_REGIONS = 8

# Trim: the most different ends (far before the last point) in the loop over a step. Each may be one more copy of its body.
MOST_ENDS = 3

# Trim: ops whose second copy (of a peeled last iteration) costs next to nothing, and ops whose second copy costs much.
FREE_TO_COPY = (ops.Merge, ops.Eval, ops.Iota, ops.Broadcast, ops.Gather, ops.Reshape, ops.Identity, ops.Cast, ops.Constant)
DEAR_TO_COPY = (ops.Dot, ops.Conv, ops.Udf, ops.Argsort)

NOMINAL = 16  # the value of every bound in comparisons of sizes, where bounds are not known yet

# Schedule: the most iterations that are cut off a loop because a condition on inner loops too (`i + j >= 1`) varies only in them.
# The other iterations then have no condition. Each cut compiles the body once more.
MOST_PEELED = 2

# Schedule: 60 connected statements take isl some tenths of a second, 160 take seconds, some hundred take hours.
MOST_STATEMENTS_FOR_ISL = 60


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def copy_weight(node: Node) -> int:
    """The rough cost of a second copy of a node in a program."""
    return 0 if isinstance(node.op, FREE_TO_COPY) else 10 if isinstance(node.op, DEAR_TO_COPY) else 1
