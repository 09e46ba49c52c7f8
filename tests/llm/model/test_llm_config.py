"""config.json: the values that are read, those that are refused, and the texts of refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_core.nn import RopeScaling, inverse_frequencies
from tempo_llm import Attention, LlamaConfig, ModelConfigError
from tests.llm import oracle


def test_sizes_and_defaults(values: dict[str, Any]) -> None:
    del values["num_key_value_heads"], values["rope_theta"]
    config = LlamaConfig.from_values(values)
    assert (config.num_key_value_heads, config.head_dim, config.group_size) == (4, 8, 1)
    assert config.rope_theta == 10000.0 and config.rope_scaling == RopeScaling()
    assert config.tie_word_embeddings is None and not config.attention_bias


def test_explicit_head_dim_is_kept(values: dict[str, Any]) -> None:
    assert LlamaConfig.from_values({**values, "head_dim": 16}).head_dim == 16


def test_end_tokens_of_both_files_are_joined(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**values, "eos_token_id": 2}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert LlamaConfig.from_directory(tmp_path).eos_ids == (2, 7, 9)


def test_no_end_token(values: dict[str, Any]) -> None:
    assert LlamaConfig.from_values({**values, "eos_token_id": None}).eos_ids == ()


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_in_old_and_new_files(values: dict[str, Any], llama3_scaling: dict[str, Any], key: str) -> None:
    del values["rope_theta"]
    config = LlamaConfig.from_values({**values, key: {**llama3_scaling, "rope_theta": 500000.0}})
    assert config.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 32)
    assert config.rope_theta == 500000.0


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "scaling",
    [None, {"type": "linear", "factor": 4.0}, "llama3", YARN, {**YARN, "beta_fast": 4.0, "beta_slow": 2.0}],
    ids=["default", "linear", "llama3", "yarn", "yarn-betas"],
)
def test_frequencies_match_the_formulas(values: dict[str, Any], llama3_scaling: dict[str, Any], scaling: Any) -> None:
    values |= {"hidden_size": 64, "rope_scaling": llama3_scaling if scaling == "llama3" else scaling}
    config = LlamaConfig.from_values(values)
    if scaling is not None:
        values["rope_scaling"] = {"rope_type": values["rope_scaling"].get("type"), **values["rope_scaling"]}
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    assert frequencies.dtype == np.float32
    np.testing.assert_allclose(frequencies, oracle.inverse_frequencies(values), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "amplitude"),
    [
        ({}, 1 + 0.1 * np.log(4)),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 0.5}, 1 + 0.1 * np.log(4)),
        ({"mscale": 0.5, "mscale_all_dim": 2.0}, (1 + 0.05 * np.log(4)) / (1 + 0.2 * np.log(4))),
        ({"factor": 1.0}, 1.0),
    ],
)
def test_the_amplitude_of_yarn(values: dict[str, Any], change: dict[str, Any], amplitude: float) -> None:
    scaling = LlamaConfig.from_values({**values, "rope_scaling": {**YARN, **change}}).rope_scaling
    assert scaling.amplitude == pytest.approx(amplitude) and RopeScaling("linear", 4.0).amplitude == 1.0
    context = LlamaConfig.from_values({**values, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    assert context.rope_scaling.original_max_position_embeddings == values["max_position_embeddings"]


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({}, ()),
        ({"model_type": "mistral"}, (4096, 4096)),
        ({"model_type": "mistral", "sliding_window": 2**32}, (2**28, 2**28)),  # all of any context
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"model_type": "mistral", "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, (None, 8)),
        ({"model_type": "qwen2", "sliding_window": 8}, ()),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True}, ()),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (None, 8)),
    ],
)
def test_windows_by_layer(values: dict[str, Any], change: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    config = LlamaConfig.from_values({**values, **change})
    assert config.windows == windows
    patterns = Attention.of_windows(windows).by_layer(2)
    assert [p.name for p in patterns] == [f"window({w})" if w else "causal" for w in windows or (None, None)]


def test_biases_of_families(values: dict[str, Any]) -> None:
    assert not LlamaConfig.from_values(values).attention_bias
    qwen, llama = (LlamaConfig.from_values({**values, **c}) for c in ({"model_type": "qwen2"}, {"attention_bias": True}))
    assert (qwen.attention_bias, qwen.has_output_bias, llama.has_output_bias) == (True, False, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2', which is not supported; the types are llama, mistral, qwen2"),
        ({"model_type": ["llama"]}, "model_type is \\['llama'\\]"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantized \(gptq\)"),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "rope type 'dynamic' is not supported; the types are default, linear, llama3, yarn",
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs low_freq_factor, high_freq_factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor >= 1"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads = 3"),
        ({"hidden_size": 33}, "hidden_size = 33 is not a multiple of num_attention_heads = 4"),
        ({"head_dim": 7}, "head_dim = 7 is odd"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be a positive integer"),
        ({"eos_token_id": "</s>"}, "eos_token_id is"),
        ({"eos_token_id": [-1]}, "eos_token_id is"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; no model has more than 4096"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1; it must be a positive number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_scaling": 4.0}, "rope_scaling is 4.0; it must be an object"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, r"needs factor \(it is '2'\)"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0, "beta_slow": 2.0}}, "0 < beta_slow < beta_fast"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, which is not supported"),
        ({"attention_bias": "yes"}, "attention_bias is 'yes'; it must be true or false"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1"),
        ({"quantization_config": [1]}, r"quantized \(unknown\)"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0; it must be a positive integer, or null"),
        ({"model_type": "mistral", "layer_types": ["full_attention"]}, "layer_types must name 2 layers"),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -1}, "max_window_layers is -1"),
    ],
)
def test_refusals_name_the_field(values: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        LlamaConfig.from_values({**values, **change}, source="somewhere/config.json")


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"config.json does not exist"):
        LlamaConfig.from_directory(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(ModelConfigError, match="is not valid JSON"):
        LlamaConfig.from_directory(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelConfigError, match="not an object"):
        LlamaConfig.from_directory(tmp_path)
