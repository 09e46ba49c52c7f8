"""Each classical program gives the values and gradients of its form by hand, at tiny sizes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.classics.classic import Classic, difference
from benchmarks.classics.table import load
from tests.cases import fast

CLASSICS = load()
PROGRAMS = [name for name, classic in CLASSICS.items() if isinstance(classic, Classic)]
FAST = {
    classic.program.__module__: name for name, classic in reversed(CLASSICS.items()) if name in PROGRAMS
}  # of each family, the first
QUICK_XLA = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(autouse=True)
def standard_promotion():
    """The forms by hand are written as JAX allows by default."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("name", fast(PROGRAMS, *FAST.values()))
def test_values_are_those_by_hand(name):
    """Interpreted, and in the first form by hand."""
    classic = CLASSICS[name]
    inputs, traced = classic.fed("tiny"), classic.program(**classic.sizes["tiny"])
    results = traced.context.run(traced.bounds, traced.outputs, inputs, tp.Config(backend="numpy"))
    form = classic.jitted(next(iter(classic.by_hand)), "tiny").lower(inputs).compile(QUICK_XLA)
    expected = [np.asarray(value) for value in form(inputs)]
    assert [r.dtype for r in results] == [e.dtype for e in expected]
    assert difference(results, expected) <= classic.tolerance
    assert all(value.any() for value in expected)  # zeros would agree with much


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSICS)
def test_compiled_values_are_those_of_every_form_by_hand(name):
    classic = CLASSICS[name]
    sides = classic.sides("tiny")
    results = sides.tempo()
    for form, run in sides.by_hand.items():
        assert difference(results, run()) <= classic.tolerance, form


def test_a_difference_is_noticed():
    """The comparison itself can fail: by a value, a shape, a missing result, a value that is not a number."""
    expected = [np.array([1.0, 10.0])]
    assert difference([np.array([1.0, 10.0])], expected) == 0.0
    assert difference([np.array([1.0, 11.0])], expected) == pytest.approx(0.1)
    for wrong in ([np.array([[1.0, 10.0]])], [], [np.array([np.nan, 10.0])]):
        assert difference(wrong, expected) == float("inf")


def test_what_does_not_depend_on_a_recurrence_stays_out_of_its_loop():
    """The windows of values of ARMA are one convolution; the loop over its errors does not compute them one by one."""
    classic = CLASSICS["ARMA"]
    text = classic.program(**classic.sizes["full"]).compile().text("program", full=True)
    assert [line for line in text.splitlines() if "known" in line] == ["known"]


def test_sizes_of_every_classic():
    """Every classic is small, full and tiny; time is 100,000 points long in "long"."""
    assert len(CLASSICS) >= 40
    for name, classic in CLASSICS.items():
        assert {"tiny", "small", "full"} <= set(classic.sizes), name
        if "long" in classic.sizes:
            assert max(classic.sizes["long"].values()) == 100_000, name
