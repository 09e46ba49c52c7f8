"""Greedy decoding with transformers' Llama on PyTorch: a prefill, then one call of the model per token, with a growing cache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from tempo_llm.checkpoint import EMBEDDING, FINAL_NORM, HEAD, layer_weights


class Decoding:
    """A `LlamaForCausalLM` with the weights of `tempo_llm`, on `device` ("cpu" or "cuda")."""

    def __init__(self, config: Any, weights: Mapping[str, np.ndarray], device: str = "cpu"):
        settings = LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            max_position_embeddings=config.max_position_embeddings,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
            tie_word_embeddings=False,
        )
        self.device = device
        self.model = LlamaForCausalLM(settings).eval()
        named = {FINAL_NORM: weights["final_norm.weight"], HEAD: weights["head.weight"].T, EMBEDDING: weights["embedding.weight"]}
        for name, weight in layer_weights(config).items():
            for number in range(config.num_hidden_layers):
                named[f"model.layers.{number}.{weight.source}"] = weights[name][number].T
        state = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in named.items()}
        self.model.load_state_dict(state, strict=True)
        self.model.to(device)

    def choose_threads(self, prompts: np.ndarray, new: int) -> int:
        """Set the number of PyTorch's threads to the faster choice on this machine: all cores, or one."""
        seconds = {}
        for threads in sorted({1, torch.get_num_threads()}):
            torch.set_num_threads(threads)
            self.run(prompts, new)
            start = time.perf_counter()
            self.run(prompts, new)
            seconds[threads] = time.perf_counter() - start
        fastest = min(seconds, key=seconds.__getitem__)
        torch.set_num_threads(fastest)
        return fastest

    @torch.inference_mode()
    def run(self, prompts: np.ndarray, new: int) -> np.ndarray:
        """The `new` tokens that follow each prompt: [B, new]."""
        cache, step = DynamicCache(), torch.from_numpy(prompts.astype(np.int64)).to(self.device)
        chosen = []
        for _ in range(new):
            logits = self.model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            step = logits[:, -1].argmax(-1, keepdim=True)
            chosen.append(step)
        return torch.cat(chosen, 1).cpu().numpy()
