"""The nest of loops, from the outside in: sequences of statements, loops over steps, and isl's scheduler for hard cases.

If every dependence of some statements reads the same or an earlier point along a step, the step is their loop. It carries the
dependences that read strictly earlier points: they order nothing inside the loop (Allen and Kennedy, 1987). Statements that
lack the step run before, between or after such loops, never inside. Where dependences reach into the future, isl's scheduler
(after Pluto) finds shifts, reversals and distributions of the loops: the reader of `r[t:min(t + 5, T)]` runs in one loop with
r, 4 iterations late. Where isl finds no schedule, statements are cut in pieces (`pieces.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tempo_core.ir.dependence import direction, latest_levels, strongly_connected
from tempo_core.ir.ops.work import size
from tempo_core.prices import MOST_STATEMENTS_FOR_ISL, nominal
from tempo_core.schedule import pieces
from tempo_core.schedule.constraints import Constraints, Dependence, Statement
from tempo_core.schedule.pieces import Backwards, Row
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.groups import Groups
from tempo_core.symbolic.isl.sets import CONTEXT

Group = tuple[int, list[str]]  # (the way along a step: 1 forwards, -1 backwards, 0 for statements without it; their names)


@dataclass(frozen=True)
class Times:
    """The time vector of a statement: first `rows`, then isl's times for the remaining steps, if isl was asked."""

    rows: tuple[Row, ...]
    rest: isl.Map | None = None


def nested_times(
    constraints: Constraints, splitting: bool = False, strided: bool = True
) -> tuple[Constraints, dict[str, isl.Map]]:
    """A time map for each statement; they may differ in length. Raises isl.Error where no schedule is found.

    With `splitting`, bounds are numbers and statements may be cut in pieces, which replace them in the constraints that are
    returned. A schedule is then always found, or a CycleError shows points that wait for themselves.
    """
    nesting = _Nesting(constraints, splitting, strided)
    nesting.arrange(list(constraints.statements), constraints.dependences, constraints.graph.order, ())
    if nesting.pieces:
        constraints = constraints.divided(nesting.pieces)
    return constraints, {name: _map(constraints, constraints.statements[name], times) for name, times in nesting.times.items()}


