"""Rules of selections: branches of a merge that give the same value, sums of values that exist at different points, masked products."""

from __future__ import annotations

import itertools
from dataclasses import replace

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.builder import literal
from tempo_core.ir.dependence import fixed_point
from tempo_core.ir.graph import Edge
from tempo_core.passes.base import is_identity, read_at
from tempo_core.passes.clean.view import View
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Index, Point
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.symbolic.isl.relation import never, uncovered


def equal_branches(view: View) -> Edge | None:
    """A branch that gives what the next one gives at the same points is not a branch of its own, if one of the two always applies.

    Gradients and linear recurrences treat the first point of a step apart, often without need: `x[0] if t == 0, x[t] if t >= 1`.
    """
    edges = view.node.inputs
    for k, (first, second) in enumerate(itertools.pairwise(edges)):
        if not _are_equal(first, second, first.condition):
            continue
        try:
            joins = second.condition is TRUE or uncovered(view.node.domain, [first.condition, second.condition]) is None
        except NonAffineError:
            continue
        if joins:
            return view.build.add(view.op, *edges[:k], replace(second, condition=TRUE))
    return None


def own_points(view: View) -> Edge | None:
    """Branches that keep a value at several places, `x[0] if t == 0, x[T - 1] if t == T - 1`, read it at the reader's point.

    At all points at once, that is a selection of elements where they are.
    """
    edges = view.node.inputs
    moved = [replace(edge, index=_at_reader(view, edge)) for edge in edges]
    values = [replace(edge, condition=TRUE) for edge in moved]
    kept = [m if values.count(v) > 1 else edge for edge, m, v in zip(edges, moved, values, strict=True)]
    return None if kept == list(edges) else view.build.add(view.op, *kept)


def sum_of_parts(view: View) -> Edge | None:
    """Two contributions, each at its own points and zero elsewhere, are a single selection. So are more of one value."""
    domain = view.node.domain
    merges = [view.graph[view.edge(slot).source] for slot in range(2)]
    if not all(isinstance(m.op, ops.Merge) and is_identity(view.edge(k), m, domain) for k, m in enumerate(merges)):
        return None
    (*first, zero), (*second, other_zero) = (merge.inputs for merge in merges)
    if any(edge.condition is not TRUE or view.number_of(edge) != 0 for edge in (zero, other_zero)):
        return None
    values = {replace(edge, index=_at_reader(view, edge), condition=TRUE) for edge in (*first, *second)}
    if len(values) > 1 and len(first) + len(second) > 2:
        return None
    is_later = all(_are_equal(b, a, b.condition) for a, b in itertools.product(first, second))
    try:
        apart = all(never(domain, a.condition & b.condition) for a, b in itertools.product(first, second))
    except NonAffineError:
        return None
    parts = (*second, *first) if is_later else (*first, *second)
    return view.build.add(merges[0].op, *parts, zero) if apart else None


def _at_reader(view: View, edge: Edge) -> tuple[Index, ...]:
    """A branch's index in the reader's steps, where its condition fixes them: `x[0]` under `t == 0` is `x[t]`."""
    values = _fixed(edge.condition)
    steps = view.graph[edge.source].domain.steps
    return tuple(
        Point(s.expr) if s in values and i == Point(Expr.of(values[s])) else i for s, i in zip(steps, edge.index, strict=True)
    )


def _are_equal(edge: Edge, other: Edge, condition: Bool) -> bool:
    """Whether two edges read the same point of the same value wherever a condition holds."""
    if (edge.source, edge.output) != (other.source, other.output) or not edge.index:
        return False
    values = _fixed(condition)
    return tuple(i.substitute(values) for i in edge.index) == tuple(i.substitute(values) for i in other.index)


def _fixed(condition: Bool) -> dict[Symbol, IntoExpr]:
    """The steps that a condition fixes, with their values."""
    values: dict[Symbol, IntoExpr] = {}
    for step in sorted(condition.steps, key=str):
        value = fixed_point(condition, step)
        if value is not None and value.symbols.isdisjoint(values):
            values[step] = value
    return values


def masked_outer_product(view: View) -> Edge | None:
    """A product of single elements with a mask over its shared dimensions is a product of masked operands, which are smaller.

    A sum over shared dimensions can then become a part of the product (`sum-of-dot-batch`).
    """
    mask, zero, turned = view.operand(0), view.number(2), view.operand(1)
    if not isinstance(mask, ops.Broadcast) or zero != 0 or view.op.length is not None:
        return None
    product, order = view.edge(1), tuple(range(view.type(1).rank))
    if isinstance(turned, ops.Permute):
        inner = view.inner(1)
        if inner is None:
            return None
        product, order = inner, turned.order
    dot, inside = view.graph[product.source], view.inner(0)
    if not isinstance(dot.op, ops.Dot) or dot.op.left_contract or inside is None:
        return None
    if any(not hasattr(index, "expr") for index in product.index):
        return None
    axes = tuple(order[axis] for axis in mask.axes)  # of the product: shared dimensions come first
    if any(axis >= len(dot.op.left_batch) for axis in axes):
        return None
    operands = []
    for slot, batch in enumerate((dot.op.left_batch, dot.op.right_batch)):
        operand, places = read_at(dot.inputs[slot], dot.domain, product), tuple(batch[axis] for axis in axes)
        if operand is None or list(places) != sorted(places):
            return None
        shape = view.build.type(operand).shape
        zeros = view.build.add(ops.Broadcast(shape, ()), literal(view.build, view.type(2).dtype, 0.0))
        operands.append(view.build.add(ops.Where(), view.build.add(ops.Broadcast(shape, places), inside), operand, zeros))
    result = view.build.add(dot.op, *operands)
    return view.build.permuted(result, order)
