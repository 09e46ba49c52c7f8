"""How each family of models differs from Llama: functions from the values of `config.json` to the layers of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tempo_llm.errors import shown
from tempo_llm.json_files import JsonObject
from tempo_llm.layer import Delta, Experts, Growth, Layer, Rope
from tempo_llm.rope import KINDS, agreed, rope_of, said
from tempo_llm.values import LARGEST, Values

OLDER_KINDS = {"attention": "full_attention"}  # names in `layer_types`


@dataclass(frozen=True)
class Sizes:
    """The sizes that layers are described with."""

    hidden: int
    layers: int
    head: int  # the width of a head


@dataclass(frozen=True)
class Description:
    """What a family makes of `config.json`: its layers; and the factor of embeddings and the cap of logits, if it has them."""

    layers: tuple[Layer, ...]
    embedding_scale: float = 1.0
    logit_cap: float | None = None


@dataclass(frozen=True)
class Family:
    """A row of the table: the function, and the values of keys that are absent where they differ from Llama's."""

    describe: Callable[[Values, Sizes], Description]
    defaults: JsonObject = field(default_factory=dict)


# -- parts ------------------------------------------------------------------------------------------------------------


def _plain(values: Values, sizes: Sizes, theta: float = 10000.0, share: float | None = None) -> Layer:
    """A layer of Llama, with the rotary settings of the file, and its biases. If heads may be turned in part, `share` is the default part."""
    return _layer(values, sizes, rope_of(values, sizes.head, theta, share=share))


def _layer(values: Values, sizes: Sizes, rope: Rope) -> Layer:
    bias = values.flag("attention_bias")
    return Layer(
        sizes.head**-0.5,
        rope,
        bias=bias,
        output_bias=bias,
        activation=_activation(values, "hidden_act", "silu"),
        mlp_bias=values.flag("mlp_bias"),
    )


def _activation(values: Values, key: str, activation: str) -> str:
    """The activation of the feed-forward layer: the one of the family, or an error."""
    spelled = values.get(key, activation)
    if spelled != activation and (activation, spelled) != ("silu", "swish"):
        raise values.error(f"{key} is {shown(spelled)}; the feed-forward layer of this family is supported with {activation!r}")
    return activation


def _kinds(values: Values, count: int, other: str, is_other: Callable[[int], bool]) -> list[bool]:
    """Whether each layer is of the kind `other`, not full attention: by `layer_types`, or, where this key is absent, by its number."""
    kinds = values.get("layer_types")
    if kinds is None:
        return [is_other(layer) for layer in range(count)]
    if isinstance(kinds, list):
        kinds = [OLDER_KINDS.get(str(kind), kind) for kind in kinds]
    if not isinstance(kinds, list) or len(kinds) != count or any(kind not in ("full_attention", other) for kind in kinds):
        raise values.error(f"layer_types must name {count} layers, each full_attention or {other}")
    return [kind == other for kind in kinds]


def _window(values: Values) -> int | None:
    """The sliding window."""
    value = values.get("sliding_window")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise values.error(f"sliding_window is {shown(value)}; it must be a positive integer, or null for none")
    return min(value, LARGEST["max_position_embeddings"])  # no context is longer


def _windowed(values: Values, sizes: Sizes, layer: Layer, is_sliding: Callable[[int], bool]) -> tuple[Layer, ...]:
    """The layers of a model some of which have the sliding window."""
    window = _window(values)
    if window is None:
        _check_full(values, "there is no sliding_window")
        return (layer,) * sizes.layers
    slid = replace(layer, window=window)
    return tuple(slid if kind else layer for kind in _kinds(values, sizes.layers, KINDS[1], is_sliding))


def _check_full(values: Values, words: str) -> None:
    """Raise ModelConfigError if `layer_types` names layers with a window, where, by another key, there is none."""
    kinds = values.get("layer_types")
    if isinstance(kinds, list) and KINDS[1] in kinds:
        raise values.error(
            f"layer_types names {KINDS[1]}, but {words}",
            hint=f"give the window, or write {KINDS[0]} for each layer",
        )


