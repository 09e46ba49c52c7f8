"""Reversed dependences: the points that read a source point, as points and ranges again."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tempo_core.errors import GradientError, NonAffineError
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, comparisons_of
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, index_steps, is_own_point
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol, maximum, minimum
from tempo_core.symbolic.isl.sets import CONTEXT, Frame, bounds_of, dependence, domain_set
from tempo_core.symbolic.isl.translate import as_parameters, condition_within, single_expression, symbols_by_name

_MOST_PIECES = 6  # of an inverse


@dataclass(frozen=True)
class Inverse:
    """The readers of a source point: one point or range per step of the reader, in the *source's* steps, where `condition` holds."""

    index: tuple[Index, ...]
    condition: Bool


@functools.lru_cache(maxsize=4096)
def invert(reader_domain: Domain, index: tuple[Index, ...], source_domain: Domain) -> Inverse:
    """The reversed dependence: the reader points that read a source point.

    Raises GradientError unless the readers are one independent, evenly strided range per reader step. `hulls` gives limits of
    the readers in all cases.

    >>> t = Symbol("t", "T")
    >>> invert(Domain((t,)), (Range(t.expr, Symbol("T").expr),), Domain((t,)))
    Inverse(index=(Range(start=0, stop=t + 1, stride=1, size=None),), condition=true)
    """
    readers = _readers(reader_domain, index, source_domain)
    if readers.is_empty():
        return Inverse(tuple(full_range(s) for s in reader_domain.steps), FALSE)
    inverse, exact = _reversed(readers, reader_domain, index, source_domain)
    if not exact:
        text = ", ".join(map(str, index))
        raise GradientError(
            f"the reads [{text}] at {reader_domain} have no inverse: the points that read one value are not a range per step"
        )
    return inverse


@functools.lru_cache(maxsize=4096)
def hulls(reader_domain: Domain, index: tuple[Index, ...], source_domain: Domain) -> tuple[Inverse, ...]:
    """A point or range per step of the reader. It contains all reader points of a source point, and perhaps others between them.

    There are several, each for different source points, if the first or the last reader is not a single expression, with or without
    the distances between readers.

    >>> i, t = Symbol("i", "I"), Symbol("t", "T")
    >>> (hull,) = hulls(Domain((i, t)), (Point(i.expr + t.expr),), Domain((t,)))
    >>> print(*hull.index)
    0:min(t + 1, I) max(t - I + 1, 0):t + 1
    """
    inverses: list[Inverse] = []
    exact = _readers(reader_domain, index, source_domain)
    waiting = [exact]
    without_strides = exact.remove_divs().coalesce()
    if _where_limits_change(exact, source_domain) and not _where_limits_change(without_strides, source_domain):
        waiting = [without_strides]  # one range of which every second point reads, in place of many ranges
    while waiting:
        if len(inverses) + len(waiting) > _MOST_PIECES:  # one loose hull in place of many
            own = {step for at, step in zip(index, source_domain.steps, strict=True) if is_own_point(at, step)}
            return (Inverse(tuple(Point(s.expr) if s in own else full_range(s) for s in reader_domain.steps), TRUE),)
        readers = waiting.pop()
        if not readers.is_empty():
            parts = _where_limits_change(readers, source_domain)
            if len(parts) > 1:
                waiting += [readers.intersect_domain(part) for part in parts]
            else:
                inverses.append(_reversed(readers, reader_domain, index, source_domain)[0])
    return tuple(inverses)


def _readers(reader_domain: Domain, index: tuple[Index, ...], source_domain: Domain) -> isl.Map:
    """The relation of source points to the points that read them."""
    return dependence("", reader_domain, "", source_domain, index).intersect_range(domain_set("", source_domain)).reverse()


def _along(readers: isl.Map, k: int) -> isl.Map:
    """The relation of source points to the values of one reader step."""
    rank = readers.dim(isl.dim_type.out)
    return readers.project_out(isl.dim_type.out, k + 1, rank - k - 1).project_out(isl.dim_type.out, 0, k).coalesce()


def _where_limits_change(readers: isl.Map, source_domain: Domain) -> list[isl.Set]:
    """The pieces of the first limit of a reader step that is not a single expression; empty if there is no such limit."""
    symbols = _symbols(readers, source_domain)
    for k in range(readers.dim(isl.dim_type.out)):
        along = _along(readers, k)
        for upper, limit in enumerate(_limits(along)):
            if _limit(along, limit, as_parameters(along.domain()), symbols, bool(upper)) is None:
                return [piece for piece, _ in limit.get_pieces()]
    return []


def _symbols(readers: isl.Map, source_domain: Domain) -> dict[str, Expr]:
    count = readers.dim(isl.dim_type.param)
    bounds = (Symbol(readers.get_dim_name(isl.dim_type.param, k)) for k in range(count))
    return symbols_by_name(source_domain.steps, bounds)


