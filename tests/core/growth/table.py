"""The growth table: for each pattern of dependence and each reduction over it, how a program's costs may grow with its bounds.

A row names the costs of the best form that a person writes by hand, as the monomials that may occur: `T` for what is linear in T,
`T*N + N**2` for what is linear in T and in N together, besides a square of N alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tempo_core as tp

WINDOW = 6

Program = Callable[[], tuple[tp.Context, dict[Any, int], list[tp.Tensor]]]


@dataclass(frozen=True)
class Row:
    """A program, with the monomials that its operations, its moved bytes, its temporaries and stores, and its executions may have.

    `executions` is how often statements run: once for what works on whole arrays, T times in a loop over t.
    """

    name: str
    program: Program
    operations: str
    bytes: str = ""
    memory: str = ""
    executions: str = "1"

    @property
    def wanted(self) -> dict[str, str]:
        moved = self.bytes or self.operations
        memory = self.memory or moved
        return {"operations": self.operations, "bytes moved": moved, "memory": memory, "executions": self.executions}

    def __str__(self) -> str:
        return self.name


def from_on(condition: Any, t: Any, value: tp.Tensor) -> tp.Tensor:
    """The value where the condition holds, else zero."""
    y = tp.recurrence((), domain=(t,))
    y[t, condition] = value
    y[t] = 0.0
    return y


# -- reads of a tensor over one step ----------------------------------------------------------------------------------

POINTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "point": lambda x, t, T: x[t],
    "previous": lambda x, t, T: from_on(t >= 1, t, x[t - 1]),
    "next": lambda x, t, T: from_on(t + 1 < T, t, x[t + 1]),
    "far back": lambda x, t, T: from_on(t >= 5, t, x[t - 5]),
    "clamped": lambda x, t, T: x[tp.max(t - 3, 0)],
    "first": lambda x, t, T: x[0] * x,
    "last": lambda x, t, T: x[T - 1] * x,
    "middle": lambda x, t, T: x[T // 2] * x,
    "reversed": lambda x, t, T: x[T - 1 - t],
    "doubled": lambda x, t, T: from_on(2 * t < T, t, x[2 * t]),
    "halved": lambda x, t, T: x[t // 2],
    "modulo": lambda x, t, T: x[t % 4],
    "start of the block": lambda x, t, T: x[t // 4 * 4],
    "three neighbours": lambda x, t, T: from_on((t >= 1) & (t + 1 < T), t, x[t - 1] * x[t + 1] * x),
}

RANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "prefix": lambda x, t, T: x[0 : t + 1],
    "suffix": lambda x, t, T: x[t:T],
    "window back": lambda x, t, T: x[tp.max(t - WINDOW + 1, 0) : t + 1],
    "window ahead": lambda x, t, T: x[t : tp.min(t + WINDOW, T)],
    "block": lambda x, t, T: x[t // 4 * 4 : tp.min(t // 4 * 4 + 4, T)],
}

MORE_RANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "prefix before": lambda x, t, T: x[0 : tp.max(t, 1)],
    "window around": lambda x, t, T: x[tp.max(t - 2, 0) : tp.min(t + 3, T)],
    "block so far": lambda x, t, T: x[t // 4 * 4 : t + 1],
    "dilated window": lambda x, t, T: x[tp.max(t - 6, t % 2) : t + 1 : 2],
    "prefix from the end": lambda x, t, T: x[0 : T - t],
}

FIXED_RANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "whole": lambda x, t, T: x[0:T],
    "every other": lambda x, t, T: x[0:T:2],
    "all but the first": lambda x, t, T: x[1:T],
}

# -- reductions: of values [n], and of values [n, 3] where they need rows ---------------------------------------------

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: v.sum(0),
    "mean": lambda v: v.mean(0),
    "max": lambda v: v.max(0),
    "min": lambda v: v.min(0),
    "prod": lambda v: v.prod(0),
    "any": lambda v: tp.where((v > 0.5).any(0), 1.0, 0.0),
    "all": lambda v: tp.where((v > -0.5).all(0), 1.0, 0.0),
    "argmax": lambda v: v.argmax(0).astype("float32"),
    "argmax-weighted": lambda v: tp.take(tp.sin(v), v.argmax(0), 0),
    "logsumexp": lambda v: tp.logsumexp(v, 0),
    "softmax-weighted": lambda v: (v.softmax(0) * tp.sin(v)).sum(0),
    "variance": lambda v: v.var(0),
    "standard deviation": lambda v: v.std(0),
    "discounted sum": lambda v: v.discounted_sum(0.9),
}
OF_ROWS: dict[str, Callable[[Any, Any], Any]] = {"matmul": lambda v, w: (v @ w).sum(0)}
OF_WINDOWS: dict[str, Callable[[Any], Any]] = {
    "cumulative sum": lambda v: (v.cumsum(0) ** 2).sum(0),
    "cumulative max": lambda v: (v.cummax(0) ** 2).sum(0),
}
FEW = ("sum", "max", "logsumexp")
SIZED = {"sum": ("T + W", "T + W"), "max": ("T + W", "T*W"), "prod": ("T + W", "T*W")}  # windows of a width that is a bound
WITHOUT_GRADIENT = ("any", "all", "argmax")


def reads(pattern: Callable[..., Any], reduction: Callable[..., Any], gradient: bool, rows: bool = False) -> Program:
    """A program that reads x over t by a pattern; its result, or the gradient of the sum of the squares of its results."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t")
        with context as ((t, T),):
            x = tp.input("x", (3,) if rows else (), domain=(t,))
            w = tp.input("w", (3, 2))
            read = pattern(x, t, T)
            y = reduction(read, w) if rows else reduction(read)
            return context, {T: 48}, [_loss_gradient(y, x, t) if gradient else y]

    return program


