"""Patterns over three steps: carries through nested loops, and layers of attention over cached keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.core.running import SETTINGS, assert_all_same

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def assert_right(
    ctx: tp.Context, bounds: dict[Any, int], outputs: list[tp.Tensor], expected: list[Any], inputs: dict[str, Any]
) -> None:
    results = reference.evaluate(ctx, outputs, bounds, inputs)
    assert_all_same(results, [np.asarray(e, "float32") for e in expected], 1e-4)
    for config in SETTINGS.values():
        assert_all_same(ctx.run(bounds, outputs=outputs, inputs=inputs, config=config), results, 1e-4)


@pytest.mark.parametrize("sizes", [(3, 2, 4), (1, 1, 1), (2, 3, 1), (2, 1, 3)], ids=str)
def test_a_carry_through_iterations_epochs_and_minibatches(sizes: tuple[int, int, int]) -> None:
    """w[i, e, m + 1], w[i, e + 1, 0] and w[i + 1, 0, 0], as in training; and the data of an iteration read by its first weights."""
    ctx = tp.Context("i", "e", "m")
    with ctx as ((i, I), (e, E), (m, M)):
        batch = tp.input("batch", (2,), domain=(i, m))
        w = tp.recurrence((2,), domain=(i, e, m), name="w")
        seen = batch * w[i, 0, 0]
        after = tp.tanh(w + seen[i, 0:M].sum(0) * 0.1 - batch * (e + 1))
        w[0, 0, 0] = tp.ones((2,))
        w[i, e, m + 1] = after
        w[i, e + 1, 0] = after[i, e, M - 1]
        w[i + 1, 0, 0] = after[i, E - 1, M - 1] * 0.5
        final = after[I - 1, E - 1, M - 1]
    data, state = normal(sizes[0], sizes[2], 2), np.ones(2)
    weights = np.zeros((*sizes, 2))
    for row in range(sizes[0]):
        first = state
        for epoch in range(sizes[1]):
            for k in range(sizes[2]):
                weights[row, epoch, k] = state
                state = np.tanh(state + (data[row] * first).sum(0) * 0.1 - data[row, k] * (epoch + 1))
        last, state = state, state * 0.5
    assert_right(ctx, {I: sizes[0], E: sizes[1], M: sizes[2]}, [w, final], [weights, last], {"batch": data})


@pytest.mark.parametrize("window", [None, 2])
def test_layers_of_attention_over_a_cache(window: int | None) -> None:
    """h[b, l, t] reads h[b, l - 1, t] and the keys k[b, l, 0:t + 1] of its layer; the next time step begins with the last output."""
    width, ctx = 3, tp.Context("b", "l", "t")
    with ctx as ((b, B), (l, L), (t, T)):
        prompt = tp.input("prompt", (width,), domain=(b, t))
        weight = tp.input("weight", (width, width), domain=(l,))
        h, x = tp.recurrence((width,), domain=(b, l, t), name="h"), tp.recurrence((width,), domain=(b, t), name="x")
        keys = h @ weight
        span = slice(0, t + 1) if window is None else slice(tp.max(t - window + 1, 0), t + 1)
        past = keys[b, l, span]
        out = h + (past @ h).softmax(0) @ past
        x[b, t, t < 2] = prompt
        x[b, t] = tp.sin(out[b, L - 1, t - 1])
        h[b, 0, t] = x
        h[b, l, t] = out[b, l - 1, t]
        sizes = {B: 2, L: 3, T: 5}
        total = out[b, L - 1, 0:T].sum(0)
    prompts, weights = normal(2, 5, width), normal(3, width, width) * 0.5
    expected = np.zeros((2, 3, 5, width))
    for row in range(2):
        cache: list[list[np.ndarray]] = [[], [], []]
        for k in range(5):
            value = prompts[row, k] if k < 2 else np.sin(expected[row, 2, k - 1])
            for layer in range(3):
                cache[layer].append(value @ weights[layer])
                seen = np.stack(cache[layer] if window is None else cache[layer][-window:])
                scores = np.exp(seen @ value)
                value = value + scores / scores.sum() @ seen
                expected[row, layer, k] = value
    assert_right(ctx, sizes, [out, total], [expected, expected[:, 2].sum(1)], {"prompt": prompts, "weight": weights})


def test_mixed_indices_of_three_steps() -> None:
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        x = tp.input("x", domain=(b, i, t))
        outputs = [
            x[b, tp.max(i - 1, 0), 0:T].sum(0),
            x[0:B, i, t : tp.min(t + 2, T)].sum((0, 1)),
            x[B - 1 - b, 0 : i + 1, T - 1 - t].sum(0),
            x[b, 0:I, t % 2] @ x[b, 0:I, t],
            x[tp.min(t, B - 1), i, tp.min(b + i, T - 1)],
        ]
    sizes, a = (2, 3, 4), normal(2, 3, 4)
    point = np.ndindex(*sizes)
    expected = [
        np.stack([a[:, max(r - 1, 0)].sum(1) for r in range(3)], 1),
        np.array([[a[:, r, k : k + 2].sum() for k in range(4)] for r in range(3)]),
        np.zeros(sizes), np.zeros((2, 4)), np.zeros(sizes),
    ]  # fmt: skip
    for p, r, k in point:
        expected[2][p, r, k] = a[1 - p, : r + 1, 3 - k].sum()
        expected[3][p, k] = a[p, :, k % 2] @ a[p, :, k]
        expected[4][p, r, k] = a[min(k, 1), r, min(p + r, 3)]
    assert_right(ctx, {B: 2, I: 3, T: 4}, outputs, expected, {"x": a})
