"""Formulas in two languages at once: LaTeX, and MathML, which browsers show without a script. A form is one row of a table."""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

LOOSE, COMPARED, SUM, PRODUCT, POWER, ATOM = range(6)  # how tightly an operation binds its operands


class Math(NamedTuple):
    """A formula. `mathml` is one element. `binds` is that of the outermost operation, which decides about parentheses."""

    latex: str
    mathml: str
    binds: int = ATOM


class Form(NamedTuple):
    """How an operation is written. A part that binds less than its number in `parts` gets parentheses."""

    latex: str
    mathml: str
    binds: int
    parts: tuple[int, ...]


def _infix(latex: str, sign: str, binds: int, right: int) -> Form:
    return Form(f"%s {latex} %s", f"<mrow>%s<mo>{escape(sign)}</mo>%s</mrow>", binds, (binds, right))


FORMS = {
    "add": _infix("+", "+", SUM, PRODUCT),
    "sub": _infix("-", "−", SUM, PRODUCT),
    "mul": _infix(r"\cdot", "·", PRODUCT, POWER),
    "matmul": Form(r"%s \, %s", '<mrow>%s<mspace width=".2em"/>%s</mrow>', PRODUCT, (PRODUCT, POWER)),
    "div": Form(r"\frac{%s}{%s}", "<mfrac>%s%s</mfrac>", POWER, (LOOSE, LOOSE)),
    "pow": Form("{%s}^{%s}", "<msup>%s%s</msup>", POWER, (ATOM, LOOSE)),
    "exp": Form("e^{%s}", "<msup><mi>e</mi>%s</msup>", POWER, (LOOSE,)),
    "ten": Form(r"%s \cdot 10^{%s}", "<mrow>%s<mo>·</mo><msup><mn>10</mn>%s</msup></mrow>", PRODUCT, (LOOSE, LOOSE)),
    "neg": Form("-%s", '<mrow><mo form="prefix">−</mo>%s</mrow>', SUM, (PRODUCT,)),
    "not": Form(r"\lnot %s", "<mrow><mo>¬</mo>%s</mrow>", COMPARED, (ATOM,)),
    "sqrt": Form(r"\sqrt{%s}", "<msqrt>%s</msqrt>", ATOM, (LOOSE,)),
    "abs": Form(r"\left|%s\right|", "<mrow><mo>|</mo>%s<mo>|</mo></mrow>", ATOM, (LOOSE,)),
    "floor": Form(r"\lfloor %s \rfloor", "<mrow><mo>⌊</mo>%s<mo>⌋</mo></mrow>", ATOM, (LOOSE,)),
    "ceil": Form(r"\lceil %s \rceil", "<mrow><mo>⌈</mo>%s<mo>⌉</mo></mrow>", ATOM, (LOOSE,)),
    "sum": Form(r"\sum %s", "<mrow><mo>∑</mo>%s</mrow>", SUM, (PRODUCT,)),
    "prod": Form(r"\prod %s", "<mrow><mo>∏</mo>%s</mrow>", SUM, (PRODUCT,)),
    "discounted_sum": Form(
        r"\sum_k {%s}^k \left(%s\right)_k",
        "<mrow><munder><mo>∑</mo><mi>k</mi></munder><msup>%s<mi>k</mi></msup><msub><mrow><mo>(</mo>%s<mo>)</mo></mrow><mi>k</mi></msub></mrow>",
        SUM,
        (ATOM, LOOSE),
    ),
    "where": Form(
        r"\begin{cases} %s & \text{if } %s \\ %s & \text{else} \end{cases}",
        "<mrow><mo>{</mo><mtable><mtr><mtd>%s</mtd><mtd><mtext>if </mtext>%s</mtd></mtr>"
        "<mtr><mtd>%s</mtd><mtd><mtext>else</mtext></mtd></mtr></mtable></mrow>",
        LOOSE,
        (LOOSE, LOOSE, LOOSE),
    ),
    "transposed": Form(r"{%s}^{\top}", "<msup>%s<mo>⊤</mo></msup>", POWER, (ATOM,)),
    "at": Form("{%s}_{%s}", "<msub>%s%s</msub>", ATOM, (ATOM, LOOSE)),
    "element": Form(r"%s\left[%s\right]", "<mrow>%s<mo>[</mo>%s<mo>]</mo></mrow>", ATOM, (ATOM, LOOSE)),
    "slope": Form(
        r"\frac{\partial %s}{\partial %s}",
        "<mfrac><mrow><mo>∂</mo>%s</mrow><mrow><mo>∂</mo>%s</mrow></mfrac>",
        POWER,
        (ATOM, ATOM),
    ),
    "equation": _infix("=", "=", LOOSE, LOOSE),
    "if": Form(r"%s \quad \text{if } %s", '<mrow>%s<mspace width="1em"/><mtext>if </mtext>%s</mrow>', LOOSE, (LOOSE, LOOSE)),
    "eq": _infix("=", "=", COMPARED, SUM),
    "ne": _infix(r"\ne", "≠", COMPARED, SUM),
    "lt": _infix("<", "<", COMPARED, SUM),
    "le": _infix(r"\le", "≤", COMPARED, SUM),
    "gt": _infix(">", ">", COMPARED, SUM),
    "ge": _infix(r"\ge", "≥", COMPARED, SUM),
    "and": _infix(r"\land", "∧", COMPARED, ATOM),
    "or": _infix(r"\lor", "∨", COMPARED, ATOM),
    "xor": _infix(r"\oplus", "⊕", COMPARED, ATOM),
}
SIGNS = {  # in the texts of expressions and conditions
    "*": (r"\cdot", "·"), "**": ("^", "^"), "//": ("/\\!/", "//"), "%": (r"\bmod", "mod"), ">=": (r"\ge", "≥"), "<=": (r"\le", "≤"),
    "==": ("=", "="), "!=": (r"\ne", "≠"), "&": (r"\land", "∧"), "|": (r"\lor", "∨"), "-": ("-", "−"), ",": (",\\,", ","),
}  # fmt: skip
DOTS = Math(r"\ldots", "<mi>…</mi>")


