"""Rules of stacks: what reduces a stack of few values, or takes one of them, computes with these values.

So no dimension stays for them. A table of single numbers then runs by diagonals.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE, left_out, source_of, without, without_reduced
from tempo_core.ir.builder import COMBINE, Builder
from tempo_core.ir.graph import Edge, Node
from tempo_core.ir.types import ROUNDED_ONCE, is_float
from tempo_core.passes.base import read_at
from tempo_core.passes.clean.view import View
from tempo_core.prices import MOST_SHIFTED_OPERATIONS, MOST_SHIFTS
from tempo_core.symbolic.domain import Point, identity
from tempo_core.symbolic.expr import Expr

Users = Mapping[int, Sequence[tuple[Node, int]]]


def reduced_stack(view: View) -> Edge | None:
    """A reduction of a stack combines its parts, one after the other."""
    op, build, dtype = view.op, view.build, view.type().dtype
    for axis in op.axes:
        parts = _parts(view, axis)
        if parts is not None:
            is_wider = op.fn in ("sum", "prod") and dtype in ROUNDED_ONCE
            parts = [build.add(ops.Cast("float32"), part) for part in parts] if is_wider else parts
            total = functools.reduce(lambda a, b: build.add(ops.Binary(COMBINE[op.fn]), a, b), parts)
            rest = without_reduced(op, (axis,))
            total = build.add(rest, total) if rest.axes else total
            return build.add(ops.Cast(dtype), total) if is_wider else total
    return None


def position_in_stack(view: View) -> Edge | None:
    """The first position of the greatest part, or of the first NaN: later parts count if they are greater than all before."""
    build, parts = view.build, _parts(view, view.op.axis)
    if parts is None:
        return None
    shape = view.node.outputs[0].shape
    best, position = parts[0], build.filled(shape, Expr.of(0))
    for k, part in enumerate(parts[1:], 1):
        is_new = build.add(ops.Unary("not"), build.add(ops.Compare("le"), part, best))
        if is_float(view.type().dtype):  # nothing is after NaN
            is_new = build.add(ops.Binary("and"), is_new, build.add(ops.Unary("not"), build.add(ops.Unary("isnan"), best)))
        best = build.add(ops.Where(), is_new, part, best)
        position = build.add(ops.Where(), is_new, build.filled(shape, Expr.of(k)), position)
    return position


def slice_of_stack(view: View) -> Edge | None:
    """One part of a stack: the gradient of each part is one of the gradient of the stack."""
    parts = _parts(view, view.op.axis) if _is_single(view.op) else None
    return None if parts is None else view.build.add(ops.Reshape(view.node.outputs[0].shape), parts[view.op.start.constant])


def _is_single(op: ops.Op) -> bool:
    return isinstance(op, ops.Slice) and op.stride == 1 and op.start.is_constant and bool(op.stop == op.start + 1)


def _parts(view: View, axis: int) -> list[Edge] | None:
    """The parts of the stack, or of elementwise functions of one, that a node reads; None if they are many, or needed together too.

    What is repeated along the axis is a stack to a slice: the gradient of a sum.
    """
    graph, size = view.graph, view.type().shape[axis]
    if not (_is_at_point(view.edge()) and size.is_constant and 0 < size.constant <= MOST_SHIFTS):
        return None
    places: dict[int, int] = {}  # functions of the stack, with its axis in each
    waiting, has_stack, is_repeated = [(view.edge(), axis)], False, isinstance(view.op, ops.Slice)
    while waiting:
        edge, place = waiting.pop()
        node = graph[edge.source]
        has_stack |= _is_stack(edge, node, place)
        is_repeated &= _is_function(edge, node)
        if _is_function(edge, node) and node.id not in places:
            places[node.id] = place
            sources = zip(node.inputs, source_of(graph, node, place) or (), strict=False)
            waiting += [(each, inner) for each, inner in sources if inner is not None]
    if not (has_stack or is_repeated) or size.constant * len(places) > MOST_SHIFTED_OPERATIONS:
        return None
    users = graph.users() if places else {}
    is_taken_apart = all(_is_taken_apart(users, number, place, places) for number, place in places.items())
    return [_part(view.build, view.edge(), axis, k, {}) for k in range(size.constant)] if is_taken_apart else None


def _is_stack(edge: Edge, node: Node, axis: int) -> bool:
    is_concat = _is_at_point(edge) and isinstance(node.op, ops.Concat) and node.op.axis == axis
    return is_concat and bool(node.outputs[0].shape[axis] == len(node.inputs))


def _is_function(edge: Edge, node: Node) -> bool:
    is_function = _is_at_point(edge) and isinstance(node.op, (*ELEMENTWISE, ops.Broadcast))
    return is_function and getattr(node.op, "length", None) is None


def _is_at_point(edge: Edge) -> bool:
    return all(isinstance(index, Point) for index in edge.index)


def _is_taken_apart(users: Users, number: int, axis: int, places: Mapping[int, int]) -> bool:
    """Whether all readers of a value, or of elementwise functions of it, reduce it along an axis or take single elements."""
    for reader, slot in users[number]:
        reduces = axis in getattr(reader.op, "axes", (getattr(reader.op, "axis", None),))
        takes = reduces and (isinstance(reader.op, (ops.Reduce, ops.Argmax)) or _is_single(reader.op))
        passes = isinstance(reader.op, ELEMENTWISE) and _is_taken_apart(users, reader.id, axis, places)
        if not _is_at_point(reader.inputs[slot]) or not (reader.id in places or takes or passes):
            return False
    return bool(users[number])


def _part(reader: Builder, edge: Edge, axis: int, k: int, parts: dict[tuple[int, int, int], Edge]) -> Edge:
    """What an edge reads at position k of an axis, which the result lacks."""
    graph, node, key = reader.graph, reader.graph[edge.source], (edge.source, edge.output, axis)
    one, build = ops.Slice(axis, Expr.of(k), Expr.of(k + 1)), Builder(graph, node)
    if not _is_at_point(edge):  # the axis may be that of a step, which the value of one point has not
        return reader.add(ops.Reshape(left_out(reader.type(edge).shape, axis)), reader.add(one, edge))
    if key not in parts:
        source = source_of(graph, node, axis) if _is_function(edge, node) else None
        op = None if source is None else without(node.op, axis, source)
        if source is not None and op is not None:
            operands = zip(node.inputs, source, strict=True)
            parts[key] = build.add(op, *(e if a is None else _part(build, e, a, k, parts) for e, a in operands))
        else:
            whole = Edge(node.id, identity(node.domain), edge.output)
            value = node.inputs[k] if _is_stack(edge, node, axis) else build.add(one, whole)
            parts[key] = build.add(ops.Reshape(left_out(node.outputs[edge.output].shape, axis)), value)
    part = read_at(parts[key], node.domain, edge)
    assert part is not None
    return part
