"""Tiny models for the tests: random weights in Hugging Face's layout, and a byte-pair tokenizer that is trained here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

VALUES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}

LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

TEXT = ["the quick brown fox jumps over the lazy dog", "a lazy dog sleeps all day long", "foxes and dogs run in the brown woods"]


NORMS = {  # of a layer, by model_type, where they are not Llama's
    "gemma2": ("input", "post_attention", "pre_feedforward", "post_feedforward"),
    "gemma3_text": ("input", "post_attention", "pre_feedforward", "post_feedforward"),
    "olmo2": ("post_attention", "post_feedforward"),
    "olmo3": ("post_attention", "post_feedforward"),
}


def is_linear(values: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer has a Gated DeltaNet."""
    return values["model_type"] in ("qwen3_5_text", "qwen3_next") and values["layer_types"][layer] == "linear_attention"


def linear_shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a Gated DeltaNet."""
    hidden, heads = values["hidden_size"], values["linear_num_value_heads"]
    keys = values["linear_num_key_heads"] * values["linear_key_head_dim"]
    size = heads * values["linear_value_head_dim"]
    apart = {"in_proj_qkv": 2 * keys + size, "in_proj_z": size, "in_proj_b": heads, "in_proj_a": heads}
    fused = {"in_proj_qkvz": 2 * keys + 2 * size, "in_proj_ba": 2 * heads}
    return {
        **{name: (rows, hidden) for name, rows in (fused if values["model_type"] == "qwen3_next" else apart).items()},
        "out_proj": (hidden, size),
        "conv1d.weight": (2 * keys + size, 1, values["linear_conv_kernel_dim"]),
        "norm.weight": (values["linear_value_head_dim"],),
        "A_log": (heads,),
        "dt_bias": (heads,),
    }


def random_tensors(values: Mapping[str, Any], seed: int = 0, tied: bool = False) -> dict[str, np.ndarray]:
    """Weights under their names in a checkpoint."""
    random = np.random.default_rng(seed)
    kind, hidden, inner, vocabulary = (values[key] for key in ("model_type", "hidden_size", "intermediate_size", "vocab_size"))
    head = values.get("head_dim") or hidden // values["num_attention_heads"]
    queries, keys = head * values["num_attention_heads"], head * values["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    if not tied:
        shapes["lm_head.weight"] = (vocabulary, hidden)
    for layer in range(values["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}_layernorm.weight": (hidden,) for name in NORMS.get(kind, ("input", "post_attention"))}
        if kind in ("qwen3", "gemma3_text", "qwen3_5_text", "qwen3_next") and not is_linear(values, layer):
            shapes |= {f"{at}.self_attn.{name}_norm.weight": (head,) for name in "qk"}
        if kind in ("olmo2", "olmo3"):
            shapes |= {f"{at}.self_attn.{name}_norm.weight": (size,) for name, size in (("q", queries), ("k", keys))}
        matrices = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
        linear = {f"self_attn.{name}_proj": shape for name, shape in matrices.items()}
        linear |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        if kind == "phi3":
            linear = {name: shape for name, shape in linear.items() if name[-6] in "on"}  # o_proj, down_proj
            linear |= {"self_attn.qkv_proj": (queries + 2 * keys, hidden), "mlp.gate_up_proj": (2 * inner, hidden)}
        if is_linear(values, layer):
            linear = {name: shape for name, shape in linear.items() if "mlp" in name}
            linear |= {f"linear_attn.{name}": shape for name, shape in linear_shapes(values).items() if len(shape) == 2}
            others = {f"linear_attn.{name}": shape for name, shape in linear_shapes(values).items() if len(shape) != 2}
            shapes |= {f"{at}.{name}": shape for name, shape in others.items()}
        elif kind in ("qwen3_5_text", "qwen3_next"):
            linear["self_attn.q_proj"] = (2 * queries, hidden)
        if kind == "qwen3_next":
            width, shared = values["moe_intermediate_size"], values["shared_expert_intermediate_size"]
            linear = {name: shape for name, shape in linear.items() if "attn" in name}
            linear |= {"mlp.gate": (values["num_experts"], hidden), "mlp.shared_expert_gate": (1, hidden)}
            for at_expert, rows in [("shared_expert", shared), *((f"experts.{e}", width) for e in range(values["num_experts"]))]:
                linear |= {f"mlp.{at_expert}.{name}_proj": (rows, hidden) for name in ("gate", "up")}
                linear[f"mlp.{at_expert}.down_proj"] = (hidden, rows)
        if kind == "gpt_oss":
            count = values["num_local_experts"]
            linear = {name: shape for name, shape in linear.items() if "attn" in name}
            shapes |= {f"{at}.self_attn.sinks": (values["num_attention_heads"],)}
            shapes |= {f"{at}.mlp.router.weight": (count, hidden), f"{at}.mlp.router.bias": (count,)}
            for name, size_in, size_out in (("gate_up", hidden, 2 * inner), ("down", inner, hidden)):
                shapes[f"{at}.mlp.experts.{name}_proj"] = (count, size_in, size_out)
                shapes[f"{at}.mlp.experts.{name}_proj_bias"] = (count, size_out)
        for name, shape in linear.items():
            shapes[f"{at}.{name}.weight"] = shape
            is_biased = values.get("attention_bias" if "attn" in name else "mlp_bias")
            if is_biased or (kind == "qwen2" and name[-6] in "qkv" and "attn" in name):
                shapes[f"{at}.{name}.bias"] = shape[:1]
    return {name: random.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def tensor_bytes(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file, written by hand from the format's description."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8"}[tensor.dtype.name]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write_model(directory: Path, values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """A checkpoint directory without a tokenizer."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(values))
    (directory / "model.safetensors").write_bytes(tensor_bytes(tensors))
    return directory


def train_tokenizer(directory: Path) -> int:
    """Trains a byte-level BPE tokenizer that prepends `<s>`, and returns the size of its vocabulary."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>", "<user>", "<answer>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer.get_vocab_size()


def whole_model(directory: Path, **settings: Any) -> tuple[Path, dict[str, Any], dict[str, np.ndarray]]:
    """A model directory with everything in it, its `config.json`, and its weights."""
    values = {**VALUES, "vocab_size": 300, **settings}
    tensors = random_tensors(values)
    write_model(directory, values, tensors)
    assert train_tokenizer(directory) <= values["vocab_size"]
    return directory, values, tensors
