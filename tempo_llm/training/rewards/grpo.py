"""The program of GRPO (Shao et al., 2024, arXiv:2402.03300): the model writes texts, and learns from what is better than its group.

Weights are a recurrence over reports e, iterations i and the updates k of an iteration. In each iteration the model writes J texts behind each
of R prompts, token by token. With one update in an iteration, the gradient goes through the probabilities that writing computed: there is no
second pass over the texts. With several, each update computes the probabilities of these texts again, and compares them with those of writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.config import LlamaConfig
from tempo_llm.llama import Llama, counts, loop_names
from tempo_llm.sampling import drawn, greedy
from tempo_llm.stacks import windowed_stacks
from tempo_llm.training.program import Figures, Receiver, Reporter, Traced, learning_model, model_of, update
from tempo_llm.training.recipe import GRPORecipe, LoraRecipe
from tempo_llm.training.rewards.prompts import NOTHING, Prompts
from tempo_llm.training.rewards.reading import STEPS, Places, Reader

SMALLEST = 1e-4  # added to the standard deviation of a group
Judge = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray]]
"""Rewards float32 [R, J] of texts int32 [R, J, U] behind the prompts with numbers int32 [R]. Behind the end token of a text stands NOTHING."""


@dataclass(frozen=True)
class Written:
    """Texts that the model wrote, over (*at, r, j), with each of their tokens over (*at, u, r, j).

    `logits`, float32 [vocabulary], are divided by the temperature. `counts` is 1 for the tokens of a text, with the end token, and 0 behind it.
    """

    token: Tensor
    logits: Tensor
    counts: Tensor
    reward: Tensor


def trace_grpo(
    config: LlamaConfig,
    recipe: GRPORecipe,
    prompts: Prompts,
    receive: Receiver,
    figures: Figures | None = None,
    adapters: LoraRecipe | None = None,
    judge: Judge | None = None,
    has_draws: bool = False,
) -> Traced:
    """The program of a whole run. Its inputs are those of `Prompts.inputs`, `row` int32 [E, I, R], and the first weights.

    Rewards are those of `judge`, on the host; without it, 1 for a text whose tokens are those of its reference, and 0 for another.
    With `has_draws`, the uniform numbers that tokens are drawn with are an input too: `draw` over (e, i, u, r, j).
    """
    stacks = windowed_stacks(config)
    several = recipe.epochs > 1
    context = tp.Context("e", "i", *(["k"] if several else []), *STEPS, *loop_names(stacks))
    with context as steps:
        (e, E), (i, I) = steps[:2]
        k, K = steps[2] if several else (None, None)
        places, layers = places_of(steps[2 + several :])
        over = (e, i) if k is None else (e, i, k)
        before = model_of(config, stacks, [layer for layer, _ in layers], recipe.dtype)
        model, parameters = learning_model(before, config, stacks, adapters, over)
        row = tp.input("row", (), "int32", domain=(e, i, places.row))
        prompt, start, reference = (x.index(0, row) for x in prompts.traced())

        drawing = (e, i, places.token, places.row, places.text)
        draw = tp.input("draw", (), domain=drawing) if has_draws else tp.random.uniform(domain=drawing)
        at = (e, i)
        acting = model if k is None else model[e, i, 0]

        def reader(of: Llama, points: tuple[Expr, ...]) -> Reader:
            return Reader(of, points, places, prompt, start, config.max_position_embeddings)

        written = write(reader(acting, at), prompts, recipe, draw, reference, row, judge)
        everywhere = (slice(0, places.tokens), slice(0, places.rows), slice(0, places.texts))
        texts = everywhere[1:]

        group = (*at, places.row, slice(0, places.texts))
        centred = written.reward - written.reward[group].mean()
        spread = tp.sqrt(tp.square(centred)[group].mean())
        advantage = (centred / (spread + SMALLEST) if recipe.normalize == "std" else centred).detach()

        logits = written.logits
        if k is not None:
            logits = reader(model, over).logits(written.token) / recipe.temperature
        chances = tp.log_softmax(logits, -1)
        log_prob = chances.index(0, written.token)
        old = log_prob if k is None else tp.log_softmax(written.logits, -1).index(0, written.token)
        ratio = tp.exp(log_prob - old.detach())
        high = recipe.clip_range if recipe.clip_high is None else recipe.clip_high
        clipped = tp.clip(ratio, 1.0 - recipe.clip_range, 1.0 + high)
        entropy = -(tp.exp(chances) * chances).sum(-1)
        cost = -tp.minimum(ratio * advantage, clipped * advantage)
        if recipe.kl:
            first = reader(before, at).logits(written.token) / recipe.temperature
            gap = tp.log_softmax(first, -1).index(0, written.token).detach() - log_prob
            divergence = tp.exp(gap) - gap - 1.0
            cost = cost + recipe.kl * divergence
        if recipe.entropy:
            cost = cost - recipe.entropy * entropy

        lengths = written.counts[(*at, slice(0, places.tokens), places.row, places.text)].sum(0)

        def mean(x: Tensor) -> Tensor:
            """Of the tokens that count."""
            points = at if k is None or k not in [step.expr for step in x.domain.steps] else over
            masked = x * written.counts
            if recipe.average == "texts":
                return (masked / lengths)[(*points, *everywhere)].sum(0).mean()
            whole = masked[(*points, *everywhere)].sum()
            if recipe.average == "length":
                return whole / (recipe.prompts * recipe.group * recipe.new_tokens)
            return whole / lengths[(*at, *texts)].sum()

        metrics = {
            "reward": written.reward[(*at, *texts)].mean(),
            "length": lengths[(*at, *texts)].mean(),
            "spread": spread[(*at, texts[0])].mean(),
            "entropy": mean(entropy),
        }
        if recipe.kl:
            metrics["kl"] = mean(divergence)
        if k is not None:
            metrics["clipped"] = mean((ratio != clipped).astype("float32"))
        reporter = Reporter(receive, {} if figures is None else figures)
        inner = (I,) if K is None else (I, K)
        update(mean(cost).named("loss"), parameters, recipe, over, inner, [layer for layer, _ in layers], metrics, reporter)
    bounds = {
        **counts(stacks, layers), E: recipe.reports, I: recipe.report_every // recipe.epochs,
        **places.bounds(prompts.width, recipe.new_tokens, recipe.prompts, recipe.group),
    }  # fmt: skip
    return Traced(context, bounds if K is None else {**bounds, K: recipe.epochs}, [])


def trace_writing(config: LlamaConfig, recipe: GRPORecipe, prompts: Prompts, judge: Judge | None = None) -> Traced:
    """The program that writes a text behind each of `prompts`, greedily, with weights that are fed, float32, and gives the mean reward and length."""
    stacks = windowed_stacks(config)
    context = tp.Context(*STEPS, *loop_names(stacks))
    with context as steps:
        places, layers = places_of(steps)
        model = model_of(config, stacks, [layer for layer, _ in layers], "float32")
        prompt, start, reference = prompts.traced((places.row,))
        reader = Reader(model, (), places, prompt, start, config.max_position_embeddings)
        row = tp.arange(len(prompts)).index(0, places.row)
        written = write(reader, prompts, recipe, None, reference, row, judge)
        texts = (slice(0, places.rows), slice(0, places.texts))
        outputs = [written.reward[texts].mean(), written.counts[(slice(0, places.tokens), *texts)].sum(0).mean()]
    return Traced(
        context, {**counts(stacks, layers), **places.bounds(prompts.width, recipe.new_tokens, len(prompts), 1)}, outputs
    )


def places_of(steps: Sequence[tuple[Expr, Expr]]) -> tuple[Places, Sequence[tuple[Expr, Expr]]]:
    """The steps of a program from those of `STEPS` on, and those over layers behind them."""
    count = len(STEPS)
    return Places(*(each for pair in steps[:count] for each in pair)), steps[count:]


def write(
    reader: Reader, prompts: Prompts, recipe: GRPORecipe, draw: Tensor | None, reference: Tensor, row: Tensor, judge: Judge | None
) -> Written:
    """What a model writes behind prompts. `draw` is uniform in [0, 1), over (*at, u, r, j); without it, the most likely tokens are taken."""
    places, at = reader.places, reader.at
    u, r, j = places.token, places.row, places.text
    token = tp.recurrence((), "int32", domain=(*at, u, r, j), name="token")
    logits = reader.logits(token) / recipe.temperature
    token[(*at, u, r, j)] = greedy(logits) if draw is None else drawn(tp.softmax(logits.detach(), -1), draw)
    going_on = tp.recurrence((), "float32", domain=(*at, u, r, j), name="going on")
    is_end = tp.constant(prompts.ends).index(0, token)
    going_on[(*at, u, r, j, u < 1)] = 1.0
    going_on[(*at, u, r, j)] = tp.where(is_end, 0.0, going_on)[(*at, u - 1, r, j)]
    text = tp.where(going_on > 0.0, token, NOTHING)
    if judge is None:
        is_equal = (text == reference.index(0, u)).astype("float32")
        reward = is_equal[(*at, slice(0, places.tokens), r, j)].min(0)
    else:
        texts = (slice(0, places.rows), slice(0, places.texts))
        whole = tp.moveaxis(text[(*at, slice(0, places.tokens), *texts)], 0, -1)
        shape = tp.spec((places.rows, places.texts))
        (rewards,) = tp.udf(judge, row[(*at, texts[0])], whole, outputs=[shape], kind="host", stateful=True, name="reward")
        reward = rewards.index(0, r).index(0, j)
    return Written(token, logits, going_on, reward)
