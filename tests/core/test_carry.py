"""`tp.carry` assigns the branches that a user would write, and gives the values of nested loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.graph_text import to_text
from tests.core.running import Case, assert_all_same, compiled, evaluated

SIZES = {"b": 2, "i": 3, "t": 4}


def program(domain: str, assign: Callable[..., None]) -> tuple[tp.Context, tp.Recurrence]:
    """h over `domain`, where h' = 0.5 h + x is the value after each point, and x varies with all steps."""
    ctx = tp.Context("b", "i", "t")
    with ctx as pairs:
        steps = {step.name: pair for step, pair in zip(ctx.steps, pairs, strict=True)}
        over = tuple(steps[name][0] for name in domain)
        x = tp.input("x", domain=over)
        first = tp.input("first", domain=(steps["b"][0],) if "b" in domain else ())
        h = tp.recurrence((), domain=over, name="h")
        assign(h, first, h * 0.5 + x, *(end for name in domain for end in steps[name]))
    return ctx, h


def along_t(h, first, after, t, T):
    h[0] = first
    h[t + 1] = after


def backwards(h, first, after, t, T):
    h[T - 1] = first
    h[t - 1] = after


def nested(h, first, after, i, I, t, T):
    h[0, 0] = first
    h[i, t + 1] = after
    h[i + 1, 0] = after[i, T - 1]


def nested_backwards(h, first, after, i, I, t, T):
    h[I - 1, T - 1] = first
    h[i, t - 1] = after
    h[i - 1, T - 1] = after[i, 0]


def beside(h, first, after, b, B, i, I, t, T):
    h[b, 0, 0] = first
    h[b, i, t + 1] = after
    h[b, i + 1, 0] = after[b, i, T - 1]


def three_loops(h, first, after, b, B, i, I, t, T):
    h[0, 0, 0] = first[0]
    h[b, i, t + 1] = after
    h[b, i + 1, 0] = after[b, i, T - 1]
    h[b + 1, 0, 0] = after[b, I - 1, T - 1]


CASES = {
    "along t": ("t", along_t, lambda h, first, after, *_: tp.carry(h, first, after)),
    "backwards": ("t", backwards, lambda h, first, after, *_: tp.carry(h, first, after, reverse=True)),
    "nested": ("it", nested, lambda h, first, after, *_: tp.carry(h, first, after)),
    "nested, backwards": ("it", nested_backwards, lambda h, first, after, *_: tp.carry(h, first, after, reverse=True)),
    "beside a kept step": ("bit", beside, lambda h, first, after, b, *_: tp.carry(h, first, after, kept=(b,))),
    "three loops": ("bit", three_loops, lambda h, first, after, *_: tp.carry(h, first[0], after)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_writes_the_branches_that_one_would_write(name: str) -> None:
    domain, by_hand, carried = CASES[name]
    assert to_text(program(domain, carried)[0].graph) == to_text(program(domain, by_hand)[0].graph)


@pytest.mark.parametrize("sizes", [SIZES, {"b": 1, "i": 1, "t": 1}, {"b": 2, "i": 3, "t": 1}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_its_values_are_those_of_nested_loops(name: str, sizes: dict[str, int]) -> None:
    domain, _, carried = CASES[name]
    kept = ["b"] if name == "beside a kept step" else []
    loops = [step for step in domain if step not in kept]
    random = np.random.default_rng(0)
    x = random.normal(size=[sizes[step] for step in domain]).astype("float32")
    first = random.normal(size=[sizes["b"]] if "b" in domain else ()).astype("float32")
    expected = np.empty_like(x)
    order = list(itertools.product(*(range(sizes[step]) for step in loops)))
    for parallel in itertools.product(*(range(sizes[step]) for step in kept)):
        value = first[parallel] if parallel or not first.shape else first[0]
        for point in reversed(order) if "backwards" in name else order:
            expected[(*parallel, *point)] = value
            value = value * np.float32(0.5) + x[(*parallel, *point)]
    ctx, h = program(domain, carried)
    bounds = {step.bound_expr: sizes[step.name] for step in ctx.steps}
    case = Case(ctx, bounds, [h], [expected], {"x": x, "first": first})
    assert_all_same(evaluated(case), case.expected)
    assert_all_same(compiled(case, tp.Config(backend="numpy")), case.expected)


def test_a_start_and_what_follows_may_come_one_after_the_other() -> None:
    """A parameter has a start, is differentiated, and goes on; in some cases the following value is a number."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        w, count = tp.recurrence((), domain=(i,), name="w"), tp.recurrence((), "int32", domain=(i, t), name="count")
        tp.carry(w, 1.0)
        (w * w).backward()
        tp.carry(w, following=w - 0.25 * w.grad)
        tp.carry(count, 5, following=i + 10, kept=())
    values, counts = ctx.run({I: 3, T: 2}, outputs=[w, count], config=tp.Config(backend="numpy"))
    assert values.tolist() == [1.0, 0.5, 0.25]
    assert counts.tolist() == [[5, 10], [10, 11], [11, 12]]
