"""The prices of choices: vectorize or loop, write out or roll, keep or compute again. No pass holds a threshold of its own.

`ROWS` lists them by room: the value, what it counts, where and how it was measured, and who uses it. On GPUs none is measured yet: there the
same values hold, but for the choices that ask for a CPU. Below are the questions that passes ask, which these values answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tempo_core.errors import NonAffineError
from tempo_core.ir import costs, ops
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Types, product
from tempo_core.ir.ops.work import CALL, CHEAP, DEAR, HELD, INDEXED, PLAIN, PRODUCT, SCAN, SORT, VIEW, size
from tempo_core.ir.types import ITEM_SIZE, TensorType, is_float
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum
from tempo_core.symbolic.isl.relation import maximum_over
from tempo_core.symbolic.proof import provably_nonnegative

N = TypeVar("N", int, float)
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Row:
    """A price: `users` are files, or questions below. `gpu` is the value for GPUs, as far as it was measured."""

    value: float
    what: str
    users: tuple[str, ...]
    measured: str
    gpu: float | str


ROWS: list[Row] = []


def price(value: N, what: str, users: str, measured: str = NOT_MEASURED, gpu: float | str = NOT_MEASURED) -> N:
    """A row of the table, and its value."""
    ROWS.append(Row(value, what, tuple(users.split(", ")), measured, gpu))
    return value


# fmt: off


# -- passes/ranges -------------------------------------------------------------------------------------------------------

MOST_SHIFTS = price(16, "points of a window that is written out: w slices, which are a part of their reader, in place of a gather of w "
    "elements for each point", "passes/ranges/shift.py, pays_to_convolve")
MOST_SHIFTED_OPERATIONS = price(320, "operations on the elements of a window that is written out: each slice repeats them, and XLA has "
    "to compile them", "passes/ranges/shift.py")
POINTS_OF_A_BLOCK = price(32, "points of a block of a running sum of outer products", "passes/ranges/linear_attention.py",
    "two cores; values and gradients of 8 rows of 500 points, 32 wide: all pairs of points 10.3 ms, blocks of 16, 32, 64, 128, 256 "
    "points 4.1, 2.4, 2.8, 4.0, 8.9")
POINTS_OF_A_BLOCK_OF_ELEMENTS = price(8, "the same, where each element has a gate: a block has a product of gates for each pair of its "
    "points and each element", "passes/ranges/linear_attention.py", "two cores, other programs beside; 4 heads of 1,024 points, 64 wide: blocks of 4, 8, "
    "16 points 380, 310, 380 ms, one scan 460")
LEAST_ELEMENTS_OF_A_BLOCKED_SUM = price(160, "elements of a running sum of outer products that is not kept at all points, but "
    "computed in blocks of them", "pays_to_cut_in_blocks", "two cores, other programs beside; values and gradients, kept and in blocks, in ms: "
    "20,000 points of 4 x 4 numbers 1.7 and 9.7, of 8 x 8 5.6 and 13, of 12 x 12 13 and 16, of 16 x 16 41 and 19; 8 rows of 500 points, 4 heads of "
    "16 x 16 9.5 and 10.4")

# -- passes/batch --------------------------------------------------------------------------------------------------------

MOST_KEPT = price(4096, "elements, with the nominal number for each bound, that are kept so that an operation leaves a loop that it does "
    "not need", "passes/batch/vectorize.py")
MOST_GROWTH_BEFORE_A_LOOP = price(4, "times that products which leave a loop may be larger than what is kept anyway (an LSTM has four "
    "gates)", "passes/batch/vectorize.py")
LEAST_TIMES_SMALLER = price(16, "times that a product must be smaller than what a loop makes, to stay there so that only its result is "
    "kept", "pays_to_multiply_in_the_loop")
MOST_REGIONS = price(8, "regions of all other steps that the branches of a recurrence may have: each is a selection of its own",
    "passes/batch/regions.py")
MOST_TIMES_THE_POINTS = price(2.5, "times the work at its points that a box of vectors may have: a triangle has twice",
    "pays_to_fill_boxes", "two cores; a triangle of 1,200 x 1,200 with its gradient: loops over both steps 44 ms, a box 12 ms")
FEWEST_POINTS_TO_SPLIT = price(8, "points before a place for which what is computed there is compiled once more, for all of them at once",
    "passes/batch/split.py")
FEWEST_OPERATIONS = price(8, "operations of a part of a function that are worth a function of their own, before the loop",
    "passes/batch/precompute.py")
FEWEST_OPERATIONS_FOR_A_WAVEFRONT = price(8, "operations at each point of a table of vectors, or in other loops, that runs by diagonals",
    "is_worth_a_wavefront", "two cores; a loop with fewer is one piece of machine code, 2 ns an element; a diagonal takes some "
    "operations on vectors")

# -- passes/tiles --------------------------------------------------------------------------------------------------------

LEAST_BYTES_FOR_STRIPS = price(64 * 2**20, "bytes of the results and computed operands of a chain of products that runs in strips of "
    "rows, or of slices in a product", "strip_size, backends/xla_cpu/slices.py",
    "two cores; PPO's gradient, 512 x 250, 260 MiB: the same time in strips of 5 to 25 MiB, a sixth longer in those of 2; with 50 steps whole is faster")
BYTES_OF_A_STRIP = price(10 * 2**20, "bytes of a strip: what lies between the products stays in the cache, and each strip is long enough "
    "for all cores", "strip_size, backends/xla_cpu/slices.py", "as above")
MOST_TIMES_OFF = price(8, "times that a divisor of the rows may make strips smaller or larger", "strip_size")
MOST_SHARE_ACCUMULATED = price(0.5, "share of what the products write that the strips together may read and write again, to add to it",
    "strip_size")

# -- passes/order --------------------------------------------------------------------------------------------------------

MOST_FACTORS = price(6, "factors of a chain of products that are reordered together: the search takes 3**n steps",
    "passes/order/chains.py")

# -- passes/keep ---------------------------------------------------------------------------------------------------------

MOST_ENDS = price(3, "different ends far before the last point, in the loop over a step: each may be one more copy of its body",
    "passes/keep/trim.py")
NOMINAL = price(16, "the value of every bound in comparisons of sizes, where bounds are not known yet",
    "nominal, price_of_keeping, is_narrow, passes/order/associate.py")

# -- schedule ------------------------------------------------------------------------------------------------------------

MOST_PEELED = price(2, "iterations that are cut off a loop because a condition on inner loops too (`i + j >= 1`) varies only in them: "
    "each cut compiles the body once more", "schedule/loop_parts.py")
MOST_WEIGHT_TO_PEEL = price(24, "weight (`copy_weight`) of a loop's body that is copied for its first or last iterations, so that the "
    "others take over values without a condition", "schedule/loop_parts.py")
SHORTEST_PEELED = price(8, "iterations of a loop of which some are cut off for that", "schedule/loop_parts.py")
LEAST_SHARE_TO_CUT_AT_VALUE = price(0.5, "share of a loop's body, by weight, under a condition for which the loop is cut at a place that "
    "a run chooses", "schedule/loop_parts.py")
MOST_STATEMENTS_FOR_ISL = price(60, "connected statements that isl's scheduler gets at once", "schedule/nesting.py",
    "one core; 60 take some tenths of a second, 160 seconds, some hundred hours")
MOST_NEEDS_CUT = price(50_000, "dependences that are looked at to cut points off statements which no loop orders; beyond, there is an "
    "error instead of a program", "schedule/pieces.py", "one core; a millisecond each")
MOST_PIECES_TO_SCHEDULE = price(3, "pieces of a statement that isl's scheduler sees; with more, it sees one piece around all points",
    "schedule/constraints.py")
MOST_DIVISIONS_FOR_ISL = price(6, "divisions (`t % 7 == 3`) in a condition that isl shortens", "schedule/build.py",
    "one core; the time doubles with each")
MOST_PIECES_TO_COMPARE = price(16, "pieces of the writes and reads of a value that isl compares with each other",
    "schedule/lifetimes.py", "one core; 16 take a few milliseconds, 100 seconds")

# -- runtime/lower -------------------------------------------------------------------------------------------------------

LEAST_BYTES_TO_UNROLL = price(64 * 1024, "bytes of weights or stores that an iteration of a loop over layers copies out of a larger "
    "array, before the loop is written out", "pays_to_unroll",
    "one core; 64 KiB take 5 us, about as long as the operations of a small layer")
MOST_OPERATIONS_TO_UNROLL = price(10_000, "operations of a loop that is written out", "pays_to_unroll",
    "one core; a millisecond of compiling each")
LEAST_BYTES_FOR_AN_OPERATION = price(16 * 1024, "bytes that an iteration copies for each of its operations, before a loop is written out "
    "that runs once a run or that is long: an operation is compiled for each of its iterations", "pays_to_unroll",
    "two cores, other programs beside; a token of a Llama of 4 layers, 24 KB an operation: 1.4 of 3.0 ms less, for up to 0.7 s of compiling")
OPERATIONS_OF_A_LONG_LOOP = price(4_000, "operations of a loop that is written out for few bytes", "pays_to_unroll",
    "two cores; GRPO's gradient of 48 tokens, 2.7 KB an operation, 48 iterations: XLA took 30 s to over two minutes, for copies of 1 MB an iteration")
SECONDS_TO_COMPILE_AN_OPERATION = price(1e-3, "seconds of XLA's compiler for an operation that is written out",
    "runtime/lower/unroll.py", "one core")
LEAST_BYTES_TO_WRITE_ALONE = price(64 * 1024, "bytes of a store that is written in a loop of one iteration, which keeps XLA from "
    "repeating the write in each reader, on copies of the store", "runtime/lower/lower.py", "one core; such a loop takes 2 us")

# -- runtime/staged ------------------------------------------------------------------------------------------------------

MOST_COPIED_OPERATIONS = price(200, "operations of the end and the start of a host loop's iterations, of which a copy is compiled as one "
    "launch", "runtime/staged/edges.py", "one core; some tenths of a second of compiling")
MOST_ROUGH_SECONDS = price(4.0, "times `Config.launch_seconds` that a loop may take by the rough estimate and stays one launch", "runtime/staged/chunks.py",
    "two cores, estimate and time in s: CTC, 100,000 x 9, 1.0 and 0.2; Gauss-Seidel 1.9 and 0.012; a stack machine, 10,000 points, 0.7 and 0.0004; one launch "
    "in place of three takes a queue of 10,000 points from 0.22 to 0.13 ms, word vectors from 44 to 32")
LONG_LOOP = price(0.5, "seconds of a device loop that runs as several launches, so that signals are served",
    "runtime/staged/stage.py", "two cores; a stencil of 1,000 iterations, 10 ms, takes 19 in ten launches")
SECONDS_OF_A_MOVED_BYTE = price(2.5e-10, "seconds of a byte that moves between host and device", "planner.py",
    "two cores; copies of 50 MB, 4 GB/s")
SECONDS_OF_A_PART = price(1e-3, "seconds of a launch that has parts of stores on the host", "planner.py",
    "two cores, other programs beside; REINFORCE on pictures in 2,008 launches 3.2 s, in one 1.1")
LEAST_ON_HOST = price(64 * 1024, "bytes of a store that moves to the memory of the host", "runtime/staged/swapping.py")
SECONDS_OF_AN_OPERATION = price(5e-7, "seconds of any operation", "rough_seconds",
    "one core; loops of the classics take a third to thrice of what follows from these six, tables of single numbers a hundredth")
SECONDS_OF_A_FUSED_OPERATION = price(1e-7, "seconds of an operation that XLA makes a part of its reader", "rough_seconds", "as above")
SECONDS_OF_AN_ELEMENT = price(1e-9, "seconds of an element of a result", "rough_seconds", "as above")
SECONDS_OF_A_FAST_ELEMENT = price(2e-10, "seconds of an element that a vector instruction computes, or that only moves", "rough_seconds",
    "as above")
SECONDS_OF_A_PRODUCT = price(5e-11, "seconds of a multiplication with its addition", "rough_seconds", "as above")
OPERATIONS_OF_A_FUNCTION = price(30, "operations as which a function of the user's counts", "rough_seconds")

# -- runtime/cost, planner -----------------------------------------------------------------------------------------------

MOST_BYTES_KEPT = price(32 * 2**20, "bytes of stores and temporaries which an allocator keeps for the next run; more are given back to the "
    "system, and each run pays for their pages again", "runtime/cost/machine.py, planner.py", "two cores of a virtual machine, glibc: 31 MiB are "
    "written at 26 GB/s, 33 MiB at 1.7")
LEAST_OPERATIONS_AT_ONCE = price(2**18, "operations of one execution of a statement, but products, from which on XLA uses all cores",
    "runtime/cost/machine.py", "two cores; tanh of 6,400 x 4,096 numbers takes 0.4 ns a number at once and "
    "3 ns in a loop over 6,400, and of 100,000 x 64 numbers 0.7 and 3.9")
LEAST_GAIN_OF_A_LOOP = price(1.15, "times that a program must be faster, by the cost model, for a step to stay a loop that could be "
    "vectorized", "planner.py", "two cores, other programs beside; of 54 programs, the model has 18 for faster by 1.16 to 8, and they are by 1.0 "
    "to 3.5; the other ones are by 1.08 at most in the model, and 1.2 in truth")
LEAST_SECONDS_SAVED = price(2e-3, "seconds by which it must be faster too: XLA compiles one form more for it", "planner.py")
MOST_MEMORY_OF_A_LOOP = price(1.0, "times the memory of the program as it is that the loop may need for it", "planner.py", "two cores, other programs "
    "beside; a loop over t takes PPO's iteration, 512 x 250, from 272 to 210 ms, and from 36 to 69 MB")
LEAST_GAIN_OF_A_CAPACITY = price(1.1, "times that a run must be faster, by the cost model, at a smaller capacity, which is then compiled for it and "
    "the runs like it", "runtime/cost/capacities.py", "two cores; soft-DTW with gradients, 200 x 250, each up to ten times as long: 5.1 ms with 1.25, "
    "3.2 with 1.1")
LEAST_SECONDS_OF_A_CAPACITY = price(20e-6, "seconds by which it must be faster too: a launch takes as long", "runtime/cost/capacities.py")
POINTS_OF_A_LONG_RUN = price(16, "points from which on a run takes the program without conditions on the number of its points, as `T >= 2`; more than any "
    "that programs read by number", "runtime/cost/capacities.py", "two cores; soft-DTW with two chosen lengths, 100,000 x 40: see benchmarks/classics")
MOST_LOOPS_TRIED = price(3, "steps that are tried as loops for that, each at the time of all passes", "planner.py")

# -- backends ------------------------------------------------------------------------------------------------------------

SCAN_BLOCK = price(8, "elements of a block of a cumulative sum or maximum, which are written out: 3 operations an element, where XLA's "
    "tree takes 16", "backends/xla_cpu/cumulative.py", "two cores, maxima and sums in us; [5000, 64], first axis: tree 1,760 and 920, "
    "one by one 330 and 330, blocks of 8 215 and 155, of 64 340 and 250; [64, 5000], last axis: 2,040 and 1,390, blocks 340 and 530; "
    "[100000]: 510 and 305, blocks 180 and 190")
SHORTEST_SCAN_IN_BLOCKS = price(64, "elements of a scan in blocks: a short scan is a few operations in any form", "backends/jax_backend.py")
LEAST_LENGTH_TO_REDUCE_TWICE = price(32, "elements along which the place of a maximum is found by two plain reductions, in place of one "
    "of pairs", "backends/jax_backend.py", "two cores; two take 0.4 of the time at 32 elements, a fifteenth at 512, 1.0 to 1.7 at 20 and "
    "fewer")
LEAST_WIDTH_TO_MULTIPLY = price(16_384, "elements of rows whose sum is a product with ones, in place of a reduction", "backends/jax_backend.py",
    "two cores; rows of 100 MB in memory, and sums of their tanh, in ms: of 8,000 elements 7.0 and 4.7, 23 and 104; of 16,384 41 and 3.9, "
    "47 and 54; of 50,000 298 and 3.6, 247 and 52, and the reduction takes as much memory again as it reads")
MOST_NUMBERS_TO_WRITE_OUT = price(8, "numbers of a sum that is written out, in place of a reduction, if there are many such sums",
    "backends/jax_backend.py", "two cores, other programs beside; sums of products along the last of three axes, in ms: (100000, 4, 2) "
    "10 and written out 0.12; (100000, 4, 4) 7.9 and 0.25; (100000, 8, 8) 35 and 1.8; (2000, 64, 4) 1.0 and 0.07; of exponentials (1000, 64, 16) 0.6 and 1.2")
LEAST_SUMS_TO_WRITE_OUT = price(1024, "such sums", "backends/jax_backend.py")
WIDTH_HELD_WHOLE = price(30_000, "elements of rows that XLA's reduction holds in memory as a whole; of narrower ones a share",
    "backends/xla_cpu/wide_rows.py", "two cores; rows of 1,000, 3,000, 5,000, 10,000 and 20,000 elements: 2.5, 9.7, 17, 33 and 100 % of them")
LEAST_SHRINKING = price(4, "times that what a scan reads must be smaller than the operand that it then computes as it goes",
    "pays_to_compute_in_scan, backends/xla_cpu/loops.py", "two cores; counts of the past, in the loop and after it, in ms: 6,000 positions of "
    "16 elements 0.5 and 1.0, of 64 1.2 and 2.1, of 128 0.9 and 1.7, of 1,024 3.3 and 20")
MOST_READ_BY_FAST_OPERATIONS = price(2, "times that it may be larger, where only fast operations (a mask) compute the operand",
    "pays_to_compute_in_scan")
MOST_OPERATIONS_IN_A_SCAN = price(24, "operations that a scan repeats for an operand", "pays_to_compute_in_scan")
NUMBERS_IN_A_CACHE_LINE = price(16, "numbers that lie together at each position of a scan, from which on the array is not transposed",
    "backends/xla_cpu/loops.py")
LEAST_PIECES_TO_TRANSPOSE = price(128, "pieces in which each element of a scan lies, from which on the array is transposed first",
    "backends/xla_cpu/loops.py", "two cores, two arrays [pieces, length, together], as they lie and transposed, in ms: (1024, 2000, 1) 28 "
    "and 19; (256, 1000, 1) 1.06 and 0.99; (16, 1000, 1) 0.065 and 0.075; (2, 100000, 1) 0.72 and 0.89; (1024, 250, 8) 8.5 and 6.8; "
    "(1024, 60, 32) 9.1 and 9.7")
LEAST_PADDINGS_OF_A_SUM = price(2, "paddings whose sum is computed by itself", "backends/xla_cpu/kept.py",
    "two cores; the gradient of a stencil at [200, 200], four paddings: 34 us an iteration, 86 where each is written to memory")
LEAST_LENGTH_TO_SLICE = price(32, "elements that follow each other which are a slice in place of a gather", "backends/xla_cpu/slices.py",
    "two cores; a gather takes 1 ns an element, the slice less than half")
MOST_ELEMENTS_TO_SLICE = price(8, "elements at positions that an iteration of a loop computes, which are a slice each in place of a gather",
    "backends/xla_cpu/slices.py", "two cores; us an iteration with gathers and slices: diagonals of 2, 4, 8, 16 rows 1.6, 1.1, 4.8, 4.7 and 0.1, 0.1, "
    "0.8, 5.8; 4, 8 and 16 priorities that the same iteration writes 23.0, 23.5, 24.1 and 23.1, 23.4, 43.7 (a kernel for each "
    "slice); swaps in a tour 1.0 and 0.8")
LEAST_BYTES_TO_SLICE = price(1024, "bytes of the value of which these are: XLA makes one kernel of a loop that reads less", "backends/xla_cpu/slices.py",
    "two cores; an automaton of 16 cells with 8 rules, 100,000 steps: 2.0 ms with a gather, 160 with 16 slices a step")
LEAST_LENGTH_TO_UPDATE = price(64, "elements of an axis of which one is written in place, at a position that data decides, and not by a "
    "selection of all, which is a part of other operations", "pays_to_update")
LARGEST_READ_OF_AN_UPDATE = price(0.25, "of a value that is updated in place, so much at most is copied so that it is read before",
    "backends/xla_cpu/kept.py, runtime/lower/lower.py")
LEAST_LENGTH_TO_SCATTER = price(256, "the same, at several positions: XLA's CPU compiler writes one after the other", "pays_to_update",
    "two cores; 40 ns a position")
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
    return LEAST_TIMES_SMALLER * result <= operand and matrix <= operand


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
    return single or has_ranges or sum(_operations(node.op) for node in nodes) >= FEWEST_OPERATIONS_FOR_A_WAVEFRONT


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


def pays_to_unroll(trips: int, operations: int, copied_bytes: int, is_repeated: bool, on_cpu: bool) -> bool:
    """Whether to write out a loop whose iterations have so many operations and would each copy so many bytes. It `is_repeated` inside
    another loop.

    Elsewhere than on a CPU, products read their operands out of larger arrays, and loops stay loops.
    """
    is_cheap = is_repeated and trips * operations <= OPERATIONS_OF_A_LONG_LOOP
    least = max(LEAST_BYTES_TO_UNROLL, 0 if is_cheap else operations * LEAST_BYTES_FOR_AN_OPERATION)
    return on_cpu and copied_bytes >= least and trips * operations <= MOST_OPERATIONS_TO_UNROLL


def rough_seconds(node: Node, operands: Types, env: Mapping[Symbol, int]) -> float:
    """A rough estimate of how long a statement runs on a CPU, at a point with these bounds and steps."""
    if not isinstance(node.op, ops.Dataflow):
        return _seconds(node.op, operands, node.outputs, env)
    body = node.op.body
    types = body.slot_types
    return sum(
        _seconds(op, tuple(types[k] for k in used), tuple(types[k] for k in given), env)
        for op, used, given in body.instructions
        if not isinstance(op, costs.VIEWS)  # their readers compute the elements that they read
    )


def is_fast(op: ops.Op) -> bool:
    """Whether a vector instruction computes an operation, or it only moves or repeats values."""
    return op.cost_class in (HELD, VIEW, CHEAP)


def is_faster_at_once(op: ops.Op) -> bool:
    """Whether it is much faster at once than point by point: a group with it is vectorized, even if more values have to be kept for it."""
    return op.cost_class in (PRODUCT, SCAN, SORT) or isinstance(op, ops.Udf)


def _seconds(op: ops.Op, operands: Types, results: Types, env: Mapping[Symbol, int]) -> float:
    if op.updated:  # in place: the rest of the value stays where it is
        operands, results = operands[1:], operands[1:]
    written = sum(size(type).evaluate(env) for type in results)
    # An elementwise operation is one with its operands too: only the elements of its result count.
    is_fused = isinstance(op, costs.PARTS) or (isinstance(op, costs.OF_THEIR_READER) and not isinstance(op, costs.VIEWS))
    seconds = SECONDS_OF_A_FUSED_OPERATION if is_fused else SECONDS_OF_AN_OPERATION
    seconds += written * (SECONDS_OF_A_FAST_ELEMENT if is_fast(op) else SECONDS_OF_AN_ELEMENT)
    if is_fused:
        return seconds
    if isinstance(op, ops.Udf):
        seconds += OPERATIONS_OF_A_FUNCTION * SECONDS_OF_AN_OPERATION
    if isinstance(op, (ops.Dot, ops.Conv)):  # half of the operations are additions
        return seconds + costs.operations(op, operands, results).evaluate(env) / 2 * SECONDS_OF_A_PRODUCT
    return seconds + sum(size(type).evaluate(env) for type in operands) * SECONDS_OF_AN_ELEMENT


def pays_to_compute_in_scan(elements: int, read: int, operations: int, is_fast: bool) -> bool:
    """Whether a scan computes an operand of so many elements as it goes, by so many operations on arrays of `read` elements."""
    is_little = read * LEAST_SHRINKING <= elements or (is_fast and operations and read <= MOST_READ_BY_FAST_OPERATIONS * elements)
    return bool(is_little) and operations <= MOST_OPERATIONS_IN_A_SCAN


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
