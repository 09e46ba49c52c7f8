"""Writing model directories in Hugging Face's layout: what `tempo_llm.load` and `transformers` read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tempo_core.files import refusal, write_whole
from tempo_core.runs.commands import RunError
from tempo_llm.checkpoint import DTYPES, EMBEDDING, FINAL_NORM, HEAD, layer_weights
from tempo_llm.config import LlamaConfig


def save_model(
    directory: Path,
    config: LlamaConfig,
    weights: Mapping[str, np.ndarray],
    dtype: str,
    files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write config.json, generation_config.json and model.safetensors; and further `files` by name, such as tokenizer.json.

    A file that `files` has is written as it is there.

    The directory is created, and none above it. `weights` are float32, by the names of `checkpoint.load_weights`; they are stored as `dtype`.
    Each file is whole or not there. Raises RunError if the directory cannot be written.
    """
    ends = list(config.eos_ids)
    values = {**_config_values(config), "dtype": dtype, "torch_dtype": dtype}
    generation = {"bos_token_id": config.bos_id, "eos_token_id": ends[0] if len(ends) == 1 else ends, "do_sample": False}
    arrays = {name: array.astype(DTYPES[dtype]) for name, array in file_tensors(config, weights).items()}
    described: dict[str, str | bytes] = {
        "generation_config.json": _json(generation),
        "config.json": _json(values),
        **(files or {}),
    }
    config_json = described.pop("config.json")
    tensors = safetensors.numpy.save(arrays, metadata={"format": "pt"})
    write_files(directory, {"model.safetensors": tensors, **described, "config.json": config_json})


def write_files(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Write the files of a model. The directory is created, and none above it: a run that was renamed is not begun anew. Raises RunError."""
    try:
        directory.mkdir(exist_ok=True)
        for name, content in files.items():
            write_whole(directory / name, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise RunError(f"the model {directory} cannot be written: {refusal(error, directory)}") from error


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()


def _config_values(config: LlamaConfig) -> dict[str, Any]:
    """The content of config.json of a Llama model."""
    ends = list(config.eos_ids)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": bool(config.tie_word_embeddings),
        "bos_token_id": config.bos_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
    }


def file_tensors(config: LlamaConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint by their names in the file: matrices are [out, in] there."""
    head = np.ascontiguousarray(weights["head.weight"].T)
    tensors = {FINAL_NORM: weights["final_norm.weight"], EMBEDDING: weights.get("embedding.weight", head)}
    if "embedding.weight" in weights:
        tensors[HEAD] = head
    rows = Counter[str]()  # of each weight that are written
    for layer in range(config.num_hidden_layers):
        for name, weight in layer_weights(config, layer).items():
            weight.write(weights[name][rows[name]], tensors, f"model.layers.{layer}.")
            rows[name] += 1
    return tensors
