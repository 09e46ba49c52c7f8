"""Stores in the memory of the host: which they are, and which of their points a launch has on the device.

    for t in 0:100000:             for t in 0:1000:     h has the points 0:1001 on the device
      h[t + 1] = f(h[t])     ->    for t in 1000:2000:  h has the points 1000:2001
                                   ...

A launch touches the points that its statements write and read: sets of isl, with the counters around the launch as parameters
(`Touched`). A loop that walks through a store runs in launches of some iterations each, and between two of them points move (`Moves`).
Point p has the slot `p % points` on the device: there, such a store is a window of so many points. What no launch can have in part stays
on the device.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tempo_core.errors import NonAffineError
from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.feeds import is_fed_in_parts
from tempo_core.runtime.staged.host import Chunks, Fetch, HostItem, HostLoop, Segment, placed
from tempo_core.schedule import Block, Execute, Loop, Storage
from tempo_core.schedule.tidy import simplified
from tempo_core.schedule.tree import Item, as_block, changed, counter, with_conditions
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Index, Point, Range
from tempo_core.symbolic.expr import IntoExpr, Symbol
from tempo_core.symbolic.isl.sets import Frame, indexed
from tempo_core.symbolic.isl.spans import Ends, Span, along, hull, most_across
from tempo_core.target import Target

if TYPE_CHECKING:
    import islpy as isl

Counters = tuple[Symbol, ...]
Around = tuple[Loop | HostLoop | Chunks, ...]  # the loops around a launch, the outermost first


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
    graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int], sizes: Mapping[str, int], target: Target
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
        is_large = type.size_in_bytes(bounds) * each.size >= target.host * target.launch  # else it moves in no time
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
    """The points of a store that a launch reads, and those that it writes: sets of its steps. A point is written once.

    `aligned` is the length of a range that begins at its multiples; 1 for others.
    """

    read: isl.Set
    written: isl.Set
    aligned: int = 1

    def all_along(self, axis: int) -> isl.Set:
        return along(self.read.union(self.written), axis)


class Walked:
    """What the statements of a program touch of its stores on the host."""

    def __init__(self, graph: Graph, bounds: Mapping[Symbol, int], hosted: Mapping[Key, HostStorage]):
        self.graph, self.hosted = graph, hosted
        self._bounds: dict[Symbol, IntoExpr] = dict(bounds)

    def of_segment(self, segment: Segment) -> dict[Key, Touched]:
        """What a launch touches, by store."""
        each = [self._written(put.execute, put.keys) for put in segment.puts]
        each += [self._read(item.execute) if isinstance(item, Fetch) else self._of(item) for item in segment.items]
        return _by_store(itertools.chain(*each))

    def of(self, item: Item) -> dict[Key, Touched]:
        """What an item touches, by store."""
        return _by_store(self._of(item))

    def _of(self, item: Item) -> Iterator[tuple[Key, Touched]]:
        for execute, loops, conditions in with_conditions(item):
            where = conjunction(*conditions, *map(_goes_on, loops)).substitute(self._bounds)
            counters = tuple(loop.counter for loop in loops)
            yield from self._read(execute, counters, where)
            yield from self._written(execute, self.graph[execute.node].written, counters, where)

    def _read(self, execute: Execute, counters: Counters = (), where: Bool = TRUE) -> Iterator[tuple[Key, Touched]]:
        node = self.graph[execute.node]
        at: dict[Symbol, IntoExpr] = {**self._bounds, **dict(zip(node.domain.steps, execute.point, strict=True))}
        for edge in node.operands(execute.branch):
            key = edge.source, edge.output
            if key in self.hosted:
                index = tuple(each.substitute(at) for each in edge.index)
                points = self._points(key, index, counters, where)
                yield key, Touched(points, points.subtract(points), _alignment(index[self.hosted[key].axis]))

    def _written(
        self, execute: Execute, keys: Iterable[Key], counters: Counters = (), where: Bool = TRUE
    ) -> Iterator[tuple[Key, Touched]]:
        for key in keys:
            if key in self.hosted:
                points = self._points(key, tuple(Point(e.substitute(self._bounds)) for e in execute.point), counters, where)
                yield key, Touched(points.subtract(points), points)

    def _points(self, key: Key, index: Sequence[Index], counters: Counters, where: Bool) -> isl.Set:
        """The points of a store at an index, for all values of counters at which a condition holds; all points if that is not affine."""
        steps = self.graph[key[0]].domain.steps
        axes = tuple(counter(f"point {k}") for k in range(len(steps)))
        around = where.symbols.union(*(each.symbols for each in index)).difference(counters)
        frame, store = Frame(counters, around), Frame(axes, around)
        inside = ((a.expr >= 0) & (a.expr < self._bounds[s.bound_symbol]) for a, s in zip(axes, steps, strict=True))
        everywhere = store.condition(conjunction(*inside))
        try:
            return indexed(frame, store, axes, index).intersect_domain(frame.condition(where)).range().intersect(everywhere)
        except NonAffineError:
            return everywhere


def _by_store(touched: Iterable[tuple[Key, Touched]]) -> dict[Key, Touched]:
    stores: dict[Key, Touched] = {}
    for key, each in touched:
        if (other := stores.get(key)) is not None:
            each = Touched(other.read.union(each.read), other.written.union(each.written), max(other.aligned, each.aligned))
        stores[key] = each
    return stores


def _goes_on(loop: Loop | HostLoop | Chunks) -> Bool:
    """The values of a loop's counter; of a loop that runs in chunks, those of the first iteration of a launch, and of the one after it."""
    if not isinstance(loop, Chunks):
        at = loop.counter.expr
        return (at >= loop.start) & (at < loop.stop) & ((at - loop.start) % loop.step == 0)
    first, last = loop.first.expr, loop.last.expr
    most = loop.most * loop.step if loop.most else loop.stop - loop.start
    return (first >= loop.start) & (first < loop.stop) & (last > first) & (last <= first + most)