def _loss_gradient(y: tp.Tensor, x: tp.Tensor, *steps: Any) -> tp.Tensor:
    (gradient,) = tp.grad((y * y * 0.5).sum() if y.shape else y * y * 0.5, [x])
    return gradient


def _each(name: str, build: Callable[[bool], Program], forward: str, backward: str = "", **more: str) -> Iterator[Row]:
    yield Row(f"{name}, forward", build(False), forward, **more)
    yield Row(f"{name}, gradient", build(True), backward or forward)


def of_one_step() -> Iterator[Row]:
    for name, pattern in POINTS.items():
        yield from _each(name, partial(reads, pattern, tp.tanh), "T")
    for name, pattern in {**RANGES, **FIXED_RANGES, **MORE_RANGES}.items():
        for kind, reduction in REDUCTIONS.items():
            if name not in RANGES and kind not in FEW:
                continue
            rows = _each(f"{name}, {kind}", partial(reads, pattern, reduction), "T")
            yield from (row for row in rows if not (kind in WITHOUT_GRADIENT and "gradient" in row.name))
    for name, pattern in {**RANGES, "whole": FIXED_RANGES["whole"]}.items():
        for kind, of_rows in OF_ROWS.items():
            yield from _each(f"{name}, {kind}", partial(reads, pattern, of_rows, rows=True), "T")
    for name in ("window back", "window ahead", "block", "whole"):
        pattern = {**RANGES, **FIXED_RANGES}[name]
        for kind, reduction in OF_WINDOWS.items():
            yield from _each(f"{name}, {kind}", partial(reads, pattern, reduction), "T")


# -- statistics, however they are written: of values x, y and weights w of the same points -------------------------------

