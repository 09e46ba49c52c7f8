"""Gradients of reads that go around a ring: `x[(t + 1) % n]`.

The readers of a point are n points apart. Their contributions are added up in rows of n, and each point takes the sum of its readers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.frontend.autodiff.reader_sums import at_all_points
from tempo_core.frontend.tensor import Tensor, apply, pad_axis
from tempo_core.ir.graph import Edge
from tempo_core.ir.ops import Identity
from tempo_core.symbolic.domain import Domain, Point, Ring, is_own_point, ring_of, step_order
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True)
class RingRead:
    """A read of the source's `step`, at dimension `place` of the index, around a ring as the readers' step `along` goes on.

    `is_carried` says whether it reads another point of some other step too: then a loop over that step may carry what it reads.
    """

    place: int
    step: Symbol
    along: Symbol
    ring: Ring
    is_carried: bool

    def straight(self, edge: Edge) -> Edge:
        """The read at the source's own point."""
        return replace(edge, index=(*edge.index[: self.place], Point(self.step.expr), *edge.index[self.place + 1 :]))

    def turned(self, contribution: Tensor, order: tuple[Symbol, ...]) -> Tensor:
        """The contributions of all points of `along` to each point of `step`; zero where nothing reads the point."""
        shift, n, start = self.ring
        every = apply(Identity(), contribution, domain=Domain(step_order({*contribution.domain.steps, self.along}, order)))
        values = every[tuple(slice(0, s.bound_expr) if s == self.along else s.expr for s in every.domain.steps)]
        size, bound, rest = self.along.bound_expr, self.step.bound_expr, values.shape[1:]
        turns = (size + n - 1) // n if n != size else Expr.of(1)
        sums = pad_axis(values, 0, 0, turns * n - size).reshape((turns, n, *rest)).sum(0)
        each = pad_axis(sums, 0, 0, bound - n).index(0, self.step.expr)
        steps = step_order({*each.domain.steps, self.step}, order)
        at, position = self.step.expr - start, (self.step.expr - start - shift) % n
        readers = each[tuple(position if s == self.step else s.expr for s in each.domain.steps)]
        return at_all_points(readers, Domain(steps, (at >= 0) & (at <= n - 1)))


def ring_read(edge: Edge, source: Domain, readers: Domain) -> RingRead | None:
    """The index of a read that goes around a ring of a number of points; None if other indices move with the same steps."""
    points = edge.points(source)
    moving = [(s, along) for s, at in points.items() for along in readers.steps if _ring(at, along) is not None]
    if len(moving) != 1:
        return None
    ((step, along),) = moving
    others = [(s, index) for s, index in edge.by_step(source).items() if s != step]
    if any({along, step} & index.steps for _, index in others) or (step != along and step in readers):
        return None
    ring, place = _ring(points[step], along), source.steps.index(step)
    assert ring is not None
    return RingRead(place, step, along, ring, any(not is_own_point(index, s) for s, index in others if s in points))


def _ring(at: Expr, along: Symbol) -> Ring | None:
    ring = ring_of(at, along)
    is_size = ring is not None and (ring.size.is_constant or ring.size == along.bound_expr)
    return ring if ring is not None and is_size and not ring.start.steps else None
