"""`program.explain()`: what was done to each operation, and why, in the user's names and lines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ArgumentError
from tempo_core.ir import graph_text as ir_text
from tempo_core.passes.base import renumbered
from tempo_core.passes.decisions import is_recording, note, recording
from tempo_core.passes.pipeline import pipeline
from tempo_core.report.programs.explain import _follow, _Story
from tests.core.passes.programs import PROGRAMS


def trained(config: tp.Config | None = None) -> tp.Program:
    """A small network over t, trained over i; with an operation twice, a product with 1, and a tensor that no result needs."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (4,), domain=(t,))
        w = tp.recurrence((4,), domain=(i,), name="w")
        h = tp.recurrence((4,), domain=(i, t), name="h")
        h[i, 0] = tp.zeros((4,))
        h[i, t + 1] = (h * w + x * 1.0).tanh()
        unused = x.exp()
        a = x * 2
        b = x * 2
        loss = (h[i, 0:T] ** 2).mean() + (a + b)[0:T].sum()
        w[0] = tp.full((4,), 0.5)
        w[i + 1] = w - tp.grad(loss, [w])[0] * 0.1
        del unused
    return ctx.compile({I: 5, T: 8}, {"loss": loss, "w": w}, config)


def on_host() -> tp.Program:
    """A window of earlier values, a prefix, and a function on the host."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        s = tp.recurrence((3,), domain=(t,), name="s")
        s[0] = tp.full((3,), 1.0)
        (moved,) = tp.udf(lambda v: (v + 1,), s, outputs=[tp.spec((3,))], kind="host", name="move")
        s[t + 1] = moved
        delayed = s + s[tp.maximum(t - 3, 0)]
        so_far = delayed[0 : t + 1].sum(0)
    return ctx.compile({T: 9}, {"so_far": so_far})


def test_a_network_that_is_trained(golden: Callable[[str, str], None]) -> None:
    golden("explain/trained.txt", trained().explain())


def test_a_program_with_a_function_on_the_host(golden: Callable[[str, str], None]) -> None:
    golden("explain/on_host.txt", on_host().explain())


def test_one_tensor_at_a_time() -> None:
    program = trained()
    whole = program.explain()
    of_b = program.explain("b")
    assert of_b in whole
    assert "merged with the equal operation `a`" in of_b
    assert "loss" not in of_b.split("\n", 1)[0]
    assert "not computed: no result needs it" in program.explain("unused")
    with pytest.raises(ArgumentError, match="no tensor 'los'") as raised:
        program.explain("los")
    assert raised.value.hint == "program.explain('loss')"


def test_a_pass_that_is_off_decides_nothing() -> None:
    assert "merged with" not in trained(tp.Config(disable=("cse",))).explain("b")
    assert "fused" not in trained(tp.Config(disable=("fuse",))).explain()
    assert "stays in the loop" not in trained(tp.Config(disable=("vectorize",))).explain()


def test_interpreted_programs_have_no_device_programs() -> None:
    text = trained(tp.Config(executor="interpreted")).explain()
    assert "runs as the statement" in text
    assert "device program" not in text


def test_the_passes_run_again_give_the_same_program() -> None:
    program = trained()
    graph = program.source
    for each in pipeline():
        graph = each.apply(graph)
    assert ir_text.to_text(renumbered(graph)) == program.text("sdg")
    stories = {node.id: _Story(node, node.id) for node in program.source}
    numbers = _follow(program.source, pipeline(), stories)
    assert {numbers[s.node] for s in stories.values() if s.node is not None} <= set(program.graph.nodes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_have_stories_that_end(name: str) -> None:
    made = PROGRAMS[name]
    context, outputs = made.build()
    program = context.compile({bound: max(made.least, 5) for bound in (step.bound_expr for step in context.steps)}, outputs)
    stories = {node.id: _Story(node, node.id) for node in program.source}
    _follow(program.source, pipeline(), stories)
    for story in stories.values():
        assert story.node is not None or story.texts, f"{story.written.label} is gone without a reason"
    assert "runs as the statement" in program.explain() or not program.source.fed()


def test_decisions_are_kept_only_while_somebody_records() -> None:
    assert not is_recording()
    note(3, "nobody reads this")
    with recording() as decisions:
        assert is_recording()
        note(3, "moved out of the loop over {}", "t", into=4)
    assert [(d.node, d.text.format(*d.about), d.into) for d in decisions] == [(3, "moved out of the loop over t", 4)]
    assert not is_recording()


def test_explaining_changes_nothing() -> None:
    program = trained()
    fed = {"x": np.ones((8, 4), "float32")}
    before = program.run(fed)["loss"]
    assert program.explain() == program.explain()
    np.testing.assert_array_equal(program.run(fed)["loss"], before)
