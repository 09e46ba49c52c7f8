"""A Llama by hand in JAX that goes on from a cache of keys and values: a prompt, then tokens, as a server would run it.

Layers are unrolled in Python, each with arrays of its own (see `jax_llama.py`). The cache of a layer is keys [B * heads, width, T] and values
[B * heads, T, width], just as products read them: XLA on a CPU would copy a cache with more dimensions in each step. Caches are donated to
each call and written in place. There are three ways to read them:

- *padded*: all T places, with a mask. A prompt is computed at once.
- *switch*: the same of the shortest of eight static lengths that has all tokens, each a branch of a `switch`. A prompt is computed at once.
- *tiled*: the tiles that have tokens, one after the other, with a running maximum and a running sum; with a window, only the tiles that it
  reaches. A prompt is computed in blocks. So one program serves all lengths.

Weights are float32, bfloat16, or int8 matrices with a float32 scale for each column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.peers.jax_llama import normalized, rotate, split_layers

Array = Any
TILE = 256
BLOCK = 512  # positions of a prompt at once, if tiled
LENGTHS = 8  # static lengths of the form `switch`
FORMS = ("padded", "tiled", "switch")


class CachedLlama:
    """`start` takes prompts of one length, `advance` goes on. `form` is one of FORMS; `window` 0 means every token so far."""

    def __init__(self, config: Any, weights: Mapping[str, Any], frequencies: np.ndarray, form: str, window: int = 0):
        self.config, self.frequencies, self.form, self.window = config, frequencies, form, window
        self.tiled = form == "tiled"
        self.weights = split_layers(weights, config.num_hidden_layers)
        self.dtype = jnp.bfloat16 if weights["head.weight"].dtype == jnp.bfloat16 else jnp.float32
        self._take = jax.jit(self._block, donate_argnums=1)
        self._go_on = jax.jit(self._tokens, donate_argnums=1, static_argnames="count")

    def start(self, prompts: np.ndarray, most: int) -> np.ndarray:
        """The first token after each prompt: int32 [B]. The cache has room for `most` new tokens, with this one."""
        rows, count = prompts.shape
        self.caches: Any = None  # the old one goes first
        length = count + most
        block = BLOCK if self.tiled else count
        if self.tiled:
            length = -(-length // BLOCK) * BLOCK
            prompts = np.pad(prompts, ((0, 0), (0, -count % block)))
        heads, width = self.config.num_key_value_heads, self.config.head_dim
        shapes = (rows * heads, width, length), (rows * heads, length, width)
        self.caches = [tuple(jnp.zeros(shape, self.dtype) for shape in shapes) for _ in self.weights["layers"]]
        for first in range(0, count, block):
            last = min(count - first, block) - 1
            self.token, self.caches = self._take(self.weights, self.caches, prompts[:, first : first + block], first, last)
        self.at = count
        return np.asarray(self.token)

    def advance(self, count: int) -> np.ndarray:
        """The next tokens: int32 [B, count]."""
        tokens, self.caches = self._go_on(self.weights, self.caches, self.token, self.at, count=count)
        self.at += count
        self.token = tokens[:, -1]
        return np.asarray(tokens)

    # -- in the programs ----------------------------------------------------------------------------------------------

    def _tokens(self, weights: Any, caches: Any, token: Array, start: Array, count: int) -> Any:
        def step(k: Array, state: Any) -> Any:
            tokens, token, caches = state
            token, caches = self._block(weights, caches, token[:, None], start + k, 0)
            return tokens.at[:, k].set(token), token, caches

        tokens, _, caches = lax.fori_loop(0, count, step, (jnp.zeros((token.shape[0], count), jnp.int32), token, caches))
        return tokens, caches

    def _block(self, weights: Any, caches: Any, tokens: Array, start: Array, last: Array) -> Any:
        """The token after place `last` of the block, and the caches with the block [B, Q] at positions from `start` on."""
        config = self.config
        rows, count = tokens.shape
        heads, groups, width = config.num_key_value_heads, config.group_size, config.head_dim
        positions = start + jnp.arange(count)
        angles = positions.astype(jnp.float32)[:, None] * self.frequencies
        cosine, sine = jnp.cos(angles).astype(self.dtype), jnp.sin(angles).astype(self.dtype)
        x = weights["embedding.weight"][tokens].astype(self.dtype)
        if "embedding.scale" in weights:
            x = x * weights["embedding.scale"][tokens][..., None]
        filled = []
        for w, cache in zip(weights["layers"], caches, strict=True):
            normed = self._norm(x, w["attention_norm.weight"])

            def projected(name: str, number: int, w: Any = w, normed: Array = normed) -> Array:
                """By heads: [B * number, Q, width]."""
                parts = product(normed, w, f"attention.{name}").reshape(rows, count, number, width)
                return parts.transpose(0, 2, 1, 3).reshape(rows * number, count, width)

            query = rotate(projected("query", heads * groups), cosine, sine).reshape(rows * heads, groups, count, width)
            key = rotate(projected("key", heads), cosine, sine).swapaxes(1, 2)
            keys = lax.dynamic_update_slice_in_dim(cache[0], key, start, 2)
            values = lax.dynamic_update_slice_in_dim(cache[1], projected("value", heads), start, 1)
            filled.append((keys, values))
            attend = {"padded": self._padded, "tiled": self._by_tiles, "switch": self._shortest}[self.form]
            mixed = attend(query / math.sqrt(width), keys, values, positions).astype(self.dtype)
            mixed = mixed.reshape(rows, heads * groups, count, width).transpose(0, 2, 1, 3).reshape(rows, count, -1)
            x = x + product(mixed, w, "attention.output")
            normed = self._norm(x, w["mlp_norm.weight"])
            inner = jax.nn.silu(product(normed, w, "mlp.gate")) * product(normed, w, "mlp.up")
            x = x + product(inner, w, "mlp.down")
        x = self._norm(lax.dynamic_index_in_dim(x, last, 1, keepdims=False), weights["final_norm.weight"])
        return product(x, weights, "head").argmax(-1).astype(jnp.int32), filled

    def _norm(self, x: Array, scale: Array) -> Array:
        return normalized(x.astype(jnp.float32), scale.astype(jnp.float32), self.config.rms_norm_eps).astype(self.dtype)

    def _reached(self, keys: Array, positions: Array) -> Array:
        """Whether each position [Q] attends to each place of the keys: [Q, K]."""
        behind = positions[:, None] - keys[None]
        return (behind >= 0) & (behind < self.window) if self.window else behind >= 0

    def _padded(self, query: Array, keys: Array, values: Array, positions: Array) -> Array:
        scores = jnp.einsum("ngqw,nwt->ngqt", query, keys, preferred_element_type=jnp.float32)
        scores = jnp.where(self._reached(jnp.arange(keys.shape[2]), positions), scores, -jnp.inf)
        return jnp.einsum("ngqt,ntw->ngqw", jax.nn.softmax(scores).astype(values.dtype), values)

    def _shortest(self, query: Array, keys: Array, values: Array, positions: Array) -> Array:
        size = -(-values.shape[1] // LENGTHS)
        lengths = [min(size * (k + 1), values.shape[1]) for k in range(LENGTHS)]
        branches = [
            lambda query, keys, values, positions, n=n: self._padded(query, keys[:, :, :n], values[:, :n], positions)
            for n in lengths
        ]
        return lax.switch(positions[-1] // size, branches, query, keys, values, positions)

    def _by_tiles(self, query: Array, keys: Array, values: Array, positions: Array) -> Array:
        first = jnp.maximum(positions[0] - self.window + 1, 0) // TILE if self.window else 0

        def tile(k: Array, state: Any) -> Any:
            most, total, mixed = state
            part = partial(lax.dynamic_slice_in_dim, start_index=k * TILE, slice_size=TILE)
            scores = jnp.einsum("ngqw,nwt->ngqt", query, part(keys, axis=2), preferred_element_type=jnp.float32)
            scores = jnp.where(self._reached(k * TILE + jnp.arange(TILE), positions), scores, -jnp.inf)
            greater = jnp.maximum(most, scores.max(-1))
            shares, faded = jnp.exp(scores - greater[..., None]), jnp.exp(most - greater)
            read = jnp.einsum(
                "ngqt,ntw->ngqw", shares.astype(values.dtype), part(values, axis=1), preferred_element_type=jnp.float32
            )
            return greater, total * faded + shares.sum(-1), mixed * faded[..., None] + read

        shape = query.shape[:-1]
        start = jnp.full(shape, -1e30), jnp.zeros(shape), jnp.zeros(query.shape, jnp.float32)
        _, total, mixed = lax.fori_loop(first, positions[-1] // TILE + 1, tile, start)
        return mixed / total[..., None]


def product(x: Array, weights: Mapping[str, Array], name: str) -> Array:
    """x @ w. An int8 matrix is of numbers that its scales give back."""
    weight: Callable[..., Array] = weights[f"{name}.weight"]
    if f"{name}.scale" not in weights:
        return x @ weight
    return (x @ weight.astype(x.dtype)) * weights[f"{name}.scale"]
