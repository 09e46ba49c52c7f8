"""The fixed rules behind choices that depend on a price: vectorize or loop, write out or roll, keep or compute again.

Each rule is a constant or a function with its reason. No pass holds a threshold of its own. A cost model will take the place of
these rules; until then, they can be read here in one go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tempo_core.ir import costs, ops
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import product
from tempo_core.ir.types import ITEM_SIZE, TensorType, is_float
from tempo_core.symbolic.expr import Expr, Symbol

# Vectorize or loop: ops that are much faster at once than point by point. A group with one of them is vectorized, even if more
# values have to be kept for it.
FASTER_AT_ONCE = (ops.Dot, ops.Conv, ops.CumSum, ops.CumMax, ops.LinearScan, ops.DiscountedSum, ops.Argsort, ops.Udf)

# Vectorize: ops of many operations each, which leave a loop that they do not depend on (a draw of random numbers is about 100
# operations of XLA), and the most elements that may be kept for this, with the nominal number for each bound.
MANY_OPERATIONS = (ops.Random, ops.Udf)
MOST_KEPT = 4096

# Vectorize: how many times larger the products may be that leave a loop, than what is kept for all its points anyway (an LSTM has four gates).
MOST_GROWTH_BEFORE_A_LOOP = 4

# Vectorize: how many times smaller than what a loop makes a product of it is, at least, that stays in the loop so that only its result is kept.
LEAST_TIMES_SMALLER = 16

# Split: the fewest points before a place for which what is computed there is compiled once more, for all of these points at once.
FEWEST_POINTS_TO_SPLIT = 8

# Associate: the most factors of a chain of products that are reordered together. The search takes 3**n steps.
MOST_FACTORS = 6

# Strip: how many bytes the results and computed operands of a chain's products have, at least, before it runs in strips of rows, and about
# how many in one strip.
# What lies between the products then stays in the cache, and each strip is still long enough for all cores.
# PPO's gradient (512 environments, 250 steps, 64 units, 260 MiB) took the same time in strips of 5 to 25 MiB, and a sixth longer in those of 2;
# with 50 steps, by hand, whole is faster.
LEAST_BYTES_FOR_STRIPS = 64 * 2**20
BYTES_OF_A_STRIP = 10 * 2**20
# A divisor of the rows will do if it makes strips at most so many times smaller or larger. What each strip adds to is read and written
# again by each: all together at most this share of what the products write.
MOST_TIMES_OFF = 8
MOST_SHARE_ACCUMULATED = 0.5

# Precompute: the fewest operations of a function's part that are worth a function of their own.
FEWEST_OPERATIONS = 8

# Vectorize: the most regions (of all other steps) that the branches of a recurrence may have. Each is a selection of its own.
MOST_REGIONS = 8

# Wavefront: the fewest operations at each point of a table for which it runs by diagonals, if its points hold several elements or lie
# in other loops (or in a batch). XLA's CPU compiler makes a loop with fewer operations one piece of machine code, with vectors of those
# elements: it takes some 2 nanoseconds an element. A diagonal takes as long as some operations on vectors, and its operands are gathered.
FEWEST_OPERATIONS_FOR_A_WAVEFRONT = 8

# Trim: the most different ends (far before the last point) in the loop over a step. Each may be one more copy of its body.
MOST_ENDS = 3

# Trim: ops whose second copy (of a peeled last iteration) costs next to nothing, and ops whose second copy costs much.
FREE_TO_COPY = (ops.Merge, ops.Eval, ops.Iota, ops.Broadcast, ops.Gather, ops.Reshape, ops.Identity, ops.Cast, ops.Constant)
DEAR_TO_COPY = (ops.Dot, ops.Conv, ops.Udf, ops.Argsort)

NOMINAL = 16  # the value of every bound in comparisons of sizes, where bounds are not known yet

# Schedule: the most iterations that are cut off a loop because a condition on inner loops too (`i + j >= 1`) varies only in them.
# The other iterations then have no condition. Each cut compiles the body once more.
MOST_PEELED = 2

# Schedule: the greatest weight (`copy_weight`) of a loop's body of which a copy runs in its first or last iterations, so that the other
# iterations take over values without a condition. XLA runs a condition in a loop as a branch, or computes and selects among both values.
# Loops with few iterations, and loops around other loops, stay as they are.
MOST_WEIGHT_TO_PEEL = 24
SHORTEST_PEELED = 8

# Schedule: the share of a loop's body, by weight, that stands under a condition for which the loop is cut at a place that a run chooses.
LEAST_SHARE_TO_CUT_AT_VALUE = 0.5

# Schedule: 60 connected statements take isl some tenths of a second, 160 take seconds, some hundred take hours.
MOST_STATEMENTS_FOR_ISL = 60

# Schedule: the most dependences that are looked at to cut points off statements which no loop orders, round by round. Each takes about a
# millisecond. Beyond, there is an error instead of a program.
MOST_NEEDS_CUT = 50_000

# isl's scheduler sees statements with more pieces as one piece around all their points.
MOST_PIECES_TO_SCHEDULE = 3

# Build: isl's time for a shorter form of a condition doubles with each further division (`t % 7 == 3`). With more of them, the
# condition stays as it is written.
MOST_DIVISIONS_FOR_ISL = 6

# Storage: isl compares all pieces of a value's writes and reads with each other. 16 pieces take it a few milliseconds, 100 take
# seconds. Lifetimes of values with more pieces are bounded from above.
MOST_PIECES_TO_COMPARE = 16

# Launches: the end of a host loop's iteration and the start of the next are one launch, which is compiled beside copies of both.
# A copy of up to so many operations compiles in some tenths of a second.
MOST_COPIED_OPERATIONS = 200

# A launch costs the host 20 to 60 microseconds, about as much as 20 small operations. These ops may take longer, so the host
# does not wait for them if it needs other values.
WORTH_A_LAUNCH = (ops.Dot, ops.Conv, ops.Argsort, ops.LinearScan, ops.DiscountedSum)

# Long loops of the device run as several launches, so that signals are served between them. The estimate below may be a few times
# too low: a loop is cut from half of the wanted length on. A cut costs: XLA does not know how often such a loop runs, and the host waits for
# each launch. A stencil of 1,000 iterations, 5 milliseconds forward and 5 backward, took 19 in ten launches.
LONG_LOOP = 0.5

# Seconds on one CPU core: of any operation; of one that XLA makes a part of its reader; of one element of a result; of one that a vector
# instruction computes, or that only moves; of one multiplication with its addition. Loops of the classics take between a third and thrice
# of what follows from these; tables of single numbers, which XLA makes one piece of machine code, take a hundredth.
# A user's function, which may hold any number of operations, counts as some.
SECONDS_OF_AN_OPERATION, SECONDS_OF_A_FUSED_OPERATION = 5e-7, 1e-7
SECONDS_OF_AN_ELEMENT, SECONDS_OF_A_FAST_ELEMENT, SECONDS_OF_A_PRODUCT = 1e-9, 2e-10, 5e-11
OPERATIONS_OF_A_FUNCTION = 30

FAST_FUNCTIONS = (
    "neg", "abs", "sign", "not", "isfinite", "isnan", "add", "sub", "mul", "maximum", "minimum", "and", "or", "xor",
)  # fmt: skip


def is_worth_cutting_at_value(guarded: int, body: int) -> bool:
    """Whether a loop is cut, and compiled in two copies, where a condition on so much of its body changes."""
    return guarded > 0 and guarded >= LEAST_SHARE_TO_CUT_AT_VALUE * body


def is_worth_splitting(place: Expr) -> bool:
    """Whether what depends on earlier points only from a place on is computed apart before it."""
    return not place.is_constant or place.constant >= FEWEST_POINTS_TO_SPLIT


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def pays_to_multiply_before_the_loop(kept: int, read: int) -> bool:
    """Whether so many elements of products are kept so that they leave a loop, where so many elements are kept anyway to read them from.

    One product of matrices takes a fraction of the time of many products of vectors and matrices: each of them reads the whole matrix.
    """
    return kept <= MOST_GROWTH_BEFORE_A_LOOP * read


def pays_to_multiply_in_the_loop(operand: int, matrix: int, result: int) -> bool:
    """Whether a product of so many elements that a loop makes and a matrix stays in the loop, so that only its result is kept.

    The operand would be written to memory, and read again after the loop: 33 of the 69 MB of PPO's rollout, for the value of each state. Each
    iteration reads the matrix, so it must be small.
    """
    return LEAST_TIMES_SMALLER * result <= operand and matrix <= operand


def worth_scanning(element: TensorType, operands: Sequence[TensorType]) -> bool:
    """Whether the elements of a scan are no larger than the operands from which each is computed: all elements are kept at once.

    A product of vectors would be kept as a matrix for every point, where a loop keeps one.
    """
    return nominal(product(element.shape)) <= sum(nominal(product(type.shape)) for type in operands)


# Linear attention in blocks: the points of a block. Measured on two cores, in milliseconds, values and gradients of 8 rows of 500 points
# with vectors of 32 numbers: all pairs of points 10.3; blocks of 16, 32, 64, 128 and 256 points 4.1, 2.4, 2.8, 4.0 and 8.9.
# Where each element of a factor has a gate, a block has a product of gates for each pair of its points and each element: 4 heads of 1024
# points, 64 numbers wide, took 380, 310 and 380 ms in blocks of 4, 8 and 16 points, and 460 as one scan (noisy: other programs ran).
POINTS_OF_A_BLOCK = 32
POINTS_OF_A_BLOCK_OF_ELEMENTS = 8


def points_of_a_block(has_gates_of_elements: bool) -> int:
    """The points of a block of a running sum."""
    return POINTS_OF_A_BLOCK_OF_ELEMENTS if has_gates_of_elements else POINTS_OF_A_BLOCK


def is_worth_a_wavefront(nodes: Sequence[Node], factors: Sequence[TensorType]) -> bool:
    """Whether a table over two steps with these nodes should run by diagonals. In a table of single numbers, they are the only vectors.

    `factors` are what its products read at each row or column: matrices of weights would be copied for all points of each diagonal.
    """
    if any(len(factor.shape) >= 2 for factor in factors):
        return False
    single = all(len(node.domain.steps) <= 2 and all(not type.shape for type in node.outputs) for node in nodes)
    return single or sum(_operations(node.op) for node in nodes) >= FEWEST_OPERATIONS_FOR_A_WAVEFRONT


def _operations(op: ops.Op) -> int:
    """The number of arithmetic operations of an op that XLA computes on each element."""
    return 5 if isinstance(op, ops.Binary) and op.fn == "logaddexp" else int(copy_weight(op) > 0)


def copy_weight(op: ops.Op) -> int:
    """The rough cost of a second copy of an operation in a program."""
    if isinstance(op, ops.Dataflow):
        return sum(copy_weight(each) for each, _, _ in op.body.instructions)
    return 0 if isinstance(op, FREE_TO_COPY) else 10 if isinstance(op, DEAR_TO_COPY) else 1


# Scan in blocks: XLA on a CPU computes a cumulative sum or maximum by a tree, in some 16 operations an element. In blocks of 8, which are
# written out, it takes 3. Measured on two cores, in microseconds, maxima and sums: [5000, 64] along the first axis 1,760 and 920 as a tree,
# 330 and 330 one after the other, 215 and 155 in blocks of 8, 340 and 250 in blocks of 64; [64, 5000] along the last axis 2,040 and 1,390 as
# a tree, 340 and 530 in blocks of 8; [100000] 510 and 305, and 180 and 190. A short scan is a few operations of XLA in any form.
SCAN_BLOCK = 8
SHORTEST_SCAN_IN_BLOCKS = 64


def pays_to_scan_in_blocks(length: int, on_cpu: bool) -> bool:
    """Whether a cumulative sum or maximum of so many elements is computed in blocks, one block after the other."""
    return on_cpu and length >= SHORTEST_SCAN_IN_BLOCKS


# Write out windows: a window of w points at all points of a step is a gather of w elements for each; written out it is w slices, which XLA
# computes as a part of their reader. Each slice repeats the operations on the elements of the window, which XLA has to compile.
MOST_SHIFTS = 16
MOST_SHIFTED_OPERATIONS = 320


def pays_to_write_out_window(width: int, operations: int) -> bool:
    """Whether to write out a reduction of a window of so many points, with so many operations on its elements."""
    return width <= MOST_SHIFTS and width * operations <= MOST_SHIFTED_OPERATIONS


def pays_to_convolve(width: Expr) -> bool:
    """Whether a sum over windows of this width, with fixed weights, is a convolution."""
    return not width.is_constant or width.constant > MOST_SHIFTS


def is_worth_accumulating(elements: Expr) -> bool:
    """Whether a loop should reduce values of so many elements as it goes, in place of keeping them for a reduction after it.

    To keep one number an iteration takes one operation, as to add it up does, and hardly any memory.
    """
    return nominal(elements) > 1


def is_narrow(width: Expr, whole: Expr) -> bool:
    """Whether a window, at most `width` long, stays as it is if the dimension `whole` in which it lies grows.

    The gradient of a narrow window is one contribution for each of its elements. That of a wide one (a prefix) has as many
    contributions as the whole dimension has elements: these are spread to their places at once.
    """
    sizes = [dict.fromkeys(width.symbols, NOMINAL) | dict.fromkeys(whole.symbols, large) for large in (10**6, 10**7)]
    return width.evaluate(sizes[0]) == width.evaluate(sizes[1])


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
    return sum(
        _seconds(op, [types[k] for k in used], [types[k] for k in given], env)
        for op, used, given in body.instructions
        if not isinstance(op, costs.VIEWS)  # their readers compute the elements that they read
    )


def is_fast(op: ops.Op) -> bool:
    """Whether a vector instruction computes an operation, or it only moves or repeats values."""
    if isinstance(op, (ops.Unary, ops.Binary)):
        return op.fn in FAST_FUNCTIONS
    return isinstance(op, costs.OF_THEIR_READER)


def _seconds(op: ops.Op, operands: Sequence[TensorType], results: Sequence[TensorType], env: Mapping[Symbol, int]) -> float:
    written = sum(_elements(type, env) for type in results)
    # An elementwise operation is one with its operands too: only the elements of its result count.
    is_fused = isinstance(op, costs.PARTS) or (isinstance(op, costs.OF_THEIR_READER) and not isinstance(op, costs.VIEWS))
    seconds = SECONDS_OF_A_FUSED_OPERATION if is_fused else SECONDS_OF_AN_OPERATION
    seconds += written * (SECONDS_OF_A_FAST_ELEMENT if is_fast(op) else SECONDS_OF_AN_ELEMENT)
    if is_fused:
        return seconds
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


# Argmax: XLA's CPU compiler makes vector instructions of two plain reductions (of the maximum, and of the first place that equals it), but
# not of its own reduction of pairs. At 32 elements the two take 0.4 of its time, at 512 a fifteenth; at 20 and fewer 1.0 to 1.7 of it.
LEAST_LENGTH_TO_REDUCE_TWICE = 32


def pays_to_reduce_twice(length: int, on_cpu: bool) -> bool:
    """Whether to find the place of a maximum by two reductions along so many elements, in place of one of pairs."""
    return on_cpu and length >= LEAST_LENGTH_TO_REDUCE_TWICE


# Scan over values that are computed in it: XLA's CPU compiler writes the operands of a loop to memory. To compute them in the loop saves a
# write and a read of each element, and costs the operations again if something else reads the values too.
# Fast operations (of a mask: is this the greatest number so far?) cost less than the write and the read even if nothing shrinks.
LEAST_SHRINKING = 4
MOST_READ_BY_FAST_OPERATIONS = 2
MOST_OPERATIONS_IN_A_SCAN = 24


def pays_to_compute_in_scan(elements: int, read: int, operations: int, is_fast: bool) -> bool:
    """Whether a scan computes an operand of so many elements as it goes, by so many operations on arrays of `read` elements."""
    is_little = read * LEAST_SHRINKING <= elements or (is_fast and operations and read <= MOST_READ_BY_FAST_OPERATIONS * elements)
    return bool(is_little) and operations <= MOST_OPERATIONS_IN_A_SCAN


# Pick in the scan: where readers of a scan take few of its elements at each position, its loop picks them as it goes. It saves to write all
# elements at all positions, and to read them back. Measured on two CPU cores, in milliseconds, the whole program of counts of the past, in the
# loop and after a cumulative sum in blocks: 6,000 positions of 16 elements 0.5 and 1.0, of 64 1.2 and 2.1, of 128 0.9 and 1.7, of 1,024 3.3
# and 20.
def pays_to_pick_in_scan(elements: int, kept: int) -> bool:
    """Whether the loop of a scan with so many elements at each position computes what reads them, with so many results there."""
    return kept * LEAST_SHRINKING <= elements


# Scan along a dimension that lies within others: each number comes in a cache line of 16, and with many pieces the line is gone before the
# scan comes to its next number. Measured on two CPU cores, in milliseconds, for two arrays [pieces, length, together], where they lie and
# transposed first: (1024, 2000, 1) 28 and 19; (256, 1000, 1) 1.06 and 0.99; (16, 1000, 1) 0.065 and 0.075; (2, 100000, 1) 0.72 and 0.89;
# (1024, 250, 8) 8.5 and 6.8; (1024, 60, 32) 9.1 and 9.7.
NUMBERS_IN_A_CACHE_LINE = 16
LEAST_PIECES_TO_TRANSPOSE = 128


def pays_to_scan_transposed(pieces: int, together: int) -> bool:
    """Whether to transpose the array of a scan, each element of which lies in so many pieces of so many numbers."""
    return pieces >= LEAST_PIECES_TO_TRANSPOSE and together < NUMBERS_IN_A_CACHE_LINE


# Recompute: elementwise functions that take a few nanoseconds for many elements, and give the same bits wherever XLA computes them.
# (A product of floats may become one operation with a sum that reads it, which rounds once instead of twice.)
CHEAP_FUNCTIONS = tuple(fn for fn in FAST_FUNCTIONS if fn != "mul")
CHEAP_FUNCTIONS_OF_INTEGERS = (*CHEAP_FUNCTIONS, "mul", "floordiv", "mod")
CHEAP_OPS = (
    ops.Compare, ops.Where, ops.Cast, ops.Broadcast, ops.Iota, ops.Eval, ops.Constant, ops.Identity, ops.Reshape, ops.Permute, ops.Slice,
    ops.Pad, ops.Concat, ops.Flip,
)  # fmt: skip


def is_cheap_to_repeat(node: Node, operands: Sequence[TensorType]) -> bool:
    """Whether a node costs less than to keep its value at all points of a step, and to read it back."""
    if isinstance(node.op, (ops.Unary, ops.Binary)):
        return node.op.fn in (CHEAP_FUNCTIONS if is_float(node.outputs[0].dtype) else CHEAP_FUNCTIONS_OF_INTEGERS)
    if isinstance(node.op, ops.Gather):  # a slice of a value that is in memory anyway
        return operands[1].rank == 0
    return isinstance(node.op, CHEAP_OPS)


def price_of_keeping(node: Node, is_kept_anyway: bool) -> int:
    """What it costs to keep a node's value at all points of its domain: next to nothing, if something else needs it there."""
    elements = sum(ITEM_SIZE[type.dtype] * max(1, nominal(product(type.shape))) for type in node.outputs)
    return 1 if is_kept_anyway else 1 + 1000 * elements * NOMINAL ** len(node.domain.steps)


