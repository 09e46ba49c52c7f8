"""Options of XLA's CPU compiler for one program."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.backends.xla_cpu.options import IN_ANY_ORDER
from tempo_core.runtime.staged.stage import Staged, _identity


def compiled(*disable: str) -> tuple[tp.Program, Staged]:
    """The sum of squares of all points."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (64,), domain=(t,))
        program = ctx.compile({T: 5}, [(x * x)[0:T].sum()], tp.Config(disable=disable))
    assert program._staged is not None
    return program, program._staged


@pytest.mark.cpu
def test_sums_in_any_order_are_another_program_of_the_same_text() -> None:
    x = np.random.default_rng(0).random((5, 64), np.float32)
    names, texts = set(), set()
    for disable, options in (((), {}), (("order",), IN_ANY_ORDER)):
        program, staged = compiled(*disable)
        assert staged.options == options
        lowered = staged._lowered(staged.segments[0], staged._expected(staged.segments[0]))
        texts.add(lowered.as_text())
        names.add(_identity(lowered.as_text(), lowered, None, staged.options))
        np.testing.assert_allclose(program.run({"x": x})[0], (x * x).sum(), rtol=1e-5)
    assert (len(names), len(texts)) == (2, 1)


@pytest.mark.cpu
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_infinities_and_nan_stay(value: float) -> None:
    x = np.ones((5, 64), np.float32)
    x[2, 3] = value
    np.testing.assert_array_equal(compiled("order")[0].run({"x": x})[0], np.float32(value))


@pytest.mark.cpu
def test_a_program_that_searches_in_edges_keeps_the_signs_of_zeros() -> None:
    """Sums in any order lose them, and JAX's `searchsorted` compares bits: -0.0 would be below the edge 0."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        counts = tp.histogram(tp.arange(2) * x.sum(), tp.constant([-1.0, 0.0, 1.0]))[0]
        program = ctx.compile({T: 2}, counts, tp.Config(disable=("order",)))
    values = np.asarray([[1.0, -2.5], [1.0, 0.5]], np.float32)  # -0.0 and -1.5; 0.0 and 1.5
    np.testing.assert_array_equal(program.run({"x": values}), [[0, 1], [0, 1]])
    assert program._staged is not None and not program._staged.options  # with them, and XLA's optimizations, -0.0 is below 0
