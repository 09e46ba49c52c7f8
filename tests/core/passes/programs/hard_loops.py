"""Which operations leave a loop, run together in one, and keep or change values there."""

from __future__ import annotations

from typing import Any

import tempo_core as tp
from tests.core.passes.programs.declare import Program, declaring, fed

PROGRAMS: dict[str, Program] = {}
program = declaring(PROGRAMS)


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