# Concatenate: XLA's CPU compiler fuses a selection between padded parts with what computes and reads them. A concatenation of two slices (the
# neighbours on a diagonal) is three operations of its own. In a loop, 1.1 in place of 2.4 microseconds at [8, 200], 140 in place of 200 at
# [64, 400]. But the game of life's four, at [128, 128], take 70 in place of 22: a selection of a selection computes both at each element.
MOST_BYTES_TO_SELECT = 32 * 1024


def pays_to_select_parts(bytes: int, on_cpu: bool) -> bool:
    """Whether to concatenate two parts, of so many bytes together, by a selection."""
    return on_cpu and bytes <= MOST_BYTES_TO_SELECT


# Apart: functions that XLA's CPU compiler makes vector instructions of. Inside of a padding, it makes none: four sigmoids of [16, 61] numbers,
# with gradients moved by padding, take 25 microseconds there and 5 apart.
DEAR_FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "sigmoid", "erf", "pow", "atan2", "logaddexp",
)  # fmt: skip


def is_dear_in_padding(op: ops.Op) -> bool:
    """Whether an operation of an island is so dear that a padding should read it from memory."""
    return isinstance(op, (ops.Unary, ops.Binary)) and op.fn in DEAR_FUNCTIONS


# Apart: the fewest paddings whose sum is computed by itself. The gradient of a stencil at [200, 200], with four paddings and two readers of
# their sum, takes 34 microseconds an iteration so, and 86 where XLA writes each padding to memory.
LEAST_PADDINGS_OF_A_SUM = 2


