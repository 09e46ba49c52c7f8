"""Gradients through time against finite differences in float64, through the reference; leaves; gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tests import reference
from tests.cases import fast
from tests.core.gradient_checks import assert_gradients, normal
from tests.core.running import SETTINGS, assert_all_same, assert_same

# -- through time -----------------------------------------------------------------------------------------------------

Temporal = Callable[[Any, Any, Any, Any, tp.Tensor, tp.Tensor], tp.Tensor]
TEMPORAL: dict[str, Temporal] = {}


def temporal(build: Temporal) -> Temporal:
    """Register a loss: a function of the steps and bounds, x over (i, t) of shape (2,), and w over (i) of shape (2,)."""
    TEMPORAL[build.__name__] = build
    return build


@temporal
def identity(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return tp.tanh(x * w).sum()


@temporal
def shifts(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    y = tp.sin(x)
    return (y[i, tp.max(t - 1, 0)] * y * w + y[i, tp.min(t + 2, T - 1)] * 0.3).sum()


@temporal
def shift_in_a_branch(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    difference = tp.recurrence((2,), domain=(i, t))
    difference[i, 0] = w
    difference[i, t] = (x - x[i, t - 1]) * x
    return tp.square(difference).sum()


@temporal
def prefix(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return ((x * x)[i, 0 : t + 1].sum(0) * w * (t + 1)).sum()


@temporal
def suffix(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.sin(x * w)[i, t:T].discounted_sum(0.7) * x).sum()


@temporal
def strict_prefix(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.sin(x)[i, 0:t].sum(0) * x).sum()


@temporal
def windows(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    y = tp.sin(x)
    past, future = y[i, tp.max(t - 2, 0) : t + 1].mean(0), y[i, t : tp.min(t + 2, T)].discounted_sum(0.5)
    return (past * future * w).sum()


@temporal
def window_maximum(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return ((x * w)[i, tp.max(t - 1, 0) : tp.min(t + 2, T)].max(0) * (t + 1)).sum()


@temporal
def attention(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    past = x[i, 0 : t + 1]
    return ((past @ (x * w)).softmax(0) @ past).sum()


@temporal
def constant_slice(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return tp.square((x * w)[i, 0:T].mean(0)).sum()


@temporal
def slice_without_broadcast(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    """Each element of the slice has its own gradient, at each reader."""
    return (tp.sin(x)[i, 0:T] * x).softmax(0).index(0, t).sum()


@temporal
def part_of_time(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.square(x)[0, 1:T].sum(0) * w[I - 1] + tp.square(x)[i, 0 : T - 1].sum((0, 1))).sum()


@temporal
def strides(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.square(x)[i, 0:T:2].sum(0) * w).sum() + tp.square(x)[i, 1:T:2].prod(0).sum()


@temporal
def constant_points(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (x[i, 0] * x[i, T - 1] * w[0] + tp.square(x) * w[I - 1]).sum()


@temporal
def reversed_time(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.sin(x)[i, T - 1 - t] * x * (t + 1)).sum()


@temporal
def held_points(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.sin(x)[i, t // 2] * (t + 1) * w).sum()


@temporal
def blocks(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.square(x)[i, t // 2 * 2 : t + 1].sum(0) * (t + 1)).sum()


@temporal
def slice_of_a_ragged_sum(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    partial = (x * w)[i, t:T].sum((0, 1))
    return (tp.square(partial)[i, 0:T] * partial[0, t]).mean()


@temporal
def branches(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    chosen = tp.recurrence((2,), domain=(i, t))
    chosen[i, t % 3 == 1] = tp.square(x)
    chosen[i, t, i == 0] = w * x * 2
    chosen[i, t] = tp.sin(x)
    return (chosen * (t + 1)).sum()


@temporal
def where_on_steps(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return tp.where((t >= 1) & (i < t), x * w, tp.square(x) * 3).sum()


@temporal
def values_now_and_then(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    held = tp.recurrence((2,), domain=(i, t))
    held[i, 0] = w
    held[i, t + 1, (t + 1) % 2 == 0] = held * tp.sin(x)
    held[i, t + 1] = held
    return tp.square(held).sum()


@temporal
def through_time(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    h[i, 0] = w
    h[i, t + 1] = tp.tanh(h * w + x)
    return tp.square(h).sum()


@temporal
def through_time_to_the_last(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    h[i, 0] = x[i, 0]
    h[i, t + 1] = tp.tanh(h * x[i, t + 1])
    return (h[i, T - 1] * w).sum()


@temporal
def two_steps_back(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    h[i, 0] = x[i, 0]
    h[i, 1] = w
    h[i, t] = tp.sin(h[i, t - 1]) * h[i, t - 2] + x
    return h.sum()


@temporal
def backwards_in_time(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    g = tp.recurrence((2,), domain=(i, t), name="g")
    g[i, T - 1] = x[i, T - 1] * w
    g[i, t] = x * g[i, t + 1] + w
    return tp.square(g).sum()


@temporal
def windows_of_itself(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    h[i, 0] = w
    h[i, t] = tp.tanh(h[i, tp.max(t - 2, 0) : t].sum(0) + x)
    return tp.square(h).sum()


@temporal
def prefixes_of_itself(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    h[i, 0] = w
    h[i, t] = (h[i, 0:t] @ x[i, t]).softmax(0) @ h[i, 0:t] + x
    return tp.square(h).sum()


@temporal
def prefixes_at_a_limit(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    """The step that moves the range also decides which point is read: each case of the minimum has its own readers."""
    return (tp.square(x[tp.min(t, I - 1), 0 : t + 1]) * w).sum()


@temporal
def nested_carry(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    h = tp.recurrence((2,), domain=(i, t), name="h")
    after = tp.tanh(h * 0.9 + x)
    h[0, 0] = w[0]
    h[i, t + 1] = after
    h[i + 1, 0] = after[i, T - 1]
    return tp.square(h).sum()


@temporal
def mutual_recursion(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    a, b = tp.recurrence((2,), domain=(i, t), name="a"), tp.recurrence((2,), domain=(i, t), name="b")
    a[i, 0] = w
    b[i, t] = tp.sin(a) * x
    a[i, t + 1] = b + a * 0.5
    return (a * b).sum()


@temporal
def spatial_indices_by_steps(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    part = x.spatial[0 : t % 2 + 1].sum(0) * w.index(0, t % 2)
    return part + x.spatial[i : i + 1].sum(0) * x.index(0, x.argmax(0))


@temporal
def rings(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    """Reads that go around all points, around some of them, and around those of another step."""
    y = tp.sin(x)
    return (y[i, (t + 1) % 4] * y * w + y[i, (t - 1) % 3 + 1] + w[t % 2] * y[(i + 1) % 2, (t + 2) % 4]).sum()


@temporal
def a_recurrence_around_a_ring(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    u = tp.recurrence((2,), domain=(i, t))
    u[0, t] = x[0, t]
    u[i, t] = u[i - 1, t] * w + tp.sin(u[i - 1, (t - 1) % 4] * u[i - 1, (t + 1) % 4])
    return tp.square(u).sum()


@temporal
def random_weights(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.square(x) * tp.random.normal((2,), domain=(i, t)) * w)[i, 0:T].sum()


@temporal
def a_loss_at_some_points(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    """A loss over i alone: its gradient is that of the sum over its points."""
    return (x[i, 0:T].sum(0) * w).prod() * (i + 1)


def _program(name: str) -> tuple[tp.Context, tp.Tensor, list[tp.Tensor], dict[Any, int], dict[str, np.ndarray]]:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, w = tp.input("x", (2,), domain=(i, t)), tp.input("w", (2,), domain=(i,))
        x, w = apply(ops.Identity(), x, name="x"), apply(ops.Identity(), w, name="w")
        loss = TEMPORAL[name](i, I, t, T, x, w)
    return ctx, loss, [x, w], {I: 2, T: 4}, {"x": normal(2, 4, 2, seed=3), "w": normal(2, 2, seed=4)}


@pytest.mark.parametrize(
    "name",
    fast(
        TEMPORAL,
        "shift_in_a_branch",
        "prefix",
        "suffix",
        "window_maximum",
        "attention",
        "strides",
        "reversed_time",
        "blocks",
        "branches",
        "through_time",
        "windows_of_itself",
        "mutual_recursion",
        "nested_carry",
        "rings",
    ),
)
def test_gradients_through_time(name: str) -> None:
    """The gradients agree with finite differences, and compiled programs give the same numbers."""
    ctx, loss, leaves, bounds, inputs = _program(name)
    with ctx:
        gradients = assert_gradients(ctx, loss, leaves, bounds, inputs)
    single = {k: v.astype("float32") for k, v in inputs.items()}
    expected = reference.evaluate(ctx, [loss, *gradients], bounds, single)
    for setting in ("staged", "numpy, no passes"):
        results = ctx.run(bounds, outputs=[loss, *gradients], inputs=single, config=SETTINGS[setting])
        assert_all_same(results, expected, 1e-4)


def test_gradients_of_gradients() -> None:
    """A gradient of a gradient, through a recurrence."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.sin(h * x[t + 1])
        (first,) = tp.grad(h[0:T].sum() + tp.square(x[0:T]).sum(), wrt=[x])
        assert_gradients(ctx, tp.square(first).sum(), [x], {T: 3}, {"x": normal(3, 2)})


