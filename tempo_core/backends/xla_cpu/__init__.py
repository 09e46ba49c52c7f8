"""What steers XLA's compiler for CPUs: passes over the islands that are traced, and scans in blocks.

Scans compute large operands in their loops, and what takes a part of their elements (`loops`). Paddings read dear values from memory, and what
is updated is read before (`kept`). Gathers at positions that follow each other are slices, and products of large slices run in parts (`slices`).
"""

from collections.abc import Callable

from tempo_core.backends.island import Island
from tempo_core.backends.xla_cpu.kept import keep_apart, read_before_updates
from tempo_core.backends.xla_cpu.loops import compute_in_loops
from tempo_core.backends.xla_cpu.slices import take_slices

PASSES: tuple[Callable[[Island], None], ...] = (compute_in_loops, keep_apart, take_slices, read_before_updates)
