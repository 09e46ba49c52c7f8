"""Reads of neighbours at all points of a step at once, as slices: `x[t - 1]`, `x[T - 1 - t]`, `x[max(t - 1, 0)]`, `x[(t + 1) % T]`."""

from __future__ import annotations

from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge
from tempo_core.passes.batch.batching import evaluated
from tempo_core.symbolic.condition import at_least_zero, conjunction
from tempo_core.symbolic.domain import Domain, Point, ring_of
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
    return _around(value, axis, at, step, build) or _either(value, axis, at, step, build)


def _around(value: Edge, axis: int, at: Expr, step: Symbol, build: Builder) -> Edge | None:
    """Position `(t + shift) % n + start`: a slice of the n elements from `start` on with some of them repeated at both ends.

    Reads as far to the left as to the right, also from other rows, are slices of one value. XLA computes them in vectors of several elements.
    """
    ring = ring_of(at, step)
    if ring is None:
        return None
    n, start, shift, size = ring.size, ring.start, ring.shift % ring.size, step.bound_expr

    def part(first: Expr, stop: Expr) -> Edge:
        return inside.add(ops.Slice(axis, start + first, start + stop), row)

    row, inside = value, build
    if shift.is_constant and n.is_constant:
        row, inside, rows = _of_each_row(value, build)
        more = min(shift, n - shift, key=lambda distance: distance.constant)
        pieces = [part(n - more, n), part(Expr.of(0), n), part(Expr.of(0), more)]
        wide = inside.add(ops.Concat(axis), *(pieces if more != 0 else pieces[1:2]))
        first = shift + more if shift == more else Expr.of(0)
        elements = build.add(ops.Slice(axis, first, first + n), replace(wide, index=rows))
    else:
        elements = build.add(ops.Concat(axis), part(shift, n), part(Expr.of(0), shift))
    if n == size:
        return elements
    before, after = (build.type(elements).shape[each] for each in (slice(axis), slice(axis + 1, None)))
    turns, axes = (size + n - 1) // n, tuple(k + (k >= axis) for k in range(len(before) + 1 + len(after)))
    repeated = build.add(ops.Broadcast((*before, turns, n, *after), axes), elements)
    return build.add(ops.Slice(axis, Expr.of(0), size), build.add(ops.Reshape((*before, turns * n, *after)), repeated))


def _of_each_row(value: Edge, build: Builder) -> tuple[Edge, Builder, tuple[Point, ...]]:
    """A value that is read around rings of other steps: its read at their own points, what builds there, and the points that the readers read."""
    domain, source = build.domain or build.like.domain, build.graph[value.source].domain
    rings = {
        place: s
        for place, (s, index) in enumerate(zip(source.steps, value.index, strict=True))
        if isinstance(index, Point) and s in domain and s not in source.condition.symbols and ring_of(index.expr, s) is not None
        if sum(s in other.steps for other in value.index) == 1
    }
    moved = frozenset(rings.values())
    inside = Domain(domain.steps, conjunction(*(part for part in domain.condition.parts if not part.symbols & moved)))
    index = tuple(Point(rings[k].expr) if k in rings else i for k, i in enumerate(value.index))
    read = {s: value.index[k] for k, s in rings.items()}
    rows = tuple(read.get(s, Point(s.expr)) for s in domain.steps)
    return replace(value, index=index), replace(build, domain=inside), rows  # type: ignore[return-value]


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
    """Whether the elements are those of a scan, whose loop can take over one operation that reads its neighbours (`xla_cpu/loops.py`)."""
    node = build.graph[value.source]
    while isinstance(node.op, (ops.Gather, ops.Identity)):
        node = build.graph[node.inputs[0].source]
    return isinstance(node.op, (ops.CumSum, ops.CumMax, ops.LinearScan))
