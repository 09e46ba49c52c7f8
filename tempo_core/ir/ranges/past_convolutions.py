"""Sums of products in which one operand comes in reverse order: `y[t] = sum over s <= t of k[t - s] * x[s]`, for all points at once.

A range is a prefix of its step, or of the step in reverse order: then it is a suffix, and comes in reverse order. Of two prefixes, one in
reverse order, the products are those of a convolution with the whole past.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.axes import dropped, left_out, operand_labels, reduced
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node, compose
from tempo_core.ir.past_sums import PAST_SUMS
from tempo_core.ir.ranges.elements import Elements, FlippedElements, range_of
from tempo_core.ir.ranges.lifted import all_elements, empty_is_neutral, everywhere, is_scan, may_read_all_points
from tempo_core.ir.ranges.scans import take
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Library
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol

NOMINAL_ROUNDS = 10  # the logarithm of a number of points


@dataclass(frozen=True)
class Operand:
    """A prefix of a step, whose values at single points `element` reads. Its other dimensions have labels.

    `is_suffix`: of the step in reverse order. `is_reversed`: the prefix, as an operand of the product, comes in reverse order.
    """

    element: Edge
    labels: str
    step: Symbol
    index: Range
    is_suffix: bool
    is_reversed: bool
    sources: frozenset[int]

    def of_all_points(self, build: Builder) -> Edge:
        """The values at all points, of which a prefix is read, as the first dimension."""
        values = all_elements(build, self.element, self.step, 0)
        return build.add(ops.Flip(0), values) if self.is_suffix else values


@dataclass(frozen=True)
class PastConvolution:
    """A node that computes one point of a convolution with the whole past. `labels` are those of its value, before it reduces `rest`."""

    graph: Graph
    node: Node
    operands: tuple[Operand, Operand]
    labels: str
    sizes: tuple[Expr, ...]
    rest: tuple[int, ...]

    @property
    def step(self) -> Symbol:
        return self.operands[0].step

    @property
    def index(self) -> Range:
        return self.operands[0].index

    @property
    def moving(self) -> frozenset[Symbol]:
        return frozenset().union(*(each.index.steps | {each.step} for each in self.operands))

    @property
    def sources(self) -> frozenset[int]:
        return self.operands[0].sources | self.operands[1].sources

    def value(self) -> Edge:
        """What a point takes from the sums for all points."""
        whole = everywhere(self.graph, self.node, self.moving)
        type = TensorType(self.node.outputs[0].dtype, (self.step.bound_expr, *self.sizes))
        labels = f"{','.join(each.labels for each in self.operands)}->{self.labels}"
        op = ops.Udf(
            Library(PAST_SUMS, (("labels", labels),)),
            (type,),
            name="convolution",
            cost=(15 * NOMINAL_ROUNDS * ops.size(type), 8 * ops.size(type)),
        )
        values = whole.add(op, *(each.of_all_points(whole) for each in self.operands))
        point = Builder(self.graph, self.node, self.node.domain)
        value = empty_is_neutral(point, take(point, values, 0, self.step, self.index.length - 1), "sum", self.index)
        return point.add(ops.Reduce("sum", self.rest), value) if self.rest else value


def past_convolution_of(graph: Graph, node: Node) -> PastConvolution | None:
    """The convolution with the whole past of which a node computes one point. The search adds nodes to the graph."""
    if not isinstance(node.op, (ops.Dot, ops.Reduce)) or node.outputs[0].dtype != "float32":
        return None
    op, at = node.op, None if isinstance(node.op, ops.Dot) else node.inputs[0]
    product = node if at is None else graph[at.source]
    is_product = isinstance(product.op, ops.Binary) and product.op.fn == "mul"
    if at is not None and (
        (isinstance(op, ops.Reduce) and op.fn != "sum") or not is_product or not at.is_own_point(product.domain)
    ):
        return None
    edges = product.inputs if at is None else [compose(edge, product.domain.steps, at.index) for edge in product.inputs]
    shapes = [type.shape for type in graph.input_types(product)]
    fresh = [chr(ord("a") + k) for k in range(product.outputs[0].rank + len(reduced(product.op)))]
    labels = fresh[: product.outputs[0].rank]
    each = operand_labels(product.op, shapes, product.outputs[0].shape, labels, fresh[len(labels) :])
    for axes in reduced(node.op):
        places = axes if at is None else axes * 2
        operands = [_operand(graph, node, *of) for of in zip(edges, places, each, strict=True)]
        left, right = operands
        if (
            left is None
            or right is None
            or left.is_reversed == right.is_reversed
            or left.step.bound_expr != right.step.bound_expr
        ):
            continue
        kept = [k for k in range(len(labels)) if at is None or k != axes[0]]
        sizes = tuple(product.outputs[0].shape[k] for k in kept)
        rest = dropped(op.axes, axes[0]) if isinstance(op, ops.Reduce) else ()
        of = PastConvolution(graph, node, (left, right), "".join(labels[k] for k in kept), sizes, rest)
        if not any(size.steps for size in sizes) and may_read_all_points(node.domain, of.moving):
            return of
    return None


def _operand(graph: Graph, node: Node, edge: Edge | None, axis: int, labels: tuple[str, ...]) -> Operand | None:
    """What an edge reads along a dimension, if that is a prefix or a suffix which moves with the node."""
    read = None if edge is None else range_of(graph, edge, axis, or_flipped=True)
    if edge is None or read is None or not is_scan(*read) or not read[1].steps or not read[1].steps <= set(node.domain.steps):
        return None
    step, index = read
    for kind in (Elements, FlippedElements):
        elements = kind(graph, node, step, index)
        element = elements.of(edge, axis)
        if element is not None and Point(step.expr) in element.index:
            is_suffix = not bool(index.start == 0)
            is_reversed = is_suffix != (kind is FlippedElements)
            return Operand(
                element, "".join(left_out(labels, axis)), step, index, is_suffix, is_reversed, frozenset(elements.reads)
            )
    return None
