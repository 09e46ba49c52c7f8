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
    tolerance: float = (
        TOLERANCE  # larger where the two ways of `transformers` itself, chunks and positions, differ by about as much
    )
    embeddings: float = 1.0  # a factor: where embeddings are large and the head is tied to them, a model repeats its last token


def rope(**values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, **values}}


def ropes(**values: Any) -> dict[str, Any]:
    """Settings for each kind of layers; `values` are those of the full ones."""
    local = {"rope_type": "default", "rope_theta": 10000.0}
    return {"rope_parameters": {"full_attention": {"rope_theta": 50000.0, **values}, "sliding_attention": local}}


GROWING = {**YARN, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.3}
SHORT, LONG = [1.0, 1.3, 2.0, 3.5], [1.5, 2.5, 6.0, 9.0]
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}
HALF = {"rope_type": "longrope", "short_factor": SHORT[:2], "long_factor": LONG[:2], "partial_rotary_factor": 0.5}

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
    "qwen 3": Row("Qwen3", {"head_dim": 16}),
    "qwen 3, window and biases": Row(
        "Qwen3",
        {"head_dim": 8, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "attention_bias": True},
    ),
    "gemma 2": Row("Gemma2", {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24}, embeddings=0.03),
    "gemma 2, no caps": Row(
        "Gemma2",
        {
            "head_dim": 8,
            "sliding_window": 5,
            "num_hidden_layers": 3,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
        embeddings=0.03,
    ),
    "gemma 3": Row("Gemma3Text", {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 8}, embeddings=0.03),
    "gemma 3, linear rope": Row(
        "Gemma3Text",
        {
            "head_dim": 8,
            "sliding_window": 5,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            **ropes(rope_type="linear", factor=4.0),
        },
        embeddings=0.03,
    ),
    "phi 3": Row("Phi3", {"original_max_position_embeddings": 256}),
    "phi 3, longrope, long factors": Row(
        "Phi3", {"original_max_position_embeddings": 16, "sliding_window": 9, **rope(**LONGROPE)}
    ),
    "phi 4, longrope, short factors": Row("Phi3", {"original_max_position_embeddings": 240, **rope(**HALF)}),
    "smollm 3": Row("SmolLM3", {"num_hidden_layers": 5, "tie_word_embeddings": False}),
    "smollm 3, windows and biases": Row(
        "SmolLM3",
        {
            "num_hidden_layers": 3,
            "no_rope_layers": [0, 1, 0],
            "use_sliding_window": True,
            "sliding_window": 6,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "olmo 2": Row("Olmo2"),
    "olmo 2, llama3 rope, biases": Row("Olmo2", {"num_key_value_heads": 4, "attention_bias": True, **rope(**LLAMA3)}),
    "olmo 3": Row("Olmo3", {"num_hidden_layers": 5, "sliding_window": 8}),
    "olmo 3, yarn rope": Row(
        "Olmo3", {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"], **ropes(**YARN)}
    ),
    "qwen 3.5": Row(
        "Qwen3_5Text",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 12,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "qwen 3.5, other kinds of layers": Row(
        "Qwen3_5Text",
        {
            "num_hidden_layers": 3,
            "head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_key_head_dim": 6,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_conv_kernel_dim": 3,
            "attention_bias": True,
            **rope(rope_type="default", partial_rotary_factor=0.5),
        },
    ),
    "qwen 3 next": Row(
        "Qwen3Next",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 12,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "shared_expert_intermediate_size": 12,
        },
        tolerance=5e-4,
    ),
    "qwen 3 next, other sizes": Row(
        "Qwen3Next",
        {
            "num_hidden_layers": 3,
            "head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "mlp_only_layers": [1],
            "linear_key_head_dim": 6,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 20,
            "shared_expert_intermediate_size": 12,
            "norm_topk_prob": False,
        },
        tolerance=5e-4,
    ),
    "gpt-oss": Row("GptOss", {"head_dim": 8, "sliding_window": 8, "num_local_experts": 6, "num_experts_per_tok": 2}),
    "gpt-oss, other sizes": Row(
        "GptOss",
        {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "sliding_window": 5,
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "attention_bias": False,
            "swiglu_limit": 1.5,
            **rope(**YARN),
        },
    ),
    "ministral 3": Row("Ministral3", {"head_dim": 16, **rope(**GROWING, mscale=1.0, mscale_all_dim=1.0)}),
    "ministral 3, window": Row("Ministral3", {"head_dim": 8, "sliding_window": 8, **rope(**GROWING)}),
}
TODAY = list(ROWS)[list(ROWS).index("qwen 3") :]  # families with layers that are not Llama's


def save(row: Row, directory: Path) -> Any:
    """A random model of `transformers`, saved to a directory."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{row.family}Config")(**{**SIZES, "pad_token_id": None, **row.settings})
    model = getattr(transformers, f"{row.family.removesuffix('Text')}ForCausalLM")(config).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(row.embeddings)
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name or "sinks" in name:  # they begin at zero, or at one
                parameter.add_(torch.empty_like(parameter).normal_(0, 0.3))
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
    assert (np.abs(logits - expected) / largest).max() < row.tolerance


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in TODAY])
def test_200_tokens_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    """The prompt is longer than the original context of the row with the long factors: `transformers` takes those from there on."""
    import torch

    model = save(ROWS[name], tmp_path)
    prompt = np.random.default_rng(list(ROWS).index(name)).integers(0, SIZES["vocab_size"], 20).tolist()
    (completion,) = tempo_llm.load(tmp_path).generate(prompt, 200, ignore_eos=True).completions
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=200, do_sample=False, pad_token_id=0)
    expected = tokens[0, len(prompt) :].tolist()
    assert list(completion.token_ids) == expected
    assert len(set(expected)) > 3


def test_a_text_that_outgrows_the_original_context_equals_that_of_transformers(tmp_path: Path) -> None:
    """From 16 tokens on, all of a text is computed with the long factors, in `transformers` too."""
    import torch

    model = save(ROWS["phi 3, longrope, long factors"], tmp_path)
    model.generation_config.eos_token_id = None
    prompts = [[5, 9, 100, 7, 3, 60, 2, 11], [4], list(range(16)), list(range(40, 57))]
    for prompt, completion in zip(
        prompts, tempo_llm.load(tmp_path).generate(prompts, 30, ignore_eos=True).completions, strict=True
    ):
        ids = torch.tensor([prompt])
        tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False, pad_token_id=0)
        assert list(completion.token_ids) == tokens[0, len(prompt) :].tolist()


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
