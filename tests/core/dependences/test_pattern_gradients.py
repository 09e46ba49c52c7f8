"""Gradients through every pattern, against central differences in float64; and compiled programs against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import OutOfDomainError
from tests import reference
from tests.cases import fast, slow
from tests.core.dependences.equations import EQUATIONS
from tests.core.dependences.patterns import EARLIER, READS, Pattern
from tests.core.dependences.support import (
    WIDTH,
    Setting,
    assert_gradients,
    kinds_for,
    read_program,
    recurrent_program,
    usable,
    weighted,
)
from tests.core.running import SETTINGS, assert_all_same


def assert_compiled(s: Setting, gradients: list[tp.Tensor], *settings: str) -> None:
    expected = reference.evaluate(s.context, gradients, s.bounds, s.inputs)
    for name in settings:
        results = s.context.run(s.bounds, outputs=gradients, inputs=s.inputs, config=SETTINGS[name])
        assert_all_same(results, expected, 1e-3)


TWICE = [  # representatives of shifts, windows, prefixes, strides, other rows and mirrored time
    "previous", "three after, clamped", "reversed", "modulo", "causal", "forward window", "block so far",
    "every third so far", "a rectangle", "skewed, clamped",
]  # fmt: skip
TWICE_RECURRENT = ["previous", "next", "halved", "strictly causal", "window ahead", "all rows, previous"]
TABLES = {"given": (READS, TWICE, read_program), "itself": (EARLIER, TWICE_RECURRENT, recurrent_program)}


def of_patterns() -> Iterator[Any]:
    """Which table, the number of a pattern in it, its name, and the kind of its reduction."""
    for of, (table, chosen, _) in TABLES.items():
        for number, (pattern, kind) in enumerate(kinds_for(table)):
            row = (of, number, pattern.name, kind)
            if row[:1] + row[2:] == ("given", "previous row, causal", "max"):
                reason = "OutOfDomainError: the gradient reads the row before at i = 0 too"
                yield pytest.param(*row, marks=[pytest.mark.slow, pytest.mark.xfail(reason=reason, raises=OutOfDomainError)])
            else:
                yield row if pattern.name in chosen else slow(row)


@pytest.mark.parametrize(("of", "number", "name", "kind"), of_patterns())
def test_through_a_pattern(of: str, number: int, name: str, kind: str) -> None:
    """Gradients by x and w through one read of a known tensor, or of the recurrence itself (back through time)."""
    table, _, build = TABLES[of]
    pattern = table[number]
    s = Setting(2, 5)
    assert usable(s, pattern, "sum")
    y, _ = build(s, pattern, kind if usable(s, pattern, kind) else "sum")
    gradients = assert_gradients(s, weighted(s, y), [s.x, s.w], directions=1)
    assert_compiled(s, gradients, "numpy" if number % 4 else "numpy, no passes")


@pytest.mark.parametrize("name", fast(EQUATIONS, "delays_that_differ", "odd_and_even", "windows_of_two"))
def test_through_equations(name: str) -> None:
    s = Setting(2, 6)
    with s.context:
        outputs, _ = EQUATIONS[name](s)
    gradients = assert_gradients(s, weighted(s, *outputs), [s.x, s.w])
    assert_compiled(s, gradients, "numpy", "numpy, no passes", *(["staged"] if name in STAGED else []))


STAGED = ("odd_and_even", "from_both_ends", "windows_of_two", "a_quotient_where_it_is_defined")

FAST = ("previous", "causal", "every third so far", "strictly causal", "window ahead")


@pytest.mark.parametrize(
    ("of", "name"), [(of, name) if name in FAST else slow((of, name)) for of, (_, names, _) in TABLES.items() for name in names]
)
def test_gradients_of_gradients(of: str, name: str) -> None:
    table, _, build = TABLES[of]
    (pattern,) = (p for p in table if p.name == name)
    s = Setting(2, 4)
    y, _ = build(s, pattern, "sum")
    loss = weighted(s, y)
    with s.context:
        first = tp.grad(loss, wrt=[s.x])
        again = tp.square(first[0]).sum() * 0.01
    gradients = assert_gradients(s, again, [s.x, s.w])
    assert_compiled(s, gradients, "numpy")


@pytest.mark.parametrize(
    "pattern", [p if p.name in ("causal", "block", "a rectangle") else slow(p) for p in READS if p.rank], ids=str
)
def test_of_a_recurrence_that_is_a_leaf(pattern: Pattern) -> None:
    """A recurrence whose update is assigned after `backward` is a leaf: its gradient is that of an input in its place."""
    s = Setting(2, 4)
    kind = "attention" if usable(s, pattern, "attention") else "sum"
    y, _ = read_program(s, pattern, kind)
    (expected,) = tp.grad(weighted(s, y), wrt=[s.x])
    source = s.x
    with s.context:
        s.x = tp.recurrence((WIDTH,), domain=(s.i, s.t), name="leaf")
        y, _ = read_program(s, pattern, kind)
        weighted(s, y).backward()
        gradient = s.x.grad
        s.x[s.i, s.t] = source
    values = reference.evaluate(s.context, [gradient, expected], s.bounds, s.inputs)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-6)
    assert_compiled(s, [gradient], "numpy")


def test_a_leaf_that_is_trained_through_its_own_windows() -> None:
    """A parameter's update reads its gradient, which flows through time windows of a state that depends on the parameter."""
    s = Setting(4, 5)
    i, t, T = s.i, s.t, s.T
    with s.context:
        p = tp.recurrence((WIDTH,), domain=(i,), name="p")
        p[0] = s.w[0]
        h = tp.recurrence((WIDTH,), domain=(i, t), name="h")
        h[i, 0] = p
        h[i, t] = tp.tanh(h[i, tp.max(t - 2, 0) : t].sum(0) * p + s.x)
        loss = h[i, t : tp.min(t + 2, T)].max(0)[i, 0:T].sum()
        loss.backward()
        p[i + 1] = p - 0.1 * p.grad
    x, parameter, seen = s.arrays["x"], s.arrays["w"][0], []

    def total(parameter: np.ndarray, row: int) -> float:
        states = [parameter]
        for k in range(1, 5):
            states.append(np.tanh(np.sum(states[max(k - 2, 0) : k], axis=0) * parameter + x[row, k]))
        return float(sum(np.max(states[k : k + 2], axis=0).sum() for k in range(5)))

    for row in range(4):
        seen.append(parameter)
        slope = [(total(parameter + d, row) - total(parameter - d, row)) / 2e-6 for d in np.eye(WIDTH) * 1e-6]
        parameter = parameter - 0.1 * np.array(slope)
    (result,) = reference.evaluate(s.context, [p], s.bounds, s.inputs)
    np.testing.assert_allclose(result, seen, rtol=1e-3, atol=1e-4)
    assert_compiled(s, [p, loss], "numpy", "staged")
