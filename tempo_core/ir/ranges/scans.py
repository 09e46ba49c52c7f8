"""Reductions of all prefixes, or of all suffixes, at once: what each reducing function becomes along a whole step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.graph import Edge, is_identity
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, full_range, step_order
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tempo_core.symbolic.proof import provably_nonnegative

Scan = Callable[[Builder, Edge, int, bool], Edge]  # (build, x, axis, whether suffixes): all prefixes, or suffixes, of x, reduced


def spread(build: Builder, like: Edge, value: float | str) -> Edge:
    """`value`, repeated to the type of `like`."""
    type = build.type(like)
    return build.add(ops.Broadcast(type.shape, ()), literal(build, type.dtype, value))


def _cumsum(build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    return build.add(ops.CumSum(axis, suffixes), x)


def _cummax(build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    return build.add(ops.CumMax(axis, suffixes), x)


def _cummin(build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    return _reversed_order(build, _cummax(build, _reversed_order(build, x), axis, suffixes))


def _reversed_order(build: Builder, x: Edge) -> Edge:
    """The elements in reverse order: the greatest becomes the least. Applied twice, it gives x."""
    dtype = build.type(x).dtype
    if dtype == "bool" or is_float(dtype):
        return build.add(ops.Unary("not" if dtype == "bool" else "neg"), x)
    bits = literal(build, dtype, "highest" if dtype.startswith("u") else -1)
    return build.add(ops.Binary("xor"), x, build.add(ops.Broadcast(build.type(x).shape, ()), bits))


def _cumprod(build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    """`y[k] = x[k] * y[k - 1]`. A scan forgets everything at a coefficient of 0; a product does not: 0 times infinity is NaN."""
    shape = build.type(x).shape
    first = Expr.of(0) if not suffixes else shape[axis] - 1
    is_first = build.add(ops.Compare("eq"), build.add(ops.Iota(shape[axis])), build.filled((shape[axis],), first))
    is_first = build.add(ops.Broadcast(shape, (axis,)), is_first)
    zero = spread(build, x, 0.0)
    products = build.add(
        ops.LinearScan(axis, suffixes), build.add(ops.Where(), is_first, zero, x), build.add(ops.Where(), is_first, x, zero)
    )
    if not is_float(build.type(x).dtype):
        return products
    is_undefined = build.add(ops.Unary("not"), build.add(ops.Unary("isfinite"), x))
    is_zero = build.add(ops.Compare("eq"), products, zero)
    has_infinity = build.add(ops.Binary("and"), is_zero, _cummax(build, is_undefined, axis, suffixes))
    return build.add(ops.Where(), has_infinity, spread(build, x, float("nan")), products)


SCANS: dict[str, Scan] = {
    "sum": _cumsum, "prod": _cumprod, "max": _cummax, "min": _cummin, "any": _cummax, "all": _cummin,
}  # fmt: skip


def positions_of_maxima(build: Builder, x: Edge, axis: int, suffixes: bool) -> Edge:
    """For each prefix, or suffix, the first position of its greatest element in the whole of x, as int32. NaN is the greatest."""
    shape = build.type(x).shape
    greatest = _cummax(build, x, axis, suffixes)
    places = build.add(ops.Broadcast(shape, (axis,)), build.add(ops.Iota(shape[axis])))
    if suffixes:  # the nearest element, on the way to the end, that is the greatest of its own suffix
        is_greatest = _is_as_great(build, x, greatest)
        return _cummin(build, build.add(ops.Where(), is_greatest, places, build.filled(shape, shape[axis])), axis, True)
    is_first = build.add(ops.Compare("eq"), places, spread(build, places, 0))
    is_new = build.add(ops.Unary("not"), _is_as_great(build, x, before(build, greatest, axis, False, 0)))
    is_new = build.add(ops.Binary("or"), is_first, build.add(ops.Binary("and"), is_new, _is_as_great(build, x, greatest)))
    return _cummax(build, build.add(ops.Where(), is_new, places, spread(build, places, 0)), axis, False)


def _is_as_great(build: Builder, x: Edge, y: Edge) -> Edge:
    """Whether x and y are equal, or both NaN."""
    equal = build.add(ops.Compare("eq"), x, y)
    if not is_float(build.type(x).dtype):
        return equal
    both = build.add(ops.Binary("and"), build.add(ops.Unary("isnan"), x), build.add(ops.Unary("isnan"), y))
    return build.add(ops.Binary("or"), equal, both)


def before(build: Builder, x: Edge, axis: int, suffixes: bool, first: float | str) -> Edge:
    """For each element the one that a scan meets before it; for the first element, `first`."""
    size = build.type(x).shape[axis]
    end = filled(build, x, axis, Expr.of(1), first)
    if suffixes:
        return build.add(ops.Concat(axis), build.add(ops.Slice(axis, Expr.of(1), size), x), end)
    return build.add(ops.Concat(axis), end, build.add(ops.Slice(axis, Expr.of(0), size - 1), x))


def filled(build: Builder, x: Edge, axis: int, size: Expr, value: float | str) -> Edge:
    """`size` times `value` along `axis`, otherwise of the shape and dtype of x."""
    type = build.type(x)
    shape = (*type.shape[:axis], size, *type.shape[axis + 1 :])
    return build.add(ops.Broadcast(shape, ()), literal(build, type.dtype, value))


def evaluated(build: Builder, value: Expr) -> Edge:
    """A number at the points of the steps that it depends on, so that it does not vary with others."""
    domain = build.domain or build.like.domain
    if domain.condition is TRUE:
        domain = Domain(tuple(s for s in domain.steps if s in value.steps))
    return build.add(ops.Eval(value), domain=domain)


def at_all_points(each: Builder, value: Edge, step: Symbol) -> Edge:
    """A value at all points of a step, which become its first dimension. `each` builds what is there at each point."""
    domain = each.domain or each.like.domain
    if not is_identity(value, each.graph[value.source], domain):
        value = each.add(ops.Identity(), value)
    return replace(value, index=tuple(full_range(s) if s == step else Point(s.expr) for s in domain.steps))


def take(point: Builder, values: Edge, axis: int, step: Symbol, position: Expr) -> Edge:
    """The element for a position along a step, of values that have all its points along `axis`. Outside of the step, that of its end.

    It is a read of that point: so a gradient goes back to the point, not to all values.
    """
    graph, values_at = point.graph, point.graph[values.source].domain
    each = Builder(graph, point.like, Domain(step_order({*values_at.steps, step}, graph.order), values_at.condition))
    element, last = each.add(ops.Gather(axis), values, evaluated(each, step.expr)), step.bound_expr - 1
    position = position if provably_nonnegative(position) else maximum(position, 0)
    position = position if provably_nonnegative(last - position) else minimum(position, last)
    steps = graph[element.source].domain.steps
    index = tuple(Point(position if s == step else s.expr) for s in steps)
    return point.add(ops.Identity(), replace(element, index=index))
