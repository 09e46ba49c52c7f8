"""Where values live: how many slots each tensor needs along each step, folded from the schedule.

Two points of a tensor are alive together when one is written at or after the other and before the other's last read. The
largest distance of two such points along a step, plus one, is the number of slots that suffice there: point p is kept in
slot `p % slots`.

Often only some points are read much later: every hundredth by `x[t // 100 * 100]`, the first by `x[0]`. Then those points have
slots of their own. All others are read soon (by `x[t - 1]`), at once, or never, and share a few more slots, often one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import islpy as isl

from tempo_core.schedule.constraints import Read, is_statement
from tempo_core.schedule.lifetimes import Lifetimes, fixes_point
from tempo_core.schedule.polyhedral import Schedule
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, fixed


@dataclass(frozen=True)
class Lasting:
    """The points along a step that are read late: every `stride`-th from `first` to `last`. All others share the last `others` slots."""

    first: int
    last: int
    stride: int
    others: int = 1

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.stride + 1


def _choose(condition: Any, value: Any, other: Any) -> Any:
    return value if condition else other


@dataclass(frozen=True)
class Storage:
    """The store of one output of a node: point p lives in slot `p % slots`, step by step.

    `kind` is "register" (one slot: a local, or a state updated in place), "window" (a circular store) or "block" (all
    points of a step that is read by ranges, and so contiguous). Along a step with `lasting` points these have the first
    slots, and the last ones are for all others.
    """

    kind: str
    slots: tuple[int, ...]
    lasting: tuple[Lasting | None, ...] = ()

    @property
    def size(self) -> int:
        """The number of points that the store holds at a time."""
        return math.prod(self.slots)

    def lasting_along(self, axis: int) -> Lasting | None:
        return self.lasting[axis] if self.lasting else None

    def slot(self, axis: int, at: Any, choose: Callable[[Any, Any, Any], Any] = _choose) -> Any:
        """The slot of a coordinate along a step. For traced coordinates, `choose` is an array's `where`."""
        slots, lasting = self.slots[axis], self.lasting_along(axis)
        if lasting is None:
            return at % slots
        ahead = at - lasting.first
        lasts = (ahead % lasting.stride == 0) & (ahead >= 0) & (at <= lasting.last)
        own = slots - lasting.others
        return choose(lasts, ahead // lasting.stride % own, own + at % lasting.others)


def fold(
    schedule: Schedule, bounds: Mapping[Symbol, int], only: Container[tuple[int, int]] | None = None
) -> dict[tuple[int, int], Storage]:
    """The storage of every output that a statement computes, by (node id, output), for these bounds; or only of some outputs."""
    return _Folding(schedule, bounds).run(only)


def keepers(
    schedule: Schedule, bounds: Mapping[Symbol, int], keys: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], list[Read]]:
    """The reads of each output that keep its store: those for which, alone, as many slots would be needed as for any other."""
    folding, kept = _Folding(schedule, bounds), dict[tuple[int, int], list[Read]]()
    for key in keys:
        needs = [(math.prod(folding._slots(key[0], [read])[0]), read) for read in folding.reads.get(key, [])]
        kept[key] = [read for need, read in needs if need == max(need for need, _ in needs)]
    return kept


