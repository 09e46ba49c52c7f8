"""Linear attention in blocks of points: contractions of running sums of outer products, without the sums at all points.

`y[t] = q[t] @ s[t]`, where s[t] is the sum of the outer products of `k[r]` and `v[r]` over all r up to t, is also the sum of
`(q[t] @ k[r]) * v[r]`. The points of t's own block contribute in this second way: one product of matrices a block, masked. All blocks
before it contribute by the sum of their outer products: one product of matrices a block too, and one running sum over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.scans import evaluated, spread
from tempo_core.ir.types import is_float
from tempo_core.passes.clean.infinities import Infinities
from tempo_core.passes.ranges.running import Contraction, Factor, RunningSum
from tempo_core.prices import POINTS_OF_A_BLOCK
from tempo_core.symbolic.domain import Domain, Point, full_range, step_order
from tempo_core.symbolic.expr import Expr, Symbol

BLOCK, ROW, COLUMN = "block", "row", "column"
Label = str | int  # of a dimension: those of blocks, and those of the running sum and of the query, as in `Contraction`


@dataclass(frozen=True)
class Labelled:
    """A value whose dimensions have labels."""

    edge: Edge
    labels: tuple[Label, ...]

    def renamed(self, old: Label, new: Label) -> Labelled:
        return replace(self, labels=tuple(new if label == old else label for label in self.labels))


def product(build: Builder, left: Labelled, right: Labelled, summed: tuple[Label, ...]) -> Labelled:
    """The contraction of two values over the labels `summed`; other labels that both have are shared dimensions."""
    shared = tuple(label for label in left.labels if label in right.labels and label not in summed)
    places = [tuple(v.labels.index(label) for label in labels) for labels in (summed, shared) for v in (left, right)]
    edge = build.add(ops.Dot(*places), left.edge, right.edge)
    rest = (label for value in (left, right) for label in value.labels if label not in (*shared, *summed))
    return Labelled(edge, (*shared, *rest))


def arranged(build: Builder, value: Labelled, labels: tuple[Label, ...]) -> Edge:
    """The value with its dimensions in this order."""
    order = tuple(value.labels.index(label) for label in labels)
    return value.edge if order == tuple(range(len(order))) else build.add(ops.Permute(order), value.edge)


@dataclass
class Blocks:
    """The contractions of a running sum, computed in blocks of points."""

    graph: Graph
    running: RunningSum

    def __post_init__(self) -> None:
        self.step = self.running.step
        self.count = (self.step.bound_expr + POINTS_OF_A_BLOCK - 1) // POINTS_OF_A_BLOCK
        self.once = self._builder(self.running.value)
        first, second = (self._cut(self.once, self._all(self.once, f.edge), f.axes) for f in self.running.factors)
        self.factors = (first, second)
        self.before = self._sums_before()

    def contracted(self, contraction: Contraction) -> Edge:
        """The value of a contraction, at the points of its node."""
        build = self._builder(contraction.node)
        query = self._query(build, contraction)
        key, of_key = self.factors[contraction.slot].renamed(ROW, COLUMN), self.running.of_one(contraction.slot)
        weights = self._masked(build, product(build, query, key, of_key))
        inside = product(build, weights, self._finite(1 - contraction.slot).renamed(ROW, COLUMN), (COLUMN,))
        earlier = product(build, query, self.before, of_key)
        labels: tuple[Label, ...] = (BLOCK, ROW, *contraction.results)
        total = build.add(ops.Binary("add"), *(arranged(build, value, labels) for value in (inside, earlier)))
        shape = build.type(total).shape
        joined = build.add(ops.Reshape((self.count * POINTS_OF_A_BLOCK, *shape[2:])), total)
        result = build.add(ops.Slice(0, Expr.of(0), self.step.bound_expr), joined)
        if is_float(build.type(result).dtype):
            result = build.add(ops.Binary("add"), result, self._reached(build, contraction, result))
        at = Builder(self.graph, contraction.node)
        return at.add(ops.Gather(0), result, evaluated(at, self.step.expr + contraction.delay))

    def _builder(self, node: Node) -> Builder:
        """Builds what is there once for all points of the step."""
        return Builder(self.graph, node, Domain(tuple(s for s in node.domain.steps if s != self.step)))

    def _sums_before(self) -> Labelled:
        """For each block the sum of the outer products in the blocks before it, or after it in a sum from the end."""
        sums = product(self.once, *self.factors, (ROW,))
        rest = tuple(label for label in sums.labels if label != BLOCK)
        order: tuple[Label, ...] = (BLOCK, *rest)
        running = self.once.add(ops.CumSum(0, self.running.reverse), arranged(self.once, sums, order))
        one = Expr.of(-1 if self.running.reverse else 1)
        return Labelled(self.once.add(ops.Pad(0, one, -one), running), order)

    def _query(self, build: Builder, contraction: Contraction) -> Labelled:
        """The values with which the sums of each block are contracted. The sum at t meets the query of the reader at t - delay."""
        points, delay = self._all(build, contraction.query), Expr.of(contraction.delay)
        if contraction.delay:
            points = build.add(ops.Pad(0, delay, -delay), points)
        return self._cut(build, points, contraction.axes)

    def _masked(self, build: Builder, weights: Labelled) -> Labelled:
        """Zeros for the points after each row, or before it in a sum from the end."""
        shape = build.type(weights.edge).shape
        numbers = [
            build.add(ops.Broadcast(shape, (weights.labels.index(label),)), build.add(ops.Iota(Expr.of(POINTS_OF_A_BLOCK))))
            for label in (COLUMN, ROW)
        ]
        is_inside = build.add(ops.Compare("ge" if self.running.reverse else "le"), *numbers)
        return replace(weights, edge=build.add(ops.Where(), is_inside, weights.edge, spread(build, weights.edge, 0.0)))

    def _infinities(self, factor: Factor) -> Infinities:
        each = Builder(self.graph, self.running.products, Domain(self._steps(factor.edge)))
        whole = Builder(self.graph, self.running.products, Domain(tuple(s for s in self._steps(factor.edge) if s != self.step)))
        return Infinities(each, whole, self._at_all_points, factor.edge, self.step, is_first=not self.running.reverse)

    def _finite(self, slot: int) -> Labelled:
        """A factor with zeros in place of what is not finite: a weight of zero times infinity would be NaN."""
        factor = self.running.factors[slot]
        if not is_float(self.running.products.outputs[0].dtype):
            return self.factors[slot]
        return self._cut(self.once, self._all(self.once, self._infinities(factor).finite()), factor.axes)

    def _reached(self, build: Builder, contraction: Contraction, result: Edge) -> Edge:
        """What is not finite in the factor that is not contracted, at the points whose sums contain it."""
        factor = self.running.factors[1 - contraction.slot]
        position = build.add(ops.Iota(self.step.bound_expr))
        ascending = tuple(axis for axis in contraction.results if axis in factor.axes)
        order = tuple(factor.axes.index(axis) for axis in ascending)
        value = factor if order == tuple(range(len(order))) else self._turned(factor, order)
        reached = self._infinities(value).reached(build, position, tuple(range(1, len(order) + 1)), 0)
        places = (0, *(1 + contraction.results.index(axis) for axis in ascending))
        return build.add(ops.Broadcast(build.type(result).shape, places), reached)

    def _turned(self, factor: Factor, order: tuple[int, ...]) -> Factor:
        each = Builder(self.graph, self.running.products, Domain(self._steps(factor.edge)))
        return Factor(each.add(ops.Permute(order), factor.edge), tuple(factor.axes[k] for k in order))

    def _steps(self, edge: Edge) -> tuple[Symbol, ...]:
        return step_order(edge.steps | {self.step}, self.graph.order)

    def _at_all_points(self, value: Edge) -> Edge:
        """A value of each point, read at all points of the step."""
        steps = self.graph[value.source].domain.steps
        return replace(value, index=tuple(full_range(s) if s == self.step else Point(s.expr) for s in steps))

    def _all(self, build: Builder, value: Edge) -> Edge:
        """A value at all points of the step, which become its first dimension."""
        each = Builder(self.graph, build.like, Domain(self._steps(value)))
        return self._at_all_points(each.add(ops.Identity(), value))

    def _cut(self, build: Builder, points: Edge, labels: tuple[Label, ...]) -> Labelled:
        """The points of a step, its first dimension, in blocks. The last one may have zeros after the last point."""
        size = self.count * POINTS_OF_A_BLOCK
        padded = build.add(ops.Pad(0, Expr.of(0), size - self.step.bound_expr), points)
        shape = (self.count, Expr.of(POINTS_OF_A_BLOCK), *build.type(padded).shape[1:])
        return Labelled(build.add(ops.Reshape(shape), padded), (BLOCK, ROW, *labels))
