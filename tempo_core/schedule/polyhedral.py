"""When each statement runs: a time vector for every point, from loop nests and isl's scheduler; or an error that shows a cycle.

Bounds stay symbolic where one schedule fits all of them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import islpy as isl

from tempo_core.errors import CausalityError, quoted
from tempo_core.ir.dependence import deciding, strongly_connected
from tempo_core.ir.names.naming import head, names
from tempo_core.schedule.constraints import Constraints, Dependence, Statement
from tempo_core.schedule.nesting import has_strides, nested_times
from tempo_core.schedule.pieces import CycleError, TooManyCutsError, cycle_of
from tempo_core.schedule.tree import Block, Execute, Item, changed, instances
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import CONTEXT, fixed
from tempo_core.symbolic.isl.translate import affine_expression

_UNIT, _ANY = 1, -1  # greatest coefficients in time vectors; above 1 loops have strides, where isl's AST may lose the order
_LARGE = 8  # a schedule for bounds of at least this holds for all larger bounds
_OPERATIONS = 20_000_000  # isl's limit in the search for a cycle: a second or two
_SHOWN = 8  # the number of reads that an error shows
_MOST_COMPARED = 200_000  # points of a program whose order is compared with their times
_WALKS = 200  # the number of walks that the search for a short cycle may compose


@dataclass(frozen=True, eq=False)
class Schedule:
    """`theta` maps the points of each statement to a time vector. All vectors have `depth` entries, and no two are equal."""

    constraints: Constraints
    theta: dict[str, isl.Map]
    depth: int

    @cached_property
    def rows(self) -> dict[str, tuple[Expr, ...] | None]:
        """The entries of each statement's time, in terms of its steps and the bounds; None where theta is not affine (it divides)."""
        statements = self.constraints.statements
        return {
            name: _rows(theta, statements[name].node.domain.steps, self.constraints.bounds) for name, theta in self.theta.items()
        }

    def loses_order(self, root: Block, bounds: Mapping[Symbol, int]) -> bool:
        """Whether a program runs statements in another order than that of their times.

        Where a time counts a step more than once (`5*i + 21`), isl's AST may move a statement past others. Such programs are walked through,
        up to a number of points; others are in order.
        """
        statements = {(s.node.id, s.branch): s for s in self.constraints.statements.values()}
        if self.constraints.graph.chosen or not any(map(has_strides, self.theta.values())):
            return False

        def timed(item: Item) -> Item:
            """The item, where statements that have affine times have them in place of their points."""
            if not isinstance(item, Execute):
                return changed(item, timed)
            statement = statements[item.node, item.branch]
            at = dict(zip(statement.node.domain.steps, item.point, strict=True))
            rows = self.rows[statement.name]
            return Block() if rows is None else replace(item, point=tuple(row.substitute(at) for row in rows))

        times = (time for leaf, time in instances(timed(root), bounds) if isinstance(leaf, Execute))
        return any(b < a for a, b in itertools.pairwise(itertools.islice(times, _MOST_COMPARED)))

    def text(self, full: bool = True) -> str:
        """One line per statement: `act[i, t] -> [i, 0, t, 1]`.

        Unless `full`, statements of one module or object at similar times share a line.
        """
        labels = names(self.constraints.graph)
        groups: dict[object, list[_Times]] = {}
        for name, statement in self.constraints.statements.items():
            label = labels[statement.node.id]
            branch = "" if statement.branch is None else f"|{statement.branch}"
            point = f"{branch}[{', '.join(s.name for s in statement.node.domain.steps)}]"
            line = _Times(label, point, self.rows[name] or (None,) * self.depth)
            varying = tuple(row if row is None or not row.is_constant else "" for row in line.rows)
            groups.setdefault(name if full else (head(label), point, varying), []).append(line)
        return "\n".join(first.text(others) for first, *others in groups.values())


class _Times(NamedTuple):
    """A line of a schedule's text: a statement's name, its branch and steps, and its time."""

    label: str
    point: str
    rows: tuple[Expr | None, ...]

    def text(self, others: Sequence[_Times]) -> str:
        """`adam|1[i] -> [i, 3..28]` together with other lines, whose times differ in constants only."""
        label = f"{head(self.label)}: {len(others) + 1} statements" if others else self.label
        times = []
        for k, row in enumerate(self.rows):
            numbers = {each.constant for line in (self, *others) if (each := line.rows[k]) is not None}
            times.append("?" if row is None else str(row) if len(numbers) == 1 else f"{min(numbers)}..{max(numbers)}")
        return f"{label}{self.point} -> [{', '.join(times)}]"


