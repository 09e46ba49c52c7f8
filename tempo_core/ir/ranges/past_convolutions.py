"""Sums of products in which one operand comes in reverse order: `y[t] = sum over s <= t of k[t - s] * x[s]`, for all points at once.

A range is a prefix of its step, or of the step in reverse order: then it is a suffix, and comes in reverse order. Of two prefixes, one in
reverse order, the products are those of a convolution with the whole past.
"""

from __future__ import annotations

from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.axes import dropped, left_out, operand_labels, reduced
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.past_sums import PAST_SUMS
from tempo_core.ir.ranges.lifted import MovingScan, all_elements, empty_is_neutral, everywhere, moving_scan
from tempo_core.ir.ranges.scans import take
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Library
from tempo_core.symbolic.expr import Expr, Symbol

NOMINAL_ROUNDS = 10  # the logarithm of a number of points


@dataclass(frozen=True)
class PastConvolution:
    """A node that computes one point of a convolution with the whole past.

    `labels` are those of the operands and of its value, as in `einsum`, before it reduces `rest`; `sizes` are those of that value.
    """

    graph: Graph
    node: Node
    operands: tuple[MovingScan, MovingScan]
    labels: str
    sizes: tuple[Expr, ...]
    rest: tuple[int, ...]

    @property
    def moving(self) -> frozenset[Symbol]:
        return frozenset().union(*(each.index.steps | {each.step} for each in self.operands))

    def value(self) -> Edge:
        """What a point takes from the sums for all points."""
        whole, step, index = everywhere(self.graph, self.node, self.moving), self.operands[0].step, self.operands[0].index
        type = TensorType(self.node.outputs[0].dtype, (step.bound_expr, *self.sizes))
        cost = 15 * NOMINAL_ROUNDS * ops.size(type), 8 * ops.size(type)
        op = ops.Udf(Library(PAST_SUMS, (("labels", self.labels),)), (type,), name="convolution", cost=cost)
        values = whole.add(op, *(_of_all_points(whole, each) for each in self.operands))
        point = Builder(self.graph, self.node, self.node.domain)
        value = empty_is_neutral(point, take(point, values, 0, step, index.length - 1), "sum", index)
        return point.add(ops.Reduce("sum", self.rest), value) if self.rest else value


def _of_all_points(build: Builder, scan: MovingScan) -> Edge:
    """The values at all points, of which a prefix is read, as the first dimension: a suffix is a prefix of the step in reverse order."""
    values = all_elements(build, scan.element, scan.step, 0)
    return values if scan.index.start == 0 else build.add(ops.Flip(0), values)


def past_convolution_of(graph: Graph, node: Node) -> PastConvolution | None:
    """The convolution with the whole past of which a node computes one point. The search adds nodes to the graph."""
    op, product = node.op, node
    if not isinstance(op, (ops.Dot, ops.Reduce)) or node.outputs[0].dtype != "float32":
        return None
    if isinstance(op, ops.Reduce):
        product = graph[node.inputs[0].source]
        is_product = isinstance(product.op, ops.Binary) and product.op.fn == "mul"
        if op.fn != "sum" or not is_product or not node.inputs[0].is_own_point(product.domain):
            return None
    shapes, result = [type.shape for type in graph.input_types(product)], product.outputs[0].shape
    fresh = [chr(ord("a") + k) for k in range(len(result) + len(reduced(product.op)))]
    labels = operand_labels(product.op, shapes, result, fresh[: len(result)], fresh[len(result) :])
    for axes in reduced(op):
        places = axes if isinstance(op, ops.Dot) else axes * 2
        left, right = (moving_scan(graph, node, edge, axis, True) for edge, axis in zip(product.inputs, places, strict=True))
        if left is None or right is None or not _is_convolution(left, right):
            continue
        kept = [k for k in range(len(result)) if isinstance(op, ops.Dot) or k != axes[0]]
        sizes = tuple(result[k] for k in kept)
        rest = dropped(op.axes, axes[0]) if isinstance(op, ops.Reduce) else ()
        of_each = ",".join("".join(left_out(each, axis)) for each, axis in zip(labels, places, strict=True))
        if not any(size.steps for size in sizes):
            return PastConvolution(graph, node, (left, right), f"{of_each}->{''.join(fresh[k] for k in kept)}", sizes, rest)
    return None


def _is_convolution(left: MovingScan, right: MovingScan) -> bool:
    """Whether one of two operands, as a prefix of the step or of the step in reverse order, comes in reverse order, and the other not."""
    is_reversed, other = (bool(each.index.start == 0) == each.is_flipped for each in (left, right))
    return is_reversed != other and bool(left.step.bound_expr == right.step.bound_expr)
