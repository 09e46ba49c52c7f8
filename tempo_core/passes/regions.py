"""Regions of a `Merge`: the points of all steps but some at which the same branches apply."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tempo_core.errors import NonAffineError
from tempo_core.ir.graph import Node
from tempo_core.passes.base import condition_without
from tempo_core.prices import MOST_REGIONS
from tempo_core.symbolic.condition import FALSE, Bool, conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.relation import never


@dataclass(frozen=True)
class Region:
    """Where `condition` holds, which lacks the steps, these branches apply: (number, condition on those steps alone), in order."""

    condition: Bool
    branches: tuple[tuple[int, Bool], ...]


def regions(merge: Node, *steps: Symbol) -> list[Region] | None:
    """The regions of a `Merge` without `steps`: they do not overlap, and contain all its points. None if there are too many.

    None too if a part of a condition mentions both one of the steps and another one (`i + t < T`).

    For `u[0, i] = a; u[k, 0] = b; u[k, i] = c` and the step i: `k == 0` with a, and `k >= 1` with b if `i == 0`, else c.
    """
    return _regions(merge.domain, tuple(edge.condition for edge in merge.inputs), steps)


# Many recurrences, say all parameters of an optimizer, have branches under the same conditions.
@functools.lru_cache(maxsize=4096)
def _regions(points: Domain, conditions: tuple[Bool, ...], steps: tuple[Symbol, ...]) -> list[Region] | None:
    split = [_parts(condition, steps) for condition in conditions]
    if any(along.steps - set(steps) for along, _ in split):
        return None
    others = tuple(s for s in points.steps if s not in steps)
    domain = Domain(others, condition_without(points.condition, *steps))
    try:
        places = _disjoint(domain, [rest for _, rest in split])
        all_regions = [
            Region(place, _applying(points, place, conditions, [along for along, _ in split])) for place in places or ()
        ]
    except NonAffineError:
        return None
    return [region for region in all_regions if region.branches] or None


def _parts(condition: Bool, steps: tuple[Symbol, ...]) -> tuple[Bool, Bool]:
    """The parts of a conjunction that mention one of the steps, and the others."""
    along = conjunction(*(part for part in condition.parts if not part.symbols.isdisjoint(steps)))
    return along, condition_without(condition, *steps)


def _applying(points: Domain, place: Bool, conditions: tuple[Bool, ...], along_steps: list[Bool]) -> tuple[tuple[int, Bool], ...]:
    """The branches that define some point of a region, each with its condition on the steps.

    At every other point of the region, a branch defines the same points along the steps. So its read is right in all of the region.
    """
    branches: list[tuple[int, Bool]] = []
    earlier: Bool = FALSE
    for number, (condition, along) in enumerate(zip(conditions, along_steps, strict=True)):
        if not never(points, place & condition & ~earlier):
            branches.append((number, along))
        earlier = earlier | condition
    return tuple(branches)


def _disjoint(domain: Domain, conditions: list[Bool]) -> list[Bool] | None:
    """Conditions of which exactly one holds at each point that meets any of `conditions`: each lies inside or outside of each of them.

    >>> from tempo_core.symbolic.condition import TRUE
    >>> k = Symbol("k", "K")
    >>> _disjoint(Domain((k,)), [k.expr == 0, k.expr >= 1])
    [k == 0, k >= 1]
    >>> _disjoint(Domain((k,)), [TRUE, k.expr == 0])
    [k == 0, k != 0]
    """
    places: list[Bool] = []
    for condition in dict.fromkeys(conditions):
        left = condition  # the part of the condition outside of the earlier places
        refined: list[Bool] = []
        for place in places:
            parts = [part for part in (place & condition, place & ~condition) if not never(domain, part)]
            refined += parts if len(parts) > 1 else [place]
            if not never(domain, left & place):
                left = left & ~place
        places = refined if never(domain, left) else [*refined, left]
        if len(places) > MOST_REGIONS:
            return None
    return places