# -- families ---------------------------------------------------------------------------------------------------------


def _llama(values: Values, sizes: Sizes) -> Description:
    return Description((_plain(values, sizes),) * sizes.layers)


def _mistral(values: Values, sizes: Sizes) -> Description:
    return Description(_windowed(values, sizes, _plain(values, sizes), lambda layer: True))


def _qwen2(values: Values, sizes: Sizes) -> Description:
    return Description(_windowed_from(values, sizes, replace(_plain(values, sizes), bias=True, output_bias=False)))


def _windowed_from(values: Values, sizes: Sizes, layer: Layer) -> tuple[Layer, ...]:
    """Qwen's layers: those from `max_window_layers` on have the window, if `use_sliding_window` turns it on."""
    if not values.flag("use_sliding_window"):
        _check_full(values, "use_sliding_window is not true")
        return (layer,) * sizes.layers
    first = values.count("max_window_layers", 28)
    return _windowed(values, sizes, layer, lambda number: number >= first)


def _qwen3(values: Values, sizes: Sizes) -> Description:
    return Description(_windowed_from(values, sizes, replace(_plain(values, sizes), query_key_norm="head")))


def _gemma(values: Values, sizes: Sizes, theta: float = 10000.0, kind: str | None = None) -> Layer:
    """A layer of Gemma 2 or 3: four norms with 1 + weight, and a scale and an activation of its own."""
    if values.flag("use_bidirectional_attention"):
        raise values.error("use_bidirectional_attention is true, which is not supported: a token attends to tokens before it")
    bias = values.flag("attention_bias")
    return Layer(
        values.number("query_pre_attn_scalar", 256.0) ** -0.5,
        rope_of(values, sizes.head, theta, kind),
        bias=bias,
        output_bias=bias,
        score_cap=values.number_or_none("attn_logit_softcapping"),
        activation=_activation(values, "hidden_activation", "gelu_pytorch_tanh"),
        norms=("attention_norm", "attention_result_norm", "mlp_norm", "mlp_result_norm"),
        norm_offset=1.0,
        sources=(("mlp_norm", "pre_feedforward_layernorm"),),
    )


def _gemma2(values: Values, sizes: Sizes) -> Description:
    layers = _windowed(values, sizes, _gemma(values, sizes), lambda number: number % 2 == 0)
    return Description(layers, sizes.hidden**0.5, values.number_or_none("final_logit_softcapping"))


def _gemma3(values: Values, sizes: Sizes) -> Description:
    full, slid = KINDS
    period = values.size("sliding_window_pattern", 6)
    layer = replace(_gemma(values, sizes, 1e6, full), query_key_norm="head", score_cap=None)
    rope = rope_of(values, sizes.head, 10000.0, slid, base="rope_local_base_freq")
    layers = _windowed(values, sizes, layer, lambda number: (number + 1) % period != 0)
    return Description(
        tuple(layer if layer.window is None else replace(layer, rope=rope) for layer in layers),
        sizes.hidden**0.5,
        values.number_or_none("final_logit_softcapping"),
    )


def _phi3(values: Values, sizes: Sizes) -> Description:
    older = {"su": "longrope", "yarn": "longrope"}
    rope = rope_of(values, sizes.head, 10000.0, share=1.0, names=older, original=4096)
    fused = {f"attention.{name}": "self_attn.qkv_proj" for name in ("query", "key", "value")}
    fused |= {"mlp.gate": "mlp.gate_up_proj", "mlp.up": "mlp.gate_up_proj"}
    layer = replace(_layer(values, sizes, rope), sources=tuple(fused.items()))
    return Description(_windowed(values, sizes, layer, lambda number: True))


