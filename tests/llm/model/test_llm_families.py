"""Families of models: logits and tokens equal those of the NumPy model in `oracle.py`, windows are kept as windows, and mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_llm import Generator, LlamaConfig, ModelConfigError
from tempo_llm.checkpoint import joined, load_weights, split
from tempo_llm.families import FAMILIES
from tempo_llm.saving import file_tensors
from tempo_llm.stacks import windowed_stacks
from tests.cases import fast
from tests.llm import models, oracle

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}
LINEAR = {"rope_type": "linear", "factor": 4.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0], "original_max_position_embeddings": 10}

ROWS: dict[str, dict[str, Any]] = {  # model_type, and what config.json says beside the sizes
    "qwen3": {
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "gemma2": {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24},
    "gemma3_text": {
        "head_dim": 8,
        "sliding_window": 4,
        "query_pre_attn_scalar": 8,
        "num_hidden_layers": 7,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": LINEAR,
    },
    "phi3": {"partial_rotary_factor": 0.5, "sliding_window": 6, "rope_scaling": LONG},
    "smollm3": {"num_hidden_layers": 4},
    "olmo2": {"attention_bias": True},
    "olmo3": {"num_hidden_layers": 5, "sliding_window": 4, "rope_scaling": LINEAR},
    "qwen3_5_text": {
        "num_hidden_layers": 3,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 4,
        "linear_conv_kernel_dim": 4,
    },
    "qwen3_next": {
        "num_hidden_layers": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 4,
        "linear_conv_kernel_dim": 3,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 8,
    },
    "gpt_oss": {
        "head_dim": 8,
        "sliding_window": 4,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "rope_scaling": {"rope_type": "default"},
    },
    "ministral3": {"head_dim": 8, "sliding_window": 6, "rope_scaling": YARN},
}
PROMPT = [1, 17, 5, 40, 8, 61, 3, 9, 9, 30, 11, 2]
TIED = ("gemma2", "gemma3_text", "smollm3")


def config(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A `config.json`. The key of the activation is another one for Gemma."""
    values = {**models.VALUES, "model_type": name, **ROWS[name], **settings}
    return {key: value for key, value in values.items() if value is not None and not (key == "hidden_act" and "gemma" in name)}


def model(name: str, write_model: Any, **settings: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], Path]:
    values = config(name, settings)
    tensors = models.random_tensors(values, tied=name in TIED)
    return values, tensors, write_model(values, tensors)


@pytest.mark.parametrize("name", ROWS)
def test_a_model_of_every_family_is_saved_as_it_was(name: str, write_model: Any) -> None:
    _, tensors, directory = model(name, write_model)
    described = LlamaConfig.from_directory(directory)
    stacks = windowed_stacks(described)
    again = file_tensors(described, joined(split(load_weights(directory, described), described, stacks), stacks))
    assert again.keys() == tensors.keys()
    for source, array in tensors.items():
        np.testing.assert_array_equal(again[source], array, err_msg=source)


