"""A batch as a step against a batch as a dimension: the same program, written in two ways, both compiled by Tempo.

    python -m benchmarks.batch [--quick] [--out FILE]

The rows of a batch are independent, so both should take the same time. Results of both are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.common import Results, arguments, compared, in_turn, say, show

Sizes = dict[str, int]
Traced = tuple[tp.Context, dict[Any, int], list[tp.Tensor]]


class Batch:
    """The rows of a batch as the step `b`, or as the first dimension of tensors over `t` alone."""

    def __init__(self, as_step: bool, sizes: Sizes):
        self.as_step, self.sizes = as_step, sizes
        self.context = tp.Context("b", "t")

    def trace(self, program: Callable[[Batch, Any], list[tp.Tensor]]) -> Traced:
        with self.context as ((b, n_b), (t, n_t)):
            self.domain = (b, t) if self.as_step else (t,)
            self.rows = (b,) if self.as_step else ()
            self.length = n_t
            self.whole = (slice(0, n_b), slice(0, n_t)) if self.as_step else (slice(0, n_t),)
            outputs = program(self, t)
            return self.context, {n_b: self.sizes["B"], n_t: self.sizes["T"]}, outputs

    def shape(self, *shape: int) -> tuple[int, ...]:
        return shape if self.as_step else (self.sizes["B"], *shape)

    def input(self, name: str, *shape: int) -> tp.Tensor:
        return tp.input(name, self.shape(*shape), domain=self.domain, requires_grad=True)


def recurrent_network(batch: Batch, t: Any) -> list[tp.Tensor]:
    """The gradient of a recurrent network's loss with respect to its weights."""
    H = batch.sizes["H"]
    x, w, u = batch.input("x", H), tp.input("w", (H, H)), tp.input("u", (H, H))
    h = tp.recurrence(x.shape, domain=batch.domain, name="h")
    h[(*batch.rows, 0)] = tp.tanh(x[(*batch.rows, 0)] @ w)
    h[(*batch.rows, t + 1)] = tp.tanh(h @ u + x[(*batch.rows, t + 1)] @ w)
    loss = (h[batch.whole] ** 2).mean()
    return [loss, *tp.grad(loss, [w, u])]


def attention(batch: Batch, t: Any) -> list[tp.Tensor]:
    """Softmax attention over the past, and its gradient with respect to keys and values."""
    H = batch.sizes["H"]
    q, k, v = (batch.input(name, H) for name in ("q", "k", "v"))
    past = (*batch.rows, slice(0, t + 1))
    scores = (k[past] * q).sum(-1) * H**-0.5
    read = (tp.softmax(scores, 0).expand_dims(-1) * v[past]).sum(0)
    loss = (read[batch.whole] ** 2).mean()
    return [loss, *tp.grad(loss, [k, v])]


def returns(batch: Batch, t: Any) -> list[tp.Tensor]:
    """Discounted returns and the loss of a baseline."""
    r, value = batch.input("r"), batch.input("value")
    future = r[(*batch.rows, slice(t, batch.length))].discounted_sum(0.99)
    loss = ((future - value) ** 2)[batch.whole].mean()
    return [loss, *tp.grad(loss, [value])]


PROGRAMS = {"recurrent network": recurrent_network, "attention": attention, "returns": returns}
FULL: dict[str, Sizes] = {
    "recurrent network": {"B": 32, "T": 128, "H": 64},
    "attention": {"B": 8, "T": 256, "H": 32},
    "returns": {"B": 256, "T": 1000},
}
TINY = {"B": 2, "T": 4, "H": 3}
SHAPES: dict[str, dict[str, tuple[str, ...]]] = {  # of the inputs: the batch and time first, or neither
    "recurrent network": {"x": ("B", "T", "H"), "w": ("H", "H"), "u": ("H", "H")},
    "attention": dict.fromkeys(("q", "k", "v"), ("B", "T", "H")),
    "returns": dict.fromkeys(("r", "value"), ("B", "T")),
}


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("batch", options)
    for name in PROGRAMS:
        if results.selects(name):
            measure(results, name, TINY if options.quick else FULL[name])
    results.finish()


def measure(results: Results, name: str, sizes: Sizes) -> None:
    import jax

    random = np.random.default_rng(0)
    fed = {key: random.normal(size=[sizes[s] for s in shape]).astype("float32") * 0.3 for key, shape in SHAPES[name].items()}
    gave: dict[str, list[Any]] = {}
    sides: dict[str, Callable[[], None]] = {}
    for way in ("dimension", "step"):
        context, bounds, outputs = Batch(way == "step", sizes).trace(PROGRAMS[name])
        program = context.compile(bounds, outputs)
        ordered = {k: v.swapaxes(0, 1) if way == "dimension" and SHAPES[name][k][0] == "B" else v for k, v in fed.items()}
        inputs = {key: jax.device_put(np.ascontiguousarray(value)) for key, value in ordered.items()}

        def run(program: tp.Program[list[Any]] = program, inputs: dict[str, Any] = inputs, way: str = way) -> None:
            gave[way] = [np.asarray(value) for value in program.run(inputs)]

        sides[way] = run
    figures = compared(in_turn(sides, results.options.turns), 1, 1e3)
    show(f"{name}: {sizes}", figures, "ms")
    apart = max(_difference(a, b) for a, b in zip(gave["dimension"], gave["step"], strict=True))
    say(f"  greatest difference of the results: {apart:.1e}")
    results.add(name, sizes=sizes, ms=figures, difference=apart)


def _difference(dimension: np.ndarray, step: np.ndarray) -> float:
    """The greatest difference, relative to the greatest element. Over the batch, gradients lie [t, b] and [b, t]."""
    step = step.swapaxes(0, 1) if step.shape != dimension.shape else step
    return float(np.abs(dimension - step).max() / np.abs(dimension).max())


if __name__ == "__main__":
    main()
