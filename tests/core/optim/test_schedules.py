"""Schedules against their formulas at every count, and as functions of several steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import TempoError
from tests import reference
from tests.core.running import SETTINGS, assert_same

s = tp.optim.schedules
POINTS = 14


def half_cosine(n: float, total: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(n / total, 1)))


ROWS: dict[str, tuple[Callable[[Any], s.Schedule], Callable[[int], float]]] = {  # the schedule, from the bound (14); its formula, from the count
    "constant": (lambda I: s.constant(0.3), lambda n: 0.3),
    "linear": (lambda I: s.linear(0.5, 0.1, 10), lambda n: 0.5 - 0.4 * min(n / 10, 1)),
    "linear over a bound": (lambda I: s.linear(1.0, 0.0, I), lambda n: 1 - n / 14),
    "cosine": (lambda I: s.cosine(0.5, 8, end=0.1), lambda n: 0.1 + 0.4 * half_cosine(n, 8)),
    "cosine over a bound": (lambda I: s.cosine(0.5, I), lambda n: 0.5 * half_cosine(n, 14)),
    "exponential": (lambda I: s.exponential(0.5, 0.9), lambda n: 0.5 * 0.9**n),
    "exponential, slow": (lambda I: s.exponential(0.5, 0.9, every=4), lambda n: 0.5 * 0.9 ** (n / 4)),
    "step": (lambda I: s.step(0.5, 0.1, every=3), lambda n: 0.5 * 0.1 ** (n // 3)),
    "piecewise": (lambda I: s.piecewise([1.0, 0.5, 0.1], [3, I - 4]), lambda n: 1.0 if n < 3 else 0.5 if n < 10 else 0.1),
    "warmup": (lambda I: s.warmup(4, s.constant(0.2)), lambda n: 0.2 * min(n / 4, 1)),
    "warmup from a start": (
        lambda I: s.warmup(4, s.exponential(0.2, 0.5), start=0.1), lambda n: 0.1 + 0.1 * n / 4 if n < 4 else 0.2 * 0.5 ** (n - 4),
    ),
    "no warmup": (lambda I: s.warmup(0, s.exponential(0.2, 0.5)), lambda n: 0.2 * 0.5**n),
    "warmup_cosine": (
        lambda I: s.warmup_cosine(0.4, 4, I, end=0.02), lambda n: 0.1 * n if n < 4 else 0.02 + 0.38 * half_cosine(n - 4, 10),
    ),
}  # fmt: skip


def test_a_schedule_has_the_value_of_its_formula_at_every_count() -> None:
    context = tp.Context("i")
    with context as ((i, I),):
        rates = [make(I)(i) for make, _ in ROWS.values()]
    assert {r.dtype for r in rates} == {"float32"}
    expected = [np.array([formula(n) for n in range(POINTS)], "float32") for _, formula in ROWS.values()]
    oracle = reference.evaluate(context, rates, {I: POINTS}, {})
    for config in [SETTINGS["numpy"], SETTINGS["staged"]]:
        results = context.run({I: POINTS}, rates, config=config)
        for name, result, right, other in zip(ROWS, results, expected, oracle, strict=True):
            assert_same(np.broadcast_to(result, (POINTS,)), right, 2e-6, name)
            assert_same(np.broadcast_to(other, (POINTS,)), right, 2e-6, name)


def test_counts_follow_the_steps_in_lexicographic_order() -> None:
    context = tp.Context("i", "e", "m")
    with context as ((i, I), (e, E), (m, M)):
        count = s.update_count((i, e, m))
        assert str(count) == str((i * E + e) * M + m)
        rate = s.linear(0.0, 24.0, I * E * M)(count)
    assert [step.name for step in rate.domain.steps] == ["i", "e", "m"]
    (result,) = context.run({I: 2, E: 3, M: 4}, [rate], config=SETTINGS["numpy"])
    np.testing.assert_allclose(result.ravel(), np.arange(24), atol=1e-5)


def test_a_count_may_be_a_tensor_or_a_number() -> None:
    context = tp.Context("i")
    with context as ((_, I),):
        outputs = [s.linear(1.0, 0.0, 10)(tp.constant([0, 5, 20])), s.step(1.0, 0.5, 2)(7)]
    several, one = context.run({I: 1}, outputs, config=SETTINGS["numpy"])
    np.testing.assert_allclose(several, [1.0, 0.5, 0.0])
    assert one == 0.125


def test_steps_are_exact_where_division_is_not() -> None:
    """XLA divides by 41 with a multiplication, which gives a little less than k for 41 k."""
    context = tp.Context("i")
    with context as ((i, I),):
        rates = [s.step(1.0, 0.9, every)(i) for every in (3, 41, 47)]
    for every, result in zip((3, 41, 47), context.run({I: 500}, rates, config=SETTINGS["staged"]), strict=True):
        np.testing.assert_allclose(
            result, [0.9 ** (n // every) for n in range(500)], rtol=1e-4
        )  # a wrong count changes a rate by a tenth


def test_mistakes_are_explained() -> None:
    with pytest.raises(TempoError, match="2 values for 2 boundaries") as raised:
        s.piecewise([0.1, 0.2], [3, 4])
    assert "one value more than boundaries" in (raised.value.hint or "")
    with tp.Context("i") as ((_i, I),), pytest.raises(TempoError, match="I is not a step"):
        s.update_count((I,))
