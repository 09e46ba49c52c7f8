"""Expressions and conditions, parsed back from their text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tempo_core.symbolic.condition import FALSE, TRUE, Bool
from tempo_core.symbolic.expr import Expr, maximum, minimum
from tests.core.ir.strategies import BOUNDS, ORDER, STEPS, conditions, exprs
from tests.graph_parser import parse_bool, parse_expr
from tests.graph_parser import parse_symbolic as parse

SYMBOLS = {step.name: step for step in ORDER} | {str(bound): bound.single_atom for bound in BOUNDS}
B, I, T = BOUNDS
b, i, t = STEPS


@settings(deadline=None)
@given(exprs())
def test_expressions_are_read_as_they_print(expression: Expr):
    assert parse_expr(str(expression), SYMBOLS).terms == expression.terms


@settings(deadline=None)
@given(conditions())
def test_conditions_are_read_as_they_print(condition: Bool):
    again = parse_bool(str(condition), SYMBOLS)
    assert again == condition and str(again) == str(condition)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", Expr.of(-3)),
        ("t**2*T - (t%2)", t * t * T - t % 2),
        ("min(t + 5, T) - max(i, 0, b - 1)", minimum(t + 5, T) - maximum(i, 0, b - 1)),
        ("t + 5 < T", t + 5 < T),
        ("~(t == 0) | true", TRUE),
        ("(i != b) & false", FALSE),
    ],
)
def test_what_texts_say(text: str, value: Expr | Bool):
    assert str(parse(text, SYMBOLS)) == str(value)


def test_both_directions_of_an_equality_are_one_condition():
    assert parse_bool("T == t + 1", SYMBOLS) == parse_bool("t + 1 == T", SYMBOLS)
    moved = (i == t).substitute({SYMBOLS["i"]: t, SYMBOLS["t"]: i})
    assert moved == (i == t)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("t + Z", "unknown step or bound `Z`; there are b, i, t, B, I, T"),
        ("t +", "`t +` is not an expression of steps and bounds"),
        ("t / 2", "`t / 2` is not an expression"),
        ("0 <= t < T", "is not an expression"),
        ("t.bound", "`t.bound` is not an expression"),
        ("(t >= 1) + 1", "`t >= 1` is a condition, and an expression is needed here"),
        ("t & (i == 0)", "`t` is an expression, and a condition is needed here"),
    ],
)
def test_errors_say_what_is_no_expression(text: str, problem: str):
    with pytest.raises(ValueError) as error:
        parse(text, SYMBOLS)
    assert problem in str(error.value)
