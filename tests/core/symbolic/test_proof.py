"""Quick proofs: what they say holds for all bounds and steps, by brute force."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_core.errors import TempoError
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tempo_core.symbolic.proof import distribute, extreme, provably_nonnegative

t, s = Symbol("t", "T"), Symbol("s", "S")
T, S = t.bound_expr, s.bound_expr


def combined(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    operations = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        minimum,
        maximum,
    ]
    return st.builds(lambda operation, a, b: operation(a, b), st.sampled_from(operations), parts, parts)


EXPRESSIONS = st.recursive(st.sampled_from([t.expr, s.expr, T, S]) | st.integers(-3, 5).map(Expr.of), combined, max_leaves=5)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_what_is_provably_not_negative_is_not_negative(data: st.DataObject) -> None:
    try:
        expression = data.draw(EXPRESSIONS)
    except TempoError:  # a division by 0, or by what may be 0
        return
    if not provably_nonnegative(expression):
        return
    for bounds in ((1, 1), (1, 4), (3, 2), (4, 5)):
        for point in ((a, b) for a in range(bounds[0]) for b in range(bounds[1])):
            env = dict(zip((Symbol("T"), Symbol("S"), t, s), (*bounds, *point), strict=True))
            try:
                value = expression.evaluate(env)
            except (ZeroDivisionError, TempoError):
                continue
            assert value >= 0, f"{expression} is {value} for {env}"


def test_divisors_that_may_be_negative() -> None:
    """With T = 3, (t - 5) // T is -2 at 0, and t % (T - 5) is -1 at 1."""
    assert not provably_nonnegative((t.expr - 5) // T)
    assert not provably_nonnegative(t.expr % (T - 5))
    assert provably_nonnegative(t.expr // T)
    assert provably_nonnegative((t.expr - 5) % T)


def test_the_greater_of_two_values_is_at_least_their_mean() -> None:
    assert provably_nonnegative(maximum(2 * T - 2, 2) - T)
    assert not provably_nonnegative(maximum(2 * T - 5, 2) - T)  # -1 for T = 3 and T = 4


def test_a_sum_of_many_extremes_is_given_up_and_not_written_out() -> None:
    """Each min and max doubles the choices: 2 ** 40 of them are neither listed nor tried."""
    extremes = [maximum(t.expr - k, T - 3 * k) for k in range(1, 41)]
    sum_of_all = sum(extremes, Expr.of(0))
    assert distribute(sum_of_all) is None and distribute(-sum_of_all) is None
    assert not provably_nonnegative(sum_of_all)


def test_a_limit_keeps_no_expression_that_another_one_is_never_above() -> None:
    several = (T, maximum(2 * T - 2, T), maximum(T, 5), maximum(2 * T - 2, 2), Expr.of(5))
    assert extreme(several, -1) == minimum(T, 5)