class _Nesting:
    def __init__(self, constraints: Constraints, splitting: bool, strided: bool):
        self.constraints, self.statements, self.splitting, self.strided = constraints, constraints.statements, splitting, strided
        self.times: dict[str, Times] = {}  # by the name of the statement
        self.pieces: dict[str, list[Statement]] = {}  # of each statement that is cut

    def has(self, name: str, step: Symbol) -> bool:
        return step in self.statements[name].node.domain

    def arrange(self, part: list[str], dependences: Sequence[Dependence], steps: Sequence[Symbol], rows: tuple[Row, ...]) -> None:
        """Give times to the statements of `part`, which share `rows`; `dependences` are not carried by an outer loop."""
        inner = _between(part, dependences)
        steps = [s for s in steps if any(self.has(n, s) for n in part)]
        if not steps:
            self._in_sequence(part, inner, rows)
            return
        for turning, step in self._tries(part, steps):
            groups = self._groups(part, inner, step, steps, turning)
            if groups is not None and all(self._loop(group, inner, step, steps, way) for way, group in groups if way):
                self._emit(groups, inner, step, steps, rows)
                return
        # No step is a loop of all groups: isl arranges the groups for which the first possible step is not a loop.
        for step in steps:
            groups = self._groups(part, inner, step, steps, turning=True)
            if groups is not None and len(groups) > 1:
                self._emit(groups, inner, step, steps, rows)
                return
        self._ask_isl(part, inner, steps, rows)

    def _tries(self, part: list[str], steps: Sequence[Symbol]) -> Iterator[tuple[bool, Symbol]]:
        """The steps in the order in which they are tried as loops, and whether parts of the loop may run backwards.

        A step that some statements lack would part them. Before it, outer steps that all statements have are tried backwards.
        """
        looped = [n for n in part if any(self.has(n, s) for s in steps)]
        common = [s for s in steps if all(self.has(n, s) for n in looped)]
        for place, step in enumerate(steps):
            yield from ((True, s) for s in steps[:place] if s in common and step not in common)
            yield False, step
        yield from ((True, s) for s in steps)

    def _emit(
        self, groups: list[Group], inner: list[Dependence], step: Symbol, steps: Sequence[Symbol], rows: tuple[Row, ...]
    ) -> None:
        rest = [s for s in steps if s != step]
        for number, (way, group) in enumerate(groups):
            here = (*rows, number) if len(groups) > 1 else rows
            if not way:
                self.arrange(group, inner, rest, here)
                continue
            loop = self._loop(group, inner, step, steps, way)
            if loop is None:
                self._ask_isl(group, inner, steps, here)
                continue
            remaining = [d for d in inner if self._direction(d, step, steps) != ("<" if loop is step else ">")]
            self.arrange(group, remaining, rest, (*here, loop))

    def _in_sequence(self, part: list[str], inner: list[Dependence], rows: tuple[Row, ...]) -> None:
        """Statements without remaining steps, sources first; branches of recurrences under one condition next to each other.

        What updates a value comes late, after those that read the value.
        """
        if any(reader == source for reader, source, _ in _condensed(part, inner)[1]):  # a cycle
            self._split(part, inner, (), rows)
            return
        waits: dict[str, set[str]] = {n: set() for n in part}
        for d in inner:
            waits[d.reader.name].add(d.source.name)
        kind = {n: self._branch_condition(n) for n in part}
        left, last = list(part), None
        for number in range(len(part)):
            ready = sorted([n for n in left if not waits[n]], key=lambda n: bool(self.statements[n].node.op.updated))
            name = next((n for n in ready if last is not None and kind[n] == last), ready[0])
            last = kind[name]
            left.remove(name)
            for waiting in waits.values():
                waiting.discard(name)
            self.times[name] = Times((*rows, number) if len(part) > 1 else rows)

    def _branch_condition(self, name: str) -> str | None:
        statement = self.statements[name]
        return None if statement.branch is None else str(statement.node.inputs[statement.branch].condition)

    def _groups(
        self, part: list[str], inner: list[Dependence], step: Symbol, steps: Sequence[Symbol], turning: bool
    ) -> list[Group] | None:
        """Groups in order. None where a cycle ties statements with and without the step.

        With `turning`, cycles that only run backwards are in other groups than those that run forwards.
        """
        components, arcs = _condensed(part, inner)
        kinds = [{self.has(n, step) for n in members} for members in components]
        if any(len(k) > 1 for k in kinds):
            return None
        looped = [True in k for k in kinds]
        sources: list[dict[int, int]] = [{} for _ in components]  # with the numbers of elements that are read
        for reader, source, d in arcs:
            if reader != source:
                sources[reader][source] = sources[reader].get(source, 0) + self._size(d)
        ways = [int(has) for has in looped]
        if turning:
            signs: list[set[str]] = [set() for _ in components]
            for reader, source, d in arcs:
                if reader == source:
                    signs[reader].add(self._direction(d, step, steps))
            ways = _ways(looped, [_loops(each) for each in signs], sources)
        costs = {k: {source: int(ways[source] != ways[k]) for source in sources[k]} for k in range(len(components))}
        level = latest_levels(costs)  # as late as readers allow, so that statements share a loop if they can
        grouped: dict[tuple[int, int], list[str]] = {}
        for k, members in enumerate(components):
            grouped.setdefault((level[k], ways[k]), []).extend(members)
        return [(way, grouped[depth, way]) for depth, way in sorted(grouped)]

    def _loop(
        self, group: Iterable[str], inner: list[Dependence], step: Symbol, steps: Sequence[Symbol], way: int = 1
    ) -> Symbol | Backwards | None:
        """The plain loop over the step, if it respects every dependence of the group; else None."""
        signs = {self._direction(d, step, steps) for d in _between(group, inner)}
        return None if way not in _loops(signs) else step if way == 1 else Backwards(step)

    def _size(self, d: Dependence) -> int:
        """The number of elements of the value that a dependence reads at one point, with the same number for every bound."""
        outputs = () if d.read is None else d.source.node.outputs[d.read.edge.output :][:1]  # an end of a step has none
        return sum(nominal(size(type)) for type in outputs)

    def _direction(self, d: Dependence, step: Symbol, steps: Sequence[Symbol]) -> str:
        """Where a dependence reads along the step, in the signs of `moved` in `ir/dependence.py`."""
        if d.read is None:  # the previous call: of the remaining steps, the first moves last
            left = [s for s in d.reader.node.domain.steps if s in steps]
            return "*" if not left or left[0] != step else "<" if len(left) == 1 else "<="
        return direction(self.constraints.graph, d.reader.node, d.read.edge, step)

    # -- isl ----------------------------------------------------------------------------------------------------------

    def _ask_isl(self, part: list[str], inner: list[Dependence], steps: Sequence[Symbol], rows: tuple[Row, ...]) -> None:
        """isl's times for the steps that are not loops yet; if isl finds none, times for pieces of statements.

        The time that isl takes grows with the cube of the number of statements, or faster. So isl only sees statements that
        dependences connect with those for which no step is a loop. Of many connected statements it only sees the cycles without
        a loop, one by one: then such statements share no loop with others, and more points are stored.
        """
        inner = _between(part, inner)
        apart = self._apart(part, inner, steps)
        if len(apart) == 1 and len(part) > MOST_STATEMENTS_FOR_ISL:
            apart = self._phases(part, inner, steps)
        if len(apart) > 1:
            for number, members in enumerate(apart):
                self.arrange(members, inner, steps, (*rows, number))
            return
        try:
            self._by_isl(part, inner, rows)
        except isl.Error:
            self._split(part, inner, steps, rows)

    def _apart(self, part: list[str], inner: list[Dependence], steps: Sequence[Symbol]) -> list[list[str]]:
        """Parts that no dependence connects. If some of them have no plain loop, the others are joined into one part."""
        connected = Groups(part)
        for d in inner:
            connected.join(d.reader.name, d.source.name)
        members: dict[str, list[str]] = {}
        for name in part:
            members.setdefault(connected.of(name), []).append(name)
        hard = [names for names in members.values() if not any(self._loop(names, inner, step, steps) for step in steps)]
        easy = [names for names in members.values() if names not in hard]
        if not hard:
            return easy
        return [*hard, [name for names in easy for name in names]] if easy else hard

    def _phases(self, part: list[str], inner: list[Dependence], steps: Sequence[Symbol]) -> list[list[str]]:
        """Parts in an order that respects all dependences. A cycle without a plain loop is a part by itself. Between these are parts
        of statements for which the first step is a loop.
        """
        step, (components, arcs) = steps[0], _condensed(part, inner)
        hard = [self._loop(members, inner, step, steps) is not step for members in components]
        costs: dict[int, dict[int, int]] = {k: {} for k in range(len(components))}
        for reader, source, d in arcs:
            if reader != source:
                shares = not (hard[reader] or hard[source]) and self._direction(d, step, steps) in ("=", "<", "<=")
                costs[reader][source] = max(costs[reader].get(source, 0), int(not shares))
        level = latest_levels(costs)
        parts: dict[tuple[int, int], list[str]] = {}  # by level; the cycles without a loop, of which each is a part, come last
        for k, members in enumerate(components):
            parts.setdefault((level[k], k + 1 if hard[k] else 0), []).extend(members)
        return [parts[place] for place in sorted(parts)]

    def _split(self, part: list[str], inner: list[Dependence], steps: Sequence[Symbol], rows: tuple[Row, ...]) -> None:
        if not self.splitting:
            raise isl.Error("no time that is affine in the steps orders these statements")
        fixed = _looped_steps(rows)
        cut = pieces.arrange([self.statements[n] for n in part], inner, steps, fixed)
        for statement, (piece, piece_rows) in zip(pieces.divided([piece for piece, _ in cut]), cut, strict=True):
            self.pieces.setdefault(piece.statement.name, []).append(statement)
            self.times[statement.name] = Times((*rows, *piece_rows))

    def _by_isl(self, part: list[str], inner: list[Dependence], rows: tuple[Row, ...]) -> None:
        """Times from isl's scheduler. The steps of outer loops are parameters to it."""
        fixed = _looped_steps(rows)
        assumptions = self.constraints.assumptions
        points = isl.UnionSet.empty(assumptions.get_space())
        for name in part:
            points = points.union(isl.UnionSet.from_set(_points_inside(self.statements[name], fixed)))
        before = near = isl.UnionMap.empty(assumptions.get_space())
        for d in inner:
            relation = _relation_inside(d.relation, d.reader, d.source, fixed)
            if d.reader is d.source and not relation.intersect(isl.Map.identity(relation.get_space())).is_empty():
                raise isl.Error("a point depends on itself")  # isl does not check this
            before = before.union(isl.UnionMap.from_map(relation.reverse()))
        pairs = {(d.reader.name, d.source.name) for d in inner}
        for reader, source, relation in self.constraints.near:
            if (reader.name, source.name) in pairs:
                close = _relation_inside(relation, reader, source, fixed)
                # Points that all read the same one have no place near it; nor has the one that an outer loop's counter says. (With such
                # wishes, isl's scheduler may crash, and with relations of several parts.)
                if not close.range().is_singleton() or (close.domain().is_singleton() and not _varies(close.domain())):
                    near = near.union(isl.UnionMap.from_basic_map(close.reverse().simple_hull()))
        problem = isl.ScheduleConstraints.on_domain(points).set_context(assumptions)
        maps = problem.set_validity(before).set_proximity(near).compute_schedule().get_map().get_map_list()
        thetas = [maps.get_at(k) for k in range(maps.n_map())]
        if not self.strided and any(map(has_strides, thetas)):
            raise isl.Error("a time counts a step more than once")
        for theta in thetas:
            name = theta.get_tuple_name(isl.dim_type.in_)
            self.times[name] = Times(rows, _restored(theta, self.statements[name], fixed))


