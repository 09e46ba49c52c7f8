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
from tests.cases import fast
from tests.core.passes.programs import HARD, PROGRAMS


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


def recurrent(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    """A gradient through all points of a recurrence."""
    w = tp.input("w", (8,), requires_grad=True)
    h = tp.recurrence((8,), domain=(t,), name="h")
    tp.carry(h, tp.ones((8,)), (h * w).sin())
    h[T - 1].sum().backward()
    return w.grad


def over_its_past(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    """Attention of a state to all states before it."""
    s = tp.recurrence((8,), domain=(t,), name="s")
    past = s[0 : t + 1]
    weights = (past @ s).softmax(0)
    tp.carry(s, tp.ones((8,)), (weights @ past).tanh())
    return s[T - 1]


def with_a_small_product(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    """Products that are smaller than the states that they read, and sums that are smaller still."""
    h = tp.recurrence((256, 64), domain=(t,), name="h")
    tp.carry(h, tp.ones((256, 64)), (h * 0.5).sin())
    y = (h @ tp.input("w", (64, 1))).named("y")
    z = h.exp().sum().named("z")
    return (y[0:T] ** 2).sum() + (z[0:T] ** 2).max()


def of_a_window(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    s = tp.recurrence((8,), domain=(t,), name="s")
    mean = s[tp.max(t - 3, 0) : t + 1].mean(0).named("mean")
    tp.carry(s, tp.ones((8,)), mean.sin() + s[t // 2])
    return s[T - 1]


def with_a_sink(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    """Nothing forbids all points at once, but a function on the host is called at each."""
    x = tp.input("x", (8,), domain=(t,))
    tp.sink(lambda value, t: None, x.exp(), name="show")
    return (x * x).named("squares")


def fed_all_at_once(t: tp.Expr, T: tp.Expr) -> tp.Tensor:
    """What a recurrence takes in is a product of all points at once."""
    fed = (tp.input("x", (8,), domain=(t,)) @ tp.input("w", (8, 8))).named("fed")
    h = tp.recurrence((8,), domain=(t,), name="h")
    tp.carry(h, tp.ones((8,)), (h + fed).sin())
    return h[T - 1]


def compiled(make: Callable[[tp.Expr, tp.Expr], tp.Tensor], config: tp.Config | None = None) -> tp.Program:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        result = make(t, T)
    return ctx.compile({T: 100}, result, config)


@pytest.mark.parametrize(
    "make",
    [recurrent, over_its_past, with_a_small_product, of_a_window, with_a_sink, fed_all_at_once],
    ids=lambda make: make.__name__,
)
def test_steps_that_stay_loops_and_large_stores(
    make: Callable[[tp.Expr, tp.Expr], tp.Tensor], golden: Callable[[str, str], None]
) -> None:
    parts = [part for part in compiled(make).explain().split("\n\n") if part.startswith(("steps", "stores"))]
    golden(f"explain/{make.__name__}.txt", "\n\n".join(parts) + "\n")


def sizes(program: tp.Program) -> dict[str, int]:
    return {tensor.name: tensor.bytes for tensor in program.plan().tensors}


def test_what_is_said_to_make_a_store_smaller_does() -> None:
    program = compiled(recurrent)
    before = sizes(program)
    assert '`Config(checkpoint={"t": 10})`' in program.explain("h")
    assert max(sizes(compiled(recurrent, tp.Config(checkpoint={"t": 10}))).values()) * 10 <= before["h"]
    program = compiled(fed_all_at_once)
    fed = next(line for line in program.explain().split("\n") if line.startswith("  `fed`"))
    assert '`Config(disable=("vectorize(t)",))` has one at a time' in fed
    after = sizes(compiled(fed_all_at_once, tp.Config(disable=("vectorize(t)",))))
    assert after.get("fed", 0) * 50 <= sizes(program)["fed"]


@pytest.mark.slow
def test_a_step_is_a_loop_by_an_option_or_by_its_price() -> None:
    option = "an option makes it one: `disable`, `tile` or `checkpoint`"

    def first_loop(program: tp.Program) -> list[str]:
        part = next(part for part in program.explain().split("\n\n") if part.startswith("steps"))
        return [line.strip() for line in part.split("\n")[1:]]

    assert option in first_loop(compiled(with_a_sink, tp.Config(disable=("vectorize(t)",))))
    assert option in first_loop(compiled(with_a_sink, tp.Config(disable=("vectorize",))))
    tiled = first_loop(compiled(lambda t, T: (tp.input("x", (8,), domain=(t,))[0:T] ** 2).sum(), tp.Config(tile={"t": 10})))
    assert option in tiled
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k, v = (tp.input(name, (32,), domain=(t,)) for name in "qkv")
        y = (k[0 : t + 1] @ q).softmax(0) @ v[0 : t + 1]
    by_price = ctx.compile({T: 500}, y, tp.Config(memory_limit="800KB"))
    assert by_price.choice is not None and by_price.choice.form.loops == ("t",)
    assert any(
        line.startswith("by its price: a loop over t: ") and "too large: as without a limit" in line
        for line in first_loop(by_price)
    )


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
    passes = pipeline(numbers=tuple(program.bounds.items()))
    for each in passes:
        graph = each.apply(graph)
    assert ir_text.to_text(renumbered(graph)) == program.text("sdg")
    stories = {node.id: _Story(node, node.id) for node in program.source}
    numbers = _follow(program.source, passes, stories, {})
    assert {numbers[s.node] for s in stories.values() if s.node is not None} <= set(program.graph.nodes)


@pytest.mark.parametrize("name", fast(PROGRAMS, *HARD))
def test_operations_have_stories_that_end(name: str) -> None:
    made = PROGRAMS[name]
    context, outputs = made.build()
    program = context.compile({bound: max(made.least, 5) for bound in (step.bound_expr for step in context.steps)}, outputs)
    stories = {node.id: _Story(node, node.id) for node in program.source}
    _follow(program.source, pipeline(), stories, {})
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
