"""Linear attention in blocks of points: contractions of running sums of outer products, without the sums at all points.

`y[t] = q[t] @ s[t]`, where `s[t] = a[t] * s[t - 1] + outer(k[t], v[t])`, is also the sum of `(q[t] @ k[r]) * v[r]` over all r up to t, each
with its decay: the product of all gates after r up to t. The points of t's own block contribute in this second way, by one product of
matrices a block. All blocks before it contribute by the sum at their end: one product of matrices a block too, and one scan over blocks.

The decays of a block are products of its gates. Nothing is divided, so gates may be zero or negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Label, Labelled, combined, product, reduced, repeated
from tempo_core.ir.ranges.lifted import everywhere
from tempo_core.ir.ranges.scans import at_all_points, evaluated, spread
from tempo_core.ir.types import is_float
from tempo_core.passes.ranges.running import Contraction, Pairing, Reader, RunningSum
from tempo_core.prices import MOST_WRITTEN_OUT, POINTS_OF_A_BLOCK
from tempo_core.symbolic.domain import Domain, step_order
from tempo_core.symbolic.expr import Expr

POINT, BLOCK, ROW, COLUMN, PARTNER = "point", "block", "row", "column", "column of the partner"


@dataclass
class Blocks:
    """A running sum in blocks of points: its factors, its decays, and the sums of all blocks before each.

    `gated` is the factor that has gates along dimensions of its own.
    """

    graph: Graph
    running: RunningSum

    def __post_init__(self) -> None:
        running, self.step, self.reverse = self.running, self.running.step, self.running.reverse
        self.gated = next((slot for slot in range(2) if set(running.of_one(slot)) & set(running.gate.labels)), None)
        has_gates_of_elements = any(set(running.of_one(slot)) <= set(running.gate.labels) for slot in range(2))
        self.points = MOST_WRITTEN_OUT if has_gates_of_elements else POINTS_OF_A_BLOCK
        self.count = (self.step.bound_expr + self.points - 1) // self.points
        self.once = self.builder(running.node)
        self.not_finite: list[Labelled] = []
        self.factors = [self._cut(self.once, self._finite(factor)) for factor in running.factors]
        self.decays = self._decays()
        self.before = self._sums_before()

    def builder(self, node: Node) -> Builder:
        """Builds what is there once for all points of the step."""
        return everywhere(self.graph, node, frozenset({self.step}))

    def _finite(self, factor: Labelled) -> Labelled:
        """A factor at all points, with zeros in place of what is not finite: a decay of zero times infinity would be NaN."""
        build, value = self.once, self._at_all_points(self.once, factor)
        if not is_float(build.type(value.edge).dtype):
            return value
        is_finite, zero = build.add(ops.Unary("isfinite"), value.edge), spread(build, value.edge, 0.0)
        self.not_finite.append(replace(value, edge=build.add(ops.Where(), is_finite, zero, value.edge)))
        return replace(value, edge=build.add(ops.Where(), is_finite, value.edge, zero))

    def _gates(self) -> Labelled:
        gate = self.running.gate
        return self._at_all_points(self.once, gate) if self.step in gate.edge.steps else gate

    def _decays(self) -> Labelled:
        """By which number the sums of each block (rows) have a point's product (columns): zero if that point is still to come.

        The first row and column that the sum meets are the sums before the block. The decays are a running sum themselves, whose
        products are the identity matrix.
        """
        build, gates, size = self.once, self._gates(), Expr.of(self.points + 1)
        own = [axis for axis in gates.labels if axis != POINT and axis not in self.running.shared]
        if POINT in gates.labels:
            cut = self._cut(build, gates)
            gates = replace(cut, edge=build.add(ops.Pad(1, *(Expr.of(int(k == self.reverse)) for k in range(2))), cut.edge))
        labels = (ROW, *(label for label in gates.labels if label not in (ROW, *own)), COLUMN, *own)
        sizes = dict(zip(gates.labels, build.type(gates.edge).shape, strict=True)) | {ROW: size, COLUMN: size}
        shape = tuple(sizes[label] for label in labels)
        numbers = [build.add(ops.Broadcast((size, size), (k,)), build.add(ops.Iota(size))) for k in range(2)]
        identity = build.add(ops.Cast(build.type(gates.edge).dtype), build.add(ops.Compare("eq"), *numbers))
        operands = (repeated(build, value, labels, shape) for value in (gates, Labelled(identity, (ROW, COLUMN))))
        return Labelled(build.add(ops.LinearScan(0, self.reverse), *operands), labels)

    def decays_of(self, build: Builder, before: bool) -> tuple[Labelled, Labelled]:
        """The decays of a block's products at each of its points, and those of the sums before it. With `before` at the points before."""
        rows = self._without_end(build, self.decays, ROW, before == self.reverse)
        return self._without_end(build, rows, COLUMN, not self.reverse), self._at_end(build, rows, COLUMN, self.reverse)

    def _sums_before(self) -> Labelled:
        """For each block the sum of the outer products in the blocks before it, or after it in a sum from the end."""
        build, to_end = self.once, self._at_end(self.once, self.decays, ROW, not self.reverse)
        slot, of_points = self.gated or 0, self._without_end(build, to_end, COLUMN, not self.reverse).renamed(COLUMN, ROW)
        sums = product(build, combined(build, "mul", self.factors[slot], of_points), self.factors[1 - slot], (ROW,))
        labels: tuple[Label, ...] = (BLOCK, *(label for label in sums.labels if label != BLOCK))
        terms = repeated(build, sums, labels, ())
        gates = repeated(build, self._at_end(build, to_end, COLUMN, self.reverse), labels, build.type(terms).shape)
        return Labelled(self._later(build, build.add(ops.LinearScan(0, self.reverse), gates, terms)), labels)

    def contracted(self, contraction: Contraction) -> Labelled:
        """The values of a contraction at all points."""
        build, of_key, slot = self.builder(contraction.node), self.running.of_one(contraction.slot), contraction.slot
        query = self._cut(build, self._at_all_points(build, Labelled(contraction.query, contraction.axes)))
        key, value = (self.factors[k].renamed(ROW, COLUMN) for k in (slot, 1 - slot))
        decays, from_start = self.decays_of(build, contraction.before)
        weights = product(build, query, key, [axis for axis in of_key if axis not in decays.labels])
        weights = combined(build, "mul", decays, weights)
        weights = reduced(build, "sum", weights, [label for label in weights.labels if label not in of_key])
        if self.gated == slot:
            earlier = product(build, combined(build, "mul", query, from_start), self.before, of_key)
        else:
            earlier = combined(build, "mul", product(build, query, self.before, of_key), from_start)
        total = combined(build, "add", product(build, weights, value, (COLUMN,)), earlier)
        return self._joined(build, total, contraction.results, [(self, contraction.before)])

    def paired(self, pairing: Pairing, other: Blocks) -> Labelled:
        """The sums of the products of two running sums at all points.

        Within a block, each sum is one of outer products with decays, and of what came before: the product of two such sums is a sum
        over all pairs of these.
        """
        build, results = self.builder(pairing.node), pairing.results
        mine = [factor.renamed(ROW, COLUMN) for factor in self.factors]
        theirs = [other.factors[slot].renamed(ROW, PARTNER) for slot in pairing.slots]
        decays, start = self.decays_of(build, pairing.before[0])
        other_decays, other_start = other.decays_of(build, pairing.before[1])
        other_decays = other_decays.renamed(COLUMN, PARTNER)
        weights, rows, columns = None, other.before, self.before
        for slot in range(2):
            axes = [axis for axis in self.running.of_one(slot) if axis not in results]
            if axes:
                pairs = product(build, mine[slot], theirs[slot], axes)
                weights = pairs if weights is None else combined(build, "mul", weights, pairs)
                rows, columns = product(build, mine[slot], rows, axes), product(build, theirs[slot], columns, axes)
            else:  # all its own dimensions stay
                decays, other_decays = (
                    combined(build, "mul", decays, mine[slot]),
                    combined(build, "mul", other_decays, theirs[slot]),
                )
        assert weights is not None
        own = (*self.running.of_one(0), *self.running.of_one(1))
        both = product(build, self.before, other.before, [axis for axis in own if axis not in results])

        def summed(products: Labelled, earlier: Labelled) -> Labelled:
            """A sum over this running sum's products in the block, and over what came before."""
            inside = product(build, decays, products, (COLUMN,))
            return combined(build, "add", inside, combined(build, "mul", earlier, start))

        inside = product(build, other_decays, summed(weights, columns), (PARTNER,))
        total = combined(build, "add", inside, combined(build, "mul", summed(rows, both), other_start))
        total = reduced(build, "sum", total, (BLOCK, ROW, *results))
        return self._joined(build, total, results, list(zip((self, other), pairing.before, strict=True)))

    def _joined(self, build: Builder, total: Labelled, results: tuple[Label, ...], read: list[tuple[Blocks, bool]]) -> Labelled:
        """What blocks have, at all points, and what is not finite in the sums that each point reads."""
        edge = repeated(build, total, (BLOCK, ROW, *results), ())
        joined = build.add(ops.Reshape((self.count * self.points, *build.type(edge).shape[2:])), edge)
        value = Labelled(build.add(ops.Slice(0, Expr.of(0), self.step.bound_expr), joined), (POINT, *results))
        for blocks, before in read if self.not_finite else ():
            value = combined(build, "add", value, blocks._reached(build, value.labels, before))
        return value

    def _reached(self, build: Builder, kept: tuple[Label, ...], before: bool) -> Labelled:
        """What is not finite in the factors, at the points whose sums contain it. A gate of zero ends it, as it ends a sum."""
        gates, terms = self._gates(), combined(build, "add", *(reduced(build, "sum", each, kept) for each in self.not_finite))
        if POINT in gates.labels:
            is_open = build.add(ops.Compare("ne"), gates.edge, spread(build, gates.edge, 0.0))
            gates = replace(gates, edge=build.add(ops.Cast(build.type(gates.edge).dtype), is_open))
            gate = repeated(build, reduced(build, "max", gates, kept), terms.labels, build.type(terms.edge).shape)
            sums = build.add(ops.LinearScan(0, self.reverse), gate, terms.edge)
        else:
            sums = build.add(ops.CumSum(0, self.reverse), terms.edge)
        return replace(terms, edge=self._later(build, sums) if before else sums)

    # -- parts ------------------------------------------------------------------------------------------------------------

    def _at_all_points(self, build: Builder, factor: Labelled) -> Labelled:
        each = Builder(self.graph, build.like, Domain(step_order(factor.edge.steps | {self.step}, self.graph.order)))
        return Labelled(at_all_points(each, factor.edge, self.step), (POINT, *factor.labels))

    def _cut(self, build: Builder, points: Labelled) -> Labelled:
        """The points of a step in blocks. The last one may have zeros after the last point."""
        size = self.count * self.points
        padded = build.add(ops.Pad(0, Expr.of(0), size - self.step.bound_expr), points.edge)
        shape = (self.count, Expr.of(self.points), *build.type(padded).shape[1:])
        return Labelled(build.add(ops.Reshape(shape), padded), (BLOCK, ROW, *points.labels[1:]))

    def _later(self, build: Builder, sums: Edge) -> Edge:
        """The sums that a scan meets before its own ones: zero at first."""
        one = Expr.of(-1 if self.reverse else 1)
        return build.add(ops.Pad(0, one, -one), sums)

    def _at_end(self, build: Builder, decays: Labelled, label: Label, is_last: bool) -> Labelled:
        """The decays of the first, or of the last, row or column."""
        position = build.add(ops.Eval(Expr.of(self.points if is_last else 0)), domain=Domain(()))
        edge = build.add(ops.Gather(decays.labels.index(label)), decays.edge, position)
        return Labelled(edge, tuple(each for each in decays.labels if each != label))

    def _without_end(self, build: Builder, decays: Labelled, label: Label, is_first: bool) -> Labelled:
        """The decays of all rows or columns but the first, or but the last."""
        start = Expr.of(int(is_first))
        return replace(decays, edge=build.add(ops.Slice(decays.labels.index(label), start, start + self.points), decays.edge))


def in_blocks(graph: Graph, blocks: dict[int, Blocks], reader: Reader) -> Edge:
    """The value of a contraction at its own point, computed in blocks. `blocks` are those of each running sum."""
    at, step = Builder(graph, reader.node), reader.sums[0].step
    first, *others = (blocks[running.node.id] for running in reader.sums)
    if isinstance(reader, Contraction):
        return at.add(ops.Gather(0), first.contracted(reader).edge, evaluated(at, step.expr))
    selected = Builder(graph, reader.product)
    value = selected.add(ops.Gather(0), first.paired(reader, *others).edge, evaluated(selected, step.expr))
    if reader.merge is None:
        return value
    zero = spread(Builder(graph, reader.node, Domain(())), value, 0.0)
    edges = (replace(value if e.source == reader.product.id else zero, condition=e.condition) for e in reader.merge.inputs)
    return at.add(ops.Merge(at.type(value)), *edges)
