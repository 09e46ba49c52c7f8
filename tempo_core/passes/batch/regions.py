"""Regions of a `Merge`: the points of all steps but one at which the same branches apply."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tempo_core.errors import NonAffineError
from tempo_core.ir.graph import Node
from tempo_core.passes.base import condition_without, of_branches
from tempo_core.prices import MOST_WRITTEN_OUT
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.relation import never


@dataclass(frozen=True)
class Region:
    """Where `condition` holds, which lacks the step, these branches apply: (number, the parts of its condition on the step), in order."""

    condition: Bool
    branches: tuple[tuple[int, Bool], ...]


def regions(merge: Node, step: Symbol, beside: tuple[Symbol, ...] = ()) -> list[Region] | None:
    """The regions of a `Merge` without `step`: they do not overlap, and contain all its points. None if there are too many.

    None too if a part of a condition mentions the step and another one (`i + t < T`) that is not one of `beside`.

    For `u[0, i] = a; u[k, 0] = b; u[k, i] = c` and the step i: `k == 0` with a, and `k >= 1` with b if `i == 0`, else c.
    """
    return _regions(merge.domain, tuple(edge.condition for edge in merge.inputs), step, beside)


# Many recurrences, say all parameters of an optimizer, have branches under the same conditions.
@functools.lru_cache(maxsize=4096)
def _regions(points: Domain, conditions: tuple[Bool, ...], step: Symbol, beside: tuple[Symbol, ...]) -> list[Region] | None:
    along_step = [conjunction(*(part for part in condition.parts if step in part.symbols)) for condition in conditions]
    if any(along.steps - {step, *beside} for along in along_step):
        return None
    domain = Domain(points.without(step).steps, condition_without(points.condition, step))
    beyond_step = [condition_without(condition, step) for condition in conditions]
    try:
        places = _disjoint(domain, beyond_step)
        all_regions = [Region(place, _applying(points, place, beyond_step, along_step)) for place in places or ()]
    except NonAffineError:
        return None
    return [region for region in all_regions if region.branches] or None


def _applying(points: Domain, place: Bool, beyond_step: list[Bool], along_step: list[Bool]) -> tuple[tuple[int, Bool], ...]:
    """The branches that define some point of a region, each with its condition on the step.

    At every other point of the region, a branch defines the same points along the step. So its read is right in all of the region.
    A region lies inside or outside of what a branch says beyond the step: inside, only the conditions on the step are left to compare.
    """
    inside = [branch for branch, beyond in enumerate(beyond_step) if not never(points, place & beyond)]
    defined = of_branches(along_step[branch] for branch in inside)
    branches = zip(inside, defined, strict=True)
    return tuple((branch, along_step[branch]) for branch, condition in branches if not never(points, place & condition))


def _disjoint(domain: Domain, conditions: list[Bool], by_step: bool = True) -> list[Bool] | None:
    """Conditions of which exactly one holds at each point that meets any of `conditions`: each lies inside or outside of each of them.

    With `by_step`, what lies outside of a condition is divided by the steps of its parts, so that a region can be vectorized over
    another step too; unless there are too many regions then.

    >>> from tempo_core.symbolic.condition import TRUE
    >>> k, i = Symbol("k", "K").expr, Symbol("i", "I").expr
    >>> _disjoint(Domain((k.single_atom,)), [k == 0, k >= 1])
    [k == 0, k >= 1]
    >>> _disjoint(Domain((k.single_atom,)), [TRUE, k == 0])
    [k == 0, k != 0]
    >>> _disjoint(Domain((k.single_atom, i.single_atom)), [(k >= 1) & (i >= 1), TRUE])
    [(i >= 1) & (k >= 1), i <= 0, (i >= 1) & (k <= 0)]
    """
    places: list[Bool] = []
    for condition in dict.fromkeys(conditions):
        left = [condition]  # the parts of the condition outside of the earlier places
        refined: list[Bool] = []
        for place in places:
            parts = [p for p in (place & condition, *_outside(place, condition, by_step)) if not never(domain, p)]
            refined += parts if len(parts) > 1 else [place]
            left = [p for each in left for p in ([each] if never(domain, each & place) else _outside(each, place, by_step))]
        places = [*refined, *(part for part in left if not never(domain, part))]
        if len(places) > MOST_WRITTEN_OUT:
            return _disjoint(domain, conditions, False) if by_step else None
    return places


def _outside(place: Bool, condition: Bool, by_step: bool) -> list[Bool]:
    """The points of a place outside of a condition, in conditions that do not overlap: one for each set of steps in the condition's parts."""
    groups: dict[frozenset[Symbol], Bool] = {}
    for part in condition.parts:
        steps = part.steps if by_step else frozenset()
        groups[steps] = groups.get(steps, TRUE) & part
    pieces: list[Bool] = []
    for part in groups.values():
        pieces.append(place & ~part)
        place = place & part
    return pieces
