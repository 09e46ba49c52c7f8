"""Llama (Touvron et al., 2023; Llama 3: Dubey et al., 2024) as a recurrent program over rows b, positions t and layers l.

Positions count from each row's own first token, so that prompts of different lengths share a batch without padding on the
left. A position's token is the prompt's while there is one, and the model's choice at the position before otherwise.
Prompts, their lengths, the weights and the temperature are inputs: another prompt or model of this shape runs the same program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tempo_core as tp
from tempo_core import Tensor
from tempo_llm.attention import Attention
from tempo_llm.checkpoint import layer_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.sampling import at_temperature, greedy

Expr = Any  # a symbolic expression: a step or a bound of the context


@dataclass(frozen=True)
class Decoder:
    """The traced program. `token` is int32 over (b, t); `rows`, `length` and `layers` are the bounds to give."""

    context: tp.Context
    token: Tensor
    rows: Expr
    length: Expr
    layers: Expr


def trace_decoder(config: LlamaConfig, attention: Attention, *, sampled: bool, tied: bool) -> Decoder:
    """The decoding program of a model.

    Its inputs: `prompt` int32 [B, T] (zeros behind the prompt), `prompt_length` int32 [B], the weights by the names of
    `checkpoint.load_weights` (without `embedding` where the head is `tied` to it), and `temperature` where `sampled`.
    """
    context = tp.Context("b", "t", "l")
    with context as ((b, B), (t, T), (layer, L)):
        prompt = tp.input("prompt", (), "int32", domain=(b, t))
        prompt_length = tp.input("prompt_length", (), "int32", domain=(b,))
        weights = _layer_inputs(config, layer)
        final_norm = tp.input("final_norm", (config.hidden_size,))
        head = tp.input("head", (config.hidden_size, config.vocab_size))
        embedding = head if tied else tp.input("embedding", (config.hidden_size, config.vocab_size))

        token = tp.recurrence((), "int32", domain=(b, t), name="token")
        hidden = tp.recurrence((config.hidden_size,), domain=(b, t, layer), name="hidden")
        hidden[b, t, 0] = embedding.index(1, token)

        normalised = rms_norm(hidden, weights["attention_norm"], config)
        attended = hidden + attend(normalised, weights, config, (b, t, layer), attention.reach(t, T))
        after = attended + feed_forward(rms_norm(attended, weights["mlp_norm"], config), weights)
        if config.num_hidden_layers > 1:
            hidden[b, t, layer + 1] = after

        logits = rms_norm(after[b, t, L - 1], final_norm, config) @ head
        chosen = at_temperature(logits, tp.input("temperature", ())) if sampled else greedy(logits)
        token[b, 0] = prompt[b, 0]
        token[b, t + 1] = tp.where(prompt_length > t + 1, prompt[b, t + 1], chosen)
    return Decoder(context, token, B, T, L)


def _layer_inputs(config: LlamaConfig, layer: Expr) -> dict[str, Tensor]:
    """The weights of one layer, fed stacked as [L, ...]."""
    return {name: tp.input(name, weight.stored_shape, domain=(layer,)) for name, weight in layer_weights(config).items()}


def attend(
    x: Tensor, weights: Mapping[str, Tensor], config: LlamaConfig, point: tuple[Expr, Expr, Expr], reach: tuple[slice, ...]
) -> Tensor:
    """Grouped-query attention of the normalised `x` (hidden,) at `point` (b, t, l), over the timesteps in `reach`."""
    b, t, layer = point
    heads, groups, width = config.num_key_value_heads, config.group_size, config.head_dim
    rotate = tp.nn.RoPE(width, config.rope_theta, config.rope_scaling)
    queries = rotate(project(x, "query", weights).reshape(heads * groups, width), t)
    keys = rotate(project(x, "key", weights).reshape(heads, width), t).named("keys")
    values = project(x, "value", weights).reshape(heads, width).named("values")

    past_keys = tp.concatenate([keys[b, part, layer] for part in reach]).transpose(1, 2, 0)  # (heads, width, positions)
    past_values = tp.concatenate([values[b, part, layer] for part in reach]).transpose(1, 0, 2)  # (heads, positions, width)
    scores = (queries.reshape(heads, groups, width) @ past_keys) * (width**-0.5)
    mixed = scores.softmax(-1) @ past_values  # (heads, groups, width)
    return project(mixed.reshape(heads * groups * width), "attention_output", weights)


def feed_forward(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """SwiGLU (Shazeer, 2020) of the normalised `x` (hidden,)."""
    return project(tp.silu(project(x, "gate", weights)) * project(x, "up", weights), "down", weights)


def project(x: Tensor, name: str, weights: Mapping[str, Tensor]) -> Tensor:
    """`x @ w`, plus a bias where the model has one."""
    projected = x @ weights[name]
    bias = weights.get(f"{name}_bias")
    return projected if bias is None else projected + bias


def rms_norm(x: Tensor, scale: Tensor, config: LlamaConfig) -> Tensor:
    """Root-mean-square normalisation (Zhang and Sennrich, 2019) over the last dimension."""
    return x * tp.rsqrt((x * x).mean(-1, keepdims=True) + config.rms_norm_eps) * scale