def _varies(points: isl.Set) -> bool:
    """Whether it depends on the counters of outer loops which points these are."""
    return not points.project_out(isl.dim_type.param, 0, points.dim(isl.dim_type.param)).is_singleton()


def has_strides(theta: isl.Map) -> bool:
    """Whether a time counts a step more than once, such as `5*i + 21`."""
    function = isl.PwMultiAff.from_map(theta)
    return any(
        abs(affine.get_coefficient_val(isl.dim_type.in_, k).to_python()) > 1
        for entry in range(function.dim(isl.dim_type.out))
        for _, affine in function.get_pw_aff(entry).get_pieces()
        for k in range(affine.dim(isl.dim_type.in_))
    )


def _looped_steps(rows: Iterable[Row]) -> tuple[Symbol, ...]:
    """The steps that loops count, forwards or backwards."""
    return tuple(row.step if isinstance(row, Backwards) else row for row in rows if not isinstance(row, int))


def _loops(signs: Iterable[str]) -> set[int]:
    """The ways (1 forwards, -1 backwards) in which a plain loop respects dependences of these directions."""
    signs = set(signs)
    return {way for way, allowed in ((1, {"=", "<", "<="}), (-1, {"=", ">", ">="})) if signs <= allowed}


def _ways(looped: Sequence[bool], loops: Sequence[set[int]], sources: Sequence[Mapping[int, int]]) -> list[int]:
    """The way in which each component runs along a step: 0 without the step, 1 forwards (or as isl will say), -1 backwards.

    A component that may run either way goes with its readers, if they all go one way; else with its largest source, the last of
    several: the values of a source that goes the other way are kept for all points. Sources that are kept for others do not count.
    """
    ways = [None if both == {1, -1} else -1 if both == {-1} else 1 for both in loops]
    ways = [way if has else 0 for way, has in zip(ways, looped, strict=True)]
    _follow_readers(ways, sources)
    for k in [k for k, way in enumerate(ways) if way is None]:
        kept = {s for reader, each in enumerate(sources) for s in each if (ways[reader] or ways[s]) != ways[s]}
        before = sorted((size * (source not in kept), source) for source, size in sources[k].items() if ways[source])
        if before:
            ways[k] = ways[before[-1][1]]
    _follow_readers(ways, sources)
    return [1 if way is None else way for way in ways]


