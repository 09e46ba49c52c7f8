"""The program of DPO (Rafailov et al., 2023, arXiv:2305.18290): of two texts, the preferred one becomes more probable than the other one.

The loss is -log sigmoid(beta * margin). The margin is by how much the log-probability of the chosen text, less that of the rejected one, has grown
since the first weights. What the first weights say of all pairs is computed once, before the first update: groups g of pairs, one after the other.
"""

from __future__ import annotations

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.config import LlamaConfig
from tempo_llm.llama import Llama, counts, loop_names
from tempo_llm.stacks import windowed_stacks
from tempo_llm.times import Points
from tempo_llm.training.program import Figures, Receiver, Reporter, Traced, learning_model, model_of, update
from tempo_llm.training.recipe import DPORecipe, LoraRecipe
from tempo_llm.training.rewards.pairs import Pairs


def trace_dpo(
    config: LlamaConfig,
    recipe: DPORecipe,
    pairs: Pairs,
    receive: Receiver,
    figures: Figures | None = None,
    adapters: LoraRecipe | None = None,
) -> Traced:
    """The program of a whole run. Its inputs are those of `Pairs.inputs`, `row` int32 [E, I, B], and the first weights."""
    stacks = windowed_stacks(config)
    context = tp.Context("e", "i", "g", "b", "c", "t", *loop_names(stacks))
    with context as ((e, E), (i, I), (g, G), (b, B), (c, C), (t, T), *layers):
        texts, counted = pairs.traced()
        row = tp.input("row", (), "int32", domain=(e, i, b))
        before = model_of(config, stacks, [layer for layer, _ in layers], recipe.dtype)
        model, parameters = learning_model(before, config, stacks, adapters, (e, i))

        number = tp.minimum(g * recipe.batch_size + b + tp.zeros((), "int32"), len(pairs) - 1)
        of_all = _log_prob(before, texts.index(0, number), counted.index(0, number), (g, b, c), Points(t, T), T)
        first = of_all[0:G, 0:B, 0:2].detach().reshape(G * B, 2).index(0, row)
        now = _log_prob(model, texts.index(0, row), counted.index(0, row), (e, i, b, c), Points(t, T), T)
        margin = recipe.beta * ((now - first.index(0, c))[e, i, b, 0] - (now - first.index(0, c))[e, i, b, 1])
        smoothing = recipe.label_smoothing
        losses = (1 - smoothing) * tp.softplus(-margin) + smoothing * tp.softplus(margin)

        def mean(x: Tensor) -> Tensor:
            return x[e, i, 0:B].mean()

        metrics = {"accuracy": mean((margin > 0.0).astype("float32")), "margin": mean(margin)}
        reporter = Reporter(receive, {} if figures is None else figures)
        steps = [layer for layer, _ in layers]
        update(mean(losses).named("loss"), parameters, recipe, (e, i), (I,), steps, metrics, reporter)
    groups = -(-len(pairs) // recipe.batch_size)
    bounds = {
        **counts(stacks, layers), E: recipe.reports, I: recipe.report_every, G: groups, B: recipe.batch_size, C: 2, T: pairs.length,
    }  # fmt: skip
    return Traced(context, bounds, [], ("vectorize(g)",) if groups > 1 else ())  # one group after the other


def trace_pairs(config: LlamaConfig, pairs: Pairs) -> Traced:
    """The program that gives the log-probabilities of pairs, float32 [pairs, 2], with weights that are fed, float32."""
    stacks = windowed_stacks(config)
    context = tp.Context("b", "c", "t", *loop_names(stacks))
    with context as ((b, B), (c, C), (t, T), *layers):
        texts, counted = pairs.traced((b,))
        model = model_of(config, stacks, [layer for layer, _ in layers], "float32")
        log_prob = _log_prob(model, texts, counted, (b, c), Points(t, T), T)
    return Traced(context, {**counts(stacks, layers), B: len(pairs), C: 2, T: pairs.length}, [log_prob])


def _log_prob(model: Llama, pair: Tensor, counted: Tensor, at: tuple[Expr, ...], t: Points, T: Expr) -> Tensor:
    """The sum of the log-probabilities of the tokens that count, over `at`, whose last step is over the texts of a pair [2, length + 1]."""
    text, counts = pair.index(0, at[-1]), counted.index(0, at[-1]).index(0, t.position)
    token, following = text.index(0, t.position), text.index(0, t.position + 1)
    logits = model.logits(model.after(token, (*at, t.position), t))
    chances = tp.log_softmax(logits, -1).index(0, following)
    return tp.where(counts, chances, 0.0)[(*at, slice(0, T))].sum(0)


def figures_of(first: np.ndarray, now: np.ndarray, recipe: DPORecipe) -> dict[str, float]:
    """The figures of held-out pairs from log-probabilities float32 [pairs, 2] of the first weights and of the present ones."""
    change = now - first
    margin = recipe.beta * (change[:, 0] - change[:, 1])
    smoothing = recipe.label_smoothing
    losses = (1 - smoothing) * np.logaddexp(0, -margin) + smoothing * np.logaddexp(0, margin)
    means = {"loss": losses, "accuracy": margin > 0, "margin": margin}
    return {f"held_out_{name}": float(values.mean()) for name, values in means.items()}