def _smollm3(values: Values, sizes: Sizes) -> Description:
    """Some layers have no rotary embedding; if windows are on, these have them."""
    layer, period = _plain(values, sizes, 2e6), values.size("no_rope_layer_interval", 4)
    turned = values.get("no_rope_layers", [int((number + 1) % period != 0) for number in range(sizes.layers)])
    if not isinstance(turned, list) or len(turned) < sizes.layers or any(flag not in (0, 1) for flag in turned):
        raise values.error(
            f"no_rope_layers is {shown(turned)}; it must be {sizes.layers} numbers: 1 for a layer with a rotary embedding, else 0"
        )
    layers = (layer,) * sizes.layers
    if values.flag("use_sliding_window"):
        layers = _windowed(values, sizes, layer, lambda number: not turned[number])
    else:
        _check_full(values, "use_sliding_window is not true")
    return Description(tuple(each if flag else replace(each, rope=None) for each, flag in zip(layers, turned, strict=False)))


def _olmo(values: Values, sizes: Sizes, kind: str | None = None, theta: float = 10000.0) -> Layer:
    """A layer of OLMo 2 or 3: norms of the results, and of whole queries and keys."""
    return replace(
        _layer(values, sizes, rope_of(values, sizes.head, theta, kind)),
        query_key_norm="whole",
        norms=("attention_result_norm", "mlp_result_norm"),
        norm_offset=0.0,
    )


def _olmo2(values: Values, sizes: Sizes) -> Description:
    return Description((_olmo(values, sizes),) * sizes.layers)


def _olmo3(values: Values, sizes: Sizes) -> Description:
    full, slid = KINDS
    local = rope_of(values, sizes.head, 5e5, slid)
    layers = _windowed(values, sizes, _olmo(values, sizes, full, 5e5), lambda number: (number + 1) % 4 != 0)
    return Description(tuple(layer if layer.window is None else replace(layer, rope=local) for layer in layers))


def _ministral3(values: Values, sizes: Sizes) -> Description:
    """Queries grow with the position."""
    if not values.get("rope_scaling") and values.get("rope_parameters") is None:
        values = Values({**values.values, "rope_parameters": _MINISTRAL_ROPE}, values.source)

    def growth(part: JsonObject, key: str) -> Growth | None:
        original = said(values, part, key, "original_max_position_embeddings")
        scaling = Values({**part, "original_max_position_embeddings": original}, values.source)
        if scaling.get("llama_4_scaling_beta") is None:
            return None
        return Growth(scaling.number("llama_4_scaling_beta", 0.1), scaling.size("original_max_position_embeddings", 16384))

    layer = replace(_plain(values, sizes, 1e6), growth=agreed(values, None, growth))
    return Description(_windowed(values, sizes, layer, lambda number: True))


def _qwen3_5(values: Values, sizes: Sizes) -> Description:
    """Three of four layers have a Gated DeltaNet; in the others, a gate multiplies the result of attention."""
    bias = values.flag("attention_bias")
    full = replace(
        _plain(values, sizes, share=0.25),
        bias=bias,
        output_bias=bias,
        query_key_norm="head",
        norm_offset=1.0,
        gated=True,
        groups=(("self_attn.q_proj", values.size("num_attention_heads")),),
    )
    delta = Delta(
        values.size("linear_num_key_heads", 16),
        values.size("linear_num_value_heads", 32),
        values.size("linear_key_head_dim", 128),
        values.size("linear_value_head_dim", 128),
        values.size("linear_conv_kernel_dim", 4),
    )
    if delta.value_heads % delta.key_heads:
        raise values.error(
            f"linear_num_value_heads = {delta.value_heads} is not a multiple of linear_num_key_heads = {delta.key_heads}"
        )
    period = values.size("full_attention_interval", 4)
    kinds = _kinds(values, sizes.layers, "linear_attention", lambda number: (number + 1) % period != 0)
    linear = replace(full, delta=delta, gated=False, rope=None, groups=())
    return Description(tuple(linear if kind else full for kind in kinds))


