"""What objects show of themselves: pages in notebooks (HTML, LaTeX, SVG) and on terminals (`rich`)."""

from __future__ import annotations

import ast
import io
import re
from html.parser import HTMLParser
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from rich.console import Console

import tempo_core as tp
from tempo_core.frontend.tensor import Tensor
from tempo_core.report.graphs.draw import to_svg
from tempo_core.report.graphs.overview import overview
from tempo_core.report.pages.formulas import KINDS, Formula, number, operation, symbolic
from tempo_core.report.pages.html import html
from tempo_core.report.pages.page import Group, Page, Picture, Row, Table, Text, with_bars

VOID = ("meta", "br", "mspace")


class Tags(HTMLParser):
    """Checks that tags close in order, and keeps their names and attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def printed(shown: object, width: int = 90) -> str:
    """What `rich.print` writes, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


EQUATIONS = {
    "w": "w[0] = 1\nw[i + 1] = w[i] - 0.01 * slope[i]",
    "slope": "slope[i] = ∂loss / ∂w[i]",
    "loss": "loss[i] = sum(y[i, 0:T] ** 2) / T",
    "y": "y[i, t] = sum(x[t] * w[i])",
    "x": "x[t]",
    "m": "m",
    "h": "h[t + 1, t >= 3] = tanh(h[t] @ m + x[t])\nh[t] = x[t]",
    "back": "back[T - 1] = 0\nback[t] = 0.5 * (back[t + 1] - 2) + sum(x[t])",
    "jump": "jump[0, 0] = 1\njump[i + 1, 0] = jump[i, T - 1]\njump[i, t + 1] = jump[i, t] if jump[i, t] > 2 else -jump[i, t]",
    "stop": "stop[t] = exp(-(x[t] + 1)) / (1e-08 + abs(x[t]))",
    "far": "far[t] = sum((h[t] * x[t])[t = 0:t + 1])",
    "noise": "noise[t] = normal(0, 1)",
    "part": "part[t] = h[t][1:3]",
    "named": "a_b[t] = f_1(x[t])",
    "turned": "turned[t] = x[t] @ m.T",
}


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    """Tensors of one program: a parameter that is trained, and other forms of equations."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (4,), domain=(t,))
        m = tp.input("m", (4, 4))
        w = tp.recurrence((4,), domain=(i,), name="w")
        w[0] = tp.ones((4,))
        y = (x * w).sum(0)
        loss = (y[i, 0:T] ** 2).mean(0)
        loss.backward()
        slope = w.grad
        w[i + 1] = w - 1e-2 * slope
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[t + 1, t >= 3] = tp.tanh(h @ m + x)
        h[t] = x
        back = tp.recurrence((), domain=(t,), name="back")
        back[T - 1] = 0.0
        back[t] = 0.5 * (back[t + 1] - 2.0) + x.sum()
        jump = tp.recurrence((), domain=(i, t), name="jump")
        jump[0, 0] = 1.0
        jump[i + 1, 0] = jump[i, T - 1]
        jump[i, t + 1] = tp.where(jump > 2.0, jump, -jump)
        stop = (-(x + 1.0)).exp() / (1e-8 + abs(x))
        far = (h * x)[0 : t + 1].sum()
        turned = x @ m.transpose()
        noise = tp.random.normal((4,), domain=(t,))
        part = h.spatial[1:3]
        named = tp.udf(lambda v: (v,), x, outputs=[tp.spec((4,))], name="f_1")[0].named("a_b")
        program = ctx.compile({I: 5, T: 8}, {"loss": loss, "w": w})
    return {**{name: value for name, value in locals().items() if isinstance(value, Tensor)}, "program": program}


def test_equations(tensors: dict[str, Tensor]) -> None:
    shown = {}
    for name in EQUATIONS:
        lines = printed(tensors[name], 200).splitlines()
        start = next(k for k, line in enumerate(lines) if line.startswith("line"))
        shown[name] = "\n".join(line.rstrip() for line in lines[start + 1 :])
    assert shown == EQUATIONS


def test_latex_of_a_recurrence(tensors: dict[str, Tensor]) -> None:
    assert tensors["h"]._repr_latex_() == (
        r"$\displaystyle \begin{cases} {h}_{t + 1,\, t \ge 3} = \mathrm{tanh}\left({h}_{t} \, m + {x}_{t}\right) \\ {h}_{t} = {x}_{t} \end{cases}$"
    )
    assert tensors["named"]._repr_latex_() == r"$\displaystyle {\mathrm{a\_b}}_{t} = \mathrm{f\_1}\left({x}_{t}\right)$"


def test_a_long_equation_ends_in_dots() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        y = x
        for _ in range(30):
            y = y + y
    del t, T
    latex = y._repr_latex_()
    assert r"\ldots" in latex and len(latex) < 3000


NAMES = [ast.Name(name) for name in ("a<b", "c&d", "e_f")]


@pytest.mark.parametrize("kind", [*KINDS, "abs", "sqrt", "sum", "f_1"])
def test_every_operation_is_written_in_all_languages(kind: str) -> None:
    is_unary = kind in ("abs", "sqrt", "sum", "f_1") or issubclass(KINDS[kind], ast.unaryop)
    formula = Formula(operation(kind, *NAMES[: 1 if is_unary else 2]))
    assert formula.latex.count("{") == formula.latex.count("}")
    assert formula.latex.count(r"\left") == formula.latex.count(r"\right")
    assert formula.latex.isascii()
    shown = "".join(fromstring(f"<math>{formula.mathml}</math>").itertext())
    for name, latex in zip(("a<b", "c&d"), (r"\mathrm{a<b}", r"\mathrm{c\&d}"), strict=True):
        is_there = name == "a<b" or not is_unary
        assert (name in formula.text, latex in formula.latex, name in shown) == (is_there,) * 3


@pytest.mark.parametrize("outer", ["add", "sub", "mul", "matmul"])
@pytest.mark.parametrize("inner", ["add", "sub", "mul", "matmul"])
def test_parentheses_are_those_of_python(outer: str, inner: str) -> None:
    a, b, c = NAMES
    for tree in (operation(outer, operation(inner, a, b), c), operation(outer, a, operation(inner, b, c))):
        formula = Formula(tree)
        for written in (formula.latex.replace(r"\left", ""), formula.mathml):
            at, in_text = written.find("("), formula.text.find("(")
            assert (at < 0, at < written.index("a<b" if "a<b" in written else "a&lt;b")) == (
                in_text < 0,
                in_text < formula.text.index("a<b"),
            )


def test_formulas_in_latex() -> None:
    latex = {
        "(t >= 1) & (i < min(t + 5, T))": r"\left(t \ge 1\right) \land \left(i < \mathrm{min}\left(t + 5,\, T\right)\right)",
        "(a | b) & ~c": r"\left(a \lor b\right) \land \left(\lnot c\right)",
        "(t + 1) ** 2 // 3 % k": r"{\left(t + 1\right)}^{2} /\!/ 3 \bmod k",
        "i, 0:T:2, t": r"i,\, 0:T:2,\, t",
        "(a - b) / -c": r"\frac{a - b}{- c}",
    }
    assert {text: Formula(symbolic(text)).latex for text in latex} == latex
    small = operation("sub", number(3), number(-2.5e-7))
    assert Formula(small).latex == r"3 - \left(- 2.5 \cdot 10^{-7}\right)" and Formula(small).text == "3 - -2.5e-07"
    assert Formula(operation("div", number(float("inf")), ast.Name("∂a_b"))).latex == r"\frac{\infty}{\partial \mathrm{a\_b}}"


HOSTILE = "<script>alert('a')</script> & \"b\""


def test_html_is_escaped_and_loads_nothing() -> None:
    group = Group((Row((HOSTILE, "1"), 0.5),), HOSTILE, HOSTILE, HOSTILE, 1.0)
    parts = (Table(HOSTILE, (HOSTILE, "n"), (group,)), Text(HOSTILE, HOSTILE), Picture(HOSTILE, "<svg></svg>"))
    tags = Tags(html(Page(HOSTILE, ((HOSTILE, HOSTILE),), parts, Formula(ast.Name(HOSTILE)))))
    assert {name for name, _ in tags.seen}.isdisjoint({"script", "link", "img", "iframe", "input"})
    assert sum(text.count(HOSTILE) for text in tags.texts) == 13
    for _, attributes in tags.seen:
        assert not any(name.startswith("on") or name in ("src", "href") for name in attributes)


def test_a_program_folds_by_the_users_lines(tensors: dict[str, Tensor]) -> None:
    program = tensors["program"]
    text = program._repr_html_()
    tags = Tags(text)
    folds = [attributes["class"] for name, attributes in tags.seen if name == "details"]
    assert folds.count("part") == len(program._page().parts)
    stores = program._page().parts[0]
    assert isinstance(stores, Table) and folds.count("fold") == len(stores.groups)
    titles = [group.title for group in stores.groups]
    assert 'w = tp.recurrence((4,), domain=(i,), name="w")' in titles and "w[i + 1] = w - 1e-2 * slope" in titles
    numbers = [int(group.place.rpartition(":")[2]) for group in stores.groups]
    assert numbers == sorted(numbers), "the lines are not in their order"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert ("bounds", "I = 5, T = 8") in program._page().facts


def test_the_stores_of_a_plan_have_their_bytes(tensors: dict[str, Tensor]) -> None:
    plan = tensors["program"].plan()
    stores = plan._page().parts[0]
    assert isinstance(stores, Table)
    bytes_of = {row.cells[0]: row.cells[4] for row in stores.rows}
    assert bytes_of == {stored.name: f"{stored.bytes:,}" for stored in plan.tensors}
    assert bytes_of["w"] == f"{5 * 4 * 4:,}"
    assert max(group.share or 0.0 for group in stores.groups) == 1.0
    for group in stores.groups:
        total = sum(int(row.cells[4].replace(",", "")) for row in group.rows)
        assert group.amount == f"{total:,}"
        assert sum(row.share or 0.0 for row in group.rows) == pytest.approx(group.share)


def test_a_plan_on_a_terminal(tensors: dict[str, Tensor]) -> None:
    plan = tensors["program"].plan()
    for width in (70, 100):
        lines = printed(plan, width).splitlines()
        assert max(map(len, lines)) <= width
        assert any(line.split()[:2] == ["w", "block"] and line.endswith("█") for line in lines)
    assert "float32[4]" in printed(plan, 100)
    assert "█" not in plan.text()


def test_the_picture_of_a_graph(tensors: dict[str, Tensor]) -> None:
    svg = fromstring(to_svg(overview(tensors["program"].graph)))
    assert svg.tag.endswith("svg")
    texts = [text for element in svg.iter() if (text := element.text)]
    assert "w" in texts


def test_a_profile_has_bars(tensors: dict[str, Tensor]) -> None:
    profile = tensors["program"].profile({"x": np.ones((8, 4), "float32")})
    page = profile._page()
    Tags(profile._repr_html_())
    assert [part.title for part in page.parts] == ["by tensor", "by line", "by loop"]
    for by, table in zip(("tensor", "line", "loop"), page.parts, strict=True):
        assert isinstance(table, Table)
        rows = profile.rows(by)
        assert [row.cells[0] for row in table.rows] == [row.name for row in rows]
        assert [row.share for row in table.rows] == [row.seconds / rows[0].seconds for row in rows]
    assert printed(profile).splitlines()[0] == "profile"


def test_bars_without_sizes_are_empty() -> None:
    assert with_bars([(("a",), 0.0)]) == (Row(("a",), 0.0),)
    assert with_bars([]) == ()


def test_an_interpreted_program_shows_its_stores_on_the_host() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        total = tp.recurrence((3,), domain=(t,), name="total")
        total[0] = x[0]
        total[t + 1] = total + x[t + 1]
    page = ctx.compile({T: 4}, total, tp.Config(backend="numpy"))._page()
    stores = page.parts[0]
    assert isinstance(stores, Table)
    assert {row.cells[0]: row.cells[5] for row in stores.rows}["total"] == "the whole run"
    assert "on the host, at the peak" in [part.title for part in page.parts]
    Tags(html(page))
