"""The hull of a condition holds wherever the condition does."""

import itertools
import random

import pytest

from tempo_core.symbolic.condition import FALSE, TRUE, Bool, Comparison, hull
from tempo_core.symbolic.expr import Symbol

i, t, T = Symbol("i", "I").expr, Symbol("t", "T").expr, Symbol("T").expr
PARTS = [t >= 3, t <= 5, t == 4, t != 2, i + t >= 4, t % 3 == 1, t % 2 <= 0, i == t, T - t >= 2, TRUE, FALSE]


def random_condition(numbers: random.Random, depth: int) -> Bool:
    if depth == 0:
        return numbers.choice(PARTS)
    left, right = random_condition(numbers, depth - 1), random_condition(numbers, depth - 1)
    return numbers.choice([left & right, left | right, ~left])


@pytest.mark.slow
def test_a_hull_is_implied_and_in_one_piece() -> None:
    numbers = random.Random(0)
    tight = 0
    for _ in range(300):
        condition = random_condition(numbers, 3)
        around = hull(condition)
        if around is not FALSE:
            assert all(part is TRUE or (isinstance(part, Comparison) and part.kind == ">=") for part in around.parts)
        values = [dict(zip("itT", v, strict=True)) for v in itertools.product(range(4), range(7), (5, 8))]
        points = [{Symbol("i", "I"): v["i"], Symbol("t", "T"): v["t"], Symbol("T"): v["T"]} for v in values]
        assert all(around.evaluate(p) for p in points if condition.evaluate(p)), f"{condition}: {around}"
        tight += around is not TRUE and not all(around.evaluate(p) for p in points)
    assert tight > 100, "most hulls say something"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ((t >= 3) & (t <= 5), (t >= 3) & (t <= 5)),
        (((t >= 3) & (t <= 5)) | (t == 9), (t >= 3) & (t <= 9)),
        ((t >= 3) | (t >= T - 1), TRUE),
        ((t >= 1) & ((t <= 3) | (t % 2 == 0)), t >= 1),
        ((t >= 1) & ((t >= 6) | (t >= 4)), t >= 4),
        (t == 4, (t >= 4) & (t <= 4)),
        (t != 4, TRUE),
        (FALSE, FALSE),
    ],
    ids=str,
)
def test_the_limits_of_a_hull(condition: Bool, expected: Bool) -> None:
    assert hull(condition) == expected
