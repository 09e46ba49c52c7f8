"""Programs that are difficult for a pass. Each must have the same meaning, whichever passes run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tempo_core as tp

Make = Callable[[Any, Any, Any, Any], list[tp.Tensor]]


@dataclass(frozen=True)
class Program:
    """`make(i, I, t, T)` returns the outputs. `hard_on` is the pass under test; `least` is the smallest T for the program."""

    make: Make
    hard_on: str
    least: int = 1

    def build(self) -> tuple[tp.Context, list[tp.Tensor]]:
        ctx = tp.Context("i", "t")
        with ctx as ((i, I), (t, T)):
            return ctx, self.make(i, I, t, T)


PROGRAMS: dict[str, Program] = {}


def program(hard_on: str, least: int = 1) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PROGRAMS[make.__name__] = Program(make, hard_on, least)
        return make

    return register


def fed(*shape: Any, domain: Any, name: str = "x", dtype: str = "float32") -> tp.Tensor:
    """An input behind an operation, so that its slices are slices of computed values."""
    value = tp.input(name, shape, dtype, domain)
    return tp.tanh(value) if dtype == "float32" else value


# -- cse, dce, simplify, narrow ---------------------------------------------------------------------------------------


@program("cse")
def equal_but_for_the_index(i, I, t, T):
    """The operands' indices are part of an operation's identity."""
    x, y = fed(domain=(t,)), fed(domain=(t,), name="y")
    return [x + y, x + y[T - 1 - t], x[T - 1 - t] + y, (x + y)[tp.max(t - 1, 0)], x[T - 1 - t] + y[T - 1 - t]]


@program("cse")
def draws_that_look_alike(i, I, t, T):
    a, b = tp.random.normal((2,), domain=(t,)), tp.random.normal((2,), domain=(t,))
    return [a - b, a + b, a[T - 1 - t] - a]


@program("dce")
def what_nobody_reads(i, I, t, T):
    x = fed(domain=(i, t))
    h = tp.recurrence((), domain=(i, t))
    h[i, 0] = x[i, 0]
    h[i, t + 1] = tp.exp(h) + x[i, t + 1]
    return [x * 2]


@program("simplify")
def views_of_views(i, I, t, T):
    x = fed(2, 3, domain=(i, t))
    y = x.transpose(1, 0)[i, T - 1 - t].transpose(1, 0) * 1 + 0
    negative = -x.reshape(6).reshape(3, 2)
    z = (-negative)[I - 1 - i, t].reshape(6)
    return [
        y,
        z,
        y.transpose(1, 0) @ y,
        (y @ y.transpose(1, 0)).sum(0),
        tp.broadcast_to(x.sum(), (4, 5)).sum((0, 1)),
        x.sum(0).sum(0),
    ]


@program("simplify")
def weight_gradients(i, I, t, T):
    """The gradient of a product, summed over all points, is a product."""
    x, w = fed(3, domain=(i, t)), tp.recurrence((3, 2), domain=(i,))
    w[0] = tp.ones((3, 2))
    loss = (tp.tanh(x @ w) ** 2).sum()[i, 0:T].mean(0)
    loss.backward()
    w[i + 1] = w - 0.1 * w.grad
    return [loss, w]


@program("strip")
def gradients_over_all_times(i, I, t, T):
    """A network of two layers over a loop's states, with a loss that needs the mean of its targets, and weights that go on."""
    x, h = fed(3, domain=(i, t)), tp.recurrence((3,), domain=(i, t))
    w, v = tp.recurrence((3, 4), domain=(i,)), tp.recurrence((4, 2), domain=(i,))
    w[0], v[0] = tp.full((3, 4), 0.3), tp.full((4, 2), -0.2)
    h[i, 0] = x[i, 0]
    h[i, t + 1] = tp.tanh(h + x[i, t + 1] @ (w @ v @ tp.ones((2, 3))))
    states = h[i, 0:T].detach()
    target = states.sum(1) - states.mean()
    error = tp.tanh(states @ w) @ v - target.expand_dims(1)
    loss = (error**2).mean()
    loss.backward()
    w[i + 1], v[i + 1] = w - 0.1 * w.grad, v - 0.1 * v.grad
    return [loss, tp.abs(error).max(), w, v]


@program("narrow")
def invariant_in_a_loop(i, I, t, T):
    x, v = fed(domain=(i, t)), fed(domain=(i,), name="v")
    steps = v + 0 * x
    state = tp.recurrence((), domain=(i, t))
    state[i, 0] = tp.exp(v)
    state[i, t + 1] = state * 0.5 + tp.sin(tp.exp(v))
    return [state, tp.exp(steps), (tp.exp(v) * t)[i, 0:T].sum(0)]


@program("narrow")
def conditions_stay(i, I, t, T):
    x, v = fed(domain=(i, t)), fed(domain=(i,), name="v")
    m, n = tp.recurrence((), domain=(i, t)), tp.recurrence((), domain=(i, t))
    m[i, t, t % 2 == 0] = tp.exp(v)[t % 2 == 0] * 2
    m[i, t] = x
    n[i, t, i >= 1] = tp.exp(v)[i >= 1] + 0 * x
    n[i, t] = x
    return [m, n, n[i, 0:T].sum(0), m[0:I, 0:T].max((0, 1))]


# -- wavefront --------------------------------------------------------------------------------------------------------


def table(i, t, cost, update, *shape):
    """A table with borders, whose inner points are `update` of the points above, to the left, and above to the left."""
    d = tp.recurrence(shape, domain=(i, t), name="d")
    d[0, 0] = cost[0, 0]
    d[0, t] = cost[0, t] + d[0, t - 1]
    d[i, 0] = cost[i, 0] + d[i - 1, 0]
    d[i, t] = cost + update(d[i - 1, t], d[i, t - 1], d[i - 1, t - 1])
    return d


