"""What steers XLA's compiler for CPUs: passes over the islands that are traced, and scans in blocks.

The passes say what that compiler would compute together, element by element, and should not: scans compute large operands in their loops,
and what takes a part of their elements (`loops`). Paddings read dear values from memory, and their sums are in memory (`apart`). Gathers at
positions that follow each other are slices, and products of large slices run in parts (`slices`). What is updated is read before (`in_place`).
"""

from collections.abc import Callable

from tempo_core.backends.island import Island
from tempo_core.backends.xla_cpu.apart import keep_apart
from tempo_core.backends.xla_cpu.in_place import read_before_updates
from tempo_core.backends.xla_cpu.loops import compute_in_loops
from tempo_core.backends.xla_cpu.slices import take_slices

PASSES: tuple[Callable[[Island], None], ...] = (compute_in_loops, keep_apart, take_slices, read_before_updates)
