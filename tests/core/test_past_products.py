"""Products with prefixes and suffixes (attention), and elements picked out of them: right, linear or by products of whole matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tests import reference
from tests.cases import cells, fast, first
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import assert_same

RANGES: dict[str, Callable[[Any, Any], slice]] = {
    "prefix": lambda t, T: slice(0, t + 1),
    "suffix": lambda t, T: slice(t, T),
    "prefix before": lambda t, T: slice(0, tp.max(t, 1)),
    "prefix from the end": lambda t, T: slice(0, T - t),
    "perhaps nothing": lambda t, T: slice(0, t),
    "perhaps nothing at the end": lambda t, T: slice(tp.min(t + 2, T), T),
}
SETTINGS = (
    tp.Config(backend="numpy"),
    tp.Config(backend="numpy", disable=("lift",)),
    tp.Config(backend="numpy", disable=("vectorize",)),
    tp.Config(backend="numpy", disable=("simplify",)),
)


def weighted_past(
    name: str, width: int = 3, rows: int = 0, in_sums: bool = False
) -> tuple[tp.Context, Any, Any, list[tp.Tensor]]:
    """A sum over a range, weighted by products of query and key, and by their softmax where there is an element; with its gradients.

    With `rows`, queries, keys and values have so many rows each. `in_sums`, or with rows, products are written as sums of products.
    """
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        q, k, v = (tp.input(each, (rows, width) if rows else (width,), domain=(b, t)) for each in "qkv")
        here = RANGES[name](t, T)

        def read(weights: tp.Tensor) -> tp.Tensor:
            return (weights.expand_dims(-1) * v[b, here]).sum(0) if in_sums or rows else weights @ v[b, here]

        scores = (k[b, here] * q).sum(-1) if in_sums or rows else k[b, here] @ q
        y = read(scores)
        if "nothing" not in name:
            y = y + read(scores.softmax(0))
        return ctx, B, T, [y, *tp.grad((tp.sin(y) * (t + 1)).sum(), [q, k, v])]


FORMS: dict[str, tuple[int, bool]] = {"products": (0, False), "sums": (0, True), "rows": (2, True)}
CASES = [
    (name, form) for form in FORMS for name in RANGES if form == "products" or name in ("prefix", "suffix", "perhaps nothing")
]


@pytest.mark.parametrize(("name", "form"), fast(CASES, ("prefix", "products"), ("suffix", "rows")))
def test_weighted_sums_over_the_past(name: str, form: str) -> None:
    rows, in_sums = FORMS[form]
    ctx, B, T, outputs = weighted_past(name, rows=rows, in_sums=in_sums)
    for bounds in ({B: 2, T: 5}, {B: 1, T: 1}, {B: 1, T: 2}):
        shape = (*bounds.values(), *([rows] if rows else []), 3)
        inputs = {each: normal(*shape, seed=seed).astype("float32") for seed, each in enumerate("qkv")}
        expected = reference.evaluate(ctx, outputs, bounds, inputs)
        for config in (*SETTINGS, *((tp.Config(),) if bounds[T] == 5 else ())):
            for result, value in zip(ctx.run(bounds, outputs, inputs, config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{name}, {config}")


@pytest.mark.parametrize("number", fast([math.nan, math.inf], math.inf))
@pytest.mark.parametrize(
    ("name", "rows"),
    first(3, [("perhaps nothing", 0), ("prefix before", 0), ("suffix", 2), ("prefix", 0), ("suffix", 0), ("prefix", 2)]),
)
def test_points_outside_of_a_range_do_not_count(name: str, rows: int, number: float) -> None:
    """A product with the whole step has zeros for these points: 0 times infinity would be NaN."""
    ctx, B, T, outputs = weighted_past(name, rows=rows)
    for where, point in (("v", 3), ("k", 4), ("q", 2)):
        shape = (1, 6, rows, 3) if rows else (1, 6, 3)
        inputs = {each: normal(*shape, seed=seed).astype("float32") for seed, each in enumerate("qkv")}
        inputs[where][0, point, ..., 1] = number
        expected = reference.evaluate(ctx, outputs, {B: 1, T: 6}, inputs)
        results = ctx.run({B: 1, T: 6}, outputs, inputs, tp.Config(backend="numpy"))
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(np.isfinite(result), np.isfinite(value))


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_products_of_whole_matrices(form: str) -> None:
    """No reader has keys or values of its own, which would be width times as large as all scores."""
    rows, in_sums = FORMS[form]
    ctx, B, T, outputs = weighted_past("prefix", width=64, rows=rows, in_sums=in_sums)
    cost = ctx.compile({B: 2, T: 64}, outputs).cost()
    assert cost.numbers["temporaries"] < 4 * 2 * max(rows, 1) * 64 * 64 * 64


PICKS: dict[str, Callable[[tp.Tensor], tp.Tensor]] = {
    "the greatest": lambda r: tp.take(tp.sin(r), r.argmax(0), 0),
    "twice a position": lambda r: tp.take(r, r.sum(1).argmax(0) * 2 - 1, 0),  # also before the range, and after it
    "of sums": lambda r: tp.take(r.sum(1), r.sum(1).argmin(0), 0),
}


@pytest.mark.parametrize(("name", "pick"), cells(RANGES, PICKS))
def test_picked_elements(name: str, pick: str) -> None:
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(b, t)), name="x")
        here = slice(0, t + 1) if "nothing" in name else RANGES[name](t, T)
        y = PICKS[pick](x[b, here])
        loss = (tp.sin(y) * (t + 1)).sum()
        assert_gradients(ctx, loss, [x], {B: 2, T: 3}, {"x": normal(2, 3, 2, seed=1)})
        outputs = [y, *tp.grad(loss, [x])]
    for bounds in ({B: 2, T: 4}, {B: 1, T: 1}):
        inputs = {"x": normal(*bounds.values(), 2, seed=2).astype("float32")}
        expected = reference.evaluate(ctx, outputs, bounds, inputs)
        for config in SETTINGS:
            for result, value in zip(ctx.run(bounds, outputs, inputs, config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{name}, {config}")


def test_a_pick_from_its_own_past() -> None:
    """Contributions to earlier points are needed before those to later ones: the loop spreads them."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (), domain=(t,)), name="x")
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.sin(tp.take(h[0 : t + 1], h[0 : t + 1].argmax(0), 0) * x[t + 1]) + h[0 : t + 1] @ x[0 : t + 1]
        assert_gradients(ctx, h * (t + 1), [x], {T: 4}, {"x": normal(4, seed=1)})


