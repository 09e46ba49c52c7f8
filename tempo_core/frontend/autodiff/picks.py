"""Gradients of elements that are picked out of a prefix or suffix by position, such as `take(x[0:t + 1], i[t])`.

Each reader's contribution goes to the point that it picks: one sum at places for all readers.
"""

from __future__ import annotations

from tempo_core.frontend.autodiff.contributions import ancestors
from tempo_core.frontend.autodiff.window_gradients import window_width
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.functions import broadcast_to, evaluate, index, reshape, scatter_add
from tempo_core.frontend.tensor import Tensor, apply, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Node
from tempo_core.ir.ops import product
from tempo_core.ir.ranges.elements import Elements, range_of
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.symbolic.proof import provably_nonnegative


def contributions_of_picks(context: BaseContext, node: Node, op: ops.Gather, g: Tensor) -> list[tuple[Tensor, Tensor]] | None:
    """The gradient of the elements of a wide range, each at its own point, from which each reader picks some; None for other ranges.

    The readers must not depend on each other through the elements: the contributions of all of them are there at the same time.
    """
    read = range_of(context.graph, node.inputs[0], op.axis)
    if read is None or op.axis != 0 or op.batch:
        return None
    step, span = read
    moves = bool(span.steps) and span.steps <= set(node.domain.steps)
    varies = any(size.steps for type in (*node.outputs, context.graph.edge_type(node.inputs[1])) for size in type.shape)
    if (
        not moves
        or varies  # what the readers pick does not lie in one array
        or span.stride != 1
        or not provably_nonnegative(span.length - 1)
        or window_width(span, step, node.domain) is not None
    ):
        return None
    trial = context.graph.copy()  # a search leaves nodes behind: search in a copy first
    element = Elements(trial, node, step, span).of(node.inputs[0], 0)
    if element is None or not any(step in at.steps for at in element.index) or node.id in ancestors(trial, element.source):
        return None
    again = Elements(context.graph, node, step, span).of(node.inputs[0], 0)
    assert again is not None
    points = view(context, again)
    return [(apply(ops.Identity(), points), _sum_at_places(points, g, _places(context, node, span), node.domain, step))]


def _places(context: BaseContext, node: Node, span: Range) -> Tensor:
    """The points that the readers pick. Positions outside of the range are those of its ends."""
    positions = view(context, node.inputs[1])
    last = broadcast_to(evaluate(span.length - 1), positions.type.shape)
    positions = apply(ops.Binary("minimum"), positions, last)
    positions = apply(ops.Binary("maximum"), positions, broadcast_to(evaluate(Expr.of(0)), positions.type.shape))
    return positions + evaluate(span.start)


def _sum_at_places(points: Tensor, g: Tensor, places: Tensor, readers: Domain, step: Symbol) -> Tensor:
    """For each point of `step` the sum of `g` over the readers that pick it."""
    point_steps = {s for s in points.domain.steps if s != step}
    keys = tuple(s.expr if s in point_steps else slice(Expr.of(0), s.bound_expr, 1) for s in readers.steps)
    values, targets = (apply(ops.Identity(), each, domain=Domain(readers.steps))[keys] for each in (g, places))
    count = product(targets.type.shape)
    values = reshape(values, (count, *values.type.shape[targets.rank :]))
    return index(scatter_add(values, reshape(targets, (count,)), step.bound_expr, 0), 0, step.expr)
