"""Slices that stop before they start at points where nothing uses them: in a branch that applies elsewhere."""

from __future__ import annotations

import pytest

import tempo_core as tp
from tempo_core.errors import OutOfDomainError
from tests.cases import fast, slow
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import SETTINGS, assert_all_same
from tests.reference import evaluate


@pytest.mark.parametrize("is_own", fast([False, True], True), ids=["of an input", "of the table itself"])
@pytest.mark.parametrize("sizes", [slow(((4, 5),)), (3, 1), slow(((2, 4),))])
def test_values_and_gradients(is_own, sizes):
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        w = tp.input("w", domain=(i, j))
        total = tp.recurrence((), domain=(i, j), name="total")
        source = total if is_own else w
        total[i, j, i < j] = tp.tanh(w + 0.5 * source[i, i:j].sum(0))
        total[i, j] = w
        bounds, inputs = {I: sizes[0], J: sizes[1]}, {"w": normal(*sizes).astype("float32")}
        first = assert_gradients(ctx, (total**2)[0:I, 0:J].sum(), [w], bounds, inputs)
        second = assert_gradients(ctx, (first[0] ** 2)[0:I, 0:J].sum(), [w], bounds, inputs)
        outputs = [total, *first, *second]
    expected = evaluate(ctx, outputs, bounds, inputs)
    for config in SETTINGS.values():
        assert_all_same(ctx.run(bounds, outputs, inputs, config), expected, 1e-4)


def test_the_condition_is_the_least_one() -> None:
    """A slice that is in order everywhere, or wherever its condition holds, adds no condition."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, _), (j, J)):
        w = tp.input("w", domain=(i, j))
        assert str(w[i, 0:j].domain) == str(w[i, j // 4 * 4 : tp.min(j // 4 * 4 + 4, J)].domain) == "(i, j)"
        assert str(w[i, i:j].domain) == "(i, j) where j >= i"
        assert str(w[i, i:j, i < j].domain) == "(i, j) where j >= i + 1"


def test_a_slice_that_is_used_everywhere_is_an_error() -> None:
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        w = tp.input("w", domain=(i, j))
        total = tp.recurrence((), domain=(i, j), name="total")
        total[i, j] = w[i, i:j].sum(0)
    with pytest.raises(OutOfDomainError, match=r"the slice i:j of step j stops before it starts at i = 1, j = 0"):
        ctx.compile({I: 3, J: 3}, [total])
