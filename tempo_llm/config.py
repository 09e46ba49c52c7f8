"""Hugging Face `config.json` and `generation_config.json` of a Llama model, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tempo_core.nn import RopeScaling
from tempo_llm.errors import ModelConfigError
from tempo_llm.json_files import JsonObject
from tempo_llm.rope import scaling_from_values


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a Llama model. Fields have the names of `config.json`; `eos_ids` has the end tokens of both files."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool | None = None  # None: not in the file; then the presence of a head tensor decides
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def group_size(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @staticmethod
    def from_directory(directory: str | Path) -> LlamaConfig:
        """The configuration of a checkpoint directory. Raises `ModelConfigError` if it is missing or not supported."""
        path = Path(directory) / "config.json"
        values = _read_json(path)
        generation = path.with_name("generation_config.json")
        return LlamaConfig.from_values(values, _read_json(generation) if generation.exists() else {}, str(path))

    @staticmethod
    def from_values(values: JsonObject, generation: JsonObject | None = None, source: str = "config.json") -> LlamaConfig:
        """The configuration in `values` (and the end tokens of `generation`); errors name `source`."""
        _refuse_unsupported(values, source)
        required = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        missing = [key for key in required if values.get(key) is None]
        if missing:
            raise ModelConfigError(f"{source} lacks {', '.join(missing)}")
        sizes = {key: _positive(values, key, source) for key in required}
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        kv_heads = _positive(values, "num_key_value_heads", source, default=heads)
        if heads % kv_heads:
            raise ModelConfigError(
                f"{source}: num_attention_heads = {heads} is not a multiple of num_key_value_heads = {kv_heads}, "
                "so that query heads cannot share key-value heads evenly"
            )
        if values.get("head_dim") is None and hidden % heads:
            raise ModelConfigError(
                f"{source}: hidden_size = {hidden} is not a multiple of num_attention_heads = {heads}",
                hint='add the size of a head to config.json, such as "head_dim": 64',
            )
        head_dim = _positive(values, "head_dim", source, default=hidden // heads)
        if head_dim % 2:
            raise ModelConfigError(f"{source}: head_dim = {head_dim} is odd, but rotary embedding turns pairs of elements")
        rope = _rope_values(values)
        context = _positive(values, "max_position_embeddings", source, default=2048)
        bos = values.get("bos_token_id")
        return LlamaConfig(
            **sizes,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            rms_norm_eps=float(values.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta", values.get("rope_theta") or 10000.0)),
            rope_scaling=scaling_from_values(rope, source),
            attention_bias=bool(values.get("attention_bias", False)),
            mlp_bias=bool(values.get("mlp_bias", False)),
            tie_word_embeddings=values.get("tie_word_embeddings"),
            bos_id=bos if isinstance(bos, int) else None,
            eos_ids=tuple(sorted({*_token_ids(values, source), *_token_ids(generation or {}, "generation_config.json")})),
        )


def _rope_values(values: JsonObject) -> JsonObject:
    """The rotary settings: `rope_scaling` in older files, `rope_parameters` (with `rope_theta` inside) in newer ones."""
    return {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}


def _refuse_unsupported(values: JsonObject, source: str) -> None:
    kind = values.get("model_type")
    if kind != "llama":
        raise ModelConfigError(
            f"{source}: model_type is {kind!r}, which is not supported", hint="Llama 2, 3 and 3.x models have model_type 'llama'"
        )
    activation = values.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelConfigError(f"{source}: hidden_act is {activation!r}; Llama's feed-forward layer is supported with 'silu'")
    if values.get("quantization_config"):
        method = values["quantization_config"].get("quant_method", "unknown")
        raise ModelConfigError(
            f"{source}: the weights are quantized ({method}), which is not supported",
            hint="use the float16, bfloat16 or float32 checkpoint of this model",
        )


def _read_json(path: Path) -> JsonObject:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelConfigError(
            f"{path} does not exist", hint="a model is a directory with config.json, model.safetensors and tokenizer.json"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ModelConfigError(f"{path} holds a JSON {type(values).__name__}, not an object")
    return values


def _positive(values: JsonObject, key: str, source: str, default: int | None = None) -> int:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"{source}: {key} is {value!r}; it must be a positive integer")
    return value


def _token_ids(values: JsonObject, source: str) -> tuple[int, ...]:
    """`eos_token_id`: absent, an int or a list of ints."""
    ids = values.get("eos_token_id")
    ids = [] if ids is None else ids if isinstance(ids, list) else [ids]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ModelConfigError(f"{source}: eos_token_id is {ids!r}; it must be an integer or a list of integers")
    return tuple(ids)