def test_sums_of_rectangles_are_scans_along_both_steps() -> None:
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        x = tp.input("x", domain=(i, j))
        y = x[0 : i + 1, 0 : j + 1].sum((0, 1))
        outputs = [y, x[0 : i + 1, j:J].max(), x[i:I, 0 : j + 1].sum(1).sum(0), *tp.grad(y * y, [x])]
    program = ctx.compile({I: 6, J: 5}, outputs)
    assert {str(symbol) for symbol in program.cost().operations.free_symbols} == {"I", "J"}
    powers = [term.as_powers_dict() for term in program.cost().operations.expand().as_ordered_terms()]
    assert all(power <= 1 for term in powers for base, power in term.items() if base.is_Symbol)
    for bounds in ({I: 4, J: 3}, {I: 1, J: 2}, {I: 1, J: 1}):
        inputs = {"x": normal(*bounds.values(), seed=1).astype("float32")}
        expected = reference.evaluate(ctx, outputs, bounds, inputs)
        for config in SETTINGS:
            for result, value in zip(ctx.run(bounds, outputs, inputs, config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{config}")


def test_sums_over_a_suffix_of_shapes_that_vary() -> None:
    """The outer product of a suffix with itself: each point's sums have a shape of their own, and no scan has them all."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,), requires_grad=True)
        loss = tp.outer(x[t:T], x[t:T]).sum(None)[0:T].sum(0)
        (gradient,) = assert_gradients(ctx, loss, [x], {T: 5}, {"x": normal(5)})
    fed = {"x": normal(5).astype("float32")}
    for config in SETTINGS:
        result = ctx.run({T: 5}, gradient, fed, config)
        assert_same(result, reference.evaluate(ctx, [gradient], {T: 5}, fed)[0], 1e-4)
