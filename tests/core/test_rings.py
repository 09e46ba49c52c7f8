"""Reads around a ring whose size is a bound: `x[(t + 1) % T]`."""

from __future__ import annotations

import pytest

import tempo_core as tp
from tempo_core.errors import NonAffineError
from tests.cases import cells
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import SETTINGS, assert_all_same
from tests.reference import evaluate


def of_an_input(k, K, t, T):
    x = tp.input("x", domain=(k, t))
    return x, tp.sin(x[k, (t + 1) % T]) * x[k, (t - 2) % T]


def half_around(k, K, t, T):
    x = tp.input("x", domain=(k, t))
    return x, x[k, (t + T // 2) % T] * x


def around_two_rings(k, K, t, T):
    x = tp.input("x", domain=(k, t))
    return x, tp.tanh(x[(k + 1) % K, (t - 1) % T] * x)


def of_a_recurrence(k, K, t, T):
    x = tp.input("x", domain=(k, t))
    h = tp.recurrence((), domain=(k, t), name="h")
    h[0, t] = x[0, t]
    h[k, t] = tp.tanh(h[k - 1, (t + 1) % T] - 0.3 * h[k - 1, (t - 1) % T]) * x
    return x, h


@pytest.mark.parametrize(
    ("make", "size"),
    cells([of_an_input, half_around, around_two_rings, of_a_recurrence], [5, 2, 1]),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_values_and_gradients(make, size):
    ctx = tp.Context("k", "t")
    with ctx as ((k, K), (t, T)):
        x, value = make(k, K, t, T)
        bounds, inputs = {K: 3, T: size}, {"x": normal(3, size).astype("float32")}
        first = assert_gradients(ctx, (value**2)[0:K, 0:T].sum(), [x], bounds, inputs)
        second = assert_gradients(ctx, (first[0] ** 2)[0:K, 0:T].sum(), [x], bounds, inputs)
        outputs = [value, *first, *second]
    expected = evaluate(ctx, outputs, bounds, inputs)
    for config in SETTINGS.values():
        assert_all_same(ctx.run(bounds, outputs, inputs, config), expected, 1e-4)


@pytest.mark.parametrize("make", [of_an_input, half_around, of_a_recurrence], ids=lambda make: make.__name__)
def test_each_run_may_choose_the_size_of_the_ring(make):
    ctx = tp.Context("k", "t")
    with ctx as ((k, K), (t, T)):
        x, value = make(k, K, t, T)
        outputs = [value, *tp.grad((value**2)[0:K, 0:T].sum(), [x])]
    program = ctx.compile({K: 3, T: tp.upto(7)}, outputs)
    for size in (1, 2, 5, 7):
        inputs = {"x": normal(3, size).astype("float32")}
        assert_all_same(program.run(inputs), evaluate(ctx, outputs, {K: 3, T: size}, inputs), 1e-4)


def test_a_division_with_endlessly_many_quotients_is_an_error():
    ctx = tp.Context("i", "t")
    with ctx as ((i, _), (t, T)):
        x = tp.input("x", domain=(t,))
        y = tp.recurrence((), domain=(i, t), name="y")
        y[0, t] = x
        y[i, t] = y[i - 1, (i * 3 + t) % T]
    with pytest.raises(NonAffineError, match="divides by an expression"):
        ctx.compile({step.bound_symbol.expr: 3 for step in ctx.steps}, [y])
