"""The program of speculative decoding: in each round, several tokens are drafted, and the model says which of them stay.

The model chooses a token after each place of a round, with the draw of its position. A drafted token stays if it is the one that the model
chooses there. So the text is the one that the model would write alone, with drawn tokens too: a drafted token is a guess, whose
distribution has one point, and stays with the probability that the model gives it (Leviathan et al., 2023, arXiv:2211.17192).
"""

from __future__ import annotations

from dataclasses import dataclass

import tempo_core as tp
from tempo_core import Tensor
from tempo_llm.attention import Attention
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import RequestError
from tempo_llm.llama import Decoder, Llama, blocks_kept, counts, last_hidden, loop_names
from tempo_llm.rounds import Rounds
from tempo_llm.sampling import Features, choose, penalized, settings
from tempo_llm.stacks import stacks_of
from tempo_llm.times import Blocks, Past
from tempo_llm.weights import Weights

LONGEST_NGRAM = 3
DRAFT = "draft"  # how the names of the weights of a draft model begin


@dataclass(frozen=True)
class Draft:
    """A smaller model with the same vocabulary, which drafts."""

    config: LlamaConfig
    attention: Attention
    weights: Weights


@dataclass(frozen=True)
class Speculation:
    """`count` tokens are drafted in a round, by a model, or, without one, by n-grams of prompt and text.

    A program has room for `most_new` new tokens, and for `positions` of prompt and text.
    """

    count: int
    most_new: int
    positions: int
    draft: Draft | None = None


def check_draft(config: LlamaConfig, draft: LlamaConfig | None, keeps_prompts: bool) -> None:
    """Raise RequestError for a draft model that cannot draft for the model of `config`."""
    if draft is None:
        return
    if draft.vocab_size != config.vocab_size:
        raise RequestError(
            f"the draft model knows {draft.vocab_size} tokens, but the model {config.vocab_size}: they must have the same vocabulary",
            hint="take a smaller model of the same family, or leave the draft model out: n-grams draft then",
        )
    if keeps_prompts:
        raise RequestError(
            "a draft model computes each prompt, but prompt_cache keeps what the model alone has computed",
            hint="leave prompt_cache out, or the draft model: n-grams draft then",
        )


