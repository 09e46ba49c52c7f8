"""The names of statements and stores: the user's tensors and their lines, without wrong claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph_text import to_text
from tempo_core.ir.names.naming import exact_names, head, label, names, value_names
from tempo_core.ir.names.source_lines import targets
from tests.graph_parser import parse

NUMPY = tp.Config(backend="numpy")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Holder:
    scores: Any


def half(x: Any) -> Any:
    inner = x * 0.5
    return inner + 1.0


def program(config: tp.Config = NUMPY, **options: Any) -> tp.Program:
    """A tensor of each kind of name: a variable, a field, an entry, a result of a function, a value of a recurrence."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0] = tp.zeros((4,)) + 3.0
        hidden = tp.tanh(h + x)
        low, high = tp.udf(lambda a: (a.min(), a.max()), hidden, outputs=[tp.spec(), tp.spec()], kind="host", name="extent")
        pair = Pair(hidden * low, hidden * high)
        holder = Holder(pair.left + pair.right)
        losses = {"mean": holder.scores.mean(), "halved": half(holder.scores).sum()}
        h[t + 1] = holder.scores * 0.1
        return ctx.compile({T: 3}, {"mean": losses["mean"], "halved": losses["halved"], "low": low}, config)


@pytest.fixture(scope="module")
def compiled() -> tp.Program:
    return program()


def test_values_are_called_by_variables_fields_and_entries(compiled: tp.Program) -> None:
    names = set(value_names(compiled.graph).values())
    assert {"h", "hidden", "low", "high", "holder.scores", "losses.mean", "losses.halved"} <= names
    assert not any("%" in name for name in names), "each has a name with a meaning"


def test_an_island_is_called_by_the_tensors_in_it(compiled: tp.Program) -> None:
    (island,) = (name for name in names(compiled.graph).values() if "holder.scores" in name)
    assert island == "pair, holder.scores"


def test_values_of_a_recurrence_are_called_after_it(compiled: tp.Program) -> None:
    assert {"first h", "next h"} <= set(value_names(compiled.graph).values())


def test_a_rebound_variable_names_the_tensor_that_it_holds_last() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", (), domain=(t,)) * 2.0
        y = tp.cumsum(y[0:T])
        program = ctx.compile({T: 3}, [y], tp.Config(backend="numpy", disable=("fuse",)))
    exact = exact_names(program.source)
    (named,) = (number for number, name in exact.items() if name == "y")
    assert type(program.source[named].op).__name__ == "CumSum"


def test_a_view_gives_its_name_to_no_other_points() -> None:
    """`before` is h at another point: it must not become the name of h's value."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a = tp.exp(tp.input("x", (), domain=(t,)))
        before = a[tp.max(t - 1, 0)]
        program = ctx.compile({T: 4}, [a * before], tp.Config(backend="numpy", disable=("fuse", "vectorize")))
    assert "before" not in set(names(program.graph).values())
    assert "a" in set(names(program.graph).values())


def test_names_survive_simplification_and_common_subexpressions() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = 0.0
        h[t + 1] = tp.tanh(h * (tp.exp(x) + 1.0))  # created first, and equal to the tensor with a name
        action = (tp.exp(x) + 1.0).detach()
        program = ctx.compile({T: 3}, [h, action], tp.Config(backend="numpy"))
    assert "action" in set(value_names(program.graph).values())


def test_equal_names_are_told_apart_alike_each_time() -> None:
    text = "steps t<T\n" + "".join(f"%{k} y = Constant(float32[], {k}.0)() : float32[] over ()\n" for k in range(2))
    text += '%2 y = Unary(fn="exp")(%0) : float32[] over ()\n%3 y = Unary(fn="exp")(%1) : float32[] over ()\n'
    graph = parse(text)
    assert [names(graph)[k] for k in (2, 3)] == ["y", "y#2"]


def test_a_part_of_what_a_line_computes_is_not_called_like_the_whole() -> None:
    """A pass gives a node's name to all nodes that it creates from the node; the last of them keeps it."""
    graph = parse(
        """
steps t<T
%0 x = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over ()
%1 y = Permute(order=(0,))(%0) : float32[4] over ()
%2 y = Unary(fn="exp")(%1) : float32[4] over ()
%3 = Output(position=0)(%2) over ()
"""
    )
    assert exact_names(graph) == {2: "y"}
    assert names(graph)[1] == "permute in y"


