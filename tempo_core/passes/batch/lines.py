"""Reads of ranges along a row or a column of a table that runs by diagonals: `x[i, a:b]`, `x[a:b, j]`.

Each element of such a range lies on another diagonal. In a row, all of them have the same place on their diagonals: they are a range of
diagonals. In a column, their places differ too: they are gathered from all diagonals that the range reaches, as one flat array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, zeros_outside
from tempo_core.ir.graph import Edge, Graph
from tempo_core.passes.base import condition_without
from tempo_core.passes.batch.borders import span_of
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, index_steps
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.isl.relation import maximum_over
from tempo_core.symbolic.proof import distribute, extreme, provably_nonnegative

Reading = Callable[[dict[Symbol, Index]], Edge]  # of a source, with other indices along some steps


def is_along_line(graph: Graph, edge: Edge, steps: Sequence[Symbol]) -> bool:
    """Whether an edge reads a range along the row or the column of a table over two steps, and points along all other steps."""
    by_step = edge.by_step(graph[edge.source].domain)
    at = [by_step.pop(step, None) for step in steps]
    if len(at) > 2 or None in at or sum(isinstance(index, Range) for index in at) != 1:
        return False
    return all(isinstance(i, Point) for i in by_step.values()) and index_steps(by_step.values()).isdisjoint(steps)


def is_near(graph: Graph, edge: Edge, steps: Sequence[Symbol]) -> bool:
    """Whether an edge reads at the same distance from its reader along each of some steps, at all points."""
    by_step = edge.by_step(graph[edge.source].domain)
    at = [by_step.pop(step, None) for step in steps]
    is_moved = all(isinstance(i, Point) and (i.expr - step.expr).is_constant for i, step in zip(at, steps, strict=True))
    return is_moved and index_steps(by_step.values()).isdisjoint(steps)


@dataclass(frozen=True)
class Line:
    """A range along a row or a column: element m is that in row `row + m * down` of diagonal `first + m * across`."""

    number: Symbol  # the step that counts diagonals
    rows: Symbol
    first: Expr
    across: int
    row: Expr
    down: int
    read: Range

    def elements(self, reading: Reading, source: Domain, build: Builder) -> Edge:
        """The elements for each diagonal and row, with zeros past the end of the range. A source has points on some of the diagonals."""
        (start, stop), length = self._diagonals(source), self.read.length
        first, end = (self._of_all_rows(at) for at in (self.first, self.first + (self.read.stop - self.read.start)))
        is_masked = self.read.size is not None
        if not self.down and first is not None:  # in one row, as far as the longest range of a row
            is_masked = end is None
            end = extreme((first, extreme((stop, first + length * self.across), -1)), 1) if end is None else end
            elements = reading({self.number: Range(first, end, self.across, self.read.size), self.rows: Point(self.row)})
        else:
            points = build.domain or build.like.domain
            points = Domain(points.without(self.rows).steps, condition_without(points.condition, self.rows))
            most = extreme((maximum_over(stop - start, points).substitute(build.graph.derived), Expr.of(0)), 1)
            size = most if (stop - start).steps else None
            slab = reading({self.number: Range(start, stop, 1, size), self.rows: full_range(self.rows)})
            diagonals, rows, *shape = build.type(slab).shape
            flat = build.add(ops.Reshape((diagonals * rows, *shape)), slab, domain=points)
            stride = build.filled((length,), self.across * rows + self.down)
            along = build.add(ops.Binary("mul"), build.add(ops.Iota(length)), stride)
            places = build.add(ops.Binary("add"), along, build.filled((length,), (self.first - start) * rows + self.row))
            elements = build.add(ops.Gather(0, length=(stop - start) * rows), flat, places)
        if not is_masked:
            return elements
        is_before = build.add(ops.Compare("lt"), build.add(ops.Iota(length)), build.filled((length,), self.read.true_length))
        return zeros_outside(build, elements, is_before, (0,))

    def _diagonals(self, source: Domain) -> tuple[Expr, Expr]:
        """The first diagonal on which elements of any row lie, and that after the last one, where the source has points."""
        number, last = self.number.expr, self.first + (self.read.last - self.read.start) * (self.across // self.read.stride)
        low, high = (self.first, last) if self.across > 0 else (last, self.first)
        start, stop = self._of_all_rows(low), self._of_all_rows(high + 1)
        if start is None and provably_nonnegative(low - number - 1):
            start = number + 1
        if stop is None and provably_nonnegative(number - 1 - high):
            stop = number
        points = condition_without(source.condition, self.rows)
        least, most = span_of(points, self.number) or (Expr.of(0), self.number.bound_expr)
        if stop is None:  # it is the start, or after it
            return (least, most) if start is None else (start, extreme((most, start), 1))
        return extreme((least, stop), -1) if start is None else start, stop

    def _of_all_rows(self, diagonal: Expr) -> Expr | None:
        """The diagonal, if it is the same for all rows."""
        choices = distribute(diagonal) if self.rows in diagonal.symbols else None
        if choices is not None:
            diagonal = extreme((extreme(each, 1) for each in choices), -1)
        return None if self.rows in diagonal.symbols else diagonal
