"""mlx-lm, on the CPU: the prompt in blocks, then one call for each token, as its `generate_step` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache
from mlx_lm.utils import load_model, quantize_model

BLOCK = 2048  # positions of a prompt at once: mlx-lm's `prefill_step_size`
BITS = {"int8": 8, "int4": 4}
GROUP = 64  # numbers of a matrix that share a scale


def load(directory: Path, dtype: str, window: int) -> Loaded:
    model, config = load_model(directory)
    if dtype in BITS:
        model, _ = quantize_model(model, config, group_size=GROUP, bits=BITS[dtype])
    elif dtype == "bfloat16":
        model.set_dtype(mx.bfloat16)
    mx.eval(model.parameters())
    return Loaded(model, window)


class Loaded:
    def __init__(self, model: Any, window: int):
        self.model, self.window = model, window

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        if self.window:
            self.cache = [RotatingKVCache(max_size=self.window, keep=0) for _ in self.model.layers]
        else:
            self.cache = make_prompt_cache(self.model)
        tokens = mx.array(prompts)
        while tokens.shape[1] > 1:
            size = min(BLOCK, tokens.shape[1] - 1)
            self.model(tokens[:, :size], cache=self.cache)
            mx.eval([each.state for each in self.cache])
            tokens = tokens[:, size:]
        self.step = tokens
        return self.advance(1)

    def advance(self, count: int) -> list[list[int]]:
        tokens = []
        for _ in range(count):
            self.step = mx.argmax(self.model(self.step, cache=self.cache)[:, -1], -1, keepdims=True)
            mx.async_eval(self.step)
            tokens.append(self.step)
        rows: list[list[int]] = mx.concatenate(tokens, 1).tolist()
        return rows