@pytest.mark.parametrize("length", [1, 2, 4])
def test_gradients_of_gradients_where_another_branch_is_not_a_number(length: int) -> None:
    """The mean of no elements, at a point that another branch defines, gets into no gradient of any order."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w = tp.input("w", (2,), requires_grad=True)
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = 0.5
        h[t] = tp.tanh(h[0:t].mean(0) * w)
        loss = tp.square(h[0:T].sum(0)).sum()
        for _ in range(3):
            (slope,) = assert_gradients(ctx, loss, [w], {T: length}, {"w": normal(2)})
            loss = (slope * slope).sum() + loss


def test_gradients_of_gradients_where_the_mean_of_no_elements_is_not_needed() -> None:
    """The gradient of the weight is a sum over rows: at the first point, where it is not needed, its slope times the mean is 0 times NaN."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = apply(ops.Identity(), tp.input("x", domain=(t,)), name="x")
        y = tp.recurrence((), domain=(i, t), name="y")
        y[i, 0] = 0.7
        y[i, t] = y[i, tp.max(t - 4, 0) : t].mean(0) * tp.sigmoid(x[t - 1])
        (gradient,) = tp.grad(tp.tanh(y[0:I, 0:T].sum() + x[0]), wrt=[x])
        for length in (1, 3):
            assert_gradients(ctx, tp.sin(gradient), [x], {I: 2, T: length}, {"x": normal(length)})