def softmin(a, b, c):
    return -tp.logaddexp(tp.logaddexp(-a, -b), -c)


@program("wavefront")
def table_and_its_gradient(i, I, t, T):
    x, y = fed(domain=(i,)), fed(domain=(t,), name="y")
    d = table(i, t, (x - y) ** 2, softmin)
    last = d[I - 1, T - 1]
    return [last, *tp.grad(last, [x, y])]


@program("wavefront")
def table_read_everywhere(i, I, t, T):
    """Points, rows, columns, windows and prefixes of a table; in the gradient, all points are read from outside."""
    cost = fed(domain=(i, t))
    d = table(i, t, cost, lambda up, left, corner: tp.tanh(softmin(up, left, corner)))
    outputs = [d, d[0, t], d[i, T - 1], d[I - 1, 0:T].sum(0), d[0:I, t].max(0), d[i, 0 : t + 1].sum(0), d[I - 1 - i, t]]
    return [*outputs, *tp.grad((d * d)[0:I, 0:T].sum((0, 1)), [cost])]


@program("wavefront")
def table_from_the_end(i, I, t, T):
    cost = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[I - 1, t] = cost[I - 1, t]
    d[i, T - 1] = cost[i, T - 1]
    d[i, t] = cost + softmin(d[i + 1, t], d[i, t + 1], d[i + 1, t + 1])
    return [d[0, 0], d, *tp.grad(d[0, 0], [cost])]


@program("wavefront")
def table_of_matrices(i, I, t, T):
    """Products inside the table, with a matrix that varies with no step, and with vectors that vary with one."""
    x, w, v = fed(2, domain=(i, t)), fed(2, 2, domain=(), name="w"), fed(2, domain=(t,), name="v")
    d = table(i, t, x, lambda up, left, corner: tp.tanh(up @ w) + tp.sin(left @ v) * corner.softmax(0), 2)
    return [d, *tp.grad((d[I - 1, 0:T] ** 2).sum((0, 1)), [x, w, v])]


@program("wavefront")
def no_table_of_layers(i, I, t, T):
    """The matrices of all layers on a diagonal would be copied for each diagonal."""
    x, w, v = fed(2, domain=(i, t)), fed(2, 2, domain=(i,), name="w"), fed(2, 2, domain=(i,), name="v")
    d = table(i, t, x, lambda up, left, corner: tp.tanh(up @ w) + tp.sin(left @ v) * corner.softmax(0), 2)
    return [d, *tp.grad((d[I - 1, 0:T] ** 2).sum((0, 1)), [x, w, v])]


@program("wavefront")
def table_with_far_reads(i, I, t, T):
    """Reads two rows up and one column ahead lie one diagonal before; reads two columns back lie two."""
    cost = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, t, (i < 2) | (t < 2)] = cost
    d[i, T - 1] = cost[i, T - 1] * 2.0
    near = softmin(d[i - 1, t], d[i, t - 1], d[i - 2, t + 1])
    d[i, t] = tp.tanh(cost + near * tp.cos(d[i, t - 2]) - tp.sin(d[i - 2, t]))
    return [d, d[I - 1, T - 1]]


@program("wavefront")
def table_of_intervals(i, I, t, T):
    """From i to t: each reads those that begin later or end earlier, two later too, on the last diagonal and on that before."""
    cost = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, t, (i >= t) | (i + 1 >= I)] = cost
    near = softmin(d[i + 1, t], d[i, t - 1], d[i + 1, t - 1])
    d[i, t, (i + 2 >= I) | (t + 1 >= T)] = cost + near
    d[i, t] = tp.tanh(cost + near * tp.cos(d[i + 2, t]) - tp.sin(d[i + 2, t + 1]))
    outputs = [d, d[0, T - 1], d[0, t], d[i, 0 : t + 1].sum(0), d[I - 1 - i, t]]
    return [*outputs, *tp.grad((d * d)[0:I, 0:T].sum((0, 1)), [cost])]


@program("wavefront")
def table_from_a_corner(i, I, t, T):
    """Without a triangle: it begins in the first row, at the last column."""
    x, y = fed(domain=(i,)), fed(domain=(t,), name="y")
    cost = (x - y) ** 2
    d = tp.recurrence((), domain=(i, t), name="d")
    d[0, t] = cost[0, t]
    d[i, T - 1] = cost[i, T - 1]
    d[i, t] = cost + softmin(d[i - 1, t], d[i, t + 1], d[i - 1, t + 1])
    return [d[I - 1, 0], d, *tp.grad(d[I - 1, 0], [x, y])]


@program("wavefront")
def table_of_rows_and_columns(i, I, t, T):
    """From i to t: each reads all that begin with it and end earlier, and all that begin later and end with it, and an input between."""
    x, y = fed(domain=(i,)), fed(2, domain=(t,), name="y")
    d = tp.recurrence((2,), domain=(i, t), name="d")
    d[i, t, (i >= t) | (t >= I)] = x * y
    d[i, t] = tp.tanh((d[i, i:t] * d[i + 1 : t + 1, t] + y[i:t] * x).mean(0)) + y
    outputs = [d, d[0, T - 1], d[i, 0 : t + 1].sum(0)]
    return [*outputs, *tp.grad((d * d)[0:I, 0:T].sum((0, 1, 2)), [x, y])]


@program("wavefront")
def table_of_splits(i, I, t, T):
    """The best place of a split, and the gradient of its cost."""
    x, y = fed(domain=(i,)), fed(domain=(t,), name="y")
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, t, (i >= t) | (t >= I)] = 0.0
    d[i, t] = (d[i, i:t] + d[i + 1 : t + 1, t] + x * y * y[i:t]).min(0)
    return [d, *tp.grad(d[0, T - 1], [x, y])]