STATISTICS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "variance, power": lambda x, y, w: ((x - x.mean(0)) ** 2).mean(0),
    "variance, product": lambda x, y, w: ((x - x.mean(0)) * (x - x.mean(0))).mean(0),
    "variance, square": lambda x, y, w: tp.square(x.mean(0) - x).mean(0),
    "variance, contraction": lambda x, y, w: (x - x.mean(0)) @ (x - x.mean(0)),
    "variance, moments": lambda x, y, w: (x**2).mean(0) - x.mean(0) ** 2,
    "variance, expanded": lambda x, y, w: (x * x - 2.0 * x.mean(0) * x + x.mean(0) ** 2).mean(0),
    "variance, weighted": lambda x, y, w: (w * (x - x.mean(0)) ** 2).sum(0) / w.sum(0),
    "variance, halves": lambda x, y, w: ((x - x.mean(0)) ** 2 / 2.0).sum(0),
    "standard deviation, power": lambda x, y, w: tp.sqrt(((x - x.mean(0)) ** 2).mean(0) + 1.0),
    "skewness, power": lambda x, y, w: ((x - x.mean(0)) ** 3).mean(0) / (x.var(0) + 1.0) ** 1.5,
    "skewness, product": lambda x, y, w: _centred(x, x, x).mean(0) / (x.var(0) + 1.0) ** 1.5,
    "skewness, of standard scores": lambda x, y, w: (((x - x.mean(0)) / tp.sqrt(x.var(0) + 1.0)) ** 3).mean(0),
    "kurtosis, power": lambda x, y, w: ((x - x.mean(0)) ** 4).mean(0) / (x.var(0) + 1.0) ** 2,
    "kurtosis, squares": lambda x, y, w: tp.square(tp.square(x - x.mean(0))).mean(0) / (x.var(0) + 1.0) ** 2,
    "squared distances": lambda x, y, w: ((x - y) ** 2).sum(0),
    "squared distances from a mean": lambda x, y, w: ((x - y.mean(0)) ** 2).sum(0),
    "cosine similarity": lambda x, y, w: (x * y).sum(0) / tp.sqrt((x**2).sum(0) * (y**2).sum(0) + 1.0),
    "covariance": lambda x, y, w: _centred(x, y).mean(0),
    "correlation": lambda x, y, w: _centred(x, y).mean(0) / tp.sqrt(x.var(0) * y.var(0) + 1.0),
    "correlation, contractions": lambda x, y, w: (
        ((x - x.mean(0)) @ (y - y.mean(0))) / tp.sqrt(_centred(x, x).sum(0) * _centred(y, y).sum(0) + 1.0)
    ),
    "correlation, of standard scores": lambda x, y, w: (
        (x - x.mean(0)) / tp.sqrt(x.var(0) + 1.0) * ((y - y.mean(0)) / tp.sqrt(y.var(0) + 1.0))
    ).mean(0),
}


def _centred(*values: Any) -> Any:
    """The product of the distances of some values from their means."""
    return math.prod((value - value.mean(0) for value in values[1:]), start=values[0] - values[0].mean(0))


def statistic(pattern: Callable[..., Any], of: Callable[..., Any], gradient: bool) -> Program:
    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t")
        with context as ((t, T),):
            x, *others = (tp.input(name, domain=(t,)) for name in "xyw")
            y = of(*(pattern(value, t, T) for value in (x, *others)))
            return context, {T: 48}, [_loss_gradient(y, x, t) if gradient else y]

    return program


def of_statistics() -> Iterator[Row]:
    for name in ("prefix", "suffix", "window back"):
        for kind, of in STATISTICS.items():
            yield from _each(f"{name}, {kind}", partial(statistic, RANGES[name], of), "T")


# -- reads over two steps, and windows whose size is a bound ----------------------------------------------------------

OF_TWO_STEPS: dict[str, tuple[Callable[[Any, Any, Any, Any, Any], Any], str]] = {
    "prefix of each row": (lambda x, i, I, t, T: x[i, 0 : t + 1], "I*T"),
    "suffix of each row": (lambda x, i, I, t, T: x[i, t:T], "I*T"),
    "window of each row": (lambda x, i, I, t, T: x[i, tp.max(t - WINDOW + 1, 0) : t + 1], "I*T"),
    "each whole row": (lambda x, i, I, t, T: x[i, 0:T], "I*T"),
    "rows so far": (lambda x, i, I, t, T: x[0 : i + 1, t], "I*T"),
    "all rows here": (lambda x, i, I, t, T: x[0:I, t], "I*T"),
    "window of rows": (lambda x, i, I, t, T: x[tp.max(i - 2, 0) : i + 1, t], "I*T"),
    "reversed in both": (lambda x, i, I, t, T: x[I - 1 - i, T - 1 - t], "I*T"),
    "the row before": (lambda x, i, I, t, T: x[tp.max(i - 1, 0), t], "I*T"),
}


