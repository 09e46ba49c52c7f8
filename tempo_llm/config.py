"""Hugging Face `config.json` and `generation_config.json` of a Llama model or one of its relatives, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tempo_core.nn import RopeScaling
from tempo_llm.errors import ModelConfigError, shown
from tempo_llm.files import read_text
from tempo_llm.json_files import JsonObject
from tempo_llm.rope import LARGEST as LARGEST_NUMBER
from tempo_llm.rope import scaling_from_values


@dataclass(frozen=True)
class Family:
    """A row of the table: how a kind of model differs from Llama. The first three are defaults of its `config.json`."""

    query_key_value_bias: bool = False
    attention_bias: bool = False  # the default of a key that Llama's config.json has
    window: int | None = None  # the sliding window, if the key is absent
    window_key: str | None = None  # the flag that turns the window on, if there is one


FAMILIES: Mapping[str, Family] = {  # by model_type
    "llama": Family(),  # Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM
    "mistral": Family(window=4096),
    "qwen2": Family(query_key_value_bias=True, window=4096, window_key="use_sliding_window"),
}
LARGEST: Mapping[str, int] = {  # larger numbers are mistakes
    "vocab_size": 2**24,
    "hidden_size": 2**20,
    "intermediate_size": 2**22,
    "num_hidden_layers": 2**12,
    "num_attention_heads": 2**16,
    "num_key_value_heads": 2**16,
    "head_dim": 2**16,
    "max_position_embeddings": 2**28,
}


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a model. Fields have the names of `config.json`; `eos_ids` has the end tokens of both files.

    `windows` has the size of each layer's sliding window, None for a layer that attends to every token so far.
    """

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
    output_bias: bool | None = None  # of attention's last matrix; None: as attention_bias
    mlp_bias: bool = False
    tie_word_embeddings: bool | None = None  # None: not in the file; then the presence of a head tensor decides
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    windows: tuple[int | None, ...] = ()  # empty: no layer has one
    model_type: str = "llama"

    @property
    def group_size(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def has_output_bias(self) -> bool:
        return self.attention_bias if self.output_bias is None else self.output_bias

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
        family = FAMILIES[values["model_type"]]
        required = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        missing = [key for key in required if values.get(key) is None]
        if missing:
            raise ModelConfigError(f"{source} lacks {', '.join(missing)}")
        sizes = {key: _size(values, key, source) for key in required}
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        kv_heads = _size(values, "num_key_value_heads", source, default=heads)
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
        head_dim = _size(values, "head_dim", source, default=hidden // heads)
        if head_dim % 2:
            raise ModelConfigError(f"{source}: head_dim = {head_dim} is odd, but rotary embedding turns pairs of elements")
        rope = _rope_values(values, source)
        context = _size(values, "max_position_embeddings", source, default=2048)
        bos = values.get("bos_token_id")
        return LlamaConfig(
            **sizes,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            rms_norm_eps=_number(values, "rms_norm_eps", source, 1e-6),
            rope_theta=_number({**values, **rope}, "rope_theta", source, 10000.0),
            rope_scaling=scaling_from_values(rope, source, context),
            attention_bias=family.query_key_value_bias or _flag(values, "attention_bias", source),
            output_bias=False if family.query_key_value_bias else None,
            mlp_bias=_flag(values, "mlp_bias", source),
            tie_word_embeddings=None
            if values.get("tie_word_embeddings") is None
            else _flag(values, "tie_word_embeddings", source),
            bos_id=bos if isinstance(bos, int) else None,
            eos_ids=tuple(sorted({*_token_ids(values, source), *_token_ids(generation or {}, "generation_config.json")})),
            windows=_windows(values, family, sizes["num_hidden_layers"], source),
            model_type=values["model_type"],
        )


def _windows(values: JsonObject, family: Family, layers: int, source: str) -> tuple[int | None, ...]:
    """The sliding window of each layer: `sliding_window`, in the layers that `layer_types` or `max_window_layers` name, else in all."""
    if family.window is None or (family.window_key is not None and not _flag(values, family.window_key, source)):
        return ()
    value = values.get("sliding_window", family.window)
    if value is None:
        return ()
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"{source}: sliding_window is {shown(value)}; it must be a positive integer, or null for none")
    value = min(value, LARGEST["max_position_embeddings"])  # no context is longer
    kinds = values.get("layer_types")
    if kinds is not None:
        supported = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in supported for kind in kinds):
            raise ModelConfigError(f"{source}: layer_types must name {layers} layers, each full_attention or sliding_attention")
        return tuple(value if kind == "sliding_attention" else None for kind in kinds)
    first = 0
    if family.window_key is not None:
        first = values.get("max_window_layers", 28)
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            raise ModelConfigError(f"{source}: max_window_layers is {shown(first)}; it must be a whole number of at least 0")
    return tuple(value if layer >= first else None for layer in range(layers))


