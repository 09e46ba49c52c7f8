"""Tiny models for the tests: random weights in Hugging Face's layout, and a byte-pair tokenizer that is trained here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


@pytest.fixture
def values() -> dict[str, Any]:
    """`config.json` of a model with 2 layers and grouped queries."""
    return dict(VALUES)


@pytest.fixture
def llama3_scaling() -> dict[str, Any]:
    return dict(LLAMA3_SCALING)


@pytest.fixture
def random_tensors() -> Callable[..., dict[str, np.ndarray]]:
    """`random_tensors(values, seed=0, tied=False)`: weights under their names in a checkpoint."""

    def make(values: Mapping[str, Any], seed: int = 0, tied: bool = False) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        hidden, inner, vocabulary = values["hidden_size"], values["intermediate_size"], values["vocab_size"]
        keys = hidden // values["num_attention_heads"] * values["num_key_value_heads"]
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
        if not tied:
            shapes["lm_head.weight"] = (vocabulary, hidden)
        for layer in range(values["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            shapes |= {f"{at}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
            matrices = {"q": (hidden, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, hidden)}
            linear = {f"self_attn.{name}_proj": shape for name, shape in matrices.items()}
            linear |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
            for name, shape in linear.items():
                shapes[f"{at}.{name}.weight"] = shape
                if values.get("attention_bias" if "attn" in name else "mlp_bias"):
                    shapes[f"{at}.{name}.bias"] = shape[:1]
        return {name: random.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}

    return make


def tensor_bytes(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file, written by hand from the format's description."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8"}[tensor.dtype.name]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture
def write_tensors() -> Callable[[Path, Mapping[str, np.ndarray]], None]:
    return lambda path, tensors: (path.write_bytes(tensor_bytes(tensors)), None)[1]


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """`write_model(values, tensors)`: a checkpoint directory without a tokenizer."""

    def write(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray], name: str = "model") -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(values))
        (directory / "model.safetensors").write_bytes(tensor_bytes(tensors))
        return directory

    return write


@pytest.fixture
def write_tokenizer() -> Callable[[Path], int]:
    """`write_tokenizer(directory)` trains a byte-level BPE tokenizer that prepends `<s>`, and returns its vocabulary's size."""
    tokenizers = pytest.importorskip("tokenizers")

    def write(directory: Path) -> int:
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

    return write


@pytest.fixture
def whole_model(values: dict[str, Any], random_tensors: Any, write_model: Any, write_tokenizer: Any, tmp_path: Path) -> Path:
    """A model directory with everything in it."""
    values["vocab_size"] = 300
    directory = write_model(values, random_tensors(values))
    assert write_tokenizer(directory) <= values["vocab_size"]
    return directory