def compute(constraints: Constraints, bounds: Mapping[Symbol, int], strided: bool = True) -> Schedule:
    """A schedule that respects all dependences: for all bounds if possible, else for large bounds, else for `bounds` only.

    Unless `strided`, no time counts a step more than once.

    Some programs have a cycle for some bounds only. With T = 1, `x[0]` and `x[T - 1]` are the same value.
    Raises CausalityError if no order exists for `bounds`; its text shows a cycle.
    """
    for around in (True, False):
        for narrow, coefficient in (
            (lambda: constraints, _UNIT),
            (lambda: constraints, _ANY),
            (lambda: constraints.assuming({b: min(bounds[b], _LARGE) for b in constraints.bounds}), _ANY),
            (lambda: constraints.assuming(bounds, exact=True), _ANY),
        ):
            CONTEXT.set_schedule_max_coefficient(coefficient)
            exact = narrow()
            if around and exact.is_simple:
                break
            try:
                schedule = _attempt(exact.around() if around else exact, strided=strided)
            except isl.Error:
                continue
            return _known(replace(schedule, constraints=exact), constraints, bounds)
    try:
        return _known(_attempt(constraints.assuming(bounds, exact=True), splitting=True, strided=strided), constraints, bounds)
    except CycleError as error:
        raise _explain(constraints, bounds, error) from None
    except TooManyCutsError as error:
        raise _short_cycle(constraints, bounds) or _without_order(constraints, error) from None


def _known(schedule: Schedule, constraints: Constraints, bounds: Mapping[Symbol, int]) -> Schedule:
    """The schedule, if its times are known when they come; else one in which more statements wait for what their times depend on.

    A time such as `T_last + t` is counted from the end of a step. Where the run finds the end out, nothing can run at such a time
    before the end is known. What decides the end cannot wait for it; its times count from the end at most inside of an iteration, where
    the number that is known so far will do.
    """
    ends = schedule.constraints.graph.ends()
    for last in (step for step in schedule.constraints.graph.chosen if step in ends):
        before = deciding(constraints.graph, ends[last]) | {ends[last].id}
        over = {n: s for n, s in constraints.statements.items() if last in s.node.domain and s.node.id not in before}
        counting = _counting_from(schedule, last)
        early = [n for n, s in over.items() if (s.node.id, s.branch) in counting and not constraints.waits(s, last)]
        if early:
            return compute(constraints.waiting(early, last), bounds)
    return schedule


def _counting_from(schedule: Schedule, last: Symbol) -> set[tuple[int, int | None]]:
    """The nodes and branches with a step in one of their times, apart from times that are this step in all statements: it is one number in a run."""
    statements = {name: s for name, s in schedule.constraints.statements.items() if last in s.node.domain}
    counting: set[str] = set()
    for entry in range(schedule.depth):
        times = {name: isl.PwMultiAff.from_map(schedule.theta[name]).get_pw_aff(entry) for name in statements}
        places = {name: statement.node.domain.steps.index(last) for name, statement in statements.items()}
        using = {
            n for n, time in times.items() if any(a.involves_dims(isl.dim_type.in_, places[n], 1) for _, a in time.get_pieces())
        }
        if len(using) < len(statements) or not all(_is_step(times[n], places[n]) for n in using):
            counting |= using
    return {(statements[name].node.id, statements[name].branch) for name in counting}


def _is_step(time: isl.PwAff, place: int) -> bool:
    """Whether a time is one step alone."""
    return all(
        affine.plain_is_equal(isl.Aff.var_on_domain(affine.get_domain_local_space(), isl.dim_type.set, place))
        for _, affine in time.get_pieces()
    )


def _without_order(constraints: Constraints, error: TooManyCutsError) -> CausalityError:
    """The error for statements whose points would have to be ordered one by one."""
    dependences = list(dict.fromkeys(n.dependence for n in error.needs))
    described = [_describe(constraints, dependence) for dependence in dependences]
    more = f"\n    and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    return CausalityError(
        "no loops compute these reads in order, and there are too many points to order one by one:\n"
        + "\n".join(f"    {line}" for line in described[:_SHOWN])
        + more,
        where=next((line for reader, *_ in dependences if (line := _line(constraints, reader))), None),
        hint="try smaller bounds. Or let each tensor read the others only at earlier points, or only at later ones: x[t - 1]",
    )


