"""Llama (Touvron et al., 2023; Llama 3: Dubey et al., 2024) and its relatives as a recurrent program over rows b, positions t and layers l.

Positions count from each row's own first token, so that prompts of different lengths share a batch without padding on the
left. Tokens are one branching tensor: the prompt at t < P, where P is the length of the shortest prompt; after it, the rest of the longer
prompts, and what the model chooses at the position before. Prompts, their lengths, the weights and the settings of the choice are inputs,
and lengths are bounds that a run chooses: the same program runs other prompts and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.attention import Attention
from tempo_llm.config import LlamaConfig
from tempo_llm.sampling import GREEDY, Features, choose, penalized


@dataclass(frozen=True)
class Weights:
    """The form of a model's weights: their dtype, and whether the head is tied to the embedding.

    int8 matrices have float32 scales, and are computed with in float32; the others in their own dtype.
    """

    dtype: str = "float32"
    tied: bool = False

    @property
    def computed(self) -> str:
        """The dtype of hidden states, keys and values."""
        return "float32" if self.dtype == "int8" else self.dtype

    def linear(self, n_in: int, n_out: int, domain: tuple[Expr, ...], bias: bool) -> tp.nn.Linear:
        """`x @ weight + bias`."""
        if self.dtype == "int8":
            return Int8Linear(n_in, n_out, domain, bias)
        return tp.nn.Linear(n_in, n_out, domain, bias=bias, fed=True, dtype=self.dtype)


FLOAT32 = Weights()


class Int8Linear(tp.nn.Linear):
    """`(x @ weight) * scale + bias`: weight int8 [n_in, n_out], scale float32 [n_out]. Only the weight is int8, not the sums."""

    def __init__(self, n_in: int, n_out: int, domain: tuple[Expr, ...] = (), bias: bool = False):
        tp.nn.Module.__init__(self, None, domain, fed=True)
        self.n_in, self.n_out = n_in, n_out
        self.weight = self._input("weight", (n_in, n_out), "int8")
        self.scale = self._input("scale", (n_out,))
        self.bias = self._input("bias", (n_out,)) if bias else None

    def _input(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
        self.dtype = dtype
        return self.parameter(name, shape, tp.nn.zeros())

    def forward(self, x: Tensor) -> Tensor:
        y = (x @ self.weight.astype(x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias


class Attending(tp.nn.GroupedQueryAttention):
    """Attention with grouped queries whose matrices have the form of the model's weights, and biases where the configuration says so."""

    def __init__(self, config: LlamaConfig, weights: Weights, domain: tuple[Expr, ...]):
        tp.nn.Module.__init__(self, None, domain, fed=True, dtype=weights.computed)
        self.width, self.heads, self.key_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        self.head_width, self.pattern = config.head_dim, tp.nn.causal
        self.rope = tp.nn.RoPE(config.head_dim, config.rope_theta, config.rope_scaling)
        inner, keys, bias = self.heads * self.head_width, self.key_heads * self.head_width, config.attention_bias
        self.query = weights.linear(self.width, inner, domain, bias)
        self.key = weights.linear(self.width, keys, domain, bias)
        self.value = weights.linear(self.width, keys, domain, bias)
        self.output = weights.linear(inner, self.width, domain, config.has_output_bias)


