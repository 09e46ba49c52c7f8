"""Index-set splitting: an order for statements without a schedule by isl. Their points are cut in pieces.

If time runs forwards at some points and backwards at others, no affine time orders whole statements. For bounds that are
numbers there is an order unless some point depends on itself, and this module finds one:

1. Pieces share a loop over a step if every dependence reads the same or an earlier point along it (or, backwards, a later one).
2. Pieces that no loop ties together run in sequence.
3. Pieces that still form a cycle are cut where a dependence begins or ends. Each new piece has one direction of time.
4. If that does not help, two kinds of points are cut off: points that wait for nothing in the cycle run first, and points
   that nothing in the cycle waits for run last.

If no point can be cut off, each point waits for another one: there is a cycle of points.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import islpy as isl

from tempo_core.ir.dependence import strongly_connected
from tempo_core.schedule.constraints import Dependence, Statement
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.sets import coalesced

MOST_NEEDS_CUT = 50_000  # dependences that are looked at, a millisecond each; beyond, there is an error instead of a program


@dataclass(frozen=True)
class Backwards:
    """An entry of a time vector: the step that a loop counts down."""

    step: Symbol


Row = int | Symbol | Backwards  # an entry of a time vector: a position in a sequence, or the step that a loop counts


class Piece(NamedTuple):
    """Some points of a statement; the place in a list identifies a piece."""

    statement: Statement
    points: isl.Set


class Need(NamedTuple):
    """Piece number `reader` needs piece number `source`, because of `dependence`."""

    reader: int
    source: int
    relation: isl.Map
    dependence: Dependence


class OrderError(Exception):
    """No order of points was found; `needs` relate them."""

    def __init__(self, needs: Sequence[Need]):
        super().__init__(self.__doc__)
        self.needs = tuple(needs)


class TooManyCutsError(OrderError):
    """The statements were cut so often that an order would take too long to find."""


class CycleError(OrderError):
    """Some points all wait for each other."""


def arrange(
    statements: Sequence[Statement], dependences: Sequence[Dependence], steps: Sequence[Symbol], fixed: Sequence[Symbol]
) -> list[tuple[Piece, tuple[Row, ...]]]:
    """Pieces of the statements, whose bounds are numbers, with the time of each inside loops over the `fixed` steps.

    Raises CycleError where some point depends on itself, and TooManyCutsError where an order would take too long to find.
    """
    pieces = [Piece(s, s.points) for s in statements]
    number = {s.name: k for k, s in enumerate(statements)}
    needs = []
    for dependence in dependences:
        relation = functools.reduce(lambda part, step: _at_one(part, dependence, step), fixed, dependence.relation)
        needs.append(Need(number[dependence.reader.name], number[dependence.source.name], relation, dependence))
    arrangement = _Arrangement()
    arrangement.arrange(pieces, _nonempty(needs), tuple(s for s in steps if s not in fixed), ())
    return arrangement.times


def _at_one(relation: isl.Map, dependence: Dependence, step: Symbol) -> isl.Map:
    """The part of a dependence between points that agree on a step."""
    reader, source = dependence.reader.node.domain.steps, dependence.source.node.domain.steps
    if step not in reader or step not in source:
        return relation
    return relation.equate(isl.dim_type.in_, reader.index(step), isl.dim_type.out, source.index(step))


class _Arrangement:
    def __init__(self) -> None:
        self.times: list[tuple[Piece, tuple[Row, ...]]] = []
        self.needs_cut = 0

    def arrange(
        self, pieces: list[Piece], needs: list[Need], steps: tuple[Symbol, ...], rows: tuple[Row, ...], refined: bool = False
    ) -> None:
        """Give times to pieces that share `rows`; `needs` are not carried by an outer loop."""
        steps = tuple(s for s in steps if any(s in p.statement.node.domain for p in pieces))
        if len(pieces) == 1 and not needs:
            self.times.append((pieces[0], (*rows, *(s for s in steps if s in pieces[0].statement.node.domain))))
            return
        looped = _loop(pieces, needs, steps)
        if looped is not None:
            row, step, kept = looped
            self.arrange(pieces, kept, tuple(s for s in steps if s != step), (*rows, row))
            return
        components = strongly_connected(range(len(pieces)), [(n.reader, n.source) for n in needs])
        if len(components) > 1:
            for place, members in enumerate(components):
                self.arrange(*_part(pieces, needs, members), steps, (*rows, place), refined)
            return
        finer = None if refined else _refined(pieces, needs, steps)
        if finer is not None:
            self.arrange(*finer, steps, rows, True)
            return
        self._peel(pieces, needs, steps, rows)

    def _peel(self, pieces: list[Piece], needs: list[Need], steps: tuple[Symbol, ...], rows: tuple[Row, ...]) -> None:
        """Cut off points that can run before the others or after them, until the rest falls apart or shares a loop."""
        first = 0
        tails: list[list[Piece]] = []
        while pieces:
            self.needs_cut += len(needs)
            if self.needs_cut > MOST_NEEDS_CUT:
                raise TooManyCutsError(needs)
            heads, pieces, needs = _cut(pieces, needs, readers=True)
            ends, pieces, needs = _cut(pieces, needs, readers=False)
            if not heads and not ends:
                raise CycleError(needs)
            tails.append(ends)
            first = self._sequence(heads, steps, rows, first)
            connected = strongly_connected(range(len(pieces)), [(n.reader, n.source) for n in needs])
            if pieces and (len(connected) > 1 or not needs or _loop(pieces, needs, steps) is not None):
                self.arrange(pieces, needs, steps, (*rows, first))
                first += 1
                break
        for ends in reversed(tails):
            first = self._sequence(ends, steps, rows, first)

    def _sequence(self, pieces: list[Piece], steps: tuple[Symbol, ...], rows: tuple[Row, ...], first: int) -> int:
        """Times for pieces that do not depend on each other; gives the next free place."""
        for place, piece in enumerate(pieces, first):
            self.times.append((piece, (*rows, place, *(s for s in steps if s in piece.statement.node.domain))))
        return first + len(pieces)


def _loop(pieces: list[Piece], needs: list[Need], steps: tuple[Symbol, ...]) -> tuple[Row, Symbol, list[Need]] | None:
    """A loop over a step of all pieces, forwards or backwards, that respects every need; its step, and the needs that it does not carry."""
    for step in steps:
        if not all(step in p.statement.node.domain for p in pieces):
            continue
        for row, wrong in ((step, isl.Map.order_lt), (Backwards(step), isl.Map.order_gt)):
            ends = ((n.relation, n.dependence.reader.node.domain.steps, n.dependence.source.node.domain.steps) for n in needs)
            if all(wrong(r, isl.dim_type.in_, a.index(step), isl.dim_type.out, b.index(step)).is_empty() for r, a, b in ends):
                return row, step, _nonempty([n._replace(relation=_at_one(n.relation, n.dependence, step)) for n in needs])
    return None


def _part(pieces: list[Piece], needs: list[Need], members: Sequence[int]) -> tuple[list[Piece], list[Need]]:
    """Some pieces, and the needs between them."""
    place = {old: new for new, old in enumerate(members)}
    inner = [n._replace(reader=place[n.reader], source=place[n.source]) for n in needs if n.reader in place and n.source in place]
    return [pieces[k] for k in members], inner


def _cut(pieces: list[Piece], needs: list[Need], readers: bool) -> tuple[list[Piece], list[Piece], list[Need]]:
    """The points that need no other point, the remaining points, and the needs of these. Unless `readers`: those that no other needs."""
    tied = [isl.Set.empty(p.points.get_space()) for p in pieces]
    for n in needs:
        k = n.reader if readers else n.source
        tied[k] = coalesced(tied[k].union(n.relation.domain() if readers else n.relation.range()))
    free = [Piece(p.statement, coalesced(p.points.subtract(t))) for p, t in zip(pieces, tied, strict=True)]
    rest = [Piece(p.statement, coalesced(p.points.intersect(t))) for p, t in zip(pieces, tied, strict=True)]
    inside = []
    for n in needs:
        relation = n.relation.intersect_domain(rest[n.reader].points).intersect_range(rest[n.source].points)
        inside.append(n._replace(relation=relation.coalesce()))
    left, needs = _part(rest, _nonempty(inside), [k for k, p in enumerate(rest) if not p.points.is_empty()])
    return [p for p in free if not p.points.is_empty()], left, needs


_SEEDS, _ATOMS = 12, 32  # the most places to cut at, and the most pieces of a statement: more do not help


def _refined(pieces: list[Piece], needs: list[Need], steps: tuple[Symbol, ...]) -> tuple[list[Piece], list[Need]] | None:
    """The pieces. Those with all of the steps are cut where some dependence begins or ends. None if there is no such place."""
    uncut = {k for k, p in enumerate(pieces) if not all(s in p.statement.node.domain for s in steps)}
    seeds: list[isl.Set] = []
    count: Counter[int] = Counter()  # of the places at which each seed is cut
    for n in needs:
        for side, k in ((n.relation.domain(), n.reader), (n.relation.range(), n.source)):
            if k in uncut or pieces[k].points.is_subset(side):
                continue
            seed = _along(side, pieces[k].statement, steps)
            present = next((number for number, other in enumerate(seeds) if other.is_equal(seed)), len(seeds))
            seeds += [seed] if present == len(seeds) else []
            count[present] += 1
    if not seeds:
        return None
    atoms = [isl.Set.universe(seeds[0].get_space())]
    for seed in (seeds[number] for number, _ in count.most_common(_SEEDS)):
        if len(atoms) < _ATOMS:
            atoms = [coalesced(part) for a in atoms for part in (a.intersect(seed), a.subtract(seed)) if not part.is_empty()]
    parts: list[Piece] = []
    parts_of: list[list[int]] = []
    for k, piece in enumerate(pieces):
        subsets = [piece.points] if k in uncut else [piece.points.intersect(_lifted(a, piece.statement, steps)) for a in atoms]
        subsets = [coalesced(points) for points in subsets if not points.is_empty()]
        parts_of.append(list(range(len(parts), len(parts) + len(subsets))))
        parts += [Piece(piece.statement, points) for points in subsets]
    finer = []
    for n in needs:
        for reader in parts_of[n.reader]:
            inside = n.relation.intersect_domain(parts[reader].points)
            for source in () if inside.is_empty() else parts_of[n.source]:
                finer.append(Need(reader, source, inside.intersect_range(parts[source].points).coalesce(), n.dependence))
    return parts, _nonempty(finer)


def _along(points: isl.Set, statement: Statement, steps: Sequence[Symbol]) -> isl.Set:
    """The projection of a statement's points onto some steps."""
    for k in reversed(range(len(statement.node.domain.steps))):
        if statement.node.domain.steps[k] not in steps:
            points = points.project_out(isl.dim_type.set, k, 1)
    return coalesced(points.reset_tuple_id() if points.has_tuple_id() else points)


