"""Domains as integer sets of isl, and indices as relations. Bounds are parameters, assumed only to be at least 1."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

import islpy as isl

from tempo_core.errors import NonAffineError
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, Connective, Truth
from tempo_core.symbolic.domain import Domain, Index, Point
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol
from tempo_core.symbolic.proof import provably_nonnegative

P = ParamSpec("P")
R = TypeVar("R")

CONTEXT = isl.Context()  # one for the process: isl objects of two contexts cannot be combined
CONTEXT.set_ast_build_detect_min_max(1)
CONTEXT.set_on_error(isl.on_error.CONTINUE)

AFFINE_HINT = "add steps and bounds, multiply and divide them by ints only, and use tp.min and tp.max: tp.min(2 * t + 1, T)"


_MANY_PIECES = 16  # of a set
_MANY_TURNS = 9  # around a ring with a symbolic size


class Frame:
    """The isl space of points over some ordered steps, with parameters for bounds; turns expressions over them into isl.

    Steps are parameters too, if they are given as `bounds`.
    """

    def __init__(self, steps: tuple[Symbol, ...], bounds: Iterable[Symbol], name: str = ""):
        parameters = {b.name: b for b in bounds} | {s.bound: s.bound_symbol for s in steps if s.bound}
        names = sorted(parameters)
        space = isl.Space.create_from_names(CONTEXT, set=[s.name for s in steps], params=names)
        self.space = space.set_tuple_name(isl.dim_type.set, name) if name else space
        self._local = isl.LocalSpace.from_space(self.space)
        self._position = {parameters[n]: (isl.dim_type.param, k) for k, n in enumerate(names)}
        self._position.update({s: (isl.dim_type.set, k) for k, s in enumerate(steps)})
        self.steps = steps
        self._key = (steps, tuple(names), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def expression(self, expr: Expr) -> isl.PwAff:
        """The value of `expr` at each point. Raises NonAffineError, also for a step that the space does not have."""
        total: isl.PwAff | None = None
        linear = isl.Aff.zero_on_domain(self._local)
        for monomial, coefficient in expr.terms:
            if not monomial:
                linear = linear.add_constant_val(isl.Val(coefficient, CONTEXT))
                continue
            (atom, power), *others = monomial
            if others or power != 1:
                raise NonAffineError(
                    f"`{expr}` is not affine: it must be a sum of steps and bounds, each times an int", hint=AFFINE_HINT
                )
            if isinstance(atom, Symbol):
                if atom not in self._position:
                    raise NonAffineError(
                        f"`{expr}` uses `{atom}`, which is not a step here; the steps are {', '.join(s.name for s in self.steps) or 'none'}"
                    )
                kind, position = self._position[atom]
                kind = isl.dim_type.in_ if kind == isl.dim_type.set else kind
                linear = linear.add_coefficient_val(kind, position, isl.Val(coefficient, CONTEXT))
                continue
            value = self._atom(atom, expr)
            if coefficient != 1:
                value = value.scale_val(isl.Val(coefficient, CONTEXT))
            total = value if total is None else total.add(value)
        base = isl.PwAff.from_aff(linear)
        return base if total is None else total.add(base)

    def _atom(self, atom: Minimum | Maximum | FloorDivide | Modulo, expr: Expr) -> isl.PwAff:
        if isinstance(atom, (Minimum, Maximum)):
            parts = [self.expression(a) for a in atom.args]
            combine = isl.PwAff.min if isinstance(atom, Minimum) else isl.PwAff.max
            return functools.reduce(combine, parts)
        if not atom.denominator.is_constant:
            return self._by_turns(atom, expr)
        divisor = isl.Val(atom.denominator.constant, CONTEXT)
        numerator = self.expression(atom.numerator)
        return numerator.scale_down_val(divisor).floor() if isinstance(atom, FloorDivide) else numerator.mod_val(divisor)

    def _by_turns(self, atom: FloorDivide | Modulo, expr: Expr) -> isl.PwAff:
        """A division by an expression, such as `(t + 1) % T`: one piece for each quotient, if there are only a few."""
        n, d, turns = atom.numerator, atom.denominator, range(_MANY_TURNS)
        least = next((-k for k in turns if provably_nonnegative(n + k * d)), None)
        end = next((k for k in turns if provably_nonnegative(k * d - 1 - n)), None)
        if least is None or end is None or not provably_nonnegative(d - 1):
            raise NonAffineError(f"`{expr}` divides by an expression; the divisor must be an int", hint=AFFINE_HINT)
        pieces = []
        for quotient in range(least, end):
            rest = self.expression(n - quotient * d)
            inside = rest.nonneg_set().intersect(self.expression((quotient + 1) * d - 1 - n).nonneg_set())
            value = rest if isinstance(atom, Modulo) else self.expression(Expr.of(quotient))
            pieces.append(value.intersect_domain(inside))
        return functools.reduce(isl.PwAff.union_max, pieces)

    def condition(self, condition: Bool) -> isl.Set:
        """The points at which `condition` holds (not restricted to any domain), as a part of other sets."""
        return _where(self, condition)

    def box(self) -> isl.Set:
        """All points with `0 <= step < bound`, where every bound is at least 1."""
        limits: list[Expr] = []
        for symbol in self._position:
            limits.append(symbol.expr if symbol.is_step else symbol.expr - 1)
            limits += [symbol.bound_expr - 1 - symbol.expr] if symbol.bound else []
        each = (self.expression(limit).nonneg_set() for limit in limits)
        return functools.reduce(isl.Set.intersect, each, isl.Set.universe(self.space))


@functools.lru_cache(maxsize=4096)  # conditions of branches have parts in common
def _where(frame: Frame, condition: Bool) -> isl.Set:
    if isinstance(condition, Truth):
        return isl.Set.universe(frame.space) if condition.value else isl.Set.empty(frame.space)
    if isinstance(condition, Comparison):
        value = frame.expression(condition.expr)
        return {">=": value.nonneg_set, "==": value.zero_set, "!=": value.non_zero_set}[condition.kind]()
    if isinstance(condition, Connective):
        combine = _both if condition.all_hold else isl.Set.union
        return functools.reduce(combine, (_where(frame, part) for part in condition.args))
    raise AssertionError(f"unknown condition {condition!r}")


def _both(left: isl.Set, right: isl.Set) -> isl.Set:
    """The points of both sets. Many pieces are brought together: if k sets overlap themselves, as `t <= 2 | t <= 4 & t % 3 != 0`
    does, their intersection has 2**k pieces otherwise.
    """
    points = left.intersect(right)
    return coalesced(points) if points.n_basic_set() > _MANY_PIECES else points


def bounds_of(*parts: Domain | Bool | Expr | Index) -> frozenset[Symbol]:
    """All bounds that occur in some domains, conditions, expressions and indices."""
    symbols: set[Symbol] = set()
    for part in parts:
        if isinstance(part, Domain):
            symbols |= part.condition.symbols | set(part.steps)
        else:
            symbols |= part.symbols
    return frozenset(s.bound_symbol if s.bound else s for s in symbols)


def _shared_unless_named(build: Callable[P, R]) -> Callable[P, R]:
    """`build`, whose results for empty tuple names are kept and shared.

    isl changes how a set is written when it answers questions about it, and the schedule of a statement may depend on that. So the
    sets of statements, which have names, are new ones each time, and a program compiled again is the same program.
    """
    shared = cast(Callable[P, R], functools.lru_cache(maxsize=4096)(build))

    @functools.wraps(build)
    def built(*args: P.args, **options: P.kwargs) -> R:
        named = any(isinstance(argument, str) and argument for argument in args)
        return (build if named else shared)(*args, **options)

    return built


@_shared_unless_named
def domain_set(name: str, domain: Domain, condition: Bool = TRUE) -> isl.Set:
    """The points of `domain` at which `condition` also holds, as a set with the tuple name `name`.

    >>> t = Symbol("t", "T")
    >>> domain_set("x", Domain((t,)), t.expr >= 3).is_equal(isl.Set.read_from_str(CONTEXT, "[T] -> { x[t] : 3 <= t < T }"))
    True
    """
    named = _points(domain, condition).set_tuple_name(name or "points")
    return named if name else named.reset_tuple_id()


@functools.lru_cache(maxsize=4096)
def _points(domain: Domain, condition: Bool) -> isl.Set:
    """As `domain_set`, for all statements with these points. Only `domain_set` uses it, and asks it nothing (see above)."""
    frame = Frame(domain.steps, bounds_of(domain, condition))
    points = frame.box()
    for part in (domain.condition, condition):
        if part is not TRUE:
            points = points.intersect(frame.condition(part))
    return points


@_shared_unless_named
def dependence(
    reader_name: str,
    reader_domain: Domain,
    source_name: str,
    source_domain: Domain,
    index: tuple[Index, ...],
    condition: Bool = TRUE,
) -> isl.Map:
    """The relation of reader points to the source points that they read through `index`.

    `condition` (in the reader's steps) holds at the reader points. The relation is not restricted to the source's domain, so
    that it shows reads outside of the domain.

    >>> t = Symbol("t", "T")
    >>> from tempo_core.symbolic.domain import Range
    >>> past = (Range(Expr.of(0), t.expr + 1),)
    >>> text = "[T] -> { y[t] -> x[s] : t < T and 0 <= s <= t }"
    >>> dependence("y", Domain((t,)), "x", Domain((t,)), past).is_equal(isl.Map.read_from_str(CONTEXT, text))
    True
    """
    bounds = bounds_of(reader_domain, source_domain, condition, *index)
    reader, source = Frame(reader_domain.steps, bounds, reader_name), Frame(source_domain.steps, bounds, source_name)
    reads = isl.Map.from_domain_and_range(domain_set(reader_name, reader_domain, condition), isl.Set.universe(source.space))
    return reads.intersect(indexed(reader, source, source_domain.steps, index))


def indexed(reader: Frame, source: Frame, steps: Sequence[Symbol], index: Sequence[Index]) -> isl.Map:
    """The relation of the points of a frame to those that an index over the steps of another frame reads."""
    reads = isl.Map.universe(reader.space.map_from_domain_and_range(source.space))
    for step, read in zip(steps, index, strict=True):
        point = source.expression(step.expr)
        if isinstance(read, Point):
            reads = reads.intersect(reader.expression(read.expr).eq_map(point))
            continue
        for start in _conjuncts(read.start, Maximum):
            reads = reads.intersect(reader.expression(start).le_map(point))
        for stop in _conjuncts(read.stop, Minimum):
            reads = reads.intersect(reader.expression(stop).gt_map(point))
        if read.stride != 1:
            stride = isl.Val(read.stride, CONTEXT)
            reads = reads.intersect(reader.expression(read.start).mod_val(stride).eq_map(point.mod_val(stride)))
    return reads


def _conjuncts(limit: Expr, kind: type[Minimum] | type[Maximum]) -> tuple[Expr, ...]:
    """Limits that together mean `limit`: below `min(a, b)` is below a and below b. With them the relation stays in one piece."""
    for atom in limit.atoms:
        if isinstance(atom, kind) and limit.coefficient(atom) == 1:
            return tuple(part + (limit - Expr.of_atom(atom)) for part in atom.args)
    return (limit,)


S = TypeVar("S", isl.Map, isl.Set, isl.BasicSet)


def at_bounds(relation: S, bounds: Mapping[Symbol, int]) -> S:
    """The part of a relation or set for these bounds."""
    for k in range(relation.dim(isl.dim_type.param)):
        bound = Symbol(relation.get_dim_name(isl.dim_type.param, k))
        relation = relation.fix_val(isl.dim_type.param, k, isl.Val(bounds[bound], CONTEXT))
    return relation


def fixed(relation: S, bounds: Mapping[Symbol, int]) -> S:
    """A relation or set with its parameters replaced by numbers."""
    return at_bounds(relation, bounds).project_out_all_params()


def coalesced(points: isl.Set) -> isl.Set:
    """The same points in as few pieces as isl sees, and in the same pieces each time.

    isl coalesces a set that was put together from other sets in one way or another, by chance, also within one process. A set that is
    read from its text has only one way. So a program that is compiled again is the same program.
    """
    if points.n_basic_set() < 2:
        return points
    places = [(kind, k) for kind in (isl.dim_type.param, isl.dim_type.set) for k in range(points.dim(kind))]
    names = [points.get_dim_name(*place) for place in places]
    for number, place in enumerate(places):  # isl cannot read a step that is called `mod`
        points = points.set_dim_name(*place, f"x{number}")
    points = isl.Set.read_from_str(CONTEXT, str(points)).coalesce()
    for place, name in zip(places, names, strict=True):
        points = points.set_dim_name(*place, name)
    return points
