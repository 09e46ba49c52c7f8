"""The thresholds of choices that have no time by the numbers of a target (`target.py`). No pass holds a threshold of its own.

Most of them limit what is compiled: isl and XLA take their time whatever the target is. Others choose between forms at sizes that are not
known yet, or steer XLA's compiler for CPUs, which takes longer for some forms than a device has to. `ROWS` lists them by room: the value, its
unit, the reason, who uses it, and what was measured. Below are the questions that passes ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Types, product
from tempo_core.ir.ops.work import CALL, CHEAP, DEAR, HELD, INDEXED, PLAIN, PRODUCT, SCAN, SORT, VIEW
from tempo_core.ir.types import ITEM_SIZE, TensorType, is_float
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Expr

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Row:
    """A threshold: so many of a `unit`. `users` are files, or questions below."""

    value: float
    unit: str
    reason: str
    users: tuple[str, ...]
    measured: str


ROWS: list[Row] = []


def price(value: N, unit: str, reason: str, users: str, measured: str = "") -> N:
    """A row of the table, and its value."""
    ROWS.append(Row(value, unit, reason, tuple(users.split(", ")), measured))
    return value


# fmt: off


# -- several rooms -------------------------------------------------------------------------------------------------------

NOMINAL = price(16, "points", "of every step in comparisons of sizes, where bounds are not known yet. A run with so many is not a short one: it takes "
    "the program without conditions on the number of its points", "nominal, price_of_keeping, is_narrow, passes/order/associate.py, "
    "passes/batch/boxes.py, runtime/cost/capacities.py")
MOST_COPIED_OPERATIONS = price(320, "operations", "of a window, or of the ends of a host loop, that are written out: XLA compiles each copy",
    "passes/ranges/shift.py, passes/clean/stacks.py, runtime/staged/edges.py", "one core; a millisecond each")
WORTH_OWN_CODE = price(8, "operations, or iterations", "that are worth code of their own: a part of a function before its loop, a table that runs by "
    "diagonals, the points before a place, a loop of which some iterations are cut off", "is_worth_a_wavefront, passes/batch/precompute.py, "
    "passes/batch/split.py, schedule/loop_parts.py", "two cores; a loop with fewer is one piece of machine code, 2 ns an element; a diagonal takes some "
    "operations on vectors")
MOST_WRITTEN_OUT = price(8, "operations", "as which one is written out: the numbers of a sum, of a block of a cumulative sum, the elements of a gather "
    "in a loop, the regions of a recurrence's branches", "passes/batch/regions.py, backends/jax_backend.py, backends/xla_cpu/cumulative.py, "
    "backends/xla_cpu/slices.py", "two cores; sums of products along the last of three axes, in ms: (100000, 4, 2) "
    "10 and written out 0.12; (100000, 8, 8) 35 and 1.8; of exponentials (1000, 64, 16) 0.6 and 1.2. Cumulative maxima of [5000, 64] in us: tree "
    "1,760, one by one 330, blocks of 8 215, of 64 340. Diagonals of 2, 4, 8, 16 rows, in us an iteration: gathers 1.6, 1.1, 4.8, 4.7, slices "
    "0.1, 0.1, 0.8, 5.8")
MOST_PIECES = price(3, "pieces", "into which the points of a loop or of a statement are cut: each compiles the body once more, and isl takes longer",
    "passes/keep/trim.py, schedule/loop_parts.py, schedule/constraints.py")
MOST_REPEATED = price(24, "operations", "by weight (`copy_weight`), that are computed at another place once more: those of a body for its first or last "
    "iterations, those of an operand at each element of a scan", "pays_to_compute_in_scan, schedule/loop_parts.py")
MOST_COMBINED = price(6, "factors, or divisions", "of which all combinations are looked at: factors of a chain of products, in 3**n steps; divisions "
    "(`t % 7 == 3`) in a condition that isl shortens", "passes/order/chains.py, schedule/build.py", "one core; the time of isl doubles with each")
TIMES_SMALLER = price(4, "times", "that a value is smaller than another one, to be kept, copied or read in its place", "pays_to_compute_in_scan, "
    "passes/batch/vectorize.py, backends/xla_cpu/loops.py, backends/xla_cpu/kept.py, runtime/lower/lower.py", "two cores; counts of the past, in the loop "
    "and after it, in ms: 6,000 positions of 16 elements 0.5 and 1.0, of 64 1.2 and 2.1, of 128 0.9 and 1.7, of 1,024 3.3 and 20")
LEAST_GAIN = price(1.1, "times", "that one form must be faster than another by the cost model: a step as a loop, a run at a smaller capacity",
    "planner.py, runtime/cost/capacities.py", "two cores, other programs beside; of 54 programs, the model has 18 for faster by 1.16 to 8 as a loop, and they "
    "are by 1.0 to 3.5; the other ones are by 1.08 at most in the model. Soft-DTW with gradients, up to ten times as long: 5.1 ms with 1.25, 3.2 with 1.1")

LEAST_SECONDS_SAVED = price(2e-3, "seconds", "by which a step must be faster as a loop: XLA compiles one form more for it", "planner.py")

# -- passes/ranges -------------------------------------------------------------------------------------------------------

MOST_SHIFTS = price(16, "points", "of a window that is written out: w slices, which are a part of their reader, in place of a gather of w "
    "elements for each point", "passes/ranges/shift.py, pays_to_convolve")
POINTS_OF_A_BLOCK = price(32, "points", "of a block of a running sum of outer products", "passes/ranges/linear_attention.py",
    "two cores; values and gradients of 8 rows of 500 points, 32 wide: all pairs of points 10.3 ms, blocks of 16, 32, 64, 128, 256 "
    "points 4.1, 2.4, 2.8, 4.0, 8.9")
POINTS_OF_A_BLOCK_OF_ELEMENTS = price(8, "points", "of such a block where each element has a gate: it has a product of gates for each pair of its "
    "points and each element", "passes/ranges/linear_attention.py", "two cores, other programs beside; 4 heads of 1,024 points, 64 wide: blocks of 4, 8, "
    "16 points 380, 310, 380 ms, one scan 460")
LEAST_ELEMENTS_OF_A_BLOCKED_SUM = price(160, "elements", "of a running sum of outer products that is not kept at all points, but "
    "computed in blocks of them", "pays_to_cut_in_blocks", "two cores, other programs beside; values and gradients, kept and in blocks, in ms: "
    "20,000 points of 4 x 4 numbers 1.7 and 9.7, of 8 x 8 5.6 and 13, of 12 x 12 13 and 16, of 16 x 16 41 and 19; 8 rows of 500 points, 4 heads of "
    "16 x 16 9.5 and 10.4")

# -- passes/batch --------------------------------------------------------------------------------------------------------

MOST_KEPT = price(4096, "elements", "with the nominal number for each bound, that are kept so that an operation leaves a loop that it does "
    "not need", "passes/batch/vectorize.py")
MUCH_SMALLER = price(16, "times", "that a product must be smaller than what a loop makes, to stay there so that only its result is kept",
    "pays_to_multiply_in_the_loop")
MOST_TIMES_THE_POINTS = price(2.5, "times", "the work at its points that a box of vectors may have: a triangle has twice",
    "pays_to_fill_boxes", "two cores; a triangle of 1,200 x 1,200 with its gradient: loops over both steps 44 ms, a box 12 ms")

# -- schedule ------------------------------------------------------------------------------------------------------------

LEAST_SHARE_TO_CUT_AT_VALUE = price(0.5, "of a loop's body", "by weight, that is under a condition for which the loop is cut at a place that a run "
    "chooses", "schedule/loop_parts.py")
MOST_STATEMENTS_FOR_ISL = price(60, "statements", "that are connected, and that isl's scheduler gets at once", "schedule/nesting.py",
    "one core; 60 take some tenths of a second, 160 seconds, some hundred hours")
MOST_PIECES_TO_COMPARE = price(16, "pieces", "of the writes and reads of a value that isl compares with each other",
    "schedule/lifetimes.py", "one core; 16 take a few milliseconds, 100 seconds")

# -- runtime/lower -------------------------------------------------------------------------------------------------------

LEAST_SECONDS_OF_COPIES = price(5e-6, "seconds", "of copies that are worth code against them: of weights and stores in an iteration of a loop over layers, "
    "about as long as the operations of a small layer; of a store that a loop writes and reads", "runtime/lower/unroll.py, runtime/lower/lower.py",
    "one core; copies of 64 KiB take 5 us, and a loop of one iteration, in which a store is written alone, 2")
RUNS = price(750, "runs", "of a loop in which the copies that it no longer makes make up for the time to compile it written out",
    "runtime/lower/unroll.py", "two cores, other programs beside; a token of a Llama of 4 layers, 24 KB an operation: 1.4 of 3.0 ms less, for up to 0.7 s "
    "of compiling")
MOST_OPERATIONS_TO_UNROLL = price(10_000, "operations", "of a loop that is written out", "runtime/lower/unroll.py", "one core; a millisecond of compiling each")
OPERATIONS_OF_A_LONG_LOOP = price(4_000, "operations", "of a loop inside of another one, up to which the time to compile it does not count",
    "runtime/lower/unroll.py", "two cores; GRPO's gradient of 48 tokens, 2.7 KB an operation, 48 iterations: XLA took 30 s to over two minutes, for copies of "
    "1 MB an iteration")

# -- runtime/staged ------------------------------------------------------------------------------------------------------

MOST_TIMES_A_LAUNCH = price(1.75, "times", "`Config.launch_seconds` that a loop may take by the rough estimate and stays one launch",
    "runtime/staged/chunks.py", "two cores; of 219 classics five take longer than 0.25 s, of which four are cut, with 17 faster ones that the estimate has "
    "for slower, mostly as they end early. One launch in place of three takes a queue of 10,000 points from 0.22 to 0.13 ms")

# -- backends ------------------------------------------------------------------------------------------------------------

SHORT_AXIS = price(32, "elements", "of an axis: for fewer, a place of a maximum is one reduction of pairs and not two plain ones, and elements that follow "
    "each other are a gather and not a slice", "backends/jax_backend.py, backends/xla_cpu/slices.py", "two cores; two reductions take 0.4 of the time at 32 "
    "elements, a fifteenth at 512, 1.0 to 1.7 at 20 and fewer; a gather takes 1 ns an element, a slice less than half")
LEAST_WIDTH_TO_MULTIPLY = price(16_384, "elements", "of rows whose sum is a product with ones, in place of a reduction", "backends/jax_backend.py",
    "two cores; rows of 100 MB in memory, and sums of their tanh, in ms: of 8,000 elements 7.0 and 4.7, 23 and 104; of 16,384 41 and 3.9, "
    "47 and 54; of 50,000 298 and 3.6, 247 and 52, and the reduction takes as much memory again as it reads")
LEAST_SUMS_TO_WRITE_OUT = price(1024, "sums", "of few numbers each, that are written out: XLA makes no vector instructions of a reduction of them",
    "backends/jax_backend.py", "two cores, other programs beside; (2000, 64, 4) 1.0 ms and 0.07")
MOST_READ_BY_FAST_OPERATIONS = price(2, "times", "that what fast operations (a mask) read may be larger than an operand of a scan that they compute as it "
    "goes", "pays_to_compute_in_scan")
LEAST_BYTES_TO_SLICE = price(1024, "bytes", "of a value of which few elements are a slice each: XLA makes one kernel of a loop that reads less",
    "backends/xla_cpu/slices.py", "two cores; an automaton of 16 cells with 8 rules, 100,000 steps: 2.0 ms with a gather, 160 with 16 slices a step")
LEAST_LENGTH_TO_UPDATE = price(64, "elements", "of an axis of which one is written in place, at a position that data decides, and not by a "
    "selection of all, which is a part of other operations", "pays_to_update")
LEAST_LENGTH_TO_SCATTER = price(256, "elements", "of such an axis with several positions: XLA's CPU compiler writes one after the other",
    "pays_to_update", "two cores; 40 ns a position")
# fmt: on

# -- classes of operations (`ir/ops/work.py`) ----------------------------------------------------------------------------

# A launch costs the host 20 to 60 microseconds, about 20 small operations. These may take longer, so the host does not wait for them.
WORTH_A_LAUNCH = (PRODUCT, SORT, SCAN)
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


def pays_to_cut_in_blocks(elements: Expr) -> bool:
    """Whether a running sum of outer products with so many elements is computed in blocks of points, and not kept at each of them."""
    return nominal(elements) >= LEAST_ELEMENTS_OF_A_BLOCKED_SUM


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


def is_fast(op: ops.Op) -> bool:
    """Whether a vector instruction computes an operation, or it only moves or repeats values."""
    return op.cost_class in (HELD, VIEW, CHEAP)


def is_faster_at_once(op: ops.Op) -> bool:
    """Whether it is much faster at once than point by point: a group with it is vectorized, even if more values have to be kept for it."""
    return op.cost_class in (PRODUCT, SCAN, SORT) or isinstance(op, ops.Udf)


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


def is_quick_at_once(op: ops.Op) -> bool:
    """Whether all points of a node can be computed again at once in about the time in which they would be read."""
    return op.cost_class in (VIEW, CHEAP, PLAIN) or isinstance(op, ops.Gather)


def price_of_keeping(types: Types, domain: Domain, is_kept_anyway: bool) -> int:
    """What it costs to keep values of some types at all points of a domain: next to nothing, if something else needs them there."""
    elements = sum(ITEM_SIZE[type.dtype] * max(1, nominal(product(type.shape))) for type in types)
    return 1 if is_kept_anyway else 1 + 1000 * elements * NOMINAL ** len(domain.steps)


def is_dear(op: ops.Op) -> bool:
    """Whether each element takes some nanoseconds where there are few: of dear functions, and of scans, where it waits for the one before it."""
    return op.cost_class in (SCAN, DEAR) and op != ops.Binary("pow")  # XLA makes `x ** 2` a product


def is_dear_function(op: ops.Op) -> bool:
    """Whether XLA computes an operation by a polynomial: some ten operations an element.

    XLA's CPU compiler makes vector instructions of these, but not inside of a padding: four sigmoids of [16, 61] numbers, with gradients moved
    by padding, take 25 microseconds there and 5 apart.
    """
    return op.cost_class == DEAR
