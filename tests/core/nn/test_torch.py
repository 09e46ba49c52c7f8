"""Modules against PyTorch's, with PyTorch's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tempo_core as tp

torch = pytest.importorskip("torch", exc_type=ImportError)
pytestmark = pytest.mark.torch
nn = tp.nn
LENGTH = 5


def run(
    module: nn.Module, weights: Mapping[str, Any], operand: np.ndarray, apply: Any = None, over_time: bool = False
) -> np.ndarray:
    """The module's value; the context must be the present one. Weights are PyTorch's, by our names."""
    ctx, T = tp.Context.current(), tp.Context.current().steps[0].bound_expr
    shape = operand.shape[1:] if over_time else operand.shape
    x = tp.input("x", shape, domain=(ctx.steps[0].expr,) if over_time else ())
    y = (apply or module)(x)
    inputs = {name: np.asarray(w.detach()) for name, w in weights.items()} | {"x": operand}
    assert sorted(inputs) == sorted([*module.parameters(), "x"])
    return ctx.run({T: LENGTH}, [y], inputs, config=tp.Config(backend="numpy"))[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype("float32")


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_cells(kind: str) -> None:
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(3, 4)
    rows = normal(LENGTH, 2, 3)
    expected, _ = theirs(torch.tensor(rows))
    with tp.Context("t") as ((t, _T),):
        cell = getattr(nn, f"{kind}Cell")(3, 4, fed=True, name="c")
        weights = {
            f"c.{ours}.{what}": getattr(theirs, f"{what}_{name}_l0").t()
            for ours, name in (("input", "ih"), ("state", "hh"))
            for what in ("weight", "bias")
        }

        def hidden(x: tp.Tensor) -> tp.Tensor:
            state = cell.recurrence(x, over=t)
            return state[0] if isinstance(state, tuple) else state

        results = run(cell, weights, rows, hidden, over_time=True)
    np.testing.assert_allclose(results, expected.detach(), atol=1e-5)


@pytest.mark.parametrize("over_time", [False, True])
def test_multi_head_attention(over_time: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    torch.nn.init.normal_(theirs.in_proj_bias)
    rows = normal(LENGTH, 8)
    mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
    expected, _ = theirs(*[torch.tensor(rows)] * 3, attn_mask=mask)
    with tp.Context("t") as ((t, _T),):
        module = nn.MultiHeadAttention(8, 2, bias=True, fed=True, name="a")
        weights = {"a.output.weight": theirs.out_proj.weight.T, "a.output.bias": theirs.out_proj.bias}
        for k, name in enumerate(("query", "key", "value")):
            part = slice(8 * k, 8 * (k + 1))
            weights |= {f"a.{name}.weight": theirs.in_proj_weight[part].T, f"a.{name}.bias": theirs.in_proj_bias[part]}
        results = run(module, weights, rows, (lambda x: module(x, over=t)) if over_time else None, over_time)
    np.testing.assert_allclose(results, expected.detach(), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2, "groups": 2}])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_convolutions(dimensions: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = (torch.nn.Conv1d if dimensions == 1 else torch.nn.Conv2d)(4, 6, 3, **options)
    operand = normal(2, *(7, 6)[:dimensions], 4)
    expected = theirs(torch.tensor(operand).movedim(-1, 1)).movedim(1, -1)
    with tp.Context("t"):
        module = (nn.Conv1d if dimensions == 1 else nn.Conv2d)(4, 6, 3, fed=True, name="c", **{"padding": "VALID", **options})
        weights = {"c.weight": theirs.weight.movedim((0, 1), (-1, -2)), "c.bias": theirs.bias}
        results = run(module, weights, operand)
    np.testing.assert_allclose(results, expected.detach(), atol=1e-5)


def test_norms_embeddings_and_activations() -> None:
    x = normal(2, 6)
    w, b = normal(6), normal(3, 6)[0]
    expected = [
        torch.nn.functional.layer_norm(torch.tensor(x), (6,), torch.tensor(w), torch.tensor(b)),
        torch.nn.functional.rms_norm(torch.tensor(x), (6,), torch.tensor(w), 1e-5),
        *(
            getattr(torch.nn.functional, name)(torch.tensor(x))
            for name in ("gelu", "silu", "softplus", "sigmoid", "tanh", "relu")
        ),
    ]
    ctx = tp.Context("t")
    with ctx as ((_t, T),):
        operand = tp.input("x", (2, 6))
        layers = [nn.LayerNorm(6, fed=True, name="l"), nn.RMSNorm(6, fed=True, name="r"), nn.Gelu(), nn.Silu(), nn.Softplus()]
        outputs = [layer(operand) for layer in (*layers, nn.Sigmoid(), nn.Tanh(), nn.Relu())]
    inputs = {"x": x, "l.weight": w, "l.bias": b, "r.weight": w}
    for result, value in zip(ctx.run({T: 1}, outputs, inputs, config=tp.Config(backend="numpy")), expected, strict=True):
        np.testing.assert_allclose(result, value, atol=1e-5)