def two_steps(pattern: Callable[..., Any], reduction: Callable[[Any], Any], gradient: bool) -> Program:
    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("i", "t")
        with context as ((i, I), (t, T)):
            x = tp.input("x", domain=(i, t))
            y = reduction(pattern(x, i, I, t, T))
            return context, {I: 20, T: 48}, [_loss_gradient(y, x) if gradient else y]

    return program


def sized_window(ahead: bool, reduction: Callable[[Any], Any], gradient: bool) -> Program:
    """A window of W values, where W is a bound."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t", "w")
        with context as ((t, T), (_, W)):
            x = tp.input("x", domain=(t,))
            y = reduction(x[t : tp.min(t + W, T)] if ahead else x[tp.max(t - W + 1, 0) : t + 1])
            return context, {T: 48, W: 6}, [_loss_gradient(y, x) if gradient else y]

    return program


def weighted_window(ahead: bool, gradient: bool) -> Program:
    """A sum over a window of W values with W weights; the gradients by both."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t", "w")
        with context as ((t, T), (w, W)):
            x, weights = tp.input("x", domain=(t,)), tp.input("weights", domain=(w,))
            first, stop = (t, tp.min(t + W, T)) if ahead else (tp.max(t - W + 1, 0), t + 1)
            offset = first - (t if ahead else t - W + 1)
            y = weights[0:W].spatial[offset : offset + stop - first] @ x[first:stop]
            return context, {T: 48, W: 6}, tp.grad((y * y)[0:T].sum(), [x, weights]) if gradient else [y]

    return program


PASTS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "the past": lambda k, x, t, T: (k[0 : t + 1].flip(0) * x[0 : t + 1]).sum(0),
    "what comes": lambda k, x, t, T: (k[0 : T - t] * x[t:T]).sum(0),
}


def of_the_past(of: Callable[[Any, Any, Any, Any], Any], gradient: bool) -> Program:
    """A convolution with the whole past; the gradients by both operands. Transforms have no more than ten rounds for each point."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t")
        with context as ((t, T),):
            x, k = tp.input("x", (2,), domain=(t,)), tp.input("k", (2,), domain=(t,))
            y = of(k, x, t, T)
            return context, {T: 48}, tp.grad((y * y)[0:T].sum(), [x, k]) if gradient else [y]

    return program


def of_two_steps() -> Iterator[Row]:
    for name, past in PASTS.items():
        yield from _each(f"convolution with {name}", partial(of_the_past, past), "T")
    for name, (pattern, wanted) in OF_TWO_STEPS.items():
        for kind in FEW if ":" in _text(pattern) else ("value",):
            reduction = REDUCTIONS.get(kind, tp.tanh)
            yield from _each(f"{name}, {kind}", partial(two_steps, pattern, reduction), wanted)
    for name, ahead in (("back", False), ("ahead", True)):
        for kind in (*FEW, "prod"):
            program = partial(sized_window, ahead, REDUCTIONS[kind])
            yield from _each(f"sized window {name}, {kind}", program, *SIZED.get(kind, ("T*W",)))
        for way, gradient in (("forward", False), ("gradient", True)):
            yield Row(f"sized window {name}, weighted, {way}", weighted_window(ahead, gradient), "T*W", "T + W")


def _text(pattern: Callable[..., Any]) -> str:
    """`:` for a pattern with a range."""
    x = tp.Context("i", "t")
    with x as ((i, I), (t, T)):
        read = pattern(tp.input("x", domain=(i, t)), i, I, t, T)
    return ":" if read.shape else ""


# -- recurrences ------------------------------------------------------------------------------------------------------


def recurrence(body: Callable[..., Any], gradient: str = "", every: bool = False) -> Program:
    """h[t] = body(h, t, T, x[t], w, b) over values [N], with parameters w [N, N] and b [N]; the last value, or all, or a gradient."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t", "n")
        with context as ((t, T), (_, N)):
            parts = {"x": tp.input("x", (N,), domain=(t,)), "w": tp.input("w", (N, N)), "b": tp.input("b", (N,))}
            h = tp.recurrence((N,), domain=(t,), name="h")
            h[0] = parts["x"][0]
            h[t] = body(h, t, T, *parts.values())
            outputs = [h] if every else [h[T - 1]]
            if gradient:
                outputs = list(tp.grad((outputs[0] ** 2).sum(), [parts[name] for name in gradient]))
            return context, {T: 24, N: 5}, outputs

    return program