def _rope_values(values: JsonObject, source: str) -> dict[str, Any]:
    """The rotary settings: `rope_scaling` in older files, `rope_parameters` (with `rope_theta` inside) in newer ones."""
    joined: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        part = values.get(key)
        if part is not None and not isinstance(part, Mapping):
            raise ModelConfigError(f"{source}: {key} is {shown(part)}; it must be an object, such as {{}}, or null")
        joined |= part or {}
    share = joined.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
    if share not in (None, 1, 1.0):
        raise ModelConfigError(
            f"{source}: partial_rotary_factor is {shown(share)}, which is not supported: whole heads are turned"
        )
    return joined


def _refuse_unsupported(values: JsonObject, source: str) -> None:
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ModelConfigError(
            f"{source}: model_type is {shown(kind)}, which is not supported; the types are {', '.join(FAMILIES)}",
            hint="Llama 2, 3 and 3.x, TinyLlama and SmolLM have model_type 'llama'",
        )
    activation = values.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelConfigError(
            f"{source}: hidden_act is {shown(activation)}; Llama's feed-forward layer is supported with 'silu'"
        )
    if values.get("quantization_config"):
        settings = values["quantization_config"]
        method = settings.get("quant_method", "unknown") if isinstance(settings, Mapping) else "unknown"
        raise ModelConfigError(
            f"{source}: the weights are quantized ({method}), which is not supported",
            hint="use the float16, bfloat16 or float32 checkpoint of this model",
        )


def _read_json(path: Path) -> JsonObject:
    try:
        values = json.loads(read_text(path))
    except FileNotFoundError:
        raise ModelConfigError(
            f"{path} does not exist", hint="a model is a directory with config.json, model.safetensors and tokenizer.json"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ModelConfigError(f"{path} holds a JSON {type(values).__name__}, not an object")
    return values


def _size(values: JsonObject, key: str, source: str, default: int | None = None) -> int:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"{source}: {key} is {shown(value)}; it must be a positive integer")
    if value > LARGEST[key]:
        raise ModelConfigError(f"{source}: {key} is {shown(value)}; no model has more than {LARGEST[key]}")
    return value


def _number(values: JsonObject, key: str, source: str, default: float) -> float:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < LARGEST_NUMBER:
        raise ModelConfigError(f"{source}: {key} is {shown(value)}; it must be a positive number")
    return float(value)


def _flag(values: JsonObject, key: str, source: str) -> bool:
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise ModelConfigError(f"{source}: {key} is {shown(value)}; it must be true or false")
    return bool(value)


def _token_ids(values: JsonObject, source: str) -> tuple[int, ...]:
    """`eos_token_id`: absent, an int or a list of ints."""
    ids = values.get("eos_token_id")
    ids = [] if ids is None else ids if isinstance(ids, list) else [ids]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ModelConfigError(f"{source}: eos_token_id is {shown(ids)}; it must be an integer or a list of integers")
    return tuple(ids)