def _lifted(points: isl.Set, statement: Statement, steps: Sequence[Symbol]) -> isl.Set:
    """All points of a statement's space whose projection onto some steps is in `points`."""
    for k, step in enumerate(statement.node.domain.steps):
        if step not in steps:
            points = points.insert_dims(isl.dim_type.set, k, 1)
    return points.set_tuple_name(statement.name)


def _nonempty(needs: list[Need]) -> list[Need]:
    return [n for n in needs if not n.relation.is_empty()]


def cycle_of(needs: Sequence[Need]) -> tuple[list[Dependence], Statement, isl.Set]:
    """The dependences of a cycle of points, and the statement and the point at which it starts. All points of `needs` need another."""
    leaving: dict[str, list[Need]] = {}
    for n in needs:
        leaving.setdefault(n.dependence.reader.name, []).append(n)
    statement = needs[0].dependence.reader
    point = isl.Set.from_point(needs[0].relation.domain().sample_point())
    seen: dict[tuple[str, str], int] = {}
    walk: list[tuple[Dependence, Statement, isl.Set]] = []
    while (key := (statement.name, str(point))) not in seen:
        seen[key] = len(walk)
        for n in leaving[statement.name]:
            next_point = point.apply(n.relation)
            if not next_point.is_empty():
                walk.append((n.dependence, statement, point))
                statement, point = n.dependence.source, isl.Set.from_point(next_point.sample_point())
                break
    around = walk[seen[key] :]
    return [dependence for dependence, _, _ in around], around[0][1], around[0][2]


def divided(pieces: Sequence[Piece]) -> list[Statement]:
    """The pieces as statements. A piece that is a whole statement keeps its name."""
    count, number = Counter(piece.statement.name for piece in pieces), Counter[str]()
    statements = []
    for piece in pieces:
        name = whole = piece.statement.name
        if count[whole] > 1:
            name = f"{whole}_p{number[whole]}"
            number[whole] += 1
        statements.append(replace(piece.statement, name=name, points=piece.points.set_tuple_name(name), is_piece=True))
    return statements
