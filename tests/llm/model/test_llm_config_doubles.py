"""A config.json that says a thing twice: what both say together, or an error that names both keys; and what it accepts equals `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_core.nn import inverse_frequencies
from tempo_llm import LlamaConfig, ModelConfigError
from tempo_llm.checkpoint import is_tied
from tempo_llm.layer import Rope

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
OTHER_YARN = {**YARN, "factor": 8.0}
LONG = {"type": "longrope", "short_factor": [1.0, 1.0, 2.0, 2.0], "long_factor": [2.0, 3.0, 4.0, 5.0]}
SLID = ["sliding_attention", "full_attention"] * 2
FULL = ["full_attention"] * 4


def both(full: dict[str, Any], slid: dict[str, Any]) -> dict[str, Any]:
    return {"full_attention": full, "sliding_attention": slid}


def config(family: str, **changes: Any) -> LlamaConfig:
    return LlamaConfig.from_values({**SIZES, "model_type": family, **changes})


# What is said in two ways, and in one.
TOGETHER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama", {"rope_theta": 5e5, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, {"rope_theta": 5e5}),
    ("llama", {"rope_theta": 5e5, "rope_parameters": LINEAR}, {"rope_theta": 5e5, "rope_scaling": LINEAR}),
    ("llama", {"rope_scaling": {}, "rope_parameters": {**YARN, "rope_theta": 7}}, {"rope_theta": 7, "rope_scaling": YARN}),
    ("llama", {"rope_scaling": None, "rope_parameters": LINEAR}, {"rope_scaling": LINEAR}),
    ("llama", {"rope_scaling": {**LINEAR, "type": "linear"}}, {"rope_scaling": LINEAR}),
    ("llama", {"rope_scaling": LINEAR, "rope_theta": 9, "rope_parameters": {**LINEAR, "rope_theta": 9}},
     {"rope_scaling": LINEAR, "rope_theta": 9}),
    ("llama", {"rope_scaling": YARN, "rope_parameters": {**YARN, "beta_fast": 32.0, "beta_slow": 1.0}}, {"rope_scaling": YARN}),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 64}, {"rope_scaling": YARN}),
    ("llama", {"rope_scaling": YARN, "original_max_position_embeddings": 64}, {"rope_scaling": YARN}),
    ("llama", {"rope_parameters": both(LINEAR, LINEAR)}, {"rope_parameters": LINEAR}),
    ("llama", {"dtype": "float16", "torch_dtype": "float16", "text_config": {"hidden_size": 32, "rope_scaling": None}}, {}),
    ("llama", {"head_dim": None, "tie_word_embeddings": None}, {}),
    ("phi3", {"rope_scaling": {**LONG, "type": "su"}, "original_max_position_embeddings": 64},
     {"rope_parameters": LONG, "original_max_position_embeddings": 64}),
    ("phi3", {"rope_scaling": {**LONG, "type": "su", "rope_type": "longrope"}}, {"rope_parameters": LONG}),
    ("phi3", {"rope_parameters": {**LONG, "rope_type": "yarn", "type": "yarn"}}, {"rope_parameters": LONG}),
    ("qwen2", {"layer_types": FULL, "sliding_window": 8, "max_window_layers": 1}, {}),
    ("qwen2", {"layer_types": SLID, "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 28},
     {"layer_types": SLID, "sliding_window": 8, "use_sliding_window": True}),
    ("qwen3", {"layer_types": ["attention"] * 4}, {}),
    ("gemma3_text", {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_parameters": both({"rope_theta": 1e6}, {"rope_theta": 1e4})},
     {}),
    ("gemma3_text", {"rope_scaling": LINEAR, "rope_parameters": both({**LINEAR, "rope_theta": 1e6}, {"rope_theta": 1e4})},
     {"rope_scaling": LINEAR}),
    ("gemma3_text", {"sliding_window_pattern": 6, "layer_types": SLID}, {"layer_types": SLID}),
    ("olmo3", {"rope_scaling": YARN, "rope_theta": 5e5},
     {"rope_parameters": both({**YARN, "rope_theta": 5e5}, {"rope_theta": 5e5})}),
    ("qwen3_next", {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 9}},
     {"rope_theta": 9, "partial_rotary_factor": 0.5}),
    ("smollm3", {"no_rope_layers": [1, 0, 1, 1], "no_rope_layer_interval": 4}, {"no_rope_layers": [1, 0, 1, 1]}),
    ("gpt_oss", {"num_experts": 8, "num_local_experts": 8, "rope_scaling": {}}, {"num_local_experts": 8}),
    ("gpt_oss", {"num_experts": 8}, {"num_local_experts": 8}),
    ("ministral3", {"rope_theta": 1e6}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "twice", "once"), TOGETHER, ids=range(len(TOGETHER)))
def test_what_both_say(family: str, twice: dict[str, Any], once: dict[str, Any]) -> None:
    assert config(family, **twice) == config(family, **once)


# What contradicts itself, and the keys that the error names.
APART: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("llama", {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
     ("rope_theta is 10000", "rope_parameters.rope_theta is 500000")),
    ("llama", {"rope_theta": 1e4, "rope_scaling": {**LINEAR, "rope_theta": 5e5}},
     ("rope_theta is 10000", "rope_scaling.rope_theta is 500000")),
    ("llama", {"rope_scaling": YARN, "rope_parameters": OTHER_YARN},
     ("factor is 4.0 in rope_scaling, and 8.0 in rope_parameters",)),
    ("llama", {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default"}},
     ("rope_scaling and rope_parameters", "'linear'", "'default'")),
    ("llama", {"rope_scaling": LINEAR, "rope_parameters": {"rope_theta": 5e5}},
     ("rope_scaling and rope_parameters", "rope_type is 'linear'")),
    ("llama", {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 4.0}},
     ("rope_scaling.rope_type is 'yarn'", "rope_scaling.type is 'linear'")),
    ("llama", {"rope_scaling": {"factor": 4.0}}, ("rope_scaling has no rope_type, but rope_scaling.factor is 4.0",)),
    ("llama", {"rope_parameters": {"rope_type": "default", "factor": 4.0}},
     ("rope_parameters.rope_type is 'default'", "rope_parameters.factor is 4.0")),
    ("llama", {"rope_parameters": {"type": "default", "long_factor": [2.0]}},
     ("rope_parameters.type is 'default'", "rope_parameters.long_factor")),
    ("llama", {"original_max_position_embeddings": 32, "rope_scaling": YARN},
     ("original_max_position_embeddings is 32", "rope_scaling.original_max_position_embeddings is 64")),
    ("llama", {"rope_parameters": both(LINEAR, {"rope_type": "default"})},
     ("different settings for full_attention and sliding_attention",)),
    ("llama", {"dtype": "float16", "torch_dtype": "bfloat16"}, ("dtype is 'float16'", "torch_dtype is 'bfloat16'")),
    ("llama", {"text_config": {"hidden_size": 64}}, ("text_config.hidden_size is 64, but hidden_size is 32",)),
    ("llama", {"text_config": {"rope_scaling": LINEAR}}, ("text_config.rope_scaling", "but rope_scaling is None")),
    ("llama", {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}},
     ("text_config.tie_word_embeddings is True, but tie_word_embeddings is False",)),
    ("phi3", {"original_max_position_embeddings": 32, "rope_scaling": {**LONG, "original_max_position_embeddings": 64}},
     ("original_max_position_embeddings is 32", "rope_scaling.original_max_position_embeddings is 64")),
    ("phi3", {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0}},
     ("partial_rotary_factor is 0.5", "rope_parameters.partial_rotary_factor is 1.0")),
    ("qwen2", {"layer_types": SLID, "sliding_window": 8}, ("layer_types names sliding_attention", "use_sliding_window")),
    ("qwen3", {"layer_types": SLID, "sliding_window": None, "use_sliding_window": True},
     ("layer_types names sliding_attention", "sliding_window")),
    ("smollm3", {"layer_types": SLID, "sliding_window": 8}, ("layer_types names sliding_attention", "use_sliding_window")),
    ("mistral", {"layer_types": SLID, "sliding_window": None}, ("layer_types names sliding_attention", "sliding_window")),
    ("gemma3_text", {"rope_parameters": LINEAR}, ("rope_parameters has rope_type, factor", "two kinds")),
    ("gemma3_text", {"rope_parameters": {**both(LINEAR, {}), "rope_theta": 5}},
     ("rope_parameters has rope_theta beside full_attention",)),
    ("gemma3_text", {"rope_local_base_freq": 2e4, "rope_parameters": both({}, {"rope_theta": 1e4})},
     ("rope_local_base_freq is 20000", "rope_parameters.sliding_attention.rope_theta is 10000")),
    ("gemma3_text", {"rope_scaling": LINEAR, "rope_parameters": both({"rope_theta": 1e6}, {})},
     ("rope_scaling and rope_parameters",)),
    ("olmo3", {"rope_theta": 1e4, "rope_parameters": both({"rope_theta": 5e5}, {})},
     ("rope_theta is 10000", "rope_parameters.full_attention.rope_theta is 500000")),
    ("gpt_oss", {"num_experts": 8, "num_local_experts": 4}, ("num_local_experts is 4", "num_experts is 8")),
    ("ministral3", {"rope_theta": 5e5}, ("rope_theta is 500000", "rope_parameters.rope_theta is 1000000")),
    ("ministral3", {"rope_scaling": {**YARN, "llama_4_scaling_beta": 0.1}, "rope_parameters": YARN},
     ("llama_4_scaling_beta is 0.1 in rope_scaling",)),
]  # fmt: skip


@pytest.mark.parametrize(("family", "changes", "words"), APART, ids=range(len(APART)))
def test_what_contradicts_itself_is_an_error(family: str, changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ModelConfigError) as caught:
        config(family, **changes)
    assert all(each in str(caught.value) for each in words), caught.value


def test_a_head_in_the_file_is_the_head() -> None:
    """`tie_word_embeddings` beside a head tensor: the tensor counts, as in `transformers`; without one, the embedding does."""
    for tied in (True, False, None):
        assert not is_tied({"lm_head.weight": None}, config("llama", tie_word_embeddings=tied))
    assert [is_tied({}, config("llama", tie_word_embeddings=tied)) for tied in (True, None, False)] == [True, True, False]


# -- beside transformers --------------------------------------------------------------------------------------------------


def drawn(random: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A family, and keys that may say things twice."""
    family = str(random.choice(["llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "smollm3", "olmo2", "gpt_oss"]))
    scalings = [
        LINEAR,
        YARN,
        OTHER_YARN,
        {"type": "linear", "factor": 4.0},
        {**LINEAR, "rope_theta": 9e4},
        {"rope_type": "default"},
        {},
        None,
    ]
    scalings = [LONG, {**LONG, "type": "su"}, {"rope_type": "default"}, {}, None] if family == "phi3" else scalings
    kinds = [["full_attention"] * 4, SLID, ["sliding_attention"] * 4, None]
    values: dict[str, Any] = {
        "rope_scaling": scalings[random.integers(len(scalings))],
        "rope_parameters": scalings[random.integers(len(scalings))],
        "rope_theta": random.choice([1e4, 9e4]),
        "sliding_window": [None, 8, 16][random.integers(3)],
        "use_sliding_window": bool(random.integers(2)),
        "max_window_layers": int(random.integers(5)),
        "layer_types": kinds[random.integers(4)],
        "original_max_position_embeddings": 64,
    }
    if family in ("mistral", "phi3"):  # there, `transformers` does not read `layer_types`
        del values["layer_types"]
    return family, {key: value for key, value in values.items() if random.random() < 0.5}


def frequencies(rope: Rope) -> tuple[np.ndarray, float]:
    """Of a text that is short."""
    if rope.long is not None:
        return inverse_frequencies(rope.width, rope.theta) / np.asarray(rope.long.short), rope.long.amplitude
    return inverse_frequencies(rope.width, rope.theta, rope.scaling), rope.scaling.amplitude


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_what_is_accepted_is_that_of_transformers(tmp_path: Path) -> None:
    """Frequencies and windows of 200 random files. What one of the two refuses is not compared."""
    import importlib

    from transformers import AutoConfig

    random, accepted = np.random.default_rng(5), 0
    for _ in range(200):
        family, changes = drawn(random)
        values = {**SIZES, "model_type": family, "head_dim": 8, **changes}
        try:
            ours = LlamaConfig.from_values(values)
        except ModelConfigError:
            continue
        (tmp_path / "config.json").write_text(json.dumps(values))
        try:
            theirs = AutoConfig.from_pretrained(tmp_path)
        except Exception:  # it has many kinds of errors for them
            continue
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        (name,) = (name for name in vars(module) if name.endswith("RotaryEmbedding"))
        turns = getattr(module, name)(theirs)
        turned, amplitude = frequencies(ours.rope)
        np.testing.assert_allclose(turned, turns.inv_freq.numpy(), rtol=1e-5, err_msg=str(values))
        assert amplitude == pytest.approx(turns.attention_scaling), values
        kinds = getattr(theirs, "layer_types", None) or ["sliding_attention"] * 4
        has_windows = family not in ("llama", "olmo2")
        windows = [theirs.sliding_window if has_windows and kind == "sliding_attention" else None for kind in kinds]
        assert ours.windows == (tuple(windows) if any(windows) else ()), values
        accepted += 1
    assert accepted > 40