def test_every_family_has_a_row() -> None:
    assert set(FAMILIES) - {"llama", "mistral", "qwen2"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_logits_equal_those_of_the_oracle(name: str, write_model: Any) -> None:
    values, tensors, directory = model(name, write_model)
    logits = Generator.from_directory(directory, backend="numpy").logits(PROMPT)
    for count in (3, 7, 12) if name != "phi3" else (12,):  # phi3 takes other frequencies for a shorter text
        expected = oracle.logits(values, tensors, PROMPT[:count])
        assert np.abs(logits[count - 1] - expected).max() < 1e-4 * np.abs(expected).max()


def test_layers_without_experts_are_by_their_numbers() -> None:
    settings = {"num_hidden_layers": 5, "layer_types": None, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    layers = LlamaConfig.from_values(config("qwen3_next", settings)).layers
    assert [number for number, layer in enumerate(layers) if layer.experts is not None] == [1]


def test_layers_with_a_state_are_by_their_numbers() -> None:
    """Without `layer_types`, each fourth layer has attention."""
    layers = LlamaConfig.from_values(config("qwen3_5_text", {"num_hidden_layers": 9, "layer_types": None})).layers
    assert [number for number, layer in enumerate(layers) if layer.delta is None] == [3, 7]


@pytest.mark.parametrize("name", fast(["gemma3_text", "phi3", "qwen3_5_text"], "qwen3_5_text"))
def test_tokens_equal_those_of_the_oracle(name: str, write_model: Any) -> None:
    """Where layers differ, and where a text of more than the original context has other frequencies, each row by its length so far."""
    settings = {"num_hidden_layers": 3, "sliding_window_pattern": 3} if name == "gemma3_text" else {}
    values, tensors, directory = model(name, write_model, **settings)
    rows = [PROMPT[:7], PROMPT[:3]] if name == "phi3" else [PROMPT[:7]]
    result = Generator.from_directory(directory, backend="numpy").generate(rows, 5)
    for row, completion in zip(rows, result.completions, strict=True):
        assert list(completion.token_ids) == oracle.greedy(values, tensors, row, 5)


@pytest.mark.slow
def test_a_window_is_kept_as_a_window(write_model: Any) -> None:
    """Three layers of seven keep all 32 positions of keys, the others 4: in two loops, of a pair of layers and of one."""
    _, _, directory = model("gemma2", write_model, num_hidden_layers=7)
    text = Generator.from_directory(directory, capacity=32, backend="numpy").plan([PROMPT], 12, full=True)
    rows = re.findall(
        r"^ *(layers\.\d+)\.attention\.keys +float32\[R,J,2,16\] +(\w+) +(?:1 x )*(\d+ x \d+) +(\d+)$",
        text.replace(", ", ","),
        re.M,
    )
    assert sorted(rows) == [
        ("layers.0", "window", "4 x 3", str(4 * 3 * 2 * 16 * 4)),
        ("layers.1", "block", "32 x 3", str(32 * 3 * 2 * 16 * 4)),
        ("layers.6", "window", "4 x 1", str(4 * 2 * 16 * 4)),
    ], text


@pytest.mark.parametrize(
    ("name", "settings", "windows"),
    [
        ("qwen3", {"use_sliding_window": False, "layer_types": None}, ()),
        ("qwen3", {"max_window_layers": 1, "layer_types": None}, (None, 4)),
        ("gemma2", {"num_hidden_layers": 3}, (4, None, 4)),
        ("gemma3_text", {}, (4, 4, 4, 4, 4, None, 4)),
        ("gemma3_text", {"sliding_window_pattern": 2, "num_hidden_layers": 3}, (4, None, 4)),
        ("phi3", {"sliding_window": None}, ()),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 9}, (None, None, None, 9)),
        ("smollm3", {"use_sliding_window": False, "sliding_window": 9}, ()),
        ("olmo2", {}, ()),
        ("olmo3", {}, (4, 4, 4, None, 4)),
        ("ministral3", {}, (6, 6)),
        ("qwen3_5_text", {}, ()),
        ("gpt_oss", {"num_hidden_layers": 3}, (4, None, 4)),
    ],
)
def test_windows(name: str, settings: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert LlamaConfig.from_values(config(name, settings)).windows == windows


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gemma2", {"hidden_activation": "silu"}, "hidden_activation is 'silu'; .* with 'gelu_pytorch_tanh'"),
        ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1.0; it must be a positive number"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true, which is not supported"),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": 3}},
            "rope_parameters has 3 for full_attention; it must be an object",
        ),
        (
            "phi3",
            {"rope_scaling": {**LONG, "long_factor": [1.0]}},
            r"needs long_factor, a list of 2 positive numbers; it is \[1.0\]",
        ),
        ("phi3", {"rope_scaling": {**LONG, "short_factor": [1.0, -1.0]}}, "needs short_factor"),
        ("phi3", {"partial_rotary_factor": 0.2}, "0.2 of a head of 8 elements is 1"),
        ("phi3", {"partial_rotary_factor": "half"}, "partial_rotary_factor is 'half'; it must be a positive number"),
        (
            "qwen3_5_text",
            {"layer_types": ["sliding_attention"] * 3},
            "layer_types must name 3 layers, each full_attention or linear_attention",
        ),
        ("qwen3_5_text", {"linear_num_key_heads": 3}, "linear_num_value_heads = 4 is not a multiple of linear_num_key_heads = 3"),
        ("qwen3_next", {"num_experts_per_tok": 6}, "num_experts_per_tok is 6, but there are 5 experts"),
        ("qwen3_next", {"mlp_only_layers": 1}, "mlp_only_layers is 1; it must be a list"),
        ("gpt_oss", {"num_experts_per_tok": 6}, "num_experts_per_tok is 6, but there are 5 experts"),
        ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, r"the weights are quantized \(mxfp4\)"),
        ("olmo3", {"layer_types": ["full_attention"] * 4}, "layer_types must name 5 layers"),
        ("smollm3", {"no_rope_layers": [1]}, r"no_rope_layers is \[1\]; it must be 4 numbers"),
        ("smollm3", {"no_rope_layer_interval": 0}, "no_rope_layer_interval is 0; it must be a positive integer"),
    ],
)
def test_mistakes_are_named(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        LlamaConfig.from_values(config(name, settings))
