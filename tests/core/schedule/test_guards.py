"""Conditions of statements with many divisions: they stay as they are written, hold where they should, and cost no time of isl."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.schedule import build
from tempo_core.symbolic.condition import conjunction
from tempo_core.symbolic.domain import Domain
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl import sets
from tests import reference
from tests.cases import fast

MODULI = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def coprime(count: int, largest_first: bool = False) -> tuple[tp.Context, dict[Any, int], list[tp.Tensor], dict[str, Any]]:
    """A recurrence over two steps with a branch for each modulus, and its gradient."""
    moduli = MODULI[:count][::-1] if largest_first else MODULI[:count]
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (), domain=(i, t), requires_grad=True)
        r = tp.recurrence((), domain=(i, t), name="r")
        r[i, 0] = x[i, 0]
        for k, n in enumerate(moduli):
            r[i, t, (t >= k % 3 + 1) & (t % n == n // 2)] = tp.tanh(r[i, t - (k % 3 + 1)] * (1 + 0.1 * k) + x)
        r[i, t, t >= 1] = r[i, t - 1] * 0.5 + x
        loss = r[0:I, 0:T].sum()
        loss.backward()
    values = np.random.default_rng(0).normal(size=(2, 40)).astype("float32")
    return ctx, {I: 2, T: 40}, [r, x.grad], {"x": values}


@pytest.mark.parametrize("limit", fast([0, 6, 1000], 1000))
@pytest.mark.parametrize("largest_first", fast([False, True], True))
def test_branches_with_coprime_moduli(limit: int, largest_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a condition comes from isl or stays as it is written, the statement runs at the same points."""
    monkeypatch.setattr(build, "MOST_COMBINED", limit)
    ctx, bounds, outputs, inputs = coprime(4 if limit == 1000 else 8, largest_first)
    program = ctx.compile(bounds, outputs)
    results = Interpreter(program.scheduled, NumpyBackend(), 0).run(program._inputs.fed(inputs, program.bounds))
    for k, expected in enumerate(reference.evaluate(ctx, outputs, bounds, inputs)):
        np.testing.assert_allclose(results[k], expected, rtol=2e-5, atol=1e-6)


@pytest.mark.slow
def test_isl_sees_no_condition_with_many_divisions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = build.condition_within

    def noted(points: Any, region: Any, symbols: Any) -> Any:
        seen.append(sum(piece.dim(sets.isl.dim_type.div) for piece in points.get_basic_sets()))
        return original(points, region, symbols)

    monkeypatch.setattr(build, "condition_within", noted)
    ctx, bounds, outputs, _ = coprime(12)
    ctx.compile(bounds, outputs)
    assert seen and max(seen) <= build.MOST_COMBINED


def test_pieces_that_overlap_do_not_multiply() -> None:
    """`t <= k | t % n != 0`, of many k and n: the pieces would double with each part."""
    t = Symbol("t", "T")
    parts = [(t.expr <= k % 3) | ((t.expr <= 20 * k + 4) & (t.expr % n != 0)) for k, n in enumerate(MODULI)]
    counts = [sets._points(Domain((t,)), conjunction(*parts[:count])).n_basic_set() for count in (6, 12)]
    assert counts[1] <= 2 * counts[0] + 2
    points = sets.fixed(sets._points(Domain((t,)), conjunction(*parts[:6])), {Symbol("T"): 60})
    for at in range(60):
        point = points.lower_bound_val(sets.isl.dim_type.set, 0, sets.isl.Val(at, sets.CONTEXT))
        point = point.upper_bound_val(sets.isl.dim_type.set, 0, sets.isl.Val(at, sets.CONTEXT))
        assert (not point.is_empty()) == all(part.evaluate({t: at}) for part in parts[:6])
