"""Minimum cuts: the cheapest set of vertices whose removal parts the sources of a flow from its sinks (Ford and Fulkerson 1956)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from tempo_core.ir.dependence import reached

V = TypeVar("V", bound=Hashable)

_Place = tuple[object, bool]  # a vertex, and whether behind its own capacity
_SOURCE: _Place = ("source", True)
_SINK: _Place = ("sink", False)


def beyond_the_cut(prices: Mapping[V, int], arcs: Iterable[tuple[V, V]], sources: Iterable[V], sinks: Iterable[V]) -> set[V]:
    """The vertices on the sinks' side of the cheapest cut, without those that are cut. Of several cuts, the one nearest to the sinks.

    `prices` are those of the vertices, to be cut. `arcs` lead from a vertex to the next one.

    >>> sorted(beyond_the_cut({"x": 4, "y": 8, "z": 8}, [("x", "y"), ("x", "z")], ["x"], ["y", "z"]))
    ['y', 'z']
    >>> beyond_the_cut({"x": 4, "y": 1, "z": 1}, [("x", "y"), ("x", "z")], ["x"], ["y", "z"])
    set()
    """
    endless = 1 + sum(prices.values())
    left: dict[_Place, dict[_Place, int]] = {_SOURCE: {}, _SINK: {}}  # how much more may flow
    for vertex, price in prices.items():
        _join(left, (vertex, False), (vertex, True), price)
    for first, second in arcs:
        _join(left, (first, True), (second, False), endless)
    for vertex in sources:
        _join(left, _SOURCE, (vertex, False), endless)
    for vertex in sinks:
        _join(left, (vertex, True), _SINK, endless)
    while (path := _path(left)) is not None:
        pairs = list(itertools.pairwise(path))
        flow = min(left[a][b] for a, b in pairs)
        for a, b in pairs:
            left[a][b] -= flow
            left[b][a] += flow
    reaching = _reaching_the_sink(left)
    return {vertex for vertex in prices if (vertex, False) in reaching}


def _join(left: dict[_Place, dict[_Place, int]], first: _Place, second: _Place, capacity: int) -> None:
    forward, backward = left.setdefault(first, {}), left.setdefault(second, {})
    forward[second] = forward.get(second, 0) + capacity
    backward.setdefault(first, 0)


def _path(left: Mapping[_Place, Mapping[_Place, int]]) -> list[_Place] | None:
    """A shortest path from the source to the sink along which more may flow."""
    before: dict[_Place, _Place | None] = {_SOURCE: None}
    waiting = deque([_SOURCE])
    while waiting:
        place: _Place | None = waiting.popleft()
        assert place is not None
        for after, capacity in left[place].items():
            if capacity and after not in before:
                before[after] = place
                waiting.append(after)
        if _SINK in before:
            path, place = [], _SINK
            while place is not None:
                path.append(place)
                place = before[place]
            return path[::-1]
    return None


def _reaching_the_sink(left: Mapping[_Place, Mapping[_Place, int]]) -> set[_Place]:
    """The places from which more may flow to the sink."""
    start: list[_Place] = [_SINK]
    return reached(start, lambda place: [other for other in left[place] if left[other].get(place, 0)])
