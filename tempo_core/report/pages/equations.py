"""The equation of a tensor: its operations up to the next tensors with names.

`w[0] = tp.ones((4,))` and `w[i + 1] = w - 0.01 * w.grad` give `w[0] = 1` and `w[i + 1] = w[i] - 0.01 * (∂loss / ∂w[i])`. What only changes the
shape or the dtype is left out, so a formula is for reading: `program.text("source")` is the exact graph.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.names.naming import kind_of
from tempo_core.report.pages.formulas import DOTS, Formula, number, operation, symbolic
from tempo_core.symbolic.condition import TRUE, Bool, Comparison
from tempo_core.symbolic.domain import Domain, Index, Point, Range, identity, is_own_point
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.symbolic.proof import unless_obvious

SHORT = 4  # numbers of an array
MOST = 24  # operations in a formula; dots stand for the others
At = Mapping[Symbol, IntoExpr]  # the points of steps, in the steps of the whole formula
Slopes = Mapping[int, tuple[str, str]]  # by the node of a gradient: the names of the differentiated tensor and of the leaf
_PLAIN = (ops.Identity, ops.Cast, ops.Broadcast, ops.Reshape)  # the operand is shown instead
_SHORT = {"minimum": "min", "maximum": "max"}


def equation(graph: Graph, edge: Edge, slopes: Slopes) -> Formula:
    """What computes the tensor that `edge` reads: for a recurrence one equation a branch. An input is only its name."""
    writer, node = _Writer(graph, slopes), graph[edge.source]
    if isinstance(node.op, ops.Merge) and node.inputs:
        return Formula(ast.Module([writer.branch(node, branch) for branch in node.inputs], []))
    left, right = writer.named(node, edge.output, identity(node.domain)), writer.definition(node, edge.output, {})
    is_defined = left is not None and ast.unparse(left) != ast.unparse(right)
    return Formula(_equation(left, right) if left is not None and is_defined else right)


class _Writer:
    def __init__(self, graph: Graph, slopes: Slopes):
        self.graph, self.slopes = graph, slopes
        self.left = MOST

    def branch(self, merge: Node, edge: Edge) -> ast.stmt:
        """The equation of one branch at the points that its value has, as the user assigns it: `h[t + 1, t >= 3] = ...`."""
        self.left = MOST
        at = _assigned(merge.domain, edge, self.graph[edge.source].domain)
        condition = unless_obvious(edge.condition.substitute(at))
        points = _substituted(identity(merge.domain), at)
        left = self._at(self._name(merge, 0), points if condition is TRUE else (*points, condition))
        return _equation(left, self.read(edge, at))

    def read(self, edge: Edge, at: At) -> ast.expr:
        """The value that an edge delivers to a reader whose steps are at the points `at`."""
        node, index = self.graph[edge.source], _substituted(edge.index, at)
        named = self.named(node, edge.output, index)
        if named is not None:
            return named
        by_step = dict(zip(node.domain.steps, index, strict=True))
        if any(isinstance(each, Range) for each in index):
            points = ", ".join(f"{step} = {each}" for step, each in by_step.items() if not is_own_point(each, step))
            return ast.Subscript(self.definition(node, edge.output, {}), ast.Name(points))
        return self.definition(node, edge.output, {step: each.expr for step, each in by_step.items() if isinstance(each, Point)})

    def named(self, node: Node, output: int, index: tuple[Index, ...]) -> ast.expr | None:
        """A tensor with a name, a recurrence, or a gradient, at some points; None for the others."""
        slope = self.slopes.get(node.id)
        if slope is not None and not node.name:
            return self._slope(*slope, index)
        is_named = _name_of(node, output) or isinstance(node.op, ops.Merge)
        return self._at(self._name(node, output), index) if is_named else None

    def definition(self, node: Node, output: int, at: At) -> ast.expr:
        """The operation of a node, with its operands."""
        if node.id in self.slopes:
            return self._slope(*self.slopes[node.id], _substituted(identity(node.domain), at))
        self.left -= 1
        if self.left < 0:
            return DOTS
        op = node.op
        if isinstance(op, ops.Constant):
            return _constant(op)
        if isinstance(op, ops.Eval):
            return symbolic(str(op.value.substitute(at)))
        if isinstance(op, ops.Random) and op.kind in ("normal", "uniform"):
            return operation(op.kind, number(0), number(1))
        if isinstance(op, ops.Input) or (isinstance(op, ops.Gather) and self._is_fed(node)):
            return self._at(ast.Name(node.name), _substituted(identity(node.domain), at))
        parts = [self.read(edge, at) for edge in node.inputs]
        if isinstance(op, _PLAIN):
            return parts[0]
        if isinstance(op, ops.Where):
            return ast.IfExp(*parts)
        if isinstance(op, ops.DiscountedSum):
            return operation("discounted_sum", number(op.gamma), *parts)
        if isinstance(op, ops.Dot) and (product := self._product(node, op, parts)):
            return product
        if isinstance(op, ops.Permute) and op.order == tuple(reversed(range(len(op.order)))):
            return ast.Attribute(parts[0], "T")
        if isinstance(op, ops.Gather):
            return ast.Subscript(parts[0], ast.Tuple([*[ast.Slice()] * op.axis, parts[1]]))
        if isinstance(op, ops.Slice):
            part = Range(op.start.substitute(at), op.stop.substitute(at), op.stride)
            return ast.Subscript(parts[0], symbolic(", ".join([*[":"] * op.axis, str(part)])))
        called = operation(_SHORT.get(kind_of(op), kind_of(op)), *parts)
        return ast.Subscript(called, ast.Constant(output)) if len(node.outputs) > 1 else called

    def _product(self, node: Node, op: ops.Dot, parts: list[ast.expr]) -> ast.expr | None:
        """A product of matrices or vectors, such as those of `@`; None for another contraction."""
        left, right = (self.graph.edge_rank(edge) for edge in node.inputs)
        batch = len(op.left_batch)
        if op.left_contract != (left - 1,) or op.left_batch != op.right_batch or op.left_batch != tuple(range(batch)):
            return None
        if op.right_contract == (max(right - 2, batch),):
            return operation("matmul", *parts)
        return operation("matmul", parts[0], ast.Attribute(parts[1], "T")) if op.right_contract == (right - 1,) else None

    def _is_fed(self, node: Node) -> bool:
        """Whether a node is the point of an input."""
        source = self.graph[node.inputs[0].source]
        return isinstance(source.op, ops.Input) and source.name == node.name

    def _slope(self, of: str, leaf: str, index: tuple[Index, ...]) -> ast.expr:
        return operation("div", ast.Name(f"∂{of}"), self._at(ast.Name(f"∂{leaf}"), index))

    def _name(self, node: Node, output: int) -> ast.expr:
        return ast.Name(_name_of(node, output) or f"%{node.id}")

    def _at(self, name: ast.expr, index: tuple[Index | Bool, ...]) -> ast.expr:
        return ast.Subscript(name, symbolic(", ".join(map(str, index)))) if index else name


def _equation(left: ast.expr, right: ast.expr) -> ast.stmt:
    return ast.Assign([left], right, lineno=0)


def _name_of(node: Node, output: int) -> str:
    if isinstance(node.op, ops.Udf) and node.op.results:
        return node.op.results[output]
    return node.name if len(node.outputs) < 2 and not isinstance(node.op, ops.Constant) else ""


def _substituted(index: tuple[Index, ...], at: At) -> tuple[Index, ...]:
    return tuple(each.substitute(at) for each in index)


def _assigned(domain: Domain, edge: Edge, of_value: Domain) -> dict[Symbol, Expr]:
    """The point of a recurrence that a branch assigns, in the steps of the branch's value where its index can be turned around."""
    at: dict[Symbol, Expr] = {}
    for step, point in edge.points(of_value).items():
        if not (point - step.expr).steps:  # the value at t - 1 is for point t: the value at t is for t + 1
            at[step] = step.expr - (point - step.expr)
        elif not (point + step.expr).steps:  # at T - 1 - t
            at[step] = point
    for part in edge.condition.parts:
        if isinstance(part, Comparison) and part.kind == "==" and len(part.expr.steps) == 1:
            (step,) = part.expr.steps
            factor = part.expr.coefficient(step)
            rest = part.expr - step.expr * factor
            if abs(factor) == 1 and not rest.steps:
                at.setdefault(step, rest * -factor)
    return {step: at.get(step, step.expr) for step in domain.steps}


def _constant(op: ops.Constant) -> ast.expr:
    """One number for equal elements; all numbers of a short array."""
    array = np.frombuffer(op.data, np.dtype(op.dtype))
    values = [float(value) for value in array[: SHORT + 1]]
    if len(array) and (array == array[0]).all():
        return number(values[0])
    return operation("array", *(map(number, values) if len(values) <= SHORT else [DOTS]))
