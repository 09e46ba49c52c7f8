"""Llama decoding written by hand in JAX: one jitted loop over positions, with a static key-value cache for the longest length.

Layers are unrolled in Python and each has its own arrays: a slice of stacked weights would be a copy in every iteration. The
cache of a layer is keys [B * heads, width, T] and values [B * heads, T, width], just as products read them: XLA on a CPU would copy a
cache with more dimensions, or keys in another order, in every iteration. Every position attends to all T places of the cache, with a mask
for the later ones: the usual static cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any


def split_layers(weights: Mapping[str, np.ndarray], layers: int) -> dict[str, Any]:
    """The weights of `tempo_llm` (stacked over layers), as device arrays with one set per layer."""
    shared = tuple(name for name in weights if name.startswith(("final_norm.", "head.", "embedding.")))
    parts: dict[str, Any] = {name: jax.device_put(weights[name]) for name in shared}
    parts.setdefault("embedding.weight", parts["head.weight"].T)
    stacked = [name for name in weights if name not in shared]
    parts["layers"] = [{name: jax.device_put(weights[name][k]) for name in stacked} for k in range(layers)]
    return parts


def normalized(x: Array, scale: Array, epsilon: float) -> Array:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def rotate(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def make_prefill(config: Any, frequencies: np.ndarray, length: int) -> Callable[..., Array]:
    """A jitted function (weights, prompt [B, P] int32) -> (the next token [B], caches), all positions of the prompt at once.

    The caches are [B, heads, T, width], with the keys and values of the prompt in their first places.
    """
    heads, groups, width = config.num_key_value_heads, config.group_size, config.head_dim

    def prefill(weights: Mapping[str, Any], prompt: Array) -> Any:
        rows, count = prompt.shape
        angles = jnp.arange(count, dtype=jnp.float32)[:, None] * frequencies
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        causal = jnp.tril(jnp.ones((count, count), bool))
        x, caches = weights["embedding.weight"][prompt], []
        for w in weights["layers"]:
            normed = normalized(x, w["attention_norm.weight"], config.rms_norm_eps)
            query = (normed @ w["attention.query.weight"]).reshape(rows, count, heads * groups, width).transpose(0, 2, 1, 3)
            key = (normed @ w["attention.key.weight"]).reshape(rows, count, heads, width).transpose(0, 2, 1, 3)
            value = (normed @ w["attention.value.weight"]).reshape(rows, count, heads, width).transpose(0, 2, 1, 3)
            query = rotate(query, cosine, sine).reshape(rows, heads, groups, count, width)
            key = rotate(key, cosine, sine)
            scores = jnp.einsum("bhgpw,bhtw->bhgpt", query, key) / math.sqrt(width)
            mixed = jnp.einsum("bhgpt,bhtw->bhgpw", jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)), value)
            x = x + mixed.transpose(0, 3, 1, 2, 4).reshape(rows, count, -1) @ w["attention.output.weight"]
            normed = normalized(x, w["mlp_norm.weight"], config.rms_norm_eps)
            x = x + (jax.nn.silu(normed @ w["mlp.gate.weight"]) * (normed @ w["mlp.up.weight"])) @ w["mlp.down.weight"]
            empty = jnp.zeros((rows, heads, length, width))
            caches.append([lax.dynamic_update_slice_in_dim(empty, part, 0, 2) for part in (key, value)])
        logits = normalized(x[:, -1], weights["final_norm.weight"], config.rms_norm_eps) @ weights["head.weight"]
        return logits.argmax(-1).astype(jnp.int32), caches

    return jax.jit(prefill)


def make_decoder(config: Any, frequencies: np.ndarray, length: int) -> Callable[..., Array]:
    """A jitted function (weights, prompt [B, T] int32, prompt_length [B] int32) -> tokens [B, T], greedy after the prompt."""
    heads, groups, width = config.num_key_value_heads, config.group_size, config.head_dim

    def norm(x: Array, scale: Array) -> Array:
        return normalized(x, scale, config.rms_norm_eps)

    def layer(x: Array, w: Mapping[str, Array], keys: Array, values: Array, t: Array) -> tuple[Array, Array, Array]:
        rows = x.shape[0]
        angles = t.astype(jnp.float32) * frequencies
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        normed = norm(x, w["attention_norm.weight"])
        query = rotate((normed @ w["attention.query.weight"]).reshape(rows, heads * groups, width), cosine, sine)
        query = query.reshape(rows * heads, groups, width)
        key = rotate((normed @ w["attention.key.weight"]).reshape(rows, heads, width), cosine, sine)
        value = (normed @ w["attention.value.weight"]).reshape(rows, heads, width)
        keys = lax.dynamic_update_slice_in_dim(keys, key.reshape(rows * heads, width, 1), t, 2)
        values = lax.dynamic_update_slice_in_dim(values, value.reshape(rows * heads, 1, width), t, 1)
        scores = jnp.einsum("ngw,nwt->ngt", query, keys) / math.sqrt(width)
        scores = jnp.where(jnp.arange(length) <= t, scores, -jnp.inf)
        mixed = jnp.einsum("ngt,ntw->ngw", jax.nn.softmax(scores), values)
        x = x + mixed.reshape(rows, -1) @ w["attention.output.weight"]
        normed = norm(x, w["mlp_norm.weight"])
        return (
            x + (jax.nn.silu(normed @ w["mlp.gate.weight"]) * (normed @ w["mlp.up.weight"])) @ w["mlp.down.weight"],
            keys,
            values,
        )

    def decode(weights: Mapping[str, Any], prompt: Array, prompt_length: Array) -> Array:
        rows = prompt.shape[0]

        def position(t: Array, state: Any) -> Any:
            tokens, caches = state
            x = weights["embedding.weight"][tokens[:, t]]
            filled = []
            for w, (keys, values) in zip(weights["layers"], caches, strict=True):
                x, keys, values = layer(x, w, keys, values, t)
                filled.append((keys, values))
            chosen = (norm(x, weights["final_norm.weight"]) @ weights["head.weight"]).argmax(-1).astype(jnp.int32)
            following = jnp.where(prompt_length > t + 1, prompt[:, t + 1], chosen)
            return tokens.at[:, t + 1].set(following), filled

        empty = jnp.zeros((rows * heads, width, length)), jnp.zeros((rows * heads, length, width))
        tokens = jnp.zeros_like(prompt).at[:, 0].set(prompt[:, 0])
        tokens, _ = lax.fori_loop(0, length - 1, position, (tokens, [empty for _ in weights["layers"]]))
        return tokens

    return jax.jit(decode)
