"""Llama decoding written by hand in JAX: one jitted loop over positions, with a static key-value cache for the longest length.

Layers are unrolled in Python and each has its own arrays: a slice of stacked weights would be a copy in every iteration. The
cache of a layer is [B, heads, T, width], which is the order in which attention reads it. Every position attends to all T
places of the cache, with a mask for the later ones: the usual static cache.
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
    shared = ("final_norm.weight", "head.weight", "embedding.weight")
    parts: dict[str, Any] = {name: jax.device_put(weights[name]) for name in shared if name in weights}
    parts.setdefault("embedding.weight", parts["head.weight"].T)
    stacked = [name for name in weights if name not in shared]
    parts["layers"] = [{name: jax.device_put(weights[name][k]) for name in stacked} for k in range(layers)]
    return parts


def make_decoder(config: Any, frequencies: np.ndarray, length: int) -> Callable[..., Array]:
    """A jitted function (weights, prompt [B, T] int32, prompt_length [B] int32) -> tokens [B, T], greedy after the prompt."""
    heads, groups, width = config.num_key_value_heads, config.group_size, config.head_dim
    half = width // 2

    def norm(x: Array, scale: Array) -> Array:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + config.rms_norm_eps) * scale

    def rotate(x: Array, cosine: Array, sine: Array) -> Array:
        first, second = x[..., :half], x[..., half:]
        return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)

    def layer(x: Array, w: Mapping[str, Array], keys: Array, values: Array, t: Array) -> tuple[Array, Array, Array]:
        rows = x.shape[0]
        angles = t.astype(jnp.float32) * frequencies
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        normed = norm(x, w["attention_norm.weight"])
        query = rotate((normed @ w["attention.query.weight"]).reshape(rows, heads * groups, width), cosine, sine).reshape(
            rows, heads, groups, width
        )
        key = rotate((normed @ w["attention.key.weight"]).reshape(rows, heads, width), cosine, sine)
        value = (normed @ w["attention.value.weight"]).reshape(rows, heads, width)
        keys = lax.dynamic_update_slice_in_dim(keys, key[:, :, None], t, 2)
        values = lax.dynamic_update_slice_in_dim(values, value[:, :, None], t, 2)
        scores = jnp.einsum("bhgw,bhtw->bhgt", query, keys) / math.sqrt(width)
        scores = jnp.where(jnp.arange(length) <= t, scores, -jnp.inf)
        mixed = jnp.einsum("bhgt,bhtw->bhgw", jax.nn.softmax(scores), values)
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

        empty = jnp.zeros((rows, heads, length, width))
        tokens = jnp.zeros_like(prompt).at[:, 0].set(prompt[:, 0])
        tokens, _ = lax.fori_loop(0, length - 1, position, (tokens, [(empty, empty) for _ in weights["layers"]]))
        return tokens

    return jax.jit(decode)