def _follow_readers(ways: list[int | None], sources: Sequence[Iterable[int]]) -> None:
    """Let components that may run either way go with their readers, if these all go one way."""
    readers: list[set[int]] = [set() for _ in ways]
    for k in reversed(range(len(ways))):
        after = {ways[reader] for reader in readers[k]} - {0, None}
        if ways[k] is None and len(after) == 1:
            ways[k] = after.pop()
        for source in sources[k]:
            readers[source].add(k)


def _parameter(step: Symbol) -> str:
    return f"{step.name}@"


def _points_inside(statement: Statement, fixed: Sequence[Symbol]) -> isl.Set:
    """A statement's points with the fixed steps as parameters."""
    points = statement.points
    steps = list(statement.node.domain.steps)
    for step in fixed:
        if step in steps:
            k = steps.index(step)
            count = points.dim(isl.dim_type.param)
            points = points.move_dims(isl.dim_type.param, count, isl.dim_type.set, k, 1)
            points = points.set_dim_name(isl.dim_type.param, count, _parameter(step))
            steps.pop(k)
    return points.set_tuple_name(statement.name)


def _relation_inside(relation: isl.Map, reader: Statement, source: Statement, fixed: Sequence[Symbol]) -> isl.Map:
    """A dependence between points that agree on the fixed steps, which become parameters."""
    before, after = list(reader.node.domain.steps), list(source.node.domain.steps)
    for step in fixed:
        if step in after:
            o = after.index(step)
            if step in before:
                relation = relation.equate(isl.dim_type.in_, before.index(step), isl.dim_type.out, o)
            relation = relation.project_out(isl.dim_type.out, o, 1)
            after.pop(o)
        if step in before:
            i, count = before.index(step), relation.dim(isl.dim_type.param)
            relation = relation.move_dims(isl.dim_type.param, count, isl.dim_type.in_, i, 1)
            relation = relation.set_dim_name(isl.dim_type.param, count, _parameter(step))
            before.pop(i)
    return relation.set_tuple_name(isl.dim_type.in_, reader.name).set_tuple_name(isl.dim_type.out, source.name)


