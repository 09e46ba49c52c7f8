"""Options of XLA's CPU compiler for one program.

IN_ORDER: by default it runs operations that do not depend on each other at the same time, and it decides so for the bodies of loops too. With many
copies of a program that learns from minibatches, in loops inside of loops, a run then stood still: all its threads waited for each other (jaxlib
0.10.2). With the scheduler that saves memory, operations run one after the other, and each still uses all cores.

IN_ANY_ORDER: since jaxlib 0.12 it adds up the products of a fused matrix and vector one by one, without vector instructions, ten times as slowly.
LLVM may use those in another order. NaN, infinities, divisions and functions stay; signs of zeros do not, by which JAX searches in sorted edges.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax

from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Random, Udf

IN_ORDER = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
HONORED = {f"xla_cpu_fast_math_honor_{each}": True for each in ("nans", "infs", "division", "functions")}
IN_ANY_ORDER = {"xla_cpu_enable_fast_math": True, **HONORED}


def options_of(nodes: Graph, disable: Collection[str]) -> dict[str, Any]:
    """The options of a program: of one that is many copies of another, and of one whose additions have no order ("order" is disabled)."""
    if jax.default_backend() != "cpu":
        return {}
    has_copies = any(isinstance(part, Random) and part.seeded for node in nodes for part in node.op.parts)
    searches = any(isinstance(part, Udf) and part.name == "searchsorted" for node in nodes for part in node.op.parts)
    return (IN_ORDER if has_copies else {}) | (IN_ANY_ORDER if "order" in disable and not searches else {})


class WithOptions:
    """A traced program that is compiled with options."""

    def __init__(self, lowered: Any, options: dict[str, Any]):
        self.lowered, self.options = lowered, options

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lowered, name)

    def compile(self) -> Any:
        return self.lowered.compile(compiler_options=self.options)
