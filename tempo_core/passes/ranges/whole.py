"""Operations on a prefix or suffix and on values that differ from reader to reader: done on the whole step.

`k[0:t + 1] @ q[t]` is the start of `k[0:T] @ q[t]`, which is one product of matrices for all t together. So no reader has a copy of its
own of the range. `p[t] @ v[0:t + 1]` is `p[t] @ v[0:T]` with zeros in p from t + 1 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tempo_core.ir import ops
from tempo_core.ir.axes import places_of
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Elements
from tempo_core.ir.ranges.lifted import MovingScan, all_elements, moving_scan
from tempo_core.ir.ranges.scans import at_all_points, evaluated
from tempo_core.ir.types import is_float
from tempo_core.passes.clean.infinities import Infinities
from tempo_core.symbolic.domain import Domain, step_order


@dataclass
class WholeStep:
    """Dimension `axis` of operand `slot` of a product, which is a prefix or suffix that moves with the reader, and the product's rewrites."""

    graph: Graph
    node: Node
    slot: int
    axis: int
    scan: MovingScan

    def __post_init__(self) -> None:
        self.build = Builder(self.graph, self.node)

    def value(self) -> Edge | None:
        """The node's value by the whole step; None if it is no simpler."""
        op, step, index, element = self.node.op, self.scan.step, self.scan.index, self.scan.element
        assert isinstance(op, ops.Dot)
        contracts, batches = (op.left_contract, op.right_contract), (op.left_batch, op.right_batch)
        contract, other = contracts[self.slot], self.node.inputs[1 - self.slot]
        if self.axis in batches[self.slot]:
            return None
        places = places_of(self.graph, self.node)[self.slot]
        if self.axis not in contract:
            if not other.steps & (index.steps | {step}):
                return None  # the product is a function of single points
            product = self._product(op, self._whole(element), other)
            return self.build.add(ops.Slice(places[self.axis], index.start, index.stop), product)
        axis = contracts[1 - self.slot][contract.index(self.axis)]
        if Elements(self.graph, self.node, step, index).of(other, axis) is not None:
            return None  # a sum of products of elements: a loop adds these up
        masked = self.build.add(ops.Pad(axis, index.start, step.bound_expr - index.stop), other)
        if not is_float(self.node.outputs[0].dtype):
            return self._product(op, self._whole(element), masked)
        kept = [places[a] for a in sorted(places)]
        if contract != (self.axis,) or kept != sorted(kept):
            return None
        steps = step_order(element.steps, self.graph.order)
        each, whole = (Builder(self.graph, self.node, Domain(of)) for of in (steps, tuple(s for s in steps if s != step)))
        is_prefix = bool(index.start == 0)
        infinities = Infinities(each, whole, partial(at_all_points, each, step=step), element, step, is_first=is_prefix)
        product = self._product(op, self._whole(infinities.finite()), masked)
        end = evaluated(self.build, index.stop - 1 if is_prefix else index.start)
        reached = infinities.reached(self.build, end, tuple(range(len(kept))))
        return self.build.add(
            ops.Binary("add"), product, self.build.add(ops.Broadcast(self.node.outputs[0].shape, tuple(kept)), reached)
        )

    def _whole(self, element: Edge) -> Edge:
        return all_elements(self.build, element, self.scan.step, self.axis)

    def _product(self, op: ops.Dot, operand: Edge, other: Edge) -> Edge:
        return self.build.add(op, *((operand, other) if self.slot == 0 else (other, operand)))


def whole_steps(graph: Graph, node: Node) -> Iterator[tuple[MovingScan, Edge | None]]:
    """The prefixes and suffixes in a product's operands that move with the reader, and the product by the whole step, if that is simpler."""
    for slot, edge in enumerate(node.inputs if isinstance(node.op, ops.Dot) else ()):
        for axis, size in enumerate(graph.edge_type(edge).shape):
            scan = moving_scan(graph, node, edge, axis) if size.steps else None
            if scan is not None:
                yield scan, WholeStep(graph, node, slot, axis, scan).value()
