"""The verifier: right graphs pass; a broken rule gives an error with the node and the user's line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Eval
from tempo_core.ir.verify import InvalidGraphError, Verified, verify, verify_cycles
from tempo_core.passes.base import Pass
from tempo_core.passes.clean.dce import Dce
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.pipeline import VARIABLE, run_verified
from tempo_core.symbolic.expr import Symbol
from tests.graph_parser import parse

SOUND = """\
steps i<I t<T
%0 x = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over (t) @ "train.py:3"
%1 window = Reduce(fn="sum", axes=(0,))(%0[t:min(t + 5, T)]) : float32[4] over (t) @ "train.py:4"
%2 w = Merge(type=float32[4])(%1[0] if i == 0, %3[i - 1, t] if i >= 1) : float32[4] over (i, t) @ "train.py:5"
%3 next = Binary(fn="add")(%2[i, t], %1[t]) : float32[4] over (i, t) @ "train.py:6"
%4 = Dataflow()(%3[i, t], %1[t]) : float32[4] over (i, t) @ "train.py:7" {
  $0 : float32[4]
  $1 : float32[4]
  $2 = Binary(fn="add")($0, $1) : float32[4]
  $3 = Unary(fn="exp")($2) : float32[4]
  give $3
}
%5 = Output(position=0)(%4[i, t]) over (i, t) @ "train.py:8"
"""


def broken(old: str, new: str) -> str:
    assert old in SOUND
    return SOUND.replace(old, new, 1)


def test_a_sound_graph_passes():
    verify(parse(SOUND))
    verify(Graph(()))


@pytest.mark.parametrize(
    ("old", "new", "problem", "line"),
    [
        ("%1[0] if i == 0", "%9[0] if i == 0", "w (Merge) (%2) reads %9 (operand 0, %9[0] if i == 0), which does not", 5),
        ("(%2[i, t], %1[t])", "(%2[i, t], %1[t].1)", "reads output 1", 6),
        ("(%2[i, t], %1[t])", "(%2[t], %1[t])", "has 1 indices in operand 0, %2[t], but w (Merge) runs over (i, t)", 6),
        ("[t:min(t + 5, T)]", "[t:min(i + 5, T)]", "uses step i in operand 0", 4),
        ("[t:min(t + 5, T)]", "[t:T:0]", "has a stride of 0", 4),
        ("[t:min(t + 5, T)]", "[t:T to t]", "has the size t in operand 0, %0[t:T to t], which is not static", 4),
        ("%1[t]) : float32[4] over (i, t) @", "%1[t] if i >= 1) : float32[4] over (i, t) @", "only the branches of a Merge", 6),
        (": float32[4] over (t) @ \"train.py:4\"", ": float32[5] over (t) @ \"train.py:4\"", "is said to give float32[5]", 4),
        ('fn="add")(%2[i, t], %1[t])', 'fn="add")(%2[i, t], %0[0:T])', "does not fit its operands float32[4], float32[T, 4]", 6),
        ('fn="add")(%2[i, t], %1[t])', 'fn="add")(%2[i, t])', "does not fit its operands float32[4]: not enough values", 6),
        ('fn="add")(%2[i, t], %1[t])', 'fn="add")()', "does not fit its operands nothing: not enough values", 6),
        ("Merge(type=float32[4])", "Merge(type=float32[5])", "is said to give float32[4]", 5),
        ("%1[0] if i == 0", "%0[0:T] if i == 0", "is float32[4], but branch 0 gives float32[T, 4]", 5),
        ('over (i, t) @ "train.py:6"', 'over (t, i) @ "train.py:6"', "that is not in the context's order (i, t)", 6),
        (
            'over (t) @ "train.py:4"',
            'over (t) where i >= 2 @ "train.py:4"',
            "uses step i in its domain's condition, which is not in its domain (t) where",
            4,
        ),
        ('Binary(fn="add")($0, $1)', 'Binary(fn="add")($0, $3)', "uses slot $3 in its body before", 7),
        ('($2) : float32[4]', '($2) : float32[7]', "has slots of types", 7),
        ('Unary(fn="exp")', 'Unary(fn="not")', "holds a Unary that does not fit its operands: `not` takes bool", 7),
        ('$3 = Unary(fn="exp")($2)', '$2 = Unary(fn="exp")($2)', "gives a slot of (2,) in its body twice", 7),
        ("give $3", "give $4", "gives the slots (4,), which its body does not all fill", 7),
        ("  $0 : float32[4]", "  $0 : float32[5]", "has a body for operands float32[5], float32[4]", 7),
    ],
)  # fmt: skip
def test_a_broken_rule_names_the_node_and_the_line(old: str, new: str, problem: str, line: int):
    with pytest.raises(InvalidGraphError) as error:
        verify(parse(broken(old, new)), after="lift")
    assert problem in str(error.value)
    assert "the graph is invalid after lift" in str(error.value)
    assert error.value.where == f"train.py:{line}"


@pytest.mark.parametrize(
    ("node", "where"),
    [
        ("Flip(axis=0)(%3[i, i]) : float32[4]", "operand 0, %3[i, i]"),
        ("Merge(type=float32[4])(%1[t] if i == 0) : float32[4]", "operand 0, %1[t] if i == 0"),
        ("Eval(value=i)() : int32[]", "its parameters"),
        ("Merge(type=float32[i])() : float32[i]", "its shape"),
    ],
)
def test_a_node_speaks_of_its_own_steps_only(node: str, where: str):
    with pytest.raises(InvalidGraphError) as error:
        verify(parse(f"{SOUND}%6 = {node} over (t)\n"))
    assert f"uses step i in {where}, which is not in its domain (t)" in str(error.value)


def test_a_node_is_checked_again_when_it_or_what_it_reads_has_changed():
    graph, verified = parse(SOUND), {}
    verify(graph, verified=verified)
    graph.put(replace(graph[3], op=Eval(Symbol("i").expr)))
    with pytest.raises(InvalidGraphError):
        verify(graph, verified=verified)
    graph = parse(SOUND)
    verify(graph, verified=verified)
    graph.put(replace(graph[1], outputs=(replace(graph[1].outputs[0], dtype="int32"),)))
    with pytest.raises(InvalidGraphError):
        verify(graph, verified=verified)


def test_static_shapes_are_asked_for_only_after_pad():
    graph = parse(SOUND)
    with pytest.raises(InvalidGraphError, match=r"a range of length min\(t \+ 5, T\) - t in operand 0"):
        verify(graph, static=True)
    verify(parse(broken("[t:min(t + 5, T)]", "[t:min(t + 5, T) to 5]")), static=True)
    sized = parse('steps t<T\n%0 = Iota(size=t + 1)() : int32[t + 1] over (t) @ "a.py:1"\n')
    verify(sized)
    with pytest.raises(InvalidGraphError, match="whose size depends on a step"):
        verify(sized, static=True)


BRANCHES = [
    ("float32[4]", "float32[4]", True),
    ("float32[4]", "int32[4]", False),
    ("float32[4]", "float32[5]", False),
    ("float32[4, 2]", "float32[4]", False),
    ("float32[t]", "float32[4]", True),  # where t is 4, for all that is known here
    ("float32[4]", "float32[t]", True),
    ("float32[t, 4]", "float32[t, 5]", False),
]


@pytest.mark.parametrize(("branch", "merged", "fits"), BRANCHES)
def test_a_branch_is_of_the_type_of_its_merge(branch: str, merged: str, fits: bool):
    shape = branch.removeprefix("float32[").removesuffix("]")
    graph = parse(f"""steps t<T
