"""Programs made of patterns, their values by plain NumPy, and gradients against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tests import reference
from tests.core.dependences.patterns import Pattern

WIDTH = 2
Bounds = dict[Any, int]


class Setting:
    """A context over i and t with inputs x over (i, t) and w over (i), and the same as NumPy arrays."""

    def __init__(self, rows: int, times: int):
        self.I_number, self.T_number = rows, times
        self.context = tp.Context("i", "t")
        with self.context as ((self.i, self.I), (self.t, self.T)):
            self.x = apply(ops.Identity(), tp.input("x", (WIDTH,), domain=(self.i, self.t)), name="x")
            self.w = apply(ops.Identity(), tp.input("w", (WIDTH,), domain=(self.i,)), name="w")
        self.bounds: Bounds = {self.I: rows, self.T: times}
        draw = np.random.default_rng(7)
        self.arrays = {"x": draw.normal(size=(rows, times, WIDTH)), "w": draw.normal(size=(rows, WIDTH))}

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {name: array.astype("float32") for name, array in self.arrays.items()}

    @property
    def steps(self) -> tuple[Any, Any, Any, Any]:
        return self.i, self.I, self.t, self.T

    def at(self, i: int, t: int) -> tuple[int, int, int, int]:
        return i, self.I_number, t, self.T_number

    def points(self) -> Any:
        return np.ndindex(self.I_number, self.T_number)


class Lazy:
    """An array over (i, t) that computes an element when it is read: NumPy's indexing, with recursion."""

    def __init__(self, element: Callable[[int, int], np.ndarray]):
        self.element, self.known = element, dict[tuple[int, int], np.ndarray]()

    def __getitem__(self, index: tuple[Any, Any]) -> np.ndarray:
        i, t = index
        if isinstance(i, slice):
            rows = [self[k, t] for k in range(i.start, i.stop, i.step or 1)]
            return np.stack(rows) if rows else np.zeros((0, WIDTH))
        if isinstance(t, slice):
            times = [self[i, k] for k in range(t.start, t.stop, t.step or 1)]
            return np.stack(times) if times else np.zeros((0, WIDTH))
        assert i >= 0 and t >= 0, f"({i}, {t}) is not a point"
        if (i, t) not in self.known:
            self.known[i, t] = self.element(i, t)
        return self.known[i, t]


def reduced(value: Any, rank: int, kind: str, query: Any) -> Any:
    """A function of a slice; `query` is the query of attention. The same code serves tensors and arrays."""
    for _ in range(rank - 1):
        value = value.sum(0)
    if rank == 0:
        return value
    if kind == "sum":
        return value.sum(0)
    if kind == "mean":
        return value.mean(0)
    if kind == "max":
        return value.max(0)
    if kind == "discounted":
        if isinstance(value, np.ndarray):
            return sum(0.7**k * row for k, row in enumerate(value)) + 0 * query
        return value.discounted_sum(0.7)
    assert kind == "attention"
    scores = value @ query
    if isinstance(value, np.ndarray):
        weights = np.exp(scores - scores.max())
        return (weights / weights.sum()) @ value
    return scores.softmax(0) @ value


def sin(value: Any) -> Any:
    return np.sin(value) if isinstance(value, np.ndarray) else tp.sin(value)


def tanh(value: Any) -> Any:
    return np.tanh(value) if isinstance(value, np.ndarray) else tp.tanh(value)


def read_program(setting: Setting, pattern: Pattern, kind: str) -> tuple[tp.Tensor, np.ndarray]:
    """y[i, t] = f(s[pattern]) of s = sin(x) + x; where the pattern does not apply, w. As a tensor, and by NumPy."""
    s, steps = setting, setting.steps

    def update(source: Any, index: Any, x: Any, w: Any) -> Any:
        return reduced(source[index], pattern.rank, kind, x) * w + x

    with s.context:
        source = tp.sin(s.x) + s.x
        y = tp.recurrence((WIDTH,), domain=(s.i, s.t), name="y")
        index, when = pattern.index(*steps), pattern.when(*steps)
        if when is True:
            y = update(source, index, s.x, s.w)
        else:
            y[s.i, s.t, when] = update(source, index, s.x, s.w)
            y[s.i, s.t] = s.w
    x, w = s.arrays["x"], s.arrays["w"]
    values, expected = np.sin(x) + x, np.zeros(x.shape)
    for i, t in s.points():
        at = s.at(i, t)
        expected[i, t] = update(values, pattern.index(*at), x[i, t], w[i]) if pattern.when(*at) else w[i]
    return y, expected


