"""Values before the start: `x[t - 1]` at t = 0, and slices that begin before the start."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import DTypeError, IndexingError, OutOfDomainError, ShapeError
from tests.cases import cells
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import SETTINGS, assert_all_same
from tests.reference import evaluate


def of_inputs(b, B, t, T):
    """A number and a tensor before the start, at points and in slices."""
    x = tp.input("x", domain=(b, t), before=2.0)
    s = tp.input("s", domain=(b,))
    y = tp.tanh(x).before(s)
    return [x, s], y[b, t - 2] * x[b, t - 1] + y[b, t - 3 : t].sum(0) + x[b, tp.min(t - 1, T - 2)]


def of_recurrences(b, B, t, T):
    """A recurrence of its own points before the start."""
    x, s = tp.input("x", domain=(b, t)), tp.input("s", domain=(b,))
    h = tp.recurrence((), domain=(b, t), name="h", before=s)
    h[b, t] = tp.tanh(0.5 * h[b, t - 1] + 0.2 * h[b, t - 3]) * x + (h.before(0.0)[b, t - 4 : t] ** 2).mean(0)
    return [x, s], h


def of_two_steps(b, B, t, T):
    """Before the start of either step, and of both."""
    x, s = tp.input("x", domain=(b, t), before=-1.0), tp.input("s", domain=(b,))
    return [x, s], (x[b - 1, t - 2] * s + x[b - 1 : b + 1, t - 2 : t + 1].sum((0, 1))) * x.before(0.0)[b - 1, t - 4 : t].sum(0)


@pytest.mark.parametrize(
    ("make", "size"),
    cells([of_inputs, of_recurrences, of_two_steps], [6, 1, 2]),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_values_and_gradients(make, size):
    """Values, first and second gradients, compiled and interpreted."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        leaves, value = make(b, B, t, T)
        inputs = {"x": normal(2, size).astype("float32"), "s": normal(2).astype("float32")}
        loss = (value**2)[0:B, 0:T].sum()
        first = assert_gradients(ctx, loss, leaves, {B: 2, T: size}, inputs)
        second = assert_gradients(ctx, (first[0] ** 2)[0:B, 0:T].sum(), leaves, {B: 2, T: size}, inputs)
        outputs = [value, *first, *second]
    expected = evaluate(ctx, outputs, {B: 2, T: size}, inputs)
    for config in SETTINGS.values():
        assert_all_same(ctx.run({B: 2, T: size}, outputs, inputs, config), expected, 1e-4)


def test_by_hand():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), "int32", domain=(t,), before=[7, 8])
        outputs = [x[t - 1], x[t - 2 : t], x.before(0)[t - 3 : t - 1].sum(0)]
    values = ctx.run({T: 3}, outputs, {"x": np.array([[1, 2], [3, 4], [5, 6]], "int32")})
    assert values[0].tolist() == [[7, 8], [1, 2], [3, 4]]
    assert values[1].tolist() == [[[7, 8], [7, 8]], [[7, 8], [1, 2]], [[1, 2], [3, 4]]]
    assert values[2].tolist() == [[0, 0], [0, 0], [1, 2]]


def test_points_inside_are_read_as_without_it():
    """No branch and no padding where no point lies before the start; the end of the step is still one."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), before=0.0)
        nodes = len(ctx.graph)
        inside = [x[t], x[tp.max(t - 1, 0)], x[0:t], x[T - 1]]
        assert len(ctx.graph) == nodes
        beyond = x[t - 1] + x[t + 1]
        assert str(beyond.domain) == "(t) where T >= t + 2"
        past_the_end = tp.recurrence((), domain=(t,), name="past")
        past_the_end[t] = x[t - 1] * x[t + 1]
    with pytest.raises(OutOfDomainError):
        ctx.compile({T: 3}, [*inside, past_the_end])


def test_a_recurrent_read_is_computed_again_for_gradients():
    """What a loop reads before its start is not kept beside the values themselves."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x, k = tp.input("x", domain=(b, t)), tp.input("k", (2,))
        h = tp.recurrence((), domain=(b, t), name="h", before=0.0)
        h[b, t] = x - k.index(0, 0) * h[b, t - 1] - k.index(0, 1) * h[b, t - 2]
        (gradient,) = tp.grad((h**2)[0:B, 0:T].sum(), [k])
    program = ctx.compile({B: 3, T: 50}, [gradient], tp.Config(backend="numpy"))
    assert program.plan().peak_device_bytes < 1.8 * 4 * 3 * 50


def test_errors():
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, _)):
        x, n = tp.input("x", (3,), domain=(b, t)), tp.input("n", (), "int32", domain=(t,))
        s = tp.input("s", domain=(b,))
        with pytest.raises(DTypeError, match=r"the value before the start of .* is float32"):
            n.before(0.5)
        with pytest.raises(ShapeError, match=r"has the shape \(2\)"):
            x.before([1.0, 2.0])
        with pytest.raises(IndexingError, match="varies with b, which is not a step of the tensor"):
            n.before(s.astype("int32"))
        with pytest.raises(IndexingError, match=r"cannot slice .* over b: its value before the start varies with b"):
            x.before(s)[0:B, t - 1]
        with pytest.raises(IndexingError, match="with the stride 2 begins before the start"):
            x.before(0.0)[b, t - 4 : t : 2]
