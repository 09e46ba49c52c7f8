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
from tempo_llm.blocks import Block, Time, rms_norm
from tempo_llm.config import LlamaConfig
from tempo_llm.sampling import GREEDY, Features, choose, penalized
from tempo_llm.stacks import Stack, prefix, stacks_of
from tempo_llm.weights import FLOAT32, Weights

__all__ = ["FLOAT32", "Decoder", "Llama", "Scorer", "Weights", "trace_decoder", "trace_scorer"]


class Llama(tp.nn.Module):
    """A model whose weights are inputs of the program. The layers of each of its stacks are a loop over one of the steps `layers`."""

    def __init__(self, config: LlamaConfig, stacks: Sequence[Stack], layers: Sequence[Expr], time: Time, weights: Weights):
        super().__init__(name="", fed=True)
        hidden, vocabulary = config.hidden_size, config.vocab_size
        self.config, self.weights = config, weights
        self.loops = list(zip(layers, stacks, strict=True))
        for step, stack in self.loops:
            for body in stack.bodies:
                block = Block(config, body.layer, body.pattern, step, time, weights, prefix(body, stacks))
                setattr(self, f"layer_{body.first}", block)
        self.final_norm = rms_norm(hidden, (), config.rms_norm_eps, config.layers[0].norm_offset, weights.computed)
        self.head = weights.head(hidden, vocabulary)
        self.embedding = None if weights.tied else weights.table(vocabulary, hidden)

    def embed(self, token: Tensor) -> Tensor:
        """The first hidden state of a token: a row of the embedding, or a column of the head if the two are tied."""
        row = self.weights.row(self.head, token) if self.embedding is None else self.embedding(token)
        return row if self.config.embedding_scale == 1.0 else row * self.config.embedding_scale

    def after(self, token: Tensor, at: tuple[Expr, ...]) -> Tensor:
        """The hidden state after the last layer, at the points `at` of the tokens."""
        start = self.embed(token)
        for step, stack in self.loops:
            hidden = tp.recurrence((self.config.hidden_size,), self.weights.computed, domain=(*at, step), name="hidden")
            after: Tensor = hidden
            for body in stack.bodies:
                after = getattr(self, f"layer_{body.first}")(after).named("after")
            tp.carry(hidden, start, after, kept=at)
            (symbol,) = step.steps
            start = after[(*at, symbol.bound_expr - 1)]
        return start

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores of all tokens of the vocabulary, float32, from the hidden state after the last layer."""
        logits = self.head(self.final_norm(hidden)).astype("float32")
        cap = self.config.logit_cap
        return logits if cap is None else cap * tp.tanh(logits / cap)


@dataclass(frozen=True)
class Decoder:
    """The traced program. Its outputs are over (t, b). `rows`, `prompt` and `length` are bounds, needed to compile it.

    So are `loops`, those of the loops over layers, with their numbers. `layers` is the first of them.
    """

    context: tp.Context
    model: Llama
    outputs: dict[str, Tensor]
    rows: Expr
    prompt: Expr
    length: Expr
    loops: dict[Expr, int]

    @property
    def layers(self) -> Expr:
        return next(iter(self.loops))


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
    stacks = stacks_of(config, attention)
    context = tp.Context(
        "p", "t", "b", *loop_names(stacks)
    )  # positions before rows: results fill up as the loop over positions goes on
    with context as ((p, P), (t, T), (b, B), *layers):
        prompt = tp.input("prompt", (), "int32", domain=(p, b))
        if is_conversation:
            given = tp.input("given", (), "int32", domain=(t,), streamed=True)[t + 1]
        else:
            given = tp.input("given", (), "int32", domain=(t, b))[t + 1, b]
        start, limit = tp.input("start", (), "int32", domain=(b,)), tp.input("limit", (), "int32", domain=(b,))
        draw = tp.input("draw", (), domain=(t, b)) if features.is_sampled else None
        model = Llama(config, stacks, [layer for layer, _ in layers], Time(t, limit), weights)

        text = tp.recurrence((), "int32", domain=(t, b), name="text")  # token + 1: a position that is not reached yet has 0
        token = text - 1
        logits = model.logits(model.after(token, (t, b)))
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
    return Decoder(context, model, outputs, B, P, T, counts(stacks, layers))


@dataclass(frozen=True)
class Scorer:
    """The traced program of `trace_scorer`: `logits` [vocabulary] over t; `length` and `loops` are its bounds."""

    context: tp.Context
    logits: Tensor
    length: Expr
    loops: dict[Expr, int]


def trace_scorer(config: LlamaConfig, attention: Attention, weights: Weights = FLOAT32) -> Scorer:
    """The program that gives the logits at every position of a text. Its inputs are the weights and `token` int32 [T]."""
    stacks = stacks_of(config, attention)
    context = tp.Context("t", *loop_names(stacks))
    with context as ((t, T), *layers):
        token = tp.input("token", (), "int32", domain=(t,))
        model = Llama(config, stacks, [layer for layer, _ in layers], Time(t, T), weights)
        return Scorer(context, model.logits(model.after(token, (t,))), T, counts(stacks, layers))


def loop_names(stacks: Sequence[Stack]) -> list[str]:
    """The names of the steps over layers: `l`, then `l1`, `l2`, ..."""
    return [f"l{number}" if number else "l" for number in range(len(stacks))]


def counts(stacks: Sequence[Stack], layers: Sequence[tuple[Expr, Expr]]) -> dict[Expr, int]:
    """The bounds of the loops over layers, with their numbers."""
    return {bound: stack.repeats for (_, bound), stack in zip(layers, stacks, strict=True)}
