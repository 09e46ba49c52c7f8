"""Why functions of the core stay that act in few programs, or in none: see `benchmarks/reach.py`.

A key is the beginning of `file: function`, and the longest one counts. A test fails for a function without a reason, and for a key that
explains no function. The figures are those of the pages in docs/ and of `tempo_core/prices.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

REASONS: Mapping[str, str] = {
    # -- what users call, or ask for by an option
    "frontend/autodiff/gradients.py": "gradients of single ops: without its row, a function that users call has none",
    "frontend/autodiff/slopes.py": "slopes of single functions, right at infinity and zero: without its row, a function has no gradient",
    "passes/batch/batching.py": "dimensions of single ops: without its row, an op stays in a loop",
    "passes/shapes/pad.py": "padding of single ops: without its row, an op of a size that varies is refused",
    "passes/shapes/ragged.py": "reshapes and random numbers of two sizes that vary: the elements keep their order",
    "passes/keep/checkpoint.py": "the option `checkpoint`",
    "passes/tiles/tile.py": "the option `tile`, and tiles that a limit of memory chooses",
    "runtime/lower/placement.py: Placement.sharding": "the option `devices`: stores of a step that is spread",
    "runtime/lower/placement.py: Placement.place": "results of calls of the host that the loop itself does not read: they stay there until it is over",
    # -- reports and errors
    "passes/batch/vectorize.py": "explain(): what keeps a node in a loop, and which read",
    "passes/decisions.py": "explain() and the lists of decisions",
    "schedule/storage.py: keepers": "explain(): the reads for which a large store is kept",
    "schedule/polyhedral.py: Schedule.text": 'the text of a schedule, `program.text("schedule")`',
    "schedule/polyhedral.py: _Times": 'the text of a schedule, `program.text("schedule")`',
    "schedule/outline.py": "the outline of a program whose bounds a run chooses, in their names",
    "schedule/tree.py": "programs in which isl counts a step more than once: their order is compared with their times",
    "schedule/polyhedral.py": "errors: the shortest cycle of reads in a CausalityError, with a point",
    "schedule/pieces.py: cycle_of": "errors: a cycle of reads in a CausalityError, where no short one was found",
    "frontend/autodiff/backward.py: _op_name": "errors: the name of an op without a gradient",
    "runtime/lower/lower.py: Lowering._one_way": "errors: JAX cannot go backwards through a loop of unknown length; the user's line and what to do",
    "runtime/lower/one_way.py": "errors: JAX cannot go backwards through a loop of unknown length; the user's line and what to do",
    # -- gradients of ranges
    "frontend/autodiff/range_reductions.py": "gradients of prefixes, suffixes and blocks under every reducing function, in time linear in the step",
    "frontend/autodiff/window_gradients.py": "gradients of windows stay as wide as the window; those of `x[t % 4]` are scattered",
    "frontend/autodiff/backward.py: _Reverse._scatter_back": "gradients of `x[t % 4]`: each reader's contribution goes to the point that it reads",
    "frontend/autodiff/reader_sums.py": "gradients of windows whose readers are ranges too (`x[i + t]`): parsing by a grammar, window attention",
    "frontend/autodiff/readers.py": "gradients of windows with weights by position: n-step returns, impulse responses",
    # -- ranges
    "ir/ranges/convolutions.py": "windows with fixed weights are convolutions: impulse responses",
    "ir/ranges/past_convolutions.py": "convolutions with the whole past are Fourier transforms: linear in the step, but for a logarithm",
    "passes/ranges/lift.py: _Lifting._is_over_the_past": "convolutions with the whole past are Fourier transforms: linear in the step, but for a logarithm",
    "ir/ranges/moments.py": "variances, correlations and higher moments of all prefixes, 0.46 times the time of JAX by hand",
    "ir/ranges/sums.py": "sums over prefixes whose terms depend on the reader: variances, log-sum-exp, softmax",
    "ir/ranges/terms.py": "sums over prefixes whose terms depend on the reader: variances, log-sum-exp, softmax, however they are written",
    "ir/ranges/step_blocks.py": "blocks of a step: values that are the same at all points of a block are computed once",
    "ir/ranges/window_reductions.py": "windows of any width in operations that grow with its logarithm at most, and blocks in one reduction",
    "ir/ranges/elements.py": "elements of ranges that count their points or come in reverse order: prompts that go on from a kept past, convolutions",
    "ir/ranges/lifted.py": "prefixes and suffixes under discounts, convolutions and picks by position, computed once for the step",
    "ir/ranges/scans.py": "prefixes and suffixes under products, minima and positions of maxima: one scan for the step",
    "passes/ranges/geometric.py": "recurrences with one constant factor are powers of it: the last point of a sum of outer products is one product of matrices",
    "passes/ranges/lift.py: _Lifting._carried": "a reduction of what a loop streams is a recurrence in that loop: the programs of the paper",
    "passes/ranges/linear_attention.py": "linear attention in blocks, with gradients: Mamba-2 and gated linear attention as fast as by hand",
    "passes/ranges/running.py": "linear attention in blocks, with gradients: Mamba-2 and gated linear attention as fast as by hand",
    "passes/ranges/shift.py": "windows of few points are written out as shifted slices: impulse responses",
    # -- what is faster in programs that the record has few of, or of smaller sizes
    "passes/batch/split.py": "prefill of a prompt that is written token by token: 512 tokens of a model of 100M take 0.7 s in place of 11",
    "passes/order": "the published compiler's algebra of chains: `a @ b @ x` costs what `a @ (b @ x)` does",
    "passes/clean/stacks.py": "tables that reduce a stack of their neighbours (`tp.stack([...]).max(0)`) run by diagonals, as with `tp.maximum`",
    "passes/tiles/strip.py": "products of 64 MiB or more in strips: PPO with 512 x 250 points takes 2/3 of the time and 1/5 of the memory",
    "backends/xla_cpu/slices.py: pieces": "few elements of a larger value are slices: diagonals of tables with up to 8 rows, up to ten times as fast",
    "backends/xla_cpu/slices.py: in_parts": "products of slices of 64 MiB or more without a copy of the slices",
    "backends/xla_cpu/loops.py": "scans of which few elements are read, in one loop with their readers: adaptive models take a third of the time by hand",
    "runtime/lower/placement.py": "layers and short loops that are written out: a store is an array for each point",
    # -- loops that end early, and bounds that a run chooses
    "passes/shapes/ended.py": "streamed values and functions with a state in a loop that ends early: right values, not faster ones",
    "passes/shapes/capacity.py": "inner loops that end early: what uses an inner end is computed at each outer point",
    "schedule/constraints.py: Constraints.waiting": "times that are counted from the end of a step wait until a run knows it",
    "schedule/constraints.py: Constraints.waits": "times that are counted from the end of a step wait until a run knows it",
    # -- schedules of hard programs
    "schedule/pieces.py": "programs without an affine schedule: one in a hundred random programs needs pieces",
    "schedule/nesting.py: _Nesting._split": "programs without an affine schedule: one in a hundred random programs needs pieces",
    "schedule/constraints.py: Constraints.divided": "programs without an affine schedule: one in a hundred random programs needs pieces",
    "schedule/constraints.py: Constraints.assuming": "programs with a schedule for large bounds only, or for these numbers only",
    "schedule/constraints.py": "conditions in many pieces: isl schedules the points around them; else it needs seconds for ten pieces",
    "schedule/lifetimes.py": "conditions in many pieces: lifetimes are bounded; isl would compare each piece with each other",
    "schedule/nesting.py: _Nesting._phases": "many connected statements: isl sees one cycle at a time, as its time grows with their cube",
    "schedule/storage.py: _choose": "the slot of a number, where runs step through a program on the host",
}


def reason_of(function: str, reasons: Mapping[str, str] = REASONS) -> tuple[str, str]:
    """The key and the reason of a function, by its file and name; empty if there is none."""
    key = max((key for key in reasons if function.startswith(key)), key=len, default="")
    return key, reasons.get(key, "")


def stale(functions: Iterable[str], reasons: Mapping[str, str] = REASONS) -> set[str]:
    """The keys that give the reason of none of the functions."""
    return set(reasons) - {reason_of(function, reasons)[0] for function in functions}
