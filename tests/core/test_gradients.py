"""Gradients against finite differences in float64, through the reference: one check an op and row, then through time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors, reference
from tempo_core.frontend.gradients import CONSTANT, GRADIENTS
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr
from tests.core.running import SETTINGS, assert_all_same, assert_same

Build = Callable[..., tp.Tensor]


def assert_gradients(
    ctx: tp.Context, loss: tp.Tensor, leaves: Sequence[tp.Tensor], bounds: dict[Any, int], inputs: dict[str, np.ndarray]
) -> list[tp.Tensor]:
    """The gradients of `loss`, summed over its points, with respect to input tensors agree with central differences:
    in each element where there are few, else along three random directions.
    """
    gradients = tp.grad(loss, wrt=leaves)
    doubles = {name: array.astype("float64") for name, array in inputs.items()}

    def total(moved: dict[str, np.ndarray]) -> float:
        (value,) = reference.evaluate(ctx, [loss], bounds, moved, dtype="float64")
        return float(np.sum(value))

    for leaf, gradient in zip(leaves, gradients, strict=True):
        assert gradient.domain.steps == leaf.domain.steps
        (found,) = reference.evaluate(ctx, [gradient], bounds, doubles, dtype="float64")
        array = doubles[leaf.name]
        few = array.size <= 4 or not leaf.domain.steps
        directions = np.eye(array.size) if few else np.random.default_rng(5).normal(size=(3, array.size))
        for direction in directions.reshape(-1, *array.shape):
            high, low = (total({**doubles, leaf.name: array + h * direction}) for h in (1e-5, -1e-5))
            slope = (high - low) / 2e-5
            np.testing.assert_allclose(np.sum(found * direction), slope, rtol=1e-6, atol=1e-7, err_msg=f"gradient of {leaf.name}")
    return gradients


# -- one op after the other -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A function of float operands whose last op is of class `op`; `operands` are their values."""

    op: type[ops.Op]
    name: str
    build: Build
    operands: tuple[np.ndarray, ...]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(normal(*shape, seed=seed)) + 0.5


def applied(op: ops.Op) -> Build:
    return lambda *operands: apply(op, *operands)


def index(*values: Any) -> tp.Tensor:
    return tp.constant(np.array(values, "int32"))


A, B, TIES = normal(2, 3), normal(2, 3, seed=1), np.array([[0.5, 2.0, 2.0], [2.0, -1.0, 0.25]])
MATRIX, CUBE, OTHER_CUBE = normal(3, 4), normal(2, 3, 4), normal(4, 2, 3, seed=1)
ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0], [1.5, 2.0, -1.0]])
NOT_FLOAT = {"not", "isfinite", "and", "or", "xor", "any", "all"}