@program("wavefront")
def table_of_whole_rows_and_columns(i, I, t, T):
    """Each reads the row before it, and the column: elements of a row lie on diagonals that differ from row to row."""
    x = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, 0] = x[i, 0]
    d[0, t] = x[0, t]
    d[i, t] = tp.tanh((d[i, 0:t] * x[i, 0:t]).max(0) - (d[0:i, t] * x).min(0) * 0.5)
    return [d, d[I - 1, T - 1]]


@program("wavefront")
def table_of_parts_of_rows(i, I, t, T):
    """Parts of rows and columns: every second element, and a few at the end, with all later rows."""
    x = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, t, (i >= t) | (t >= I)] = x
    near, far = d[i, tp.max(i, t - 3) : t], d[i + 1 : t + 1 : 2, t]
    d[i, t] = tp.tanh((near * x).max(0) - (far * x).min(0) * 0.5 + (d[i, i:t:2] * x).max(0) - d[i + 1 : I, t].max(0) * x)
    return [d, d[0, T - 1]]


@program("wavefront")
def table_with_limits(i, I, t, T):
    """Sums of rows and columns, with gradients of the gradient: their recurrences begin at other points than the first."""
    x = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, t, (i + 1 >= t) | (t >= I)] = x * 0.5
    d[i, t] = tp.sin(d[i, i:t:2].sum(0) * 0.4 - d[i + 1 : I, t].sum(0) * 0.3)
    (gradient,) = tp.grad(d[0, T - 1], [x])
    return [d, gradient, *tp.grad((gradient**2)[0:I, 0:T].sum((0, 1)), [x])]


@program("wavefront")
def no_table(i, I, t, T):
    """The read one row up and one column ahead lies on the same diagonal."""
    cost = fed(domain=(i, t))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[0, t] = cost[0, t]
    d[i, 0] = cost[i, 0]
    d[i, T - 1] = cost[i, T - 1]
    d[i, t] = tp.tanh(cost + softmin(d[i - 1, t], d[i, t - 1], d[i - 1, t + 1]) * tp.cos(d[i - 1, t - 1]))
    return [d]


@program("wavefront")
def no_table_around(i, I, t, T):
    """No read stays on its diagonal, but the way there and back does: to the column before, and from there to the row ahead."""
    cost = fed(domain=(t,))
    d = tp.recurrence((), domain=(i, t), name="d")
    d[i, 0] = 0.5
    d[0, t + 1] = d[0, t] * 0.9
    d[I - 1, t + 1] = cost
    d[i, t + 1] = tp.tanh(d[i - 1, t] - d[i + 1, t] * 0.5 + d[i, t] + cost)
    return [d]


# -- associate --------------------------------------------------------------------------------------------------------


@program("associate")
def chains_in_a_loop(i, I, t, T):
    """Orders that cross over at a point of a loop, or where a step has a number of points; factors that vary with few steps."""
    a, b = fed(6, 3, domain=(), name="a"), fed(3, 6, domain=(), name="b")
    x, rows = fed(6, domain=(i, t)), fed(3, domain=(t,), name="rows")
    h = tp.recurrence((6,), domain=(i, t), name="h")
    h[i, 0] = x[i, 0]
    seen = rows[0:t]
    grown = (tp.outer(h, tp.ones((3,))) @ seen.transpose()) @ (seen @ b)
    h[i, t + 1] = tp.tanh(a @ (b @ h) + grown.sum(0) + x[i, t + 1])
    return [h, a @ (b @ x), (x @ a) @ (b @ x[i, T - 1])]


@program("associate")
def chains_with_batches_and_readers(i, I, t, T):
    """Batch dimensions and transpositions stay in their order; a product with two readers is no part of a chain."""
    x, y, z = fed(2, 4, 1, domain=(t,)), fed(2, 1, 5, domain=(t,), name="y"), fed(2, 5, 3, domain=(i,), name="z")
    shared = x @ y
    both = (x * 2) @ (y * 2)
    return [
        shared @ z,
        shared.sum(0),
        both @ z,
        z.transpose(0, 2, 1) @ both.transpose(0, 2, 1),
        *tp.grad((both @ z)[0:I, 0:T].sum(), [x, z]),
    ]


# -- lift -------------------------------------------------------------------------------------------------------------


@program("lift")
def sums_of_windows(i, I, t, T):
    """Windows of one point, windows wider than the step, and windows whose size is not a power of two."""
    x = fed(2, domain=(i, t))
    windows = [x[i, t : tp.min(t + w, T)] for w in (1, 2, 3, 7, 16)]
    return [w.sum(0) for w in windows] + [w.discounted_sum(0.9) for w in windows]


@program("shift")
def functions_of_windows_and_their_reader(i, I, t, T):
    """Windows past both ends, of two steps, of two values at once; positions in a window; a function that is not finite at 0."""
    x, y = fed(2, domain=(i, t)), fed(2, domain=(t,), name="y") + 2.0
    past, ahead = slice(tp.max(t - 2, 0), t + 1), slice(t, tp.min(t + 3, T))
    around = x[i, tp.max(t - 1, 0) : tp.min(t + 2, T)]
    return [
        (x[i, past] * x).sum(0), (x[i, ahead] - y).max((0, 1)), (1.0 / y[past] + x).sum(0), (tp.log(y[ahead]) * x).min(0),
        (x[i, past] * y[past] * y).sum((0, 1)), (around.softmax(0) * around).sum(0), tp.any(x[i, ahead] > x, 0),
        (x[tp.max(i - 1, 0) : i + 1, t] * x).sum(0), (x[tp.max(i - 1, 0) : i + 1, ahead] * y).sum((0, 1)),
    ]  # fmt: skip


