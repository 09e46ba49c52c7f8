"""Formulas as Python's syntax trees: `ast` writes them as text, and a table of templates as LaTeX and MathML."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

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
        return _written(self.tree, 0)

    @property
    def mathml(self) -> str:
        """Elements that browsers show without a script."""
        return _written(self.tree, 1)


class Form(NamedTuple):
    """How an operation is written, in LaTeX and in MathML. A part that binds less than its number in `parts` gets parentheses."""

    templates: tuple[str, str]
    binds: int
    parts: tuple[int, ...]


def _infix(latex: str, sign: str, binds: int, *parts: int) -> Form:
    return Form((f"%s {latex} %s", f"%s<mo>{escape(sign)}</mo>%s"), binds, parts)


def _prefix(latex: str, sign: str, binds: int, part: int) -> Form:
    return Form((f"{latex} %s", f'<mo form="prefix">{sign}</mo>%s'), binds, (part,))


_CASES = r"\begin{cases} %s \end{cases}", "<mrow><mo>{</mo><mtable><mtr><mtd>%s</mtd></mtr></mtable></mrow>"
_CHOICE = "%s</mtd><mtd><mtext>if </mtext>%s</mtd></mtr><mtr><mtd>%s</mtd><mtd><mtext>else</mtext>"
# By the types of operators and other nodes, and by the names of functions.
FORMS: Mapping[object, Form] = {
    ast.Add: _infix("+", "+", SUM, SUM, PRODUCT),
    ast.Sub: _infix("-", "−", SUM, SUM, PRODUCT),
    ast.Mult: _infix(r"\cdot", "·", PRODUCT, PRODUCT, POWER),
    ast.MatMult: _infix(r"\,", "\u2062", PRODUCT, PRODUCT, POWER),
    ast.FloorDiv: _infix(r"/\!/", "//", PRODUCT, PRODUCT, POWER),
    ast.Mod: _infix(r"\bmod", "mod", PRODUCT, PRODUCT, POWER),
    ast.Div: Form((r"\frac{%s}{%s}", "<mfrac><mrow>%s</mrow><mrow>%s</mrow></mfrac>"), POWER, (LOOSE, LOOSE)),
    ast.Pow: Form(("{%s}^{%s}", "<msup><mrow>%s</mrow><mrow>%s</mrow></msup>"), POWER, (ATOM, LOOSE)),
    ast.USub: _prefix("-", "−", SUM, PRODUCT),
    ast.Invert: _prefix(r"\lnot", "¬", COMPARED, ATOM),
    ast.Eq: _infix("=", "=", COMPARED, SUM, SUM),
    ast.NotEq: _infix(r"\ne", "≠", COMPARED, SUM, SUM),
    ast.Lt: _infix("<", "<", COMPARED, SUM, SUM),
    ast.LtE: _infix(r"\le", "≤", COMPARED, SUM, SUM),
    ast.Gt: _infix(">", ">", COMPARED, SUM, SUM),
    ast.GtE: _infix(r"\ge", "≥", COMPARED, SUM, SUM),
    ast.BitAnd: _infix(r"\land", "∧", COMPARED, ATOM, ATOM),
    ast.BitOr: _infix(r"\lor", "∨", COMPARED, ATOM, ATOM),
    ast.BitXor: _infix(r"\oplus", "⊕", COMPARED, ATOM, ATOM),
    ast.Assign: _infix("=", "=", LOOSE, LOOSE, LOOSE),
    ast.Subscript: Form(("{%s}_{%s}", "<msub><mrow>%s</mrow><mrow>%s</mrow></msub>"), ATOM, (ATOM, LOOSE)),
    ast.Attribute: Form((r"{%s}^{\top}", "<msup><mrow>%s</mrow><mo>⊤</mo></msup>"), POWER, (ATOM,)),
    ast.Call: Form((r"%s\left(%s\right)", "%s<mrow><mo>(</mo>%s<mo>)</mo></mrow>"), ATOM, (ATOM, LOOSE)),
    ast.IfExp: Form((_CASES[0] % r"%s & \text{if } %s \\ %s & \text{else}", _CASES[1] % _CHOICE), LOOSE, (LOOSE, LOOSE, LOOSE)),
    "abs": Form((r"\left|%s\right|", "<mrow><mo>|</mo>%s<mo>|</mo></mrow>"), ATOM, (LOOSE,)),
    "sqrt": Form((r"\sqrt{%s}", "<msqrt>%s</msqrt>"), ATOM, (LOOSE,)),
    "sum": Form((r"\sum %s", "<mo>∑</mo>%s"), PRODUCT, (PRODUCT,)),
}
FIELDS: Mapping[type[ast.AST], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",), ast.Compare: ("left", "comparators"), ast.Subscript: ("value", "slice"),
    ast.Attribute: ("value",), ast.Call: ("func", "args"), ast.IfExp: ("body", "test", "orelse"), ast.Assign: ("targets", "value"),
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


def _written(node: ast.AST | Sequence[ast.AST], language: int, least: int = LOOSE) -> str:
    """A tree, or several with commas between them, with parentheses if it binds less than `least`."""
    match node:
        case ast.Name() | ast.Constant():
            return _word(ast.unparse(node), language)
        case ast.Slice(first, stop, step):
            limits = (first, stop, step) if step else (first, stop)
            return (":", "<mo>:</mo>")[language].join(_written(limit, language) if limit else "" for limit in limits)
        case ast.Module([only]) | [only]:
            return _written(only, language, least)
        case ast.Module(equations):
            rows = (r" \\ ", "</mtd></mtr><mtr><mtd>")[language].join(_written(equation, language) for equation in equations)
            return _CASES[language] % rows
        case ast.Tuple(items) | [*items]:
            return (r",\, ", "<mo>,</mo>")[language].join(_written(item, language) for item in items)
        case ast.Call(ast.Name(function)) if function in FORMS:
            row, fields = FORMS[function], FIELDS[ast.Call][1:]
        case _:
            row, fields = FORMS[type(getattr(node, "op", None) or getattr(node, "ops", [node])[0])], FIELDS[type(node)]
    parts = (_written(getattr(node, field), language, binds) for field, binds in zip(fields, row.parts, strict=True))
    text = row.templates[language] % tuple(parts)
    return text if row.binds >= least else (rf"\left({text}\right)", f"<mrow><mo>(</mo>{text}<mo>)</mo></mrow>")[language]


def _word(name: str, language: int) -> str:
    if language:
        return f"<mn>{name}</mn>" if name[0].isdigit() else f"<mi>{escape(name).replace('...', '…')}</mi>"
    if name in ("...", "inf"):
        return r"\ldots" if name == "..." else r"\infty"
    if name[0] == "∂":
        return rf"\partial {_word(name[1:], language)}"
    if name[0].isdigit():
        return re.sub(r"e\+?(-?)0*(\d+)", r" \\cdot 10^{\1\2}", name)
    plain = re.sub(r"([_%#&${}])", r"\\\1", re.sub(r"[\\^~\s]+", " ", name))
    return plain if len(plain) == 1 else rf"\mathrm{{{plain}}}"