# -- backward, grad, leaves -------------------------------------------------------------------------------------------


def test_gradient_descent_on_a_parameter() -> None:
    """A recurrence that is updated after backward is a leaf at each point; the losses are those of NumPy's loop."""
    data, target, ctx = normal(5, 3), normal(5), tp.Context("i")
    with ctx as ((i, I),):
        x, y = tp.input("x", (5, 3)), tp.input("y", (5,))
        w = tp.recurrence((3,), domain=(i,), name="w")
        w[0] = tp.ones((3,))
        loss = tp.square(x @ w - y).mean()
        loss.backward()
        w[i + 1] = w - 0.1 * w.grad
        inputs = {"x": data.astype("float32"), "y": target.astype("float32")}
        results = ctx.run({I: 4}, outputs=[loss, w], inputs=inputs)
    weights, losses, seen = np.ones(3), [], []
    for _ in range(4):
        error = data @ weights - target
        losses.append((error**2).mean())
        seen.append(weights)
        weights = weights - 0.1 * 2 * data.T @ error / 5
    assert_all_same(results, [np.array(losses, "float32"), np.array(seen, "float32")])


def test_backward_adds_up() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        (x * 2).sum().backward()
        tp.square(x).sum().backward()
        (result,) = reference.evaluate(ctx, [x.grad], {T: 3}, {"x": np.array([1.0, 2.0, 3.0])})
    assert_same(result, np.array([4, 6, 8], "float32"))


