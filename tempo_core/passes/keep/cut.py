"""Minimum cuts: the cheapest set of vertices whose removal parts the sources of a flow from its sinks (Ford and Fulkerson 1956)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

V = TypeVar("V", bound=Hashable)

_Place = tuple[object, bool]  # a vertex, and whether behind its own capacity
_SOURCE: _Place = ("source", True)
_SINK: _Place = ("sink", False)


def worth_repeating(sinks: Iterable[V], price: Callable[[V], int], operands: Callable[[V], Iterable[V] | None]) -> set[V]:
    """The values to compute again for readers of `sinks`, so that what has to be kept for them is the cheapest.

    `price` is that of keeping a value, `operands` are what it is computed from. They are None for a value that cannot be computed again.
    """
    prices: dict[V, int] = {}
    arcs: list[tuple[V, V]] = []
    sources: list[V] = []
    waiting = list(sinks)
    while waiting:
        value = waiting.pop()
        if value in prices:
            continue
        prices[value] = price(value)
        before = operands(value)
        if before is None:
            sources.append(value)
        else:
            arcs += [(other, value) for other in before]
            waiting += before
    return beyond_the_cut(prices, arcs, sources, sinks) if sinks else set()


def beyond_the_cut(prices: Mapping[V, int], arcs: Iterable[tuple[V, V]], sources: Iterable[V], sinks: Iterable[V]) -> set[V]:
    """The vertices on the sinks' side of the cheapest cut, without those that are cut. Of several cuts, the one nearest to the sinks.

    `prices` are those of the vertices, to be cut. `arcs` lead from a vertex to the next one.

    >>> sorted(beyond_the_cut({"x": 4, "y": 8, "z": 8}, [("x", "y"), ("x", "z")], ["x"], ["y", "z"]))
    ['y', 'z']
    >>> beyond_the_cut({"x": 4, "y": 1, "z": 1}, [("x", "y"), ("x", "z")], ["x"], ["y", "z"])
    set()
    """
    endless = 1 + sum(prices.values())
    left: dict[_Place, dict[_Place, int]] = {}  # how much more may flow

    def join(first: _Place, second: _Place, capacity: int) -> None:
        left.setdefault(first, {})[second] = capacity
        left.setdefault(second, {}).setdefault(first, 0)

    for vertex, price in prices.items():
        join((vertex, False), (vertex, True), price)
    for first, second in arcs:
        join((first, True), (second, False), endless)
    for vertex in sources:
        join(_SOURCE, (vertex, False), endless)
    for vertex in sinks:
        join((vertex, True), _SINK, endless)
    while _SOURCE in (after := _reaching_the_sink(left)):
        path = [_SOURCE]
        while path[-1] != _SINK:
            path.append(after[path[-1]])
        pairs = list(itertools.pairwise(path))
        flow = min(left[a][b] for a, b in pairs)
        for a, b in pairs:
            left[a][b] -= flow
            left[b][a] += flow
    return {vertex for vertex in prices if (vertex, False) in after}


def _reaching_the_sink(left: Mapping[_Place, Mapping[_Place, int]]) -> dict[_Place, _Place]:
    """The places from which more may flow to the sink, each with the next one on a shortest way."""
    after = {_SINK: _SINK}
    waiting = deque(after)
    while waiting:
        place = waiting.popleft()
        for before in left.get(place, ()):
            if before not in after and left[before][place]:
                after[before] = place
                waiting.append(before)
    return after
