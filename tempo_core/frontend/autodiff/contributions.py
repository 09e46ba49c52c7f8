"""Questions of reverse-mode differentiation about a single read, op or contribution."""

from __future__ import annotations

from dataclasses import replace

from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops
from tempo_core.ir.axes import dropped, left_out
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Domain, Index, Point, Range, index_steps
from tempo_core.symbolic.expr import Expr, Maximum, Minimum
from tempo_core.symbolic.proof import provably_nonnegative


def as_cases(edge: Edge) -> list[tuple[Edge, Bool]]:
    """The cases of a read at a minimum or maximum: `x[max(t - 1, 0)]` is `x[t - 1]` where t >= 1, and `x[0]` elsewhere.

    Gives (read, condition) for each argument of the minimum or maximum; an empty list for any other read.
    """
    for position, index in enumerate(edge.index):
        if not isinstance(index, Point):
            continue
        for atom in index.expr.atoms:
            factor = sum(c for monomial, c in index.expr.terms if monomial == ((atom, 1),))
            if not isinstance(atom, (Minimum, Maximum)) or atom in (index.expr - Expr.of_atom(atom) * factor).atoms:
                continue
            cases = []
            for place, argument in enumerate(atom.args):
                holds: Bool = TRUE
                for other, rival in enumerate(atom.args):
                    if other != place:  # of equal arguments the first counts
                        margin = rival - argument if isinstance(atom, Minimum) else argument - rival
                        holds = holds & (margin >= (1 if other < place else 0))
                point = Point(index.expr + (argument - Expr.of_atom(atom)) * factor)
                cases.append((replace(edge, index=(*edge.index[:position], point, *edge.index[position + 1 :])), holds))
            return cases
    return []


def as_key(back: Index) -> Expr | slice[Expr, Expr, int]:
    """An index in the form that `[]` takes."""
    return back.expr if isinstance(back, Point) else slice(back.start, back.stop, back.stride)


_LINEAR = (
    ops.Identity, ops.Reshape, ops.Permute, ops.Broadcast, ops.Slice, ops.Pad, ops.Concat, ops.Flip, ops.Gather, ops.Cast, ops.CumSum,
    ops.DiscountedSum, ops.Where,
)  # fmt: skip


def uses_values(op: ops.Op) -> bool:
    """Whether an op's gradient rule multiplies by the values of its operands or results."""
    if isinstance(op, (ops.Binary, ops.Reduce, ops.Scatter, ops.Unary)):
        return op.fn not in ("add", "sub", "sum", "neg")
    return not isinstance(op, _LINEAR)


def overflows(graph: Graph, node: Node) -> bool:
    """Whether an op gives infinities for some finite operands: for example, it divides, or takes the maximum of no elements."""
    op = node.op
    if isinstance(op, ops.Reduce) and op.fn in ("max", "min"):
        shape = graph.edge_type(node.inputs[0]).shape
        return not all(provably_nonnegative(shape[a] - 1) for a in op.axes)
    if isinstance(op, ops.Scatter):
        return op.unwritten in ("lowest", "highest")
    return isinstance(op, (ops.Binary, ops.Unary)) and op.function.is_unbounded


def without_broadcast_axis(x: Tensor, axis: int) -> Tensor | None:
    """`x` without `axis`, if x only repeats its elements along that axis; else None."""
    node = x.node
    if isinstance(node.op, ops.Identity) and not node.op.stop_gradient:
        return None
    if not isinstance(node.op, ops.Broadcast) or x.materialized() is not x or axis in node.op.axes:
        return None
    op, inner = ops.Broadcast(left_out(node.op.shape, axis), dropped(node.op.axes, axis)), view(x.context, node.inputs[0])
    return inner if op.shape == inner.type.shape else apply(op, inner)


def sums_later(edge: Edge, readers: Domain, contribution: Tensor) -> bool:
    """Whether contributions of several equal reads should be added up before those of different readers are.

    Not if all points of some reader step read the same: a sum of products over that step is one product, a sum of sums is not. And
    not if the contribution repeats its elements along a range: without the range it is smaller.
    """
    count = sum(isinstance(i, Range) for i in edge.index)
    repeats = any(without_broadcast_axis(contribution, axis) is not None for axis in range(count))
    return not repeats and set(readers.steps) <= index_steps(edge.index)
