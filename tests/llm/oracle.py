"""A plain Llama forward pass in NumPy and float64, which computes the whole sequence again for every new token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def inverse_frequencies(values: dict) -> np.ndarray:
    """The rotary frequencies by the formulas of the Llama 3.1 report, element by element, without code of the package."""
    size = values["hidden_size"] // values["num_attention_heads"]
    scaling = values.get("rope_scaling") or {"rope_type": "default"}
    result = []
    for k in range(0, size, 2):
        frequency = 1.0 / values["rope_theta"] ** (k / size)
        if scaling["rope_type"] == "linear":
            frequency /= scaling["factor"]
        if scaling["rope_type"] == "llama3":
            wavelength = 2 * math.pi / frequency
            original = scaling["original_max_position_embeddings"]
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            if wavelength > original / low:
                frequency /= scaling["factor"]
            elif wavelength > original / high:
                smooth = (original / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
        if scaling["rope_type"] == "yarn":  # equation 13 and section 3.2 of the paper, arXiv:2309.00071
            fast, slow = (
                size
                / 2
                * math.log(scaling["original_max_position_embeddings"] / (2 * math.pi * beta))
                / math.log(values["rope_theta"])
                for beta in (scaling.get("beta_fast", 32), scaling.get("beta_slow", 1))
            )
            first, last = max(math.floor(fast), 0), min(math.ceil(slow), size - 1)
            share = min(max((k // 2 - first) / max(last - first, 0.001), 0), 1)
            frequency = share * frequency / scaling["factor"] + (1 - share) * frequency
        result.append(frequency)
    return np.array(result)


Mask = Callable[[int, int], bool]  # whether the first position attends to the second


def logits(values: dict, tensors: dict[str, np.ndarray], tokens: list[int], masks: Sequence[Mask] = ()) -> np.ndarray:
    """Logits after the last of `tokens`, from `config.json` values and tensors under their Hugging Face names.

    `masks` has one mask per layer; without masks, all layers attend to every position so far.
    """
    w = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
    heads, kv_heads = values["num_attention_heads"], values["num_key_value_heads"]
    size, count = values["hidden_size"] // heads, len(tokens)
    angles = np.arange(count)[:, None] * inverse_frequencies(values)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + values["rms_norm_eps"]) * w[name]

    def rotate(x: np.ndarray) -> np.ndarray:
        first, second = np.split(x, 2, -1)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(values["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        y = norm(x, f"{at}.input_layernorm.weight")
        q = rotate(linear(y, f"{at}.self_attn.q_proj").reshape(count, heads, size))
        k = rotate(linear(y, f"{at}.self_attn.k_proj").reshape(count, kv_heads, size))
        v = linear(y, f"{at}.self_attn.v_proj").reshape(count, kv_heads, size)
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(size)
        reached = [[masks[layer](q, k) if masks else k <= q for k in range(count)] for q in range(count)]
        scores = np.where(reached, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(count, heads * size)
        x = x + linear(mixed, f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm.weight")
        gate = linear(y, f"{at}.mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
    return norm(x[-1], "model.norm.weight") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def greedy(values: dict, tensors: dict[str, np.ndarray], prompt: list[int], count: int, masks: Sequence[Mask] = ()) -> list[int]:
    """The `count` most likely tokens after `prompt`, one after the other."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits(values, tensors, tokens, masks).argmax()))
    return tokens[len(prompt) :]