def test_the_gradient_of_a_view_is_the_view_of_the_gradient() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        (tp.square(x) * (t + 1)).backward()
        results = reference.evaluate(ctx, [x.grad, x[T - 1 - t].grad, x[0].grad], {T: 3}, {"x": np.array([1.0, 2.0, 3.0])})
    assert_all_same(results, [np.array([2, 8, 18], "float32"), np.array([18, 8, 2], "float32"), np.float32(2)])


def test_no_gradient_flows_through_detached_values_functions_and_integers() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        (y,) = tp.udf(lambda v: (v * 2,), x, outputs=[tp.spec((2,))], kind="host")
        loss = x.detach() * 3 + y + x.astype("int32") + tp.where(x > 0, 1.0, 2.0)
        (gradient,) = tp.grad(loss, wrt=[x])
        (result,) = reference.evaluate(ctx, [gradient], {T: 2}, {"x": normal(2, 2)})
    assert (np.asarray(result) == 0).all()


def mixed(x, k, y):
    """Floats and integers in and out; the second output does not reach the loss."""
    return x * y.sum() + k.astype(x.dtype), y * 2.0, k + 1


def test_gradients_through_a_jax_function_are_those_of_jax() -> None:
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        x, y = tp.input("x", (2,), domain=(b, t)), tp.input("y", (3,), domain=(t,))
        k = tp.full((2,), 1, "int32") + t
        outputs = [tp.spec((2,)), tp.spec((3,)), tp.spec((2,), "int32")]
        first, _, _ = tp.udf(mixed, x, k, y, outputs=outputs)
        loss = (first**2).sum()
        gradients = tp.grad(loss, wrt=[x, y])
        values = {"x": normal(3, 4, 2).astype("float32"), "y": normal(4, 3).astype("float32")}
        results = ctx.run({B: 3, T: 4}, gradients, values)
    k_at = (1.0 + np.arange(4, dtype="float32"))[None, :, None]
    total = values["y"].sum(-1)[None, :, None]
    slope = 2 * (values["x"] * total + k_at)
    assert_all_same(results, [slope * total, np.repeat((slope * values["x"]).sum((0, 2))[:, None], 3, 1)], 1e-5)


def test_grad_of_what_the_loss_does_not_depend_on_is_zero() -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x, y = tp.input("x", (2,)), tp.input("y", (3,))
        middle = x * 2
        gradients = tp.grad(tp.square(middle).sum(), wrt=[y, middle, x])
        results = reference.evaluate(ctx, gradients, {T: 1}, {"x": np.array([1.0, 2.0]), "y": np.ones(3)})
    assert_all_same(results, [np.zeros(3, "float32"), np.array([4, 8], "float32"), np.array([8, 16], "float32")])


def test_errors_of_gradients() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x = tp.input("x", (2,), domain=(t,), requires_grad=True)
        y = tp.input("y", (2,), domain=(t,))
        with pytest.raises(errors.GradientError, match="no gradient"):
            _ = x.grad
        with pytest.raises(errors.GradientError, match="depends on nothing that gets a gradient"):
            y.sum().backward()
        with pytest.raises(errors.GradientError, match="not of a float dtype"):
            x.argmax(0).backward()
        (x * y).sum().backward()
        with pytest.raises(errors.GradientError, match="no gradient") as raised:
            _ = y.grad
        assert raised.value.where.startswith(__file__)
        with pytest.raises(errors.TempoError, match="gradients exist for floats only"):
            tp.input("n", dtype="int32", requires_grad=True)


