"""Formulas as Python's syntax trees: `ast` writes them as text, and two tables of templates as LaTeX and MathML."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

LOOSE, COMPARED, SUM, PRODUCT, POWER, ATOM = range(6)  # how tightly an operation binds its operands
DOTS = ast.Name("...")


@dataclass(frozen=True)
class Formula:
    """An expression, or a module of assignments: equations that hold together."""

    tree: ast.AST

    @property
    def text(self) -> str:
        """As in Python, a line for each equation: `w[i + 1] = w[i] - 0.01 * slope[i]`."""
        return ast.unparse(self.tree)

    @property
    def latex(self) -> str:
        return _written(self.tree, LATEX)

    @property
    def mathml(self) -> str:
        """One element, which browsers show without a script."""
        return _written(self.tree, MATHML)


# By operator: its sign in LaTeX and in MathML, how it binds, and how a right operand without parentheses binds at least; a left one binds
# as the operator does, but in comparisons.
SIGNS: Mapping[type[ast.AST], tuple[str, str, int, int]] = {
    ast.Add: ("+", "+", SUM, PRODUCT),
    ast.Sub: ("-", "−", SUM, PRODUCT),
    ast.USub: ("-", "−", SUM, PRODUCT),
    ast.Mult: (r"\cdot", "·", PRODUCT, POWER),
    ast.MatMult: (r"\,", "&#8290;", PRODUCT, POWER),
    ast.FloorDiv: (r"/\!/", "//", PRODUCT, POWER),
    ast.Mod: (r"\bmod", "mod", PRODUCT, POWER),
    ast.Eq: ("=", "=", COMPARED, SUM),
    ast.NotEq: (r"\ne", "≠", COMPARED, SUM),
    ast.Lt: ("<", "&lt;", COMPARED, SUM),
    ast.LtE: (r"\le", "≤", COMPARED, SUM),
    ast.Gt: (">", "&gt;", COMPARED, SUM),
    ast.GtE: (r"\ge", "≥", COMPARED, SUM),
    ast.BitAnd: (r"\land", "∧", COMPARED, ATOM),
    ast.BitOr: (r"\lor", "∨", COMPARED, ATOM),
    ast.BitXor: (r"\oplus", "⊕", COMPARED, ATOM),
    ast.Invert: (r"\lnot", "¬", COMPARED, ATOM),
}
LATEX = {
    ast.Name: "%s", ast.Tuple: r",\, ", ast.Slice: ":", ast.Subscript: "{%s}_{%s}", ast.Attribute: r"{%s}^{\top}", ast.Call: r"%s\left(%s\right)",
    ast.Div: r"\frac{%s}{%s}", ast.Pow: "{%s}^{%s}", ast.BinOp: "%s %s %s", ast.UnaryOp: "%s %s", ast.Assign: "%s = %s",
    ast.IfExp: r"\begin{cases} %s & \text{if } %s \\ %s & \text{else} \end{cases}", ast.Module: r"\begin{cases} %s \end{cases}", ast.stmt: r" \\ ",
    "group": r"\left(%s\right)", "abs": r"\left|%s\right|", "sqrt": r"\sqrt{%s}", "sum": r"\sum\left(%s\right)",
}  # fmt: skip
MATHML = {
    ast.Name: "<mi>%s</mi>", ast.Tuple: "<mo>,</mo>", ast.Slice: "<mo>:</mo>", ast.Subscript: "<msub><mrow>%s</mrow><mrow>%s</mrow></msub>",
    ast.Attribute: "<msup><mrow>%s</mrow><mo>⊤</mo></msup>", ast.Call: "%s<mrow><mo>(</mo>%s<mo>)</mo></mrow>",
    ast.Div: "<mfrac><mrow>%s</mrow><mrow>%s</mrow></mfrac>", ast.Pow: "<msup><mrow>%s</mrow><mrow>%s</mrow></msup>", ast.BinOp: "%s<mo>%s</mo>%s",
    ast.UnaryOp: '<mo form="prefix">%s</mo>%s', ast.Assign: "%s<mo>=</mo>%s",
    ast.IfExp: "<mrow><mo>{</mo><mtable><mtr><mtd>%s</mtd><mtd><mtext>if </mtext>%s</mtd></mtr>"
    "<mtr><mtd>%s</mtd><mtd><mtext>else</mtext></mtd></mtr></mtable></mrow>",
    ast.Module: "<mrow><mo>{</mo><mtable><mtr><mtd>%s</mtd></mtr></mtable></mrow>", ast.stmt: "</mtd></mtr><mtr><mtd>",
    "group": "<mrow><mo>(</mo>%s<mo>)</mo></mrow>", "abs": "<mrow><mo>|</mo>%s<mo>|</mo></mrow>", "sqrt": "<msqrt>%s</msqrt>",
    "sum": "<mo>∑</mo><mrow><mo>(</mo>%s<mo>)</mo></mrow>",
}  # fmt: skip
KINDS: Mapping[str, type[ast.operator | ast.unaryop | ast.cmpop]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "matmul": ast.MatMult, "div": ast.Div, "pow": ast.Pow, "neg": ast.USub, "not": ast.Invert,
    "and": ast.BitAnd, "or": ast.BitOr, "xor": ast.BitXor, "eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE,
}  # fmt: skip


def operation(kind: str, *parts: ast.expr) -> ast.expr:
    """An operator of the table `KINDS`, or a function by its name."""
    operator = KINDS[kind]() if kind in KINDS else None
    if isinstance(operator, ast.unaryop):
        return ast.UnaryOp(operator, *parts)
    if isinstance(operator, ast.cmpop):
        return ast.Compare(parts[0], [operator], list(parts[1:]))
    return ast.Call(ast.Name(kind), list(parts), []) if operator is None else ast.BinOp(parts[0], operator, parts[1])


def number(value: float) -> ast.expr:
    """A number with up to six digits."""
    return ast.UnaryOp(ast.USub(), number(-value)) if value < 0 else ast.Name(f"{value:.6g}")


def symbolic(text: str) -> ast.expr:
    """An expression or condition of steps and bounds, or an index of several, from its text: `min(t + 5, T)`."""
    whole = ast.parse(f"_[{text}]", mode="eval").body
    assert isinstance(whole, ast.Subscript)
    return whole.slice


def _written(node: ast.AST, to: Mapping[object, str], least: int = LOOSE) -> str:
    """A tree in a language, with parentheses if it binds less than `least`."""
    template, binds = to.get(type(node), ""), ATOM
    match node:
        case ast.Name(name) | ast.Constant(name):
            return _word(str(name), to)
        case ast.Tuple(items):
            return template.join(_written(item, to) for item in items)
        case ast.Slice(first, stop, step):
            return template.join(_written(part, to) if part else "" for part in (first, stop, step)[: 2 + bool(step)])
        case ast.Module([equation]):
            return _written(equation, to)
        case ast.Module(equations):
            parts = [to[ast.stmt].join(_written(equation, to) for equation in equations)]
        case ast.Assign([left], right):
            parts, binds = [_written(left, to), _written(right, to)], LOOSE
        case ast.Subscript(value, index):
            parts = [_written(value, to, ATOM), _written(index, to)]
        case ast.Attribute(value):
            parts, binds = [_written(value, to, ATOM)], POWER
        case ast.Call(ast.Name(function), arguments):
            inside = to[ast.Tuple].join(_written(argument, to) for argument in arguments)
            template, parts = (to[function], [inside]) if function in to else (template, [_word(function, to), inside])
        case ast.IfExp(test, value, otherwise):
            parts, binds = [_written(part, to) for part in (value, test, otherwise)], LOOSE
        case ast.BinOp(left, (ast.Div() | ast.Pow()) as operator, right):
            is_power = isinstance(operator, ast.Pow)
            template, binds = to[type(operator)], POWER
            parts = [_written(left, to, ATOM if is_power else LOOSE), _written(right, to)]
        case ast.UnaryOp(operator, operand):
            *signs, binds, least_right = SIGNS[type(operator)]
            parts = [signs[to is MATHML], _written(operand, to, least_right)]
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            template, (*signs, binds, least_right) = to[ast.BinOp], SIGNS[type(operator)]
            least_left = least_right if binds == COMPARED else binds
            parts = [_written(left, to, least_left), signs[to is MATHML], _written(right, to, least_right)]
        case _:
            return _word(ast.unparse(node), to)
    text = template % tuple(parts)
    return text if binds >= least else to["group"] % text


def _word(name: str, to: Mapping[object, str]) -> str:
    if to is MATHML:
        return f"<mn>{name}</mn>" if name[0].isdigit() else f"<mi>{escape(name).replace('...', '…')}</mi>"
    if name in ("...", "inf"):
        return r"\ldots" if name == "..." else r"\infty"
    if name[0] == "∂":
        return rf"\partial {_word(name[1:], to)}"
    if name[0].isdigit():
        return re.sub(r"e\+?(-?)0*(\d+)", r" \\cdot 10^{\1\2}", name)
    plain = re.sub(r"([_%#&${}])", r"\\\1", re.sub(r"[\\^~\s]+", " ", name))
    return plain if len(plain) == 1 else rf"\mathrm{{{plain}}}"
