"""The parts of a model as modules of `tp.nn`: matrices in the form of the model's weights, norms, attention, and the gated feed-forward layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.config import LlamaConfig
from tempo_llm.layer import Delta, Experts, Layer, Rope
from tempo_llm.times import Time, computed
from tempo_llm.weights import Weights

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": tp.silu,
    "gelu_pytorch_tanh": lambda x: tp.gelu(x, approximate=True),
}


def rms_norm(width: int, domain: tuple[Expr, ...], epsilon: float, offset: float | None, dtype: str) -> tp.nn.RMSNorm:
    """An RMS norm, whose weight is the parameter plus `offset` if there is one."""
    if offset is None:
        return tp.nn.RMSNorm(width, domain, epsilon, fed=True, dtype=dtype)
    return OffsetNorm(width, domain, epsilon, offset, dtype)


class OffsetNorm(tp.nn.RMSNorm):
    """An RMS norm that multiplies by offset + weight, in float32, before the result gets x's dtype."""

    def __init__(self, width: int, domain: tuple[Expr, ...], epsilon: float, offset: float, dtype: str):
        super().__init__(width, domain, epsilon, fed=True, dtype=dtype)
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        wide = x.astype("float32")
        normed = wide * tp.rsqrt(tp.square(wide).mean(-1, keepdims=True) + self.epsilon)
        return (normed * (self.weight.astype("float32") + self.offset)).astype(x.dtype)


class PartialRoPE(tp.nn.RoPE):
    """A rotary embedding of the first elements of each head of x [..., heads, head width]; the others stay. Perhaps with LongRoPE's factors."""

    def __init__(self, rope: Rope):
        super().__init__(rope.width, rope.theta, rope.scaling)
        self.long = rope.long

    def turned(self, x: Tensor, time: Time) -> Tensor:
        """x at the position of a text."""
        turned = self.rotate(x.spatial[..., : self.width], time)
        return tp.concatenate([turned, x.spatial[..., self.width :]], -1) if self.width < x.shape[-1] else turned

    def rotate(self, x: Tensor, time: Time) -> Tensor:
        if self.long is None:
            return self(x, time.position)
        is_long = time.length > self.long.original
        angles = tp.where(is_long, self._divided(self.long.long), self._divided(self.long.short)) * time.position
        return self.by(x, tp.cos(angles) * self.long.amplitude, tp.sin(angles) * self.long.amplitude)

    def _divided(self, factors: Sequence[float]) -> Tensor:
        return tp.constant(tp.nn.inverse_frequencies(self.width, self.theta) / np.asarray(factors, np.float32))


