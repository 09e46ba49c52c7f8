"""Programs with equal, unread or invariant parts, whose conditions and views have to stay right."""

from __future__ import annotations

import tempo_core as tp
from tests.core.passes.programs.declare import Program, declaring, fed

PROGRAMS: dict[str, Program] = {}
program = declaring(PROGRAMS)


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
