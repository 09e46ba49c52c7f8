"""Dependences as isl relations: which points read which, their inverses, bounds, and samples of what goes wrong.

Domains become integer sets, indices become relations; bounds stay parameters, known to be at least 1 and nothing more.
Results come back as `Expr` and `Bool`. Besides `schedule/`, this is the only place that imports islpy.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import islpy as isl

from tempo_core.errors import GradientError, NonAffineError
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, Comparison, Conjunction, Disjunction, Truth, conjunction, disjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, index_steps
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol, maximum, minimum
from tempo_core.symbolic.proof import distribute

CONTEXT = isl.Context()  # one for the process: isl objects of different contexts must not meet
CONTEXT.set_ast_build_detect_min_max(1)
CONTEXT.set_on_error(isl.on_error.CONTINUE)

_AFFINE_HINT = "use sums of steps and bounds, integer multiples, //, % by numbers, min and max"
_SMALL = ((2, 5), (2, None), (1, None))  # ranges of bounds to look for samples in, the most readable first

# -- expressions and conditions to isl --------------------------------------------------------------------------------


class Frame:
    """The isl space of points over some ordered steps, with parameters for bounds; turns expressions over them into isl."""

    def __init__(self, steps: tuple[Symbol, ...], bounds: Iterable[Symbol], name: str = ""):
        names = sorted({b.name for b in bounds} | {s.bound for s in steps if s.bound})
        space = isl.Space.create_from_names(CONTEXT, set=[s.name for s in steps], params=names)
        self.space = space.set_tuple_name(isl.dim_type.set, name) if name else space
        self._local = isl.LocalSpace.from_space(self.space)
        self._position = {Symbol(n): (isl.dim_type.param, k) for k, n in enumerate(names)}
        self._position.update({s: (isl.dim_type.set, k) for k, s in enumerate(steps)})
        self.steps = steps

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
                raise NonAffineError(f"`{expr}` is not affine in the steps", hint=_AFFINE_HINT)
            if isinstance(atom, Symbol):
                if atom not in self._position:
                    raise NonAffineError(
                        f"`{expr}` uses `{atom}`, which is no step here; there are {[s.name for s in self.steps]}"
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
            raise NonAffineError(f"`{expr}` divides by something that is not a number", hint=_AFFINE_HINT)
        divisor = isl.Val(atom.denominator.constant, CONTEXT)
        numerator = self.expression(atom.numerator)
        return numerator.scale_down_val(divisor).floor() if isinstance(atom, FloorDivide) else numerator.mod_val(divisor)

    def condition(self, condition: Bool) -> isl.Set:
        """The points at which `condition` holds (not restricted to any domain)."""
        if isinstance(condition, Truth):
            return isl.Set.universe(self.space) if condition.value else isl.Set.empty(self.space)
        if isinstance(condition, Comparison):
            value = self.expression(condition.expr)
            return {">=": value.nonneg_set, "==": value.zero_set, "!=": value.non_zero_set}[condition.kind]()
        if isinstance(condition, (Conjunction, Disjunction)):
            combine = isl.Set.intersect if isinstance(condition, Conjunction) else isl.Set.union
            return functools.reduce(combine, map(self.condition, condition.args))
        raise AssertionError(f"unknown condition {condition!r}")

    def box(self) -> isl.Set:
        """All points with `0 <= step < bound`, where every bound is at least 1."""
        basic = isl.BasicSet.universe(self.space)
        one = isl.Val(1, CONTEXT)
        for symbol, (kind, position) in self._position.items():
            at_least = isl.Constraint.inequality_alloc(self._local).set_coefficient_val(kind, position, one)
            if not symbol.is_step:
                basic = basic.add_constraint(at_least.set_constant_val(isl.Val(-1, CONTEXT)))
                continue
            basic = basic.add_constraint(at_least)
            if symbol.bound:
                below = isl.Constraint.inequality_alloc(self._local).set_coefficient_val(kind, position, isl.Val(-1, CONTEXT))
                below = below.set_coefficient_val(*self._position[Symbol(symbol.bound)], one)
                basic = basic.add_constraint(below.set_constant_val(isl.Val(-1, CONTEXT)))
        return isl.Set.from_basic_set(basic)


def bounds_of(*parts: Domain | Bool | Expr | Index) -> frozenset[Symbol]:
    """All bounds that occur in some domains, conditions, expressions and indices."""
    found: set[Symbol] = set()
    for part in parts:
        if isinstance(part, Domain):
            found |= part.condition.symbols | set(part.steps)
        elif isinstance(part, Point):
            found |= part.expr.symbols
        elif isinstance(part, Range):
            found |= part.start.symbols | part.stop.symbols
        else:
            found |= part.symbols
    return frozenset(Symbol(s.bound) if s.bound else s for s in found)


@functools.lru_cache(maxsize=4096)
def domain_set(name: str, domain: Domain, condition: Bool = TRUE) -> isl.Set:
    """The points of `domain` at which `condition` also holds, as a set with the tuple name `name`.

    >>> t = Symbol("t", "T")
    >>> domain_set("x", Domain((t,)), t.expr >= 3).is_equal(isl.Set.read_from_str(CONTEXT, "[T] -> { x[t] : 3 <= t < T }"))
    True
    """
    frame = Frame(domain.steps, bounds_of(domain, condition), name)
    points = frame.box()
    for part in (domain.condition, condition):
        if part is not TRUE:
            points = points.intersect(frame.condition(part))
    return points


@functools.lru_cache(maxsize=4096)
def dependence(
    reader_name: str,
    reader_domain: Domain,
    source_name: str,
    source_domain: Domain,
    index: tuple[Index, ...],
    condition: Bool = TRUE,
) -> isl.Map:
    """Reader points to the source points that they read through `index`, where `condition` (in the reader's steps) holds.

    Not restricted to the source's domain, so that reads outside of it can be seen.

    >>> t = Symbol("t", "T")
    >>> window = (Range(t.expr, minimum(t.expr + 5, t.bound_expr)),)
    >>> text = "[T] -> { y[t] -> x[s] : t >= 0 and t <= s < T and s < t + 5 }"
    >>> dependence("y", Domain((t,)), "x", Domain((t,)), window).is_equal(isl.Map.read_from_str(CONTEXT, text))
    True
    """
    bounds = bounds_of(reader_domain, source_domain, condition, *index)
    reader, source = Frame(reader_domain.steps, bounds, reader_name), Frame(source_domain.steps, bounds, source_name)
    reads = isl.Map.from_domain_and_range(domain_set(reader_name, reader_domain, condition), isl.Set.universe(source.space))
    for step, read in zip(source_domain.steps, index, strict=True):
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
    """Limits that together say the same: below `min(a, b)` is below a and below b, which keeps the relation one piece."""
    for atom in limit.atoms:
        if isinstance(atom, kind) and limit.coefficient(atom) == 1:  # type: ignore[arg-type]
            return tuple(part + (limit - Expr.of_atom(atom)) for part in atom.args)
    return (limit,)


# -- isl to expressions and conditions --------------------------------------------------------------------------------

_OP = isl.ast_expr_op_type


def expression_from_ast(tree: isl.AstExpr, symbols: Mapping[str, Expr]) -> Expr:
    """The `Expr` of an isl AST expression; `symbols` gives the meaning of its identifiers. Raises NonAffineError for `?:`."""
    kind = tree.get_type()
    if kind == isl.ast_expr_type.int:
        return Expr.of(tree.get_val().to_python())
    if kind == isl.ast_expr_type.id:
        return symbols[tree.get_id().get_name()]
    operation = tree.get_op_type()
    if operation not in _EXPRESSIONS:
        raise NonAffineError(f"`{tree.to_C_str()}` has no symbolic expression")
    return _EXPRESSIONS[operation](*(expression_from_ast(tree.get_op_arg(k), symbols) for k in range(tree.get_op_n_arg())))


_EXPRESSIONS: dict[object, Callable[..., Expr]] = {
    _OP.add: lambda a, b: a + b,
    _OP.sub: lambda a, b: a - b,
    _OP.mul: lambda a, b: a * b,
    _OP.minus: lambda a: -a,
    _OP.min: minimum,
    _OP.max: maximum,
    _OP.div: lambda a, b: a // b,
    _OP.fdiv_q: lambda a, b: a // b,
    _OP.pdiv_q: lambda a, b: a // b,
    _OP.pdiv_r: lambda a, b: a % b,
    _OP.zdiv_r: lambda a, b: a % b,
}
_COMPARISONS: dict[object, Callable[[Expr, Expr], Bool]] = {
    _OP.eq: lambda a, b: a == b,
    _OP.ge: lambda a, b: a >= b,
    _OP.gt: lambda a, b: a > b,
    _OP.le: lambda a, b: a <= b,
    _OP.lt: lambda a, b: a < b,
}
_CONNECTIVES: dict[object, Callable[..., Bool]] = {
    _OP.and_: conjunction,
    _OP.and_then: conjunction,
    _OP.or_: disjunction,
    _OP.or_else: disjunction,
}


def condition_from_ast(tree: isl.AstExpr, symbols: Mapping[str, Expr]) -> Bool:
    """The `Bool` of an isl AST condition."""
    if tree.get_type() == isl.ast_expr_type.int:
        return TRUE if tree.get_val().to_python() else FALSE
    operation = tree.get_op_type()
    arguments = [tree.get_op_arg(k) for k in range(tree.get_op_n_arg())]
    if operation in _CONNECTIVES:
        return _CONNECTIVES[operation](*(condition_from_ast(a, symbols) for a in arguments))
    if operation in _COMPARISONS:
        return _COMPARISONS[operation](*(expression_from_ast(a, symbols) for a in arguments))
    raise NonAffineError(f"`{tree.to_C_str()}` has no symbolic condition")


def _as_parameters(value: isl.Set | isl.PwAff) -> isl.Set | isl.PwAff:
    """The same set or function with its steps made parameters, which is what isl's AST builder talks about."""
    if isinstance(value, isl.PwAff):
        count = value.dim(isl.dim_type.in_)
        names = [value.get_dim_name(isl.dim_type.in_, k) for k in range(count)]
        value = value.reset_tuple_id(isl.dim_type.in_)
        value = value.move_dims(isl.dim_type.param, value.dim(isl.dim_type.param), isl.dim_type.in_, 0, count)
        first = value.dim(isl.dim_type.param) - count
        for k, name in enumerate(names):
            value = value.set_dim_id(isl.dim_type.param, first + k, isl.Id(name, context=CONTEXT))
        return value.project_domain_on_params()
    count = value.dim(isl.dim_type.set)
    names = [value.get_dim_name(isl.dim_type.set, k) for k in range(count)]
    value = value.reset_tuple_id() if value.has_tuple_name() else value
    value = value.move_dims(isl.dim_type.param, value.dim(isl.dim_type.param), isl.dim_type.set, 0, count)
    first = value.dim(isl.dim_type.param) - count
    for k, name in enumerate(names):
        value = value.set_dim_id(isl.dim_type.param, first + k, isl.Id(name, context=CONTEXT))
    return value.params()


def _names(steps: Iterable[Symbol], bounds: Iterable[Symbol]) -> dict[str, Expr]:
    return {s.name: s.expr for s in (*bounds, *steps)}


def _expression(value: isl.PwAff, context: isl.Set, symbols: Mapping[str, Expr]) -> Expr:
    """`value`, a function of parameters alone, as one expression that is right in `context`. Raises NonAffineError."""
    value = value.gist(context).coalesce()
    build = isl.AstBuild.from_context(context)
    try:
        return expression_from_ast(build.expr_from_pw_aff(value), symbols)
    except NonAffineError:
        pieces = [isl.PwAff.from_aff(piece) for _, piece in value.get_pieces()]
        for count in range(1, min(len(pieces), 4) + 1):  # isl sees a min or max only where no piece is superfluous
            for some in itertools.combinations(pieces, count):
                for combine, join in ((isl.PwAff.min, minimum), (isl.PwAff.max, maximum)):
                    if functools.reduce(combine, some).intersect_domain(value.domain()).is_equal(value):
                        return join(*(expression_from_ast(build.expr_from_pw_aff(piece), symbols) for piece in some))
        raise


# -- questions --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def maximum_over(expr: Expr, domain: Domain) -> Expr:
    """The least upper bound of `expr` over `domain`, in bounds only; a looser one where that is no single expression.

    Raises NonAffineError where `expr` is not affine and no simple bound is safe.

    >>> t, T = Symbol("t", "T").expr, Symbol("T").expr
    >>> maximum_over(minimum(t + 5, T) - t, Domain((Symbol("t", "T"),)))
    min(5, T)
    """
    if not expr.steps:
        return expr
    if domain.condition is TRUE:
        domain = Domain(tuple(s for s in domain.steps if s in expr.steps))
    bounds = bounds_of(domain, expr)
    try:
        frame, parameters = Frame(domain.steps, bounds), Frame((), bounds)
        points = domain_set("", domain).align_params(frame.space)
        values = isl.Map.from_pw_aff(frame.expression(expr).intersect_domain(points)).range()
        if values.is_empty():
            return Expr.of(0)
        greatest = values.dim_max(0).project_domain_on_params()
        simple = _upper_bound(
            expr
        )  # the text that isl makes of its result depends on what it did before: take ours where it is exact
        if parameters.expression(simple).project_domain_on_params().intersect_domain(greatest.domain()).is_equal(greatest):
            return simple
        return _expression(greatest, parameters.box().params(), _names((), bounds))
    except NonAffineError:
        return _upper_bound(expr)


def _upper_bound(expr: Expr) -> Expr:
    """A safe upper bound over all `0 <= step < bound`: the least of those of what `expr` is a minimum of."""
    rows = distribute(expr)
    if rows is None:
        return _interval(expr)[1]
    return minimum(*(maximum(*(_interval(entry)[1] for entry in row)) for row in rows))


def _interval(expr: Expr) -> tuple[Expr, Expr]:
    """Safe (least, greatest) values of an expression over all `0 <= step < bound`, term by term."""
    low, high = Expr.of(0), Expr.of(0)
    for monomial, coefficient in expr.terms:
        least, greatest = Expr.of(1), Expr.of(1)
        for atom, power in monomial:
            a, b = _atom_interval(atom)
            known_sign = (a.is_constant and a.constant >= 0) or isinstance(a.single_atom, Symbol)
            if (len(monomial) > 1 or power > 1) and not known_sign:  # a product with what may be negative
                raise NonAffineError(f"no upper bound is known for `{expr}`", hint=_AFFINE_HINT)
            least, greatest = least * a**power, greatest * b**power
        low, high = (
            low + coefficient * (least if coefficient > 0 else greatest),
            high + coefficient * (greatest if coefficient > 0 else least),
        )
    return low, high


def _atom_interval(atom: Symbol | Minimum | Maximum | FloorDivide | Modulo) -> tuple[Expr, Expr]:
    if isinstance(atom, Symbol):
        return (Expr.of(0), atom.bound_expr - 1) if atom.is_step else (atom.expr, atom.expr)
    if isinstance(atom, (Minimum, Maximum)):
        join = minimum if isinstance(atom, Minimum) else maximum
        lows, highs = zip(*map(_interval, atom.args), strict=True)
        return join(*lows), join(*highs)
    if not atom.denominator.is_constant:
        raise NonAffineError(f"no upper bound is known for `{atom}`", hint=_AFFINE_HINT)
    if isinstance(atom, Modulo):
        return Expr.of(0), atom.denominator - 1
    low, high = _interval(atom.numerator)
    return low // atom.denominator, high // atom.denominator


@dataclass(frozen=True)
class Inverse:
    """Who reads a source point: one point or range per step of the reader, in the *source's* steps, where `condition` holds."""

    index: tuple[Index, ...]
    condition: Bool


@functools.lru_cache(maxsize=4096)
def invert(reader_domain: Domain, index: tuple[Index, ...], source_domain: Domain) -> Inverse:
    """The dependence reversed: the reader points that read a given source point.

    Raises GradientError where they are not an independent range (evenly strided) per reader step.

    >>> t = Symbol("t", "T")
    >>> invert(Domain((t,)), (Range(t.expr, Symbol("T").expr),), Domain((t,)))
    Inverse(index=(Range(start=0, stop=t + 1, stride=1, size=None),), condition=true)
    """
    bounds = bounds_of(reader_domain, source_domain, *index)
    reads = dependence("", reader_domain, "", source_domain, index).intersect_range(domain_set("", source_domain))
    readers = reads.reverse()
    if readers.is_empty():
        nowhere = tuple(full_range(s) for s in reader_domain.steps)
        return Inverse(nowhere, FALSE)
    symbols = _names(source_domain.steps, bounds)
    rank = len(reader_domain.steps)
    strides = (1, *sorted({i.stride for i in index if isinstance(i, Range)} - {1}))
    found: list[Index] = []
    whole: isl.Map | None = None
    for k, step in enumerate(reader_domain.steps):
        along = readers.project_out(isl.dim_type.out, k + 1, rank - k - 1).project_out(isl.dim_type.out, 0, k).coalesce()
        whole = along if whole is None else whole.flat_range_product(along)
        found.append(_inverse_step(step, along, index, reader_domain, strides, symbols, step in index_steps(index)))
    if whole is not None and not whole.is_subset(readers):
        raise _not_invertible(index, reader_domain)
    read = readers.domain()
    known = domain_set("", source_domain).intersect_params(Frame((), bounds).box().params())
    return Inverse(tuple(found), condition_within(read, known, symbols))


def _inverse_step(
    step: Symbol, along: isl.Map, index: tuple[Index, ...], reader_domain: Domain, strides: tuple[int, ...],
    symbols: Mapping[str, Expr], used: bool,
) -> Index:  # fmt: skip
    """`along` (source point to values of one reader step) as a point or range."""
    lowest, highest = along.lexmin().as_pw_multi_aff().get_pw_aff(0), along.lexmax().as_pw_multi_aff().get_pw_aff(0)
    context = _as_parameters(along.domain())
    try:
        start = _expression(_as_parameters(lowest), context, symbols)
        if lowest.is_equal(highest):
            return Point(start)
        last = (
            step.bound_expr - 1
            if not used and reader_domain.condition is TRUE
            else _expression(_as_parameters(highest), context, symbols)
        )
    except NonAffineError:
        raise _not_invertible(index, reader_domain) from None
    local = isl.LocalSpace.from_space(along.range().get_space())
    value = isl.PwAff.var_on_domain(local, isl.dim_type.set, 0)
    between = lowest.le_map(value).intersect(highest.ge_map(value))
    for stride in strides:
        points = between
        if stride != 1:
            modulus = isl.Val(stride, CONTEXT)
            points = between.intersect(lowest.mod_val(modulus).eq_map(value.mod_val(modulus)))
        if points.is_subset(along):
            return Range(start, _after(last), stride)
    raise _not_invertible(index, reader_domain)


def _after(last: Expr) -> Expr:
    """`last + 1`, moved into a min or max: `min(t + 3, T - 1) + 1` is better read as `min(t + 4, T)`."""
    for atom in last.atoms:
        if isinstance(atom, (Minimum, Maximum)) and (last - Expr.of_atom(atom)).is_constant:
            more = (last - Expr.of_atom(atom)).constant + 1
            return (minimum if isinstance(atom, Minimum) else maximum)(*(a + more for a in atom.args))
    return last + 1


def _not_invertible(index: tuple[Index, ...], reader_domain: Domain) -> GradientError:
    text = ", ".join(map(str, index))
    return GradientError(
        f"the reads [{text}] at {reader_domain} have no gradient: the points that read one value are not a range per step",
        hint="read through indices that move with one step each, such as t - 3, 0:t + 1 or t:min(t + 5, T)",
    )


def condition_within(points: isl.Set, known: isl.Set, symbols: Mapping[str, Expr]) -> Bool:
    """When a point that is in `known` is in `points`."""
    needed = points.coalesce().gist(known).coalesce()
    if needed.is_equal(isl.Set.universe(needed.get_space())):
        return TRUE
    build = isl.AstBuild.from_context(_as_parameters(known))
    return condition_from_ast(build.expr_from_set(_as_parameters(needed)), symbols)


def outside(
    reader_domain: Domain, reader_condition: Bool, index: tuple[Index, ...], source_domain: Domain,
    bounds: Mapping[Symbol, int] | None = None,
) -> dict[str, int] | None:  # fmt: skip
    """Values of steps and bounds at which a read leaves the source's domain, or a range stops before it starts; None if nowhere.

    Without `bounds` all bounds >= 1 are considered, small ones first; with them, those alone.
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


def never(domain: Domain, condition: Bool) -> bool:
    """Whether `condition` holds at no point of `domain`, whatever the bounds."""
    return domain_set("", domain, condition).is_empty()


def fixed(relation: isl.Map, bounds: Mapping[Symbol, int]) -> isl.Map:
    """A relation with its parameters replaced by numbers."""
    values = {symbol.name: value for symbol, value in bounds.items()}
    for k in range(relation.dim(isl.dim_type.param)):
        name = relation.get_dim_name(isl.dim_type.param, k)
        relation = relation.fix_val(isl.dim_type.param, k, isl.Val(values[name], CONTEXT))
    return relation.project_out_all_params()


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
