"""The meaning of recurrent tensors: each program against plain NumPy loops, through the reference and through the compiler."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tests.core.running import CASES, SETTINGS, Case, assert_all_same, case, compiled, evaluated

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def f32(*values: object) -> np.ndarray:
    return np.asarray(values[0] if len(values) == 1 else values, "float32")


# -- points in time ---------------------------------------------------------------------------------------------------


@case
def state_passing() -> Case:
    """Each point reads the point before."""
    data, ctx = normal(6, 3), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.tanh(h + x[t + 1])
    expected = [data[0]]
    for k in range(1, 6):
        expected.append(np.tanh(expected[-1] + data[k]))
    return Case(ctx, {T: 6}, [h], [f32(expected)], {"x": data})


@case
def delays_of_two() -> Case:
    """Two branches give first values, the third reads two steps back."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        f = tp.recurrence((), "int32", domain=(t,))
        f[0] = 0
        f[1] = 1
        f[t] = f[t - 1] + f[t - 2]
    return Case(ctx, {T: 9}, [f], [np.array([0, 1, 1, 2, 3, 5, 8, 13, 21], "int32")])


@case
def anti_causal() -> Case:
    """Discounted returns: each point reads the point after."""
    data, ctx = normal(5), tp.Context("t")
    with ctx as ((t, T),):
        r = tp.input("r", domain=(t,))
        g = tp.recurrence((), domain=(t,))
        g[T - 1] = r[T - 1]
        g[t] = r + 0.9 * g[t + 1]
    expected = data.copy()
    for k in reversed(range(4)):
        expected[k] += np.float32(0.9) * expected[k + 1]
    return Case(ctx, {T: 5}, [g], [expected], {"r": data})


