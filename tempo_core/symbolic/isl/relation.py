"""Exact questions about domains and dependences, answered by isl: largest values, and sample points at which a rule is broken.

Results come back as `Expr`, `Bool` and numbers. Besides `sets`, `translate`, `inverse` and `schedule/`, this is the only place
that imports islpy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import islpy as isl

from tempo_core.errors import NonAffineError
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Range
from tempo_core.symbolic.expr import Atom, Expr, Maximum, Minimum, Modulo, Symbol, maximum, minimum
from tempo_core.symbolic.factor import Product, groups_of, products
from tempo_core.symbolic.isl.sets import AFFINE_HINT, CONTEXT, Frame, bounds_of, dependence, domain_set
from tempo_core.symbolic.isl.translate import condition_within, single_expression, symbols_by_name
from tempo_core.symbolic.proof import distribute, extreme, provably_nonnegative

_OPERATIONS = 300_000  # isl's limit in the search for one maximum: a tenth of a second
_SMALL = ((2, 5), (2, None), (1, None))  # (least, greatest) bounds of samples, the most readable samples first


@functools.lru_cache(maxsize=4096)
def maximum_over(expr: Expr, domain: Domain) -> Expr:
    """The least upper bound of `expr` over `domain`, in bounds only; a looser upper bound if the least is not a single expression.

    A factor of bounds goes through: the result for `B * x` is B times the result for x.
    Raises NonAffineError if `expr` is not affine and no simple bound is safe.

    >>> t, T = Symbol("t", "T").expr, Symbol("T").expr
    >>> maximum_over(minimum(t + 5, T) - t, Domain((Symbol("t", "T"),)))
    min(5, T)
    """
    if not expr.steps:
        return expr
    if domain.condition is TRUE:
        domain = Domain(tuple(s for s in domain.steps if s in expr.steps))
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(_OPERATIONS)
    try:
        return _exact_maximum(expr, domain)
    except (NonAffineError, isl.Error):
        CONTEXT.set_max_operations(0)
        coupled = [part.steps for part in domain.condition.parts]
        parts, rest = products(expr, coupled)
        if all(part.factor.is_constant for part in parts):
            inner = sum((part.factor * part.expr for part in parts), Expr.of(0))
            return (_maximum_by_parts if inner.terms == expr.terms else maximum_over)(inner, domain) + rest
        return sum((_maximum_of_sum(group, domain) for group in _connected(parts, coupled)), rest)
    finally:
        CONTEXT.set_max_operations(0)


def _connected(parts: Sequence[Product], coupled: Sequence[frozenset[Symbol]]) -> list[list[Product]]:
    """Products in groups. The steps of different groups vary independently, so the maxima of the groups add up."""
    step_groups = groups_of((*coupled, *(part.expr.steps for part in parts)))
    groups: dict[Symbol, list[Product]] = {}
    for part in parts:
        groups.setdefault(step_groups.of(min(part.expr.steps, key=str)), []).append(part)
    return list(groups.values())


def minimum_over(expr: Expr, domain: Domain) -> Expr:
    """The greatest lower bound of `expr` over `domain`, with the limits and errors of `maximum_over`."""
    return -maximum_over(-expr, domain)


def _exact_maximum(expr: Expr, domain: Domain) -> Expr:
    """The maximum; raises NonAffineError if `expr` is not affine, or if its maximum is not a single expression."""
    bounds = bounds_of(domain, expr)
    frame, parameters = Frame(domain.steps, bounds), Frame((), bounds)
    points = domain_set("", domain).align_params(frame.space)
    values = isl.Map.from_pw_aff(frame.expression(expr).intersect_domain(points)).range()
    if values.is_empty():
        return Expr.of(0)
    greatest = values.dim_max(0).project_domain_on_params()
    simple = _upper_bound(expr)  # the form of isl's result depends on isl's earlier work: ours is better if it is exact
    if parameters.expression(simple).project_domain_on_params().intersect_domain(greatest.domain()).is_equal(greatest):
        return simple
    return single_expression(greatest, parameters.box().params(), symbols_by_name((), bounds))


def _maximum_of_sum(parts: Sequence[Product], domain: Domain) -> Expr:
    """An upper bound of a sum of products: the sum of their maxima, or the sum by rising factors if that is less."""
    total = Expr.of(0)
    for part in parts:
        total = total + _maximum_of_product(part, domain)
    rising = _by_rising_factors(parts)
    if rising is None:
        return total
    other = Expr.of(0)
    for part in rising:
        other = other + _maximum_of_product(part, domain)
    if provably_nonnegative(other - total):
        return total
    return other if provably_nonnegative(total - other) else minimum(total, other)


def _maximum_of_product(part: Product, domain: Domain) -> Expr:
    if provably_nonnegative(part.factor):
        return part.factor * maximum_over(part.expr, domain)
    if provably_nonnegative(-part.factor):
        return part.factor * minimum_over(part.expr, domain)
    return maximum(part.factor * maximum_over(part.expr, domain), part.factor * minimum_over(part.expr, domain))


def _by_rising_factors(parts: Sequence[Product]) -> list[Product] | None:
    """The same sum with differences of factors: `B*x + y` is `(B - 1)*x + (x + y)`, where x and y may partly cancel.

    None for a single product, or if the order of the factors is not provable.
    """
    signed = [p if provably_nonnegative(p.factor) else Product(-p.factor, -p.expr) for p in parts]
    remaining, total, sums = list(signed), Expr.of(0), []
    while remaining:
        largest = next((p for p in remaining if all(provably_nonnegative(p.factor - q.factor) for q in remaining)), None)
        if largest is None or not provably_nonnegative(largest.factor):
            return None
        remaining.remove(largest)
        total = total + largest.expr
        sums.append((largest.factor, total))
    nexts = [factor for factor, _ in sums[1:]] + [Expr.of(0)]
    steps = [Product(factor - following, total) for (factor, total), following in zip(sums, nexts, strict=True)]
    return [p for p in steps if p.factor.terms] if len(parts) > 1 else None


def _maximum_by_parts(expr: Expr, domain: Domain) -> Expr:
    """An upper bound of a non-affine expression: for a min the least bound of its parts, else the sum of its terms' bounds."""
    rows = distribute(expr)
    if rows is None or rows == [[expr]]:
        return _interval(expr, lambda part: (minimum_over(part, domain), maximum_over(part, domain)))[1]
    return extreme((maximum(*(maximum_over(entry, domain) for entry in row)) for row in rows), -1)