RECURRENCES: dict[str, Callable[..., Any]] = {
    "previous value": lambda h, t, T, x, w, b: tp.tanh(h[t - 1] * b + x),
    "two values back": lambda h, t, T, x, w, b: tp.where(t > 1, h[t - 1] + 0.5 * h[tp.max(t - 2, 0)], x),
    "its own window": lambda h, t, T, x, w, b: tp.tanh(h[tp.max(t - 4, 0) : t].sum(0) * b + x),
    "its own window, max": lambda h, t, T, x, w, b: tp.tanh(h[tp.max(t - 4, 0) : t].max(0) * b + x),
    "its own prefix": lambda h, t, T, x, w, b: tp.tanh(h[0:t].sum(0) * b + x),
    "its own prefix, max": lambda h, t, T, x, w, b: tp.tanh(h[0:t].max(0) * b + x),
    "linear": lambda h, t, T, x, w, b: 0.9 * h[t - 1] + x,
}


def attention(gradient: bool) -> Program:
    """Each query weighs the keys so far: quadratic by hand too."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t", "n")
        with context as ((t, T), (_, N)):
            q, k, v = (tp.input(name, (N,), domain=(t,)) for name in "qkv")
            y = (k[0 : t + 1] @ q).softmax(0) @ v[0 : t + 1]
            return context, {T: 24, N: 5}, list(tp.grad((y * y).sum(), [q, k, v])) if gradient else [y]

    return program


def window_attention(gradient: bool) -> Program:
    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("t", "n")
        with context as ((t, T), (_, N)):
            q, k, v = (tp.input(name, (N,), domain=(t,)) for name in "qkv")
            window = slice(tp.max(t - WINDOW + 1, 0), t + 1)
            y = (k[window] @ q).softmax(0) @ v[window]
            return context, {T: 24, N: 5}, list(tp.grad((y * y).sum(), [q, k, v])) if gradient else [y]

    return program


GATES: dict[str, Callable[[tp.Tensor, tp.Tensor], tp.Tensor]] = {
    "": lambda a, s: s,
    " with a number": lambda a, s: 0.9 * s,
    " with a gate": lambda a, s: a.sum(0) * s,
    " with a gate an element": lambda a, s: a.expand_dims(1) * s,
}


def linear_attention(gate: str) -> Callable[[bool], Program]:
    """Each query is contracted with a running sum of outer products: by hand a matrix for each block of points, not for each point."""

    def made(gradient: bool) -> Program:
        def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
            context = tp.Context("t", "n")
            with context as ((t, T), (_, N)):
                q, k, v, a = (tp.input(name, (N,), domain=(t,)) for name in "qkva")
                s = tp.recurrence((N, N), domain=(t,), name="s")
                new = k.expand_dims(1) * v
                s[0] = new[0]
                s[t] = GATES[gate](a, s[t - 1]) + new
                y = q @ s
                inputs = [q, k, v, a] if "gate" in gate else [q, k, v]
                return context, {T: 24, N: 5}, list(tp.grad((y * y).sum(), inputs)) if gradient else [y]

        return program

    return made


def stencil(sides: int, gradient: bool) -> Program:
    """u[k, i] of u[k - 1, i - 1], u[k - 1, i] and u[k - 1, i + 1] (`sides` of the neighbours): the last state, or its gradient."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("k", "i")
        with context as ((k, K), (i, I)):
            first, c = tp.input("first", domain=(i,)), tp.input("c")
            u = tp.recurrence((), domain=(k, i), name="u")
            u[0, i] = first
            u[k, 0] = 0.0
            u[k, I - 1] = 0.0
            right = u[k - 1, i + 1] if sides == 2 else 0.0
            u[k, i] = tp.tanh(u[k - 1, i] + c * (u[k - 1, i - 1] - 2.0 * u[k - 1, i] + right))
            outputs = [u[K - 1, i]]
            if gradient:
                outputs = list(tp.grad((u[K - 1, 0:I] ** 2).sum(0), [first, c]))
            return context, {K: 12, I: 32}, outputs

    return program


