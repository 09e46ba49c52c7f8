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

# isl's scheduler sees statements with more pieces as one piece around all their points.
MOST_PIECES_TO_SCHEDULE = 3

# Storage: isl compares all pieces of a value's writes and reads with each other. 16 pieces take it a few milliseconds, 100 take
# seconds. Lifetimes of values with more pieces are bounded from above.
MOST_PIECES_TO_COMPARE = 16


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def copy_weight(node: Node) -> int:
    """The rough cost of a second copy of a node in a program."""
    return 0 if isinstance(node.op, FREE_TO_COPY) else 10 if isinstance(node.op, DEAR_TO_COPY) else 1