@case
def one_point() -> Case:
    """Bounds of one: only the first branch has a point."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        h = tp.recurrence((2,), domain=(i, t))
        h[i, 0] = tp.ones((2,)) * i
        h[i, t + 1] = h * 2
        total = h[i, 0:T].sum(0)
    return Case(ctx, {I: 1, T: 1}, [h, total], [np.zeros((1, 1, 2), "float32"), np.zeros((1, 2), "float32")])


@case
def future_points() -> Case:
    """Reads of later points, guarded by a clamp and by a branch."""
    data, ctx = normal(5), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = x * 2
        ahead = y[tp.min(t + 2, T - 1)]
        z = tp.recurrence((), domain=(t,))
        z[T - 1] = 7.0
        z[t] = y[t + 1] - y
    clamped = (data * 2)[np.minimum(np.arange(5) + 2, 4)]
    return Case(ctx, {T: 5}, [ahead, z], [clamped, f32([*(2 * data[1:] - 2 * data[:-1]), 7.0])], {"x": data})


@case
def reversed_time() -> Case:
    """Reads at T - 1 - t, and an assignment there."""
    data, ctx = normal(5, 2), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        mirrored = x[T - 1 - t] + x * 10
        back = tp.recurrence((2,), domain=(t,))
        back[T - 1 - t] = x * 3
    return Case(ctx, {T: 5}, [mirrored, back], [data[::-1] + data * 10, data[::-1] * 3], {"x": data})


@case
def constant_points() -> Case:
    """The first, the last and the middle point, read at every point and outside of time."""
    data, ctx = normal(6), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = x + 1
        outputs = [y[0], y[T - 1], y[T // 2], y - y[0]]
    y_ = data + 1
    return Case(ctx, {T: 6}, outputs, [y_[0], y_[5], y_[3], y_ - y_[0]], {"x": data})


@case
def quotients_and_remainders() -> Case:
    """Indices with // and %: held and repeated values."""
    data, ctx = normal(7), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", domain=(t,)) * 2
        outputs = [y[t // 2], y[t % 3], y[(t // 3) * 3]]
    k, y_ = np.arange(7), data * 2
    return Case(ctx, {T: 7}, outputs, [y_[k // 2], y_[k % 3], y_[k // 3 * 3]], {"x": data})


# -- slices of time ---------------------------------------------------------------------------------------------------


@case
def prefixes_and_suffixes() -> Case:
    data, ctx = normal(5, 2), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", (2,), domain=(t,)) * 2
        outputs = [y[0 : t + 1].sum(0), y[t:T].max(0), y[0 : t + 1].mean(0), y[t:T].discounted_sum(0.5)]
    y_ = data * 2
    expected = [
        [y_[: k + 1].sum(0) for k in range(5)],
        [y_[k:].max(0) for k in range(5)],
        [y_[: k + 1].mean(0) for k in range(5)],
        [(y_[k:] * 0.5 ** np.arange(5 - k)[:, None]).sum(0) for k in range(5)],
    ]
    return Case(ctx, {T: 5}, outputs, [f32(e) for e in expected], {"x": data})


@case
def empty_slices() -> Case:
    """The strict prefix of the first point is empty."""
    data, ctx = normal(4), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", domain=(t,)) * 1
        outputs = [y[0:t].sum(0), y[0:t].prod(0), y[t + 1 : T].sum(0)]
    before = [data[:k].sum() for k in range(4)], [data[:k].prod() for k in range(4)], [data[k + 1 :].sum() for k in range(4)]
    return Case(ctx, {T: 4}, outputs, [f32(e) for e in before], {"x": data})


@case
def windows() -> Case:
    """Windows of the past and of the future, cut off at both ends of time."""
    data, ctx = normal(7), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", domain=(t,)) * 2
        past, future = y[tp.max(t - 2, 0) : t + 1], y[t : tp.min(t + 3, T)]
        both = y[tp.max(t - 1, 0) : tp.min(t + 2, T)]
        outputs = [past.sum(0), past.max(0), future.mean(0), future.discounted_sum(0.9), both.sum(0)]
    y_, k = data * 2, range(7)
    expected = [
        [y_[max(a - 2, 0) : a + 1].sum() for a in k],
        [y_[max(a - 2, 0) : a + 1].max() for a in k],
        [y_[a : a + 3].mean() for a in k],
        [sum(y_[b] * 0.9 ** (b - a) for b in range(a, min(a + 3, 7))) for a in k],
        [y_[max(a - 1, 0) : a + 2].sum() for a in k],
    ]
    return Case(ctx, {T: 7}, outputs, [f32(e) for e in expected], {"x": data})


@case
def window_of_a_recurrence() -> Case:
    """A recurrence that reads a window of its own past."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = 1.0
        h[t] = h[tp.max(t - 3, 0) : t].sum(0)
    expected = [1.0]
    for k in range(1, 8):
        expected.append(sum(expected[max(k - 3, 0) : k]))
    return Case(ctx, {T: 8}, [h], [f32(expected)])


@case
def causal_attention() -> Case:
    """Softmax over the whole past, in a recurrence."""
    data, ctx = normal(5, 3), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = x[0]
        h[t] = (x @ h[0:t].transpose(1, 0)).softmax(-1) @ h[0:t] + x
    expected = [data[0]]
    for k in range(1, 5):
        past = np.stack(expected)
        scores = np.exp(past @ data[k] - (past @ data[k]).max())
        expected.append(scores / scores.sum() @ past + data[k])
    return Case(ctx, {T: 5}, [h], [f32(expected)], {"x": data})


@case
def blocks() -> Case:
    """The block around a point, as a whole and up to the point."""
    data, ctx = normal(8), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", domain=(t,)) * 2
        begin = t // 4 * 4
        outputs = [y[begin : t + 1].sum(0), y[begin : tp.min(begin + 4, T)].max(0)]
    y_ = data * 2
    expected = [
        [y_[k // 4 * 4 : k + 1].sum() for k in range(8)],
        [y_[k // 4 * 4 : k // 4 * 4 + 4].max() for k in range(8)],
    ]
    return Case(ctx, {T: 8}, outputs, [f32(e) for e in expected], {"x": data})


@case
def strided_slices() -> Case:
    """Every other point, from the start, and back from the present."""
    data, ctx = normal(7), tp.Context("t")
    with ctx as ((t, T),):
        y = tp.input("x", domain=(t,)) * 2
        outputs = [y[0:T:2], y[1:T:3].sum(0), y[t % 2 : t + 1 : 2].sum(0)]
    y_ = data * 2
    expected = [y_[::2], y_[1::3].sum(), f32([y_[k % 2 : k + 1 : 2].sum() for k in range(7)])]
    return Case(ctx, {T: 7}, outputs, expected, {"x": data})


@case
def constant_slices() -> Case:
    """A slice with constant ends removes the step from the domain."""
    data, ctx = normal(3, 5, 2), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        y = tp.input("x", (2,), domain=(i, t)) + 1
        outputs = [y[i, 0:T].sum(0), y[0:I, t], y[0:I, 0:T], y[1, 2:4], y[i, T - 2 : T], y[0:I].mean(0)]
    y_ = data + 1
    by_time = np.swapaxes(y_, 0, 1)
    return Case(ctx, {I: 3, T: 5}, outputs, [y_.sum(1), by_time, y_, y_[1, 2:4], y_[:, 3:], y_.mean(0)], {"x": data})


@case
def slices_of_slices() -> Case:
    """A slice of a slice over another step, and a slice of a shifted view."""
    data, ctx = normal(3, 4), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        y = tp.input("x", domain=(i, t)) + 1
        over_t = y[i, 0:T]
        outputs = [over_t[0:I], y[i, tp.max(t - 1, 0)][i, 0:T], over_t.sum(0)[0:I].sum(0)]
    y_ = data + 1
    return Case(ctx, {I: 3, T: 4}, outputs, [y_, y_[:, [0, 0, 1, 2]], y_.sum()], {"x": data})


@case
def ragged_outputs() -> Case:
    """Results whose shape varies are nested lists."""
    data, ctx = normal(2, 3), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        y = tp.input("x", domain=(i, t)) + 1
        outputs = [y[i, 0 : t + 1] * 2, y[i, t:T], y[i, t : tp.min(t + 2, T)]]
    y_ = data + 1
    expected = [
        [[row[: k + 1] * 2 for k in range(3)] for row in y_],
        [[row[k:] for k in range(3)] for row in y_],
        [[row[k : k + 2] for k in range(3)] for row in y_],
    ]
    return Case(ctx, {I: 2, T: 3}, outputs, expected, {"x": data})


# -- several steps, several recurrences -------------------------------------------------------------------------------


@case
def nested_carries() -> Case:
    """Minibatches in epochs: the inner step's last value is carried to the outer step's next."""
    data, ctx = normal(3, 4), tp.Context("i", "e")
    with ctx as ((i, I), (e, E)):
        x = tp.input("x", domain=(i, e))
        w = tp.recurrence((), domain=(i, e), name="w")
        w[0, 0] = 1.0
        after = w * 0.5 + x
        w[i, e + 1] = after
        w[i + 1, 0] = after[i, E - 1]
    expected, value = np.zeros((3, 4), "float32"), np.float32(1)
    for a in range(3):
        for b in range(4):
            expected[a, b] = value
            value = value * np.float32(0.5) + data[a, b]
    return Case(ctx, {I: 3, E: 4}, [w], [expected], {"x": data})


@case
def deep_carries() -> Case:
    """A carry through three nested steps."""
    ctx = tp.Context("i", "e", "k")
    with ctx as ((i, I), (e, E), (k, K)):
        n = tp.recurrence((), "int32", domain=(i, e, k), name="n")
        n[0, 0, 0] = 0
        after = n + 1
        n[i, e, k + 1] = after
        n[i, e + 1, 0] = after[i, e, K - 1]
        n[i + 1, 0, 0] = after[i, E - 1, K - 1]
    return Case(ctx, {I: 2, E: 3, K: 2}, [n], [np.arange(12, dtype="int32").reshape(2, 3, 2)])


@case
def mutual_recursion() -> Case:
    """Two recurrences that read each other, one of them at the same point."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a = tp.recurrence((), domain=(t,), name="a")
        b = tp.recurrence((), domain=(t,), name="b")
        a[0] = 1.0
        b[t] = a * 2
        a[t + 1] = b - a * 0.5
    first = [1.0]
    for _ in range(5):
        first.append(first[-1] * 1.5)
    return Case(ctx, {T: 6}, [a, b], [f32(first), f32(first) * 2])


@case
def layers() -> Case:
    """A step for depth: each layer reads the one below at the same time and itself one time before."""
    data, ctx = normal(5, 2), tp.Context("t", "l")
    with ctx as ((t, T), (l, L)):
        x = tp.input("x", (2,), domain=(t,))
        h = tp.recurrence((2,), domain=(t, l), name="h")
        h[t, 0] = x
        h[0, l + 1] = h[0, l] + 1
        h[t + 1, l + 1] = tp.tanh(h[t + 1, l] + h[t, l + 1])
    expected = np.zeros((5, 3, 2), "float32")
    for a in range(5):
        expected[a, 0] = data[a]
        for b in range(1, 3):
            expected[a, b] = expected[0, b - 1] + 1 if a == 0 else np.tanh(expected[a, b - 1] + expected[a - 1, b])
    return Case(ctx, {T: 5, L: 3}, [h, h[T - 1, L - 1]], [expected, expected[-1, -1]], {"x": data})


@case
def domains_union() -> Case:
    """Operands over different steps give a result over both, in the context's order."""
    rows, columns, ctx = normal(3), normal(4), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, y = tp.input("x", domain=(t,)), tp.input("y", domain=(i,))
        outputs = [x * y, (x * y)[i, 0:T].sum(0), x[t] + y[0]]
    product = rows[:, None] * columns
    return Case(ctx, {I: 3, T: 4}, outputs, [product, product.sum(1), columns + rows[0]], {"x": columns, "y": rows})


# -- branches and conditions ------------------------------------------------------------------------------------------


@case
def first_branch_wins() -> Case:
    """Branches are tried in the order of their assignment; points outside of the domain are dropped."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        a = tp.recurrence((), "int32", domain=(t,))
        a[3] = 100
        a[t % 2 == 0] = t * 10
        a[t] = -t
        b = tp.recurrence((), "int32", domain=(t,))
        b[0] = 5
        b[t + 1] = t + 50  # t = T - 1 assigns a point outside of the domain
    return Case(
        ctx,
        {T: 6},
        [a, b],
        [np.array([0, -1, 20, 100, 40, -5], "int32"), np.array([5, 50, 51, 52, 53, 54], "int32")],
    )


@case
def updates_now_and_then() -> Case:
    """A value that changes only at every third step, and is computed only where it is needed."""
    data, ctx = normal(7), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        fresh = (x * 2)[t % 3 == 2]
        held = tp.recurrence((), domain=(t,), name="held")
        held[0] = 0.0
        held[t + 1, (t + 1) % 3 == 0] = held + fresh
        held[t + 1] = held
    expected = np.zeros(7, "float32")
    for k in range(6):
        expected[k + 1] = expected[k] + (2 * data[k] if (k + 1) % 3 == 0 else 0)
    return Case(ctx, {T: 7}, [held], [expected], {"x": data})


@case
def conditions_as_values() -> Case:
    """Conditions on steps are booleans in time."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        outputs = [tp.where((t >= i) & (t < T - 1), t * 1.0, -1.0), tp.where(t == T - 1, 1, 0)]
    i_, t_ = np.meshgrid(np.arange(3), np.arange(4), indexing="ij")
    return Case(
        ctx,
        {I: 3, T: 4},
        outputs,
        [np.where((t_ >= i_) & (t_ < 3), t_, -1).astype("float32"), (np.arange(4) == 3).astype("int32")],
    )


@case
def steps_as_numbers() -> Case:
    """Steps, bounds and expressions of them in arithmetic with floats and tensors."""
    data, ctx = normal(4), tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", domain=(t,))
        outputs = [1e-1 * 0.5**i, x + t, x * T, x * (i * 2 + t) / (t + 1), tp.arange(3) + t]
    k = np.arange(4, dtype="float32")
    scaled = f32([data * (2 * i_ + k) / (k + 1) for i_ in range(2)])
    expected = [0.1 * 0.5 ** np.arange(2), data + k, data * 4, scaled]
    positions = np.arange(3, dtype="int32") + np.arange(4, dtype="int32")[:, None]
    return Case(ctx, {I: 2, T: 4}, outputs, [*map(f32, expected), positions], {"x": data})


# -- spatial indexing by steps ----------------------------------------------------------------------------------------


@case
def spatial_indices() -> Case:
    """Spatial dimensions indexed by steps, expressions, slices and tensors."""
    data, table, ctx = normal(4, 5), normal(6, 2), tp.Context("t")
    order = np.array([3, 0, 2, 1], "int32")
    with ctx as ((t, T),):
        x, w = tp.input("x", (5,), domain=(t,)), tp.input("w", (6, 2))
        p = tp.input("p", (), "int32", domain=(t,))
        outputs = [
            x.index(0, t), w.index(0, t + 1), w.spatial[1:4, 1], x.spatial[-2:], x.spatial[t : t + 2].sum(0), w.index(0, p),
            x.spatial[None, ::2], x.spatial[::-1], w.take(tp.constant([[0, 5], [2, 2]])), w.spatial[0 : t + 1].sum(0),
        ]  # fmt: skip
    k = np.arange(4)
    expected = [
        data[k, k], table[k + 1], table[1:4, 1], data[:, -2:], f32([data[a, a : a + 2].sum() for a in k]), table[order],
        data[:, None, ::2], data[:, ::-1], table[[[0, 5], [2, 2]]], f32([table[: a + 1].sum(0) for a in k]),
    ]  # fmt: skip
    return Case(ctx, {T: 4}, outputs, expected, {"x": data, "w": table, "p": order})


@case
def symbolic_shapes() -> Case:
    """Sizes that are bounds: blocks of a minibatch step, picked by its step."""
    data, ctx = normal(12, 2), tp.Context("m")
    with ctx as ((m, M),):
        x = tp.input("x", (12, 2))
        part = x.spatial[m * 4 : m * 4 + 4]
        outputs = [part.mean(0), tp.zeros((M, 2)) + m, x.reshape(-1).sum()]
    by_block = data.reshape(3, 4, 2)
    whole = np.broadcast_to(np.arange(3, dtype="float32")[:, None, None], (3, 3, 2))
    return Case(ctx, {M: 3}, outputs, [by_block.mean(1), whole, data.sum()], {"x": data})


# -- the runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_reference_gives_what_loops_give(name: str) -> None:
    case = CASES[name]()
    assert_all_same(evaluated(case), case.expected, case.tolerance)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_compiled_program_gives_what_loops_give(name: str, setting: str) -> None:
    case = CASES[name]()
    assert_all_same(compiled(case, SETTINGS[setting]), case.expected, case.tolerance)
