"""Formulas in MathML, which browsers show without a script, and from it as LaTeX and as plain text. A form is one row of a table."""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple
from xml.etree.ElementTree import Element, fromstring

LOOSE, COMPARED, SUM, PRODUCT, POWER, ATOM = range(6)  # how tightly an operation binds its operands


class Math(NamedTuple):
    """A formula. `mathml` is one element. `binds` is that of the outermost operation, which decides about parentheses."""

    mathml: str
    binds: int = ATOM

    @property
    def latex(self) -> str:
        return _latex(fromstring(self.mathml))

    @property
    def text(self) -> str:
        """A line of text, or one for each equation: `w[i + 1] = w[i] − 0.01 · ∂loss / ∂w[i]`."""
        return _text(fromstring(self.mathml)).rstrip("\n")


class Form(NamedTuple):
    """How an operation is written. A part that binds less than its number in `parts` gets parentheses."""

    mathml: str
    binds: int
    parts: tuple[int, ...]


def _infix(sign: str, binds: int, right: int) -> Form:
    return Form(f"<mrow>%s<mo>{escape(sign)}</mo>%s</mrow>", binds, (binds, right))


FORMS = {
    "add": _infix("+", SUM, PRODUCT),
    "sub": _infix("−", SUM, PRODUCT),
    "mul": _infix("·", PRODUCT, POWER),
    "matmul": Form('<mrow>%s<mspace width=".2em"/>%s</mrow>', PRODUCT, (PRODUCT, POWER)),
    "div": Form("<mfrac>%s%s</mfrac>", POWER, (LOOSE, LOOSE)),
    "pow": Form("<msup>%s%s</msup>", POWER, (ATOM, LOOSE)),
    "exp": Form("<msup><mi>e</mi>%s</msup>", POWER, (LOOSE,)),
    "neg": Form('<mrow><mo form="prefix">−</mo>%s</mrow>', SUM, (PRODUCT,)),
    "not": Form("<mrow><mo>¬</mo>%s</mrow>", COMPARED, (ATOM,)),
    "sqrt": Form("<msqrt>%s</msqrt>", ATOM, (LOOSE,)),
    "abs": Form("<mrow><mo>|</mo>%s<mo>|</mo></mrow>", ATOM, (LOOSE,)),
    "floor": Form("<mrow><mo>⌊</mo>%s<mo>⌋</mo></mrow>", ATOM, (LOOSE,)),
    "ceil": Form("<mrow><mo>⌈</mo>%s<mo>⌉</mo></mrow>", ATOM, (LOOSE,)),
    "sum": Form("<mrow><mo>∑</mo>%s</mrow>", SUM, (PRODUCT,)),
    "prod": Form("<mrow><mo>∏</mo>%s</mrow>", SUM, (PRODUCT,)),
    "discounted_sum": Form(
        "<mrow><munder><mo>∑</mo><mi>k</mi></munder><msup>%s<mi>k</mi></msup><msub><mrow><mo>(</mo>%s<mo>)</mo></mrow><mi>k</mi></msub></mrow>",
        SUM,
        (ATOM, LOOSE),
    ),
    "where": Form(
        "<mrow><mo>{</mo><mtable><mtr><mtd>%s</mtd><mtd><mtext>if </mtext>%s</mtd></mtr>"
        "<mtr><mtd>%s</mtd><mtd><mtext>else</mtext></mtd></mtr></mtable></mrow>",
        LOOSE,
        (LOOSE, LOOSE, LOOSE),
    ),
    "transposed": Form("<msup>%s<mo>⊤</mo></msup>", POWER, (ATOM,)),
    "at": Form("<msub>%s%s</msub>", ATOM, (ATOM, LOOSE)),
    "element": Form("<mrow>%s<mo>[</mo>%s<mo>]</mo></mrow>", ATOM, (ATOM, LOOSE)),
    "slope": Form("<mfrac><mrow><mo>∂</mo>%s</mrow><mrow><mo>∂</mo>%s</mrow></mfrac>", POWER, (ATOM, ATOM)),
    "equation": _infix("=", LOOSE, LOOSE),
    "if": Form('<mrow>%s<mspace width="1em"/><mtext>if </mtext>%s</mrow>', LOOSE, (LOOSE, LOOSE)),
    "eq": _infix("=", COMPARED, SUM),
    "ne": _infix("≠", COMPARED, SUM),
    "lt": _infix("<", COMPARED, SUM),
    "le": _infix("≤", COMPARED, SUM),
    "gt": _infix(">", COMPARED, SUM),
    "ge": _infix("≥", COMPARED, SUM),
    "and": _infix("∧", COMPARED, ATOM),
    "or": _infix("∨", COMPARED, ATOM),
    "xor": _infix("⊕", COMPARED, ATOM),
}
TOKENS = {  # in the texts of expressions and conditions
    "*": "·", "**": "^", "%": "mod", ">=": "≥", "<=": "≤", "==": "=", "!=": "≠", "&": "∧", "|": "∨", "-": "−",
}  # fmt: skip
SPACED = "+−·=≠<≤>≥∧∨⊕"  # signs with a space on either side
SIGNS = {  # in LaTeX
    "−": "-", "·": r"\cdot", "¬": r"\lnot", "∑": r"\sum", "∏": r"\prod", "⊤": r"\top", "∂": r"\partial", "≠": r"\ne", "≤": r"\le",
    "≥": r"\ge", "∧": r"\land", "∨": r"\lor", "⊕": r"\oplus", "mod": r"\bmod", "//": r"/\!/", ",": r",\,", "…": r"\ldots", "∞": r"\infty",
    "(": r"\left(", ")": r"\right)", "[": r"\left[", "]": r"\right]", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil", "{": "",
}  # fmt: skip
LATEX = {"msub": "{%s}_{%s}", "msup": "{%s}^{%s}", "munder": "%s_{%s}", "mfrac": r"\frac{%s}{%s}", "msqrt": r"\sqrt{%s}"}
DOTS = Math("<mi>…</mi>")


def form(name: str, *parts: Math) -> Math:
    """An operation of the table `FORMS`."""
    row = FORMS[name]
    inner = [part if part.binds >= least else _bracketed(part) for part, least in zip(parts, row.parts, strict=True)]
    return Math(row.mathml % tuple(part.mathml for part in inner), row.binds)


def call(name: str, *parts: Math) -> Math:
    """A function by its name: `tanh(x)`."""
    return Math(f"<mrow>{word(name).mathml}{_bracketed(joined(',', list(parts))).mathml}</mrow>")


def word(name: str) -> Math:
    """A name. One letter is slanted, as usual in formulas."""
    plain = re.sub(r"[\\^~\s]+", " ", name)
    return Math(f"<mi>{escape(plain)}</mi>")


def number(value: float) -> Math:
    """A number with up to six digits."""
    if value < 0:
        return form("neg", number(-value))
    digits, _, exponent = f"{value:.6g}".partition("e")
    whole = Math(f"<mn>{digits.replace('inf', '∞')}</mn>")
    return form("mul", whole, form("pow", Math("<mn>10</mn>"), number(int(exponent)))) if exponent else whole


def symbolic(text: str) -> Math:
    """An expression or condition of steps and bounds, from its text: `min(t + 5, T)`. Terms beside each other need parentheses."""
    tokens = re.findall(r"\w+|\*\*|//|[<>=!]=|\S", text)
    kinds = ["mi" if token.isidentifier() else "mn" if token.isdigit() else "mo" for token in tokens]
    inside = [f"<{kind}>{escape(TOKENS.get(token, token))}</{kind}>" for kind, token in zip(kinds, tokens, strict=True)]
    return Math(f"<mrow>{''.join(inside)}</mrow>", ATOM if len(tokens) == 1 else LOOSE)


def joined(sign: str, parts: list[Math]) -> Math:
    """Parts with a sign between them."""
    mathml = f"<mo>{escape(sign)}</mo>".join(part.mathml for part in parts)
    return Math(f"<mrow>{mathml}</mrow>", LOOSE)


def cases(rows: list[Math]) -> Math:
    """Equations that hold together, below each other; a single one as it is."""
    table = "".join(f"<mtr><mtd>{row.mathml}</mtd></mtr>" for row in rows)
    return rows[0] if len(rows) == 1 else Math(f"<mrow><mo>{{</mo><mtable>{table}</mtable></mrow>", LOOSE)


def _bracketed(part: Math) -> Math:
    return Math(f"<mrow><mo>(</mo>{part.mathml}<mo>)</mo></mrow>")


# -- other languages --------------------------------------------------------------------------------------------------


def _latex(math: Element) -> str:
    parts, text = [_latex(part) for part in math], math.text or ""
    if math.tag in LATEX:
        return LATEX[math.tag] % tuple(parts)
    if math.tag == "mtable":
        return r"\begin{cases} " + r" \\ ".join(parts) + r" \end{cases}"
    if math.tag == "mspace":
        return r"\quad" if math.get("width") == "1em" else r"\,"
    if text in SIGNS and (math.tag == "mo" or len(text) == 1):
        return SIGNS[text]
    text = re.sub(r"([_%#&${}])", r"\\\1", text)
    if math.tag == "mi" and len(text) > 1:
        return rf"\mathrm{{{text}}}"
    if math.tag == "mtext":
        return rf"\text{{{text}}}"
    return text or (" & " if math.tag == "mtr" else " ").join(filter(None, parts))


def _text(math: Element) -> str:
    parts, text = [_text(part) for part in math], math.text or ""
    grouped = [f"({part})" if any(f" {sign} " in f" {part}" for sign in f"{SPACED}∑∏") else part for part in parts]
    if math.tag == "msub":
        return f"{parts[0]}[{parts[1]}]"
    if math.tag in ("msup", "munder"):
        return f"{parts[0]}{'^' if math.tag == 'msup' else '_'}{grouped[1]}"
    if math.tag == "mfrac":
        return " / ".join(grouped)
    if math.tag == "msqrt":
        return f"√({parts[0]})"
    if math.tag == "mtr":
        return " ".join(parts) + ("\n" if len(parts) == 1 else "; ")
    if math.tag == "mo":
        is_spaced = text in SPACED and math.get("form") != "prefix"
        return "" if text == "{" else f" {text} " if is_spaced else f"{text} " if text in ",∑∏" else text
    return " " if math.tag == "mspace" else text + "".join(parts)
