"""Systems of recurrences that mix patterns: each as a program, and as plain NumPy over the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tempo_core as tp
from tests.core.dependences.support import WIDTH, Lazy, Setting

Made = tuple[list[tp.Tensor], list[np.ndarray]]
EQUATIONS: dict[str, Callable[[Setting], Made]] = {}


def equations(make: Callable[[Setting], Made]) -> Callable[[Setting], Made]:
    """Register a system of x over (i, t) and w over (i), under the name of its function."""
    EQUATIONS[make.__name__] = make
    return make


def new(s: Setting, name: str, *steps: Any) -> Any:
    return tp.recurrence((WIDTH,), domain=steps or (s.i, s.t), name=name)


def filled(s: Setting, *elements: Callable[..., Any]) -> list[np.ndarray]:
    """Arrays over (i, t) whose elements may read each other: each function receives the lazy arrays, then i and t."""
    arrays: list[Lazy] = []
    for make in elements:
        arrays.append(Lazy(lambda i, t, make=make: make(*arrays, i, t)))
    return [np.array([[a[i, t] for t in range(s.T_number)] for i in range(s.I_number)]) for a in arrays]


@equations
def delays_that_differ(s: Setting) -> Made:
    """Two recurrences that read each other at different distances."""
    i, t = s.i, s.t
    a, b = new(s, "a"), new(s, "b")
    a[i, t, t < 2] = s.x
    a[i, t] = tp.tanh(b[i, t - 1] + 0.5 * a[i, t - 2] * s.x)
    b[i, t, t < 3] = s.w
    b[i, t] = tp.tanh(a[i, t - 3] * s.x) + 0.3 * b[i, t - 1]
    x, w = s.arrays["x"], s.arrays["w"]
    return [a, b], filled(
        s,
        lambda a, b, i, t: x[i, t] if t < 2 else np.tanh(b[i, t - 1] + 0.5 * a[i, t - 2] * x[i, t]),
        lambda a, b, i, t: w[i] if t < 3 else np.tanh(a[i, t - 3] * x[i, t]) + 0.3 * b[i, t - 1],
    )


@equations
def odd_and_even(s: Setting) -> Made:
    """At each point one of the two has a value of its own, and the other depends on it: whole statements have no order."""
    i, t = s.i, s.t
    a, b = new(s, "a"), new(s, "b")
    a[i, t, t % 2 == 0] = s.x
    a[i, t] = tp.sin(b) * s.w
    b[i, t, t % 2 == 1] = s.x
    b[i, t] = tp.cos(a) * s.x
    x, w = s.arrays["x"], s.arrays["w"]
    return [a, b], filled(
        s,
        lambda a, b, i, t: x[i, t] if t % 2 == 0 else np.sin(b[i, t]) * w[i],
        lambda a, b, i, t: x[i, t] if t % 2 == 1 else np.cos(a[i, t]) * x[i, t],
    )


@equations
def from_both_ends(s: Setting) -> Made:
    """Forwards in the first half of time, backwards in the second, and the first half starts from the second."""
    i, t, T = s.i, s.t, s.T
    h = new(s, "h")
    h[i, T - 1] = s.w
    h[i, t, 2 * t >= T] = tp.tanh(h[i, t + 1] + s.x)
    h[i, 0] = h[i, (T + 1) // 2] * s.x[i, 0]
    h[i, t] = tp.sin(h[i, t - 1] * s.x)
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if t == n - 1:
            return w[i]
        if 2 * t >= n:
            return np.tanh(h[i, t + 1] + x[i, t])
        return h[i, (n + 1) // 2] * x[i, 0] if t == 0 else np.sin(h[i, t - 1] * x[i, t])

    return [h], filled(s, element)


@equations
def five_branches(s: Setting) -> Made:
    """Branches whose order matters, with combined conditions."""
    i, t, T = s.i, s.t, s.T
    h = new(s, "h")
    h[i, t, (t == 0) | ((i == 0) & (t % 4 == 3))] = s.x * s.w
    h[i, t, ~((t % 3 == 1) | (i >= 1))] = h[i, t - 1] * 0.5 + s.x
    h[i, t, (t + 1 == T) & (i != 0)] = tp.sin(h[i, t - 1])
    h[i, t, t % 2 == 1] = tp.tanh(h[i, t // 2] * s.w)
    h[i, t] = s.x - h[i, t - 1]
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if t == 0 or (i == 0 and t % 4 == 3):
            return x[i, t] * w[i]
        if not (t % 3 == 1 or i >= 1):
            return h[i, t - 1] * 0.5 + x[i, t]
        if t + 1 == n and i != 0:
            return np.sin(h[i, t - 1])
        return np.tanh(h[i, t // 2] * w[i]) if t % 2 == 1 else x[i, t] - h[i, t - 1]

    return [h], filled(s, element)


@equations
def carried_into_the_next_row(s: Setting) -> Made:
    i, t, T = s.i, s.t, s.T
    h = new(s, "h")
    after = tp.tanh(h * s.w + s.x)
    h[0, 0] = s.w[0]
    h[i, t + 1] = after
    h[i + 1, 0] = after[i, T - 1] * 0.5
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if i == t == 0:
            return w[0]
        j, k = (i, t - 1) if t else (i - 1, n - 1)
        return np.tanh(h[j, k] * w[j] + x[j, k]) * (1.0 if t else 0.5)

    return [h], filled(s, element)


@equations
def wavefront(s: Setting) -> Made:
    """Each point reads the point above it, the point before it, and the point after it in the row above."""
    i, t, T = s.i, s.t, s.T
    h = new(s, "h")
    h[i, t, (i == 0) | (t == 0) | (t + 1 == T)] = s.x
    h[i, t] = tp.tanh(h[i - 1, t] + h[i, t - 1] * s.w + h[i - 1, t + 1])
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if i == 0 or t in (0, n - 1):
            return x[i, t]
        return np.tanh(h[i - 1, t] + h[i, t - 1] * w[i] + h[i - 1, t + 1])

    return [h], filled(s, element)


@equations
def both_directions(s: Setting) -> Made:
    """A state that goes forwards, a state that goes backwards, and attention over both."""
    i, t, T = s.i, s.t, s.T
    f, b = new(s, "f"), new(s, "b")
    f[i, 0] = s.w
    f[i, t + 1] = tp.tanh(f + s.x[i, t + 1])
    b[i, T - 1] = s.w
    b[i, t] = tp.tanh(b[i, t + 1] - s.x)
    y = f * b
    out = (y[i, 0:T] @ y).softmax(0) @ y[i, 0:T]
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def mixed(f: Lazy, b: Lazy, out: Lazy, i: int, t: int) -> np.ndarray:
        values = np.stack([f[i, k] * b[i, k] for k in range(n)])
        scores = np.exp(values @ values[t])
        return scores / scores.sum() @ values

    arrays = filled(
        s,
        lambda f, b, out, i, t: w[i] if t == 0 else np.tanh(f[i, t - 1] + x[i, t]),
        lambda f, b, out, i, t: w[i] if t == n - 1 else np.tanh(b[i, t + 1] - x[i, t]),
        mixed,
    )
    return [f, b, out], arrays


@equations
def reads_of_reads(s: Setting) -> Made:
    """An index of an indexed tensor: of points and of slices, in both orders."""
    i, t, T = s.i, s.t, s.T
    sums = s.x[i, 0 : t + 1].sum(0)
    mirrored = s.x[i, T - 1 - t]
    clamped = mirrored[i, tp.max(t - 1, 0)]
    every = sums[i, 0:T:2].sum(0)
    twice = tp.sin(mirrored)[i, t:T].sum(0)[i, T - 1 - t]
    windows = sums[i, t : tp.min(t + 2, T)].max(0)
    x, n = s.arrays["x"], s.T_number
    prefix = x.cumsum(1)
    suffix = np.sin(x).cumsum(1)  # a suffix of the mirrored tensor, read mirrored
    expected = [
        np.stack([x[:, n - 1 - max(k - 1, 0)] for k in range(n)], 1),
        prefix[:, ::2].sum(1),
        suffix,
        np.stack([prefix[:, k : k + 2].max(1) for k in range(n)], 1),
    ]
    return [clamped, every, twice, windows], expected


@equations
def by_data(s: Setting) -> Made:
    """Data decides which timestep is read or written; some points are read more than once."""
    i, T = s.i, s.T
    whole = s.x[i, 0:T]
    best = whole.argmax(0)
    order = whole.spatial[:, 0].argsort(0)
    there = whole.take(order)
    spread = tp.scatter_add(whole, best[i].take(order % WIDTH), T)
    greatest = tp.take_along_last(whole.transpose(1, 0), best)
    x = s.arrays["x"].astype("float32").astype("float64")
    sorted_by = x[:, :, 0].argsort(1)
    scattered = np.zeros_like(x)
    for k in range(s.I_number):
        columns = x[k].argmax(0)[sorted_by[k] % WIDTH]
        np.add.at(scattered[k], columns, x[k])
    return [there, spread, greatest], [np.stack([x[k][sorted_by[k]] for k in range(s.I_number)]), scattered, x.max(1)]


@equations
def a_step_read_by_another(s: Setting) -> Made:
    """A tensor over t alone, read at i, between i and t, and on the diagonal of one over both."""
    i, I, t, T = s.steps
    column = s.x[0, t] * 2
    at = tp.min(i, T - 1)
    y = column[at] * s.w
    some = column[tp.min(i, t) : t + 1].sum(0)
    diagonal = s.x[i, at]
    from_t = s.w[tp.min(t, I - 1)] * s.x
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number
    rows = range(s.I_number)
    expected = [
        np.stack([x[0, min(k, n - 1)] * 2 * w[k] for k in rows]),
        np.array([[2 * x[0, min(k, m) : m + 1].sum(0) for m in range(n)] for k in rows]),
        np.stack([x[k, min(k, n - 1)] for k in rows]),
        np.array([[w[min(m, s.I_number - 1)] * x[k, m] for m in range(n)] for k in rows]),
    ]
    return [y, some, diagonal, from_t], expected


@equations
def a_branch_that_reads_the_first(s: Setting) -> Made:
    """A linear recurrence, which would be one scan without the branch that reads its first value."""
    i, t = s.i, s.t
    h = new(s, "h")
    h[i, 0] = s.x[i, 0]
    h[i, t, t == 3] = tp.sin(h[i, 0]) * s.x
    h[i, t] = h[i, t - 1] * 0.5 + s.x
    x = s.arrays["x"]

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if t in (0, 3):
            return x[i, 0] if t == 0 else np.sin(h[i, 0]) * x[i, 3]
        return h[i, t - 1] * 0.5 + x[i, t]

    return [h], filled(s, element)


@equations
def windows_of_two(s: Setting) -> Made:
    """Two recurrences that read windows of each other: a block of the past, and the last two points."""
    i, t = s.i, s.t
    a, b = new(s, "a"), new(s, "b")
    a[i, 0] = s.w
    a[i, t] = tp.tanh(b[i, tp.max(t - 2, 0) : t].sum(0) + s.x)
    b[i, t] = a[i, t // 2 * 2 : t + 1].sum(0) * 0.5
    x, w = s.arrays["x"], s.arrays["w"]
    return [a, b], filled(
        s,
        lambda a, b, i, t: w[i] if t == 0 else np.tanh(b[i, max(t - 2, 0) : t].sum(0) + x[i, t]),
        lambda a, b, i, t: a[i, t // 2 * 2 : t + 1].sum(0) * 0.5,
    )


@equations
def rows_that_read_the_future_of_earlier_rows(s: Setting) -> Made:
    """Layers: each reads the future of the layer below, and its own past."""
    i, t, T = s.i, s.t, s.T
    h = new(s, "h")
    h[0, t] = s.x[0, t]
    h[i, 0] = h[i - 1, 0:T].mean(0)
    h[i, t] = tp.tanh(h[i - 1, t:T].mean(0) + h[i, 0:t].sum(0) * s.w)
    x, w, n = s.arrays["x"], s.arrays["w"], s.T_number

    def element(h: Lazy, i: int, t: int) -> np.ndarray:
        if i == 0:
            return x[0, t]
        if t == 0:
            return h[i - 1, 0:n].mean(0)
        return np.tanh(h[i - 1, t:n].mean(0) + h[i, 0:t].sum(0) * w[i])

    return [h], filled(s, element)


@equations
def a_quotient_where_it_is_defined(s: Setting) -> Made:
    """Branches whose values are infinite, or not numbers, at points that another branch defines."""
    i, t = s.i, s.t
    y, z = new(s, "y"), new(s, "z")
    y[i, t, t >= 1] = s.x / t + tp.log(s.w * s.w * t)
    y[i, t] = s.x
    z[i, t, t >= 1] = s.x[i, 0:t].max(0) * s.w
    z[i, t] = s.w
    x, w = s.arrays["x"], s.arrays["w"]
    return [y, z], filled(
        s,
        lambda y, z, i, t: x[i, t] / t + np.log(w[i] * w[i] * t) if t else x[i, t],
        lambda y, z, i, t: x[i, 0:t].max(0) * w[i] if t else w[i],
    )


@equations
def one_branch_that_reads_its_own_past(s: Setting) -> Made:
    """The past of the first point is empty, and so there is one branch alone: forward substitution."""
    i, t = s.i, s.t
    y = new(s, "y")
    y[i, t] = s.x - 0.5 * y[i, 0:t].sum(0) * s.w
    x, w = s.arrays["x"], s.arrays["w"]
    return [y], filled(s, lambda y, i, t: x[i, t] - (0.5 * y[i, 0:t].sum(0) * w[i] if t else 0.0))
