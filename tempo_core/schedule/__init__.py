"""The schedule of a graph: when each statement runs, as a program, and where each value lives."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tempo_core.errors import BoundsError
from tempo_core.ir.graph import Graph
from tempo_core.schedule.build import build_program
from tempo_core.schedule.constraints import constraints_of, used_bounds
from tempo_core.schedule.polyhedral import Schedule, compute
from tempo_core.schedule.storage import Storage, fold
from tempo_core.schedule.tree import Block, Dealloc, Execute, If, Loop, counter, instances, leaves, text, walk
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A graph, the program `root` that computes it for `bounds`, and the storage of each (node id, output)."""

    graph: Graph
    root: Block
    storage: dict[tuple[int, int], Storage]
    bounds: Mapping[Symbol, int]
    times: Schedule | None = None  # None if program and storage come from a file

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The times of all statements."""
        return self.times or compute(constraints_of(self.graph), self.bounds)

    def text(self) -> str:
        """The program, readable."""
        return text(self.root, self.graph)


def schedule(
    graph: Graph, bounds: Mapping[Symbol, int], dealloc: bool = False, least: Mapping[Symbol, int] | None = None
) -> Scheduled:
    """Schedule a verified graph for `bounds` (all that occur in it, each at least 1).

    `least` are the least bounds of a run, of steps whose bounds runs choose. With `dealloc`, the program also frees values.

    Raises CausalityError where values depend on themselves, BoundsError, NonAffineError.
    """
    for bound in sorted(used_bounds(graph), key=str):
        if bounds.get(bound, 0) < 1:
            raise BoundsError(f"the bound {bound} is {bounds.get(bound, 'not given')}; it must be a number of at least 1")
    constraints = constraints_of(graph)
    for strided in (True, False):
        times = compute(constraints, bounds, strided)
        storage = fold(times, bounds)
        root = build_program(times, bounds, storage if dealloc and not graph.chosen else None, least or {})
        if not times.loses_order(root, bounds):
            break
    return Scheduled(graph, root, storage, dict(bounds), times)


__all__ = [
    "Block", "Dealloc", "Execute", "If", "Loop", "Schedule", "Scheduled", "Storage",
    "counter", "instances", "leaves", "schedule", "text", "walk",
]  # fmt: skip