def plane(gradient: bool) -> Program:
    """u[k, i, j] of its four neighbours at k - 1: Jacobi's method, the heat equation on a plane."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("k", "i", "j")
        with context as ((k, K), (i, I), (j, J)):
            source = tp.input("source", domain=(i, j))
            u = tp.recurrence((), domain=(k, i, j), name="u")
            for border in ((0, i, j), (k, 0, j), (k, I - 1, j), (k, i, 0), (k, i, J - 1)):
                u[border] = 0.0
            u[k, i, j] = tp.tanh(source + u[k - 1, i - 1, j] + u[k - 1, i + 1, j] + u[k - 1, i, j - 1] + u[k - 1, i, j + 1])
            outputs = [u[K - 1, i, j]]
            if gradient:
                outputs = list(tp.grad((u[K - 1, 0:I, 0:J] ** 2).sum((0, 1)), [source]))
            return context, {K: 8, I: 12, J: 16}, outputs

    return program


def block(gradient: bool) -> Program:
    """d[i, j, k] of the points before it along each of three steps, with base cases on a face, an edge of it, and the corner."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("i", "j", "k")
        with context as ((i, I), (j, J), (k, K)):
            cost = tp.input("cost", domain=(i, j, k))
            d = tp.recurrence((), domain=(i, j, k), name="d")
            d[0, 0, 0] = cost[0, 0, 0]
            d[i, 0, 0], d[0, j, 0] = d[i - 1, 0, 0] + cost[i, 0, 0], d[0, j - 1, 0] + cost[0, j, 0]
            d[0, 0, k] = cost[0, 0, k]
            d[i, 0, k] = tp.minimum(d[i - 1, 0, k], d[i, 0, k - 1]) + cost[i, 0, k]
            d[0, j, k] = tp.minimum(d[0, j - 1, k], d[0, j, k - 1]) + cost[0, j, k]
            d[i, j, 0] = cost[i, j, 0]
            d[i, j, k] = cost + tp.minimum(tp.minimum(d[i - 1, j, k], d[i, j - 1, k]), d[i, j, k - 1])
            last = d[I - 1, J - 1, K - 1]
            return context, {I: 6, J: 8, K: 10}, list(tp.grad(last, [cost])) if gradient else [last]

    return program


def grid(gradient: bool) -> Program:
    """d[i, j] of d[i - 1, j], d[i, j - 1] and d[i - 1, j - 1]: edit distance, dynamic time warping."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("i", "j")
        with context as ((i, I), (j, J)):
            cost = tp.input("cost", domain=(i, j))
            d = tp.recurrence((), domain=(i, j), name="d")
            d[0, 0] = cost[0, 0]
            d[0, j] = d[0, j - 1] + cost[0, j]
            d[i, 0] = d[i - 1, 0] + cost[i, 0]
            d[i, j] = cost + tp.minimum(tp.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1])
            last = d[I - 1, J - 1]
            return context, {I: 12, J: 16}, list(tp.grad(last, [cost])) if gradient else [last]

    return program


def splits(gradient: bool) -> Program:
    """d[i, j] of all d[i, k] and d[k + 1, j]: chains of products, parsing."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("i", "j")
        with context as ((i, I), (j, J)):
            x = tp.input("x", domain=(i,))
            d = tp.recurrence((), domain=(i, j), name="d")
            d[i, j, (i >= j) | (j >= I)] = x
            d[i, j] = (d[i, i:j] * d[i + 1 : j + 1, j]).sum(0)
            last = d[0, J - 1]
            return context, {I: 12, J: 12}, list(tp.grad(last, [x])) if gradient else [last]

    return program