def pays_to_keep_sum_apart(paddings: int) -> bool:
    """Whether a value that is computed from so many paddings in a loop, element by element, should be in memory for its readers."""
    return paddings >= LEAST_PADDINGS_OF_A_SUM


# Slice: XLA's CPU compiler takes about a nanosecond for each element of a gather, and less than half of it for those of a slice out of a padded
# value. For few elements, the slice and the selections at both ends are as many operations as the gather.
LEAST_LENGTH_TO_SLICE = 32


def pays_to_slice(length: int, count: int, on_cpu: bool) -> bool:
    """Whether so many elements that follow each other, of an axis with such a length, are a slice in place of a gather."""
    return on_cpu and length >= LEAST_LENGTH_TO_SLICE and count >= LEAST_LENGTH_TO_SLICE


def strip_size(rows: int, written: int, accumulated: int) -> int | None:
    """How many rows a strip has, where a chain's products write and read so many bytes over all rows; None: the chain stays whole.

    Each strip adds to what is `accumulated`: these bytes are read and written again. Without a divisor that makes strips of about the
    right size, the chain stays whole.
    """
    if written < LEAST_BYTES_FOR_STRIPS:
        return None
    wanted = rows * BYTES_OF_A_STRIP / written
    divisors = [d for low in range(1, math.isqrt(rows) + 1) if rows % low == 0 for d in (low, rows // low)]
    size = min(divisors, key=lambda d: max(d / wanted, wanted / d))
    strips = rows // size
    is_right = max(size / wanted, wanted / size) <= MOST_TIMES_OFF
    return size if strips > 1 and is_right and accumulated * strips <= MOST_SHARE_ACCUMULATED * written else None
