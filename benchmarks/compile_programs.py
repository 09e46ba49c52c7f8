"""Programs that are hard to compile, by a size n: branches under conditions, layers that alternate, layers one after the other.

Each function traces one program, and returns its context, its bounds and its outputs. Every input is a vector of `WIDTH` or a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tempo_core as tp

WIDTH = 4


@dataclass(frozen=True)
class Traced:
    """A program before it is compiled."""

    context: tp.Context
    bounds: Mapping[Any, int]
    outputs: list[Any]


Condition = Callable[[int, Any, Any], Any]  # of the number of a branch and two steps


def _mixed(k: int, i: Any, t: Any) -> Any:
    return (t % (k + 3) == k) | ((t >= 20 * k + 5) & (t < 20 * k + 20) & ~(t == 20 * k + 7))


def _spans(k: int, i: Any, t: Any) -> Any:
    return ((t >= 10 * k) & (t < 10 * k + 6)) | ((t >= 100 + 5 * k) & ~((t == 102 + 5 * k) | (t == 104 + 5 * k)))


def _diagonals(k: int, i: Any, t: Any) -> Any:
    return ((i + t) % (k + 2) == 0) | (~(t >= i + k) & (t % 2 == 1))


CONDITIONS: dict[str, Condition] = {"mixed": _mixed, "spans": _spans, "diagonals": _diagonals}


def branches(name: str, count: int, gradient: bool = True, clamped: bool = False) -> Traced:
    """A recurrence with `count` branches, under conditions with `|` and `~`. Branch k reads the point k % 3 + 1 before."""
    condition = CONDITIONS[name]
    ctx = tp.Context("i", "t") if name == "diagonals" else tp.Context("t")
    with ctx as steps:
        t, T = steps[-1]
        i = steps[0][0] if len(steps) == 2 else 0
        domain = tuple(step for step, _ in steps)
        x = tp.input("x", shape=(WIDTH,), domain=domain, requires_grad=gradient)
        r = tp.recurrence((WIDTH,), domain=domain, name="r")
        r[(*domain[:-1], 0)] = x[(*domain[:-1], 0)]
        for k in range(count - 2):
            back = k % 3 + 1
            before = r[(*domain[:-1], tp.max(t - back, 0) if clamped else t - back)]
            r[(*domain, (t >= (1 if clamped else back)) & condition(k, i, t))] = tp.tanh(before * (1 + 0.1 * k) + x)
        r[(*domain, t >= 1)] = r[(*domain[:-1], t - 1)] + x
        loss = r[tuple(slice(0, bound) for _, bound in steps)].sum()
        if gradient:
            loss.backward()
    bounds = {bound: 200 if bound is T else 7 for _, bound in steps}
    return Traced(ctx, bounds, [loss, *([x.grad] if gradient else [])])


def alternating(count: int, gradient: bool = True) -> Traced:
    """Layers of recurrent networks one above the other: layer l runs forwards in time if l is even, backwards if it is odd."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", shape=(WIDTH,), domain=(t,))
        weights = []
        for layer in range(count):
            w = tp.input(f"w{layer}", shape=(WIDTH, WIDTH), requires_grad=gradient)
            h = tp.recurrence((WIDTH,), domain=(t,), name=f"h{layer}")
            if layer % 2 == 0:
                h[0] = x[0]
                h[t + 1] = tp.tanh(h @ w + x[t + 1])
            else:
                h[T - 1] = x[T - 1]
                h[t - 1] = tp.tanh(h @ w + x[t - 1])
            weights.append(w)
            x = h
        loss = (x[0:T] ** 2).sum()
        if gradient:
            loss.backward()
    return Traced(ctx, {T: 50}, [loss, *(w.grad for w in weights if gradient)])


def stacked(count: int, gradient: bool = True) -> Traced:
    """Layers of attention and of a feed-forward network over a step, each with weights of its own, written out in Python."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", shape=(WIDTH,), domain=(t,))
        weights = []
        for layer in range(count):
            w = [tp.input(f"w{layer}_{k}", shape=(WIDTH, WIDTH), requires_grad=gradient) for k in range(5)]
            query, key, value = x @ w[0], x @ w[1], x @ w[2]
            scores = tp.softmax(key[0 : t + 1] @ query, 0)
            x = x + scores @ value[0 : t + 1]
            x = x + tp.tanh(x @ w[3]) @ w[4]
            weights += w
        loss = (x[0:T] ** 2).sum()
        if gradient:
            loss.backward()
    return Traced(ctx, {T: 50}, [loss, *(w.grad for w in weights if gradient)])