def _reversed(readers: isl.Map, reader_domain: Domain, index: tuple[Index, ...], source_domain: Domain) -> tuple[Inverse, bool]:
    """The hull of each source point's readers, and whether the hull contains only readers."""
    bounds = bounds_of(reader_domain, source_domain, *index)
    symbols = symbols_by_name(source_domain.steps, bounds)
    strides = (1, *sorted(_strides(reader_domain.condition, *index) - {1}))
    indices: list[Index] = []
    exact = True
    product: isl.Map | None = None
    for k, step in enumerate(reader_domain.steps):
        along = _along(readers, k)
        product = along if product is None else product.flat_range_product(along)
        plain = step not in index_steps(index) and reader_domain.condition is TRUE
        at, is_exact = (full_range(step), True) if plain else _inverse_step(step, along, strides, symbols)
        indices.append(at)
        exact = exact and is_exact
    if product is not None and not product.is_subset(readers):
        exact = False
    read_points = readers.domain()
    source_points = domain_set("", source_domain).intersect_params(Frame((), bounds).box().params())
    return Inverse(tuple(indices), condition_within(read_points, source_points, symbols)), exact


def _strides(condition: Bool, *index: Index) -> set[int]:
    """Possible distances between readers of one point: the strides of slices, and the divisors in indices and conditions."""
    strides = {i.stride for i in index if isinstance(i, Range)}
    waiting = [comparison.expr for comparison in comparisons_of(condition)]
    waiting += (part for i in index for part in ((i.expr,) if isinstance(i, Point) else (i.start, i.stop)))
    while waiting:
        for atom in waiting.pop().atoms:
            if not isinstance(atom, Symbol):
                waiting += atom.parts
            if isinstance(atom, (FloorDivide, Modulo)) and atom.denominator.is_constant:
                strides.add(atom.denominator.constant)
    return strides


def _inverse_step(step: Symbol, along: isl.Map, strides: tuple[int, ...], symbols: Mapping[str, Expr]) -> tuple[Index, bool]:
    """`along` (source points to values of one reader step) as a point or range, and whether that is exact."""
    lowest, highest = _limits(along)
    context = as_parameters(along.domain())
    start, last = _limit(along, lowest, context, symbols, False), _limit(along, highest, context, symbols, True)
    if start is None or last is None:
        return Range(Expr.of(0) if start is None else start, step.bound_expr if last is None else _after(last)), False
    if lowest.is_equal(highest):
        return Point(start), True
    local = isl.LocalSpace.from_space(along.range().get_space())
    value = isl.PwAff.var_on_domain(local, isl.dim_type.set, 0)
    between = lowest.le_map(value).intersect(highest.ge_map(value))
    for stride in strides:
        points = between
        if stride != 1:
            modulus = isl.Val(stride, CONTEXT)
            points = between.intersect(lowest.mod_val(modulus).eq_map(value.mod_val(modulus)))
        if points.is_equal(along):
            return Range(start, _after(last), stride), True
    return Range(start, _after(last)), False


def _limits(along: isl.Map) -> tuple[isl.PwAff, isl.PwAff]:
    """The least and the greatest value that a relation has at each point."""
    return along.lexmin().as_pw_multi_aff().get_pw_aff(0), along.lexmax().as_pw_multi_aff().get_pw_aff(0)


def _limit(along: isl.Map, limit: isl.PwAff, context: isl.Set, symbols: Mapping[str, Expr], upper: bool) -> Expr | None:
    """The least or greatest value of a relation as one expression; None if it is not a single expression.

    For `t <= 1, t < T`, isl gives `1 if T >= 2 else 0`; the constraints themselves give `min(1, T - 1)`.
    """
    try:
        return single_expression(as_parameters(limit), context, symbols)
    except NonAffineError:
        pass
    basic = along.get_basic_maps()
    if len(basic) != 1 or basic[0].dim(isl.dim_type.div):
        return None
    tightest: isl.PwAff | None = None
    parts: list[Expr] = []
    for constraint in basic[0].get_constraints():
        sign = -1 if upper else 1
        if constraint.get_coefficient_val(isl.dim_type.out, 0).to_python() != sign:
            continue
        affine = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(along.get_space().domain()))
        for kind in (isl.dim_type.param, isl.dim_type.in_):
            for k in range(along.dim(kind)):
                affine = affine.add_coefficient_val(kind, k, constraint.get_coefficient_val(kind, k))
        affine = affine.add_constant_val(constraint.get_constant_val()).scale_val(isl.Val(-sign, CONTEXT))
        bound = isl.PwAff.from_aff(affine).intersect_domain(along.domain())
        try:
            parts.append(single_expression(as_parameters(bound), context, symbols))
        except NonAffineError:
            return None
        tightest = bound if tightest is None else tightest.min(bound) if upper else tightest.max(bound)
    if tightest is None or not tightest.is_equal(limit):
        return None
    return minimum(*parts) if upper else maximum(*parts)


def _after(last: Expr) -> Expr:
    """`last + 1`, moved into a min or max: `min(t + 3, T - 1) + 1` becomes the simpler `min(t + 4, T)`."""
    for atom in last.atoms:
        if isinstance(atom, (Minimum, Maximum)) and (last - Expr.of_atom(atom)).is_constant:
            offset = (last - Expr.of_atom(atom)).constant + 1
            return (minimum if isinstance(atom, Minimum) else maximum)(*(a + offset for a in atom.args))
    return last + 1
