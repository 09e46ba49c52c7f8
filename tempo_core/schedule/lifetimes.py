"""When the points of a tensor are written and read: relations of its points to times, with bounds as numbers.

Statements under conditions with `|`, `~` and `%` have points in many pieces, and isl would compare every piece with every
other. Their times are then bounded: all branches that run in one loop body are one write, at the place of the first of them,
and their reads through one index are one read, at the place of the last. Points keep the parts of conditions that are one piece.
So a value seems to live as long as it does, or longer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import islpy as isl

from tempo_core.prices import MOST_PIECES_TO_COMPARE
from tempo_core.schedule.constraints import Read, Statement, outer_domain, value_name
from tempo_core.schedule.polyhedral import Row, Schedule
from tempo_core.symbolic.domain import Domain, Index
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.sets import Frame, bounds_of, dependence, domain_set, fixed

Place = tuple[int, ...]


class _Body(NamedTuple):
    """A loop body: the entries of a time up to the last that moves, over the steps of a domain. The other entries are a place in it."""

    domain: Domain
    rows: tuple[Row, ...]

    @property
    def fixes_point(self) -> bool:
        """Whether one iteration of the body has one point of the domain."""
        single = {[*map(abs, row[0])].index(1) for row in self.rows if sum(map(abs, row[0])) == 1}
        return len(single) == len(self.domain.steps)


def few_pieces(writers: Sequence[Statement], reads: Sequence[Read]) -> bool:
    """Whether isl can compare the exact times of these statements in reasonable time."""
    pieces = sum(w.points.n_basic_set() for w in writers) + sum(read.relation.n_basic_map() for read in reads)
    return pieces <= MOST_PIECES_TO_COMPARE


def bounded_times(
    schedule: Schedule, bounds: Mapping[Symbol, int], writers: Sequence[Statement], reads: Sequence[Read]
) -> tuple[isl.Map, list[isl.Map]] | None:
    """The times at which the points of a node may be written, and those at which they may be read; None if times are not affine."""
    statements = (*writers, *(read.reader for read in reads))
    if any(schedule.rows[statement.name] is None for statement in statements):
        return None
    name = value_name(writers[0].node.id)
    first: dict[_Body, Place] = {}
    for writer in writers:
        body, place = _run(schedule, writer, writer.node.domain)
        first[body] = min(place, first.get(body, place))
    last: dict[tuple[tuple[Index, ...], _Body], Place] = {}
    for read in reads:
        body, place = _run(schedule, read.reader, outer_domain(read.reader))
        of_writer = body._replace(domain=writers[0].node.domain)
        if read.reader.node.id == read.edge.source and body.fixes_point and of_writer in first:
            place = first[of_writer]  # of the branches that define the iteration's point, one runs: it reads before it writes
        key = (read.edge.index, body)
        last[key] = max(place, last.get(key, place))
    write_times = [_times(schedule, bounds, name, body, place) for body, place in first.items()]
    source = writers[0].node.domain
    read_times = []
    for (index, body), place in last.items():
        relation = dependence("", body.domain, name, source, index).intersect_range(domain_set(name, source))
        read_times.append(fixed(relation, bounds).reverse().apply_range(_times(schedule, bounds, "", body, place)))
    return functools.reduce(isl.Map.union, write_times), read_times


def _run(schedule: Schedule, statement: Statement, domain: Domain) -> tuple[_Body, Place]:
    """The loop body in which a statement runs, and its place there."""
    rows = schedule.rows[statement.name]
    assert rows is not None, "the caller looks for times that are not affine"
    inside = max((depth + 1 for depth, row in enumerate(rows) if any(row[0])), default=0)
    return _Body(domain, rows[:inside]), tuple(row[2] for row in rows[inside:])


def _times(schedule: Schedule, bounds: Mapping[Symbol, int], name: str, body: _Body, place: Place) -> isl.Map:
    """The times of a place in a loop body, for the points of its domain."""
    frame = Frame(body.domain.steps, bounds_of(body.domain), name)
    entries = []
    for of_steps, of_bounds, constant in body.rows:
        constant += sum(c * bounds[b] for c, b in zip(of_bounds, schedule.constraints.bounds, strict=True))
        moving = (step.expr * c for c, step in zip(of_steps, body.domain.steps, strict=True))
        entries.append(sum(moving, Expr.of(constant)))
    maps = (isl.Map.from_pw_aff(frame.expression(entry)) for entry in (*entries, *map(Expr.of, place)))
    times = functools.reduce(isl.Map.flat_range_product, maps)
    return fixed(times.intersect_domain(domain_set(name, body.domain)), bounds)