def _upper_bound(expr: Expr) -> Expr:
    """A safe upper bound over all `0 <= step < bound`: if `expr` is a minimum, the least bound of its parts."""
    rows = distribute(expr)
    if rows is None:
        return _interval(expr)[1]
    return extreme((maximum(*(_interval(entry)[1] for entry in row)) for row in rows), -1)


Limits = Callable[[Expr], tuple[Expr, Expr]]


def _interval(expr: Expr, of_part: Limits | None = None) -> tuple[Expr, Expr]:
    """Safe (least, greatest) values of an expression over all `0 <= step < bound`, term by term.

    `of_part` gives these values for the expressions inside min, max and `//`; by default it is `_interval`.
    """
    low, high = Expr.of(0), Expr.of(0)
    for monomial, coefficient in expr.terms:
        least, greatest = Expr.of(1), Expr.of(1)
        for atom, power in monomial:
            a, b = _atom_interval(atom, of_part or _interval)
            if (len(monomial) > 1 or power > 1) and not provably_nonnegative(a):  # a product with a factor that may be negative
                raise NonAffineError(f"no upper bound is known for `{expr}`", hint=AFFINE_HINT)
            least, greatest = least * a**power, greatest * b**power
        low, high = (
            low + coefficient * (least if coefficient > 0 else greatest),
            high + coefficient * (greatest if coefficient > 0 else least),
        )
    return low, high


def _atom_interval(atom: Atom, of_part: Limits) -> tuple[Expr, Expr]:
    if isinstance(atom, Symbol):
        return (Expr.of(0), atom.bound_expr - 1) if atom.is_step else (atom.expr, atom.expr)
    if isinstance(atom, (Minimum, Maximum)):
        join = minimum if isinstance(atom, Minimum) else maximum
        lows, highs = zip(*map(of_part, atom.args), strict=True)
        return join(*lows), join(*highs)
    least, most = of_part(atom.denominator)
    if isinstance(atom, Modulo):
        return Expr.of(0), most - 1
    low, high = of_part(atom.numerator)
    if least.terms == most.terms:
        return low // most, high // most
    if not (provably_nonnegative(least - 1) and provably_nonnegative(low)):
        raise NonAffineError(f"no upper bound is known for `{atom}`", hint=AFFINE_HINT)
    return low // most, high // least


