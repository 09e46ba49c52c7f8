"""The thresholds of choices that have no time by the numbers of a target (`target.py`). No pass holds a threshold of its own.

Most of them limit what is compiled: isl and XLA take their time whatever the target is. Others choose between forms at sizes that are not
known yet, or steer XLA's compiler for CPUs, which takes longer for some forms than a device has to. Above each is what it counts, why, and what
was measured, on two CPU cores with other programs beside. Below are the questions that passes ask.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Types, product
from tempo_core.ir.ops.work import CALL, CHEAP, DEAR, HELD, INDEXED, PLAIN, PRODUCT, SCAN, SORT, VIEW
from tempo_core.ir.types import ITEM_SIZE, TensorType, is_float
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum
from tempo_core.symbolic.isl.relation import maximum_over
from tempo_core.symbolic.proof import provably_nonnegative

# -- several rooms ----------------------------------------------------------------------------------------------------

# Points of every step in comparisons of sizes, where bounds are not known yet. A run with so many is not a short one: it takes the program
# without conditions on the number of its points.
NOMINAL = 16
# Operations of the end and the start of a host loop's iterations, of which a copy is compiled as one launch. Reports of iterations that are joined
# come with the next iteration.
MOST_COPIED_OPERATIONS = 200
# Operations or iterations that are worth code of their own: a part of a function before its loop, a table that runs by diagonals, the points
# before a place, a loop of which some iterations are cut off. A loop with fewer is one piece of machine code, 2 ns an element.
WORTH_OWN_CODE = 8
# Operations as which one is written out: the numbers of a sum, of a block of a scan, the elements of a gather in a loop, the regions of a
# recurrence's branches. Sums along the last of three axes, in ms: (100000, 4, 2) 10 and written out 0.12; (100000, 8, 8) 35 and 1.8;
# of exponentials (1000, 64, 16) 0.6 and 1.2. Cumulative maxima of [5000, 64] in us: tree 1,760, one by one 330, blocks of 8 215, of 64
# 340. Diagonals of 2, 4, 8, 16 rows, in us an iteration: gathers 1.6, 1.1, 4.8, 4.7, slices 0.1, 0.1, 0.8, 5.8. A running sum of outer products
# where each element has a gate, 4 heads of 1,024 points, 64 wide: blocks of 4, 8, 16 points 380, 310, 380 ms, one scan 460.
MOST_WRITTEN_OUT = 8
# Pieces into which the points of a loop or of a statement are cut: each compiles the body once more, and isl takes longer.
MOST_PIECES = 3
# Operations, by weight (`copy_weight`), that are computed at another place once more: those of a body for its first or last iterations, those of an
# operand at each element of a scan.
MOST_REPEATED = 24
# Factors, or divisions, of which all combinations are looked at: factors of a chain of products, in 3**n steps; divisions (`t % 7 == 3`) in a
# condition that isl shortens, whose time doubles with each.
MOST_COMBINED = 6
# Times that a value is smaller than another one, to be kept, copied or read in its place. Counts of the past, in the loop and after it, in ms:
# 6,000 positions of 16 elements 0.5 and 1.0, of 64 1.2 and 2.1, of 128 0.9 and 1.7, of 1,024 3.3 and 20.
TIMES_SMALLER = 4
# Times that one form must be faster than another by the cost model: a step as a loop, a run at a smaller capacity. Of 54 programs, the model has 18
# for faster by 1.16 to 8 as a loop, and they are by 1.0 to 3.5; the other ones are by 1.08 at most in the model. Soft-DTW with gradients, up to
# ten times as long: 5.1 ms with 1.25, 3.2 with 1.1.
LEAST_GAIN = 1.1
# Seconds by which a step must be faster as a loop: XLA compiles one form more for it.
LEAST_SECONDS_SAVED = 2e-3

# -- passes -----------------------------------------------------------------------------------------------------------

# Points of a window that is written out: w slices, which are a part of their reader, in place of a gather of w elements for each point.
MOST_SHIFTS = 16
# Operations on the elements of such a window: each slice repeats them, and XLA has to compile them.
MOST_SHIFTED_OPERATIONS = 320
# Points of a block of a running sum of outer products. Values and gradients of 8 rows of 500 points, 32 wide: all pairs of points 10.3 ms,
# blocks of 16, 32, 64, 128, 256 points 4.1, 2.4, 2.8, 4.0, 8.9.
POINTS_OF_A_BLOCK = 32
# Elements of such a sum that is not kept at all points, but computed in blocks of them. Values and gradients, kept and in blocks, in ms: 20,000 points
# of 8 x 8 numbers 5.6 and 13, of 12 x 12 13 and 16, of 16 x 16 41 and 19; 8 rows of 500 points, 4 heads of 16 x 16 9.5 and 10.4.
LEAST_ELEMENTS_OF_A_BLOCKED_SUM = 160
# Elements, with the nominal number for each bound, that are kept so that an operation leaves a loop that it does not need.
MOST_KEPT = 4096
# Times that a product must be smaller than what a loop makes, to stay there so that only its result is kept.
MUCH_SMALLER = 16
# Times the work at its points that a box of vectors may have: a triangle has twice. A triangle of 1,200 x 1,200 with its gradient: loops over
# both steps 44 ms, a box 12.
MOST_TIMES_THE_POINTS = 2.5

# -- schedule ---------------------------------------------------------------------------------------------------------

# Of a loop's body, by weight: the share under a condition for which the loop is cut at a place that a run chooses.
LEAST_SHARE_TO_CUT_AT_VALUE = 0.5
# Statements that are connected, and that isl's scheduler gets at once: 60 take some tenths of a second, 160 seconds, some hundred hours.
MOST_STATEMENTS_FOR_ISL = 60
# Pieces of the writes and reads of a value that isl compares with each other: 16 take a few milliseconds, 100 seconds.
MOST_PIECES_TO_COMPARE = 16

# -- runtime ----------------------------------------------------------------------------------------------------------

# Seconds of copies that are worth code against them: of weights and stores in an iteration of a loop over layers, about as long as the operations
# of a small layer; of a store that a loop writes and reads. Copies of 64 KiB take 5 us, and a loop of one iteration, in which a store is
# written alone, 2.
LEAST_SECONDS_OF_COPIES = 5e-6
# Runs of a loop in which the copies that it no longer makes make up for the time to compile it written out. A token of a Llama of 4 layers, 24 KB an
# operation: 1.4 of 3.0 ms less, for up to 0.7 s of compiling.
RUNS = 750
# Operations of a loop that is written out: XLA takes a millisecond for each.
MOST_OPERATIONS_TO_UNROLL = 10_000
# Operations of a loop inside of another one, up to which the time to compile it does not count. GRPO's gradient of 48 tokens, 2.7 KB an operation, 48
# iterations: XLA took 30 s to over two minutes, for copies of 1 MB an iteration.
OPERATIONS_OF_A_LONG_LOOP = 4_000
# Times `Config.launch_seconds` that a loop may take by the rough estimate and stays one launch. Of 219 classics five take longer than 0.25 s, of which
# four are cut, with 17 faster ones that the estimate has for slower, mostly as they end early. One launch in place of three takes a queue of
# 10,000 points from 0.22 to 0.13 ms.
MOST_TIMES_A_LAUNCH = 1.75

# -- backends ---------------------------------------------------------------------------------------------------------

# Elements of an axis: for fewer, a place of a maximum is one reduction of pairs and not two plain ones, and elements that follow each other are a
# gather and not a slice. Two reductions take 0.4 of the time at 32 elements, a fifteenth at 512, 1.0 to 1.7 at 20 and fewer; a gather takes 1 ns an
# element, a slice less than half.
SHORT_AXIS = 32
# Elements of rows whose sum is a product with ones, in place of a reduction. Rows of 100 MB in memory, and sums of their tanh, in ms: of 8,000
# elements 7.0 and 4.7, 23 and 104; of 16,384 41 and 3.9, 47 and 54; of 50,000 298 and 3.6, 247 and 52.
LEAST_WIDTH_TO_MULTIPLY = 16_384
# Sums of few numbers each, that are written out: XLA makes no vector instructions of a reduction of them. (2000, 64, 4) 1.0 ms and 0.07.
LEAST_SUMS_TO_WRITE_OUT = 1024
# Times that what fast operations (a mask) read may be larger than an operand of a scan that they compute as it goes.
MOST_READ_BY_FAST_OPERATIONS = 2
# Bytes of a value of which few elements are a slice each: XLA makes one kernel of a loop that reads less. An automaton of 16 cells with 8 rules,
# 100,000 steps: 2.0 ms with a gather, 160 with 16 slices a step.
LEAST_BYTES_TO_SLICE = 1024
# Elements of an axis of which one is written in place, at a position that data decides, and not by a selection of all, which is a part of other
# operations; with several positions, XLA's CPU compiler writes one after the other, in 40 ns each.
LEAST_LENGTH_TO_UPDATE, LEAST_LENGTH_TO_SCATTER = 64, 256

# -- classes of operations (`ir/ops/work.py`) ----------------------------------------------------------------------------

# These may take longer than a launch, so the host does not wait for them. And they are much faster at once than point by point: a group with one is
# vectorized, even if more values have to be kept for it.
LONG = (PRODUCT, SORT, SCAN)
# A vector instruction computes these, or they only move or repeat values.
FAST = (HELD, VIEW, CHEAP)
# All points of these can be computed again at once in about the time in which they would be read.
QUICK = (VIEW, CHEAP, PLAIN)
# The weight of a second copy in a program (of a peeled last iteration, say); 1 for others.
WEIGHTS = {HELD: 0, VIEW: 0, INDEXED: 0, PRODUCT: 10, SORT: 10, CALL: 10}


# -- questions -----------------------------------------------------------------------------------------------------------


def nominal(size: Expr) -> int:
    """A size, with the same number for every bound and step."""
    return size.evaluate(dict.fromkeys(size.symbols, NOMINAL))


def pays_to_fill_boxes(works: Sequence[tuple[int, float, float]]) -> bool:
    """Whether operations run at all points of a step at once, of (the work at a point, the points, those of the box around them)."""
    return sum(work * box for work, _, box in works) <= MOST_TIMES_THE_POINTS * sum(work * points for work, points, _ in works)


def pays_to_multiply_in_the_loop(operand: int, matrix: int, result: int) -> bool:
    """Whether a product of so many elements that a loop makes and a matrix stays in the loop, so that only its result is kept.

    The operand would be written to memory, and read again after the loop: 33 of the 69 MB of PPO's rollout, for the value of each state. Each
    iteration reads the matrix, so it must be small.
    """
    return MUCH_SMALLER * result <= operand and matrix <= operand


def worth_scanning(element: TensorType, operands: Sequence[TensorType]) -> bool:
    """Whether the elements of a scan are no larger than the operands from which each is computed: all elements are kept at once.

    A product of vectors would be kept as a matrix for every point, where a loop keeps one.
    """
    return nominal(product(element.shape)) <= sum(nominal(product(type.shape)) for type in operands)


def is_worth_a_wavefront(nodes: Sequence[Node], factors: Sequence[TensorType], has_ranges: bool, steps: int) -> bool:
    """Whether a table over some steps with these nodes should run by diagonals. In a table of single numbers, they are the only vectors.

    A loop over the points of a table that reads ranges (`has_ranges`) is never one piece of machine code. `factors` are what its products
    read at each row or column: matrices of weights would be copied for all points of each diagonal.
    """
    if any(len(factor.shape) >= 2 for factor in factors):
        return False
    single = all(len(node.domain.steps) <= steps and all(not type.shape for type in node.outputs) for node in nodes)
    return single or has_ranges or sum(_operations(node.op) for node in nodes) >= WORTH_OWN_CODE


def _operations(op: ops.Op) -> int:
    """The number of arithmetic operations of an op that XLA computes on each element."""
    return 5 if isinstance(op, ops.Binary) and op.fn == "logaddexp" else int(copy_weight(op) > 0)


def copy_weight(op: ops.Op) -> int:
    """The rough cost of a second copy of an operation in a program."""
    return sum(WEIGHTS.get(part.cost_class, 1) for part in op.parts)


def pays_to_convolve(width: Expr) -> bool:
    """Whether a sum over windows of this width, with fixed weights, is a convolution."""
    return not width.is_constant or width.constant > MOST_SHIFTS


def pays_to_update(length: Expr, has_several: bool) -> bool:
    """Whether to write at a position, or at several, of an axis of this length alone, and not all its elements. Bounds may be large."""
    return not length.is_constant or length.constant >= (LEAST_LENGTH_TO_SCATTER if has_several else LEAST_LENGTH_TO_UPDATE)


def is_narrow(width: Expr, whole: Expr) -> bool:
    """Whether a window, at most `width` long, stays as it is if the dimension `whole` in which it lies grows.

    The gradient of a narrow window is one contribution for each of its elements. That of a wide one (a prefix) has as many
    contributions as the whole dimension has elements: these are spread to their places at once.
    """
    sizes = [dict.fromkeys(width.symbols, NOMINAL) | dict.fromkeys(whole.symbols, large) for large in (10**6, 10**7)]
    return width.evaluate(sizes[0]) == width.evaluate(sizes[1])


def window_width(span: Range, step: Symbol, readers: Domain) -> Expr | None:
    """The greatest length of a range along `step` that moves with its readers. None if it is wide, or does not move."""
    if not span.steps:
        return None
    try:
        width = maximum_over(span.length, readers)
    except NonAffineError:
        return None
    if not is_narrow(width, step.bound_expr):
        return None
    return width if provably_nonnegative(width) else maximum(width, 0)


def pays_to_compute_in_scan(elements: int, read: int, operations: int, is_fast: bool) -> bool:
    """Whether a scan computes an operand of so many elements as it goes, by so many operations on arrays of `read` elements."""
    is_little = read * TIMES_SMALLER <= elements or (is_fast and operations and read <= MOST_READ_BY_FAST_OPERATIONS * elements)
    return bool(is_little) and operations <= MOST_REPEATED


def is_cheap_to_repeat(node: Node, operands: Sequence[TensorType]) -> bool:
    """Whether a node costs less than to keep its value at all points of a step, and to read it back, and has the same bits wherever it is.

    A product of floats may become one operation with a sum that reads it, which rounds once instead of twice.
    """
    if isinstance(node.op, ops.Gather):  # a slice of a value that is in memory anyway
        return operands[1].rank == 0
    if isinstance(node.op, ops.Binary) and node.op.fn in ("mul", "floordiv", "mod"):
        return not is_float(node.outputs[0].dtype)
    return node.op.cost_class in (VIEW, CHEAP)


def price_of_keeping(types: Types, domain: Domain, is_kept_anyway: bool) -> int:
    """What it costs to keep values of some types at all points of a domain: next to nothing, if something else needs them there."""
    elements = sum(ITEM_SIZE[type.dtype] * max(1, nominal(product(type.shape))) for type in types)
    return 1 if is_kept_anyway else 1 + 1000 * elements * NOMINAL ** len(domain.steps)


def is_dear(op: ops.Op) -> bool:
    """Whether each element takes some nanoseconds where there are few: of dear functions, and of scans, where it waits for the one before it."""
    return op.cost_class in (SCAN, DEAR) and op != ops.Binary("pow")  # XLA makes `x ** 2` a product
