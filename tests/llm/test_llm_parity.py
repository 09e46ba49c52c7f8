"""Logits at every position equal those of `transformers`, for families, rope types and forms of weights, from seeded random checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_llm

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

SIZES = {
    "vocab_size": 120,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # the usual 0.02 gives logits too close to each other
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
TOLERANCE = 1e-4  # of the largest logit at each position


@dataclass(frozen=True)
class Row:
    """A checkpoint: the name of its classes in `transformers`, and its settings."""

    family: str
    settings: dict[str, Any] = field(default_factory=dict)
    shards: bool = False


def rope(**values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, **values}}


ROWS = {
    "llama 2": Row("Llama", {"num_key_value_heads": 4}),
    "llama 3, grouped queries": Row("Llama", rope(rope_type="default", rope_theta=500000.0)),
    "llama 3.1, llama3 rope, shards": Row("Llama", rope(**LLAMA3), shards=True),
    "llama 3.2, tied, wide heads": Row("Llama", {"tie_word_embeddings": True, "head_dim": 16, **rope(**LLAMA3)}),
    "linear rope": Row("Llama", rope(rope_type="linear", factor=2.5)),
    "yarn rope": Row("Llama", {"head_dim": 16, **rope(**YARN)}),
    "yarn rope, scales given": Row(
        "Llama", {"head_dim": 16, **rope(**YARN, mscale=0.7, mscale_all_dim=1.3, beta_fast=8, beta_slow=2)}
    ),
    "tinyllama": Row("Llama", {"num_key_value_heads": 1, "num_hidden_layers": 3}),
    "biases": Row("Llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm": Row(
        "Llama", {"tie_word_embeddings": True, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4}
    ),
    "mistral, sliding window": Row("Mistral", {"sliding_window": 5}),
    "mistral, no window": Row("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen 2": Row("Qwen2", {"tie_word_embeddings": True}),
    "qwen 2, window from layer 1 on": Row("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
}


def save(row: Row, directory: Path) -> Any:
    """A random model of `transformers`, saved to a directory."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{row.family}Config")(**{**SIZES, **row.settings})
    model = getattr(transformers, f"{row.family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # they begin at zero
                parameter.normal_(0, 0.3)
    model.save_pretrained(directory, **({"max_shard_size": "20KB"} if row.shards else {}))
    return model


@pytest.mark.parametrize("name", ROWS)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    import torch

    row = ROWS[name]
    model = save(row, tmp_path)
    assert row.shards == (len(list(tmp_path.glob("model-*.safetensors"))) > 1)
    ids = np.random.default_rng(list(ROWS).index(name)).integers(0, SIZES["vocab_size"], 40).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].float().numpy()
    logits = tempo_llm.load(tmp_path).logits(ids)
    largest = np.abs(expected).max(-1, keepdims=True)
    assert (np.abs(logits - expected) / largest).max() < TOLERANCE


def test_tokens_equal_those_of_transformers(tmp_path: Path) -> None:
    """With a window and biases, the decoding program gives the same tokens too."""
    import torch

    model = save(ROWS["qwen 2, window from layer 1 on"], tmp_path)
    prompts = [[5, 9, 100, 7, 3, 60, 2, 11], [9, 17, 4]]
    result = tempo_llm.load(tmp_path).generate(prompts, 10, ignore_eos=True)
    model.generation_config.eos_token_id = None
    for prompt, completion in zip(prompts, result.completions, strict=True):
        ids = torch.tensor([prompt])
        tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False, pad_token_id=0)
        assert list(completion.token_ids) == tokens[0, len(prompt) :].tolist()
