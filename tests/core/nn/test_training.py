"""Modules learn through time: the task needs values of earlier points, so gradients must flow back to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests import reference
from tests.cases import slow
from tests.core.running import SETTINGS, assert_same

nn = tp.nn
LENGTH, BATCH = 6, 8

Layer = Callable[[tp.Tensor, Any, tuple[Any, ...]], tp.Tensor]  # (x over t, t, the domain of parameters) to a tensor over t
LAYERS: dict[str, tuple[Layer, float]] = {  # with the factor by which the loss falls at least; without memory it could be 1.5
    "gru": (lambda x, t, domain: nn.GRUCell(2, 8, domain).recurrence(x, over=t), 10),
    "lstm": (lambda x, t, domain: nn.LSTMCell(2, 8, domain).recurrence(x, over=t)[0], 10),
    "ssm": (lambda x, t, domain: nn.DiagonalSSM(8, 4, domain, steps=(0.5, 2.0))(nn.Linear(2, 8, domain)(x), over=t), 3),
    "attention": (
        lambda x, t, domain: nn.MultiHeadAttention(8, 2, domain, rope=nn.RoPE(4))(nn.Linear(2, 8, domain)(x), over=t), 5,
    ),
    "oscillating ssm": (
        lambda x, t, domain: nn.DiagonalSSM(8, 2, domain, oscillating=True, steps=(0.5, 1.0))(nn.Linear(2, 8, domain)(x), over=t),
        10,
    ),
    "window attention": (
        lambda x, t, domain: nn.MultiHeadAttention(8, 2, domain, pattern=nn.window(3), rope=nn.RoPE(4))(
            nn.Linear(2, 8, domain)(x), over=t
        ),
        5,
    ),
    "gru, mean over a window": (
        lambda x, t, domain: nn.GRUCell(2, 8, domain).recurrence(x, over=t)[domain[0], tp.max(t - 1, 0) : t + 1].mean(0), 10,
    ),
}  # fmt: skip


def data() -> tuple[np.ndarray, np.ndarray]:
    """Sequences and their targets: the value two points before, minus the first component now."""
    x = np.random.default_rng(0).normal(size=(LENGTH, BATCH, 2)).astype("float32")
    past = np.concatenate([np.zeros((2, BATCH), "float32"), x[:-2, :, 1]])
    return x, (past - 0.5 * x[:, :, 0]).astype("float32")


def trained(layer: Layer) -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
    context = tp.Context("i", "t")
    with context as ((i, I), (t, T)):
        x, target = tp.input("x", (BATCH, 2), domain=(t,)), tp.input("target", (BATCH,), domain=(t,))
        head = nn.Linear(8, 1, domain=(i,), name="head")
        error = tp.square(head(layer(x, t, (i,))).squeeze(-1) - target).mean()
        loss = error[i, 0:T].mean(0).named("loss")
        loss.backward()
        tp.optim.Adam(dict(context.parameters), lr=0.05).step()
    return context, {I: 60, T: LENGTH}, [loss]


@pytest.mark.parametrize("name", LAYERS)
def test_it_learns_what_lies_in_the_past(name: str) -> None:
    layer, factor = LAYERS[name]
    context, bounds, outputs = trained(layer)
    x, target = data()
    (losses,) = context.run(bounds, outputs, {"x": x, "target": target}, config=tp.Config(backend="numpy"))
    assert losses[-1] < losses[0] / factor, f"from {losses[0]} to {losses[-1]}"


def trained_over_a_batch_step(layer: Layer) -> tuple[tp.Context, tuple[Any, Any, Any], tp.Tensor]:
    """The batch is a step too; with dropout, clipping and a schedule."""
    context = tp.Context("b", "i", "t")
    with context as ((b, B), (i, I), (t, T)):
        x, target = tp.input("x", (2,), domain=(b, t)), tp.input("target", domain=(b, t))
        hidden = nn.Dropout(0.2, (i,))(layer(x, t, (i,)))
        error = tp.square(nn.Linear(8, 1, (i,), name="head")(hidden).squeeze(-1) - target)
        loss = error[0:B, i, 0:T].mean((0, 1)).named("loss")
        loss.backward()
        rate = tp.optim.schedules.cosine(0.05, I)
        tp.optim.AdamW(dict(context.parameters), lr=rate, max_grad_norm=1.0).step()
    return context, (B, I, T), loss


@pytest.mark.parametrize(
    "name", [slow(name) if name == "oscillating ssm" else name for name in LAYERS if name != "gru, mean over a window"]
)
def test_training_is_what_its_equations_say(name: str) -> None:
    context, bounds, loss = trained_over_a_batch_step(LAYERS[name][0])
    random = np.random.default_rng(1)
    for sizes in ((2, 3, 3), (1, 2, 1)):
        batch, _, length = sizes
        inputs = {"x": random.normal(size=(batch, length, 2)), "target": random.normal(size=(batch, length))}
        inputs = {key: value.astype("float32") for key, value in inputs.items()}
        numbers = dict(zip(bounds, sizes, strict=True))
        (expected,) = reference.evaluate(context, [loss], numbers, inputs)
        assert_same(context.run(numbers, [loss], inputs, config=SETTINGS["numpy"])[0], expected, 1e-4, f"bounds {sizes}")


def test_training_is_the_same_on_the_staged_executor() -> None:
    context, bounds, outputs = trained(LAYERS["gru"][0])
    x, target = data()
    few = {bound: min(number, 8) for bound, number in bounds.items()}
    results = [context.run(few, outputs, {"x": x, "target": target}, config=SETTINGS[name])[0] for name in ("numpy", "staged")]
    assert_same(results[1], results[0], 1e-4)


@pytest.mark.parametrize("oscillating", [False, True])
def test_a_state_space_layer_is_scanned_forwards_and_backwards(oscillating: bool) -> None:
    """Its coefficients do not depend on the state, so no loop over time is left."""
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.input("x", (4,), domain=(t,))
        ssm = nn.DiagonalSSM(4, 3, oscillating=oscillating, fed=True)
        y = ssm(x, over=t)
        gradients = tp.grad(tp.square(y).sum(), wrt=list(ssm.parameters().values()))
    program = context.compile({T: 5}, [y, *gradients], tp.Config(backend="numpy"))
    scans = program.text("sdg").count("LinearScan")
    assert scans >= (4 if oscillating else 2)
    assert "for t" not in program.text("program")


def test_a_cell_runs_over_a_single_point() -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        cell = nn.GRUCell(2, 3, fed=True, name="gru")
        x = tp.input("x", (2,), domain=(t,))
        over_time, once = cell.recurrence(x, over=t), cell(x, tp.zeros((3,)))
    inputs = {name: np.full(tuple(map(int, p.shape)), 0.3, "float32") for name, p in cell.parameters().items()}
    results = context.run({T: 1}, [over_time, once], {**inputs, "x": np.ones((1, 2))}, config=tp.Config(backend="numpy"))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