def form(name: str, *parts: Math) -> Math:
    """An operation of the table `FORMS`."""
    row = FORMS[name]
    inner = [part if part.binds >= least else _bracketed(part) for part, least in zip(parts, row.parts, strict=True)]
    return Math(row.latex % tuple(part.latex for part in inner), row.mathml % tuple(part.mathml for part in inner), row.binds)


def call(name: str, *parts: Math) -> Math:
    """A function by its name: `tanh(x)`."""
    function, inside = word(name), joined(",", list(parts))
    return Math(f"{function.latex}{_bracketed(inside).latex}", f"<mrow>{function.mathml}{_bracketed(inside).mathml}</mrow>")


def word(name: str) -> Math:
    """A name. One letter is slanted, as usual in formulas."""
    plain = re.sub(r"[\\^~\s]+", " ", name)
    latex = re.sub(r"([_%#&${}])", r"\\\1", plain)
    return Math(latex if len(name) == 1 else rf"\mathrm{{{latex}}}", f"<mi>{escape(plain)}</mi>")


def number(value: float) -> Math:
    """A number with up to six digits."""
    digits, _, exponent = f"{value:.6g}".partition("e")
    plain = {"inf": (r"\infty", "∞"), "-inf": (r"-\infty", "−∞")}.get(digits, (digits, digits.replace("-", "−")))
    whole = Math(plain[0], f"<mn>{plain[1]}</mn>", SUM if digits.startswith("-") else ATOM)
    if not exponent:
        return whole
    ten = form("ten", whole, number(int(exponent)))
    return ten._replace(binds=min(ten.binds, whole.binds))


def symbolic(text: str) -> Math:
    """An expression or condition of steps and bounds, from its text: `min(t + 5, T)`. Terms beside each other need parentheses."""
    tokens = re.findall(r"\w+|\*\*|//|[<>=!]=|\S", text)
    parts = [Math(*SIGNS[t]) if t in SIGNS else word(t) if t.isidentifier() else Math(t, t) for t in tokens]
    latex = " ".join(part.latex for part in parts)
    kinds = ("mn" if t.isdigit() else "mo" for t in tokens)
    inside = (
        part.mathml if part.mathml.startswith("<") else f"<{kind}>{escape(part.mathml)}</{kind}>"
        for part, kind in zip(parts, kinds, strict=True)
    )
    return Math(latex, f"<mrow>{''.join(inside)}</mrow>", ATOM if len(tokens) == 1 else LOOSE)


def joined(sign: str, parts: list[Math]) -> Math:
    """Parts with a sign between them."""
    mathml = f"<mo>{escape(sign)}</mo>".join(part.mathml for part in parts)
    return Math(f"{sign} ".join(part.latex for part in parts), f"<mrow>{mathml}</mrow>", LOOSE)


def cases(rows: list[Math]) -> Math:
    """Equations that hold together, below each other; a single one as it is."""
    if len(rows) == 1:
        return rows[0]
    latex = r" \\ ".join(row.latex for row in rows)
    mathml = "".join(f"<mtr><mtd>{row.mathml}</mtd></mtr>" for row in rows)
    return Math(rf"\begin{{cases}} {latex} \end{{cases}}", f"<mrow><mo>{{</mo><mtable>{mathml}</mtable></mrow>", LOOSE)


def _bracketed(part: Math) -> Math:
    return Math(rf"\left({part.latex}\right)", f"<mrow><mo>(</mo>{part.mathml}<mo>)</mo></mrow>")