class Attending(tp.nn.GroupedQueryAttention):
    """Attention with grouped queries, as the description of the layer says, whose matrices have the form of the model's weights."""

    def __init__(self, config: LlamaConfig, layer: Layer, weights: Weights, domain: tuple[Expr, ...]):
        tp.nn.Module.__init__(self, None, domain, fed=True, dtype=weights.computed)
        self.width, self.heads, self.key_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        self.head_width, self.pattern, self.layer = config.head_dim, tp.nn.causal, layer
        self.rope: PartialRoPE | None = None if layer.rope is None else PartialRoPE(layer.rope)

        self.query, self.key = (self._projection(config, weights, domain, heads) for heads in (self.heads, self.key_heads))
        self.value = weights.finer.linear(self.width, self.key_heads * self.head_width, domain, layer.bias)
        self.output = weights.finer.linear(self.heads * self.head_width, self.width, domain, layer.output_bias)
        self.gate = weights.linear(self.width, self.heads * self.head_width, domain, layer.bias) if layer.gated else None
        self.sinks = self.parameter("sinks", (self.heads,), tp.nn.zeros()) if layer.sinks else None

    def attend(self, x: Tensor, pattern: tp.nn.Pattern, time: Time) -> Tensor:
        """Attention along the positions of a text: x [hidden] at a position to its result [hidden]."""
        queries, keys, values = self.projected(x, time)
        mixed = time.attended(self, queries, keys, values, pattern)
        return self.output(mixed if self.gate is None else mixed * tp.sigmoid(self.gate(x)))

    def projected(self, x: Tensor, position: Time) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = super().projected(x, position)
        growth = self.layer.growth
        if growth is not None:
            turns = tp.zeros(()) + position.position // growth.original
            queries = (queries.astype("float32") * (1 + growth.rate * tp.log(1 + turns))).astype(queries.dtype)
        return queries, keys, values

    def _rotated(self, x: Tensor, position: Time) -> Tensor:
        return x if self.rope is None else self.rope.turned(x, position)

    def _projection(self, config: LlamaConfig, weights: Weights, domain: tuple[Expr, ...], heads: int) -> tp.nn.Linear:
        """The matrix of queries or keys, with a norm if the layer has it."""
        layer, size = self.layer, heads * self.head_width
        if layer.query_key_norm is None:
            return weights.linear(self.width, size, domain, layer.bias)
        width = self.head_width if layer.query_key_norm == "head" else size
        norm = rms_norm(width, domain, config.rms_norm_eps, layer.norm_offset, self.dtype)
        return weights.normed(self.width, size, domain, layer.bias, norm)

    def scores(self, products: Tensor) -> Tensor:
        scores, cap = products.astype("float32") * self.layer.scale, self.layer.score_cap
        return scores if cap is None else cap * tp.tanh(scores / cap)

    def rest(self) -> Tensor | None:
        if self.sinks is None:
            return None
        return self.sinks.astype("float32").reshape(self.key_heads, self.heads // self.key_heads, 1)


class DeltaNet(tp.nn.Module):
    """A Gated DeltaNet. Its state S [key heads, value heads of each, key width, value width], float32, is a recurrence over positions:

        S[t] = decay S[t - 1] + key (rate (value - key decay S[t - 1])),    result[t] = query S[t]

    `decay` and `rate` are numbers from 0 to 1 for each value head.
    """

    def __init__(self, config: LlamaConfig, delta: Delta, weights: Weights, domain: tuple[Expr, ...]):
        super().__init__(None, domain, fed=True, dtype=weights.computed)
        self.delta, hidden = delta, config.hidden_size
        keys, values = delta.key_heads * delta.key_width, delta.value_heads * delta.value_width
        self.query, self.key = (weights.linear(hidden, keys, domain, False) for _ in range(2))
        self.value = weights.finer.linear(hidden, values, domain, False)
        self.gate = weights.linear(hidden, values, domain, False)
        self.rate, self.decay = (weights.exact(hidden, delta.value_heads, domain, False) for _ in range(2))
        self.query_taps, self.key_taps = (Taps(keys, delta.taps, domain, self.dtype) for _ in range(2))
        self.value_taps = Taps(values, delta.taps, domain, self.dtype)
        self.log_decay = self.parameter("A_log", (delta.value_heads,), tp.nn.zeros())
        self.decay_bias = self.parameter("dt_bias", (delta.value_heads,), tp.nn.zeros())
        self.norm = tp.nn.RMSNorm(delta.value_width, domain, config.rms_norm_eps, fed=True, dtype=self.dtype)
        self.output = weights.finer.linear(values, hidden, domain, False)

    def forward(self, x: Tensor, time: Time) -> Tensor:
        delta = self.delta
        groups = delta.key_heads, delta.value_heads // delta.key_heads
        query = unit(self.query_taps(self.query(x), time).reshape(delta.key_heads, 1, 1, delta.key_width)) * delta.key_width**-0.5
        key = unit(self.key_taps(self.key(x), time).reshape(delta.key_heads, 1, 1, delta.key_width))
        value = self.value_taps(self.value(x), time).astype("float32").reshape(*groups, 1, delta.value_width)
        rate = tp.sigmoid(self.rate(x)).astype("float32").reshape(*groups, 1, 1)
        exponent = tp.softplus(self.decay(x).astype("float32") + self.decay_bias.astype("float32"))
        decay = tp.exp(-tp.exp(self.log_decay.astype("float32")) * exponent).reshape(*groups, 1, 1)

        shape = (*groups, delta.key_width, delta.value_width)
        before = tp.recurrence(shape, "float32", [step.expr for step in x.domain.steps], f"{self.name}.state")
        kept = decay * computed(before, time)
        state = kept + key.swapaxes(-1, -2) * (rate * (value - key @ kept))
        time.carry(self, before, state)
        result = self.norm((query @ state).reshape(delta.value_heads, delta.value_width).astype(x.dtype))
        gate = self.gate(x).astype("float32").reshape(delta.value_heads, delta.value_width)
        gated = (result.astype("float32") * tp.silu(gate)).astype(x.dtype)
        return self.output(gated.reshape(delta.value_heads * delta.value_width))


class Taps(tp.nn.Module):
    """silu(sum of weight [taps, 1, width] * x at the last positions), with x zero before the first. The last positions are a state."""

    default_name = "taps"

    def __init__(self, width: int, count: int, domain: tuple[Expr, ...], dtype: str):
        super().__init__(None, domain, fed=True, dtype=dtype)
        self.width, self.count = width, count
        self.weight = self.parameter("weight", (count, 1, width), tp.nn.zeros())

    def forward(self, x: Tensor, time: Time) -> Tensor:
        steps = [step.expr for step in x.domain.steps]
        past = tp.recurrence((self.count - 1, self.width), x.dtype, steps, f"{self.name}.past")
        reads = tp.concatenate([computed(past, time), x.expand_dims(0)])
        time.carry(self, past, reads.spatial[1:])
        return tp.silu((reads * self.weight.reshape(self.count, self.width)).sum(0))


def unit(x: Tensor) -> Tensor:
    """x, float32, divided by its length along the last dimension."""
    wide = x.astype("float32")
    return wide * tp.rsqrt(tp.square(wide).sum(-1, keepdims=True) + 1e-6)


class FeedForward(tp.nn.Module):
    """down(activation(gate(x)) * up(x)), with matrices in the form of the model's weights."""

    def __init__(self, config: LlamaConfig, layer: Layer, weights: Weights, domain: tuple[Expr, ...], inner: int):
        super().__init__(domain=domain, fed=True)
        hidden = config.hidden_size
        self.activation = ACTIVATIONS[layer.activation]
        self.gate = weights.linear(hidden, inner, domain, layer.mlp_bias)
        self.up = weights.linear(hidden, inner, domain, layer.mlp_bias)
        self.down = weights.finer.linear(inner, hidden, domain, layer.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Mixture(tp.nn.Module):
    """A mixture of experts, as its description says."""

    default_name = "experts"

    def __init__(self, config: LlamaConfig, layer: Layer, experts: Experts, weights: Weights, domain: tuple[Expr, ...]):
        super().__init__(None, domain, fed=True, dtype=weights.computed)
        self.experts, count, hidden, inner = experts, experts.count, config.hidden_size, experts.width
        has_bias = experts.limit is not None
        self.router = weights.exact(hidden, count, domain, has_bias)
        self.gate = weights.stacked(self, "gate", count, hidden, inner)
        self.up = weights.stacked(self, "up", count, hidden, inner)
        self.down = weights.finer.stacked(self, "down", count, inner, hidden)
        self.gate_bias = self.parameter("gate_bias", (count, inner), tp.nn.zeros()) if has_bias else None
        self.up_bias = self.parameter("up_bias", (count, inner), tp.nn.zeros()) if has_bias else None
        self.down_bias = self.parameter("down_bias", (count, hidden), tp.nn.zeros()) if has_bias else None
        if experts.shared:
            self.shared = FeedForward(config, layer, weights, domain, experts.shared)
            self.shared_gate = weights.exact(hidden, 1, domain, False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        largest, chosen = tp.top_k(scores, self.experts.chosen)
        shares = tp.softmax(largest.astype("float32"), -1)
        if not self.experts.normalized:
            shares = tp.exp(largest.astype("float32") - tp.logsumexp(scores.astype("float32"), -1))
        gate = _biased(self.gate(self, x.expand_dims(0), chosen), self.gate_bias, chosen)
        up = _biased(self.up(self, x.expand_dims(0), chosen), self.up_bias, chosen)
        limit = self.experts.limit
        if limit is None:
            active = tp.silu(gate) * up
        else:
            gate = tp.minimum(gate, limit)
            active = (tp.clip(up, -limit, limit) + 1) * (gate * tp.sigmoid(gate * self.experts.steepness))
        result = (_biased(self.down(self, active, chosen), self.down_bias, chosen) * shares.astype(x.dtype).expand_dims(1)).sum(0)
        if not self.experts.shared:
            return result
        return result + self.shared(x) * tp.sigmoid(self.shared_gate(x))


def _biased(y: Tensor, biases: Tensor | None, chosen: Tensor) -> Tensor:
    """y [chosen, n_out] plus the biases of the chosen experts."""
    return y if biases is None else y + biases.index(0, chosen)


class Block(tp.nn.Module):
    """A layer of a model: the results of attention and of the feed-forward layer are added to the hidden state.

    Its weights vary over the step `step`; it attends along the positions, to what `pattern` says.
    """

    def __init__(self, config: LlamaConfig, layer: Layer, pattern: tp.nn.Pattern, step: Expr, weights: Weights, name: str):
        super().__init__(name=name, domain=(step,), fed=True)
        self.pattern = pattern
        epsilon, dtype = config.rms_norm_eps, weights.computed
        norms = {name: rms_norm(config.hidden_size, (step,), epsilon, layer.norm_offset, dtype) for name in layer.norms}
        self.attention_norm = norms.get("attention_norm")
        if layer.delta is None:
            self.attention = Attending(config, layer, weights, (step,))
        else:
            self.delta = DeltaNet(config, layer.delta, weights, (step,))
        self.layer = layer
        self.attention_result_norm = norms.get("attention_result_norm")
        self.mlp_norm = norms.get("mlp_norm")
        if layer.experts is None:
            self.mlp: FeedForward | Mixture = FeedForward(config, layer, weights, (step,), config.intermediate_size)
        else:
            self.experts = self.mlp = Mixture(config, layer, layer.experts, weights, (step,))
        self.mlp_result_norm = norms.get("mlp_result_norm")

    def forward(self, x: Tensor, time: Time) -> Tensor:
        attended = self.attend(x if self.attention_norm is None else self.attention_norm(x), time)
        attended = x + (attended if self.attention_result_norm is None else self.attention_result_norm(attended))
        result = self.mlp(attended if self.mlp_norm is None else self.mlp_norm(attended))
        return attended + (result if self.mlp_result_norm is None else self.mlp_result_norm(result))

    def attend(self, x: Tensor, time: Time) -> Tensor:
        return self.attention.attend(x, self.pattern, time) if self.layer.delta is None else self.delta(x, time)
