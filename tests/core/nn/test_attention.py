"""Attention patterns: the positions that they reach, their stores, and decoding that reads its own output."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.nn.patterns import as_pattern
from tests import reference
from tests.core.nn.samples import PATTERNS
from tests.core.running import SETTINGS, assert_same

nn = tp.nn
CAUSAL = ["causal", "window", "block", "sinks", "dilated_window", "every_other"]  # the patterns that a decoder can use


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_reaches_its_positions(name: str) -> None:
    pattern, reached = PATTERNS[name]
    assert [as_pattern(pattern).positions(t, 5) for t in range(5)] == reached


@pytest.mark.parametrize("length", [1, 2, 4])
def test_a_mask_is_true_where_a_pattern_reaches_whatever_the_length(length: int) -> None:
    """Masks whose length is a bound; a pattern may be wider than the mask."""
    patterns = [as_pattern(p) for p in (*(p for p, _ in PATTERNS.values()), nn.window(9), nn.block(9), nn.sinks(3, 2))]
    ctx = tp.Context("t")
    with ctx as ((_t, T),):
        masks = [pattern.mask(T) for pattern in patterns]
    for pattern, result in zip(patterns, ctx.run({T: length}, masks, config=SETTINGS["numpy"]), strict=True):
        expected = [[k in pattern.positions(t, length) for k in range(length)] for t in range(length)]
        np.testing.assert_array_equal(result, expected, err_msg=pattern.name)


def test_a_pattern_may_depend_on_other_steps() -> None:
    """Each layer i has its own window, over a step and over a dimension."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (4,), domain=(t,))
        attention = nn.MultiHeadAttention(4, 2, fed=True, pattern=lambda t, T: slice(tp.max(t - i, 0), t + 1))
        over_time, over_dimension = attention(x, over=t), attention(x[0:T])
    random = np.random.default_rng(0)
    inputs = {name: random.normal(size=(4, 4)) for name in attention.parameters()} | {"x": random.normal(size=(5, 4))}
    first, second = ctx.run({I: 3, T: 5}, [over_time, over_dimension], inputs, config=SETTINGS["numpy"])
    assert first.shape == second.shape == (3, 5, 4)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    assert np.abs(first[0] - first[1]).max() > 0.01


def decoder(pattern: Any) -> tuple[tp.Context, Any, tp.Tensor, dict[str, np.ndarray]]:
    """A loop whose next value attends to all values so far."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        attention = nn.GroupedQueryAttention(4, 2, 1, pattern=pattern, rope=nn.RoPE(2), fed=True, name="a")
        x = tp.recurrence((4,), domain=(t,), name="x")
        x[0] = tp.input("first", (4,))
        x[t + 1] = x + tp.sin(attention(x, over=t))
    random = np.random.default_rng(0)
    inputs = {name: random.normal(size=tuple(map(int, p.shape))) for name, p in attention.parameters().items()}
    return ctx, T, x, {name: value.astype("float32") for name, value in inputs.items()} | {"first": np.ones(4, "float32")}


@pytest.mark.parametrize("name", CAUSAL)
def test_a_decoder_gives_what_its_equations_say(name: str) -> None:
    ctx, T, x, inputs = decoder(PATTERNS[name][0])
    for length in (1, 2, 3, 7):
        (expected,) = reference.evaluate(ctx, [x], {T: length}, inputs)
        (result,) = ctx.run({T: length}, [x], inputs, config=SETTINGS["numpy"])
        assert_same(result, expected, 1e-4, f"T = {length}")


@pytest.mark.parametrize("length", [2, 7])  # for length 2, the window behind the sinks is always empty
def test_a_decoder_with_sinks_is_the_same_staged(length: int) -> None:
    ctx, T, x, inputs = decoder(nn.sinks(2, 2))
    (expected,) = reference.evaluate(ctx, [x], {T: length}, inputs)
    assert_same(ctx.run({T: length}, [x], inputs)[0], expected, 1e-4)


@pytest.mark.parametrize(
    ("pattern", "slots"),
    [(nn.causal, [50]), (nn.window(3), [3]), (nn.block(4), [4]), (nn.sinks(2, 3), [3, 2]), (nn.dilated(2, 3), [5])],
    ids=["causal", "window", "block", "sinks", "dilated"],
)
def test_what_is_kept_of_the_keys_follows_from_the_pattern(pattern: nn.Pattern, slots: list[int]) -> None:
    ctx, T, x, _ = decoder(pattern)
    with ctx:
        last = x[T - 1]
    text = ctx.compile({T: 50}, [last]).text("memory", full=True)
    kept = re.findall(r"^ *a\.keys\S* +\S+ +(?:block|window) +(\d+)", text.replace(", ", ","), re.MULTILINE)
    assert sorted(map(int, kept)) == sorted(slots), text
