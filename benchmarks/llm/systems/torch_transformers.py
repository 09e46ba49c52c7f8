"""transformers on PyTorch, on the CPU: one call of the model for the prompt, then one for each token, with a cache that grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.llm.systems import Unsupported, choose_threads

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(directory: Path, dtype: str, window: int) -> Loaded:
    if dtype not in DTYPES:
        raise Unsupported(f"PyTorch has no {dtype} of its own on a CPU: that takes another package, such as torchao")
    return Loaded(AutoModelForCausalLM.from_pretrained(directory, dtype=DTYPES[dtype]).eval())


class Loaded:
    def __init__(self, model: Any):
        self.model = model
        choose_threads(self, torch.set_num_threads)

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        self.cache, self.step = DynamicCache(config=self.model.config), torch.tensor(prompts)
        return self.advance(1)

    @torch.inference_mode()
    def advance(self, count: int) -> list[list[int]]:
        tokens = []
        for _ in range(count):
            logits = self.model(input_ids=self.step, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
            self.step = logits[:, -1].argmax(-1, keepdim=True)
            tokens.append(self.step)
        return torch.cat(tokens, 1).tolist()
