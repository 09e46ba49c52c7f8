"""Memory statements: when each value may be freed, found from the schedule and placed in it.

The program's executor of single statements frees values; the staged one folds them into stores and needs none of this.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tempo_core.schedule.constraints import is_statement, value_name
from tempo_core.schedule.polyhedral import Schedule
from tempo_core.schedule.storage import Storage
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.sets import CONTEXT, fixed


def dealloc_name(node_id: int, output: int, piece: int) -> str:
    return f"d{node_id}_{output}_{piece}"


def with_deallocs(
    schedule: Schedule, bounds: Mapping[Symbol, int], times: dict[str, isl.Map], storage: Mapping[tuple[int, int], Storage]
) -> dict[str, isl.Map]:
    """`times` (statement points to time vectors) and, merged into them, statements that free the values of each output.

    Only of outputs with several slots: a value in a single one goes when the next takes its place.
    A value is freed right after its last reader, or after it is computed where nothing reads it. Times get trailing
    entries: 0 for what runs, a number of its own for each freed output, and then the freed point, so that no two meet.
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
            used: isl.Map | None = None  # also by its own computation
            for statement in constraints.of_node.get(node.id, ()):
                computed = times[statement.name].set_tuple_name(isl.dim_type.in_, name)
                used = computed if used is None else used.union(computed)
            if used is None:
                continue
            for read in constraints.reads:
                if (read.edge.source, read.edge.output) == (node.id, output):
                    used = used.union(fixed(read.relation, bounds).reverse().apply_range(times[read.reader.name]))
            last = used.lexmax().coalesce().make_disjoint()
            for piece, part in enumerate(last.get_basic_maps()):  # affine pieces keep the loops simple
                freed = isl.Map.from_basic_map(part)
                freed = freed.set_tuple_name(isl.dim_type.in_, dealloc_name(node.id, output, piece))
                merged[dealloc_name(node.id, output, piece)] = _extended(freed, number, len(node.domain.steps), rank)
    return merged


def _extended(theta: isl.Map, number: int, own: int, rank: int) -> isl.Map:
    """`theta` with entries appended: `number`, the first `own` coordinates of the point, and zeros up to `rank` of them."""
    depth = theta.dim(isl.dim_type.out)
    theta = theta.add_dims(isl.dim_type.out, 1 + rank).fix_val(isl.dim_type.out, depth, isl.Val(number, CONTEXT))
    for k in range(rank):
        position = depth + 1 + k
        if k < own:
            theta = theta.equate(isl.dim_type.in_, k, isl.dim_type.out, position)
        else:
            theta = theta.fix_val(isl.dim_type.out, position, isl.Val(0, CONTEXT))
    return theta
