"""From isl's expressions and sets to our own: its ASTs, and functions of parameters as one `Expr`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import islpy as isl

from tempo_core.errors import NonAffineError
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, conjunction, disjunction
from tempo_core.symbolic.expr import Expr, Monomial, Symbol, maximum, minimum
from tempo_core.symbolic.isl.sets import CONTEXT, coalesced

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


def affine_expression(affine: isl.Aff, steps: Sequence[Symbol], bounds: Sequence[Symbol]) -> Expr | None:
    """An affine function of steps, with bounds as parameters, as an expression; None if it divides."""
    if affine.dim(isl.dim_type.div) or not affine.get_constant_val().is_int():
        return None
    terms: dict[Monomial, int] = {(): affine.get_constant_val().to_python()}
    for kind, symbols in ((isl.dim_type.in_, steps), (isl.dim_type.param, bounds)):
        for k, symbol in enumerate(symbols):
            terms[(symbol, 1),] = affine.get_coefficient_val(kind, k).to_python()
    return Expr.of_terms(terms)


def as_parameters(value: isl.Set | isl.PwAff) -> isl.Set | isl.PwAff:
    """The same set or function with its steps turned into parameters, as isl's AST builder needs them."""
    steps = isl.dim_type.in_ if isinstance(value, isl.PwAff) else isl.dim_type.set
    names = [value.get_dim_name(steps, k) for k in range(value.dim(steps))]
    first = value.dim(isl.dim_type.param)
    if isinstance(value, isl.PwAff):
        value = value.reset_tuple_id(steps)
    elif value.has_tuple_name():
        value = value.reset_tuple_id()
    value = value.move_dims(isl.dim_type.param, first, steps, 0, len(names))
    for k, name in enumerate(names):
        value = value.set_dim_id(isl.dim_type.param, first + k, isl.Id(name, context=CONTEXT))
    return value.project_domain_on_params() if isinstance(value, isl.PwAff) else value.params()


def symbols_by_name(steps: Iterable[Symbol], bounds: Iterable[Symbol]) -> dict[str, Expr]:
    return {s.name: s.expr for s in (*bounds, *steps)}


def single_expression(value: isl.PwAff, context: isl.Set, symbols: Mapping[str, Expr]) -> Expr:
    """`value`, a function of parameters only, as one expression that is right in `context`. Raises NonAffineError."""
    value = value.gist(context).coalesce()
    build = isl.AstBuild.from_context(context)
    try:
        return expression_from_ast(build.expr_from_pw_aff(value), symbols)
    except NonAffineError:
        pieces = [isl.PwAff.from_aff(piece) for _, piece in value.get_pieces()]
        for count in range(1, min(len(pieces), 4) + 1):  # isl sees a min or max only if no piece is superfluous
            for subset in itertools.combinations(pieces, count):
                for combine, join in ((isl.PwAff.min, minimum), (isl.PwAff.max, maximum)):
                    if functools.reduce(combine, subset).intersect_domain(value.domain()).is_equal(value):
                        return join(*(expression_from_ast(build.expr_from_pw_aff(piece), symbols) for piece in subset))
        raise


def condition_within(points: isl.Set, region: isl.Set, symbols: Mapping[str, Expr]) -> Bool:
    """The condition under which a point of `region` is in `points`."""
    condition = coalesced(coalesced(points).gist(region))
    if condition.is_equal(isl.Set.universe(condition.get_space())):
        return TRUE
    build = isl.AstBuild.from_context(as_parameters(region))
    return condition_from_ast(build.expr_from_set(as_parameters(condition)), symbols)
