"""Hugging Face `config.json` and `generation_config.json` of a Llama model or one of its relatives, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tempo_core.nn import RopeScaling
from tempo_llm.errors import ModelConfigError, shown
from tempo_llm.families import FAMILIES, Sizes
from tempo_llm.files import read_text
from tempo_llm.json_files import JsonObject
from tempo_llm.layer import Layer, Rope
from tempo_llm.values import Values

QUANT_METHOD = "tempo"  # of what `tempo-llm quantize` writes
REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a model: its sizes, by their names in `config.json`, and what each of its `layers` is made of.

    `eos_ids` has the end tokens of both files. Embeddings are multiplied by `embedding_scale`; with `logit_cap` c, logits are
    c * tanh(logit / c).
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    layers: tuple[Layer, ...]
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool | None = None  # None: not in the file; then the presence of a head tensor decides
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    model_type: str = "llama"
    embedding_scale: float = 1.0
    logit_cap: float | None = None

    @property
    def group_size(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The sliding window of each layer, None for a layer that attends to every token so far. Empty if no layer has one."""
        windows = tuple(layer.window for layer in self.layers)
        return windows if any(windows) else ()

    @property
    def rope(self) -> Rope:
        """The rotary embedding of the last layer that has one. Where layers differ, it is that of the layers without a window."""
        ropes = [layer.rope for layer in self.layers if layer.rope is not None]
        return ropes[-1] if ropes else Rope(self.head_dim)

    @property
    def short_context(self) -> int | None:
        """With LongRoPE, longer texts than this have other frequencies. None if frequencies do not depend on the length of a text."""
        longs = [layer.rope.long for layer in self.layers if layer.rope is not None and layer.rope.long is not None]
        return next((long.original for long in longs if long.short != long.long), None)

    @property
    def rope_theta(self) -> float:
        return self.rope.theta

    @property
    def rope_scaling(self) -> RopeScaling:
        return self.rope.scaling

    @property
    def attention_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""
        return self.layers[0].bias

    @property
    def has_output_bias(self) -> bool:
        return self.layers[0].output_bias

    @property
    def mlp_bias(self) -> bool:
        return self.layers[0].mlp_bias

    @staticmethod
    def from_directory(directory: str | Path) -> LlamaConfig:
        """The configuration of a checkpoint directory, or of a GGUF file. Raises `ModelConfigError` if it is missing or not supported."""
        if Path(directory).is_file():
            from tempo_llm.gguf_model import config_values

            return LlamaConfig.from_values(config_values(directory), source=str(directory))
        path = Path(directory) / "config.json"
        values = _read_json(path)
        generation = path.with_name("generation_config.json")
        return LlamaConfig.from_values(values, _read_json(generation) if generation.exists() else {}, str(path))

    @staticmethod
    def from_values(values: JsonObject, generation: JsonObject | None = None, source: str = "config.json") -> LlamaConfig:
        """The configuration in `values` (and the end tokens of `generation`); errors name `source`."""
        model_type = _model_type(values, source)
        family = FAMILIES[model_type]
        _check_doubles(Values(values, source))
        read = Values({"max_position_embeddings": 2048, **family.defaults, **values}, source)
        missing = [key for key in REQUIRED if read.get(key) is None]
        if missing:
            raise ModelConfigError(f"{source} lacks {', '.join(missing)}")
        sizes = {key: read.size(key) for key in REQUIRED}
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        kv_heads = read.size("num_key_value_heads", heads)
        if heads % kv_heads:
            raise ModelConfigError(
                f"{source}: num_attention_heads = {heads} is not a multiple of num_key_value_heads = {kv_heads}, "
                "so that query heads cannot share key-value heads evenly"
            )
        if read.get("head_dim") is None and hidden % heads:
            raise ModelConfigError(
                f"{source}: hidden_size = {hidden} is not a multiple of num_attention_heads = {heads}",
                hint='add the size of a head to config.json, such as "head_dim": 64',
            )
        head_dim = read.size("head_dim", hidden // heads)
        if head_dim % 2:
            raise ModelConfigError(f"{source}: head_dim = {head_dim} is odd, but rotary embedding turns pairs of elements")
        context = read.size("max_position_embeddings", 2048)
        described = family.describe(read, Sizes(hidden, sizes["num_hidden_layers"], head_dim))
        bos = read.get("bos_token_id")
        ends = {*read.token_ids("eos_token_id"), *Values(generation or {}, "generation_config.json").token_ids("eos_token_id")}
        return LlamaConfig(
            **sizes,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            layers=described.layers,
            rms_norm_eps=read.number("rms_norm_eps", 1e-6),
            tie_word_embeddings=None if read.get("tie_word_embeddings") is None else read.flag("tie_word_embeddings"),
            bos_id=bos if isinstance(bos, int) else None,
            eos_ids=tuple(sorted(ends)),
            model_type=model_type,
            embedding_scale=described.embedding_scale,
            logit_cap=described.logit_cap,
        )


def _model_type(values: JsonObject, source: str) -> str:
    """The family of a model that is supported. Raises ModelConfigError for others."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ModelConfigError(
            f"{source}: model_type is {shown(kind)}, which is not supported; the types are {', '.join(FAMILIES)}",
            hint="Llama 2, 3 and 3.x, TinyLlama and SmolLM have model_type 'llama'",
        )
    settings = values.get("quantization_config")
    method = settings.get("quant_method", "unknown") if isinstance(settings, Mapping) else "unknown"
    if settings and method != QUANT_METHOD:
        raise ModelConfigError(
            f"{source}: the weights are quantized ({method}), which is not supported",
            hint="use the float16, bfloat16 or float32 checkpoint of this model, or its GGUF file",
        )
    return kind


def _check_doubles(values: Values) -> None:
    """Raise ModelConfigError for a file that says a thing twice and differently, where no family reads both."""
    values.either("dtype", "torch_dtype")
    inner = values.get("text_config")
    for key, value in inner.items() if isinstance(inner, Mapping) else ():
        if value is not None and values.get(key) != value:
            raise values.error(
                f"text_config.{key} is {shown(value)}, but {key} is {shown(values.get(key))}",
                hint=f"model_type {shown(values.get('model_type'))} is a text model: take text_config out, or write what it says beside it",
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
