"""What a layer of a model is made of: the description that `tempo_llm.families` reads from `config.json`, and `tempo_llm.blocks` builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tempo_core.nn import RopeScaling

SOURCES: Mapping[str, str] = {  # the names of a layer's weights here, with those of Llama's files, without `.weight` and `.bias`
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.query.norm": "self_attn.q_norm",
    "attention.key.norm": "self_attn.k_norm",
    "attention.output": "self_attn.o_proj",
    "attention_result_norm": "post_attention_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "mlp_result_norm": "post_feedforward_layernorm",
    "attention.gate": "self_attn.q_proj",
    "attention": "self_attn",
    "delta": "linear_attn",
    "delta.query": "linear_attn.in_proj_qkv",
    "delta.key": "linear_attn.in_proj_qkv",
    "delta.value": "linear_attn.in_proj_qkv",
    "delta.gate": "linear_attn.in_proj_z",
    "delta.rate": "linear_attn.in_proj_b",
    "delta.decay": "linear_attn.in_proj_a",
    "delta.query_taps": "linear_attn.conv1d",
    "delta.key_taps": "linear_attn.conv1d",
    "delta.value_taps": "linear_attn.conv1d",
    "delta.norm": "linear_attn.norm",
    "delta.output": "linear_attn.out_proj",
}


@dataclass(frozen=True)
class LongRope:
    """The frequencies of LongRoPE (Ding et al., 2024, arXiv:2402.13753): each is divided by its factor.

    Texts of up to `original` positions have the factors `short`, longer ones `long`. Cosines and sines are multiplied by `amplitude`.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    amplitude: float


@dataclass(frozen=True)
class Rope:
    """A rotary embedding of the first `width` elements of each head."""

    width: int
    theta: float = 10000.0
    scaling: RopeScaling = field(default_factory=RopeScaling)
    long: LongRope | None = None  # instead of `scaling`

    @property
    def rope_type(self) -> str:
        return self.scaling.rope_type if self.long is None else "longrope"


@dataclass(frozen=True)
class Growth:
    """Queries are multiplied by 1 + rate * ln(1 + floor(position / original))."""

    rate: float
    original: int


@dataclass(frozen=True)
class Delta:
    """Gated DeltaNet (Yang et al., 2024, arXiv:2412.06464): a state for each value head instead of keys and values of all positions.

    Queries, keys and values are sums of their last `taps` positions.
    """

    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int


@dataclass(frozen=True)
class Experts:
    """A mixture of `count` gated feed-forward layers, of which a token has the `chosen` ones with the largest scores of a router.

    The shares of the chosen ones are the softmax of their scores, or, if not `normalized`, of all scores. With `limit`, an expert is that of
    gpt-oss: its gate is at most `limit`, its other factor between -limit and limit, and it goes on with
    gate * sigmoid(steepness * gate) * (factor + 1), and with biases. With `shared`, all tokens have one more expert of this width, with a
    gate.
    """

    count: int
    chosen: int
    width: int
    limit: float | None = None
    steepness: float = 1.0
    normalized: bool = True
    shared: int = 0


@dataclass(frozen=True)
class Layer:
    """A layer: attention, then a gated feed-forward layer. The result of each is added to the hidden state. The defaults are Llama's.

    `norms` names the RMS norms: `attention_norm` and `mlp_norm` are of what the two read, `attention_result_norm` and `mlp_result_norm` of
    their results. `query_key_norm` is "head" for norms of the queries and keys of each head, "whole" for norms of all heads together.
    With `norm_offset`, norms multiply by this number plus their weight, in float32; without, by their weight, in the model's dtype.
    Scores are multiplied by `scale`; with `score_cap` c, they are c * tanh(score / c). `window` is the number of tokens that a token
    attends to; without it, all tokens so far. With `gated`, the result of attention is multiplied by a gate. With `delta`, the layer has a
    Gated DeltaNet instead of attention; with `experts`, a mixture of experts instead of one feed-forward layer. With `sinks`, the softmax of
    each head has one more score, a weight, whose share is dropped.

    `sources` are names in the files that differ from `SOURCES`. Weights of the same source are its rows, one after the other; `groups` are
    sources that have them so in each of so many groups of rows.
    """

    scale: float
    rope: Rope | None
    window: int | None = None
    bias: bool = False  # of queries, keys and values
    output_bias: bool = False
    query_key_norm: str | None = None
    growth: Growth | None = None
    score_cap: float | None = None
    activation: str = "silu"
    mlp_bias: bool = False
    norms: tuple[str, ...] = ("attention_norm", "mlp_norm")
    norm_offset: float | None = None
    gated: bool = False
    delta: Delta | None = None
    sinks: bool = False
    experts: Experts | None = None
    sources: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, int], ...] = ()

    def source(self, name: str) -> str:
        """The name in the files of a weight, both without `.weight` and `.bias`."""
        return dict(self.sources).get(name, SOURCES[name])
