"""Hugging Face checkpoints as input arrays of the program: float32, the weights of the layers stacked to (layers, ...).

A matrix is stored [in, out], so that `x @ w` reads it in order: on CPU a matrix-vector product is then about twice as fast
as with Hugging Face's [out, in]. Matrices are transposed once, here, and not in the decoding loop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tempo_llm.config import LlamaConfig
from tempo_llm.errors import CheckpointError
from tempo_llm.tensor_file import TensorFile

IGNORED_SUFFIX = "rotary_emb.inv_freq"  # a buffer in old checkpoints; its values follow from the configuration
EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class Weight:
    """One tensor of the model: its name in the file, and its shape there."""

    source: str
    shape: tuple[int, ...]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Matrices turn from [out, in] to [in, out]; vectors stay."""
        return self.shape[::-1]


def layer_weights(config: LlamaConfig) -> dict[str, Weight]:
    """The weights of one layer, by their names in `tempo_llm.llama`. Names in the file are relative to `model.layers.N.`."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    matrices = {
        "attention.query": ("self_attn.q_proj", queries, hidden, config.attention_bias),
        "attention.key": ("self_attn.k_proj", keys, hidden, config.attention_bias),
        "attention.value": ("self_attn.v_proj", keys, hidden, config.attention_bias),
        "attention.output": ("self_attn.o_proj", hidden, queries, config.attention_bias),
        "mlp.gate": ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        "mlp.up": ("mlp.up_proj", inner, hidden, config.mlp_bias),
        "mlp.down": ("mlp.down_proj", hidden, inner, config.mlp_bias),
    }
    weights = {
        "attention_norm.weight": Weight("input_layernorm.weight", (hidden,)),
        "mlp_norm.weight": Weight("post_attention_layernorm.weight", (hidden,)),
    }
    for name, (source, size_out, size_in, has_bias) in matrices.items():
        weights[f"{name}.weight"] = Weight(f"{source}.weight", (size_out, size_in))
        if has_bias:
            weights[f"{name}.bias"] = Weight(f"{source}.bias", (size_out,))
    return weights


def load_weights(directory: str | Path, config: LlamaConfig) -> dict[str, np.ndarray]:
    """All weights of the model in `directory`, as float32 arrays by their names in `tempo_llm.llama`.

    The weights of the layers have shape (layers, ...). `final_norm.weight` is (hidden,), `head.weight` (hidden, vocabulary) and,
    unless the head is tied to it, `embedding.weight` (vocabulary, hidden). Raises one `CheckpointError` that lists every missing
    tensor, every unused one, and every one of the wrong shape.
    """
    tensors = _open(Path(directory))
    layers = layer_weights(config)
    tied = is_tied(tensors, config)
    shapes = {FINAL_NORM: (config.hidden_size,), EMBEDDING: (config.vocab_size, config.hidden_size)}
    if not tied:
        shapes[HEAD] = shapes[EMBEDDING]
    for number in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{number}.{w.source}": w.shape for w in layers.values()}
    _check(tensors, shapes, directory)

    weights = {"final_norm.weight": _convert(tensors, FINAL_NORM)}
    weights["head.weight"] = _convert(tensors, EMBEDDING if tied else HEAD)
    if not tied:
        weights["embedding.weight"] = np.ascontiguousarray(tensors[EMBEDDING].read(EMBEDDING).astype(np.float32))
    for name, weight in layers.items():
        stacked = np.empty((config.num_hidden_layers, *weight.stored_shape), np.float32)
        for number in range(config.num_hidden_layers):
            source = f"model.layers.{number}.{weight.source}"
            stacked[number] = tensors[source].read(source).T
        weights[name] = stacked
    return weights


def is_tied(names: Mapping[str, object], config: LlamaConfig) -> bool:
    """Whether the head is the embedding: there is no head tensor, and the configuration does not say "not tied".

    If it does say so, the absent head is an error; the embedding does not silently replace it.
    """
    return HEAD not in names and config.tie_word_embeddings is not False


def _convert(tensors: Mapping[str, Readable], name: str) -> np.ndarray:
    return np.ascontiguousarray(tensors[name].read(name).T.astype(np.float32))


# -- files ------------------------------------------------------------------------------------------------------------


class Readable(Protocol):
    """A file that holds tensors."""

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> np.ndarray: ...


def _open(directory: Path) -> dict[str, Readable]:
    """Each tensor name of the checkpoint, with the file that holds it."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.exists():
        file = TensorFile(single)
        return dict.fromkeys(file.names, file)
    if index.exists():
        return _open_shards(directory, index)
    hint = "a checkpoint directory holds model.safetensors, or shards with model.safetensors.index.json"
    if list(directory.glob("*.bin")) or list(directory.glob("*.pth")):
        hint += "; PyTorch pickle files are not read: convert them with transformers' save_pretrained"
    raise CheckpointError(f"no weights in {directory}", hint=hint)


def _open_shards(directory: Path, index: Path) -> dict[str, Readable]:
    try:
        weight_map: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{index} cannot be read: {error!r}", hint="it needs an object `weight_map`") from None
    shards = sorted(set(weight_map.values()))
    absent = [shard for shard in shards if not (directory / shard).is_file()]
    if absent:
        raise CheckpointError(f"{index} names files that are not there: {', '.join(absent)}", hint="download the missing shards")
    files = {shard: TensorFile(directory / shard) for shard in shards}
    lost = [name for name, shard in weight_map.items() if name not in files[shard].names]
    if lost:
        raise CheckpointError(f"{index} places tensors in files that lack them: {_shorten(lost)}")
    return {name: files[shard] for name, shard in weight_map.items()}


def _check(tensors: Mapping[str, Readable], shapes: Mapping[str, tuple[int, ...]], directory: str | Path) -> None:
    """Compare the tensors with the names and `shapes` that the configuration needs; report all differences in one error."""
    missing = [name for name in shapes if name not in tensors]
    unused = [name for name in tensors if name not in shapes and not name.endswith(IGNORED_SUFFIX)]
    misshapen = [
        f"{name} is {list(tensors[name].shape(name))} and should be {list(shape)}"
        for name, shape in shapes.items()
        if name in tensors and tensors[name].shape(name) != shape
    ]
    groups = {"missing": missing, "unused": unused, "of the wrong shape": misshapen}
    parts = [f"{len(names)} {what}: {_shorten(names)}" for what, names in groups.items() if names]
    if parts:
        raise CheckpointError(
            f"the tensors in {directory} do not fit config.json\n  " + "\n  ".join(parts),
            hint="config.json and the weights must come from the same model",
        )


def _shorten(names: list[str], limit: int = 12) -> str:
    listed = ", ".join(sorted(names)[:limit])
    return listed if len(names) <= limit else f"{listed}, and {len(names) - limit} more"