ROWS = [
    *(Row(ops.Unary, fn, applied(ops.Unary(fn)), (positive(2, 3) * 1.3,)) for fn in ops.UNARY if fn not in NOT_FLOAT),
    *(Row(ops.Unary, f"{fn} of negative", applied(ops.Unary(fn)), (-positive(2, 3),)) for fn in ("abs", "sigmoid", "tanh", "exp", "sign")),
    *(Row(ops.Binary, fn, applied(ops.Binary(fn)), (positive(2, 3) * 3, positive(2, 3, seed=1))) for fn in ops.BINARY if fn not in NOT_FLOAT),
    Row(ops.Binary, "pow of negative", lambda x: x**3, (A,)),
    Row(ops.Where, "where", lambda x, y: tp.where(x > 0, x, y), (A, B)),
    Row(ops.Cast, "cast", lambda x: x.astype("float64").astype("float32"), (A,)),
    Row(ops.Identity, "identity", applied(ops.Identity()), (A,)),
    *(Row(ops.Reduce, fn, applied(ops.Reduce(fn, (1,))), (A,)) for fn in ops.REDUCE if fn not in NOT_FLOAT),
    *(Row(ops.Reduce, f"{fn} over all", applied(ops.Reduce(fn, (0, 2))), (CUBE,)) for fn in ops.REDUCE if fn not in NOT_FLOAT),
    Row(ops.Reduce, "prod with zeros", applied(ops.Reduce("prod", (1,))), (ZEROS,)),
    *(Row(ops.CumSum, f"reverse={r}", applied(ops.CumSum(1, r)), (A,)) for r in (False, True)),
    *(Row(ops.LinearScan, f"reverse={r}, axis {a}", applied(ops.LinearScan(a, r)), (A, B)) for r in (False, True) for a in (0, 1)),
    *(Row(ops.DiscountedSum, f"gamma {g}", applied(ops.DiscountedSum(1, g)), (A,)) for g in (0.9, 0.0, -0.5)),
    Row(ops.Dot, "matrices", applied(ops.Dot((1,), (0,))), (A, MATRIX)),
    Row(ops.Dot, "vectors", applied(ops.Dot((0,), (0,))), (normal(3), normal(3, seed=1))),
    Row(ops.Dot, "outer", applied(ops.Dot((), ())), (normal(2), normal(3))),
    Row(ops.Dot, "two contracted, crossed", applied(ops.Dot((2, 1), (0, 2))), (CUBE, OTHER_CUBE)),
    Row(ops.Dot, "batched", applied(ops.Dot((2,), (0,), (0,), (1,))), (CUBE, OTHER_CUBE)),
    Row(ops.Dot, "batched, batch last", applied(ops.Dot((1,), (2,), (2,), (0,))), (CUBE, OTHER_CUBE)),
    Row(ops.Reshape, "reshape", lambda x: x.reshape(3, 2), (A,)),
    Row(ops.Permute, "permute", lambda x: x.transpose(2, 0, 1), (CUBE,)),
    Row(ops.Broadcast, "broadcast", lambda x: tp.broadcast_to(x, (4, 2, 3)), (A,)),
    Row(ops.Slice, "slice", applied(ops.Slice(1, Expr.of(1), Expr.of(3))), (A,)),
    Row(ops.Slice, "strided", applied(ops.Slice(2, Expr.of(1), Expr.of(4), 2)), (CUBE,)),
    Row(ops.Slice, "past the end", applied(ops.Slice(1, Expr.of(2), Expr.of(5))), (A,)),
    Row(ops.Slice, "strided past the end", applied(ops.Slice(1, Expr.of(1), Expr.of(6), 2)), (A,)),
    Row(ops.Pad, "pad", applied(ops.Pad(1, Expr.of(1), Expr.of(2))), (A,)),
    Row(ops.Pad, "cut", applied(ops.Pad(1, Expr.of(-1), Expr.of(1))), (A,)),
    Row(ops.Concat, "concat", lambda x, y: tp.concatenate([x, y, x], 1), (A, B)),
    Row(ops.Flip, "flip", lambda x: x.flip(1), (A,)),
    Row(ops.Gather, "one", lambda x: x.index(0, 1), (A,)),
    Row(ops.Gather, "several, one twice, one clamped", lambda x: x.take(index([0, 2], [2, 7]), axis=1), (A,)),
    Row(ops.Gather, "batched", lambda x: apply(ops.Gather(2, 1), x, index([3, 0], [1, 1])), (CUBE,)),
    Row(ops.ScatterAdd, "one twice, one outside", lambda x: tp.scatter_add(x, index(1, 1, 9), 4, 1), (A,)),
    Row(ops.ScatterAdd, "batched", lambda x: apply(ops.ScatterAdd(1, Expr.of(4), 1), x, index([3, 0, 3], [1, 1, -1])), (A,)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.op.__name__}-{r.name}")
def test_the_gradient_of_an_op_is_its_finite_difference(row: Row) -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        inputs = {f"x{k}": value for k, value in enumerate(row.operands)}
        leaves = [tp.input(name, value.shape) for name, value in inputs.items()]
        result = row.build(*leaves)
        assert isinstance(result.node.op, row.op) or row.name in ("cast", "pow of negative")
        weights = tp.constant(normal(*map(int, result.shape), seed=7))
        loss = (result * weights).sum()
        assert_gradients(ctx, loss, leaves, {T: 1}, inputs)


def test_ties_share_a_gradient() -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x = tp.input("x", (2, 3))
        reduced, pairs = tp.grad(x.max(1).sum(), wrt=[x]), tp.grad(tp.maximum(x, x.flip(0)).sum(), wrt=[x])
    first, second = reference.evaluate(ctx, [*reduced, *pairs], {T: 1}, {"x": TIES})
    np.testing.assert_array_equal(first, [[0, 0.5, 0.5], [1, 0, 0]])
    np.testing.assert_array_equal(second, [[0, 2, 2], [2, 0, 0]])  # each column's greatest element is read twice


def _classes() -> list[type[ops.Op]]:
    found = [c for _, c in inspect.getmembers(ops, inspect.isclass) if issubclass(c, ops.Op) and c is not ops.Op]
    return [
        c for c in found if c not in (ops.Merge, ops.Dataflow)
    ]  # autodiff.py's own, tested below; made by a pass, never differentiated


@pytest.mark.parametrize("op", _classes(), ids=lambda c: c.__name__)
def test_every_op_has_a_checked_rule_or_is_constant(op: type[ops.Op]) -> None:
    assert (op in GRADIENTS) != (op in CONSTANT), f"{op.__name__} must be in one of GRADIENTS and CONSTANT"
    if op in GRADIENTS and op is not ops.Udf:  # JAX's own rules: checked as functions of JAX below
        assert any(row.op is op for row in ROWS), f"the rule of {op.__name__} has no numeric check: add a Row"


# -- through time -----------------------------------------------------------------------------------------------------

Temporal = Callable[[Any, Any, Any, Any, tp.Tensor, tp.Tensor], tp.Tensor]
TEMPORAL: dict[str, Temporal] = {}


def temporal(build: Temporal) -> Temporal:
    """Registers a loss made of x over (i, t) of shape (2,), w over (i) of shape (2,), and the steps and bounds."""
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
    """Each element of the slice gets a gradient of its own, at each reader."""
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
def random_weights(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    return (tp.square(x) * tp.random.normal((2,), domain=(i, t)) * w)[i, 0:T].sum()


@temporal
def a_loss_at_some_points(i: Any, I: Any, t: Any, T: Any, x: tp.Tensor, w: tp.Tensor) -> tp.Tensor:
    """A loss over i alone: the sum over its points is what is differentiated."""
    return (x[i, 0:T].sum(0) * w).prod() * (i + 1)


def _program(name: str) -> tuple[tp.Context, tp.Tensor, list[tp.Tensor], dict[Any, int], dict[str, np.ndarray]]:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, w = tp.input("x", (2,), domain=(i, t)), tp.input("w", (2,), domain=(i,))
        x, w = apply(ops.Identity(), x, name="x"), apply(ops.Identity(), w, name="w")
        loss = TEMPORAL[name](i, I, t, T, x, w)
    return ctx, loss, [x, w], {I: 2, T: 4}, {"x": normal(2, 4, 2, seed=3), "w": normal(2, 2, seed=4)}


@pytest.mark.parametrize("name", TEMPORAL)
def test_gradients_through_time(name: str) -> None:
    """Against finite differences; and the gradient's program compiles to the same numbers."""
    ctx, loss, leaves, bounds, inputs = _program(name)
    with ctx:
        gradients = assert_gradients(ctx, loss, leaves, bounds, inputs)
    single = {k: v.astype("float32") for k, v in inputs.items()}
    expected = reference.evaluate(ctx, [loss, *gradients], bounds, single)
    for setting in ("staged", "numpy, no passes"):
        found = ctx.run(bounds, outputs=[loss, *gradients], inputs=single, config=SETTINGS[setting])
        assert_all_same(found, expected, 1e-4)


def test_gradients_of_gradients() -> None:
    """Forward over a recurrence, back, and back again."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = apply(ops.Identity(), tp.input("x", (2,), domain=(t,)), name="x")
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.sin(h * x[t + 1])
        (first,) = tp.grad(h[0:T].sum() + tp.square(x[0:T]).sum(), wrt=[x])
        assert_gradients(ctx, tp.square(first).sum(), [x], {T: 3}, {"x": normal(3, 2)})


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
        found = ctx.run({I: 4}, outputs=[loss, w], inputs=inputs)
    weights, losses, seen = np.ones(3), [], []
    for _ in range(4):
        error = data @ weights - target
        losses.append((error**2).mean())
        seen.append(weights)
        weights = weights - 0.1 * 2 * data.T @ error / 5
    assert_all_same(found, [np.array(losses, "float32"), np.array(seen, "float32")])


def test_backward_adds_up() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        (x * 2).sum().backward()
        tp.square(x).sum().backward()
        (found,) = reference.evaluate(ctx, [x.grad], {T: 3}, {"x": np.array([1.0, 2.0, 3.0])})
    assert_same(found, np.array([4, 6, 8], "float32"))


def test_the_gradient_of_a_view_is_the_view_of_the_gradient() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        (tp.square(x) * (t + 1)).backward()
        found = reference.evaluate(ctx, [x.grad, x[T - 1 - t].grad, x[0].grad], {T: 3}, {"x": np.array([1.0, 2.0, 3.0])})
    assert_all_same(found, [np.array([2, 8, 18], "float32"), np.array([18, 8, 2], "float32"), np.float32(2)])


def test_no_gradient_flows_through_detached_values_functions_and_integers() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        (y,) = tp.udf(lambda v: (v * 2,), x, outputs=[tp.spec((2,))], kind="host")
        loss = x.detach() * 3 + y + x.astype("int32") + tp.where(x > 0, 1.0, 2.0)
        (gradient,) = tp.grad(loss, wrt=[x])
        (found,) = reference.evaluate(ctx, [gradient], {T: 2}, {"x": normal(2, 2)})
    assert (np.asarray(found) == 0).all()


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
        found = ctx.run({B: 3, T: 4}, gradients, values)
    k_at = (1.0 + np.arange(4, dtype="float32"))[None, :, None]
    total = values["y"].sum(-1)[None, :, None]
    slope = 2 * (values["x"] * total + k_at)
    assert_all_same(found, [slope * total, np.repeat((slope * values["x"]).sum((0, 2))[:, None], 3, 1)], 1e-5)


def test_grad_of_what_the_loss_does_not_depend_on_is_zero() -> None:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x, y = tp.input("x", (2,)), tp.input("y", (3,))
        middle = x * 2
        gradients = tp.grad(tp.square(middle).sum(), wrt=[y, middle, x])
        found = reference.evaluate(ctx, gradients, {T: 1}, {"x": np.array([1.0, 2.0]), "y": np.ones(3)})
    assert_all_same(found, [np.zeros(3, "float32"), np.array([4, 8], "float32"), np.array([8, 16], "float32")])


def test_errors_of_gradients() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _),):
        x = tp.input("x", (2,), domain=(t,), requires_grad=True)
        y = tp.input("y", (2,), domain=(t,))
        with pytest.raises(errors.GradientError, match="no gradient"):
            _ = x.grad
        with pytest.raises(errors.GradientError, match="depends on no leaf"):
            y.sum().backward()
        with pytest.raises(errors.GradientError, match="not of a float dtype"):
            x.argmax(0).backward()
        (x * y).sum().backward()
        with pytest.raises(errors.GradientError, match="no gradient") as raised:
            _ = y.grad
        assert raised.value.where.startswith(__file__)
        with pytest.raises(errors.TempoError, match="gradients exist for floats only"):
            tp.input("n", dtype="int32", requires_grad=True)
