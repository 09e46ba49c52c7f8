"""The same model by hand in JAX, padded or tiled: `benchmarks/peers/jax_cached.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llm.models import has_weights, random_weights
from benchmarks.llm.systems import Unsupported
from benchmarks.peers.jax_cached import CachedLlama
from tempo_core.nn import inverse_frequencies
from tempo_llm import LlamaConfig, load_weights

WRITTEN = ("float32", "bfloat16", "int8")


def load(directory: Path, dtype: str, window: int, form: str) -> Loaded:
    if dtype not in WRITTEN:
        raise Unsupported(f"not written for {dtype}")
    config = LlamaConfig.from_directory(directory)
    stored = "float32" if dtype == "int8" else dtype
    weights = load_weights(directory, config, stored) if has_weights(directory) else random_weights(config, stored)
    if dtype == "int8":
        weights = by_columns(weights)
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    return Loaded(CachedLlama(config, weights, frequencies, form, window))


def by_columns(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Matrices [..., in, out] as int8, with a float32 scale for each column: what XLA multiplies without more work than a cast."""
    narrow: dict[str, Any] = {}
    for name, weight in weights.items():
        array = np.asarray(weight)
        if name.endswith("norm.weight") or array.ndim < 2:
            narrow[name] = array
            continue
        axis = -1 if name.startswith("embedding.") else -2
        scale = np.maximum(np.abs(array).max(axis, keepdims=True) / 127, 1e-12).astype(np.float32)
        narrow[name] = np.rint(array / scale).astype(np.int8)
        narrow[name.replace(".weight", ".scale")] = scale.squeeze(axis)
    if "embedding.weight" not in narrow:
        narrow["embedding.scale"] = narrow["head.scale"]
    return narrow


class Loaded:
    def __init__(self, model: CachedLlama):
        self.model = model

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        return self.model.start(np.asarray(prompts, np.int32), 1 + count * times)[:, None].tolist()

    def advance(self, count: int) -> list[list[int]]:
        return self.model.advance(count).tolist()
