"""Counts of points are polynomials: exact where coefficients are one, and else upper bounds. isl counts the points one by one."""

from __future__ import annotations

import islpy as isl
import pytest

from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tempo_core.symbolic.isl.counting import summed
from tempo_core.symbolic.isl.sets import CONTEXT, fixed

I, J, T = (Symbol(name) for name in "IJT")
i, j, t = Symbol("i", "I"), Symbol("j", "J"), Symbol("t", "T")

EXACT = {
    "box": "[I, T] -> { [i, t] : 0 <= i < I and 0 <= t < T }",
    "all but the first": "[T] -> { [t] : 1 <= t < T }",
    "a point": "[T] -> { [t] : t = 0 and T >= 1 }",
    "the last": "[T] -> { [t] : t = T - 1 }",
    "triangle": "[T] -> { [i, t] : 0 <= i <= t < T }",
    "triangle without its edge": "[T] -> { [i, t] : 0 <= i < t < T }",
    "band": "[T] -> { [i, t] : 0 <= i < T and 0 <= t < T and i - 3 <= t <= i }",
    "simplex": "[T] -> { [i, j, t] : 0 <= i <= j <= t < T }",
    "two bounds": "[I, T] -> { [i, t] : 0 <= i < I and i <= t < T }",
    "two pieces": "[T] -> { [t] : 0 <= t < T and (t < 2 or t >= T - 2) }",
    "but one": "[T] -> { [t] : 0 <= t < T and t != 3 }",
    "diagonal": "[T] -> { [i, t] : 0 <= i < T and t = i }",
    "anti-diagonal": "[T] -> { [i, t] : 0 <= i < T and 0 <= t < T and i + t = T - 1 }",
    "nothing": "[T] -> { [t] : 0 <= t < T and T < 0 }",
    "no steps": "[T] -> { [] : T >= 1 }",
}
BOUNDED = {
    "every fourth": "[T] -> { [t] : 0 <= t < T and t mod 4 = 1 }",
    "half a triangle": "[T] -> { [i, t] : 0 <= i < T and 0 <= 2t < i }",
    "between two diagonals": "[I, T] -> { [i, t] : 0 <= i < I and i < t < I - i and 0 <= t < T }",
    "beyond two diagonals": "[I, T] -> { [i, t] : 0 <= i < I and t > i and t >= I - i and 0 <= t < T }",
    "every third, or few": "[T] -> { [t] : 0 <= t < T and (t mod 3 = 1 or t < 5) }",
    "every other in a triangle": "[T] -> { [i, t] : 0 <= i <= t < T and t mod 2 = 0 }",
}
BOUNDS = [{I: 4, T: 9}, {I: 9, T: 4}, {I: 1, T: 1}, {I: 7, T: 16}]


def number_of_points(text: str, bounds: dict[Symbol, int]) -> int:
    """The number of points, by isl."""
    points = isl.Map.from_domain(isl.Set.read_from_str(CONTEXT, text))
    number: int = fixed(points, bounds).domain().count_val().to_python()
    return number


def steps_of(text: str) -> tuple[Symbol, ...]:
    names = text.split("{ [")[1].split("]")[0]
    return tuple({"i": i, "j": j, "t": t}[name.strip()] for name in names.split(",") if name.strip())


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_points_are_counted_exactly(name: str, bounds: dict[Symbol, int]) -> None:
    text = EXACT[name]
    count = summed(isl.Set.read_from_str(CONTEXT, text), steps_of(text), 1, bounds)
    assert count.is_exact
    assert count.evaluate(bounds) == number_of_points(text, bounds)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("name", BOUNDED)
def test_strided_points_have_an_upper_bound(name: str, bounds: dict[Symbol, int]) -> None:
    text = BOUNDED[name]
    points, number = isl.Set.read_from_str(CONTEXT, text), number_of_points(text, bounds)
    count = summed(points, steps_of(text), 1, bounds)
    assert not count.is_exact or count.evaluate(bounds) == number
    assert number <= count.evaluate(bounds) <= 2 * number + max(bounds.values())


def test_a_polynomial_is_right_for_other_bounds_too() -> None:
    text = EXACT["simplex"]
    count = summed(isl.Set.read_from_str(CONTEXT, text), steps_of(text), 1, {T: 5})
    assert [count.evaluate({T: n}) for n in (1, 2, 3, 10)] == [number_of_points(text, {T: n}) for n in (1, 2, 3, 10)]


@pytest.mark.parametrize(
    "each",
    [t.expr + 1, t.expr * t.expr, t.expr * t.expr * t.expr * i.expr, T.expr - t.expr, Expr.of(0)],
    ids=str,
)
def test_sums_over_a_triangle(each: Expr) -> None:
    points = isl.Set.read_from_str(CONTEXT, EXACT["triangle"])
    count = summed(points, (i, t), each, {T: 7})
    by_hand = sum(each.evaluate({i: a, t: b, T: 7}) for b in range(7) for a in range(b + 1))
    assert count.is_exact and count.evaluate({T: 7}) == by_hand


@pytest.mark.parametrize(
    "each",
    [
        minimum(t.expr + 1, 5), t.expr + 1 - maximum(t.expr - 3, 0), maximum(t.expr - 3, 0), t.expr // 4, 9 - t.expr // 4,
        t.expr % 4, 9 - t.expr % 4, minimum(t.expr // 2, 3) + t.expr,
        (21 - t.expr) // 2 * (t.expr + 1 - t.expr // 3 * 3), (t.expr + 1 - t.expr % 5) * (t.expr // 2),
    ],
    ids=str,
)  # fmt: skip
def test_sums_of_what_is_not_a_polynomial_have_an_upper_bound(each: Expr) -> None:
    points = isl.Set.read_from_str(CONTEXT, "[T] -> { [t] : 0 <= t < T }")
    count = summed(points, (t,), each, {T: 12})
    assert not count.is_exact
    assert count.evaluate({T: 12}) >= sum(each.evaluate({t: n, T: 12}) for n in range(12))
