"""The terms of a sum over a range, as products of factors that vary with the reader only and of factors that vary with the point only.

`exp(x[0:t + 1] - m[t]) * v[0:t + 1] / z[t]` has the scale `1 / z[t]`, the element `v[s]`, and the kernel `exp(x[s] - m[t])`: a sum over it
can be carried on from one t to the next. All terms of a variance or of a softmax have this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import constant_op
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.ranges.elements import Elements, without
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Range, identity
from tempo_core.symbolic.expr import Expr


@dataclass(frozen=True)
class Term:
    """`scale[t] * element[s] * kernel(point[s] - centre[t])`, for a reader at t and the point s of its range; None stands for 1.

    `kernel`: "" (1), "difference", "square" or "exp". Where `guard[t]` holds, the kernel is 1 instead. All factors have one shape.
    """

    scale: Edge | None = None
    element: Edge | None = None
    kernel: str = ""
    point: Edge | None = None
    centre: Edge | None = None
    guard: Edge | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the kernel is all there is."""
        return self.scale is None and self.element is None


class Terms:
    """Finds the factors of terms. `elements` are the factors that vary with the point only."""

    def __init__(self, elements: Elements):
        self.elements, self.graph = elements, elements.graph
        self._terms: dict[tuple[int, int], Term | None] = {}

    def of_sum(self, node: Node, axes: Sequence[int]) -> Term | None:
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
            return self._of_exp(node, axis) if op.fn == "exp" else self._negated(self.of(node.inputs[0], axis), node, axis)
        if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub", "mul", "div"):
            return None
        left, right = self.of(node.inputs[0], axis), self.of(node.inputs[1], axis)
        if left is None or right is None:
            return None
        if op.fn == "mul":
            return self._product(left, right)
        if op.fn == "div":
            return self._quotient(left, right)
        return self._difference(left, self._negated(right, node, axis) if op.fn == "add" else right, node, axis)

    def _of_broadcast(self, node: Node, op: ops.Broadcast, axis: int) -> Term | None:
        shape, axes = (*op.shape[:axis], *op.shape[axis + 1 :]), without(op.axes, axis)
        if axis not in op.axes:
            return Term(scale=self._add(ops.Broadcast(shape, axes), node.inputs[0]))
        return self._repeated(self.of(node.inputs[0], op.axes.index(axis)), shape, axes)

    def _of_exp(self, node: Node, axis: int) -> Term | None:
        """`exp(x[s] - m[t])`; and, with the guard c, `exp(where(c[t], 0, x[s] - m[t]))`."""
        edge = node.inputs[0]
        source = self.graph[edge.source]
        if not isinstance(source.op, ops.Where) or not edge.is_own_point(source.domain):
            inner = self.of(edge, axis)
            if inner is not None and inner.kernel == "" and inner.element is None and inner.scale is not None:
                return Term(scale=self._add(ops.Unary("exp"), inner.scale))
            return None if inner is None or inner.kernel != "difference" or not inner.is_plain else replace(inner, kernel="exp")
        test, inner = self.of(source.inputs[0], axis), self.of(source.inputs[2], axis)
        if test is None or inner is None or test.element is not None or not self._is_zero(source.inputs[1]):
            return None
        return None if inner.kernel != "difference" or not inner.is_plain else replace(inner, kernel="exp", guard=test.scale)

    def _is_zero(self, edge: Edge) -> bool:
        node = self.graph[edge.source]
        while isinstance(node.op, ops.Broadcast):
            node = self.graph[node.inputs[0].source]
        return isinstance(node.op, ops.Constant) and not any(node.op.data)

    def _of_dot(self, node: Node, op: ops.Dot, axes: Sequence[int]) -> Term | None:
        if len(op.left_contract) != 1:
            return None
        left, right = self.of(node.inputs[0], axes[0]), self.of(node.inputs[1], axes[1])
        ranks = [self.graph.edge_rank(edge) for edge in node.inputs]
        batch, free = len(op.left_batch), len(op.left_free(ranks[0]))
        of_left = dict(zip((*op.left_batch, *op.left_free(ranks[0])), range(batch + free), strict=True))
        places = (*range(batch), *range(batch + free, node.outputs[0].rank))
        of_right = dict(zip((*op.right_batch, *op.right_free(ranks[1])), places, strict=True))
        kept = [[where[a] for a in range(rank) if a in where] for where, rank in ((of_left, ranks[0]), (of_right, ranks[1]))]
        if any(positions != sorted(positions) for positions in kept):
            return None
        shape = node.outputs[0].shape
        left, right = self._repeated(left, shape, tuple(kept[0])), self._repeated(right, shape, tuple(kept[1]))
        return None if left is None or right is None else self._product(left, right)

    def without_infinities(self, term: Term) -> Term:
        """The term without infinite exponents where its guard holds: gradients there are 0, and 0 times infinity is NaN."""
        if term.guard is None or term.centre is None or term.point is None:
            return term
        highest, lowest = (self._repeated_literal(value, term.point) for value in ("highest", "lowest"))
        point = self._add(ops.Where(), self._add(ops.Compare("eq"), term.point, highest), lowest, term.point)
        centre = self._add(ops.Where(), term.guard, self._repeated_literal("highest", term.centre), term.centre)
        return replace(term, point=point, centre=centre)

    def _repeated_literal(self, value: str, like: Edge) -> Edge:
        type = self.graph.edge_type(like)
        return self._add(ops.Broadcast(type.shape, ()), self._add(constant_op(type.dtype, value)))

    # -- algebra ------------------------------------------------------------------------------------------------------

    def _product(self, left: Term, right: Term) -> Term | None:
        scale, element = self._times(left.scale, right.scale), self._times(left.element, right.element)
        if left.kernel == "" or right.kernel == "":
            return replace(left if right.kernel == "" else right, scale=scale, element=element)
        same = (left.kernel, left.point, left.centre) == (right.kernel, right.point, right.centre)
        return Term(scale, element, "square", left.point, left.centre) if same and left.kernel == "difference" else None

    def _quotient(self, left: Term, right: Term) -> Term | None:
        if right.kernel != "":
            return None
        if right.scale is None:
            over = right.element
            element = None if left.element is None else self._add(ops.Binary("div"), left.element, over)  # type: ignore[arg-type]
            return None if element is None else replace(left, element=element)
        if right.element is not None:
            return None
        one = left.scale if left.scale is not None else self._constant(1, right.scale)
        return replace(left, scale=self._add(ops.Binary("div"), one, right.scale))

    def _difference(self, left: Term, right: Term | None, node: Node, axis: int) -> Term | None:
        """`x[s] - m[t]`, `m[t] - x[s]` or `x[s] - m[t] - n[t]`, where the factors stand alone."""
        if right is None:
            return None
        if left.kernel == "difference" and left.is_plain and right.kernel == "" and right.element is None:
            return replace(left, centre=self._add(ops.Binary("add"), left.centre, right.scale))  # type: ignore[arg-type]
        if left.kernel != "" or right.kernel != "":
            return None
        if left.scale is None and right.element is None:
            return Term(kernel="difference", point=left.element, centre=right.scale)
        if left.element is None and right.scale is None:
            return self._negated(Term(kernel="difference", point=right.element, centre=left.scale), node, axis)
        if left.element is None and right.element is None:
            return Term(scale=self._add(ops.Binary("sub"), left.scale, right.scale))  # type: ignore[arg-type]
        return None

    def _negated(self, term: Term | None, node: Node, axis: int) -> Term | None:
        if term is None:
            return None
        if term.scale is None and term.element is not None:
            return replace(term, element=self._add(ops.Unary("neg"), term.element))
        factor = term.scale if term.scale is not None else term.point
        assert factor is not None
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
        parts = (term.scale, term.element, term.point, term.centre, term.guard)
        wide = [None if part is None else self._add(ops.Broadcast(shape, axes), part) for part in parts]
        return Term(wide[0], wide[1], term.kernel, *wide[2:])

    def _constant(self, value: int, like: Edge) -> Edge:
        type = self.graph.edge_type(like)
        return self._add(ops.Broadcast(type.shape, ()), self._add(ops.Cast(type.dtype), self._add(ops.Eval(Expr.of(value)))))

    def _add(self, op: ops.Op, *operands: Edge) -> Edge:
        node = self.graph.add(op, operands, where=self.elements.like.where)
        return Edge(node.id, identity(node.domain))