@program("lift")
def values_that_blocks_share(i, I, t, T):
    """Functions of the points and of what all readers in a block share; the last block is shorter, or all there is."""
    x = fed(2, domain=(i, t))
    blocks = [x[i, t // w * w : tp.min(t // w * w + w, T)] for w in (1, 2, 3, 7)]
    soft = [(b.softmax(0) * b).sum(0) for b in blocks]
    return [*soft, *(b.logsumexp(0) for b in blocks), *(((b - b.max((0, 1))) * b[0]).sum(0) for b in blocks), blocks[1].var(0)]


@program("lift")
def sums_of_prefixes_and_suffixes(i, I, t, T):
    x = fed(2, domain=(i, t))
    return [
        x[i, 0 : t + 1].sum((0, 1)), x[i, t:T].sum((0, 1)), x[i, t:T].discounted_sum(1.1), x[0 : i + 1, 0 : t + 1].sum((0, 1)),
        x[0 : i + 1, t].sum(0), x[0 : i + 1, t:T].sum(0).sum(0), x[i, 0:t].sum(0), x[i, t + 1 : T].sum(0),
    ]  # fmt: skip


@program("lift")
def reductions_of_prefixes_and_suffixes(i, I, t, T):
    """Elements that are functions of the points alone; ties; empty ranges; ranges that end at another step's point."""
    x, y = fed(2, domain=(i, t)), fed(2, domain=(i,), name="y")
    near = tp.round(x * 2)
    reads = [
        near[i, 0 : t + 1],
        near[i, t:T],
        near[i, 0:t],
        near[i, t + 1 : T],
        near[i, 0 : tp.min(t + 2, T)],
        near[i, 0 : t // 2 + 1],
    ]
    results = [f(r) for r in reads for f in (tp.any, tp.all, tp.prod)]
    results += (
        [r.max(0) for r in reads] + [r.min((0, 1)) for r in reads] + [r.argmax(0) for r in reads] + [r.argmin(0) for r in reads]
    )
    results += [(tp.exp(r) * x[i, 0 : t + 1]).max(0) for r in reads[:1]] + [(r * y).sum(1).min(0) for r in reads]
    results += [(x[i, 0 : t + 1] * x[i, t]).max(0), (tp.arange(t + 1) * near[i, 0 : t + 1].sum(1)).max(0)]
    results += [x[i, t:T].sum(1) @ near[i, t:T], tp.matmul(tp.transpose(x[i, 0 : t + 1]), near[i, 0 : t + 1])]
    return [*results, x[0 : i + 1, t].max(0), y[0 : tp.min(t + 1, I)].max(0)]


@program("lift")
def reductions_of_windows(i, I, t, T):
    x = fed(2, domain=(i, t))
    windows = [
        x[i, tp.max(t - 2, 0) : t + 1], x[i, tp.max(t - 3, 0) : tp.min(t + 3, T)], x[i, tp.min(t + 1, T) : tp.min(t + 4, T)],
        x[i, t : tp.min(t + 8, T)], x[i, t // 3 * 3 : tp.min(t // 3 * 3 + 3, T)], x[i, tp.max(t - 2, 0) : t],
    ]  # fmt: skip
    functions = (tp.Tensor.sum, tp.Tensor.prod, tp.Tensor.max, tp.Tensor.min, tp.Tensor.argmax)
    results = (
        [f(w, 0) for w in windows for f in functions] + [(w > 0).any(0) for w in windows] + [(w > -1).all(0) for w in windows]
    )
    return [*results, windows[0].discounted_sum(0.5), windows[1].discounted_sum(0.5), (tp.exp(windows[0]) * x).max((0, 1))]


@program("lift")
def reductions_of_windows_of_a_bound(i, I, t, T):
    x, n = fed(2, domain=(i, t)), I
    windows = [
        x[i, tp.max(t - n + 1, 0) : t + 1], x[i, t : tp.min(t + n, T)], x[i, tp.max(t - n, 0) : tp.min(t + n + 2, T)],
        x[i, tp.min(t + 1, T) : tp.min(t + n + 3, T)], x[i, tp.max(t - 2 * n, 0) : tp.max(t - n, 0)],
    ]  # fmt: skip
    functions = (tp.Tensor.sum, tp.Tensor.prod, tp.Tensor.max, tp.Tensor.min)
    results = (
        [f(w, 0) for w in windows for f in functions] + [(w > 0).any(0) for w in windows] + [(w > -1).all(0) for w in windows]
    )
    gradients = tp.grad(sum((r**2)[0:I, 0:T].sum() for r in results[:3]), wrt=[x])
    return [*results, *gradients, windows[0].discounted_sum(0.5), windows[1].argmax(0)]


@program("lift")
def sums_of_products_with_the_past(i, I, t, T):
    """Convolutions of neighbours that are repeated, and with what comes; and a sum that a loop computes."""
    x, k = fed(2, domain=(i, t)), fed(domain=(t,), name="k")
    repeated = tp.broadcast_to(k[tp.max(t - 1, 0)], (2,))
    results = [(repeated[0:t].flip(0) * x[i, 0:t]).sum(0), (k[0 : T - t].expand_dims(1) * x[i, t:T]).sum()]
    u = tp.recurrence((), domain=(t,))
    u[0] = k[0]
    u[t + 1] = tp.tanh((k[0 : t + 1].flip(0) * u[0 : t + 1]).sum(0)) + k[t + 1]
    return [*results, u, *tp.grad((results[0] ** 2)[0:I, 0:T].sum(), wrt=[x, k])]


@program("lift")
def sums_where_a_condition_holds(i, I, t, T):
    x = fed(domain=(t,))
    a, b, c = (tp.recurrence((), domain=(t,)) for _ in range(3))
    a[t, t >= 3] = x[t:T].sum(0)
    a[t] = x[0 : t + 1].sum(0)
    b[t, t % 2 == 0] = x[0 : t + 1].sum(0)[t % 2 == 0] * 2
    b[t] = -1.0
    c[t, t >= 2] = (x * 2)[t >= 2] + x[t : tp.min(t + 3, T)].sum(0)
    c[t] = -1.0
    return [a, b, c]


@program("lift")
def sums_of_what_depends_on_them(i, I, t, T):
    """Recurrences whose loop over t must stay; over the other step they may be lifted."""
    x = fed(domain=(i, t))
    w, v = tp.recurrence((), domain=(i, t)), tp.recurrence((), domain=(i, t))
    w[0, t] = x[0, t]
    w[i + 1, t] = tp.tanh(w[i, 0 : t + 1].sum(0) + x[i + 1, t])
    v[i, 0] = x[i, 0]
    v[i, t + 1] = tp.tanh(v[0 : i + 1, t].sum(0) + x[i, t + 1])
    u = tp.recurrence((), domain=(t,))
    u[0] = 1.0
    u[t] = u[tp.max(t - 3, 0) : t].sum(0) * 0.5
    return [w, v, u]


@program("lift")
def linear_recurrences(i, I, t, T):
    x, c = fed(2, domain=(i, t)), fed(2, domain=(i, t), name="c")
    a, b, d, e, f = (tp.recurrence((2,), domain=(i, t)) for _ in range(5))
    a[i, 0] = x[i, 0]
    a[i, t + 1] = c * a + x[i, t + 1]
    b[i, T - 1] = x[i, T - 1]
    b[i, t] = x - (0.5 * b[i, t + 1] - c) / 2
    d[i, 0] = 1.0
    d[i, t, t % 3 == 0] = x
    d[i, t] = tp.where(x > 0, d[i, t - 1] * c, 0.0)
    e[0, t] = x[0, t]
    e[i + 1, t] = e + x
    f[0, 0] = 1.0
    f[i, t + 1] = -f * 0.9 + x
    f[i + 1, 0] = f[i, T - 1] * 0.5
    return [a, b, d, e, f]


@program("lift", least=2)
def recurrences_that_are_not_linear(i, I, t, T):
    x, c = fed(2, domain=(i, t)), fed(2, domain=(i, t), name="c")
    h, k, m, n = (tp.recurrence((2,), domain=(i, t)) for _ in range(4))
    h[i, 0] = x[i, 0]
    h[i, t] = tp.where(h[i, t - 1] > 0, h[i, t - 1], x)
    k[i, 0] = x[i, 0]
    k[i, t] = x / (k[i, t - 1] ** 2 + 1)
    m[i, 0] = x[i, 0]
    m[i, 1] = x[i, 1]
    m[i, t] = m[i, t - 1] * 0.3 + m[i, t - 2]
    n[i, 0] = x[i, 0]
    n[i, t] = n[i, t - 1] * n[i, t - 1] + n[i, t - 1] * c
    return [h, k, m, n]


# -- accumulate -------------------------------------------------------------------------------------------------------


@program("accumulate")
def reductions_of_what_a_loop_computes(i, I, t, T):
    """Each function, over the whole step, a part of it, an empty range, and two steps; of values of a loop and of what reads it."""
    x = fed(2, domain=(i, t))
    h = tp.recurrence((2,), domain=(i, t))
    h[i, 0] = x[i, 0]
    h[i, t + 1] = tp.tanh(h[i, t] * x[i, t] + x[i, t + 1])
    y, positive = h * h + x, h > 0
    return [
        h[i, 0:T].sum(0), y[i, 0:T].prod(0), y[i, 0:T].max(0), y[i, 0:T].min(), positive[i, 0:T].any(0), positive[i, 0:T].all(),
        y[0:I, 0:T].sum((0, 1)), y[0:I, 0:T].max(), y[i, 1:T].sum(0), y[i, 1 : tp.max(T - 1, 1)].sum((0, 1)), y[i, tp.min(2, T) : tp.min(3, T)].max(0),
        y[0:I, 1:T].prod((0, 1)), (y * 2)[i, 0:T].sum(0) + (y * 2)[i, T - 1], y.astype("bfloat16")[i, 0:T].sum(0),
    ]  # fmt: skip


@program("accumulate")
def reductions_of_what_two_loops_compute(i, I, t, T):
    """A loop backwards, a loop over the other step, and values of both a loop forwards and a loop backwards."""
    x = fed(domain=(i, t))
    a, b, c = (tp.recurrence((), domain=(i, t)) for _ in range(3))
    a[i, 0] = x[i, 0]
    a[i, t + 1] = tp.sin(a + x[i, t + 1])
    b[i, T - 1] = x[i, T - 1]
    b[i, t] = tp.sin(b[i, t + 1] + x)
    c[0, t] = x[0, t]
    c[i + 1, t] = tp.sin(c + x[i + 1, t])
    u = tp.recurrence((), domain=(i,))
    u[0] = (a * b)[0, 0:T].sum(0)
    u[i + 1] = u + tp.cos(b * u)[i, 0:T].sum(0)
    return [tp.exp(b)[i, 0:T].sum(0), (a * b)[i, 0:T].max(0), tp.exp(c)[0:I, t].sum(0), (a * b * c)[0:I, 0:T].sum((0, 1)), u]


@program("accumulate")
def reductions_of_the_own_past(i, I, t, T):
    """Each point reduces all earlier or all later points of its own recurrence; some have none, some lie in holes."""
    x = fed(2, domain=(i, t))
    a, b, c, d, e = (tp.recurrence((2,), domain=(i, t)) for _ in range(5))
    a[i, 0] = x[i, 0]
    a[i, t + 1] = tp.tanh(a[i, 0 : t + 1].max(0) + x[i, t + 1])
    b[i, T - 1] = x[i, T - 1]
    b[i, t] = tp.tanh(b[i, t + 1 : T].sum(0) * 0.5 + x)
    c[i, t] = tp.tanh(c[i, 0:t].sum((0, 1)) * 0.1 + x)
    d[i, t] = tp.sin(d[i, t + 1 : T].prod(0) + x)
    e[i, 0] = x[i, 0]
    e[i, t, t % 2 == 1] = x
    e[i, t] = tp.sin(tp.cos(e)[i, 0:t].min(0) + x) * 0.5
    return [a, b, c, d, e]


# -- pad --------------------------------------------------------------------------------------------------------------


@program("pad", least=3)
def points_of_varying_shapes(i, I, t, T):
    """One point of a tensor of varying shape has a fixed shape."""
    y = fed(domain=(t,))[0 : t + 1] * 2
    return [y[2], y[2].sum(0), y[2] + y[2], y[T - 1].max(0)]


@program("pad")
def one_length_padded_to_two_sizes(i, I, t, T):
    x = fed(domain=(t,))
    before = (x[0 : t + 1] * 2)[tp.max(t - 1, 0)]
    return [(before + x[0 : tp.max(t - 1, 0) + 1]).sum(0), before]


@program("pad")
def joined_and_turned(i, I, t, T):
    x = fed(2, domain=(t,))
    halves = tp.concatenate([x[0:t], x[t:T]], 0)
    longer = tp.concatenate([x[0 : t + 1] * 2, x[t:T]], 0)
    return [halves.sum(0), longer, longer.cumsum(0), longer.flip(0).argmax(0), x[0:t].flip(0), x[0 : t + 1].flip(1).sum(0)]


@program("pad")
def padded_and_cut(i, I, t, T):
    x, w = fed(2, domain=(t,)), fed(9, 2, domain=(), name="w")
    ends = [
        tp.pad(x[t:T], ((t, 0), (0, 0))),
        tp.pad(x[0 : t + 1], ((2, 1), (0, 0))),
        tp.pad(x.reshape(1, 2), ((t, T - 1 - t), (0, 0))),
        tp.pad(x.reshape(1, 2), ((t, 2), (0, 0))),
    ]
    cuts = [
        w.spatial[0 : t + 1],
        w.spatial[t : 2 * t + 1],
        w.spatial[1 : t + 4 : 2],
        x[0 : t + 1].spatial[0 : t + 3],
        x.spatial[t : t + 2],
    ]
    return [
        *ends,
        *(e.sum(0) for e in ends),
        ends[1].argsort(0),
        ends[2][0:T].max(0),
        *(c.sum(0) for c in cuts),
        cuts[3],
        cuts[4][0:T].sum(0),
    ]


@program("pad")
def elements_of_varying_shapes(i, I, t, T):
    x, p = fed(4, domain=(t,)), fed(domain=(t,), name="p", dtype="int32")
    past = x[0 : t + 1]
    order = past.sum(1).argsort(0)
    return [
        past.index(0, p),
        past.index(0, t),
        past.index(0, tp.arange(3)),
        x.index(0, p[0 : t + 1]).sum(0),
        past.index(0, order),
        past.index(1, p),
    ]


@program("pad")
def products_of_varying_shapes(i, I, t, T):
    x = fed(2, domain=(i, t))
    past = x[i, 0 : t + 1]
    scores = past @ past.transpose(1, 0)
    return [
        scores.sum((0, 1)), scores, scores.softmax(-1) @ past, past.mean(0), past.transpose(1, 0) @ past, scores.log_softmax(0).sum(0),
        (scores > 0).any(1), (scores > -5).all(0), scores.argmax(1), past.prod(0), past.min(0), past.max(0),
    ]  # fmt: skip


@program("pad")
def made_in_varying_shapes(i, I, t, T):
    counted, ones = tp.arange(t + 1), tp.ones((t + 1, 2))
    added = tp.scatter_add(ones, counted, t + 2)
    drawn = [
        tp.random.normal((t + 1,), domain=(t,)),
        tp.random.normal((t + 1, 2), domain=(t,)),
        tp.random.permutation(t + 1, domain=(t,)),
    ]
    return [
        counted,
        ones,
        tp.arange(T - t) + t,
        added.sum(0),
        added,
        counted.one_hot(t + 1),
        ones.expand_dims(1),
        *drawn,
        drawn[1].sum(0),
    ]


@program("pad")
def empty_slices(i, I, t, T):
    """Slices that are empty at some points, and at all points for T = 1."""
    x = fed(2, domain=(i, t))
    before, later = x[i, 0:t], x[i, t + 1 : T]
    return [
        before, later * 2, later.flip(0), before.sum(0), before.prod(0), later.sum(0), later.discounted_sum(0.5), later.reshape(-1, 1, 2),
        tp.concatenate([before, later], 0), (x @ x[i, 0 : t + 1].transpose(1, 0)).softmax(-1) @ x[i, 0 : t + 1],
    ]  # fmt: skip


# -- vectorize --------------------------------------------------------------------------------------------------------


@program("vectorize")
def branches_on_the_step(i, I, t, T):
    """Conditions on the step that is vectorized, on another one, and on both."""
    y = fed(domain=(i, t))
    m, n, o, p, q = (tp.recurrence((), domain=(i, t)) for _ in range(5))
    m[i, t, t % 3 == 0] = y * 2
    m[i, t, t >= 4] = y[i, tp.max(t - 1, 0)]
    m[i, t] = -y
    n[i, t, t >= i] = y
    n[i, t] = y * 10
    o[0, t] = y[0, t]
    o[i + 1, t] = y * 3
    p[i, 0] = y[i, T - 1]
    p[i, t] = y[i, t - 1]
    q[i, t, (t % 2 == 0) | (i == 1)] = m
    q[i, t] = p
    every = [m, n, o, p, q]
    return every + [v[i, 0:T].sum(0) for v in every] + [v[0:I, 0:T].max((0, 1)) for v in every]


@program("vectorize")
def stencils(i, I, t, T):
    """Reads of neighbours at the last point of the other step, with borders of their own, with clamped reads, and gradients of both."""
    x = fed(domain=(t,))
    u, w, v = (tp.recurrence((), domain=(i, t)) for _ in range(3))
    u[0, t] = x
    u[i + 1, 0] = u[i, 0] * 2
    u[i + 1, T - 1] = u[i, T - 1] + x[0]
    u[i + 1, t] = tp.tanh(u[i, t - 1] - u[i, t + 1])
    w[0, t] = x
    w[i + 1, t] = w[i, tp.max(t - 1, 0)] - w[i, tp.min(t + 1, T - 1)] * 2 + w[i, T - 1 - t]
    v[i, 0] = x[0]
    v[0, t] = x
    v[i, t] = v[i - 1, t - 1] + tp.where(x > 0, v[tp.min(i + 1, I - 1), t - 1], x)
    loss = u[I - 1, 0:T].sum() + (w[I - 1, 0:T] ** 2).sum() + v[0:I, T - 1].sum()
    return [u, w, v, *tp.grad(loss, [x])]


@program("vectorize")
def intervals(i, I, t, T):
    """A table over the intervals from i to t. Its reads of later rows end at t: for all t at once, a row would read itself."""
    p, q, table = fed(domain=()), fed(domain=(t,), name="y"), tp.recurrence((), domain=(i, t), name="table")
    table[i, t, i >= t] = p
    table[i, t] = table[i + 1 : tp.max(tp.min(t + 1, I), i + 1), t].sum(0) + p * q
    return [table[0, T - 1], *tp.grad(table[0, T - 1], [p, q])]


@program("vectorize")
def moving_reads(i, I, t, T):
    """Mirrored, divided, clamped and swapped steps; two moving indices at once; strides."""
    y = fed(domain=(i, t))
    reads = [
        y[i, T - 1 - t] * 2, y[i, t % 2], y[I - 1 - i, T - 1 - t] + y, y[i, t // 2 * 2 : tp.min(t // 2 * 2 + 2, T)].sum(0),
        y[tp.min(i + 1, I - 1), tp.max(t - 1, 0) : t + 1].max(0), y[tp.min(t, I - 1), tp.min(i, T - 1)],
        y[i // 2 : i + 1, t // 2 : t + 1].sum((0, 1)), y[i // 2 : i + 1, t // 2 : t + 1].max(1).sum(0),
        y[i, t % 2 : t + 1 : 2].sum(0), y[i, t:T:3].max(0), y[i, t : tp.min(t + 5, T) : 2].mean(0), y[i, 0 : T - t].max(0),
    ]  # fmt: skip
    return reads + [r[i, 0:T].sum(0) for r in reads] + [r[0:I, 0:T].sum((0, 1)) for r in reads]


@program("vectorize")
def reads_of_one_step_at_another(i, I, t, T):
    y, z = fed(domain=(i, t)), fed(domain=(t,), name="z")
    return [
        y[0 : i + 1, tp.min(i, T - 1)].sum(0)[0:I], y[tp.min(t, I - 1), 0 : t + 1].max(0)[0:T], z[tp.min(i, T - 1)] * y,
        z[t // 2 : t + 1].sum(0)[0:T], y[0:I, t // 2 : t + 1].max(1)[0:T], (z[t] - z[tp.min(i, T - 1)])[0:I, 0:T],
    ]  # fmt: skip


@program("vectorize")
def reads_past_the_ends(i, I, t, T):
    """If a condition guards a read, the vectorized operation runs at the other points too, and no result may depend on its values there."""
    x = fed(domain=(i, t))
    m, n, e = (tp.recurrence((), domain=(i, t)) for _ in range(3))
    m[i, T - 1] = 0.0
    m[i, t] = x[i, t + 1] - x
    n[i, t, t >= 2] = x[i, t - 2 : t + 1].sum(0)
    n[i, t] = 1.0
    e[i, t, t + 2 < T] = tp.log(tp.abs(x[i, t : t + 3])).sum(0)
    e[i, t] = 1.0
    return [m, n, e, m[i, 0:T].sum(0), n[i, 0:T].sum(0), e[i, 0:T].sum(0)]


@program("vectorize")
def functions_of_arrays(i, I, t, T):
    """Functions with two results, of operands that vary and operands that do not, and of no operands."""
    x, w = fed(2, domain=(i, t)), fed(2, domain=(), name="w")
    a, b = tp.udf(lambda u, v: (u * v, (u - v).sum()), x, w, outputs=[tp.spec((2,)), tp.spec()])
    c, d = tp.udf(lambda u, v: (u + v, v), a[i, tp.max(t - 1, 0)], b, outputs=[tp.spec((2,)), tp.spec()])
    (none,) = tp.udf(lambda: (tp_three(),), outputs=[tp.spec()], domain=(t,))
    e, f = tp.udf(lambda u: (u, u.sum()), w, outputs=[tp.spec((2,)), tp.spec()], domain=(t,))
    return [a[i, 0:T].sum(0), b[0:I, 0:T], c, d[0:I, t].sum(0), none[0:T].sum(0), e[0:T].sum(0), f[0:T]]


@program("precompute")
def functions_with_an_early_part(i, I, t, T):
    """Functions in a loop, of its state and of values from outside: random starts, as an environment resets itself."""
    x = fed(2, domain=(i, t))
    s = tp.recurrence((2,), domain=(i, t))
    bits = tp.random.bits((2,), domain=(i, t))
    following, start, total = tp.udf(reset_now_and_then, s, x, bits, outputs=[tp.spec((2,)), tp.spec((2,)), tp.spec()])
    s[i, 0] = x[i, 0]
    s[i, t + 1] = following
    return [s, start, total[i, 0:T].sum(0)]


def reset_now_and_then(state: Any, x: Any, bits: Any) -> Any:
    import jax
    import jax.numpy as jnp

    key, reset = jax.random.split(jax.random.wrap_key_data(bits, impl="threefry2x32"))
    start = jax.random.uniform(reset, (2,))
    moved = state * 0.9 + x + jax.random.uniform(key, ())
    return jnp.where(moved.sum() > 1, start, moved), start, (start * x).sum()


def tp_three() -> Any:
    import jax.numpy as jnp

    return jnp.float32(3)


# -- fuse -------------------------------------------------------------------------------------------------------------


@program("fuse")
def cycles_through_other_loops(i, I, t, T):
    """Operations of one domain that depend on each other through other points, and through other loops."""
    x = fed(domain=(i, t))
    h = tp.recurrence((), domain=(i, t))
    h[i, 0] = x[i, 0]
    a = tp.exp(-h * h)
    b = a[i, 0 : t + 1].max(0)
    c = b * a + h
    e = c + a[i, tp.max(t - 1, 0)]
    h[i, t + 1] = tp.tanh(e + c)
    w, inner = tp.recurrence((), domain=(i,)), tp.recurrence((), domain=(i, t))
    w[0] = 1.0
    p = tp.sin(w)
    q = x * p
    r = q[i, 0:T].sum(0)
    u = p * r
    k = u + w
    inner[i, 0] = k
    inner[i, t + 1] = tp.tanh(inner * p + q)
    w[i + 1] = tp.tanh(inner[i, T - 1] + k * u)
    return [h, w, inner, k, e]


@program("fuse")
def attention_over_the_past(i, I, t, T):
    x = fed(3, domain=(t,))
    h = tp.recurrence((3,), domain=(t,))
    h[0] = x[0]
    h[t] = (x @ h[0:t].transpose(1, 0)).softmax(-1) @ h[0:t] + x
    return [h]


@program("vectorize")
def regions_with_one_branch(i, I, t, T):
    """The gradient of blocks of clamped reads: of a Merge, one branch is left in each region of the other step."""
    x = fed(2, domain=(i, t))
    blocks = x[tp.max(i - 2, 0), t // 2 * 2 : tp.min((t // 2 + 1) * 2, T)]
    loss = blocks[i : tp.min(i + 2, I), t].sum()
    return tp.grad((loss * loss)[0:I, 0:T].sum(), wrt=[x])


# -- compact ------------------------------------------------------------------------------------------------------------


@program("compact")
def rows_of_a_state(i, I, t, T):
    """What follows from a state is read at all points: by a product, by reductions, by a result, and at other points."""
    x, state = fed(domain=(i, t)), tp.recurrence((), "int32", domain=(i, t))
    w = tp.input("w", (3, 2), domain=(i,))
    row = state.one_hot(3)
    scaled = (state.astype("float32") - 1.0) / 2.0
    y = tp.tanh(row @ w * scaled) + x
    state[i, 0] = tp.full((), 1, "int32")
    state[i, t + 1] = (state + (y.sum() > 0).astype("int32") + 1) % 3
    later = (scaled - scaled[i, 0:T].mean())[i, t:T].discounted_sum(0.9)
    (gradient,) = tp.grad((y.sum() * later)[0:I, 0:T].sum(), wrt=[w])
    return [gradient, later, row, (scaled**2)[i, 0:T].sum() / (row[i, 0:T].sum(0) + scaled[i, T - 1])]


# -- update -------------------------------------------------------------------------------------------------------------


@program("update")
def tables_at_positions_of_data(i, I, t, T):
    """Rows of tables by a mask, by a mask under a condition, in place of others, and added to them, one after the other."""
    x, table = fed(3, domain=(i, t)), tp.recurrence((80, 3), domain=(i, t))
    at = (x.sum() * 5).astype("int32") % 80
    masked = tp.where((tp.arange(80) == at).expand_dims(1), x, table)
    partly = tp.where(((tp.arange(80) == at // 2) & (x.sum() > 0)).expand_dims(1), x * 2, masked)
    table[i, 0] = tp.zeros((80, 3))
    table[i, t + 1] = partly.scatter(at - 3, x * 3).index_add(at, x)
    many = tp.recurrence((300,), domain=(i, t))
    places = (x * 40).astype("int32") % 300
    many[i, 0] = tp.ones((300,))
    many[i, t + 1] = many.scatter(places, x).index_add(places + 1, x)
    return [table[i, T - 1].sum(0), table.index(0, at), many[i, T - 1].sum(), many.take(places)]


# -- recompute ----------------------------------------------------------------------------------------------------------


@program("recompute")
def masks_of_a_recurrence(i, I, t, T):
    """The gradient's loop needs comparisons of the loop before it, at its own point and beside it."""
    x = fed(3, domain=(i, t))
    h = tp.recurrence((3,), domain=(i, t))
    h[i, 0] = x[i, 0]
    h[i, t] = tp.maximum(h[i, t - 1] - x, tp.where(x > 0, h[i, t - 1], x)) + tp.minimum(h[i, t - 1], x[i, t - 1])
    (gradient,) = tp.grad(h[0:I, T - 1].sum(), wrt=[x])
    return [gradient, h]


HARD = tuple({program.hard_on: name for name, program in PROGRAMS.items()}.values())  # one for each pass, for which it is hard
