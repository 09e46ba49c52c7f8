"""Llama (Touvron et al., 2023; Llama 3: Dubey et al., 2024) and its relatives as a recurrent program over prompts, new tokens and layers l.

Positions count from each row's own first token, so that prompts of different lengths share a batch without padding on the
left. The same model runs twice: over the places of a prompt, block by block, and over the tokens after it. `times.py` says what each of
them attends to. Prompts, their lengths, the weights and the settings of the choice are inputs,
and lengths are bounds that a run chooses: the same program runs other prompts and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.typing import Bounds
from tempo_llm.attention import Attention
from tempo_llm.blocks import Block, rms_norm
from tempo_llm.config import LlamaConfig
from tempo_llm.sampling import GREEDY, Features, choose, penalized, report, settings, token_counts
from tempo_llm.stacks import Stack, prefix, stacks_of
from tempo_llm.times import Blocks, Past, Points, Time, Tokens, computed
from tempo_llm.weights import FLOAT32, Weights

__all__ = ["FLOAT32", "Decoder", "Llama", "Scorer", "Weights", "trace_decoder", "trace_scorer"]


class Llama(tp.nn.Module):
    """A model whose weights are inputs of the program. The layers of each of its stacks are a loop over one of the steps `layers`."""

    def __init__(self, config: LlamaConfig, stacks: Sequence[Stack], layers: Sequence[Expr], weights: Weights, name: str = ""):
        super().__init__(name=name, fed=True)
        hidden, vocabulary = config.hidden_size, config.vocab_size
        self.config, self.weights = config, weights
        self.loops = list(zip(layers, stacks, strict=True))
        for step, stack in self.loops:
            for body in stack.bodies:
                block = Block(config, body.layer, body.pattern, step, weights, prefix(body, stacks))
                setattr(self, f"layer_{body.first}", block)
        self.final_norm = rms_norm(hidden, (), config.rms_norm_eps, config.layers[0].norm_offset, weights.computed)
        self.head = weights.head(hidden, vocabulary)
        self.embedding = None if weights.tied else weights.table(vocabulary, hidden)

    def embed(self, token: Tensor) -> Tensor:
        """The first hidden state of a token: a row of the embedding, or a column of the head if the two are tied."""
        row = self.weights.row(self.head, token) if self.embedding is None else self.embedding(token)
        return row if self.config.embedding_scale == 1.0 else row * self.config.embedding_scale

    def after(self, token: Tensor, at: tuple[Expr, ...], time: Time) -> Tensor:
        """The hidden state after the last layer, at the points `at` of the tokens."""
        start = self.embed(token)
        for step, stack in self.loops:
            hidden = tp.recurrence((self.config.hidden_size,), self.weights.computed, domain=(*at, step), name="hidden")
            after: Tensor = hidden
            if time.where is not None:  # nothing is computed at other points
                hidden[(*at, step, ~time.where)] = tp.zeros(hidden.shape, hidden.dtype)
                after = computed(hidden, time)
            for body in stack.bodies:
                after = getattr(self, f"layer_{body.first}")(after, time).named("after")
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
class KeptArray:
    """An output `past.*` of a decoder, and the input of the same name: at each point of `layers` steps, and in blocks unless it is a state.

    `shape` is that of a point, after the numbers of layers; a token needs `reach` positions before it: None stands for all.
    """

    shape: tuple[int, ...]
    dtype: str
    layers: int
    reach: int | None
    is_state: bool


@dataclass(frozen=True)
class Decoder:
    """The traced program, of which `text` is over (u, r, j). Its bounds, needed to compile it, are those of the steps of `trace_decoder`.

    `loops` are those of the loops over layers, with their numbers. `past` is the bound of its step, if the program has a past.
    """

    context: tp.Context
    model: Llama
    outputs: dict[str, Tensor]
    block: int
    blocks: Expr
    copies: Expr
    places: Expr
    length: Expr
    rows: Expr
    samples: Expr
    loops: dict[Expr, int]
    past: Expr | None
    kept: dict[str, KeptArray]

    def bounds(self, blocks: int, new: int, rows: int = 1, samples: int = 1) -> Bounds:
        """The bounds of a program for prompts of up to so many blocks, and up to so many new tokens."""
        numbers = tp.upto(blocks if self.past is None else blocks + 1)
        lengths = {self.blocks: numbers, self.copies: numbers, self.length: tp.upto(new)}
        if self.past is not None:
            lengths[self.past] = numbers
        return {**lengths, self.places: self.block, self.rows: rows, self.samples: samples, **self.loops}


def trace_decoder(
    config: LlamaConfig,
    attention: Attention,
    features: Features = GREEDY,
    weights: Weights = FLOAT32,
    block: int = 16,
    is_mixed: bool = False,
    has_past: bool = False,
) -> Decoder:
    """The decoding program of a model. Its steps are q, blocks of the past; n, blocks of the prompts; s, places of a block; u, new tokens;
    r, prompts; j, samples of a prompt; and those over layers. Token k of a prompt is at place k % `block` of a block.

    Its inputs are the weights by the names of `checkpoint.load_weights` (without the embedding if the head is tied to it), those of
    `Sampling.inputs`, and

    - `prompt` int32 [N, S, R]: the tokens of the prompts, with any tokens behind them,
    - `start` int32 [R], `limit` int32 [R]: the length of each prompt, and of prompt and text together,
    - `ends` bool [vocabulary]: the tokens that end a text,
    - with penalties, `counts_before` float32 [vocabulary, R]: how often each token is in a part of the text that stands in the prompt,
    - with `has_past`, the outputs `past.*` of a program before.

    Its outputs are `text` over (u, r, j), which is the token + 1, and, if `features.logprobs` is K, its `logprob`, and the K most likely
    tokens in its place with theirs, `top_logprobs` and `top_tokens` [K]. A row that has ended repeats its last token. With `has_past`, they
    are also what a later prompt with the same first blocks needs: `past.*`.

    With LongRoPE, frequencies follow from the length of a prompt: a text that grows beyond the original context goes on as a longer prompt.
    Prompts that are `mixed` may have different numbers of blocks, others have as many as the longest.
    """
    stacks = stacks_of(config, attention)
    context = tp.Context(*(["q"] if has_past else []), "n", "m", "s", "u", "r", "j", *loop_names(stacks))
    with context as steps:
        past = Past(*steps[0]) if has_past else None
        (n, N), (m, M), (s, S), (u, U), (r, R), (j, J), *layers = steps[1:] if has_past else steps
        start, limit = tp.input("start", (), "int32", domain=(r,)), tp.input("limit", (), "int32", domain=(r,))
        model = Llama(config, stacks, [layer for layer, _ in layers], weights)
        most = config.max_position_embeddings
        blocks = Blocks(n, N, s, block, start, start, most, past)
        last = last_hidden(model, tp.input("prompt", (), "int32", domain=(n, s, r)), blocks, r)

        text = tp.recurrence((), "int32", domain=(u, r, j), name="text")  # token + 1: a token that is not reached yet has 0
        token = text - 1
        tokens = Tokens(m, M, blocks, is_mixed, u)
        before = tp.recurrence((config.hidden_size,), weights.computed, domain=(u, r, j), name="before")
        before[u, r, j, u < 1] = last
        before[u, r, j] = model.after(token, (u, r, j), tokens)[u - 1, r, j]
        logits = model.logits(before)
        scores = logits
        if features.is_penalized:
            in_prompt = tp.input("in_prompt", (config.vocab_size,), "bool", domain=(r,))
            counts_before = tp.input("counts_before", (config.vocab_size,), domain=(r,))
            scores = penalized(logits, token_counts(token, config.vocab_size, u, r, j, counts_before), in_prompt)
        if features.is_biased:
            scores = scores + tp.input("logit_bias", (config.vocab_size,))
        draw = tp.input("draw", (), domain=(u, r, j)) if features.is_sampled else None
        chosen = choose(scores, settings(features), draw) + 1
        ended = tp.input("ends", (config.vocab_size,), "bool").index(0, token)
        text[u, r, j, u < 1] = chosen
        text[u, r, j] = tp.where(ended[u - 1, r, j], text[u - 1, r, j], chosen)
        context.ends(u, when=ended | (tokens.position + 1 >= limit))

        outputs: dict[str, Tensor] = {"text": text}
        if features.logprobs:
            outputs |= report(logits, token, features.logprobs)
        loops = counts(stacks, layers)
        of_prompts, kept = blocks_kept(blocks, loops) if has_past else ({}, {})
        outputs |= of_prompts
    return Decoder(context, model, outputs, block, N, M, S, U, R, J, loops, None if past is None else steps[0][1], kept)


def last_hidden(model: Llama, prompt: Tensor, blocks: Blocks, r: Expr, at: tuple[Expr, ...] = ()) -> Tensor:
    """The hidden state after the last layer at the last token of each prompt r. `prompt` int32 over (*at, n, s, r) are the tokens."""
    n, s = blocks.block, blocks.place
    after = model.after(prompt, (*at, n, s, r), blocks)
    last = tp.recurrence((model.config.hidden_size,), model.weights.computed, domain=(*at, n, r), name="last")
    place = blocks.start - 1 - blocks.at(n)
    here = after[(*at, n, slice(0, blocks.size), r)].index(0, tp.clip(place, 0, blocks.size - 1))
    if blocks.past is None:
        last[(*at, n, r, n < 1)] = here
    else:
        last[(*at, n, r, n < blocks.past.count)] = tp.zeros(last.shape, last.dtype)
    last[(*at, n, r)] = tp.where(place >= 0, here, last[(*at, n - 1, r)])
    return last[(*at, blocks.count - 1, r)]


def blocks_kept(blocks: Blocks, loops: dict[Expr, int]) -> tuple[dict[str, Tensor], dict[str, KeptArray]]:
    """What a later prompt needs that begins in the same way, as outputs, with their descriptions."""
    outputs: dict[str, Tensor] = {}
    kept: dict[str, KeptArray] = {}
    for name, (output, reach, is_state) in blocks.outputs().items():
        outputs[name] = output
        numbers = [number for bound, number in loops.items() if bound in {step.bound_expr for step in output.domain.steps}]
        sizes = output.shape if is_state else output.shape[2:]
        shape = (*numbers, *(int(Expr.of(size)) for size in sizes))
        kept[name] = KeptArray(shape, output.dtype, len(numbers), reach, is_state)
    return outputs, kept


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
        model = Llama(config, stacks, [layer for layer, _ in layers], weights)
        return Scorer(context, model.logits(model.after(token, (t,), Points(t, T))), T, counts(stacks, layers))


def loop_names(stacks: Sequence[Stack], first: str = "l") -> list[str]:
    """The names of the steps over layers: `l`, then `l1`, `l2`, ..."""
    return [f"{first}{number}" if number else first for number in range(len(stacks))]


def counts(stacks: Sequence[Stack], layers: Sequence[tuple[Expr, Expr]]) -> dict[Expr, int]:
    """The bounds of the loops over layers, with their numbers."""
    return {bound: stack.repeats for (_, bound), stack in zip(layers, stacks, strict=True)}