def _alignment(index: Index) -> int:
    """The length of a range, if it always begins at a multiple of it."""
    if not isinstance(index, Range):
        return 1
    length = index.length.constant if index.length.is_constant and index.stride == 1 else 1
    return length if length > 0 and all(coefficient % length == 0 for _, coefficient in index.start.terms) else 1


# -- how many points --------------------------------------------------------------------------------------------------


def most_points(touched: Touched, axis: int, around: Around) -> int | None:
    """The most points from the first to the last that one launch in some loops touches; None if nothing is known."""
    return most_across(touched.all_along(axis).intersect_params(_counters(around)))


def _counters(around: Around) -> isl.Set:
    """The values that the counters around a launch have, as parameters; nothing is said of those that are not affine."""
    values = Frame((), ()).condition(TRUE).params()
    for where in map(_goes_on, around):
        with contextlib.suppress(NonAffineError):
            values = values.intersect(Frame((), where.symbols).condition(where).params())
    return values


def in_part(loop: Loop, count: int) -> Loop:
    """Some iterations of a loop: `count` of them, from any one on."""
    first = counter(f"first {loop.counter.name}").expr
    return replace(loop, start=first, stop=first + count * loop.step)


def iterations(walked: Walked, loop: Loop, around: Around) -> int | None:
    """How many iterations of a loop are one launch; None if it may stay whole, 0 if even one iteration touches too much."""
    counts = []
    first = counter(f"first {loop.counter.name}")
    inside = (*around, replace(loop, counter=first, body=Block()))
    whole, one, two = (walked.of(part) for part in (loop, in_part(loop, 1), in_part(loop, 2)))
    for key, store in ((key, walked.hosted[key]) for key in whole):
        in_all = most_points(whole[key], store.axis, around)
        in_one, in_two = (most_points(part[key], store.axis, inside) for part in (one, two))
        if in_one is None or in_two is None or in_one >= store.slots:
            return 0
        if in_all is None or in_all > max(store.advance, in_one):
            counts.append(1 if in_two == in_one else max((store.advance - 1) // (in_two - in_one) + 1, 1))
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
        for key, touched in walked.of_segment(segment).items():
            points = most_points(touched, walked.hosted[key].axis, loops)
            most[key] = max(most.get(key, 2), walked.hosted[key].slots if points is None else points)
            aligned[key] = max(aligned.get(key, 1), touched.aligned)
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

    def __init__(self, touched: Touched, store: HostStorage):
        every = touched.all_along(store.axis)
        written = along(touched.written, store.axis)
        needed = hull(every)
        if math.prod(store.storage.slots) == store.slots:  # else other points have a part of what moves too
            needed = needed.subtract(written).union(along(touched.read.subtract(touched.written), store.axis))
        self.all, self.written, self.needed = Ends(every), Ends(written), Ends(needed)

    def at(self, counters: Mapping[Symbol, int]) -> Move | None:
        """None for a launch that touches nothing."""
        touched = self.all.at(counters)
        return None if touched is None else Move(touched, self.written.at(counters), self.needed.at(counters))
