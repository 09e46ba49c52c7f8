"""The terms of a sum over a range, as products of factors that vary with the reader only and of factors that vary with the point only.

`exp(x[0:t + 1] - m[t]) * v[0:t + 1] / z[t]` has the scale `1 / z[t]`, the element `v[s]`, and the exponent `x[s] - m[t]`: a sum over it
can be carried on from one t to the next. All terms of a variance, a correlation or a softmax have this form, however they are written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.axes import dropped, left_out, places_of
from tempo_core.ir.builder import constant_op
from tempo_core.ir.graph import Edge, Node, constant_number
from tempo_core.ir.ranges.elements import Elements
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, identity
from tempo_core.symbolic.expr import Expr


@dataclass(frozen=True)
class Difference:
    """`point[s] - centre[t]`."""

    point: Edge
    centre: Edge


@dataclass(frozen=True)
class Term:
    """`scale[t] * element[s] * exp(exponent)`, or with the product of `differences` in place of the exponential; None stands for 1.

    Where `guard[t]` holds, the exponential is 1 instead. All factors have one shape.
    """

    scale: Edge | None = None
    element: Edge | None = None
    differences: tuple[Difference, ...] = ()
    exponent: Difference | None = None
    guard: Edge | None = None

    @property
    def factors(self) -> tuple[Edge, ...]:
        """The factors that vary with the point."""
        kernel = self.differences if self.exponent is None else (self.exponent,)
        return (*([] if self.element is None else [self.element]), *(each.point for each in kernel))

    @property
    def difference(self) -> Difference | None:
        """The only factor, if it is a difference."""
        is_plain = self.scale is None and self.element is None and self.exponent is None
        return self.differences[0] if is_plain and len(self.differences) == 1 else None

    @property
    def is_product(self) -> bool:
        """Whether it is a product of a scale and an element alone."""
        return not self.differences and self.exponent is None


MOST_DIFFERENCES = 4  # of a kurtosis


class Terms:
    """Finds the factors of terms. `elements` are the factors that vary with the point only."""

    def __init__(self, elements: Elements):
        self.elements, self.graph = elements, elements.graph
        self._terms: dict[tuple[int, int], Term | None] = {}

    def of_reduced(self, node: Node, axes: Sequence[int]) -> Term | None:
        """The term of a sum (`Reduce`) or contraction (`Dot`) over dimension `axes[k]` of operand k.

        Its factors have the shape of the operand without that dimension; of a contraction, the shape of the result.
        """
        if not is_float(node.outputs[0].dtype):
            return None
        if isinstance(node.op, ops.Dot):
            return self._of_dot(node, node.op, axes)
        is_sum = isinstance(node.op, ops.Reduce) and node.op.fn == "sum"
        return self.of(node.inputs[0], axes[0]) if is_sum else None

    def of(self, edge: Edge, axis: int) -> Term | None:
        """The factors of an edge's value along dimension `axis`."""
        element = self.elements.of(edge, axis)
        if element is not None:
            return Term(element=element)
        source = self.graph[edge.source]
        is_own_point = edge.is_own_point(source.domain) and source.domain.condition is TRUE
        if any(isinstance(index, Range) for index in edge.index) or not is_own_point:
            return None
        if (edge.source, axis) not in self._terms:
            self._terms[edge.source, axis] = self._of_node(source, axis)
        return self._terms[edge.source, axis]

    def _of_node(self, node: Node, axis: int) -> Term | None:
        op = node.op
        if isinstance(op, ops.Identity) and not op.stop_gradient:
            return self.of(node.inputs[0], axis)
        if isinstance(op, ops.Broadcast):
            return self._of_broadcast(node, op, axis)
        if isinstance(op, ops.Unary) and op.fn in ("exp", "neg"):
            return self._of_exp(node, axis) if op.fn == "exp" else self._negated(self.of(node.inputs[0], axis))
        if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub", "mul", "div", "pow"):
            return None
        left, right = self.of(node.inputs[0], axis), self.of(node.inputs[1], axis)
        if left is None or right is None:
            return None
        if op.fn == "pow":
            return self._power(left, constant_number(self.graph, node.inputs[1].source))
        if op.fn == "mul":
            return self._product(left, right)
        if op.fn == "div":
            return self._quotient(left, right)
        return self._difference(left, self._negated(right) if op.fn == "add" else right)

    def _of_broadcast(self, node: Node, op: ops.Broadcast, axis: int) -> Term | None:
        shape, axes = left_out(op.shape, axis), dropped(op.axes, axis)
        if axis not in op.axes:
            return Term(scale=self._add(ops.Broadcast(shape, axes), node.inputs[0]))
        return self._repeated(self.of(node.inputs[0], op.axes.index(axis)), shape, axes)

    def _of_exp(self, node: Node, axis: int) -> Term | None:
        """`exp(x[s] - m[t])`; and, with the guard c, `exp(where(c[t], 0, x[s] - m[t]))`."""
        edge = node.inputs[0]
        source = self.graph[edge.source]
        if not isinstance(source.op, ops.Where) or not edge.is_own_point(source.domain):
            inner = self.of(edge, axis)
            if inner is not None and inner.is_product and inner.element is None and inner.scale is not None:
                return Term(scale=self._add(ops.Unary("exp"), inner.scale))
            return None if inner is None or inner.difference is None else Term(exponent=inner.difference)
        test, inner = self.of(source.inputs[0], axis), self.of(source.inputs[2], axis)
        if test is None or inner is None or test.element is not None or not self._is_zero(source.inputs[1]):
            return None
        return None if inner.difference is None else Term(exponent=inner.difference, guard=test.scale)

    def _is_zero(self, edge: Edge) -> bool:
        node = self.graph[edge.source]
        while isinstance(node.op, ops.Broadcast):
            node = self.graph[node.inputs[0].source]
        return isinstance(node.op, ops.Constant) and not any(node.op.data)

    def _of_dot(self, node: Node, op: ops.Dot, axes: Sequence[int]) -> Term | None:
        if len(op.left_contract) != 1:
            return None
        left, right = self.of(node.inputs[0], axes[0]), self.of(node.inputs[1], axes[1])
        kept = [[to[a] for a in sorted(to)] for to in places_of(self.graph, node)]
        if any(positions != sorted(positions) for positions in kept):
            return None
        shape = node.outputs[0].shape
        left, right = self._repeated(left, shape, tuple(kept[0])), self._repeated(right, shape, tuple(kept[1]))
        return None if left is None or right is None else self._product(left, right)

    def without_infinities(self, term: Term) -> Term:
        """The term without infinite exponents where its guard holds: gradients there are 0, and 0 times infinity is NaN."""
        if term.guard is None or term.exponent is None:
            return term
        point, centre = term.exponent.point, term.exponent.centre
        highest, lowest = (self._repeated_literal(value, point) for value in ("highest", "lowest"))
        point = self._add(ops.Where(), self._add(ops.Compare("eq"), point, highest), lowest, point)
        centre = self._add(ops.Where(), term.guard, self._repeated_literal("highest", centre), centre)
        return replace(term, exponent=Difference(point, centre))

    def _repeated_literal(self, value: str, like: Edge) -> Edge:
        type = self.graph.edge_type(like)
        return self._add(ops.Broadcast(type.shape, ()), self._add(constant_op(type.dtype, value)))

    # -- algebra ------------------------------------------------------------------------------------------------------

    def _product(self, left: Term | None, right: Term) -> Term | None:
        if left is None:
            return None
        scale, element = self._times(left.scale, right.scale), self._times(left.element, right.element)
        if left.is_product or right.is_product:
            return replace(left if right.is_product else right, scale=scale, element=element)
        differences = (*left.differences, *right.differences)
        is_exponential = left.exponent is not None or right.exponent is not None
        return None if is_exponential or len(differences) > MOST_DIFFERENCES else Term(scale, element, differences)

    def _power(self, base: Term, exponent: float | None) -> Term | None:
        """`x ** 3` is `x * x * x`."""
        if exponent not in range(2, MOST_DIFFERENCES + 1):
            return None
        return functools.reduce(self._product, [base] * (int(exponent) - 1), base)  # type: ignore[arg-type]

    def _quotient(self, left: Term, right: Term) -> Term | None:
        if not right.is_product:
            return None
        if right.scale is None:
            one = left.element if left.element is not None else self._constant(1, right.element)  # type: ignore[arg-type]
            return replace(left, element=self._add(ops.Binary("div"), one, right.element))  # type: ignore[arg-type]
        if right.element is not None:
            return None
        one = left.scale if left.scale is not None else self._constant(1, right.scale)
        return replace(left, scale=self._add(ops.Binary("div"), one, right.scale))

    def _difference(self, left: Term, right: Term | None) -> Term | None:
        """`x[s] - m[t]`, `m[t] - x[s]` or `x[s] - m[t] - n[t]`, where the factors stand alone."""
        if right is None or not right.is_product:
            return None
        if left.difference is not None and right.element is None:
            centre = self._add(ops.Binary("add"), left.difference.centre, right.scale)  # type: ignore[arg-type]
            return Term(differences=(replace(left.difference, centre=centre),))
        if not left.is_product:
            return None
        if left.scale is None and right.element is None:
            return Term(differences=(Difference(left.element, right.scale),))  # type: ignore[arg-type]
        if left.element is None and right.scale is None:
            return self._negated(Term(differences=(Difference(right.element, left.scale),)))  # type: ignore[arg-type]
        if left.element is None and right.element is None:
            return Term(scale=self._add(ops.Binary("sub"), left.scale, right.scale))  # type: ignore[arg-type]
        return None

    def _negated(self, term: Term | None) -> Term | None:
        if term is None:
            return None
        if term.scale is None and term.element is not None:
            return replace(term, element=self._add(ops.Unary("neg"), term.element))
        factor = term.scale if term.scale is not None else term.factors[0]
        scale = self._constant(-1, factor) if term.scale is None else self._add(ops.Unary("neg"), term.scale)
        return replace(term, scale=scale)

    def _times(self, left: Edge | None, right: Edge | None) -> Edge | None:
        if left is None or right is None:
            return right if left is None else left
        return self._add(ops.Binary("mul"), left, right)

    def _repeated(self, term: Term | None, shape: tuple[Expr, ...], axes: tuple[int, ...]) -> Term | None:
        """The factors repeated to a shape: their dimension k becomes `axes[k]`."""
        if term is None:
            return None

        def wide(edge: Edge) -> Edge:
            return self._add(ops.Broadcast(shape, axes), edge)

        scale, element, guard = (None if e is None else wide(e) for e in (term.scale, term.element, term.guard))
        differences = tuple(Difference(wide(each.point), wide(each.centre)) for each in term.differences)
        exponent = None if term.exponent is None else Difference(wide(term.exponent.point), wide(term.exponent.centre))
        return Term(scale, element, differences, exponent, guard)

    def _constant(self, value: int, like: Edge) -> Edge:
        type = self.graph.edge_type(like)
        return self._add(ops.Broadcast(type.shape, ()), self._add(ops.Cast(type.dtype), self._add(ops.Eval(Expr.of(value)))))

    def _add(self, op: ops.Op, *operands: Edge) -> Edge:
        node = self.graph.add(op, operands, where=self.elements.like.where)
        return Edge(node.id, identity(node.domain))
