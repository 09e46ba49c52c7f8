"""Sums of outer products that lie in a prefix or suffix of each point: one product of matrices.

The gradient of `k[0:t + 1] @ q[t]` by k is such a sum: point t contributes the products of its elements `g[0:t + 1]` and of q[t]. The
factors may share dimensions: a product for each row of a batch, or for each head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.axes import places_of, source_of
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import is_float
from tempo_core.passes.clean.infinities import Infinities
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, full_range
from tempo_core.symbolic.expr import Symbol


@dataclass
class OuterProducts:
    """The products of `left[t]` and `right[t]` for all points t of `step`. Operand `slot` has zeros around its true elements.

    Its dimension `axis` has a position for each point of the step: the true elements are those from t on if `is_suffix`, else those
    up to t. `order` are the dimensions of the result among those of the products; `at` is where the sum reads them.
    """

    graph: Graph
    node: Node
    operands: tuple[Edge, Edge]
    products: Node
    order: tuple[int, ...]
    slot: int
    axis: int
    pad: ops.Pad
    step: Symbol
    is_suffix: bool
    at: Edge

    @property
    def op(self) -> ops.Dot:
        assert isinstance(self.products.op, ops.Dot)
        return self.products.op

    def summed(self) -> Edge:
        """The sum over all points of the step."""
        build, each = Builder(self.graph, self.node), Builder(self.graph, self.products)
        padded, other = self.operands[self.slot], self.operands[1 - self.slot]
        padded = each.add(replace(self.pad, axis=self.axis), padded)
        if not is_float(self.products.outputs[0].dtype):
            return self._contracted(build, padded, each.add(ops.Identity(), other))
        infinities = Infinities(each, build, self._all, other, self.step, is_first=self.is_suffix)
        product = self._contracted(build, padded, infinities.finite())
        return build.add(ops.Binary("add"), product, self._reached(build, infinities))

    def _contracted(self, build: Builder, padded: Edge, other: Edge) -> Edge:
        left, right = (self._all(e) for e in ((padded, other) if self.slot == 0 else (other, padded)))
        shared = (tuple(k + 1 for k in batch) for batch in (self.op.left_batch, self.op.right_batch))
        product = build.add(ops.Dot((0,), (0,), *shared), left, right)
        return build.add(ops.Permute(self.order), product)

    def _reached(self, build: Builder, infinities: Infinities) -> Edge:
        """What is infinite or NaN in the other operand, at the positions that are true elements of its point."""
        dimensions = places_of(self.graph, self.products)
        others = [k for _, k in sorted(dimensions[1 - self.slot].items())]
        along, *places = (self.order.index(k) for k in (dimensions[self.slot][self.axis], *others))
        kept = sorted((along, *places))
        inner = tuple(kept.index(place) for place in places)
        positions = build.add(ops.Iota(self.step.bound_expr))
        reached = infinities.reached(build, positions, inner, kept.index(along))
        return build.add(ops.Broadcast(self.node.outputs[0].shape, tuple(kept)), reached)

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
    if source.outputs[0].shape[pad.axis] != step.bound_expr or not (is_prefix or (pad.low == t and pad.high == 0)):
        return []
    outer = [_outer_product(graph, node, source, term, step, not is_prefix) for term in _summands(graph, _below(graph, source))]
    return [products for products in outer if products is not None] if all(outer) else []


def _outer_product(graph: Graph, node: Node, padded: Node, term: Node, step: Symbol, is_suffix: bool) -> OuterProducts | None:
    """One of the terms that `padded` pads, if it is an outer product, perhaps transposed."""
    order = term.op.order if isinstance(term.op, ops.Permute) else tuple(range(term.outputs[0].rank))
    products = _below(graph, term) if isinstance(term.op, ops.Permute) else term
    if not isinstance(products.op, ops.Dot) or products.op.left_contract:
        return None
    if products.domain != padded.domain or padded.domain.condition is not TRUE:
        return None
    assert isinstance(padded.op, ops.Pad)
    left, right = products.inputs
    source = source_of(graph, products, order[padded.op.axis])
    if source is None or None not in source:
        return None  # a dimension that the factors share
    slot = source.index(None) ^ 1
    others = [order.index(k) for _, k in sorted(places_of(graph, products)[1 - slot].items())]
    if others != sorted(others):
        return None
    place = source[slot]
    assert place is not None
    return OuterProducts(graph, node, (left, right), products, order, slot, place, padded.op, step, is_suffix, node.inputs[0])


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
