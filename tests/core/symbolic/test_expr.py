"""Expressions and conditions: their canonical form, and rewriting without a change of value."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_core.symbolic.condition import FALSE, TRUE, compare, conjunction, disjunction, equal
from tempo_core.symbolic.domain import Domain, Point, Range, full_range, identity, is_full_range, last_needed, step_order
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol, _number, maximum, minimum

i, t = Symbol("i", "I"), Symbol("t", "T")
IE, TE, BI, T = i.expr, t.expr, Symbol("I").expr, Symbol("T").expr
VALUES = [{i: a, t: b, Symbol("I"): c, Symbol("T"): d} for a, b, c, d in itertools.product((0, 2), (0, 1, 4), (1, 3), (1, 5))]


class Tree:
    """A random expression, with a Python function of the same meaning."""

    def __init__(self, expr, value):
        self.expr, self.value = expr, value


LEAVES = st.one_of(
    st.sampled_from([i, t, Symbol("I"), Symbol("T")]).map(lambda s: Tree(s.expr, lambda env: env[s])),
    st.integers(-6, 6).map(lambda n: Tree(Expr.of(n), lambda env: n)),
)


def _combine(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: Tree(p[0].expr + p[1].expr, lambda env: p[0].value(env) + p[1].value(env))),
        pairs.map(lambda p: Tree(p[0].expr - p[1].expr, lambda env: p[0].value(env) - p[1].value(env))),
        pairs.map(lambda p: Tree(p[0].expr * p[1].expr, lambda env: p[0].value(env) * p[1].value(env))),
        pairs.map(lambda p: Tree(minimum(p[0].expr, p[1].expr), lambda env: min(p[0].value(env), p[1].value(env)))),
        pairs.map(lambda p: Tree(maximum(p[0].expr, p[1].expr), lambda env: max(p[0].value(env), p[1].value(env)))),
        st.tuples(children, st.integers(1, 5)).map(lambda p: Tree(p[0].expr // p[1], lambda env: p[0].value(env) // p[1])),
        st.tuples(children, st.integers(1, 5)).map(lambda p: Tree(p[0].expr % p[1], lambda env: p[0].value(env) % p[1])),
        children.map(lambda a: Tree(-a.expr, lambda env: -a.value(env))),
    )


TREES = st.recursive(LEAVES, _combine, max_leaves=6)


@given(TREES)
def test_the_canonical_form_keeps_the_value(tree):
    for env in VALUES:
        assert tree.expr.evaluate(env) == tree.value(env)


@given(TREES, TREES)
def test_comparisons_keep_the_value(left, right):
    for env in VALUES[::3]:
        a, b = left.value(env), right.value(env)
        assert bool((left.expr < right.expr).evaluate(env)) == (a < b)
        assert bool((left.expr >= right.expr).evaluate(env)) == (a >= b)
        assert bool((left.expr == right.expr).evaluate(env)) == (a == b)
        assert bool((left.expr != right.expr).evaluate(env)) == (a != b)


@given(TREES, TREES)
def test_negations_keep_the_value(left, right):
    condition = (left.expr <= right.expr) & (right.expr != 0) | (left.expr == 2)
    for env in VALUES[::3]:
        assert bool((~condition).evaluate(env)) != bool(condition.evaluate(env))


@given(TREES, TREES)
def test_substitution_is_evaluation_of_the_substituted(outer, inner):
    substituted = outer.expr.substitute({t: inner.expr})
    for env in VALUES[::3]:
        assert substituted.evaluate(env) == outer.expr.evaluate({**env, t: inner.value(env)})


@given(TREES, TREES)
def test_equal_expressions_have_equal_hashes(left, right):
    assert hash(left.expr + right.expr) == hash(right.expr + left.expr)
    assert (left.expr + right.expr).terms == (right.expr + left.expr).terms


def test_equal_polynomials_are_one():
    assert (TE + 1 - TE).terms == Expr.of(1).terms
    assert {TE + BI, BI + TE} == {BI + TE}
    assert int((TE + 4) - (TE + 1)) == 3
    with pytest.raises(TypeError, match="symbolic"):
        int(TE)


@pytest.mark.parametrize(
    "expr, text",
    [
        (TE + 5, "t + 5"), (T - 1 - TE, "T - t - 1"), (2 * TE - 1, "2*t - 1"), (minimum(TE + 5, T), "min(t + 5, T)"),
        (maximum(TE - 3, 0), "max(t - 3, 0)"), ((TE + 5) // 3, "((t + 2)//3) + 1"), ((6 * TE) // 3, "2*t"), (TE % 4, "(t%4)"),
        (Expr.of(0), "0"), (TE * TE, "t**2"), (7 % Expr.of(4), "3"),
    ],
)  # fmt: skip
def test_texts(expr, text):
    assert str(expr) == text or sorted(str(expr)) == sorted(text)
    assert str(expr) == str(expr + 0)


def test_extrema_drop_what_another_beats():
    assert minimum(TE + 1, TE + 5).terms == (TE + 1).terms
    assert maximum(TE + 1, TE + 5).terms == (TE + 5).terms
    assert minimum(minimum(TE, T), BI).single_atom == Minimum(tuple(sorted((TE, T, BI), key=lambda e: (not e.steps, str(e)))))
    assert isinstance(maximum(TE, 0).single_atom, Maximum)


def test_numbers_of_numpy_are_numbers_and_truth_values_are_not():
    assert Expr.of(np.int64(3)).constant == 3
    with pytest.raises(TypeError):
        Expr.of(True)
    with pytest.raises(TypeError):
        Expr.of(1.5)


def test_division_by_zero():
    with pytest.raises(ZeroDivisionError):
        TE // 0
    with pytest.raises(ZeroDivisionError):
        TE % 0


def test_conditions_have_no_truth_value():
    with pytest.raises(TypeError, match=r"Python cannot tell here[\s\S]*& \| ~ instead of `and`, `or`, `not`"):
        bool(TE < T)
    assert (TE, 1) != (IE, 1)  # a comparison by structure, as tuples and dicts need it
    assert (TE + 1, 1) == (1 + TE, 1)


def test_constant_conditions_fold():
    assert (TE < TE + 1) is TRUE
    assert (TE >= TE + 1) is FALSE
    assert conjunction(TE < T, TRUE) == (TE < T)
    assert conjunction(TE < T, FALSE) is FALSE
    assert disjunction(TE < T, TRUE) is TRUE
    assert ((TE < T) & (IE < BI)) == ((IE < BI) & (TE < T))


# -- domains and indices ----------------------------------------------------------------------------------------------


def test_lengths_of_ranges():
    assert str(Range(TE, T).length) == "T - t"
    assert str(Range(TE, T).last) == "T - 1"
    strided = Range(Expr.of(0), T, 5)
    for length in (1, 4, 5, 6, 11):
        values = list(range(0, length, 5))
        assert strided.length.evaluate({Symbol("T"): length}) == len(values)
        assert strided.last.evaluate({Symbol("T"): length}) == values[-1]
    assert str(Range(TE, T, 1, Expr.of(7)).length) == "7"


@pytest.mark.parametrize(
    "index, last",
    [
        (Point(TE - 1), TE - 1),
        (Range(TE, minimum(TE + 5, T)), TE + 4),
        (Range(TE, T), T - 1),
        (Range(Expr.of(0), TE + 1), TE),
        (Point(maximum(TE - 3, 0)), TE - 3),
        (Point(minimum(TE + 2, T - 1)), TE + 2),
        (Range(TE // 4 * 4, minimum(TE // 4 * 4 + 4, T)), TE + 3),  # of a block, at most
        (Point(TE // 4 * 4), TE),
        (Point(TE - TE % 4 + 1), TE + 1),
        (Point(TE % 4), Expr.of(3)),
        (Point(6 - TE // 4 * 4), 9 - TE),
        (Point(TE // 2), TE // 2),
    ],
)
def test_the_last_point_that_is_needed_is_not_clamped(index, last):
    assert last_needed(index).terms == last.terms


def test_identity_and_full_ranges():
    domain = Domain((i, t))
    assert identity(domain) == (Point(IE), Point(TE))
    assert is_full_range(full_range(t), t)
    assert not is_full_range(Range(Expr.of(0), T, 2), t)
    assert not is_full_range(Point(TE), t)


def test_domains():
    domain = Domain((i, t), TE >= 1)
    assert i in domain and Symbol("i", "J") not in domain
    assert str(domain) == "(i, t) where t >= 1"
    assert domain.without(t).steps == (i,)
    assert step_order({t, i}, (i, t)) == (i, t)


def test_equal_expressions_are_compared_without_a_lookup() -> None:
    """A lookup compares expressions: with another object for 0, it would ask for the condition `0 == 0` again, without end."""
    t = Symbol("t", "T").expr
    assert equal(t, t) is compare("==", Expr.of(0))
    _number.cache_clear()  # so that 0 is another object
    assert Expr(t.terms) == Expr(t.terms) and Expr(()) == Expr.of(0)
