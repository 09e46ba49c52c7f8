"""The fixed rules behind choices that depend on a price: vectorize or loop, write out or roll, keep or compute again.

Each rule is a constant or a function with its reason. No pass holds a threshold of its own. A cost model will take the place of
these rules; until then, they can be read here in one go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.expr import Expr, Symbol

# Vectorize or loop: ops that are much faster at once than point by point. A group with one of them is vectorized, even if more
# values have to be kept for it.
FASTER_AT_ONCE = (ops.Dot, ops.Conv, ops.CumSum, ops.CumMax, ops.LinearScan, ops.DiscountedSum, ops.Argsort, ops.Udf)

# Trim: ops whose second copy (of a peeled last iteration) costs next to nothing, and ops whose second copy costs much.
FREE_TO_COPY = (ops.Merge, ops.Eval, ops.Iota, ops.Broadcast, ops.Gather, ops.Reshape, ops.Identity, ops.Cast, ops.Constant)
DEAR_TO_COPY = (ops.Dot, ops.Conv, ops.Udf, ops.Argsort)

NOMINAL = 16  # the value of every bound in comparisons of sizes, where bounds are not known yet

# Schedule: 60 connected statements take isl some tenths of a second, 160 take seconds, some hundred take hours.
MOST_STATEMENTS_FOR_ISL = 60

# Launches: the end of a host loop's iteration and the start of the next are one launch, which is compiled beside copies of both.
# A copy of up to so many operations compiles in some tenths of a second.
MOST_COPIED_OPERATIONS = 200

# A launch costs the host 20 to 60 microseconds, about as much as 20 small operations. These ops may take longer, so the host
# does not wait for them if it needs other values.
WORTH_A_LAUNCH = (ops.Dot, ops.Conv, ops.Argsort, ops.LinearScan, ops.DiscountedSum)

# Long loops of the device run as several launches, so that signals are served between them. The estimate below may be a few times
# too low: a loop is cut from half of the wanted length on.
LONG_LOOP = 0.5

# Seconds on one CPU core: of any operation, of one element of a result, of one multiplication with its addition.
# A user's function, which may hold any number of operations, counts as some.
SECONDS_OF_AN_OPERATION, SECONDS_OF_AN_ELEMENT, SECONDS_OF_A_PRODUCT = 5e-7, 1e-9, 5e-11
OPERATIONS_OF_A_FUNCTION = 30


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def copy_weight(node: Node) -> int:
    """The rough cost of a second copy of a node in a program."""
    return 0 if isinstance(node.op, FREE_TO_COPY) else 10 if isinstance(node.op, DEAR_TO_COPY) else 1


def operations(node: Node) -> int:
    """The number of operations of a statement."""
    return len(node.op.body.instructions) if isinstance(node.op, ops.Dataflow) else 1


def is_worth_a_launch(node: Node) -> bool:
    """Whether a statement takes so long that the host should not wait for it without need."""
    inner = [op for op, _, _ in node.op.body.instructions] if isinstance(node.op, ops.Dataflow) else [node.op]
    return any(isinstance(op, WORTH_A_LAUNCH) for op in inner)


def rough_seconds(node: Node, operands: Sequence[TensorType], env: Mapping[Symbol, int]) -> float:
    """A rough estimate of how long a statement runs on a CPU, at a point with these bounds and steps."""
    if not isinstance(node.op, ops.Dataflow):
        return _seconds(node.op, operands, node.outputs, env)
    body = node.op.body
    types = body.slot_types
    return sum(_seconds(op, [types[k] for k in used], [types[k] for k in given], env) for op, used, given in body.instructions)


def _seconds(op: ops.Op, operands: Sequence[TensorType], results: Sequence[TensorType], env: Mapping[Symbol, int]) -> float:
    written = sum(_elements(type, env) for type in results)
    seconds = SECONDS_OF_AN_OPERATION + written * SECONDS_OF_AN_ELEMENT
    read = sum(_elements(type, env) for type in operands)
    if isinstance(op, ops.Udf):
        seconds += OPERATIONS_OF_A_FUNCTION * SECONDS_OF_AN_OPERATION
    if isinstance(op, ops.Dot):
        return seconds + written * _length(op, operands[0], env) * SECONDS_OF_A_PRODUCT
    if isinstance(op, ops.Conv):
        kernel = math.prod(size.evaluate(env) for size in operands[1].shape[:-1])
        return seconds + written * kernel * SECONDS_OF_A_PRODUCT
    return seconds + read * SECONDS_OF_AN_ELEMENT


def _length(op: ops.Dot, left: TensorType, env: Mapping[Symbol, int]) -> int:
    """The number of products that an element of a contraction sums."""
    return math.prod(left.shape[axis].evaluate(env) for axis in op.left_contract)


def _elements(type: TensorType, env: Mapping[Symbol, int]) -> int:
    return math.prod(max(size.evaluate(env), 0) for size in type.shape)
