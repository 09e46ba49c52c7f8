"""Reads expressions and conditions from their printed text: `min(t + 5, T)`, `(t >= 1) & (i == 0)`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tempo_core.symbolic.condition import FALSE, TRUE, Bool, conjunction, disjunction
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum

Kind = TypeVar("Kind", Expr, Bool)
_KIND_NAMES = {True: "an expression", False: "a condition"}

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Bool]] = {
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[..., Expr]] = {"min": minimum, "max": maximum}
_TRUTHS: dict[str, Bool] = {"true": TRUE, "false": FALSE}


def parse(text: str, symbols: Mapping[str, Symbol]) -> Expr | Bool:
    """The expression or condition in `text`, over the named `symbols`. Raises `ValueError` if `text` is neither."""
    try:
        return _build(ast.parse(text.strip(), mode="eval").body, symbols)
    except SyntaxError:
        raise ValueError(f"`{text}` is not an expression of steps and bounds") from None


def parse_expr(text: str, symbols: Mapping[str, Symbol]) -> Expr:
    """`text` as an integer expression, such as `t*T + 1`."""
    return _expect(Expr, parse(text, symbols), text)


def parse_bool(text: str, symbols: Mapping[str, Symbol]) -> Bool:
    """`text` as a condition, such as `t >= 1`."""
    return _expect(Bool, parse(text, symbols), text)


def _build(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Any:
    match tree:
        case ast.Name(id=name) if name in symbols:
            return Expr.of(symbols[name])
        case ast.Name(id=name) if name in _TRUTHS:
            return _TRUTHS[name]
        case ast.Name(id=name):
            raise ValueError(f"unknown step or bound `{name}`; there are {', '.join(symbols) or 'none'}")
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return Expr.of(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, symbols)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return ~_truth(operand, symbols)
        case ast.BinOp(op=ast.Pow(), left=base, right=ast.Constant(value=int(power))):
            return _number(base, symbols) ** power
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_number(left, symbols), _number(right, symbols))
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            return conjunction(_truth(left, symbols), _truth(right, symbols))
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return disjunction(_truth(left, symbols), _truth(right, symbols))
        case ast.Compare(ops=[sign], left=left, comparators=[right]) if type(sign) in _COMPARE:
            return _COMPARE[type(sign)](_number(left, symbols), _number(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLS:
            return _CALLS[name](*(_number(arg, symbols) for arg in args))
    raise ValueError(f"`{ast.unparse(tree)}` is not an expression of steps and bounds")


def _number(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Expr:
    return _expect(Expr, _build(tree, symbols), ast.unparse(tree))


def _truth(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Bool:
    return _expect(Bool, _build(tree, symbols), ast.unparse(tree))


def _expect(kind: type[Kind], value: Expr | Bool, text: str) -> Kind:
    if not isinstance(value, kind):
        raise ValueError(f"`{text}` is {_KIND_NAMES[type(value) is Expr]}, and {_KIND_NAMES[kind is Expr]} is needed here")
    return value