def _attempt(constraints: Constraints, splitting: bool = False, strided: bool = True) -> Schedule:
    """A schedule under the assumptions on bounds.

    Raises isl.Error if isl finds no schedule. With `splitting`, raises CycleError if no schedule exists.
    """
    constraints, nested = nested_times(constraints, splitting, strided)
    depth = max((times.dim(isl.dim_type.out) for times in nested.values()), default=0)
    theta: dict[str, isl.Map] = {}
    for name, times in nested.items():
        for _ in range(depth - times.dim(isl.dim_type.out)):
            times = _appended(times, 0)
        theta[name] = times.set_tuple_name(isl.dim_type.in_, name)
    return _distinct(constraints, {name: theta[name] for name in constraints.statements})


def _distinct(constraints: Constraints, theta: dict[str, isl.Map]) -> Schedule:
    """The schedule without entries that are the same number in all statements, and with a last entry if statements share a time.

    The last entry is the statement's number: isl leaves independent statements unordered.
    """
    depth = next((t.dim(isl.dim_type.out) for t in theta.values()), 0)
    for k in reversed(range(depth)):
        values = {_fixed(t, k) for t in theta.values()}
        if len(values) == 1 and None not in values:
            theta = {name: t.project_out(isl.dim_type.out, k, 1) for name, t in theta.items()}
    schedule = Schedule(constraints, theta, next((t.dim(isl.dim_type.out) for t in theta.values()), 0))
    if _may_coincide(schedule):
        theta = {name: _appended(t, k) for k, (name, t) in enumerate(theta.items())}
        schedule = Schedule(constraints, theta, schedule.depth + 1)
    return schedule


def _fixed(theta: isl.Map, position: int) -> int | None:
    value = theta.plain_get_val_if_fixed(isl.dim_type.out, position)
    return None if value.is_nan() else value.to_python()


def _may_coincide(schedule: Schedule) -> bool:
    """Whether two statements may run at one time. Statements with different numbers in some entry never do."""
    entries = [tuple(_fixed(theta, k) for k in range(schedule.depth)) for theta in schedule.theta.values()]
    return _some_agree(entries, 0)


def _some_agree(entries: list[tuple[int | None, ...]], depth: int) -> bool:
    """Whether two rows have, from `depth` on, nowhere different numbers. None agrees with all numbers.

    >>> _some_agree([(0, 1), (0, 2), (1, 2)], 0)
    False
    >>> _some_agree([(0, 1), (None, 1)], 0)
    True
    """
    if len(entries) < 2 or depth == len(entries[0]):
        return len(entries) >= 2
    groups: dict[int | None, list[tuple[int | None, ...]]] = {}
    for row in entries:
        groups.setdefault(row[depth], []).append(row)
    anywhere = groups.pop(None, [])
    return any(_some_agree([*group, *anywhere], depth + 1) for group in groups.values() or [[]])


def _appended(theta: isl.Map, value: int) -> isl.Map:
    position = theta.dim(isl.dim_type.out)
    return theta.add_dims(isl.dim_type.out, 1).fix_val(isl.dim_type.out, position, isl.Val(value, CONTEXT))


def _rows(theta: isl.Map, steps: Sequence[Symbol], bounds: Sequence[Symbol]) -> tuple[Expr, ...] | None:
    function = isl.PwMultiAff.from_map(theta)
    rows: list[Expr] = []
    for k in range(function.dim(isl.dim_type.out)):
        number = _fixed(theta, k)
        pieces = function.get_pw_aff(k).get_pieces() if number is None else []
        row = affine_expression(pieces[0][1], steps, bounds) if len(pieces) == 1 else number
        if row is None:
            return None
        rows.append(Expr.of(row))
    return tuple(rows)


# -- why there is no schedule -----------------------------------------------------------------------------------------


def _explain(constraints: Constraints, bounds: Mapping[Symbol, int], error: CycleError) -> CausalityError:
    """The error for a graph without a schedule. It shows a cycle of reads from a point back to itself, a short cycle if possible."""
    short = _short_cycle(constraints, bounds)
    if short is not None:
        return short
    around, start, point = cycle_of(error.needs)
    return _self_dependence(constraints, list(dict.fromkeys(around)), _sample(start, point))  # every read is shown once