def _qwen3_next(values: Values, sizes: Sizes) -> Description:
    """Qwen 3.5 with a mixture of experts, and with fused matrices of its Gated DeltaNets, whose rows are grouped by key heads."""
    experts = Experts(
        values.size("num_experts", 512),
        values.size("num_experts_per_tok", 10),
        values.size("moe_intermediate_size", 512),
        normalized=values.get("norm_topk_prob") is not False,
        shared=values.size("shared_expert_intermediate_size", 512),
    )
    _check(values, experts)
    plain, period = values.get("mlp_only_layers", []), values.size("decoder_sparse_step", 1)
    if not isinstance(plain, list) or not all(isinstance(number, int) for number in plain):
        raise values.error(f"mlp_only_layers is {shown(plain)}; it must be a list of numbers of layers")
    fused = {f"delta.{name}": "linear_attn.in_proj_qkvz" for name in ("query", "key", "value", "gate")}
    fused |= {f"delta.{name}": "linear_attn.in_proj_ba" for name in ("rate", "decay")}
    layers = []
    for number, layer in enumerate(_qwen3_5(values, sizes).layers):
        if layer.delta is not None:
            groups = tuple((source, layer.delta.key_heads) for source in dict.fromkeys(fused.values()))
            layer = replace(layer, sources=tuple(fused.items()), groups=groups)
        is_sparse = number not in plain and (number + 1) % period == 0
        layers.append(replace(layer, experts=experts) if is_sparse else layer)
    return Description(tuple(layers))


def _check(values: Values, experts: Experts) -> None:
    if experts.chosen > experts.count:
        raise values.error(f"num_experts_per_tok is {experts.chosen}, but there are {experts.count} experts")


def _gpt_oss(values: Values, sizes: Sizes) -> Description:
    """A mixture of experts; each second layer has the window; a learned score in each softmax."""
    if not values.get("rope_scaling") and values.get("rope_parameters") is None:
        values = Values({**values.values, "rope_parameters": _GPT_ROPE}, values.source)
    experts = Experts(
        Values({"num_local_experts": values.either("num_local_experts", "num_experts")}, values.source).size(
            "num_local_experts", 128
        ),
        values.size("num_experts_per_tok", 4),
        values.size("intermediate_size"),
        values.number("swiglu_limit", 7.0),
        values.number("swiglu_alpha", 1.702),
    )
    _check(values, experts)
    layer = replace(_plain(values, sizes, 150000.0), norm_offset=0.0, sinks=True, experts=experts)
    return Description(_windowed(values, sizes, layer, lambda number: number % 2 == 0))


_GPT_ROPE = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
_MINISTRAL_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
FAMILIES: Mapping[str, Family] = {  # by model_type
    "llama": Family(_llama),  # Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM
    "mistral": Family(_mistral, {"sliding_window": 4096}),
    "qwen2": Family(_qwen2, {"sliding_window": 4096}),
    "qwen3": Family(_qwen3, {"sliding_window": 4096, "head_dim": 128}),
    "gemma2": Family(
        _gemma2,
        {"sliding_window": 4096, "head_dim": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "gemma3_text": Family(_gemma3, {"sliding_window": 4096, "head_dim": 256}),
    "phi3": Family(_phi3, {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5}),
    "smollm3": Family(_smollm3),
    "olmo2": Family(_olmo2, {"rms_norm_eps": 1e-5}),
    "olmo3": Family(_olmo3, {"rms_norm_eps": 1e-5, "sliding_window": 4096}),
    "qwen3_5_text": Family(_qwen3_5, {"head_dim": 256}),
    "qwen3_next": Family(_qwen3_next, {"head_dim": 256}),
    "gpt_oss": Family(_gpt_oss, {"head_dim": 64, "sliding_window": 128, "rms_norm_eps": 1e-5, "attention_bias": True}),
    "ministral3": Family(_ministral3, {"head_dim": 128, "rms_norm_eps": 1e-5}),
}
