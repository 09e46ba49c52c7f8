"""A plain forward pass of Llama and its relatives in NumPy and float64, which computes the whole sequence again for every new token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def head_size(values: dict) -> int:
    return values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]


def inverse_frequencies(values: dict, length: int = 0) -> np.ndarray:
    """The rotary frequencies by the formulas of the Llama 3.1 report, element by element, without code of the package."""
    size = int(head_size(values) * values.get("partial_rotary_factor", 1.0))
    scaling = values.get("rope_scaling") or {"rope_type": "default"}
    result = []
    for k in range(0, size, 2):
        frequency = 1.0 / values["rope_theta"] ** (k / size)
        if scaling["rope_type"] == "longrope":
            frequency /= scaling["long_factor" if length > scaling["original_max_position_embeddings"] else "short_factor"][
                k // 2
            ]
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


def amplitude(values: dict) -> float:
    """What cosines and sines are multiplied by."""
    scaling = values.get("rope_scaling") or {"rope_type": "default"}
    if scaling["rope_type"] == "yarn":
        return 1.0 + 0.1 * math.log(scaling["factor"])
    if scaling["rope_type"] != "longrope":
        return 1.0
    original = scaling["original_max_position_embeddings"]
    return math.sqrt(1 + math.log(values["max_position_embeddings"] / original) / math.log(original))


Mask = Callable[[int, int], bool]  # whether the first position attends to the second
GEMMA, OLMO = ("gemma2", "gemma3_text"), ("olmo2", "olmo3")
NEXT = ("qwen3_5_text", "qwen3_next")
CENTRED = (*GEMMA, *NEXT)  # norms multiply by 1 + weight
FULL = {"gemma2": 2, "gemma3_text": 6, "olmo3": 4, "gpt_oss": 2}  # each so-and-so-many-th layer attends to all positions


def window(values: dict, layer: int) -> float:
    """How many positions a layer attends to."""
    kind, size = values["model_type"], values.get("sliding_window") or math.inf
    if "layer_types" in values:
        return size if values["layer_types"][layer] == "sliding_attention" else math.inf
    if kind in FULL:
        return math.inf if (layer + 1) % values.get("sliding_window_pattern", FULL[kind]) == 0 else size
    return math.inf if kind in ("qwen2", "qwen3", "smollm3", *NEXT) else size


def rotary(values: dict, layer: int) -> dict | None:
    """`values` with the rotary settings of a layer; None if it has none."""
    kind, is_windowed = values["model_type"], window(values, layer) < math.inf
    if kind == "smollm3" and not values.get("no_rope_layers", [1, 1, 1, 0] * 9)[layer]:
        return None
    if kind == "gemma3_text" and is_windowed:
        return {**values, "rope_theta": values["rope_local_base_freq"], "rope_scaling": None}
    return {**values, "rope_scaling": None} if kind == "olmo3" and is_windowed else values


def logits(
    values: dict, tensors: dict[str, np.ndarray], tokens: list[int], masks: Sequence[Mask] = (), length: int = 0
) -> np.ndarray:
    """Logits after the last of `tokens`, from `config.json` values and tensors under their Hugging Face names.

    `length` is that of the whole text, for the frequencies of longrope: without it, it is that of `tokens`.
    `masks` has one mask per layer; without masks, each layer attends to the positions so far that its window reaches.
    """
    w = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
    kind, heads, kv_heads = values["model_type"], values["num_attention_heads"], values["num_key_value_heads"]
    size, count, shift = head_size(values), len(tokens), 1.0 if kind in CENTRED else 0.0

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        """As it is, if the model has no such norm."""
        if f"{name}.weight" not in w:
            return x
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + values["rms_norm_eps"]) * (shift + w[f"{name}.weight"])

    def rotate(x: np.ndarray, layer: int) -> np.ndarray:
        chosen = rotary(values, layer)
        if chosen is None:
            return x
        angles = np.arange(count)[:, None] * inverse_frequencies(chosen, length or count)
        cosine, sine = np.cos(angles)[:, None] * amplitude(chosen), np.sin(angles)[:, None] * amplitude(chosen)
        first, second = np.split(x[..., : 2 * angles.shape[1]], 2, -1)
        turned = [first * cosine - second * sine, second * cosine + first * sine]
        return np.concatenate([*turned, x[..., 2 * angles.shape[1] :]], -1)

    def attention(y: np.ndarray, layer: int, at: str) -> np.ndarray:
        if kind == "phi3":
            q, k, v = np.split(linear(y, f"{at}.qkv_proj"), [heads * size, (heads + kv_heads) * size], -1)
        else:
            q, k, v = (linear(y, f"{at}.{name}_proj") for name in "qkv")
        if kind in NEXT:
            q, gate = (part.reshape(count, -1) for part in np.split(q.reshape(count, heads, 2 * size), 2, -1))
        if kind in OLMO:
            q, k = norm(q, f"{at}.q_norm"), norm(k, f"{at}.k_norm")
        q, k, v = (x.reshape(count, -1, size) for x in (q, k, v))
        if kind not in OLMO:
            q, k = norm(q, f"{at}.q_norm"), norm(k, f"{at}.k_norm")
        q, k = rotate(q, layer), rotate(k, layer)
        if kind == "ministral3":
            scaling = values["rope_scaling"]
            turns = np.arange(count) // scaling["original_max_position_embeddings"]
            q = q * (1 + scaling["llama_4_scaling_beta"] * np.log(1 + turns))[:, None, None]
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(values.get("query_pre_attn_scalar", size))
        if kind == "gemma2":
            scores = 50 * np.tanh(scores / 50)
        reach = window(values, layer)
        reached = [[masks[layer](q, k) if masks else q - reach < k <= q for k in range(count)] for q in range(count)]
        scores = np.where(reached, scores, -np.inf)
        if kind == "gpt_oss":  # one more score
            sinks = np.broadcast_to(w[f"{at}.sinks"][:, None, None], (heads, count, 1))
            scores = np.concatenate([scores, sinks], -1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = (weights / weights.sum(-1, keepdims=True))[..., :count]
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(count, heads * size)
        return linear(mixed / (1 + np.exp(-gate)) if kind in NEXT else mixed, f"{at}.o_proj")

    def delta_net(y: np.ndarray, at: str) -> np.ndarray:
        """Gated DeltaNet, token by token and head by head."""
        key_heads, value_heads = values["linear_num_key_heads"], values["linear_num_value_heads"]
        key_width, value_width = values["linear_key_head_dim"], values["linear_value_head_dim"]
        taps = w[f"{at}.conv1d.weight"][:, 0]
        if kind == "qwen3_next":  # the rows of a key head are together
            by_head = linear(y, f"{at}.in_proj_qkvz").reshape(count, key_heads, -1)
            ends = [key_width, 2 * key_width, 2 * key_width + value_heads // key_heads * value_width]
            *parts, gate = (part.reshape(count, -1) for part in np.split(by_head, ends, -1))
            x = np.concatenate(parts, -1)
            b, a = (
                part.reshape(count, -1) for part in np.split(linear(y, f"{at}.in_proj_ba").reshape(count, key_heads, -1), 2, -1)
            )
        else:
            x, gate, b, a = (linear(y, f"{at}.in_proj_{name}") for name in ("qkv", "z", "b", "a"))
        padded = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        x = sum(padded[k : k + count] * taps[:, k] for k in range(taps.shape[1]))
        x = x / (1 + np.exp(-x))
        q, k, v = np.split(x, [key_heads * key_width, 2 * key_heads * key_width], -1)
        rate = 1 / (1 + np.exp(-b))
        decay = np.exp(-np.exp(w[f"{at}.A_log"]) * np.log1p(np.exp(a + w[f"{at}.dt_bias"])))
        result = np.zeros((count, value_heads * value_width))
        for head in range(value_heads):
            state, group = np.zeros((key_width, value_width)), head * key_heads // value_heads
            keys, places = slice(group * key_width, (group + 1) * key_width), slice(head * value_width, (head + 1) * value_width)
            for t in range(count):
                query, key = (part[t, keys] / np.sqrt((part[t, keys] ** 2).sum() + 1e-6) for part in (q, k))
                state = decay[t, head] * state
                state = state + np.outer(key, rate[t, head] * (v[t, places] - key @ state))
                out = query @ state / math.sqrt(key_width)
                out = out / np.sqrt((out**2).mean() + values["rms_norm_eps"]) * w[f"{at}.norm.weight"]
                result[t, places] = out * gate[t, places] / (1 + np.exp(-gate[t, places]))
        return linear(result, f"{at}.out_proj")

    def mixture(y: np.ndarray, at: str) -> np.ndarray:
        """The experts of each token, one after the other."""
        scores, result = linear(y, f"{at}.router"), np.zeros_like(y)
        for t in range(count):
            chosen = np.argsort(-scores[t])[: values["num_experts_per_tok"]]
            shares = np.exp(scores[t, chosen]) / np.exp(scores[t, chosen]).sum()
            for expert, share in zip(chosen, shares, strict=True):
                inner = y[t] @ w[f"{at}.experts.gate_up_proj"][expert] + w[f"{at}.experts.gate_up_proj_bias"][expert]
                gate, factor = np.minimum(inner[::2], 7), np.clip(inner[1::2], -7, 7)
                active = (factor + 1) * gate / (1 + np.exp(-1.702 * gate))
                result[t] += share * (active @ w[f"{at}.experts.down_proj"][expert] + w[f"{at}.experts.down_proj_bias"][expert])
        return result

    def shared_and_chosen(y: np.ndarray, at: str) -> np.ndarray:
        """The experts of each token, one after the other, and the one that all tokens have."""
        scores = linear(y, f"{at}.gate")
        result = plain(y, f"{at}.shared_expert") / (1 + np.exp(-linear(y, f"{at}.shared_expert_gate")))
        for t in range(count):
            shares = np.exp(scores[t]) / np.exp(scores[t]).sum()
            chosen = np.argsort(-scores[t])[: values["num_experts_per_tok"]]
            total = 1 if values.get("norm_topk_prob") is False else shares[chosen].sum()
            result[t] += sum(shares[e] / total * plain(y[t], f"{at}.experts.{e}") for e in chosen)
        return result

    def feed_forward(y: np.ndarray, at: str) -> np.ndarray:
        if kind == "gpt_oss":
            return mixture(y, at)
        return shared_and_chosen(y, at) if kind == "qwen3_next" else plain(y, at)

    def plain(y: np.ndarray, at: str) -> np.ndarray:
        if kind == "phi3":
            gate, up = np.split(linear(y, f"{at}.gate_up_proj"), 2, -1)
        else:
            gate, up = linear(y, f"{at}.gate_proj"), linear(y, f"{at}.up_proj")
        if kind in GEMMA:
            active = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            active = gate / (1 + np.exp(-gate))
        return linear(active * up, f"{at}.down_proj")

    x = w["model.embed_tokens.weight"][tokens] * (math.sqrt(values["hidden_size"]) if kind in GEMMA else 1)
    for layer in range(values["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        if kind in GEMMA or kind in OLMO:
            y = attention(norm(x, f"{at}.input_layernorm"), layer, f"{at}.self_attn")
            x = x + norm(y, f"{at}.post_attention_layernorm")
            y = feed_forward(norm(x, f"{at}.pre_feedforward_layernorm"), f"{at}.mlp")
            x = x + norm(y, f"{at}.post_feedforward_layernorm")
        else:
            y = norm(x, f"{at}.input_layernorm")
            is_linear = f"{at}.linear_attn.A_log" in w
            x = x + (delta_net(y, f"{at}.linear_attn") if is_linear else attention(y, layer, f"{at}.self_attn"))
            x = x + feed_forward(norm(x, f"{at}.post_attention_layernorm"), f"{at}.mlp")
    result = norm(x[-1], "model.norm") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    return 30 * np.tanh(result / 30) if kind == "gemma2" else result


def greedy(
    values: dict, tensors: dict[str, np.ndarray], prompt: list[int], count: int, masks: Sequence[Mask] = (), length: int = 0
) -> list[int]:
    """The `count` most likely tokens after `prompt`, one after the other."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits(values, tensors, tokens, masks, length).argmax()))
    return tokens[len(prompt) :]