def test_a_point_and_a_range_that_move_with_one_step() -> None:
    """`x[max(i - 3, 0), min(i, T - 1):T]`: no inverse is exact, and of the rows only the one that is read has a gradient."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (2,), domain=(i, t))
        loss = (x[tp.max(i - 3, 0), tp.min(i, T - 1) : T] ** 2).sum((0, 1))[0:I].sum()
    for sizes in ((2, 1), (2, 3), (6, 4)):
        array = np.random.default_rng(0).normal(size=(*sizes, 2))
        with ctx:
            assert_gradients(ctx, loss, [x], {I: sizes[0], T: sizes[1]}, {"x": array})


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 3), (5, 4)])
def test_the_gradient_of_a_box_whose_border_stays(sizes: tuple[int, int]) -> None:
    """The readers of a point are those of its box that are inside of the border."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, K), (i, I), (j, J)):
        x = tp.input("x", domain=(i, j))
        u = tp.recurrence((), domain=(k, i, j))
        u[0, i, j] = x
        u[k, 0, j] = u[k - 1, 0, j]
        u[k, I - 1, j] = u[k - 1, I - 1, j]
        u[k, i, 0] = u[k - 1, i, 0]
        u[k, i, J - 1] = u[k - 1, i, J - 1]
        u[k, i, j] = u[k - 1, i - 1 : i + 2, j - 1 : j + 2].mean((0, 1))
        loss, bounds = (u[K - 1, i, j] ** 2)[0:I, 0:J].sum(), {K: 3, I: sizes[0], J: sizes[1]}
        assert_gradients(ctx, loss, [x], bounds, {"x": normal(*sizes, seed=5)})
        program = ctx.compile(bounds, tp.grad(loss, [x]))
    assert "Gather(axis=2" not in program.text("sdg"), "sums of shifted slices, without all boxes at once"


@pytest.mark.parametrize("points", [5, 7, 12])
def test_gradients_around_a_ring_are_those_of_fewer_or_more_points(points: int) -> None:
    """The ring has 5 points, whatever the bound; all is computed for all points at once, without indices."""
    ctx = tp.Context("k", "i")
    with ctx as ((k, K), (i, I)):
        x = tp.input("x", domain=(i,))
        u = tp.recurrence((), domain=(k, i))
        u[0, i] = x
        u[k, i] = u[k - 1, (i - 2) % 5] * u[k - 1, (i + 1) % 5] + 0.5 * u[k - 1, i]
        loss, bounds = (u[K - 1, i] ** 2)[0:I].sum(), {K: 3, I: points}
        assert_gradients(ctx, loss, [x], bounds, {"x": normal(points, seed=6)})
        program = ctx.compile(bounds, tp.grad(loss, [x]))
    assert "for i" not in program.text() and "Gather(axis=0)" not in program.text("sdg")


@pytest.mark.slow
def test_a_branch_whose_readers_have_many_limits() -> None:
    """The readers of `x[t]` in the last branch are in more pieces than are looked at: no range of them is exact, but t is their own."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, z = tp.input("x", (), domain=(t,)), tp.input("z", (), domain=(i, t))
        y = tp.recurrence((), domain=(i, t), name="y")
        y[i, t, (i + 1) % 3 == 0] = x
        y[i, t, i % 2 == t % 2] = z
        y[i, t, ~(i == 3)] = x * 3
        y[i, t] = 0.0
        (gradient,) = tp.grad(y, [x])
    slopes = [[1 if (i + 1) % 3 == 0 else 0 if i % 2 == t % 2 or i == 3 else 3 for t in range(4)] for i in range(5)]
    inputs = {"x": np.ones(4, np.float32), "z": np.ones((5, 4), np.float32)}
    assert_same(ctx.run({I: 5, T: 4}, gradient, inputs=inputs), np.sum(slopes, 0, dtype="float32"))