def _restored(theta: isl.Map, statement: Statement, fixed: Sequence[Symbol]) -> isl.Map:
    """isl's times, with the fixed steps as dimensions of the statement's points again."""
    steps = [s for s in statement.node.domain.steps if s not in fixed]
    for step in reversed([s for s in statement.node.domain.steps if s in fixed]):
        order = [s for s in statement.node.domain.steps if s in steps or s == step]
        k = order.index(step)
        at = theta.find_dim_by_name(isl.dim_type.param, _parameter(step))
        if at >= 0:
            theta = theta.move_dims(isl.dim_type.in_, k, isl.dim_type.param, at, 1)
        else:
            theta = theta.insert_dims(isl.dim_type.in_, k, 1)
        steps = order
    for k in reversed(range(theta.dim(isl.dim_type.param))):
        if theta.get_dim_name(isl.dim_type.param, k).endswith("@"):
            theta = theta.project_out(isl.dim_type.param, k, 1)
    return theta.set_tuple_name(isl.dim_type.in_, statement.name)


def _map(constraints: Constraints, statement: Statement, times: Times) -> isl.Map:
    """A time vector as a map from the statement's points."""
    space = constraints.assumptions.get_space()
    steps = statement.node.domain.steps
    universe = isl.Map.universe(space.add_dims(isl.dim_type.in_, len(steps)).add_dims(isl.dim_type.out, len(times.rows)))
    for k, row in enumerate(times.rows):
        if isinstance(row, Symbol):
            universe = universe.equate(isl.dim_type.in_, steps.index(row), isl.dim_type.out, k)
        elif isinstance(row, Backwards):
            universe = universe.oppose(isl.dim_type.in_, steps.index(row.step), isl.dim_type.out, k)
        else:
            universe = universe.fix_val(isl.dim_type.out, k, isl.Val(row, CONTEXT))
    universe = universe.set_tuple_name(isl.dim_type.in_, statement.name)
    if times.rest is None:
        return universe
    return universe.flat_range_product(times.rest.align_params(universe.get_space())).align_params(space)


def _between(part: Iterable[str], dependences: Iterable[Dependence]) -> list[Dependence]:
    """The dependences between some statements."""
    inside = set(part)
    return [d for d in dependences if d.reader.name in inside and d.source.name in inside]


def _condensed(part: Sequence[str], inner: Sequence[Dependence]) -> tuple[list[list[str]], list[tuple[int, int, Dependence]]]:
    """Strongly connected components of statements, sources before readers, otherwise in the order of `part`; and the dependences, each
    with the numbers of its reader's and its source's component.
    """
    components = strongly_connected(part, [(d.reader.name, d.source.name) for d in inner])
    number = {name: k for k, members in enumerate(components) for name in members}
    return components, [(number[d.reader.name], number[d.source.name], d) for d in inner]
