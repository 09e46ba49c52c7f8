"""One sample per module: the module with `fed=True`, applied to shared inputs, and its formula in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempo_core as tp
from tests.core.nn import formulas as f

nn = tp.nn
LENGTH = 5  # the bound of t, and the length of `signal`
Made = tuple[Any, tp.Tensor]  # a module and its value


@dataclass(frozen=True)
class Inputs:
    """rows (2, 4) and x (4,) over t; signal [LENGTH, 4], image [5, 4, 2] without steps; token int32 (2,) over t."""

    t: Any
    T: Any
    rows: tp.Tensor
    x: tp.Tensor
    signal: tp.Tensor
    image: tp.Tensor
    token: tp.Tensor


@dataclass(frozen=True)
class Sample:
    """`build` returns the module, with the name `name`, and its value; `formula` computes this value in NumPy."""

    name: str
    build: Callable[[str, Inputs], Made]
    formula: Callable[[f.Params, dict[str, np.ndarray]], np.ndarray]
    differentiable: tuple[str, ...] = ("rows",)  # the float inputs that it reads


def over_time(function: Callable[[f.Params, np.ndarray], np.ndarray]) -> Callable[[f.Params, dict[str, np.ndarray]], np.ndarray]:
    """A formula of one operand: `rows` at all points at once."""
    return lambda p, inputs: function(p, inputs["rows"])


def plain(name: str, make: Callable[[str], Any], function: Callable[[f.Params, np.ndarray], np.ndarray]) -> Sample:
    def build(name: str, inputs: Inputs) -> Made:
        module = make(name)
        return module, module(inputs.rows)

    return Sample(name, build, over_time(function))


def recurrent(
    name: str, make: Callable[[str], Any], function: Callable[[f.Params, np.ndarray], np.ndarray], **options: Any
) -> Sample:
    def build(name: str, inputs: Inputs) -> Made:
        cell = make(name)
        state = cell.recurrence(inputs.rows, over=inputs.t, **options)
        return cell, tp.concatenate(list(state), -1) if isinstance(state, tuple) else state

    return Sample(name, build, over_time(function))


def state_space(name: str, oscillating: bool) -> Sample:
    def build(name: str, inputs: Inputs) -> Made:
        module = nn.DiagonalSSM(4, 3, oscillating=oscillating, fed=True, name=name)
        return module, module(inputs.rows, over=inputs.t)

    return Sample(name, build, over_time(f.ssm))


def every_other(t: Any, T: Any) -> slice:
    """A pattern that a user writes."""
    return slice(t % 2, t + 1, 2)


PATTERNS: dict[str, tuple[Any, list[list[int]]]] = {
    "causal": (nn.causal, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]),
    "window": (nn.window(2), [[0], [0, 1], [1, 2], [2, 3], [3, 4]]),
    "block": (nn.block(2), [[0], [0, 1], [2], [2, 3], [4]]),
    "whole_block": (nn.block(2, causal=False), [[0, 1], [0, 1], [2, 3], [2, 3], [4]]),
    "sinks": (nn.sinks(1, 2), [[0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4]]),
    "full": (nn.full, [[0, 1, 2, 3, 4]] * 5),
    "dilated": (nn.dilated(3), [[0], [1], [2], [0, 3], [1, 4]]),
    "dilated_window": (nn.dilated(2, 2), [[0], [1], [0, 2], [1, 3], [2, 4]]),
    "every_other": (every_other, [[0], [1], [0, 2], [1, 3], [0, 2, 4]]),
}


def temporal_attention(pattern: str, key_heads: int, rotary: bool) -> Sample:
    """Attention over the step t, with a leading dimension of 2."""
    given_pattern, reached = PATTERNS[pattern]

    def build(name: str, inputs: Inputs) -> Made:
        options: dict[str, Any] = {"pattern": given_pattern, "rope": nn.RoPE(2) if rotary else None, "fed": True, "name": name}
        module = nn.GroupedQueryAttention(4, 2, key_heads, bias=rotary, **options)
        return module, module(inputs.rows, over=inputs.t)

    def formula(p: f.Params, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([f.attention(p, inputs["rows"][:, row], reached, 2, key_heads, rotary) for row in range(2)], 1)

    return Sample(f"over_time_{pattern}", build, formula)


def spatial_attention(pattern: str, key_heads: int, rotary: bool) -> Sample:
    given_pattern, reached = PATTERNS[pattern]

    def build(name: str, inputs: Inputs) -> Made:
        module = nn.GroupedQueryAttention(4, 2, key_heads, rope=nn.RoPE(2) if rotary else None, fed=True, name=name)
        return module, module(tp.stack([inputs.signal, -inputs.signal]), pattern=given_pattern)

    def formula(p: f.Params, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([f.attention(p, s * inputs["signal"], reached, 2, key_heads, rotary) for s in (1, -1)])

    return Sample(f"masked_{pattern}", build, formula, ("signal",))


def convolution(name: str, dimensions: int, formula: Callable[[f.Params, np.ndarray], np.ndarray], **options: Any) -> Sample:
    operand = "signal" if dimensions == 1 else "image"

    def build(name: str, inputs: Inputs) -> Made:
        module = (nn.Conv1d if dimensions == 1 else nn.Conv2d)(4 if dimensions == 1 else 2, 4, fed=True, name=name, **options)
        return module, module(getattr(inputs, operand))

    return Sample(name, build, lambda p, inputs: formula(p, inputs[operand]), (operand,))


def embedding() -> Sample:
    def build(name: str, inputs: Inputs) -> Made:
        module = nn.Embedding(6, 3, fed=True, name=name)
        return module, module(inputs.token)

    return Sample("embedding", build, lambda p, inputs: p["weight"][inputs["token"]], ())


def sequential() -> Sample:
    def build(name: str, inputs: Inputs) -> Made:
        hidden = nn.Sequential(nn.Linear(3, 3, fed=True), nn.Silu(), nn.Softplus())
        module = nn.Sequential(nn.Linear(4, 3, fed=True), nn.Gelu(), hidden, nn.Sigmoid(), nn.Dropout(0.5), name=name).eval()
        return module, module(inputs.rows)

    def formula(p: f.Params, x: np.ndarray) -> np.ndarray:
        hidden = f.silu(f.linear(f.within(p, "2.0"), f.gelu(f.linear(f.within(p, "0"), x))))
        return f.sigmoid(np.log1p(np.exp(hidden)))

    return Sample("sequential", build, over_time(formula))


SAMPLES = [
    plain("linear", lambda name: nn.Linear(4, 3, fed=True, name=name), f.linear),
    plain("no_bias", lambda name: nn.Linear(4, 3, bias=False, fed=True, name=name), f.linear),
    plain("layer_norm", lambda name: nn.LayerNorm(4, fed=True, name=name), f.layer_norm),
    plain("rms_norm", lambda name: nn.RMSNorm(4, fed=True, name=name), f.rms_norm),
    plain("swiglu", lambda name: nn.SwiGLU(4, 5, fed=True, name=name), f.swiglu),
    embedding(),
    sequential(),
    recurrent("gru", lambda name: nn.GRUCell(4, 3, fed=True, name=name), f.gru),
    recurrent(
        "gru_reversed", lambda name: nn.GRUCell(4, 3, fed=True, name=name), lambda p, x: f.gru(p, x[::-1], np.ones((2, 3)))[::-1],
        reverse=True, initial=np.ones((2, 3), "float32"),
    ),
    recurrent("lstm", lambda name: nn.LSTMCell(4, 3, fed=True, name=name), lambda p, x: np.concatenate(f.lstm(p, x), -1)),
    state_space("ssm", False),
    state_space("ssm_oscillating", True),
    *(temporal_attention(name, 1 + k % 2, k in (1, 4)) for k, name in enumerate(PATTERNS)),
    *(spatial_attention(name, 1 + k % 2, k in (0, 5)) for k, name in enumerate(PATTERNS)),
    convolution("conv", 1, lambda p, x: f.conv(p, x, 1, 1, 1), kernel=3),
    convolution("conv_causal", 1, lambda p, x: f.conv(p, x, 1, 4, 0, dilation=2), kernel=3, padding="causal", dilation=2),
    convolution("conv_strided", 1, lambda p, x: f.conv(p, x, 2, 0, 0), kernel=2, stride=2, padding="VALID", bias=False),
    convolution("conv_image", 2, lambda p, x: f.conv(p, x, 1, 1, 1), kernel=3),
    convolution("conv_groups", 2, lambda p, x: f.conv(p, x, 2, 1, 1, groups=2), kernel=(2, 2), stride=2, padding=1, groups=2),
]  # fmt: skip


def given_inputs(t: Any, T: Any) -> Inputs:
    return Inputs(
        t,
        T,
        tp.input("rows", (2, 4), domain=(t,)),
        tp.input("x", (4,), domain=(t,)),
        tp.input("signal", (LENGTH, 4)),
        tp.input("image", (5, 4, 2)),
        tp.input("token", (2,), "int32", domain=(t,)),
    )


def values(parameters: dict[str, tp.Tensor], seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers for the inputs of `given_inputs` and for fed parameters."""
    random = np.random.default_rng(seed)
    shapes = {"rows": (LENGTH, 2, 4), "x": (LENGTH, 4), "signal": (LENGTH, 4), "image": (5, 4, 2)}
    shapes |= {name: tuple(map(int, p.shape)) for name, p in parameters.items()}
    numbers = {name: (random.normal(size=shape) * 0.7).astype("float32") for name, shape in shapes.items()}
    return numbers | {"token": random.integers(0, 6, (LENGTH, 2)).astype("int32")}
