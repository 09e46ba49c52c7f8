"""Stores in the memory of the host: which they are, and which of their points a launch has on the device.

    for t in 0:100000:             for t in 0:1000:     h has the points 0:1001 on the device
      h[t + 1] = f(h[t])     ->    for t in 1000:2000:  h has the points 1000:2001
                                   ...

A launch touches the points that its statements write and read, along one step: `Touched` has them as expressions of loop counters. A
loop that walks through a store runs in launches of some iterations each, and between two of them points move (`moves`). Point p has the
slot `p % points` on the device: there, such a store is a window of so many points. What no launch can have in part stays on the device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo_core import prices
from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.feeds import is_fed_in_parts
from tempo_core.runtime.staged.host import Chunks, Fetch, HostItem, HostLoop, Segment, placed
from tempo_core.schedule import Block, Execute, Loop, Storage
from tempo_core.schedule.tidy import Limits, extent, limited, simplified
from tempo_core.schedule.tree import Item, as_block, changed, counter, with_conditions
from tempo_core.symbolic.domain import Index, Point, Range
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.symbolic.proof import distribute

Span = tuple[int, int]  # points from the first to before the last


@dataclass(frozen=True)
class HostStorage:
    """The storage of a store in the host's memory: `slots` there along the step `axis`, of which the device has `points` at a time.

    A launch may walk through `advance` points. `storage` is that of all points, `bound` their number: with fewer slots, points share them.
    An input that `is_fed` fills it before the run.
    """

    storage: Storage
    axis: int
    advance: int
    bound: int
    is_fed: bool = False
    alive: int = 1  # of an input: for how many points a value is read again
    points: int = 2

    @property
    def slots(self) -> int:
        return self.storage.slots[self.axis]

    @property
    def on_device(self) -> Storage:
        """What the device has: a part is a window."""
        slots = self.storage.slots
        if self.points == self.slots:
            return self.storage
        return Storage("window", (*slots[: self.axis], self.points, *slots[self.axis + 1 :]))


def host_stores(
    graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int], sizes: Mapping[str, int]
) -> dict[Key, HostStorage]:
    """The stores that may live on the host: those with many points along a step of `sizes`, and inputs that are fed in parts."""
    hosted = {}
    for key, each in storage.items():
        node, type = graph[key[0]], graph[key[0]].outputs[key[1]]
        if is_fed_in_parts(graph[key[0]].op):
            steps = node.domain.steps
            each = Storage("block", tuple(1 if step in graph.chosen else bounds[step.bound_symbol] for step in steps))
        elif any(each.lasting):
            continue
        axes = [axis for axis, step in enumerate(node.domain.steps) if step.name in sizes]
        axis = max(axes, key=lambda axis: each.slots[axis], default=None)
        if axis is None or not type.is_static:
            continue
        step = node.domain.steps[axis]
        advance, bound = sizes[step.name], bounds[step.bound_symbol]
        if is_fed_in_parts(graph[key[0]].op):
            hosted[key] = HostStorage(each, axis, advance, bound, True, storage[key].slots[axis])
            continue
        is_large = type.size_in_bytes(bounds) * each.size >= prices.LEAST_ON_HOST
        if is_large and each.slots[axis] > max(advance, 2):
            hosted[key] = HostStorage(each, axis, advance, bound)
    return hosted


def without_fed(root: Block, graph: Graph) -> Block:
    """A program without the statements of inputs that are fed in parts: their values are there before it runs."""
    numbers = {node.id for node in graph if is_fed_in_parts(node.op)}

    def rest(item: Item) -> Item:
        return Block() if isinstance(item, Execute) and item.node in numbers else changed(item, rest)

    return as_block(simplified(changed(root, rest), {})) if numbers else root


# -- what is touched --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Touched:
    """Points of a store along its step, in loop counters: from `first` to before `stop`, in each iteration of the `loops` of a launch.

    `others` is the place along its other steps. Without a condition, `always` holds. `aligned` is the length of a range that begins at its
    multiples; 1 for others.
    """

    first: Expr
    stop: Expr
    others: tuple[Index | Expr, ...]
    loops: tuple[Loop, ...]
    is_written: bool
    always: bool = True
    aligned: int = 1


class Walked:
    """What the statements of a program touch of its stores on the host."""

    def __init__(self, graph: Graph, bounds: Mapping[Symbol, int], hosted: Mapping[Key, HostStorage]):
        self.graph, self.hosted = graph, hosted
        self._numbers: dict[Symbol, IntoExpr] = dict(bounds)

    def of_segment(self, segment: Segment) -> dict[Key, list[Touched]]:
        """What a launch touches, by store."""
        touched = [each for put in segment.puts for each in self._written(put.execute, put.keys, (), True)]
        for item in segment.items:
            touched += self._read(item.execute, (), True) if isinstance(item, Fetch) else self.of(item)
        return by_store(touched)

    def of(self, item: Item) -> Iterator[tuple[Key, Touched]]:
        for execute, loops, conditions in with_conditions(item):
            yield from self._read(execute, loops, not conditions)
            yield from self._written(execute, self.graph[execute.node].written, loops, not conditions)

    def _written(
        self, execute: Execute, keys: Iterable[Key], loops: tuple[Loop, ...], always: bool
    ) -> Iterator[tuple[Key, Touched]]:
        for key in keys:
            if key in self.hosted:
                axis = self.hosted[key].axis
                at = execute.point[axis].substitute(self._numbers)
                yield key, Touched(at, at + 1, _without(execute.point, axis), loops, True, always)

    def _read(self, execute: Execute, loops: tuple[Loop, ...], always: bool) -> Iterator[tuple[Key, Touched]]:
        node = self.graph[execute.node]
        at: dict[Symbol, IntoExpr] = {**self._numbers, **dict(zip(node.domain.steps, execute.point, strict=True))}
        for edge in node.operands(execute.branch):
            key = edge.source, edge.output
            if key not in self.hosted:
                continue
            place = [index.substitute(at) for index in edge.index]
            axis = self.hosted[key].axis
            others = _without([index.expr if isinstance(index, Point) else index for index in place], axis)
            index = place[axis]
            if isinstance(index, Point):
                yield key, Touched(index.expr, index.expr + 1, others, loops, False, always)
            else:
                yield key, Touched(index.start, index.stop, others, loops, False, always, _alignment(index))


def _without(place: Sequence[Index | Expr], axis: int) -> tuple[Index | Expr, ...]:
    return (*place[:axis], *place[axis + 1 :])


def _alignment(index: Range) -> int:
    """The length of a range, if it always begins at a multiple of it."""
    length = index.length.constant if index.length.is_constant and index.stride == 1 else 1
    return length if length > 0 and all(coefficient % length == 0 for _, coefficient in index.start.terms) else 1


def by_store(touched: Iterable[tuple[Key, Touched]]) -> dict[Key, list[Touched]]:
    stores: dict[Key, list[Touched]] = {}
    for key, each in touched:
        stores.setdefault(key, []).append(each)
    return stores


# -- how many points --------------------------------------------------------------------------------------------------


def most_points(touched: Sequence[Touched], limits: Limits) -> int | None:
    """The most points from the first to the last that one launch touches; None if nothing is known. `limits` are those of the counters
    around it.
    """
    lasts, firsts = ([_ends(each, name, limits) for each in touched] for name in ("last", "first"))
    pairs = [None if a is None or b is None else (a[1] - b[0], {**a[2], **b[2]}) for a in lasts for b in firsts]
    spans = [None if pair is None else _most(*pair) for pair in pairs]
    return None if None in spans else max(span for span in spans if span is not None)


def _most(expr: Expr, limits: Limits) -> int | None:
    """The greatest value of an expression, or more; None if nothing is known. Equal parts of minima and maxima cancel out."""
    rows = [[extent(entry, limits) for entry in row] for row in distribute(expr) or ()]
    return min((max(end[1] for end in ends if end) for ends in rows if None not in ends), default=None)


def _ends(touched: Touched, name: str, limits: Limits) -> tuple[Expr, Expr, Limits] | None:
    """The ends of what is touched, with limits of their symbols; None if it is not known how long a loop is.

    A counter of the launch is its loop's start and a distance (called by `name`), so that equal starts cancel out in differences.
    """
    inner = dict(limits)
    at: dict[Symbol, IntoExpr] = {}
    for loop in touched.loops:
        start = loop.start.substitute(at)
        length = extent(loop.stop.substitute(at) - start, inner)
        if length is None:
            return None
        distance = counter(f"{name} {loop.counter.name}, on")
        inner[distance] = (0, max(length[1] - 1, 0))
        at[loop.counter] = start + distance.expr
    return touched.first.substitute(at), touched.stop.substitute(at), inner


def in_part(loop: Loop, count: int) -> Loop:
    """Some iterations of a loop: `count` of them, from any one on."""
    first = counter(f"first {loop.counter.name}").expr
    return replace(loop, start=first, stop=first + count * loop.step)


def around(loop: Loop | HostLoop | Chunks, limits: Limits) -> Limits:
    """The limits of the counters in a part of a loop."""
    first, last = extent(loop.start, limits), extent(loop.stop - 1, limits)
    if first is None or last is None:
        return limits
    span = first[0], max(last[1], first[0])
    return {**limits, loop.counter: span, counter(f"first {loop.counter.name}"): span}


def iterations(walked: Walked, loop: Loop, limits: Limits) -> int | None:
    """How many iterations of a loop are one launch; None if it may stay whole, 0 if even one iteration touches too much."""
    counts = []
    inner, parts = around(loop, limits), (loop, in_part(loop, 1), in_part(loop, 2))
    for key, touched in by_store(walked.of(loop)).items():
        store = walked.hosted[key]
        of_parts = ([replace(each, loops=(part, *each.loops[1:])) for each in touched] for part in parts)
        whole, one, two = (most_points(part, inner) for part in of_parts)
        if one is None or two is None or one >= store.slots:
            return 0
        if whole is None or whole > max(store.advance, one):
            counts.append(1 if two == one else max((store.advance - 1) // (two - one) + 1, 1))
    return min(counts, default=None)


def with_points(walked: Walked, items: Sequence[HostItem]) -> dict[Key, HostStorage]:
    """The stores with the number of points that the device needs of each; without those that some launch needs as a whole.

    Inputs that are fed in parts stay, with all their points.
    """
    most: dict[Key, int] = {}
    aligned: dict[Key, int] = {}
    for segment, loops in placed(items):
        if not isinstance(segment, Segment):
            continue
        limits: Limits = functools.reduce(lambda limits, loop: around(loop, limits), loops, {})
        for key, touched in walked.of_segment(segment).items():
            chunks = loops[-1] if loops else None
            if isinstance(chunks, Chunks):
                trips = extent(chunks.stop - chunks.start, limits)
                count = chunks.most or (trips[1] if trips else walked.hosted[key].bound)
                touched = [replace(each, loops=(in_part(each.loops[0], count), *each.loops[1:])) for each in touched]
            points = most_points(touched, limits)
            most[key] = max(most.get(key, 2), walked.hosted[key].slots if points is None else points)
            aligned[key] = max(aligned.get(key, 1), *(each.aligned for each in touched))
    stores = {}
    for key, store in walked.hosted.items():
        points, length = most.get(key, 2), aligned.get(key, 1)
        points = -(-points // length) * length  # then such a range is one slice of the window
        if points < store.slots or store.is_fed:
            stores[key] = replace(store, points=min(points, store.slots))
    return stores


# -- a launch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """What one launch touches of a store: all points, those that it writes, and those that it must have from before."""

    touched: Span
    written: Span | None
    needed: Span | None


class Moves:
    """The points of a store that the launches of a segment touch, for values of the counters around them."""

    def __init__(self, touched: Sequence[Touched], store: HostStorage):
        self.all, self.bound = touched, store.bound
        self.written = [each for each in touched if each.is_written]
        is_alone = math.prod(store.storage.slots) == store.slots
        self.needed = _before(self.written[0], touched) if is_alone and _follow(self.written, touched) else touched

    def at(self, counters: Mapping[Symbol, int]) -> Move | None:
        """None for a launch that touches nothing."""
        limits = {symbol: (value, value) for symbol, value in counters.items()}
        touched = self._span(self.all, limits)
        if touched is None:
            return None
        return Move(touched, self._span(self.written, limits), self._span(self.needed, limits))

    def _span(self, touched: Iterable[Touched], limits: Limits) -> Span | None:
        spans = [span for each in touched if (span := _span(each, limits, self.bound)) is not None]
        if not spans:
            return None
        first, stop = max(min(first for first, _ in spans), 0), min(max(stop for _, stop in spans), self.bound)
        return (first, stop) if first < stop else None


def _span(touched: Touched, limits: Limits, bound: int) -> Span | None:
    """What is touched, for values or limits of the counters around it: all points, if that is not known."""
    for loop in touched.loops:
        limits = limited(loop, limits)
        least, most = limits.get(loop.counter, (0, 0))
        if least > most:
            return None
    first, stop = _extent(touched.first, limits), _extent(touched.stop, limits)
    return (0, bound) if first is None or stop is None else (first[0], stop[1])


def _extent(expr: Expr, limits: Limits) -> Span | None:
    """The least and greatest value of an expression. Counters with one value may be in any operation."""
    numbers = {symbol: first for symbol, (first, last) in limits.items() if first == last}
    return extent(expr, limits) or extent(expr.substitute(numbers), limits)


def _follow(writes: Sequence[Touched], touched: Sequence[Touched]) -> bool:
    """Whether each iteration of a loop writes the next point, and reads this one or earlier ones."""
    if len(writes) != 1 or not writes[0].always or len(writes[0].loops) > 1:
        return False
    (write,) = writes
    if write.loops and (write.loops[0].step != 1 or not (write.first - write.loops[0].counter.expr).is_constant):
        return False
    ahead = [write.first - each.stop + 1 for each in touched]
    are_together = all(each.loops[:1] == write.loops and each.others == write.others for each in touched)
    return are_together and all(distance.is_constant and distance.constant >= 0 for distance in ahead)


def _before(write: Touched, touched: Sequence[Touched]) -> list[Touched]:
    """What is read of the points before the first that a launch writes."""
    start = {loop.counter: loop.start for loop in write.loops}
    earlier = (replace(each, stop=write.first) for each in touched if not each.is_written and each.first != write.first)
    return [replace(each, first=each.first.substitute(start), stop=each.stop.substitute(start), loops=()) for each in earlier]
