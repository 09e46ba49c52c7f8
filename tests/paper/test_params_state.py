"""fig:params_state: the state of a network is a cycle through a merge; there are no variables.

The first value comes from an initialization subgraph; each later one comes from an optimizer step that reads the value before it.
The state of Adam is built in the same way. In memory, each of these tensors is one value that is updated in place.
"""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core.ir.ops import Merge
from tests.core.running import Case
from tests.paper.running import ancestors, assert_agree, normal, rows

ITERATIONS = 4


def build() -> tuple[Case, tp.Tensor]:
    """A linear model of one layer, trained with Adam; its parameters after each iteration."""
    features, target = normal(5, 3), normal(5, seed=1)
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        x, y = tp.input("x", (5, 3)), tp.input("y", (5,))
        w = tp.recurrence((3,), domain=(i,), name="w")
        w[0] = rows([0.5, -0.5, 0.0])
        loss = ((x @ w - y) ** 2).mean(0).named("loss")
        loss.backward()
        tp.optim.Adam({"w": w}, lr=0.1).step()

    weight, first, second = rows([0.5, -0.5, 0.0]), np.zeros(3, "float32"), np.zeros(3, "float32")
    weights = []
    for step in range(1, ITERATIONS + 1):
        weights.append(weight)
        gradient = 2 * features.T @ (features @ weight - target) / 5
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weight = weight - 0.1 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    inputs = {"x": features, "y": target}
    return Case(ctx, {I: ITERATIONS}, [w], [rows(weights)], inputs, tolerance=1e-4), w


def test_a_parameter_is_a_merge_of_its_first_value_and_of_the_optimizers():
    case, w = build()
    graph = case.context.graph
    merge = graph[w.edge.source]
    assert isinstance(merge.op, Merge) and str(merge.domain) == "(i)"
    first, later = merge.inputs
    assert str(first.condition) == "i == 0" and first.index == ()
    assert [str(k) for k in later.index] == ["i - 1"] and str(later.condition) == "i >= 1"
    assert merge.id not in ancestors(graph, graph[first.source]), "the first value depends on no parameter"
    assert merge.id in ancestors(graph, graph[later.source]), "an update depends on the value before it: the cycle"
    loss = next(node for node in graph if node.name == "loss")
    assert loss.id not in ancestors(graph, graph[later.source]), "the update needs the gradient, not the loss"


def test_every_cycle_goes_through_a_merge_and_nothing_else_holds_state():
    case, _ = build()
    graph = case.context.graph
    merges = [node for node in graph if isinstance(node.op, Merge)]
    assert {node.name for node in merges} >= {"w", "adam.m(w)", "adam.v(w)"}, (
        "the optimizer's moments are tensors of the program too"
    )
    cyclic = [node for node in graph if node.id in ancestors(graph, node)]
    assert cyclic and not [node for node in graph if getattr(node.op, "stateful", False)]
    without = graph.copy()
    without.nodes = {n.id: n for n in graph if not isinstance(n.op, Merge)}
    for node in list(without):
        without.put(
            type(node)(node.id, node.op, node.domain, tuple(e for e in node.inputs if e.source in without.nodes), node.outputs)
        )
    assert not [node for node in without if node.id in ancestors(without, node)]


def test_state_is_kept_in_place():
    """Each has one slot, for any number of iterations: the update overwrites the old value."""
    case, w = build()
    (I,) = case.bounds
    with case.context:
        last = w[I - 1]
    for iterations in (2, 1000):
        program = case.context.compile({I: iterations}, outputs=[last])
        slots = {t.name: t.slots for t in program.plan().tensors}
        assert [int(np.prod(slots[name])) for name in ("w", "adam.m(w)", "adam.v(w)")] == [1, 1, 1]


def test_initialization_runs_once(golden):
    case, w = build()
    program = case.context.compile(case.bounds, outputs=[w])
    golden("paper/params_state.txt", program.text("program", full=True))
    lines = program.text("program", full=True).splitlines()
    assert [line for line in lines if "w|0" in line] == ["w|0[0]"], "outside of the loop"
    assert any(line.startswith("  w|1[i]") for line in lines), "inside"


def test_values():
    assert_agree(build()[0])