def recurrent_program(setting: Setting, pattern: Pattern, kind: str) -> tuple[tp.Tensor, np.ndarray]:
    """h[i, t] = f(h[pattern]), where the pattern does not apply x[i, t] * w[i]. As a tensor, and by NumPy."""
    s, steps = setting, setting.steps

    def update(h: Any, index: Any, x: Any, w: Any) -> Any:
        return tanh(reduced(h[index], pattern.rank, kind, x) * w * 0.5 + x)

    with s.context:
        h = tp.recurrence((WIDTH,), domain=(s.i, s.t), name="h")
        h[s.i, s.t, pattern.when(*steps)] = update(h, pattern.index(*steps), s.x, s.w)
        h[s.i, s.t] = s.x * s.w
    x, w = s.arrays["x"], s.arrays["w"]

    def element(i: int, t: int) -> np.ndarray:
        at = s.at(i, t)
        return update(values, pattern.index(*at), x[i, t], w[i]) if pattern.when(*at) else x[i, t] * w[i]

    values = Lazy(element)
    expected = np.zeros(x.shape)
    for i, t in s.points():
        expected[i, t] = values[i, t]
    return h, expected


def assert_gradients(setting: Setting, loss: tp.Tensor, leaves: Sequence[tp.Tensor], directions: int = 2) -> list[tp.Tensor]:
    """Gradients of a loss, summed over its points, against central differences of fourth order in float64, in random directions."""
    with setting.context:
        gradients = tp.grad(loss, wrt=leaves)

    def total(moved: dict[str, np.ndarray]) -> float:
        (value,) = reference.evaluate(setting.context, [loss], setting.bounds, moved, dtype="float64")
        return float(np.sum(value))

    results = reference.evaluate(setting.context, gradients, setting.bounds, setting.arrays, dtype="float64")
    for leaf, gradient in zip(leaves, results, strict=True):
        array = setting.arrays[leaf.name]
        assert gradient.shape == array.shape
        for direction in np.random.default_rng(5).normal(size=(directions, *array.shape)):
            near, far = (
                total({**setting.arrays, leaf.name: array + h * direction})
                - total({**setting.arrays, leaf.name: array - h * direction})
                for h in (1e-4, 2e-4)
            )
            slope = (8 * near - far) / 12e-4
            np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6, atol=1e-7, err_msg=leaf.name)
    return gradients


KINDS = ("sum", "attention", "discounted", "max", "mean")


def kinds_for(patterns: Sequence[Pattern]) -> list[tuple[Pattern, str]]:
    """Each pattern with one kind of reduction; neighbours get different ones."""
    return [(p, KINDS[k % len(KINDS)] if p.rank else "sum") for k, p in enumerate(patterns)]


def usable(setting: Setting, pattern: Pattern, kind: str) -> bool:
    """Whether a pattern applies at some point, and whether its slices have elements if the function needs one."""
    read = [pattern.index(*setting.at(i, t)) for i, t in setting.points() if pattern.when(*setting.at(i, t))]
    spans = [part for index in read for part in index if isinstance(part, slice)]
    return bool(read) and (kind in ("sum", "discounted") or all(span.stop > span.start for span in spans))


def weighted(setting: Setting, *values: tp.Tensor) -> tp.Tensor:
    """A loss that is not linear in the values, and differs from point to point."""
    with setting.context:
        return sum((v * tp.sin(v) * (setting.t + 1)).sum() for v in values)  # type: ignore[return-value]
