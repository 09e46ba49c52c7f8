"""Memory statements: the times at which values may be freed, computed from the schedule and added to it.

The executor of single statements frees values. The staged executor folds values into stores and does not need this.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tempo_core.schedule.constraints import is_statement, value_name
from tempo_core.schedule.polyhedral import Schedule
from tempo_core.schedule.storage import Storage
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, fixed


def dealloc_name(node_id: int, output: int, piece: int) -> str:
    return f"d{node_id}_{output}_{piece}"


def with_deallocs(
    schedule: Schedule, bounds: Mapping[Symbol, int], times: dict[str, isl.Map], storage: Mapping[tuple[int, int], Storage]
) -> dict[str, isl.Map]:
    """`times` (statement points to time vectors), together with the times of statements that free values.

    Only outputs with several slots are freed: in a single slot, the next value replaces the last one.
    A value is freed right after its last reader, or after its own computation if nothing reads it. Times get trailing
    entries: 0 for a statement of the graph, another number for each freed output, and then the freed point, so that no two
    times are equal.
    """
    constraints, graph = schedule.constraints, schedule.constraints.graph
    rank = max((len(node.domain.steps) for node in graph), default=0)
    merged = {name: _extended(theta, 0, 0, rank) for name, theta in times.items()}
    number = 0
    for node in graph:
        for output in range(len(node.outputs) if is_statement(node) else 0):
            if (node.id, output) not in storage or storage[node.id, output].size == 1:
                continue
            number += 1
            name = value_name(node.id)
            uses: isl.Map | None = None  # its own computation is a use too
            for statement in constraints.of_node.get(node.id, ()):
                computed = times[statement.name].set_tuple_name(isl.dim_type.in_, name)
                uses = computed if uses is None else uses.union(computed)
            if uses is None:
                continue
            for read in constraints.reads:
                if (read.edge.source, read.edge.output) == (node.id, output):
                    uses = uses.union(fixed(read.relation, bounds).reverse().apply_range(times[read.reader.name]))
            last = uses.lexmax().coalesce().make_disjoint()
            for piece, part in enumerate(last.get_basic_maps()):  # affine pieces keep the loops simple
                dealloc = isl.Map.from_basic_map(part)
                dealloc = dealloc.set_tuple_name(isl.dim_type.in_, dealloc_name(node.id, output, piece))
                merged[dealloc_name(node.id, output, piece)] = _extended(dealloc, number, len(node.domain.steps), rank)
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
