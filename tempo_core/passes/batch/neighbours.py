"""Reads of neighbours at all points of a step at once, as slices: `x[t - 1]`, `x[T - 1 - t]`, `x[max(t - 1, 0)]`."""

from __future__ import annotations

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.passes.batch.batching import evaluated
from tempo_core.symbolic.condition import at_least_zero
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol


def neighbours(value: Edge, axis: int, at: Expr, step: Symbol, build: Builder) -> Edge | None:
    """The elements of `value` at position `at` of `axis`, for all points of a step; None if no slices give them.

    The points take the place of `axis`. Positions outside of it give zeros: they belong to points at which no value is needed.
    A slice moves whole pieces of memory, and XLA computes it as a part of its reader. A gather computes each address.
    """
    size = step.bound_expr
    if step not in at.symbols:
        element = build.add(ops.Gather(axis), value, build.add(ops.Eval(at)))
        shape = build.type(element).shape
        others = tuple(k + (k >= axis) for k in range(len(shape)))
        return build.add(ops.Broadcast((*shape[:axis], size, *shape[axis:]), others), element)
    distance, mirrored = at - step.expr, at + step.expr
    if not distance.steps:
        return build.add(ops.Slice(axis, distance, distance + size), value)
    if not mirrored.steps:
        return build.add(ops.Flip(axis), build.add(ops.Slice(axis, mirrored - size + 1, mirrored + 1), value))
    return _either(value, axis, at, step, build)


def _either(value: Edge, axis: int, at: Expr, step: Symbol, build: Builder) -> Edge | None:
    """A position with a minimum or maximum of two expressions: a selection of the elements at both."""
    extrema = [a for a in at.atoms if isinstance(a, (Minimum, Maximum)) and step in Expr.of_atom(a).symbols]
    if len(extrema) != 1 or len(extrema[0].args) != 2:
        return None
    (extremum,) = extrema
    moving = [argument for argument in extremum.args if step in argument.symbols]
    if len(moving) == 1 and _is_clamped(at, step) and _is_scan(value, build):
        steps = tuple(s for s in (build.domain or build.like.domain).steps if s in moving[0].steps and s != step)
        return build.add(ops.Gather(axis), value, evaluated(moving[0], step, Builder(build.graph, build.like, Domain(steps))))
    factor = at.coefficient(extremum)
    rest = at - Expr.of_atom(extremum) * factor
    if extremum in rest.atoms:
        return None
    parts = [neighbours(value, axis, rest + argument * factor, step, build) for argument in extremum.args]
    if parts[0] is None or parts[1] is None:
        return None
    difference = extremum.args[0] - extremum.args[1]
    is_first = at_least_zero(difference if isinstance(extremum, Maximum) else -difference)
    test = build.add(ops.Broadcast(build.type(parts[0]).shape, (axis,)), evaluated(is_first, step, build))
    return build.add(ops.Where(), test, parts[0], parts[1])


def _is_clamped(at: Expr, step: Symbol) -> bool:
    """Whether a position that leaves the step is that of the step's nearest end, as in a gather: `max(t - 1, 0)`."""
    end = Expr.of(0) if isinstance(at.single_atom, Maximum) else step.bound_expr - 1
    return isinstance(at.single_atom, (Minimum, Maximum)) and end in at.single_atom.args


def _is_scan(value: Edge, build: Builder) -> bool:
    """Whether the elements are those of a scan, whose loop can take over one operation that reads its neighbours (`xla_cpu/picked_scans.py`)."""
    node = build.graph[value.source]
    while isinstance(node.op, (ops.Gather, ops.Identity)):
        node = build.graph[node.inputs[0].source]
    return isinstance(node.op, (ops.CumSum, ops.CumMax, ops.LinearScan))
