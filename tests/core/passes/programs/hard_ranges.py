"""Products of chains; reductions of windows, prefixes and suffixes; recurrences that are linear, and those that are not."""

from __future__ import annotations

import tempo_core as tp
from tests.core.passes.programs.declare import Program, declaring, fed

PROGRAMS: dict[str, Program] = {}
program = declaring(PROGRAMS)


# -- associate --------------------------------------------------------------------------------------------------------


@program("associate")
def chains_in_a_loop(i, I, t, T):
    """Orders of which each is best at some points of a loop, or for some bounds; factors that vary with few steps."""
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