def trace_speculating(
    config: LlamaConfig,
    attention: Attention,
    features: Features,
    weights: Weights,
    block: int,
    is_mixed: bool,
    has_past: bool,
    speculation: Speculation,
) -> Decoder:
    """The decoding program with speculation. Its steps are those of `trace_decoder`, but u counts rounds, of which k are the places, and the
    layers of a draft model have steps of their own.

    In each round, at least one token is new: `text` over (u, k, r, j) is the token + 1, and 0 at places without a new token. The first round
    has the first token after the prompt alone. Inputs are those of `trace_decoder`, but `draw` is [new tokens] over (r, j); without a draft
    model, `text_tokens` int32 [positions] over r are the tokens of the prompts, with any tokens behind them.
    """
    stacks, draft = stacks_of(config, attention), speculation.draft
    drafting_stacks = () if draft is None else stacks_of(draft.config, draft.attention)
    names = [*loop_names(stacks), *loop_names(drafting_stacks, "d")]
    context = tp.Context(*(["q"] if has_past else []), "n", "m", "s", "u", "k", "r", "j", *names)
    places, vocabulary = speculation.count + 1, config.vocab_size
    with context as steps:
        past = Past(*steps[0]) if has_past else None
        (n, N), (m, M), (s, S), (u, U), (k, K), (r, R), (j, J), *layers = steps[1:] if has_past else steps
        start, limit = tp.input("start", (), "int32", domain=(r,)), tp.input("limit", (), "int32", domain=(r,))
        prompt = tp.input("prompt", (), "int32", domain=(n, s, r))
        drafter = None
        if draft is not None:  # made first: the model has the same names, without the word before them
            of_draft = [layer for layer, _ in layers[len(stacks) :]]
            drafter = Llama(draft.config, drafting_stacks, of_draft, draft.weights, DRAFT)
        model = Llama(config, stacks, [layer for layer, _ in layers[: len(stacks)]], weights)
        blocks = Blocks(n, N, s, block, start, start, config.max_position_embeddings, past)
        last = last_hidden(model, prompt, blocks, r)

        before = tp.recurrence((config.hidden_size,), weights.computed, domain=(u, k, r, j), name="before")
        logits = model.logits(before)
        used = tp.recurrence((vocabulary,), domain=(u, k, r, j), name="used") if features.is_penalized else None
        in_prompt = None if used is None else tp.input("in_prompt", (vocabulary,), "bool", domain=(r,))
        scores = logits if used is None or in_prompt is None else penalized(logits, used, in_prompt)
        bias = tp.input("logit_bias", (vocabulary,)) if features.is_biased else None
        scores = scores if bias is None else scores + bias
        draws = tp.input("draw", (speculation.most_new,), domain=(r, j)) if features.is_sampled else None
        numbers = settings(features)
        earlier = tp.recurrence((), "int32", domain=(u, r, j), name="earlier")  # new tokens of the rounds before
        chosen = choose(scores, numbers, None if draws is None else draws.index(0, earlier + k)).named("chosen")
        all_chosen = chosen[u, 0:K, r, j]

        token = tp.recurrence((), "int32", domain=(u, k, r, j), name="token")
        accepted = tp.recurrence((), "int32", domain=(u, r, j), name="accepted")
        total = (earlier + accepted + 1).named("total")
        ended = tp.recurrence((), "bool", domain=(u, r, j), name="ended")
        stays = token[u - 1, 0:K, r, j].spatial[1:] == all_chosen.spatial[: K - 1]
        in_a_row = stays.astype("int32").cumprod(0).sum(0)
        accepted[u, r, j, u < 1] = 0
        accepted[u, r, j] = tp.where(ended[u - 1, r, j], 0, in_a_row)
        earlier[u, r, j, u < 1] = 0
        earlier[u, r, j] = tp.where(ended[u - 1, r, j], earlier[u - 1, r, j], total[u - 1, r, j])
        ends = tp.input("ends", (vocabulary,), "bool").take(all_chosen) & (tp.arange(K) <= accepted)
        ends_here = ends.any(0) | (start + total >= limit)
        ended[u, r, j, u < 1] = ends_here
        ended[u, r, j] = ended[u - 1, r, j] | ends_here
        context.ends(u, when=ended)
        text = tp.where(k <= accepted, chosen + 1, 0).named("text")

        sure = all_chosen.index(0, accepted)
        token[u, k, r, j, k < 1] = sure
        rounds = Rounds(m, M, blocks, is_mixed, u, k, places, total, accepted, speculation.most_new)
        if draft is not None and drafter is not None:
            most = draft.config.max_position_embeddings
            drafted_blocks = Blocks(n, N, s, block, start, start, most, past)
            last_hidden(drafter, prompt, drafted_blocks, r)  # the prompt's keys, values and states
            drafting = Rounds(m, M, drafted_blocks, is_mixed, u, k, places, total, accepted, speculation.most_new, True)
            expected = drafter.logits(drafter.after(token, (u, k, r, j), drafting))
            expected = expected if bias is None else expected + bias
            guess = choose(expected, numbers, None if draws is None else draws.index(0, total + k))
            token[u, k, r, j] = guess[u, k - 1, r, j]
        else:
            text_tokens = tp.recurrence((speculation.positions + places,), "int32", domain=(u, r, j), name="text_tokens")
            so_far = tp.scatter(text_tokens, start + earlier + tp.arange(K), all_chosen, 0)
            text_tokens[u, r, j, u < 1] = tp.input("text_tokens", (speculation.positions + places,), "int32", domain=(r,))
            text_tokens[u, r, j] = so_far[u - 1, r, j]
            drafted = ngrams(so_far, start + total, places - 1)
            token[u, k, r, j] = drafted.index(0, tp.max(k - 1, 0))
        before[u, k, r, j, u < 1] = last
        before[u, k, r, j] = model.after(token, (u, k, r, j), rounds)[u - 1, k, r, j]
        if used is not None:
            used_before = tp.recurrence((vocabulary,), domain=(u, k, r, j), name="used_before")
            used_after = used_before + tp.one_hot(token, vocabulary)
            counts_before = tp.input("counts_before", (vocabulary,), domain=(r,))
            rounds.go_on(used_before, counts_before, used_after)
            used[u, k, r, j, u < 1] = counts_before
            used[u, k, r, j] = used_after[u - 1, k, r, j]

        outputs: dict[str, Tensor] = {"text": text}
        if features.logprobs:
            logprobs = tp.log_softmax(logits, -1)
            values, top = tp.top_k(logprobs, features.logprobs)
            outputs |= {"logprob": logprobs.index(0, chosen), "top_logprobs": values, "top_tokens": top}
        loops = {**counts(stacks, layers[: len(stacks)]), **counts(drafting_stacks, layers[len(stacks) :])}
        of_prompts, kept = blocks_kept(blocks, loops) if has_past else ({}, {})
        outputs |= of_prompts
    bounds = {**loops, K: places}
    return Decoder(context, model, outputs, block, N, M, S, U, R, J, bounds, None if past is None else steps[0][1], kept)


def ngrams(text_tokens: Tensor, length: Tensor, count: int, longest: int = LONGEST_NGRAM) -> Tensor:
    """The tokens that followed where the last tokens of a text stood before: int32 [count] (Saxena, 2023, prompt lookup decoding).

    `text_tokens` int32 [positions] is the text, of which `length` tokens count, at least two. Of all earlier places where its last token stands, that
    one is taken before which the most tokens are the same, up to `longest`, and of these the latest. Where the text ends, it goes on
    with what has been drafted.
    """
    (positions,) = text_tokens.shape
    at = tp.arange(positions)
    same = (text_tokens == text_tokens.index(0, length - 1)) & (at < length - 1)
    equal = same.astype("int32")
    for back in range(1, longest):
        earlier = tp.pad(text_tokens, ((back, 0),)).spatial[:positions]
        same = same & (earlier == text_tokens.index(0, length - 1 - back)) & (at >= back)
        equal = equal + same.astype("int32")
    latest = (tp.where(at < length - 1, equal * positions + at, -1)).argmax(0)
    period = length - 1 - latest
    return text_tokens.take(latest + 1 + tp.arange(count) % period)
