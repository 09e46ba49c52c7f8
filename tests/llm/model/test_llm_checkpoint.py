"""Checkpoints: correct layouts, dtypes and shards, and every kind of damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tempo_llm import CheckpointError, LlamaConfig, load_weights


def load(directory: Path) -> dict[str, np.ndarray]:
    return load_weights(directory, LlamaConfig.from_directory(directory))


def test_layers_are_stacked_and_matrices_turned(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors(values)
    weights = load(write_model(values, tensors))
    assert {name: weight.shape for name, weight in weights.items()} == {
        "attention_norm.weight": (2, 32),
        "attention.query.weight": (2, 32, 32),
        "attention.key.weight": (2, 32, 16),
        "attention.value.weight": (2, 32, 16),
        "attention.output.weight": (2, 32, 32),
        "mlp_norm.weight": (2, 32),
        "mlp.gate.weight": (2, 32, 48),
        "mlp.up.weight": (2, 32, 48),
        "mlp.down.weight": (2, 48, 32),
        "final_norm.weight": (32,),
        "head.weight": (32, 96),
        "embedding.weight": (96, 32),
    }
    np.testing.assert_array_equal(weights["mlp.down.weight"][1], tensors["model.layers.1.mlp.down_proj.weight"].T)
    np.testing.assert_array_equal(weights["head.weight"], tensors["lm_head.weight"].T)
    np.testing.assert_array_equal(weights["embedding.weight"], tensors["model.embed_tokens.weight"])


def test_biases_are_read_where_the_configuration_has_them(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    values |= {"attention_bias": True, "mlp_bias": True}
    weights = load(write_model(values, random_tensors(values)))
    assert weights["attention.key.bias"].shape == (2, 16) and weights["mlp.up.bias"].shape == (2, 48)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_other_floats_become_float32(values: dict[str, Any], random_tensors: Any, write_model: Any, dtype: Any) -> None:
    tensors = {name: tensor.astype(dtype) for name, tensor in random_tensors(values).items()}
    weights = load(write_model(values, tensors))
    assert all(weight.dtype == np.float32 for weight in weights.values())
    np.testing.assert_array_equal(
        weights["mlp.gate.weight"][0], tensors["model.layers.0.mlp.gate_proj.weight"].T.astype(np.float32)
    )


def test_integer_weights_are_refused(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors(values)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int8)
    with pytest.raises(CheckpointError, match=r"tensor model.norm.weight has dtype I8; supported are F64, F32, F16, BF16"):
        load(write_model(values, tensors))


# -- the head ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [None, True])
def test_without_a_head_the_embedding_is_the_head(
    values: dict[str, Any], random_tensors: Any, write_model: Any, setting: Any
) -> None:
    tensors = random_tensors(values, tied=True)
    weights = load(write_model({**values, "tie_word_embeddings": setting}, tensors))
    assert "embedding.weight" not in weights
    np.testing.assert_array_equal(weights["head.weight"], tensors["model.embed_tokens.weight"].T)


def test_a_head_that_is_there_is_used(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors(values)
    weights = load(write_model({**values, "tie_word_embeddings": True}, tensors))
    np.testing.assert_array_equal(weights["head.weight"], tensors["lm_head.weight"].T)


def test_a_head_that_should_be_there_is_missing(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    with pytest.raises(CheckpointError, match=r"1 missing: lm_head.weight"):
        load(write_model({**values, "tie_word_embeddings": False}, random_tensors(values, tied=True)))


# -- tensors that do not fit ------------------------------------------------------------------------------------------


def test_one_error_lists_everything_that_does_not_fit(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors(values)
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(8, np.float32)
    tensors["model.norm.weight"] = np.ones(31, np.float32)
    with pytest.raises(CheckpointError) as caught:
        load(write_model(values, tensors))
    text = str(caught.value)
    assert "1 missing: model.layers.1.self_attn.k_proj.weight" in text
    assert "1 unused: model.layers.0.self_attn.q_norm.weight" in text
    assert "1 of the wrong shape: model.norm.weight is [31] and should be [32]" in text


def test_too_many_layers_are_unused_and_shortened(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors({**values, "num_hidden_layers": 4})
    with pytest.raises(CheckpointError, match=r"18 unused: .* and 6 more"):
        load(write_model(values, tensors))


def test_rotary_buffers_of_old_checkpoints_are_no_error(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    tensors = random_tensors(values)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    assert "attention.query.weight" in load(write_model(values, tensors))


# -- damaged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_files(values: dict[str, Any], random_tensors: Any, write_model: Any, size: int) -> None:
    directory = write_model(values, random_tensors(values))
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged, truncated or not a safetensors file"):
        load(directory)


def test_a_header_that_lies_about_sizes(values: dict[str, Any], write_model: Any) -> None:
    directory = write_model(values, {})
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [32], "data_offsets": [0, 64]}}).encode()
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(CheckpointError, match="damaged, truncated or not a safetensors file"):
        load(directory)


@pytest.mark.parametrize(
    "header",
    [b"not json", b"[1, 2]", b'{"a": {"dtype": "F32"}}', b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}'],
)
def test_headers_that_cannot_be_read(values: dict[str, Any], write_model: Any, header: bytes) -> None:
    directory = write_model(values, {})
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CheckpointError, match="damaged, truncated or not a safetensors file"):
        load(directory)


def test_no_weights(values: dict[str, Any], write_model: Any) -> None:
    directory = write_model(values, {})
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="PyTorch pickle files are not read"):
        load(directory)


# -- shards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(
    values: dict[str, Any], random_tensors: Any, write_model: Any, write_tensors: Any
) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint in two files with an index."""
    tensors = random_tensors(values)
    directory = write_model(values, {})
    (directory / "model.safetensors").unlink()
    weight_map = {}
    for number in range(2):
        shard = f"model-0000{number + 1}-of-00002.safetensors"
        part = {name: tensor for k, (name, tensor) in enumerate(tensors.items()) if k % 2 == number}
        write_tensors(directory / shard, part)
        weight_map |= dict.fromkeys(part, shard)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return directory, tensors


def test_shards_are_one_model(sharded: tuple[Path, dict[str, np.ndarray]]) -> None:
    directory, tensors = sharded
    weights = load(directory)
    for layer in range(2):
        np.testing.assert_array_equal(
            weights["attention.value.weight"][layer], tensors[f"model.layers.{layer}.self_attn.v_proj.weight"].T
        )


def test_a_missing_shard_is_named(sharded: tuple[Path, dict[str, np.ndarray]]) -> None:
    directory, _ = sharded
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"files that are not there: model-00002-of-00002.safetensors"):
        load(directory)


def test_an_index_that_places_tensors_wrongly(sharded: tuple[Path, dict[str, np.ndarray]]) -> None:
    directory, _ = sharded
    index = directory / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = dict.fromkeys(content["weight_map"], "model-00001-of-00002.safetensors")
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="places tensors in files that lack them"):
        load(directory)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="needs an object `weight_map`"):
        load(directory)
