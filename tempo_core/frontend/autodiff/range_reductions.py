"""Reductions of ranges, in the forms that are differentiated: values of all points of a step, as `lift` computes them.

The rule of an op gives a contribution for each pair of a reader and a point that it reads. In the lifted form (`ir/ranges/lifted.py`), the
gradient is as short as the reduction. Reductions of elements are recurrences or plain sums here, so that their gradients are right also
where the elements depend on the results: then they are a part of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tempo_core.errors import GradientError
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import equal, full, where
from tempo_core.frontend.tensor import Tensor, apply, evaluate, of_node, view
from tempo_core.ir import ops
from tempo_core.ir.axes import dropped
from tempo_core.ir.dependence import ancestors
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.convolutions import convolution_of
from tempo_core.ir.ranges.elements import Elements, Reads, reduced_ranges
from tempo_core.ir.ranges.lifted import MovingScan, is_scan, lifting_of, picked
from tempo_core.ir.ranges.past_convolutions import past_convolution_of
from tempo_core.ir.ranges.step_blocks import block_of
from tempo_core.ir.types import is_float
from tempo_core.prices import pays_to_convolve, window_width, worth_scanning
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, step_order
from tempo_core.symbolic.expr import Expr, maximum, minimum
from tempo_core.symbolic.isl.inverse import invert
from tempo_core.symbolic.proof import provably_nonnegative

NEUTRAL = {"prod": 1.0, "max": -math.inf, "min": math.inf}  # by reducing function: its value for no elements, if that is not 0


def lifted(context: BaseContext, node: Node) -> Tensor | None:
    """The value of a node that reduces, or picks out of, a range, as a function of new nodes; None where the rule of its op is as good."""
    value = _of_ranges(context, node) if is_float(node.outputs[0].dtype) else None
    return None if value is None else apply(ops.Identity(), value, domain=node.domain)


def _of_ranges(context: BaseContext, node: Node) -> Tensor | None:
    for reads in reduced_ranges(context.graph, node):
        if reads.index.stride == 1 and reads.index.steps and reads.index.steps <= set(node.domain.steps):
            value = _of_range(context, node, reads)
            if value is not None:
                return value
    return _of_all_points(context, node, lambda graph: _convolved_or_picked(graph, node))


def _of_range(context: BaseContext, node: Node, reads: Reads) -> Tensor | None:
    graph, index, fn = context.graph, reads.index, _function(node.op)
    is_block = block_of(index, reads.step) is not None
    is_wide = is_scan(reads.step, index) and window_width(index, reads.step, node.domain) is None
    if not (is_block or is_wide) or _is_cheap_already(graph, node, reads):
        return None
    if isinstance(node.op, ops.Dot) and not worth_scanning(node.outputs[0], reads.element_types(graph, node)):
        return None
    if is_block and fn in ("max", "min") and node.domain.condition is not TRUE:
        return None  # not all points of a block have its extreme
    each = _searched(graph, lambda graph: _elements(graph, node, reads))
    if each is None or (is_block and fn in ("prod", "discounted")):
        return _of_all_points(context, node, lambda graph: _lifted(graph, node, reads))
    points = _Points(context, node, reads, fn, bool(index.start == 0))
    return points.of_blocks(each) if is_block else points.of_scans(each)


def _function(op: ops.Op) -> str:
    """The function of elements by which an op reduces them."""
    return op.fn if isinstance(op, ops.Reduce) else "discounted" if isinstance(op, ops.DiscountedSum) else "sum"


def _is_cheap_already(graph: Graph, node: Node, reads: Reads) -> bool:
    """Whether a node is the plain sum of a slice, whose readers are a range: their contributions are equal, so that nothing is spread."""
    (edge, *_) = node.inputs
    if not isinstance(node.op, ops.Reduce) or node.op.fn != "sum" or not edge.lengths:
        return False
    try:
        invert(node.domain, edge.index, graph[edge.source].domain)
    except GradientError:
        return False
    return True


def _searched(graph: Graph, search: Callable[[Graph], Edge | None]) -> Edge | None:
    """What a search gives. A search leaves nodes behind, so it is made in a copy first."""
    return None if search(graph.copy()) is None else search(graph)


def _of_all_points(context: BaseContext, node: Node, search: Callable[[Graph], Edge | None]) -> Tensor | None:
    """The lifted form that a search gives, unless its elements depend on the node: a loop has one point after the other."""
    trial = context.graph.copy()
    edge = search(trial)
    if edge is None or node.id in ancestors(trial, [edge.source]):
        return None
    edge = search(context.graph)
    assert edge is not None
    return view(context, edge)


def _elements(graph: Graph, node: Node, reads: Reads) -> Edge | None:
    """The elements that a node reduces. Equal extremes share the gradient, whatever dimension they are in: these keep the others."""
    elements = Elements(graph, node, reads.step, reads.index)
    if isinstance(node.op, ops.Reduce) and node.op.fn in ("max", "min"):
        return elements.of(node.inputs[0], reads.axes[0])
    return elements.of_reduced(node, reads)


def _lifted(graph: Graph, node: Node, reads: Reads) -> Edge | None:
    lifting = lifting_of(graph, node, reads, finite=True)
    return None if lifting is None else lifting.value()


def _convolved_or_picked(graph: Graph, node: Node) -> Edge | None:
    def is_wide(scan: MovingScan) -> bool:
        return window_width(scan.index, scan.step, node.domain) is None

    convolution = convolution_of(graph, node)
    if convolution is not None and pays_to_convolve(convolution.window.width):
        return convolution.value()
    past = past_convolution_of(graph, node)
    if past is not None and is_wide(past.operands[0]) and pays_to_convolve(past.operands[0].step.bound_expr):
        return past.value()
    pick = picked(graph, node)
    return pick[1] if pick is not None and is_wide(pick[0]) else None


@dataclass
class _Points:
    """The elements at all points of `reads.step`, and the reader's reads of their reductions by `fn`."""

    context: BaseContext
    node: Node
    reads: Reads
    fn: str
    is_prefix: bool

    def of_scans(self, each: Edge) -> Tensor:
        """The reduction of a prefix or suffix as the reader's read of the one that ends at the same point."""
        scans = {"sum": self._sums, "prod": self._products, "discounted": self._discounted}
        scan, index = scans.get(self.fn, self._extremes)(self._everywhere(each)), self.reads.index
        last = index.stop - 1 if self.is_prefix else index.start
        if provably_nonnegative(index.length - 1):
            return self._at(scan, last)
        value = self._at(scan, maximum(last, 0) if self.is_prefix else minimum(last, self.reads.step.bound_expr - 1))
        return where(evaluate(index.length >= 1), value, full(value.type.shape, NEUTRAL.get(self.fn, 0.0), value.dtype))

    def of_blocks(self, each: Edge) -> Tensor:
        """The sum or extreme of a block: that of each point's own block, of which all points have the same."""
        x, block = self._everywhere(each), slice(self.reads.index.start, self.reads.index.stop, 1)
        parts = (x,) if self.fn == "sum" else self._shares(x, of_node(self.context, self.node))
        sums = [self._at(part, block).sum(0) for part in parts]
        return sums[0] if len(sums) == 1 else sums[0] / sums[1]

    def _sums(self, x: Tensor) -> Tensor:
        return self._ranges(x).sum(0)

    def _products(self, x: Tensor) -> Tensor:
        return self._carried(x, lambda before: before * x)

    def _discounted(self, x: Tensor) -> Tensor:
        """A suffix carries on what it has, unless a gamma of 0 forgets it; an element of a prefix has the weight `gamma**position` in all of them."""
        gamma = self.node.op.gamma  # type: ignore[attr-defined]
        if self.is_prefix:
            return self._sums(x * gamma ** evaluate(self.reads.step.expr).astype(x.dtype))
        return self._carried(x, lambda before: x + gamma * before if gamma else x)

    def _extremes(self, x: Tensor) -> Tensor:
        """Equal extremes share the gradient: the extreme is the mean of those that are equal to it since it was reached."""
        y = apply(ops.Reduce(self.fn, (0, *(axis + 1 for axis in self._rest))), self._ranges(x))
        is_same = equal(y, self._before(y))
        sums, counts = (self._carried(part, partial(_since_reached, is_same, part)) for part in self._shares(x, y))
        return sums / counts

    def _shares(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """At each point the sum, and the number, of its elements that are the extreme y of a range."""
        shape = tuple(a for a in range(x.rank) if a not in self._rest)
        is_extreme = equal(x, apply(ops.Broadcast(x.type.shape, shape), y))
        parts = where(is_extreme, x, 0), is_extreme.astype(x.dtype)
        return (parts[0].sum(self._rest), parts[1].sum(self._rest)) if self._rest else parts

    @property
    def _rest(self) -> tuple[int, ...]:
        """The other dimensions that the node reduces."""
        assert isinstance(self.node.op, ops.Reduce)
        return dropped(self.node.op.axes, self.reads.axes[0])

    # -- points and ranges --------------------------------------------------------------------------------------------

    def _everywhere(self, each: Edge) -> Tensor:
        """The elements, as a new node over the step."""
        x = view(self.context, each)
        return apply(ops.Identity(), x, domain=Domain(step_order({*x.domain.steps, self.reads.step}, self.context.graph.order)))

    def _at(self, x: Tensor, index: Expr | slice) -> Tensor:
        return x[tuple(index if s == self.reads.step else s.expr for s in x.domain.steps)]

    def _ranges(self, x: Tensor) -> Tensor:
        """The prefix, or suffix, of `x` that ends at each point, as the first dimension."""
        s, bound = self.reads.step.expr, self.reads.step.bound_expr
        return self._at(x, slice(Expr.of(0), s + 1, 1) if self.is_prefix else slice(s, bound, 1))

    def _before(self, x: Tensor) -> Tensor:
        """`x` at the neighbour whose prefix, or suffix, is shorter by one element."""
        s = self.reads.step.expr
        return self._at(x, s - 1 if self.is_prefix else s + 1)

    def _carried(self, start: Tensor, onwards: Callable[[Tensor], Tensor]) -> Tensor:
        """The recurrence that begins with `start`, and goes on from the neighbour by `onwards`."""
        node = self.context.graph.add(ops.Merge(start.type), domain=Domain(start.domain.steps), where=self.node.where)
        h = of_node(self.context, node)
        value = onwards(self._before(h))
        self.context.graph.put(replace(node, inputs=(replace(value.edge, condition=value.domain.condition), start.edge)))
        return apply(ops.Identity(), h)  # what readers contribute is added up before the recurrence goes on


def _since_reached(is_same: Tensor, part: Tensor, before: Tensor) -> Tensor:
    """What is added up since an extreme was reached."""
    return part + where(is_same, before, 0)