WITHOUT_LINES = """
ctx = tp.Context("i", "t")
with ctx as ((i, I), (t, T)):
    x, h = tp.input("x", (3,), domain=(t,)), tp.recurrence((3,), domain=(i, t))
    h[i, 0] = x[0] * (i + 1)
    h[i, t, t % 2 == 0] = tp.tanh(h[i, t - 1])
    h[i, t] = tp.exp(x[t // 2]) + h[i, t - 1]
    tp.sink(print, (h[i, 0:T] * tp.sin(x[0:T])).sum())
    program = ctx.compile({I: 2, T: 5}, {"largest": (h * 2)[I - 1, 0:T].max(0), "h": h + 1}, tp.Config(disable=DISABLED))
"""


@pytest.mark.parametrize("disabled", [(), ("vectorize", "fuse", "lift")], ids=str)
def test_values_of_lines_that_cannot_be_read_are_named_after_what_they_lead_to(disabled: tuple[str, ...]) -> None:
    """As in a notebook or in `python -`."""
    namespace: dict[str, Any] = {"tp": tp, "DISABLED": disabled}
    exec(WITHOUT_LINES, namespace)
    graph = namespace["program"].graph
    labels = {*names(graph).values(), *value_names(graph).values()}
    assert not [name for name in labels if "%" in name]
    assert any(" in " in name for name in labels)


def test_compiling_again_gives_the_same_text() -> None:
    first, second = program(), program()
    for kind in ("program", "memory", "plan", "schedule"):
        for full in (False, True):
            assert first.text(kind, full=full) == second.text(kind, full=full)


def test_names_change_nothing_that_is_computed(compiled: tp.Program) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    results = compiled.run({"x": x})
    scores = [np.full(4, 3.0, np.float32)]
    means = []
    for row in x:
        hidden = np.tanh(scores[-1] + row)
        scores.append(hidden * (hidden.min() + hidden.max()) * np.float32(0.1))
        means.append((scores[-1] * 10).mean())
    np.testing.assert_allclose(results["mean"], means, rtol=1e-5)


def test_text_with_names_of_results_is_read_back(compiled: tp.Program) -> None:
    functions = {op.fn.__qualname__: op.fn for op in (n.op for n in compiled.graph) if callable(getattr(op, "fn", None))}
    text = to_text(compiled.graph, functions)
    assert 'holder.scores @ "' in text
    assert to_text(parse(text, functions), functions) == text


@pytest.mark.parametrize(
    ("several", "short"),
    [
        (["a"], "a"),
        (["a", "b", "a"], "a, b"),
        (["p.0.weight", "p.0.bias", "loss"], "p, loss"),
        (["p.weight", "loss"], "p.weight, loss"),
        (["adam.m(p.0)", "adam.v(p.0)"], "adam"),
        (["a", "b", "c", "d", "e", "f"], "a, b, …, e, f"),
    ],
)
def test_labels_are_short(several: list[str], short: str) -> None:
    assert label(several) == short


def test_heads() -> None:
    assert [head(name) for name in ("policy.0.weight", "adam.m(policy.0)", "first adam.v(w)", "y#2", "h")] == [
        "policy", "adam", "first adam", "y", "h",
    ]  # fmt: skip


SOURCE = """\
a = f(1)
b, (c, d) = g()
self.e = f(
    2,
)
h[0] = 3
x = 1; y = 2
loss.backward()
tp.optim.Adam(w, lr=f(3)).step()
def build(z):
    return (
        z + 1
    )
if a:
    k = 3
for i in a:
    n += 1
@decorated
def other():
    m: int = 3
"""


def test_what_lines_assign(tmp_path: Any) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    assigned = {line: targets(f"{path}:{line}") for line in range(1, SOURCE.count("\n") + 2)}
    assert {line: names for line, names in assigned.items() if names} == {
        1: ("a",), 2: ("b", "c", "d"), 3: ("e",), 4: ("e",), 5: ("e",), 6: ("h",), 8: ("loss.backward",), 9: ("Adam.step",),
        11: ("build",), 12: ("build",), 13: ("build",), 15: ("k",), 17: ("n",), 20: ("m",),
    }  # fmt: skip


def test_what_cannot_be_read_assigns_nothing(tmp_path: Any) -> None:
    path = tmp_path / "broken.py"
    path.write_text("%matplotlib inline\nx = 3\n")
    assert targets(f"{path}:2") == targets(f"{tmp_path}/missing.py:1") == targets("<string>:1") == targets("") == ()