def outside(
    reader_domain: Domain, reader_condition: Bool, index: tuple[Index, ...], source_domain: Domain,
    bounds: Mapping[Symbol, int] | None = None,
) -> dict[str, int] | None:  # fmt: skip
    """Values of steps and bounds at which a read leaves the source's domain, or a range stops before it starts; None if nowhere.

    Without `bounds`, all bounds >= 1 are considered, small ones first; with `bounds`, only these.
    """
    reads = dependence("", reader_domain, "", source_domain, index, reader_condition)
    wrong = reads.subtract_range(domain_set("", source_domain)).domain()
    if any(isinstance(i, Range) for i in index):
        frame = Frame(reader_domain.steps, bounds_of(reader_domain, reader_condition, *index))
        readers = domain_set("", reader_domain, reader_condition)
        for read in index:
            if isinstance(read, Range):
                wrong = wrong.union(readers.intersect(frame.condition(read.stop < read.start)))
    return _sample(wrong, bounds)


def uncovered(domain: Domain, conditions: Iterable[Bool], bounds: Mapping[Symbol, int] | None = None) -> dict[str, int] | None:
    """Values of steps and bounds at a point of `domain` where none of `conditions` holds; None if all points are covered."""
    left = domain_set("", domain)
    for condition in conditions:
        left = left.subtract(domain_set("", domain, condition))
    return _sample(left, bounds)


@functools.lru_cache(maxsize=4096)
def never(domain: Domain, condition: Bool) -> bool:
    """Whether `condition` holds at no point of `domain`, whatever the bounds."""
    return domain_set("", domain, condition).is_empty()


@functools.lru_cache(maxsize=4096)
def shadow(domain: Domain, hidden: tuple[Symbol, ...], facts: Bool = TRUE) -> Bool:
    """Where a domain has points, whatever some steps are, as far as the parts of its condition without them do not say that.

    `facts` hold for all bounds. Conditions on bounds alone are left out. Raises NonAffineError.

    >>> i, j = Symbol("i", "I"), Symbol("j", "J")
    >>> shadow(Domain((i, j), j.expr >= i.expr + 2), (i,))
    j >= 2
    """
    domain = Domain(domain.steps, domain.condition & facts)
    steps, bounds, points = tuple(step for step in domain.steps if step not in hidden), bounds_of(domain), domain_set("", domain)
    frame = Frame(steps, bounds)
    told = (part for part in domain.condition.parts if part.symbols.isdisjoint(hidden))
    region = functools.reduce(isl.Set.intersect, map(frame.condition, told), frame.box())
    for place in reversed([place for place, step in enumerate(domain.steps) if step in hidden]):
        points = points.project_out(isl.dim_type.set, place, 1)
    condition = condition_within(points.reset_tuple_id(), region.reset_tuple_id(), symbols_by_name(steps, bounds))
    return conjunction(*(part for part in condition.parts if part.steps))


def _sample(points: isl.Set, bounds: Mapping[Symbol, int] | None) -> dict[str, int] | None:
    """The values at the least point of a set, parameters included; None if it is empty."""
    if points.is_empty():
        return None
    count = points.dim(isl.dim_type.param)
    names = [points.get_dim_name(isl.dim_type.param, k) for k in range(count)]
    names += [points.get_dim_name(isl.dim_type.set, k) for k in range(points.dim(isl.dim_type.set))]
    points = points.move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
    if bounds is not None:
        for symbol, value in bounds.items():
            if symbol.name in names[:count]:
                points = points.fix_val(isl.dim_type.set, names.index(symbol.name), isl.Val(value, CONTEXT))
    for low, high in _SMALL:
        small = points
        for k in range(count if bounds is None else 0):
            small = small.lower_bound_val(isl.dim_type.set, k, isl.Val(low, CONTEXT))
            if high is not None:
                small = small.upper_bound_val(isl.dim_type.set, k, isl.Val(high, CONTEXT))
        if not small.is_empty():
            point = small.lexmin().sample_point()
            return {n: point.get_coordinate_val(isl.dim_type.set, k).to_python() for k, n in enumerate(names)}
    return None
