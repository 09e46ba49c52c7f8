"""Programs whose operations XLA's CPU runtime runs in their order.

By default it runs operations that do not depend on each other at the same time, and it decides so for the bodies of loops too. With many
copies of a program that learns from minibatches, in loops inside of loops, a run then stood still: all its threads waited for each other (jaxlib
0.10.2). With the scheduler that saves memory, operations run one after the other, and each still uses all cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from tempo_core.ir.graph import Node
from tempo_core.ir.ops import Random

OPTIONS = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class InOrder:
    """A traced program that is compiled to run in order."""

    def __init__(self, lowered: Any):
        self.lowered = lowered

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lowered, name)

    def compile(self) -> Any:
        return self.lowered.compile(compiler_options=OPTIONS)


def has_copies(nodes: Iterable[Node]) -> bool:
    """Whether a program is many copies of another one, on a CPU."""
    on_cpu = jax.default_backend() == "cpu"
    return on_cpu and any(isinstance(part, Random) and part.seeded for node in nodes for part in node.op.parts)
