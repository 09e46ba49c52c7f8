"""Memory statements: the times at which values may be freed, computed from the schedule and added to it.

The executor of single statements frees values. The staged executor folds values into stores and does not need this.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import islpy as isl

from tempo_core.schedule.lifetimes import Lifetimes
from tempo_core.schedule.storage import Storage
from tempo_core.symbolic.isl.sets import CONTEXT


def with_deallocs(lifetimes: Lifetimes, storage: Mapping[tuple[int, int], Storage]) -> dict[str, isl.Map]:
    """The times of all statements (points to time vectors), together with those of statements that free values.

    Only outputs with several slots are freed: in a single slot, the next value replaces the last one.
    A value is freed right after its last reader, or after its own computation if nothing reads it. Times get trailing
    entries: 0 for a statement of the graph, another number for each freed output, and then the freed point, so that no two
    times are equal.
    """
    constraints = lifetimes.constraints
    rank = max((len(node.domain.steps) for node in constraints.graph), default=0)
    merged = {name: _extended(theta, 0, 0, rank) for name, theta in lifetimes.theta.items()}
    freed = [key for key, store in storage.items() if store.size > 1 and key[0] in constraints.of_node]
    for number, (node_id, output) in enumerate(freed, 1):
        writes, reads = lifetimes.exact(node_id, lifetimes.reads.get((node_id, output), []))  # its computation is a use too
        last = functools.reduce(isl.Map.union, reads, writes).lexmax().coalesce().make_disjoint()
        for piece, part in enumerate(last.get_basic_maps()):  # affine pieces keep the loops simple
            name = f"d{node_id}_{output}_{piece}"
            dealloc = isl.Map.from_basic_map(part).set_tuple_name(isl.dim_type.in_, name)
            merged[name] = _extended(dealloc, number, len(constraints.graph[node_id].domain.steps), rank)
    return merged


def _extended(theta: isl.Map, number: int, coordinates: int, rank: int) -> isl.Map:
    """`theta` with entries appended: `number`, as many coordinates of the point as `coordinates` says, and zeros up to `rank` entries."""
    depth = theta.dim(isl.dim_type.out)
    theta = theta.add_dims(isl.dim_type.out, 1 + rank).fix_val(isl.dim_type.out, depth, isl.Val(number, CONTEXT))
    for k in range(rank):
        position = depth + 1 + k
        if k < coordinates:
            theta = theta.equate(isl.dim_type.in_, k, isl.dim_type.out, position)
        else:
            theta = theta.fix_val(isl.dim_type.out, position, isl.Val(0, CONTEXT))
    return theta
