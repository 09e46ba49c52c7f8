"""Reductions of prefixes and suffixes that end elsewhere than at their reader, `y[t] = reduce(x[0:t])`, for their gradients.

With `p[s] = reduce(x[0:s + 1])`, the prefix that ends at each point, y[t] is `p[t - 1]`. The gradient of such a read goes back to the
points of p, and from there to x by the rules of `prefixes.py`. Sums whose terms also depend on the reader (`ir/ranges/terms.py`) become functions
of such reads and of the reader's own values. So several readers may read one prefix, in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tempo_core.errors import GradientError
from tempo_core.frontend.autodiff.window_gradients import window_width
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import cast, evaluate, exp, full, isfinite, stop_gradient, total, where
from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Elements, Reads, without
from tempo_core.ir.ranges.terms import Term, Terms
from tempo_core.ir.types import is_float
from tempo_core.prices import worth_scanning
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range, step_order
from tempo_core.symbolic.expr import Expr, maximum, minimum
from tempo_core.symbolic.isl.inverse import invert
from tempo_core.symbolic.proof import provably_nonnegative

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}  # by reducing function: its value for no elements


def read_of_prefixes(context: BaseContext, node: Node, reads: Reads) -> Tensor | None:
    """The value of a reduction as a function of all prefixes, or suffixes, of its elements; None if there is no such function."""
    index, graph = reads.index, context.graph
    if index.stride != 1 or not index.steps or not index.steps <= set(node.domain.steps):
        return None
    if (index.start != 0 and index.stop != reads.step.bound_expr) or window_width(index, reads.step, node.domain) is not None:
        return None
    if (
        not is_float(node.outputs[0].dtype)
        or _is_cheap_already(graph, node, reads)
        or parts_of(graph.copy(), node, reads) is None
    ):
        return None
    prefixes = _Prefixes(context, node, reads, bool(index.start == 0))
    value = prefixes.value(parts_of(graph, node, reads))
    return value if prefixes.are_everywhere else None


def _is_cheap_already(graph: Graph, node: Node, reads: Reads) -> bool:
    """Whether a reduction has another short gradient, or its elements are too large to be kept."""
    if isinstance(node.op, ops.Dot):
        return not worth_scanning(node.outputs[0], reads.element_types(graph, node))
    if isinstance(node.op, ops.DiscountedSum):
        return False
    if not isinstance(node.op, ops.Reduce) or node.op.fn not in NEUTRAL:
        return True
    (edge,) = node.inputs
    if node.op.fn != "sum" or not any(isinstance(i, Range) for i in edge.index):
        return False
    try:  # the contributions to the plain sum of a slice are equal: they are summed over the readers, if these are a range
        invert(node.domain, edge.index, graph[edge.source].domain)
    except GradientError:
        return False
    return True


def parts_of(graph: Graph, node: Node, reads: Reads) -> Edge | Term | None:
    """The elements that a node reduces, or the factors of the terms that it sums."""
    elements = Elements(graph, node, reads.step, reads.index)
    if isinstance(node.op, ops.Reduce) and node.op.fn in ("max", "min"):
        return elements.of(node.inputs[0], reads.axes[0])  # equal extremes share the gradient, whatever dimension they are in
    each = elements.of_reduced(node, reads)
    return Terms(elements).of_sum(node, reads.axes) if each is None else each


@dataclass
class _Prefixes:
    """Reductions of all prefixes, or suffixes, along `reads.step`, and the reader's reads of them."""

    context: BaseContext
    node: Node
    reads: Reads
    is_prefix: bool
    reductions: list[Tensor] = field(default_factory=list)

    @property
    def are_everywhere(self) -> bool:
        """Whether all these prefixes exist."""
        return all(reduction.domain.condition is TRUE for reduction in self.reductions)

    def value(self, parts: Edge | Term | None) -> Tensor:
        """The reduction's value at each of its points."""
        op = self.node.op
        if isinstance(parts, Edge) and isinstance(op, ops.DiscountedSum):
            value = self._read(self._kept(apply(ops.DiscountedSum(0, op.gamma), self._range(self._points(parts)))))
        elif isinstance(parts, Edge):
            fn = op.fn if isinstance(op, ops.Reduce) else "sum"
            rest = without(op.axes, self.reads.axes[0]) if fn in ("max", "min") and isinstance(op, ops.Reduce) else ()
            value = self._read(self._reduced(fn, self._range(self._points(parts)), rest), NEUTRAL[fn])
        else:
            assert parts is not None
            value = self._sum(parts)
            rest = without(op.axes, self.reads.axes[0]) if isinstance(op, ops.Reduce) else ()
            value = total(value, rest) if rest else value
        return apply(ops.Identity(), value, domain=self.node.domain)

    # -- sums of terms: see `passes/ranges/sums.py` --------------------------------------------------------------------------

    def _sum(self, term: Term) -> Tensor:
        scale, centre, guard = (None if e is None else view(self.context, e) for e in (term.scale, term.centre, term.guard))
        element, point = (None if e is None else self._points(e) for e in (term.element, term.point))
        if term.kernel == "":
            value = self._weights(element, self.node.outputs[0].shape if scale is None else scale.type.shape)
        else:
            assert point is not None and centre is not None
            kernels = {"exp": self._exponentials, "difference": self._differences, "square": self._squares}
            value = kernels[term.kernel](element, point, centre)
            if guard is not None:
                value = where(guard, self._weights(element, centre.type.shape), value)
        return value if scale is None else scale * value

    def _weights(self, element: Tensor | None, shape: tuple[Expr, ...]) -> Tensor:
        """The sum of the elements; without elements, the number of points."""
        if element is not None:
            return self._read(self._reduced("sum", self._range(element)))
        count = cast(evaluate(self.reads.index.stop - self.reads.index.start), self.node.outputs[0].dtype)
        return apply(ops.Broadcast(tuple(shape), ()), count)

    def _exponentials(self, element: Tensor | None, x: Tensor, m: Tensor) -> Tensor:
        """With the greatest x of the prefix in place of m, which takes its place again at the end."""
        greatest = self._reduced("max", self._range(stop_gradient(x)))
        shift = where(isfinite(greatest), greatest, 0)
        terms = exp(self._range(x) - self._spread(shift))
        sums = self._reduced("sum", terms if element is None else terms * self._range(element))
        return self._read(sums) * exp(self._read(shift) - m)

    def _differences(self, element: Tensor | None, x: Tensor, m: Tensor) -> Tensor:
        """As distances from the first x."""
        distances, origin = self._from_the_first(x)
        sums = self._reduced("sum", self._range(distances if element is None else distances * element))
        return self._read(sums) - (m - origin) * self._weights(element, m.type.shape)

    def _squares(self, element: Tensor | None, x: Tensor, m: Tensor) -> Tensor:
        """The squares about the mean of the prefix, and the distance of that mean from m.

        The squares are taken about a constant c that is equal to the mean: `sum((x - c)**2) - n * (mean - c)**2` is the same for every c, so
        that gradients of all orders need none of c.
        """
        distances, origin = self._from_the_first(x)
        s, bound = self.reads.step.expr, self.reads.step.bound_expr
        length = cast(evaluate(s + 1 if self.is_prefix else bound - s), x.dtype)
        means = self._reduced("sum", self._range(distances)) / length
        about = stop_gradient(means)
        offsets, off_the_mean = self._range(distances) - self._spread(about), means - about
        squares = self._read(self._reduced("sum", offsets * offsets) - length * off_the_mean * off_the_mean)
        off = self._read(means) - (m - origin)
        return squares + self._weights(None, m.type.shape) * (off * off)

    def _from_the_first(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x minus its first value, or its last one for suffixes. If that is not finite, 0 takes its place."""
        first = stop_gradient(self._at(x, Expr.of(0) if self.is_prefix else self.reads.step.bound_expr - 1))
        first = where(isfinite(first), first, 0)
        return x - first, first

    # -- points and prefixes ------------------------------------------------------------------------------------------

    def _points(self, edge: Edge) -> Tensor:
        """A factor at all points of the step."""
        value = view(self.context, edge)
        steps = step_order({*value.domain.steps, self.reads.step}, self.context.graph.order)
        return apply(ops.Identity(), value, domain=Domain(steps, value.domain.condition))

    def _at(self, x: Tensor, index: Expr | slice) -> Tensor:
        return x[tuple(index if s == self.reads.step else s.expr for s in x.domain.steps)]

    def _range(self, x: Tensor) -> Tensor:
        """The prefix, or suffix, of `x` that ends at each point, as the first dimension."""
        s, bound = self.reads.step.expr, self.reads.step.bound_expr
        return self._at(x, slice(Expr.of(0), s + 1, 1) if self.is_prefix else slice(s, bound, 1))

    def _spread(self, x: Tensor) -> Tensor:
        """`x`, a value of each prefix, repeated along the prefix."""
        s, bound = self.reads.step.expr, self.reads.step.bound_expr
        shape = (s + 1 if self.is_prefix else bound - s, *x.type.shape)
        return apply(ops.Broadcast(shape, tuple(range(1, len(shape)))), x)

    def _reduced(self, fn: str, x: Tensor, rest: tuple[int, ...] = ()) -> Tensor:
        """Each prefix, reduced along itself and the dimensions `rest` of its elements."""
        return self._kept(apply(ops.Reduce(fn, (0, *(axis + 1 for axis in rest))), x))

    def _kept(self, reduction: Tensor) -> Tensor:
        self.reductions.append(reduction)
        return reduction

    def _read(self, x: Tensor, neutral: float = 0.0) -> Tensor:
        """The value of the reader's own prefix, or of a prefix without elements."""
        index, bound = self.reads.index, self.reads.step.bound_expr
        if provably_nonnegative(index.stop - index.start - 1):
            return self._at(x, index.stop - 1 if self.is_prefix else index.start)
        value = self._at(x, maximum(index.stop - 1, 0) if self.is_prefix else minimum(index.start, bound - 1))
        return where(evaluate(index.stop - index.start >= 1), value, full(value.shape, neutral, value.dtype))
