"""How many slots stores have, as expressions of the bounds."""

from __future__ import annotations

from collections.abc import Mapping

from tempo_core.schedule.polyhedral import Schedule
from tempo_core.schedule.storage import Storage, fold
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import at_bounds


def symbolic_slots(
    schedule: Schedule, bounds: Mapping[Symbol, int], storage: Mapping[tuple[int, int], Storage]
) -> dict[tuple[int, int], tuple[Expr, ...]]:
    """The slots of stores as expressions of the bounds: those of twice a bound, in the same schedule, tell what they owe to it.

    A schedule that is right for these bounds only does not tell; then a step with a slot for each point has as many as its bound.
    """
    large = {key for key, store in storage.items() if store.size > 1}
    graph, least = schedule.constraints.graph, schedule.constraints.assumptions
    slots = {key: [Expr.of(n) for n in store.slots] for key, store in storage.items()}
    for bound in schedule.constraints.bounds if large else ():
        doubled = {**bounds, bound: 2 * bounds[bound]}
        follows = not at_bounds(least, doubled).is_empty()
        others = fold(schedule, doubled, large) if follows else storage
        for key in large:
            for k, step in enumerate(graph[key[0]].domain.steps):
                more = others[key].slots[k] - storage[key].slots[k]
                if not follows and step.bound_symbol == bound and storage[key].slots[k] == bounds[bound]:
                    more = bounds[bound]
                each, rest = divmod(more, bounds[bound])
                share = bound.expr * each if not rest else bound.expr * more // bounds[bound]
                slots[key][k] = slots[key][k] - more + share
    return {key: tuple(each) for key, each in slots.items()}
