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
from tempo_core.schedule.polyhedral import Schedule
from tempo_core.symbolic.domain import Domain, Index
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.isl.sets import Frame, bounds_of, dependence, domain_set, fixed

Place = tuple[int, ...]


class _Body(NamedTuple):
    """A loop body: the entries of a time up to the last that moves, over the steps of a domain. The other entries are a place in it."""

    domain: Domain
    rows: tuple[Expr, ...]


def fixes_point(rows: Sequence[Expr] | None, rank: int, depth: int | None = None) -> bool:
    """Whether the entries of a time, up to a depth, fix each of so many steps: one iteration of a loop body has one point of a domain."""
    assert rows is not None, "the caller looks for times that are not affine"
    return len({row.steps for row in rows[:depth] if len(row.steps) == 1}) == rank


class Lifetimes:
    """The times of all statements, with bounds as numbers, and what reads each output."""

    def __init__(self, schedule: Schedule, bounds: Mapping[Symbol, int]):
        self.schedule, self.bounds, self.constraints = schedule, dict(bounds), schedule.constraints
        points = {name: statement.points for name, statement in self.constraints.statements.items()}
        self.theta = {name: fixed(theta.intersect_domain(points[name]), bounds) for name, theta in schedule.theta.items()}
        self.reads: dict[tuple[int, int], list[Read]] = {}
        for read in self.constraints.reads:
            self.reads.setdefault((read.edge.source, read.edge.output), []).append(read)

    def times(self, node_id: int, reads: Sequence[Read]) -> tuple[isl.Map, list[isl.Map]]:
        """The times at which the points of a node may be written, and those at which they may be read."""
        writers = self.constraints.of_node[node_id]
        pieces = sum(w.points.n_basic_set() for w in writers) + sum(read.relation.n_basic_map() for read in reads)
        rows = (self.schedule.rows[statement.name] for statement in (*writers, *(read.reader for read in reads)))
        return self.exact(node_id, reads) if pieces <= MOST_PIECES_TO_COMPARE or None in rows else self._bounded(writers, reads)

    def exact(self, node_id: int, reads: Sequence[Read]) -> tuple[isl.Map, list[isl.Map]]:
        """The times at which the points of a node are written, and those at which they are read."""
        writers, name = self.constraints.of_node[node_id], value_name(node_id)
        writes = (self.theta[writer.name].set_tuple_name(isl.dim_type.in_, name) for writer in writers)
        read_times = [fixed(read.relation, self.bounds).reverse().apply_range(self.theta[read.reader.name]) for read in reads]
        return functools.reduce(isl.Map.union, writes), read_times

    def _bounded(self, writers: Sequence[Statement], reads: Sequence[Read]) -> tuple[isl.Map, list[isl.Map]]:
        """As `exact`, with one write or read for all that run in one loop body."""
        name = value_name(writers[0].node.id)
        first: dict[_Body, Place] = {}
        for writer in writers:
            body, place = self._run(writer, writer.node.domain)
            first[body] = min(place, first.get(body, place))
        last: dict[tuple[tuple[Index, ...], _Body], Place] = {}
        for read in reads:
            body, place = self._run(read.reader, outer_domain(read.reader))
            of_writer = body._replace(domain=writers[0].node.domain)
            if read.reader.node.id == read.edge.source and fixes_point(body.rows, len(body.domain.steps)) and of_writer in first:
                place = first[of_writer]  # of the branches that define the iteration's point, one runs: it reads before it writes
            key = (read.edge.index, body)
            last[key] = max(place, last.get(key, place))
        write_times = [_times(self.bounds, name, body, place) for body, place in first.items()]
        source = writers[0].node.domain
        read_times = []
        for (index, body), place in last.items():
            relation = dependence("", body.domain, name, source, index).intersect_range(domain_set(name, source))
            read_times.append(fixed(relation, self.bounds).reverse().apply_range(_times(self.bounds, "", body, place)))
        return functools.reduce(isl.Map.union, write_times), read_times

    def _run(self, statement: Statement, domain: Domain) -> tuple[_Body, Place]:
        """The loop body in which a statement runs, and its place there."""
        rows = self.schedule.rows[statement.name]
        assert rows is not None, "the caller looks for times that are not affine"
        inside = max((depth + 1 for depth, row in enumerate(rows) if row.steps), default=0)
        return _Body(domain, rows[:inside]), tuple(row.evaluate(self.bounds) for row in rows[inside:])


def _times(bounds: Bounds, name: str, body: _Body, place: Place) -> isl.Map:
    """The times of a place in a loop body, for the points of its domain."""
    frame = Frame(body.domain.steps, bounds_of(body.domain), name)
    entries = (*(row.substitute(bounds) for row in body.rows), *map(Expr.of, place))
    maps = (isl.Map.from_pw_aff(frame.expression(entry)) for entry in entries)
    times = functools.reduce(isl.Map.flat_range_product, maps)
    return fixed(times.intersect_domain(domain_set(name, body.domain)), bounds)