%0 = Input(name="x", dtype="float32", shape=())() : float32[] over ()
%1 = Broadcast(shape=({shape},), axes=())(%0) : {branch} over (t)
%2 = Merge(type={merged})(%1[t] if t == 4) : {merged} over (t)
""")
    if fits:
        verify(graph)
    else:
        with pytest.raises(InvalidGraphError) as error:
            verify(graph)
        assert f"is {merged}, but branch 0 gives {branch}" in str(error.value)


def test_cycles_go_through_a_merge():
    text = "steps t<T\n%0 = Iota(size=4)() : int32[4] over ()\n"
    cycle = '%1 a = Binary(fn="add")(%0, %2[t - 1]) : int32[4] over (t)\n%2 b = Flip(axis=0)(%1[t]) : int32[4] over (t)\n'
    reader = "%3 c = Flip(axis=0)(%2[t]) : int32[4] over (t)\n"
    with pytest.raises(InvalidGraphError, match=r"a \(add\) \(%1\) depends on itself with no Merge between: %1 <- %2 <- %1"):
        verify(parse(text + cycle + reader))
    alone = "%1 a = Flip(axis=0)(%1[t - 1]) : int32[4] over (t)\n"
    with pytest.raises(InvalidGraphError, match=r"with no Merge between: %1 <- %1(\n|$)"):
        verify(parse(text + alone))
    verify(parse(text + cycle.replace('Binary(fn="add")', "Merge(type=int32[4])").replace("%2[t - 1]", "%2[t - 1] if t >= 1")))


def test_results_and_inputs_are_not_named_twice():
    output = "%6 = Output(position=0)(%4[i, t]) over (i, t)\n"
    with pytest.raises(InvalidGraphError, match="has the same position 0 as %5"):
        verify(parse(SOUND + output))
    verify(parse(SOUND + output.replace("position=0", "position=1")))
    second = '%6 = Input(name="x", dtype="float32", shape=(4,))() : float32[4] over (t)\n'
    with pytest.raises(InvalidGraphError, match="has the same name 'x' as %0"):
        verify(parse(SOUND + second))


def test_numbers_steps_and_bounds_belong_to_the_graph():
    graph = parse(SOUND)
    moved = graph.copy()
    moved.nodes[1] = replace(graph[1], id=7)
    with pytest.raises(InvalidGraphError, match="stands under the number %1"):
        verify(moved)
    foreign = graph.copy()
    foreign.add(Eval(Symbol("Q").expr))
    with pytest.raises(InvalidGraphError, match="uses Q in its parameters, which is not a bound of the context"):
        verify(foreign)
    fewer = graph.copy()
    fewer.order = (Symbol("t", "T"),)
    with pytest.raises(InvalidGraphError, match="with a step that the context lacks"):
        verify(fewer)


# -- after the passes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Breaks(Pass):
    """Reads a node that does not exist, or makes a node read itself."""

    name: str = field(default="breaks", init=False)
    cyclic: bool = False

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        node = next(node for node in graph if node.inputs)
        source = node.id if self.cyclic else 99
        graph.put(replace(node, inputs=(replace(node.inputs[0], source=source), *node.inputs[1:])))
        return graph


@dataclass(frozen=True)
class _Stumbles(Pass):
    """Fails with an exception of its own on a graph that reads a node that does not exist."""

    name: str = field(default="stumbles", init=False)

    def apply(self, graph: Graph) -> Graph:
        for node in graph:
            graph.input_types(node)
        return graph


def test_cycles_alone():
    graph = parse(SOUND)
    verify_cycles(graph)
    checked: Verified = {}
    verify_cycles(graph, verified=checked)
    broken_twice = _Breaks(cyclic=True).apply(_Breaks().apply(graph))
    for verified in (None, checked):
        with pytest.raises(InvalidGraphError, match=r"after lift: window .* depends on itself with no Merge between"):
            verify_cycles(broken_twice, after="lift", verified=verified)


@pytest.mark.parametrize("mode", ["each", "last"])
@pytest.mark.parametrize(
    "passes", [[Dce(), _Breaks()], [_Breaks(), _Stumbles()], [_Breaks(cyclic=True), Dce()]], ids=["last", "then fails", "cycle"]
)
def test_the_pass_that_breaks_a_graph_is_named(passes: list[Pass], mode: str, monkeypatch: pytest.MonkeyPatch):
    """Also where everything is checked after the last pass only, as for users, or a later pass fails first."""
    monkeypatch.setenv(VARIABLE, mode)
    with pytest.raises(InvalidGraphError, match="the graph is invalid after breaks"):
        run_verified(parse(SOUND), passes, lambda *_: None)


def test_passes_run_once_if_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch):
    for mode in ("each", "last"):
        monkeypatch.setenv(VARIABLE, mode)
        ran: list[str] = []
        graph = run_verified(parse(SOUND), [Dce(), Simplify()], lambda each, *_, ran=ran: ran.append(each.name))
        assert ran == ["dce", "simplify"] and len(graph) > 0
