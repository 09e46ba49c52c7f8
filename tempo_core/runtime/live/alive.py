"""What is alive between two iterations of a staged program: values that were written before, and are read after.

A run that stops between two iterations of a loop needs nothing of a store whose values are all read in the iteration that writes them:

    for i: { for t: s[t] = ...;  g = f(s[0:T]) }      between two iterations of i, nothing of s is read any more

The places of a write and of a read, in loop counters, say whether both are always in one iteration. Where they do not say it, the store
is taken to be alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.staged.host import Chunks, Fetch, HostCall, HostItem, HostLoop, Segment, placed
from tempo_core.schedule import Execute, Loop
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.tidy import Limits, decided
from tempo_core.schedule.tree import with_conditions
from tempo_core.symbolic.condition import FALSE, Bool
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol

Slot: TypeAlias = int  # where values wait on their way between functions and device programs
Held: TypeAlias = Union[Key, Slot]
Loops: TypeAlias = tuple[tuple[int, Symbol], ...]  # the loops around a statement, outside in: identity and counter of each


@dataclass(frozen=True)
class Access:
    """A write or a read, with the point of the value along each of its steps, in loop counters; None along a range.

    It happens where all the `conditions` hold.
    """

    loops: Loops
    point: tuple[Expr | None, ...]
    conditions: tuple[Bool, ...] = ()


class Alive:
    """The reads and writes of a staged program. `results` are the stores and the slots that are read when it has ended."""

    def __init__(self, items: Sequence[HostItem], graph: Graph, bounds: Mapping[Symbol, int], results: Iterable[Held]):
        self.graph = graph
        self._numbers: dict[Symbol, IntoExpr] = dict(bounds)
        self._most = {chosen_value(step): bounds[step.bound_symbol] - 1 for step in graph.chosen}
        self.writes: dict[Held, set[Access]] = {}
        self.reads: dict[Held, set[Access]] = {}
        for item, around in placed(items):
            loops = tuple((id(loop), loop.counter) for loop in around)
            self._segment(item, loops) if isinstance(item, Segment) else self._call(item, loops)
        self.at_end = frozenset(results)  # what is read when the program has ended
        for held in self.at_end:
            self.reads.setdefault(held, set()).add(Access((), ()))

    def before(self, loops: Sequence[tuple[HostLoop | Chunks, range]]) -> frozenset[Held]:
        """The stores and slots that are alive before an iteration of the last of these loops, each with the iterations that are left.

        The loops are around each other, from the outside in.
        """
        place = tuple((id(loop), loop.counter) for loop, _ in loops)
        left: Limits = {loop.counter: (values.start, self._last(loop, values)) for loop, values in loops if values}
        return frozenset(held for held in self.reads if self._is_alive(held, place, left))

    def _last(self, loop: HostLoop | Chunks, values: range) -> int:
        """The last iteration of a loop, as far as runs choose it: the run may go on with more of them."""
        is_chosen = loop.stop.symbols and loop.stop.symbols <= self._most.keys()
        return loop.stop.evaluate(self._most) - 1 if is_chosen else values[-1]

    def _is_alive(self, held: Held, place: Loops, left: Limits) -> bool:
        """Whether a value may be written before an iteration of the innermost loop of a place, and read in it or later."""
        reads = [read for read in self.reads[held] if not _is_over(read, place, left)]
        return not all(_in_one_iteration(write, read, place) for write in self.writes.get(held, ()) for read in reads)

    # -- accesses -----------------------------------------------------------------------------------------------------

    def _segment(self, segment: Segment, loops: Loops) -> None:
        for put in segment.puts:
            self._read(put.slot, loops, put.execute.point)
            for key in put.keys:
                self._write(key, loops, put.execute.point)
        for item in segment.items:
            if isinstance(item, Fetch):
                self._operands(item.execute, loops)
                self._write(item.slot, loops, item.execute.point)
                continue
            if segment.is_chunk and isinstance(item, Loop):  # the loop that is cut into launches is there already
                item = item.body
            for execute, inner, conditions in with_conditions(item):
                around = (*loops, *((id(loop), loop.counter) for loop in inner))
                self._operands(execute, around, conditions)
                for key in self.graph[execute.node].written:
                    self._write(key, around, execute.point)

    def _call(self, call: HostCall, loops: Loops) -> None:
        if self.graph[call.execute.node].inputs:
            self._read(call.slot, loops, call.execute.point)
        self._write(call.slot, loops, call.execute.point)
        for output in call.kept:
            self._write((call.execute.node, output), loops, call.execute.point)

    def _operands(self, execute: Execute, loops: Loops, conditions: tuple[Bool, ...] = ()) -> None:
        steps = self.graph[execute.node].domain.steps
        at: dict[Symbol, IntoExpr] = {**self._numbers, **dict(zip(steps, execute.point, strict=True))}
        for edge in self.graph[execute.node].operands(execute.branch):
            point = tuple(index.expr.substitute(at) if isinstance(index, Point) else None for index in edge.index)
            self.reads.setdefault((edge.source, edge.output), set()).add(Access(loops, point, conditions))

    def _read(self, held: Held, loops: Loops, point: Sequence[Expr | None]) -> None:
        self.reads.setdefault(held, set()).add(Access(loops, tuple(point)))

    def _write(self, held: Held, loops: Loops, point: Sequence[Expr | None]) -> None:
        self.writes.setdefault(held, set()).add(Access(loops, tuple(point)))


def _in_one_iteration(write: Access, read: Access, place: Loops) -> bool:
    """Whether a value is always read in the iteration, of each loop of a place, that writes it."""
    if write.loops[: len(place)] != place or read.loops[: len(place)] != place:
        return False  # one of them is outside, before the loop or after it
    equal: set[Symbol] = set()  # counters that have the same value at the write and at the read
    points = [w for w, r in zip(write.point, read.point, strict=True) if w is not None and r is not None and w == r]
    for _, counter in place:
        if not any(_decides(point, counter, equal) for point in points):
            return False
        equal.add(counter)
    return True


def _is_over(read: Access, place: Loops, left: Limits) -> bool:
    """Whether a read is in the loops of a place, and in none of the iterations that are left."""
    return read.loops[: len(place)] == place and any(decided(condition, left) is FALSE for condition in read.conditions)


def _decides(point: Expr, counter: Symbol, known: set[Symbol]) -> bool:
    """Whether a point has a value of the counter, where the `known` ones are given: it is `counter + offset`."""
    offset = point - counter.expr
    return counter in point.symbols and offset.symbols <= known
