"""Llama (Touvron et al., 2023; Llama 3: Dubey et al., 2024) as a recurrent program over rows b, positions t and layers l.

Positions count from each row's own first token, so that prompts of different lengths share a batch without padding on the
left. The token at a position comes from the prompt while the prompt lasts; after it, the model chooses the token at the position
before. Prompts, their lengths, the weights and the temperature are inputs: the same program runs other prompts and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.attention import Attention
from tempo_llm.config import LlamaConfig
from tempo_llm.sampling import at_temperature, greedy


class LlamaLayer(tp.nn.Module):
    """Attention, then SwiGLU. Each reads the normalised hidden state, and its result is added to the hidden state.

    The weights vary over the step `layer`; `patterns` has one attention pattern per layer.
    """

    def __init__(self, config: LlamaConfig, layer: Expr, patterns: Sequence[tp.nn.Pattern]):
        super().__init__(name="", domain=(layer,), fed=True)
        hidden, epsilon, over = config.hidden_size, config.rms_norm_eps, (layer,)
        self.layer, self.patterns = layer, tuple(patterns)
        self.attention_norm = tp.nn.RMSNorm(hidden, over, epsilon, fed=True)
        self.attention = tp.nn.GroupedQueryAttention(
            hidden,
            config.num_attention_heads,
            config.num_key_value_heads,
            over,
            head_width=config.head_dim,
            rope=tp.nn.RoPE(config.head_dim, config.rope_theta, config.rope_scaling),
            bias=config.attention_bias,
            fed=True,
        )
        self.mlp_norm = tp.nn.RMSNorm(hidden, over, epsilon, fed=True)
        self.mlp = tp.nn.SwiGLU(hidden, config.intermediate_size, over, bias=config.mlp_bias, fed=True)

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

    def __init__(self, config: LlamaConfig, layer: Expr, patterns: Sequence[tp.nn.Pattern], tied: bool):
        super().__init__(name="", fed=True)
        self.layer = LlamaLayer(config, layer, patterns)
        self.final_norm = tp.nn.RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, fed=True)
        self.head = tp.nn.Linear(config.hidden_size, config.vocab_size, bias=False, fed=True)
        self.embedding = None if tied else tp.nn.Embedding(config.vocab_size, config.hidden_size, fed=True)

    def embed(self, token: Tensor) -> Tensor:
        """The first hidden state of a token: a row of the embedding, or a column of the head if the two are tied."""
        return self.head.weight.index(1, token) if self.embedding is None else self.embedding(token)

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores of all tokens of the vocabulary, from the hidden state after the last layer."""
        return self.head(self.final_norm(hidden))


@dataclass(frozen=True)
class Decoder:
    """The traced program. `token` is int32 over (b, t); `rows`, `length` and `layers` are its bounds, needed to compile it."""

    context: tp.Context
    model: Llama
    token: Tensor
    rows: Expr
    length: Expr
    layers: Expr


def trace_decoder(config: LlamaConfig, attention: Attention, *, sampled: bool, tied: bool) -> Decoder:
    """The decoding program of a model.

    Its inputs are `prompt` int32 [B, T] (zeros behind the prompt), `prompt_length` int32 [B], the weights by the names of
    `checkpoint.load_weights` (without the embedding if the head is `tied` to it), and, if `sampled`, `temperature`.
    """
    context = tp.Context("b", "t", "l")
    with context as ((b, B), (t, T), (layer, L)):
        prompt = tp.input("prompt", (), "int32", domain=(b, t))
        prompt_length = tp.input("prompt_length", (), "int32", domain=(b,))
        model = Llama(config, layer, attention.by_layer(config.num_hidden_layers), tied)

        token = tp.recurrence((), "int32", domain=(b, t), name="token")
        hidden = tp.recurrence((config.hidden_size,), domain=(b, t, layer), name="hidden")
        after = model.layer(hidden, over=t)
        tp.carry(hidden, model.embed(token), after, kept=(b, t))

        logits = model.logits(after[b, t, L - 1])
        chosen = at_temperature(logits, tp.input("temperature", ())) if sampled else greedy(logits)
        tp.carry(token, prompt[b, 0], tp.where(prompt_length > t + 1, prompt[b, t + 1], chosen), kept=(b,))
    return Decoder(context, model, token, B, T, L)


def runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """The first and last position of each stretch of True."""
    starts = [k for k, flag in enumerate(flags) if flag and not (k and flags[k - 1])]
    ends = [k for k, flag in enumerate(flags) if flag and not (k + 1 < len(flags) and flags[k + 1])]
    return list(zip(starts, ends, strict=True))
