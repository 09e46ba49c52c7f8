"""Tables that run by diagonals, and those that may not."""

from __future__ import annotations

import tempo_core as tp
from tests.core.passes.programs.declare import Program, declaring, fed

PROGRAMS: dict[str, Program] = {}
program = declaring(PROGRAMS)


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
