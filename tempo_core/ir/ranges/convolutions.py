"""Sums over a window with fixed weights: `y[t] = sum over k of x[t + first + k] * w[k]`, at all points t, is a convolution of x and w."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.ir import ops
from tempo_core.ir.axes import left_out, operand_labels, reduced, with_leading
from tempo_core.ir.builder import Builder, repeated
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Along, Elements, range_of
from tempo_core.ir.ranges.lifted import all_elements, everywhere
from tempo_core.ir.ranges.scans import take
from tempo_core.ir.ranges.window_reductions import Window, window_of
from tempo_core.symbolic.domain import Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum


class _Weights(Along[Edge]):
    """The weights of a whole window, as the first dimension: at the ends of the step, a reader takes those of the points that exist."""

    def __init__(self, graph: Graph, like: Node, step: Symbol, span: Range, window: Window):
        super().__init__(graph, step, span)
        self.build, self.width = everywhere(graph, like, frozenset({step})), window.width
        self.starts = span.start - step.expr - window.first, maximum(-step.expr - window.first, 0)

    def of(self, edge: Edge, axis: int) -> Edge | None:
        is_whole = self.graph.edge_type(edge).shape[axis] == self.width and not self.moves(edge.steps)
        order = (axis, *left_out(tuple(range(self.graph.edge_rank(edge))), axis))
        return self.build.permuted(edge, order) if is_whole else super().of(edge, axis)

    def of_range(self, edge: Edge, place: int) -> None:
        return None

    def position(self, counter: Node) -> None:
        return None

    def at_all_positions(self, edge: Edge) -> Edge | None:
        return None if self.moves(edge.steps) else repeated(edge, (self.width, *self.graph.edge_type(edge).shape), self.build)

    def computed(self, node: Node, op: ops.Op, operands: Sequence[Edge]) -> Edge:
        return self.build.add(with_leading(op, self.width), *operands)

    def along_its_axis(self, node: Node, op: ops.Op, axis: int) -> Edge | None:
        is_cut = (
            isinstance(op, ops.Slice) and op.stride == 1 and op.stop - op.start == self.span.length and op.start in self.starts
        )
        return self.of(node.inputs[0], axis) if is_cut else None


@dataclass(frozen=True)
class Convolution:
    """A contraction of a window of `step` with weights that do not vary with the step.

    `element` is the window's operand at a point of the step, `kernel` all weights along its first dimension. The other dimensions of both
    have `labels`: the numbers of those of the node's value, and greater ones for those that it contracts.
    """

    graph: Graph
    node: Node
    step: Symbol
    element: Edge
    kernel: Edge
    labels: tuple[tuple[int, ...], tuple[int, ...]]
    sources: frozenset[int]
    window: Window

    def value(self) -> Edge:
        """What a point takes from the results for all points."""
        build, (of_x, of_kernel), window = everywhere(self.graph, self.node, frozenset({self.step})), self.labels, self.window
        x, kernel = all_elements(build, self.element, self.step, 0), self.kernel
        free, features = (tuple(label for label in each if label < self.node.outputs[0].rank) for each in self.labels)
        channels = tuple(label for label in of_x if label not in free)
        x = build.permuted(x, [*(of_x.index(k) + 1 for k in free), 0, *(of_x.index(k) + 1 for k in channels)])
        kernel = build.permuted(kernel, [0, *(of_kernel.index(k) + 1 for k in (*channels, *features))])
        sizes, outputs = build.type(x).shape[: len(free)], build.type(kernel).shape[1 + len(channels) :]
        depth = ops.product(build.type(x).shape[len(free) + 1 :])
        x = build.add(ops.Reshape((*sizes, self.step.bound_expr, depth)), x)
        kernel = build.add(ops.Reshape((window.width, depth, ops.product(outputs))), kernel)
        conv = ops.Conv((1,), (-window.first,), (window.width - 1 + window.first,), (1,), (1,), Expr.of(1))
        results = build.add(ops.Reshape((*sizes, self.step.bound_expr, *outputs)), build.add(conv, x, kernel))
        dimensions = [*free, -1, *features]  # -1 is the step
        results = build.permuted(results, [dimensions.index(label) for label in sorted(dimensions)])
        return take(Builder(self.graph, self.node, self.node.domain), results, 0, self.step, self.step.expr)


def convolution_of(graph: Graph, node: Node) -> Convolution | None:
    """The convolution that a node computes one point of; None if it contracts no window with fixed weights. The search adds nodes."""
    if not isinstance(node.op, ops.Dot) or node.op.left_batch:
        return None
    shapes, result = [type.shape for type in graph.input_types(node)], node.outputs[0].shape
    pairs, rank = reduced(node.op), len(result)
    labels = operand_labels(node.op, shapes, result, range(rank), range(rank, rank + len(pairs)))
    for axes in pairs:
        for slot in range(2):
            read = range_of(graph, node.inputs[slot], axes[slot])
            window = None if read is None else window_of(read[1], read[0])
            if (
                read is None
                or window is None
                or read[0] not in node.domain
                or window.low != 0
                or window.high != read[0].bound_expr
            ):
                continue
            elements = Elements(graph, node, *read)
            x = elements.of(node.inputs[slot], axes[slot])
            kernel = _Weights(graph, node, *read, window).of(node.inputs[1 - slot], axes[1 - slot])
            if x is None or kernel is None or not any(read[0] in at.steps for at in x.index):
                continue
            if any(size.steps for edge in (x, kernel) for size in graph.edge_type(edge).shape):
                continue
            of_x, of_kernel = (left_out(labels[each], axes[each]) for each in (slot, 1 - slot))
            sources = frozenset({*elements.reads, kernel.source})
            return Convolution(graph, node, read[0], x, kernel, (of_x, of_kernel), sources, window)
    return None
