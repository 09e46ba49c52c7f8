"""The reference evaluator itself: its refusals, deep recurrences, and graphs between passes."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.compiler import checked_bounds, result_of, with_outputs
from tempo_core.passes.pipeline import pipeline
from tests.core.running import CASES, assert_all_same, evaluated
from tests.core.test_language import state_passing as _  # noqa: F401 - registers the cases
from tests.reference import evaluate


def test_long_recurrences_need_no_recursion_in_python() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        n = tp.recurrence((), "int32", domain=(t,))
        n[0] = 1
        n[t + 1] = n + 1
    (result,) = evaluate(ctx, [n[T - 1]], {T: 5000})
    assert result == 5000


def test_values_that_depend_on_themselves() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a, b = tp.recurrence((), domain=(t,), name="a"), tp.recurrence((), domain=(t,), name="b")
        a[0] = 1.0
        a[t] = b[t] * 2
        b[t] = a[t] + 1
    with pytest.raises(errors.CausalityError, match=r"a \(Merge\)\[1\].* <- .*b \(Merge\)\[1\].* <- .*a \(Merge\)\[1\]"):
        evaluate(ctx, [a], {T: 3})
    assert evaluate(ctx, [a[0], b[0]], {T: 3}) == [1, 2]  # these do not


def test_points_that_are_not_there() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        h = tp.recurrence((), domain=(t,), name="h")
        h[t, t >= 1] = x
        feed = {"x": np.ones(3)}
        with pytest.raises(errors.OutOfDomainError, match="t = 2"):
            evaluate(ctx, [x[t + 1] * 2], {T: 3}, feed)
        with pytest.raises(errors.OutOfDomainError, match=r"exists only where \(t//2\) >= t"):
            evaluate(ctx, [(x * 2)[t : t // 2].sum(0)], {T: 3}, feed)
        with pytest.raises(errors.UncoveredPointError, match="t = 0"):
            evaluate(ctx, [h], {T: 3}, feed)
        with pytest.raises(errors.OutOfDomainError, match="exists only where"):
            evaluate(ctx, [x[t % 2 == 0] * 2], {T: 3}, feed)


def test_bounds_and_inputs_that_are_missing_or_do_not_fit() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
    with pytest.raises(errors.BoundsError, match="T is not given"):
        evaluate(ctx, [x], {})
    with pytest.raises(errors.InputError, match="`x` is not given"):
        evaluate(ctx, [x], {T: 2})
    with pytest.raises(errors.InputError, match=r"shape \(3,\)"):
        evaluate(ctx, [x], {T: 2}, {"x": np.ones(3)})
    with pytest.raises(ValueError, match="float16"):
        evaluate(ctx, [x], {T: 2}, {"x": np.ones(2)}, dtype="float16")


def test_float64_keeps_what_float32_loses() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = ((x + 1.0) - 1.0).astype("float32")
    tiny = np.array([1e-12, 3e-12])
    (double,), (single,) = (evaluate(ctx, [y], {T: 2}, {"x": tiny}, dtype=d) for d in ("float64", None))
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, tiny, rtol=1e-3)
    assert single.dtype == np.float32
    assert (single == 0).all()


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_pass_keeps_the_meaning_of_the_graph(name: str) -> None:
    """The graph after each pass, without a schedule and stores, gives the same values as the program."""
    case = CASES[name]()
    expected, bounds = evaluated(case), checked_bounds(case.context, case.bounds)[0]
    results = [result_of(tensor) for tensor in case.outputs]
    with case.context:
        graph = with_outputs(case.context, case.outputs)

    def assert_kept() -> None:
        values = evaluate(graph, None, case.bounds, case.inputs)
        assert_all_same([r.former(bounds)(v) for r, v in zip(results, values, strict=True)], expected)

    assert_kept()
    for each in pipeline():
        graph = each.apply(graph)
        assert_kept()