def _short_cycle(constraints: Constraints, bounds: Mapping[Symbol, int]) -> CausalityError | None:
    """The error that shows a short cycle of reads, if one is found soon."""
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(_OPERATIONS)
    try:
        for component in _components(constraints):
            inside = (d for d in constraints.dependences if d.reader.name in component and d.source.name in component)
            cycle, sample = _cycle([d._replace(relation=fixed(d.relation, bounds)) for d in inside])
            if cycle is not None:
                return _self_dependence(constraints, cycle, sample)
    except isl.Error:
        pass  # too many walks
    finally:
        CONTEXT.set_max_operations(0)
    return None


def _self_dependence(constraints: Constraints, cycle: list[Dependence], sample: str) -> CausalityError:
    readers = sorted((reader for reader, *_ in cycle), key=lambda reader: reader.branch is not None)  # values before declarations
    where = next((line for line in (_line(constraints, reader) for reader in readers) if line), None)
    lines = "\n".join(f"    {_describe(constraints, d)}" for d in cycle)
    return CausalityError(
        f"values depend on themselves, so there is no order to compute them in{sample}:\n{lines}",
        where=where,
        hint="read an earlier timestep somewhere in this cycle, and define its first value: x[0] = ...; x[t + 1] = x + 1",
    )


def _describe(constraints: Constraints, dependence: Dependence) -> str:
    reader, source, read, _ = dependence
    labels = names(constraints.graph)
    name, point = labels[reader.node.id], ", ".join(s.name for s in reader.node.domain.steps)
    where = _line(constraints, reader)
    at = f"   at {quoted(where)}" if where else ""
    if read is None:
        return f"{name}[{point}] runs after its own earlier points{at}"
    index = ", ".join(map(str, read.edge.index))
    when = "" if reader.branch is None or read.edge.condition is TRUE else f" where {read.edge.condition}"
    return f"{name}[{point}] reads {labels[source.node.id]}[{index}]{when}{at}"


def _line(constraints: Constraints, statement: Statement) -> str:
    """The user's line of a statement. The line of a branch is its assignment."""
    lines = constraints.graph.branch_lines.get(statement.node.id, ())
    if statement.branch is None or statement.branch >= len(lines):
        return statement.node.where
    return lines[statement.branch]


def _components(constraints: Constraints) -> list[frozenset[str]]:
    """The strongly connected components of statements that contain a cycle, the smallest first."""
    edges = [(d.reader.name, d.source.name) for d in constraints.dependences]
    components = map(frozenset, strongly_connected(list(constraints.statements), edges))
    return sorted((c for c in components if len(c) > 1 or (*c, *c) in edges), key=lambda c: (len(c), sorted(c)))


def _cycle(inside: list[Dependence]) -> tuple[list[Dependence] | None, str]:
    """The shortest walk along dependences from some point to itself, and the text of such a point; None if there is no short one."""
    leaving: dict[str, list[Dependence]] = {}
    for dependence in inside:
        leaving.setdefault(dependence.reader.name, []).append(dependence)
    waiting: deque[tuple[list[Dependence], isl.Map]] = deque(([d], d.relation) for d in inside)
    reaches: dict[tuple[str, str], isl.Map] = {}  # from one statement to another: the points that shorter walks reach
    for _ in range(_WALKS):
        if not waiting:
            break
        walk, relation = waiting.popleft()
        start, end = walk[0].reader, walk[-1].source
        if start is end:
            looped = _onto_itself(relation)
            if not looped.is_empty():
                return walk, _sample(start, looped)
        reached = reaches.get((start.name, end.name))
        if reached is not None and relation.is_subset(reached):
            continue
        reaches[start.name, end.name] = (relation if reached is None else reached.union(relation)).coalesce()
        for dependence in leaving.get(end.name, ()):
            further = relation.apply_range(dependence.relation)
            if not further.is_empty():
                waiting.append(([*walk, dependence], further.coalesce()))
    return None, ""


def _onto_itself(relation: isl.Map) -> isl.Set:
    """The points that a relation maps to themselves."""
    return relation.intersect(isl.Map.identity(relation.get_space())).domain()


def _sample(statement: Statement, points: isl.Set) -> str:
    point = points.sample_point()
    steps = statement.node.domain.steps
    if not steps:
        return ""
    values = ", ".join(f"{s.name} = {point.get_coordinate_val(isl.dim_type.set, k).to_python()}" for k, s in enumerate(steps))
    return f" (at {values}, for example)"