class FeedForward(tp.nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), with matrices in the form of the model's weights."""

    def __init__(self, config: LlamaConfig, weights: Weights, domain: tuple[Expr, ...]):
        super().__init__(domain=domain, fed=True)
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate = weights.linear(hidden, inner, domain, bias)
        self.up = weights.linear(hidden, inner, domain, bias)
        self.down = weights.linear(inner, hidden, domain, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(tp.silu(self.gate(x)) * self.up(x))


class LlamaLayer(tp.nn.Module):
    """Attention, then SwiGLU. Each reads the normalised hidden state, and its result is added to the hidden state.

    The weights vary over the step `layer`; `patterns` has one attention pattern per layer.
    """

    def __init__(self, config: LlamaConfig, layer: Expr, patterns: Sequence[tp.nn.Pattern], weights: Weights):
        super().__init__(name="", domain=(layer,), fed=True)
        hidden, epsilon, over, dtype = config.hidden_size, config.rms_norm_eps, (layer,), weights.computed
        self.layer, self.patterns = layer, tuple(patterns)
        self.attention_norm = tp.nn.RMSNorm(hidden, over, epsilon, fed=True, dtype=dtype)
        self.attention = Attending(config, weights, over)
        self.mlp_norm = tp.nn.RMSNorm(hidden, over, epsilon, fed=True, dtype=dtype)
        self.mlp = FeedForward(config, weights, over)

    def forward(self, x: Tensor, over: Expr) -> Tensor:
        attended = x + self.attend(self.attention_norm(x), over)
        return attended + self.mlp(self.mlp_norm(attended))

    def attend(self, x: Tensor, over: Expr) -> Tensor:
        """Attention along the step `over`. Layers with the same pattern share a tensor of keys and one of values.

        So keys and values are kept for as long as the pattern of their own layers reaches them.
        """
        by_name = {pattern.name: pattern for pattern in self.patterns}
        if len(by_name) == 1:
            return self.attention(x, over=over, pattern=self.patterns[0])
        everywhere = tuple(step.expr for step in x.domain.steps)
        attended = tp.recurrence(x.shape, x.dtype, everywhere, "attended")
        for name, pattern in by_name.items():
            for first, last in runs([p.name == name for p in self.patterns]):
                here = (self.layer >= first) & (self.layer <= last)
                attended[(*everywhere, here)] = self.attention(x[(*everywhere, here)], over=over, pattern=pattern)
        return attended


class Llama(tp.nn.Module):
    """A model whose weights are inputs of the program. One `LlamaLayer` is all layers: its weights vary over the step `layer`."""

    def __init__(self, config: LlamaConfig, layer: Expr, patterns: Sequence[tp.nn.Pattern], weights: Weights):
        super().__init__(name="", fed=True)
        hidden, vocabulary = config.hidden_size, config.vocab_size
        self.weights = weights
        self.layer = LlamaLayer(config, layer, patterns, weights)
        self.final_norm = tp.nn.RMSNorm(hidden, epsilon=config.rms_norm_eps, fed=True, dtype=weights.computed)
        self.head = weights.linear(hidden, vocabulary, (), False)
        self.embedding = None if weights.tied else Table(vocabulary, hidden, weights)

    def embed(self, token: Tensor) -> Tensor:
        """The first hidden state of a token: a row of the embedding, or a column of the head if the two are tied."""
        if self.embedding is not None:
            return self.embedding(token)
        if isinstance(self.head, Int8Linear):
            return self.head.weight.index(1, token).astype("float32") * self.head.scale.index(0, token)
        return self.head.weight.index(1, token)

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores of all tokens of the vocabulary, float32, from the hidden state after the last layer."""
        return self.head(self.final_norm(hidden)).astype("float32")


class Table(tp.nn.Module):
    """The rows of the embedding: int32 token to [hidden]. int8 rows have a float32 scale each."""

    def __init__(self, count: int, width: int, weights: Weights):
        super().__init__(fed=True, dtype=weights.dtype)
        self.weight = self.parameter("weight", (count, width), tp.nn.zeros())
        self.dtype = "float32"
        self.scale = self.parameter("scale", (count,), tp.nn.zeros()) if weights.dtype == "int8" else None

    def forward(self, token: Tensor) -> Tensor:
        row = self.weight.index(0, token)
        return row if self.scale is None else row.astype("float32") * self.scale.index(0, token)


@dataclass(frozen=True)
class Decoder:
    """The traced program. Its outputs are over (t, b); `rows`, `prompt`, `length` and `layers` are its bounds, needed to compile it."""

    context: tp.Context
    model: Llama
    outputs: dict[str, Tensor]
    rows: Expr
    prompt: Expr
    length: Expr
    layers: Expr


def trace_decoder(
    config: LlamaConfig,
    attention: Attention,
    features: Features = GREEDY,
    weights: Weights = FLOAT32,
    is_conversation: bool = False,
) -> Decoder:
    """The decoding program of a model.

    Its inputs are the weights by the names of `checkpoint.load_weights` (without the embedding if the head is tied to it), those of
    `Sampling.inputs`, and

    - `prompt` int32 [P, B]: as many tokens of each prompt as the shortest has,
    - `given` int32 [T, B]: the tokens of the longer prompts at their positions, -1 elsewhere,
    - `start` int32 [B], `limit` int32 [B]: the length of each prompt, and of prompt and text together,
    - `ends` bool [vocabulary]: the tokens that end a text.

    Its outputs are `text` over (t, b), which is the token + 1, and, if `features.logprobs` is K, the token's `logprob` where
    t >= P, and the K most likely tokens at t + 1, `top_logprobs` and `top_tokens` [K], where t >= P - 1. A row that has ended repeats its last token.

    With `is_conversation`, `given` is streamed, over t alone: the program asks for it when it comes to a position, so that somebody may
    speak after the model has. Such a program goes on after end tokens, with the token `follow`.
    """
    context = tp.Context("p", "t", "b", "l")  # positions before rows: results fill up as the loop over positions goes on
    with context as ((p, P), (t, T), (b, B), (layer, L)):
        prompt = tp.input("prompt", (), "int32", domain=(p, b))
        if is_conversation:
            given = tp.input("given", (), "int32", domain=(t,), streamed=True)[t + 1]
        else:
            given = tp.input("given", (), "int32", domain=(t, b))[t + 1, b]
        start, limit = tp.input("start", (), "int32", domain=(b,)), tp.input("limit", (), "int32", domain=(b,))
        draw = tp.input("draw", (), domain=(t, b)) if features.is_sampled else None
        model = Llama(config, layer, attention.by_layer(config.num_hidden_layers), weights)

        text = tp.recurrence((), "int32", domain=(t, b), name="text")  # token + 1: a position that is not reached yet has 0
        token = text - 1
        hidden = tp.recurrence((config.hidden_size,), weights.computed, domain=(t, b, layer), name="hidden")
        after = model.layer(hidden, over=t)
        tp.carry(hidden, model.embed(token), after, kept=(t, b))

        logits = model.logits(after[t, b, L - 1])
        scores = penalized(logits, token, start, t, b) if features.is_penalized else logits
        if features.is_biased:
            scores = scores + tp.input("logit_bias", (config.vocab_size,))
        chosen = choose(scores, features, None if draw is None else draw[t + 1, b])
        ended = tp.input("ends", (config.vocab_size,), "bool").index(0, token) & (start <= t)
        text[t, b, t < P] = prompt[t, b] + 1
        after_end = tp.input("follow", (), "int32") if is_conversation else token
        chosen = tp.where(ended, after_end, chosen)
        text[t + 1, b] = tp.where(given >= 0, given, chosen) + 1
        if not is_conversation:
            context.ends(t, when=ended | (t + 1 >= limit))

        outputs: dict[str, Tensor] = {"text": text}
        if features.logprobs:
            logprobs = tp.log_softmax(logits, -1)
            values, tokens = tp.top_k(logprobs, features.logprobs)
            of_token = logprobs[t - 1, b].index(0, token)
            outputs |= {"logprob": of_token[t, b, t >= P]}
            outputs |= {"top_logprobs": values[t, b, t >= P - 1], "top_tokens": tokens[t, b, t >= P - 1]}
    return Decoder(context, model, outputs, B, P, T, L)


@dataclass(frozen=True)
class Scorer:
    """The traced program of `trace_scorer`: `logits` [vocabulary] over t; `length` and `layers` are its bounds."""

    context: tp.Context
    logits: Tensor
    length: Expr
    layers: Expr


def trace_scorer(config: LlamaConfig, attention: Attention, weights: Weights = FLOAT32) -> Scorer:
    """The program that gives the logits at every position of a text. Its inputs are the weights and `token` int32 [T]."""
    context = tp.Context("t", "l")
    with context as ((t, T), (layer, L)):
        token = tp.input("token", (), "int32", domain=(t,))
        model = Llama(config, layer, attention.by_layer(config.num_hidden_layers), weights)
        hidden = tp.recurrence((config.hidden_size,), weights.computed, domain=(t, layer), name="hidden")
        after = model.layer(hidden, over=t)
        tp.carry(hidden, model.embed(token), after, kept=(t,))
        return Scorer(context, model.logits(after[t, L - 1]), T, L)


def runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """The first and last position of each stretch of True."""
    starts = [k for k, flag in enumerate(flags) if flag and not (k and flags[k - 1])]
    ends = [k for k, flag in enumerate(flags) if flag and not (k + 1 < len(flags) and flags[k + 1])]
    return list(zip(starts, ends, strict=True))
