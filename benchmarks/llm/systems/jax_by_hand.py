"""The same model by hand in JAX, padded or tiled: `benchmarks/peers/jax_cached.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    weights = load_weights(directory, config, dtype) if has_weights(directory) else random_weights(config, dtype)
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    return Loaded(CachedLlama(config, weights, frequencies, form, window))


class Loaded:
    def __init__(self, model: CachedLlama):
        self.model = model

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        return self.model.start(np.asarray(prompts, np.int32), 1 + count * times)[:, None].tolist()

    def advance(self, count: int) -> list[list[int]]:
        return self.model.advance(count).tolist()
