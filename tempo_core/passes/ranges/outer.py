"""Sums of outer products that lie in a prefix or suffix of each point: one product of matrices.

The gradient of `k[0:t + 1] @ q[t]` by k is such a sum: point t contributes the products of its elements `g[0:t + 1]` and of q[t]. The
factors may share dimensions: a product for each row of a batch, or for each head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Labelled, product, repeated
from tempo_core.ir.types import is_float
from tempo_core.passes.clean.infinities import Infinities
from tempo_core.passes.ranges.factors import factors_of
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, full_range
from tempo_core.symbolic.expr import Symbol

_POINT = "point"  # the label of the dimension that points become


@dataclass
class OuterProducts:
    """The products of two factors for all points of `step`. Factor `slot` has zeros around its true elements along its dimension `axis`.

    That dimension has a position for each point of the step: the true elements are those from t on if `is_suffix`, else those
    up to t. `at` is where the sum reads the products.
    """

    graph: Graph
    node: Node
    products: Node
    factors: tuple[Labelled, Labelled]
    slot: int
    axis: int
    pad: ops.Pad
    step: Symbol
    is_suffix: bool
    at: Edge

    def summed(self) -> Edge:
        """The sum over all points of the step."""
        build, each = Builder(self.graph, self.node), Builder(self.graph, self.products)
        factor, other = self.factors[self.slot], self.factors[1 - self.slot]
        padded = each.add(replace(self.pad, axis=factor.labels.index(self.axis)), factor.edge)
        if not is_float(self.node.outputs[0].dtype):
            return self._product(build, padded, each.add(ops.Identity(), other.edge))
        infinities = Infinities(each, build, self._all, other.edge, self.step, is_first=self.is_suffix)
        total = self._product(build, padded, infinities.finite())
        kept = sorted((self.axis, *other.labels))
        inner, positions = tuple(kept.index(label) for label in other.labels), build.add(ops.Iota(self.step.bound_expr))
        reached = Labelled(infinities.reached(build, positions, inner, kept.index(self.axis)), tuple(kept))
        shape = self.node.outputs[0].shape
        return build.add(ops.Binary("add"), total, repeated(build, reached, tuple(range(len(shape))), shape))

    def _product(self, build: Builder, padded: Edge, other: Edge) -> Edge:
        edges = (padded, other) if self.slot == 0 else (other, padded)
        left, right = (Labelled(self._all(e), (_POINT, *factor.labels)) for e, factor in zip(edges, self.factors, strict=True))
        shape = self.node.outputs[0].shape
        return repeated(build, product(build, left, right, (_POINT,)), tuple(range(len(shape))), shape)

    def _all(self, value: Edge) -> Edge:
        return replace(self.at, source=value.source, output=value.output)


def outer_products(graph: Graph, node: Node) -> list[OuterProducts]:
    """The outer products that a node sums over all points of a step, if each is padded from a prefix or suffix; else none."""
    op = node.op
    if not isinstance(op, ops.Reduce) or op.fn != "sum" or op.axes != (0,):
        return []
    (edge,) = node.inputs
    source = graph[edge.source]
    ranges = [(step, at) for step, at in edge.by_step(source.domain).items() if isinstance(at, Range)]
    if len(ranges) != 1 or ranges[0][1] != full_range(ranges[0][0]) or not isinstance(source.op, ops.Pad):
        return []
    step, pad, t = ranges[0][0], source.op, ranges[0][0].expr
    is_prefix = pad.low == 0 and pad.high == step.bound_expr - t - 1
    is_whole = source.outputs[0].shape[pad.axis] == step.bound_expr and source.domain.condition is TRUE
    if not is_whole or not (is_prefix or (pad.low == t and pad.high == 0)):
        return []
    outer = []
    for term in _summands(graph, _below(graph, source)):
        factors = factors_of(graph, term) if term.domain == source.domain else None
        slots = [slot for slot in range(2) if factors is not None and pad.axis in factors[slot].labels]
        if factors is None or len(slots) != 1:
            return []  # not a product, or a dimension that the factors share
        other = factors[1 - slots[0]]
        if list(other.labels) != sorted(other.labels):
            return []
        outer.append(OuterProducts(graph, node, term, factors, slots[0], pad.axis, pad, step, not is_prefix, edge))
    return outer


def _summands(graph: Graph, node: Node) -> list[Node]:
    """The values that a node adds up."""
    edges = node.inputs
    if (
        not isinstance(node.op, ops.Binary)
        or node.op.fn != "add"
        or not all(e.is_own_point(graph[e.source].domain) for e in edges)
    ):
        return [node]
    return [summand for edge in edges for summand in _summands(graph, graph[edge.source])]


def _below(graph: Graph, node: Node) -> Node:
    """The node whose value an op with one operand takes at its own point; the node itself, if it takes another point."""
    edge = node.inputs[0]
    source = graph[edge.source]
    return source if edge.is_own_point(source.domain) else node
