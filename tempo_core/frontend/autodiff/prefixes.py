"""Gradients of reductions over prefixes and suffixes, `y[t] = reduce(f(x[0:t + 1]))`, in time linear in the steps.

A point s is read by all t >= s (of suffixes, by all t <= s). What these readers contribute is carried on from one point to the next: by
sums of suffixes, or by a recurrence. So no contribution is spread over all pairs (t, s), and the gradient is right also where x depends on
y: then the recurrence is a part of the loop. Compiled, recurrences that are not part of a loop become scans (`passes/ranges/recurrences.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tempo_core.frontend.autodiff.picks import contributions_of_picks
from tempo_core.frontend.autodiff.prefix_ends import parts_of, read_of_prefixes
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import cast, equal, evaluate, exp, isfinite, total, where, zeros
from tempo_core.frontend.tensor import Tensor, apply, of_node, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ranges.elements import Reads, reduced_ranges, without
from tempo_core.ir.ranges.terms import Term
from tempo_core.prices import worth_scanning
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr

Contributions: TypeAlias = "list[tuple[Tensor, Tensor]]"  # (a value that the reduction is a function of, its gradient)


def contributions_to_points(context: BaseContext, node: Node, g: Tensor) -> Contributions | None:
    """The contributions of a reduction with the gradient `g`, or of a pick by position, if its operand is a prefix or suffix; else None.

    They are for new nodes: the elements of the range, each at its own point, and the other factors of the reduced terms.
    """
    is_everywhere = node.domain.condition is TRUE
    if isinstance(node.op, ops.Gather):
        return contributions_of_picks(context, node, node.op, g) if is_everywhere and g.domain.condition is TRUE else None
    for reads in reduced_ranges(context.graph, node):
        t, index = reads.step.expr, reads.index
        is_prefix, is_suffix = index.start == 0 and index.stop == t + 1, index.start == t and index.stop == reads.step.bound_expr
        if not is_everywhere or index.stride != 1 or reads.step not in node.domain or not (is_prefix or is_suffix):
            value = read_of_prefixes(context, node, reads)
            if value is not None:
                return [(value, g)]
        elif _found(context.graph.copy(), node, reads) is not None:  # a search leaves nodes behind: search in a copy first
            return _Points(context, node, reads, bool(is_prefix)).contributions(g, _found(context.graph, node, reads))
    return None


def _found(graph: Graph, node: Node, reads: Reads) -> Edge | Term | None:
    """The elements that a node reduces, or the factors of the terms that it sums; None if neither says it all, or nothing is gained."""
    if isinstance(node.op, ops.Dot) and not worth_scanning(node.outputs[0], reads.element_types(graph, node)):
        return None
    is_slice = isinstance(node.op, ops.Reduce) and node.op.fn == "sum" and any(isinstance(i, Range) for i in node.inputs[0].index)
    parts = parts_of(graph, node, reads)
    return (
        None if is_slice and isinstance(parts, Edge) else parts
    )  # contributions to the plain sum of a slice are equal: nothing is spread


@dataclass
class _Points:
    """The points of `reads.step`, and the readers of each of them: the later points (of a prefix), or the earlier ones."""

    context: BaseContext
    node: Node
    reads: Reads
    is_prefix: bool

    def contributions(self, g: Tensor, found: Edge | Term | None) -> Contributions:
        g = self.everywhere(g) if g.domain.condition is TRUE else self._branches(g, self.everywhere(zeros(g.type.shape, g.dtype)))
        if isinstance(found, Edge):
            element = self.everywhere(view(self.context, found))
            return [(element, self._to_element(g, element))]
        assert found is not None
        op = self.node.op
        if isinstance(op, ops.Reduce) and len(op.axes) > 1:
            g = self._spread(g, without(op.axes, self.reads.axes[0]))
        return self._to_factors(g, found)

    # -- reductions of elements ---------------------------------------------------------------------------------------

    def _to_element(self, g: Tensor, x: Tensor) -> Tensor:
        op, y = self.node.op, of_node(self.context, self.node)
        if isinstance(op, ops.DiscountedSum):
            if self.is_prefix:  # element s has the weight gamma**s, whoever reads it
                return self.of_readers(g) * self.everywhere(op.gamma ** cast(evaluate(self.reads.step.expr), g.dtype))
            return self.carried(g, lambda later: op.gamma * later)
        if isinstance(op, ops.Reduce) and op.fn in ("max", "min"):
            return self._to_extreme(g, x, y, without(op.axes, self.reads.axes[0]))
        if isinstance(op, ops.Reduce) and op.fn == "prod":
            others = self.carried(g, lambda later: self.later(x) * later)  # of the points after this one, and g
            before = self._earlier_or_one(y)
            return where(equal(others, 0), 0, before * others)
        return self.of_readers(g)

    def _to_extreme(self, g: Tensor, x: Tensor, y: Tensor, rest: tuple[int, ...]) -> Tensor:
        """Equal extremes share the gradient: of each reader as many as are equal up to it, since the extreme was reached."""
        is_extreme = cast(equal(x, self._spread_like(y, x, rest)), g.dtype)
        here = total(is_extreme, rest) if rest else is_extreme
        count = self.carried(here, lambda earlier: where(equal(y, self.earlier(y)), earlier, 0), towards_readers=True)
        shares = self.carried(g / count, lambda later: where(equal(y, self.later(y)), later, 0))
        return self._spread_like(shares, x, rest) * is_extreme

    def _earlier_or_one(self, y: Tensor) -> Tensor:
        return self._branches(self.earlier(y), apply(ops.Identity(), zeros(y.type.shape, y.dtype) + 1, domain=self.domain))

    # -- sums of terms ------------------------------------------------------------------------------------------------

    def _to_factors(self, g: Tensor, term: Term) -> Contributions:
        scale, element, point, centre = (
            None if e is None else self.everywhere(view(self.context, e))
            for e in (term.scale, term.element, term.point, term.centre)
        )
        guard = None if term.guard is None else self.everywhere(view(self.context, term.guard))
        w = g if scale is None else g * scale
        kernels = {"": self._plain, "exp": self._exponentials, "difference": self._differences, "square": self._squares}
        pairs, kernel_sum = kernels[term.kernel](w if guard is None else where(guard, 0, w), element, point, centre, guard)
        result = [(x, gradient) for x, gradient in pairs if x is not None]
        if guard is not None:  # the kernel is 1 there
            kernel_sum = where(guard, self._sum_of(element, g), kernel_sum)
            if element is not None:
                result.append((element, self.of_readers(where(guard, w, 0))))
        if scale is not None:
            result.append((scale, g * kernel_sum))
        return result

    def _plain(self, w: Tensor, element: _Factor, x: _Factor, m: _Factor, guard: _Factor) -> _Kernel:
        return [(element, self.of_readers(w))], self._sum_of(element, w)

    def _exponentials(self, w: Tensor, element: _Factor, x: _Factor, m: _Factor, guard: _Factor) -> _Kernel:
        """With the least m of all readers of a point, exponents are never greater than that of its own greatest contribution."""
        assert x is not None and m is not None
        of_readers = m if guard is None else where(guard, math.inf, m)  # readers with another kernel do not count
        least = self.in_readers(of_readers).min(0)
        contributions = where(isfinite(of_readers), w * exp(where(isfinite(of_readers), least - of_readers, 0)), 0)
        sums = self.carried(
            contributions, lambda later: exp(where(isfinite(self.later(least)), least - self.later(least), 0)) * later
        )
        is_finite = isfinite(least)
        to_element = where(is_finite, exp(where(is_finite, x - least, 0)) * sums, 0)
        terms = exp(self._distances(x, m))
        kernel_sum = total(terms if element is None else terms * self.in_range(element), 0)
        to_point = to_element if element is None else to_element * element
        to_centre = -w * kernel_sum if guard is None else where(guard, 0, -w * kernel_sum)
        return [(element, to_element), (x, to_point), (m, to_centre)], kernel_sum

    def _differences(self, w: Tensor, element: _Factor, x: _Factor, m: _Factor, guard: _Factor) -> _Kernel:
        assert x is not None and m is not None
        readers = self.of_readers(w)
        to_point = readers if element is None else readers * element
        terms = self._distances(x, m)
        terms = terms if element is None else terms * self.in_range(element)
        kernel_sum = total(terms, 0)
        return [(element, self._weighted_distances(w, x, m)), (x, to_point), (m, -w * self._sum_of(element, w))], kernel_sum

    def _squares(self, w: Tensor, element: _Factor, x: _Factor, m: _Factor, guard: _Factor) -> _Kernel:
        assert x is not None and m is not None and element is None
        distances = self._distances(x, m)
        to_point = 2 * self._weighted_distances(w, x, m)
        return [(x, to_point), (m, -2 * w * total(distances, 0))], total(distances * distances, 0)

    def _distances(self, x: Tensor, m: Tensor) -> Tensor:
        return self.in_range(x) - self._spread(m, (0,), like=self.in_range(x))

    def _weighted_distances(self, w: Tensor, x: Tensor, m: Tensor) -> Tensor:
        """`sum(w[t] * (x[s] - m[t]))` over the readers t of s, by the small distances between neighbours of m."""
        weights = self.of_readers(w)
        moved = self.carried(zeros(w.type.shape, w.dtype), lambda later: later + (m - self.later(m)) * self.later(weights))
        return (x - m) * weights + moved

    def _sum_of(self, element: Tensor | None, like: Tensor) -> Tensor:
        ones = apply(ops.Identity(), zeros(like.type.shape, like.dtype) + 1, domain=self.domain)
        return total(self.in_range(ones if element is None else element), 0)

    # -- points and readers -------------------------------------------------------------------------------------------

    @property
    def domain(self) -> Domain:
        return Domain(self.node.domain.steps)

    def everywhere(self, x: Tensor) -> Tensor:
        """`x` as a new node over the domain of the reduction."""
        return apply(ops.Identity(), x, domain=self.domain)

    def _at(self, x: Tensor, index: Expr | slice) -> Tensor:
        return x[tuple(index if s == self.reads.step else s.expr for s in x.domain.steps)]

    def later(self, x: Tensor) -> Tensor:
        """`x` at the neighbour among the readers."""
        t = self.reads.step.expr
        return self._at(x, t + 1 if self.is_prefix else t - 1)

    def earlier(self, x: Tensor) -> Tensor:
        """`x` at the other neighbour."""
        t = self.reads.step.expr
        return self._at(x, t - 1 if self.is_prefix else t + 1)

    def in_range(self, x: Tensor) -> Tensor:
        """`x` at the points that a reader reads."""
        return self._at(x, slice(self.reads.index.start, self.reads.index.stop, 1))

    def in_readers(self, x: Tensor) -> Tensor:
        """`x` at the readers of a point."""
        t, bound = self.reads.step.expr, self.reads.step.bound_expr
        return self._at(x, slice(t, bound, 1) if self.is_prefix else slice(Expr.of(0), t + 1, 1))

    def of_readers(self, x: Tensor) -> Tensor:
        """The sum of `x` over the readers of each point."""
        return total(self.in_readers(x), 0)

    def carried(self, start: Tensor, onwards: Callable[[Tensor], Tensor], towards_readers: bool = False) -> Tensor:
        """The recurrence `h = start + onwards(h of the neighbour among the readers)`; `towards_readers`, of the other neighbour."""
        start = self.everywhere(start)
        node = self.context.graph.add(ops.Merge(start.type), domain=self.domain, where=start.node.where)
        h = of_node(self.context, node)
        value = start + onwards(self.earlier(h) if towards_readers else self.later(h))
        self.context.graph.put(replace(node, inputs=(replace(value.edge, condition=value.domain.condition), start.edge)))
        return h

    def _branches(self, value: Tensor, otherwise: Tensor) -> Tensor:
        """`value` at the points where it exists, else `otherwise`."""
        node = self.context.graph.add(ops.Merge(otherwise.type), domain=self.domain, where=otherwise.node.where)
        value = apply(ops.Identity(), value)
        self.context.graph.put(replace(node, inputs=(replace(value.edge, condition=value.domain.condition), otherwise.edge)))
        return of_node(self.context, node)

    def _spread_like(self, x: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
        return self._spread(x, axes, like) if axes else x

    def _spread(self, x: Tensor, axes: tuple[int, ...], like: Tensor | None = None) -> Tensor:
        """`x`, which lacks `axes`, repeated along them: to the shape of `like`, or of the factors."""
        shape = like.type.shape if like is not None else self.reads.element_types(self.context.graph, self.node)[0].shape
        return apply(ops.Broadcast(tuple(shape), tuple(a for a in range(len(shape)) if a not in axes)), x)


_Factor: TypeAlias = "Tensor | None"
_Kernel: TypeAlias = (
    "tuple[list[tuple[Tensor | None, Tensor]], Tensor]"  # contributions to the factors, and the sum of kernel and element
)
