"""A result is the value in its store when the schedule reads it, even if later statements use the store again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.ops import Output
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.staged.run import StagedProgram
from tempo_core.schedule import Block, Execute, If, Loop, leaves
from tempo_core.symbolic.condition import equal
from tempo_core.symbolic.expr import Expr

FED = {"x": np.arange(3, dtype="float32") + 1}


def overtaken() -> tuple[tp.Context, Expr, tp.Tensor]:
    """r[0] is a number, r[t + 1] waits for sums of the future: the loop begins after r[0], and r has one slot."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        r = tp.recurrence((), "float32", domain=(t,), name="r")
        r[0] = tp.full((), 0.5)
        r[t + 1] = tp.tanh(r * -0.7 + x[t : tp.min(t + 2, T)].sum(0))
    return ctx, T, r


def expected() -> list[float]:
    r = [0.5]
    for ahead in (3.0, 5.0):
        r.append(np.tanh(r[-1] * -0.7 + ahead))
    return r


@pytest.mark.parametrize("config", [tp.Config(), tp.Config(check_numerics=True), tp.Config(executor="interpreted")], ids=str)
def test_a_result_at_a_point_is_read_before_its_store_is_used_again(config: tp.Config) -> None:
    ctx, T, r = overtaken()
    with ctx:
        program = ctx.compile({T: 3}, [r[0], r[T - 1], r[0], r[T // 2]], config)
    results = program.run(FED)
    first, middle, last = expected()
    np.testing.assert_allclose(results, [first, last, first, middle], rtol=1e-5)


def test_results_stand_around_a_host_function() -> None:
    """One result is read before the loop with the host function, one after it; each is in its own device program."""
    seen: list[float] = []

    def step(h: np.ndarray) -> tuple[np.ndarray]:
        seen.append(float(h))
        return (h + np.float32(1),)

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), "float32", domain=(t,), name="h")
        h[0] = 3.0
        (after,) = tp.udf(step, h, outputs=[tp.spec(())], kind="host", stateful=True)
        h[t + 1] = after * 2
        results = ctx.run({T: 4}, [h[0], h[T - 1], after[0]])
    assert seen == [3.0, 8.0, 18.0, 38.0]
    assert [float(v) for v in results] == [3.0, 38.0, 4.0]


def rearranged(program: tp.Program, change: Callable[[Block, Execute], Block]) -> StagedProgram:
    """The staged program with its first output at the place that `change` gives it in the rest of the program."""
    scheduled = program.scheduled
    output = next(x for x in leaves(scheduled.root) if isinstance(x, Execute) and isinstance(program.graph[x.node].op, Output))
    rest = Block(tuple(child for child in scheduled.root.children if child != output))
    return StagedProgram(replace(scheduled, root=change(rest, output)), program.backend)


def in_the_loop(rest: Block, output: Execute) -> Block:
    """The output runs once, in the loop's second iteration, after the body."""
    children = []
    for child in rest.children:
        if isinstance(child, Loop):
            once = If(equal(child.counter.expr, Expr.of(1)), Block((output,)))
            child = replace(child, body=Block((*child.body.children, once)))
        children.append(child)
    return Block(tuple(children))


@pytest.mark.parametrize("on_host", [False, True])
def test_an_output_inside_of_a_loop_is_kept_to_the_end(on_host: bool) -> None:
    """The schedule may put an output into a loop, under a condition that holds once; with a sink, the loop runs on the host."""
    ctx, T, r = overtaken()
    with ctx:
        if on_host:
            tp.sink(lambda value, t: None, r)
        program = ctx.compile({T: 3}, [r[1], r[T - 1]])
    staged = rearranged(program, in_the_loop)
    assert len(staged.kept_outputs) == 1
    results = staged.run(Feeds(arrays=dict(FED), streams={}), 0)
    np.testing.assert_allclose([results[0], results[1]], expected()[1:], rtol=1e-5)