def updates(gradient_of_all: bool) -> Program:
    """Parameters that learn: w[i + 1] = w[i] - the gradient of a loss over t, and with the gradient through all updates."""

    def program() -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
        context = tp.Context("i", "t", "n")
        with context as ((i, I), (t, T), (_, N)):
            x, start = tp.input("x", (N,), domain=(t,)), tp.input("start", (N,))
            w = tp.recurrence((N,), domain=(i,), name="w")
            w[0] = start
            residual = (x * w).sum(0) - 1.0
            w[i + 1] = w - 0.1 * (x * residual)[i, 0:T].sum(0)
            last = w[I - 1]
            return context, {I: 6, T: 24, N: 5}, list(tp.grad((last**2).sum(), [start])) if gradient_of_all else [last]

    return program


def of_recurrences() -> Iterator[Row]:
    for name, body in RECURRENCES.items():
        loop = "1" if name == "linear" else "T"
        memory = "N" if name in ("previous value", "two values back", "its own window", "its own window, max") else ""
        yield Row(f"{name}, last value", recurrence(body), "N*T", memory=memory, executions=loop)
        yield Row(f"{name}, every value", recurrence(body, every=True), "N*T", executions=loop)
        yield Row(f"{name}, gradient of the input", recurrence(body, "x"), "N*T", executions=loop)
        if name not in ("linear", "two values back"):
            yield Row(f"{name}, gradient of a parameter", recurrence(body, "b"), "N*T", executions=loop)
    rnn = lambda h, t, T, x, w, b: tp.tanh(h[t - 1] @ w + x + b)  # noqa: E731
    yield Row("RNN, forward", recurrence(rnn), "N**2*T", memory="N", executions="T")
    yield Row("RNN, gradient of the parameters", recurrence(rnn, "wb"), "N**2*T", memory="N*T + N**2", executions="T")
    yield Row("RNN, gradient of a bias", recurrence(rnn, "b"), "N**2*T", memory="N*T + N**2", executions="T")
    yield Row("attention, forward", attention(False), "N*T**2", memory="N*T + T**2")
    yield Row("attention, gradient", attention(True), "N*T**2", memory="N*T + T**2")
    for gate in GATES:
        yield from _each(f"linear attention{gate}", linear_attention(gate), "N**2*T")
    yield from _each("window attention", window_attention, "N*T")
    for sides, name in ((2, "stencil"), (1, "upwind stencil")):
        yield Row(f"{name}, forward", stencil(sides, False), "I*K", memory="I", executions="K")
        yield Row(f"{name}, gradient", stencil(sides, True), "I*K", executions="K")
    yield Row("stencil on a plane, forward", plane(False), "I*J*K", memory="I*J", executions="K")
    yield Row("stencil on a plane, gradient", plane(True), "I*J*K", executions="K")
    # I + J diagonals, of I places each: the vectors lie along the step with fewer points, here I.
    yield Row("grid, forward", grid(False), "I*J + I**2", executions="I + J")
    yield Row("grid, gradient", grid(True), "I*J + I**2", executions="I + J")
    # I + J + K diagonals, of I x J places each.
    yield Row("grid of three steps, forward", block(False), "I*J*K + I**2*J + I*J**2", memory="I*J", executions="I + J + K")
    yield Row("grid of three steps, gradient", block(True), "I*J*K + I**2*J + I*J**2", executions="I + J + K")
    yield Row("splits of intervals, forward", splits(False), "I**2*J + I**3", memory="I*J + I**2", executions="I + J")
    yield Row("splits of intervals, gradient", splits(True), "I**2*J + I**3", executions="I + J")
    yield Row("updates, forward", updates(False), "I*N*T", memory="N*T", executions="I")
    yield Row("updates, gradient", updates(True), "I*N*T", memory="N*T + I*T + I*N", executions="I")


def rows() -> list[Row]:
    return [*of_one_step(), *of_statistics(), *of_two_steps(), *of_recurrences()]