class _Folding:
    def __init__(self, schedule: Schedule, bounds: Mapping[Symbol, int]):
        self.schedule, self.bounds, self.constraints = schedule, bounds, schedule.constraints
        self.lifetimes = Lifetimes(schedule, bounds)
        self.reads = self.lifetimes.reads

    def run(self, only: Container[tuple[int, int]] | None = None) -> dict[tuple[int, int], Storage]:
        """The storage of all outputs, or only of some."""
        storage: dict[tuple[int, int], Storage] = {}
        folded: dict[object, Storage] = {}  # by pattern: values that are written and read in the same way
        for node in self.constraints.graph:
            if not is_statement(node):
                continue
            for output in range(len(node.outputs)):
                if only is not None and (node.id, output) not in only:
                    continue
                reads = self.reads.get((node.id, output), [])
                pattern = self._pattern(node.id, reads)
                if pattern not in folded:
                    slots, lasting = self._slots(node.id, reads)
                    slots = self._with_room(node.id, reads, slots)
                    folded[pattern] = Storage(self._kind(node.id, reads, slots), slots, lasting)
                storage[node.id, output] = folded[pattern]
        return storage

    def _pattern(self, node_id: int, reads: list[Read]) -> object:
        """What the storage of a value depends on: the points and times of the statements that write and read it, and the reads.

        Constants in times count by their order alone, so the values of a program's many parameters have one pattern.
        """
        writers = self.constraints.of_node.get(node_id, ())
        statements = {s.name: s for s in (*writers, *(read.reader for read in reads))}
        rows = {name: self.schedule.rows[name] for name in statements}
        if any(s.is_piece for s in statements.values()) or None in rows.values():
            return node_id, frozenset((read.reader.name, read.edge.index) for read in reads)
        times = _in_order({name: each for name, each in rows.items() if each is not None})
        return (
            self.constraints.graph[node_id].domain,
            frozenset((writer.conditions, times[writer.name]) for writer in writers),
            frozenset(
                (r.reader.node.id == node_id, r.reader.node.domain, r.reader.conditions, times[r.reader.name], r.edge.index)
                for r in reads
            ),
        )

    def _kind(self, node_id: int, reads: list[Read], slots: tuple[int, ...]) -> str:
        if all(s == 1 for s in slots):
            return "register"
        for k, step in enumerate(self.constraints.graph[node_id].domain.steps):
            whole = slots[k] > 1 and slots[k] >= self.bounds[step.bound_symbol]
            if whole and any(isinstance(r.edge.index[k], Range) for r in reads):
                return "block"
        return "window"

    def _slots(self, node_id: int, reads: list[Read]) -> tuple[tuple[int, ...], tuple[Lasting | None, ...]]:
        rank = len(self.constraints.graph[node_id].domain.steps)
        ones = (1,) * rank
        far = [read for read in reads if not self._is_local(read)]
        if not far or rank == 0 or node_id not in self.constraints.of_node:
            return ones, ()  # without statements, the node has no value: its reads are of empty ranges
        together = self._alive_together(node_id, far)
        slots = _fewest(together.deltas(), ones)
        choices = [self._with_others(together, lasting, has_others) for lasting, has_others in self._lasting(far, slots)]
        return min([(slots, ()), *choices], key=lambda choice: math.prod(choice[0]))

    def _with_others(
        self, together: isl.Map, lasting: tuple[Lasting | None, ...], has_others: bool
    ) -> tuple[tuple[int, ...], tuple[Lasting | None, ...]]:
        """The slots of points that last and of all others; `has_others` if some of these are read later than at once."""
        ones = (1,) * len(lasting)
        strides = tuple(1 if part is None else part.stride for part in lasting)
        points = _points(together, lasting)
        counts = _fewest(together.intersect_domain(points).intersect_range(points).deltas(), strides)
        rest = _fewest(together.subtract_domain(points).subtract_range(points).deltas(), ones) if has_others else ones
        slots = tuple(max(n, m) if part is None else n + m for n, m, part in zip(counts, rest, lasting, strict=True))
        return slots, tuple(part and replace(part, others=m) for part, m in zip(lasting, rest, strict=True))

    def _with_room(self, node_id: int, reads: list[Read], slots: tuple[int, ...]) -> tuple[int, ...]:
        """A slot for each point of a step, if all points that exist have one anyway, and a range of more is read: `k[0:t + 1 to T]`.

        The range is one slice of the store then.
        """
        room = list(slots)
        for k, step in enumerate(self.constraints.graph[node_id].domain.steps):
            if slots[k] == 1:
                continue
            bound = self.bounds[step.bound_symbol]
            points = [fixed(statement.points, self.bounds) for statement in self.constraints.of_node[node_id]]
            last = max(part.dim_max_val(k).to_python() for part in points if not part.is_empty())
            ranges = [read.edge.index[k] for read in reads]
            sizes = [
                index.length.evaluate(self.bounds) for index in ranges if isinstance(index, Range) and not index.length.steps
            ]
            if slots[k] > last and any(slots[k] < size <= bound for size in sizes):
                room[k] = bound
        return tuple(room)

    def _lasting(self, reads: list[Read], slots: tuple[int, ...]) -> Iterator[tuple[tuple[Lasting | None, ...], bool]]:
        """Along each step, the points that are read late, where it may take fewer slots to give these their own; and whether others are
        read later than at once too.

        All reads are late, or those along one step that may save something by themselves, or one of these. The others must be of points.
        """
        if max(slots) <= 2:
            return
        lasting = self._points_of(reads, slots)
        if any(lasting):
            yield lasting, False
        different = list({read.edge.index: read for read in reads}.values())
        if len(different) == 1:
            return
        alone = [self._points_of([read for read in reads if read.edge.index == each.edge.index], slots) for each in different]
        for k in range(len(slots)):
            saving = [read.edge.index for read, points in zip(different, alone, strict=True) if points[k] is not None]
            for late in dict.fromkeys((tuple(saving), *((each,) for each in saving))) if saving else ():
                others = [read.edge.index[k] for read in different if read.edge.index not in late]
                if not all(isinstance(each, Point) for each in others):
                    continue
                points = self._points_of([read for read in reads if read.edge.index in late], slots)[k]
                if points is not None:
                    yield tuple(points if axis == k else None for axis in range(len(slots))), True

    def _points_of(self, reads: list[Read], slots: tuple[int, ...]) -> tuple[Lasting | None, ...]:
        """Along each step, the points that are read, if slots for these and one more may be fewer; else None."""
        points = functools.reduce(isl.Set.union, (fixed(read.relation, self.bounds).range() for read in reads))
        choices: list[Lasting | None] = []
        if points.is_empty():
            return (None,) * len(slots)
        for k, count in enumerate(slots):
            first, last = points.dim_min_val(k).to_python(), points.dim_max_val(k).to_python()
            lasting = Lasting(first, last, 1 if first == last else _stride(points, k))
            fewer = min(lasting.count, (count - 1) // lasting.stride + 1) + 1 < count
            choices.append(lasting if fewer else None)
        return tuple(choices)

    def _is_local(self, read: Read) -> bool:
        """Whether the read is in the same loop iteration as the computation of the value, so that one slot is enough for it."""
        writers = self.constraints.of_node.get(read.edge.source, ())
        steps = self.constraints.graph[read.edge.source].domain.steps
        if not read.edge.is_own_point(self.constraints.graph[read.edge.source].domain):
            return False
        reader = self.schedule.rows[read.reader.name]
        depths = {_shared_depth(self.schedule.rows[w.name], reader) for w in writers}
        if None in depths or len(depths) != 1:
            return False
        (depth,) = depths
        return len(writers) == 1 or all(fixes_point(self.schedule.rows[w.name], len(steps), depth) for w in writers)

    def _alive_together(self, node_id: int, reads: list[Read]) -> isl.Map:
        """All pairs (p, q) of points of a node such that q is written while p is alive; sometimes more pairs."""
        writes, lasts = self.lifetimes.times(node_id, reads)
        alive = functools.reduce(isl.Map.union, (last.lex_gt_map(writes) for last in lasts))
        return writes.lex_le_map(writes).intersect(alive)


def _in_order(times: Mapping[str, tuple[Expr, ...]]) -> dict[str, tuple[Expr, ...]]:
    """The times, with constants replaced by their ranks among those that they are compared with.

    Two times are compared up to the first entry in which they are different constants.

    >>> t, number = Symbol("t", "T").expr, Expr.of
    >>> _in_order({"a": (t, number(0), number(7)), "b": (t, number(0), number(9))})
    {'a': (t, 0, 0), 'b': (t, 0, 1)}
    """
    ordered: dict[str, list[Expr]] = {name: [] for name in times}
    groups = [list(times)]  # statements whose times are not told apart by an earlier entry
    for entry in range(max(map(len, times.values()), default=0)):
        split: list[list[str]] = []
        for names in groups:
            rows = {name: times[name][entry] for name in names}
            if any(not row.is_constant for row in rows.values()):
                split.append(names)
            else:
                for rank, constant in enumerate(sorted({row.constant for row in rows.values()})):
                    split.append([name for name in names if times[name][entry].constant == constant])
                    rows.update(dict.fromkeys(split[-1], Expr.of(rank)))
            for name, row in rows.items():
                ordered[name].append(row)
        groups = split
    return {name: tuple(rows) for name, rows in ordered.items()}


def _stride(points: isl.Set, k: int) -> int:
    """The stride of the points along one step, whatever the others are: of the points with an even `b + t`, 1 along `t`."""
    rank = points.dim(isl.dim_type.set)
    along = points.project_out(isl.dim_type.set, k + 1, rank - k - 1).project_out(isl.dim_type.set, 0, k)
    stride: int = along.get_stride(0).to_python()
    return stride


def _shared_depth(writer: tuple[Expr, ...] | None, reader: tuple[Expr, ...] | None) -> int | None:
    """The entry up to which both times agree, if it only orders statements and the entries before it fix the point; else None."""
    if writer is None or reader is None:
        return None
    for depth, (write, read) in enumerate(zip(writer, reader, strict=True)):
        later = read - write
        if later.terms:
            orders = later.is_constant and not any(row.steps for row in (*writer[depth:], read))
            return depth if orders and write.constant < read.constant else None
    return None


def _points(together: isl.Map, lasting: Sequence[Lasting | None]) -> isl.Set:
    """The points that are lasting."""
    points = isl.Set.universe(together.get_space().domain())
    local = isl.LocalSpace.from_space(points.get_space())
    for k, part in enumerate(lasting):
        if part is not None:
            ahead = isl.PwAff.var_on_domain(local, isl.dim_type.set, k).add_constant_val(isl.Val(-part.first, CONTEXT))
            points = points.intersect(ahead.mod_val(isl.Val(part.stride, CONTEXT)).zero_set())
            points = points.lower_bound_val(isl.dim_type.set, k, isl.Val(part.first, CONTEXT))
            points = points.upper_bound_val(isl.dim_type.set, k, isl.Val(part.last, CONTEXT))
    return points


def _fewest(distances: isl.Set, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Slots per step for points at these distances, which are multiples of `strides`."""
    distances = distances.coalesce()  # over a thousand parts become one: each is asked for its extremes
    moving = [] if distances.is_empty() else [k for k in range(len(strides)) if _reach(distances, k)]
    inwards = _fold_in_order(distances, moving, strides)
    if sum(s > 1 for s in inwards) < 2:
        return inwards
    return min((_fold_in_order(distances, order, strides) for order in itertools.permutations(moving)), key=math.prod)


def _reach(distances: isl.Set, k: int) -> int:
    """The greatest distance along one step, in either direction."""
    return max(distances.dim_max_val(k).to_python(), -distances.dim_min_val(k).to_python())


def _fold_in_order(distances: isl.Set, order: Sequence[int], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Slots per step; points that an earlier step of `order` keeps apart need no slots of their own in later ones."""
    slots = [1] * len(strides)
    for k in order:
        if distances.is_empty():
            break
        slots[k] = _reach(distances, k) // strides[k] + 1
        distances = distances.fix_val(isl.dim_type.set, k, isl.Val(0, CONTEXT))
    return tuple(slots)
