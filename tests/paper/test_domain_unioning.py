"""fig:domain_unioning and the text beside it: domains are united as shapes are broadcast, and inferred from indices."""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tests.core.running import Case
from tests.paper.running import assert_agree, normal


def domain_text(x: tp.Tensor) -> str:
    return str(x.domain)


def test_tensors_over_t_and_over_i_give_one_over_both():
    left, right, ctx = normal(4, 2), normal(3, 2, seed=1), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (2,), domain=(t,))
        w = tp.input("w", (2,), domain=(i,))
        y = x * w
    assert (domain_text(x), domain_text(w), domain_text(y)) == ("(t)", "(i)", "(i, t)")
    assert domain_text(w * x) == "(i, t)", "in the context's order, whichever comes first"
    assert_agree(Case(ctx, {I: 3, T: 4}, [y], [right[:, None] * left[None]], {"x": left, "w": right}))


def test_domains_shapes_and_dtypes_are_united_at_once():
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (3, 1), "int32", domain=(t,))
        w = tp.input("w", (2,), domain=(i,))
        y = x + w
    assert (domain_text(y), [str(s) for s in y.shape], y.dtype) == ("(i, t)", ["3", "2"], "float32")
    xs, ws = np.arange(6, dtype="int32").reshape(2, 3, 1), normal(2, 2)
    assert_agree(Case(ctx, {I: 2, T: 2}, [y], [ws[:, None, None] + xs[None].astype("float32")], {"x": xs, "w": ws}))


def test_domains_follow_from_indices():
    """A constant index removes a step, an index into the shape by a step adds it, and no index is the identity."""
    data, ctx = normal(2, 4, 4), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (4,), domain=(i, t))
        fixed, whole, bare = x[i, T - 1], x[i, 0:T], x + 0.0
        element = whole.index(0, t)
        rate = 1e-3 * 0.99**i
        scaled = x * rate
    assert [domain_text(v) for v in (fixed, whole, bare, element, rate, scaled)] == [
        "(i)",
        "(i)",
        "(i, t)",
        "(i, t)",
        "(i)",
        "(i, t)",
    ]
    assert [str(s) for s in whole.shape] == ["T", "4"]
    rates = np.float32(1e-3) * np.float32(0.99) ** np.arange(2, dtype="float32")
    assert_agree(Case(ctx, {I: 2, T: 4}, [fixed, element, scaled], [data[:, 3], data, data * rates[:, None, None]], {"x": data}))


def test_domains_are_reduced_to_those_of_the_operands(golden):
    """Domain reduction (section SDG): a tensor written over i and t that varies with i alone is computed once per iteration."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        h = tp.recurrence((), domain=(i, t), name="h")
        h[i, 0] = 1.0
        w = tp.recurrence((), domain=(i,), name="w")
        w[0] = -2.0
        every = tp.exp(w + 0.0 * t).named("invariant")
        h[i, t + 1] = h * every
        w[i + 1] = w + h[i, T - 1]
    program = ctx.compile({I: 3, T: 4}, outputs=[w])
    golden("paper/domain_reduction.txt", program.text("program", full=True))
    values, weight = [], np.float32(-2.0)
    for _ in range(3):
        values.append(weight)
        weight = weight + np.exp(weight) ** np.float32(3)
    assert_agree(Case(ctx, {I: 3, T: 4}, [w], [np.asarray(values, "float32")]))
