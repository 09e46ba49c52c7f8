"""The program of training: the model of `tempo_llm/llama.py`, the loss of the next token, and AdamW, over reports e and updates i."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.typing import Bounds, IntoExpr
from tempo_llm.checkpoint import layer_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.llama import Llama, Weights, counts, loop_names
from tempo_llm.stacks import Stack, windowed_stacks
from tempo_llm.times import Points
from tempo_llm.training.lora import targets_of, with_adapters
from tempo_llm.training.recipe import LearningRecipe, LoraRecipe, OptimizerRecipe
from tempo_llm.training.rows import Rows

Arrays = Mapping[str, np.ndarray]
Receiver = Callable[[int, Arrays, Arrays], None]
"""What gets, after each report's updates: its number, the metrics of its updates, and the parameters at their end."""
Figures = dict[str, float]
"""Figures of the newest report that the host computes, by name. They are saved with the run, so that it has them when it goes on."""


@dataclass(frozen=True)
class Traced:
    """A program before it is compiled. `loops` are the names of passes that are switched off, so that steps are loops."""

    context: tp.Context
    bounds: Bounds
    outputs: list[Tensor]
    loops: tuple[str, ...] = ()


def trace_training(
    config: LlamaConfig,
    recipe: LearningRecipe,
    rows: Rows,
    receive: Receiver,
    figures: Figures | None = None,
    adapters: LoraRecipe | None = None,
) -> Traced:
    """The program of a whole training run, with whose state `figures` are saved.

    Its inputs are those of `Rows.inputs`, `row` int32 [E, I, M, B] (which rows an update is of), and the first weights by the names of
    `checkpoint.split`. An update is of M micro-batches of B rows: their gradients are added up in a loop over m. With `adapters`, these
    alone are trained; their first values are inputs too, float32, by the names of `lora.first_adapters`.
    """
    stacks = windowed_stacks(config)
    context = tp.Context("e", "i", "m", "b", "t", *loop_names(stacks))
    with context as ((e, E), (i, I), (m, M), (b, B), (t, T), *layers):
        steps = [layer for layer, _ in layers]
        text, counted = rows.traced()
        row = tp.input("row", (), "int32", domain=(e, i, m, b))
        model, parameters = learning_model(model_of(config, stacks, steps, recipe.dtype), config, stacks, adapters, (e, i))

        everywhere = (e, i, slice(0, M), slice(0, B), slice(0, T))
        of_row = None if counted is None else counted.index(0, row)
        loss = _loss(model, text.index(0, row), of_row, (e, i, m, b), Points(t, T), everywhere).named("loss")
        update(loss, parameters, recipe, (e, i), (I,), steps, {}, Reporter(receive, {} if figures is None else figures))
    parts = recipe.batch_size // recipe.micro_batches
    bounds: Bounds = {
        **counts(stacks, layers), E: recipe.reports, I: recipe.report_every, M: recipe.micro_batches, B: parts, T: rows.length,
    }  # fmt: skip
    return Traced(context, bounds, [], ("vectorize(m)",) if recipe.micro_batches > 1 else ())  # one after the other


def trace_evaluation(config: LlamaConfig, rows: Rows) -> Traced:
    """The program that gives the mean loss over all `rows`, with weights that are fed, float32. Its inputs are those of `Rows.inputs` too."""
    stacks = windowed_stacks(config)
    context = tp.Context("b", "t", *loop_names(stacks))
    with context as ((b, B), (t, T), *layers):
        text, counted = rows.traced((b,))
        model = model_of(config, stacks, [layer for layer, _ in layers], "float32")
        loss = _loss(model, text, counted, (b,), Points(t, T), (slice(0, B), slice(0, T)))
    return Traced(context, {B: len(rows), T: rows.length, **counts(stacks, layers)}, [loss])


def model_of(config: LlamaConfig, stacks: Sequence[Stack], layers: Sequence[Expr], dtype: str) -> Llama:
    """The model whose weights are inputs of a program of training, computed in `dtype`."""
    return Llama(config, stacks, layers, Weights(dtype, bool(config.tie_word_embeddings)))


def learning_model(
    model: Llama, config: LlamaConfig, stacks: Sequence[Stack], adapters: LoraRecipe | None, over: tuple[Expr, ...]
) -> tuple[Llama, Mapping[str, Tensor]]:
    """The model whose parameters an optimizer updates over the steps `over`, and these parameters: all weights, float32, or adapters alone."""
    if adapters is not None:
        return with_adapters(model, targets_of(config, stacks, adapters), adapters, over)
    updated = model.updated(over, "float32")
    return updated, updated.parameters()


def update(
    loss: Tensor,
    parameters: Mapping[str, Tensor],
    recipe: OptimizerRecipe,
    over: tuple[Expr, ...],
    counts: tuple[Expr, ...],
    layers: Sequence[Expr],
    metrics: Mapping[str, Tensor],
    reporter: Reporter,
) -> None:
    """Update `parameters` by AdamW and the gradient of `loss`, and report after the updates of each point of the first step of `over`.

    `counts` are the bounds of the other steps of `over`. A report has all values of the loss, of `metrics`, of the gradient's norm and of the
    learning rate, and the parameters after the last update.
    """
    loss.backward()
    schedule = tp.optim.schedules.warmup_cosine(
        recipe.learning_rate,
        recipe.warmup,
        recipe.updates,
        recipe.learning_rate / (recipe.warmup + 1),
        recipe.final_learning_rate,
    )
    rate = schedule(tp.optim.schedules.update_count(over))
    optimizer = tp.optim.AdamW(
        parameters,
        rate,
        (recipe.beta1, recipe.beta2),
        max_grad_norm=recipe.max_grad_norm,
        weight_decay=recipe.weight_decay,
        kept=layers,
    )
    updated = optimizer.step()
    norm = tp.optim.global_norm([parameter.grad for parameter in parameters.values()], over=layers)
    reported = {"loss": loss, **metrics, "gradient_norm": norm, "learning_rate": rate}
    reporter.metrics, reporter.parameters = list(reported), list(updated)
    bounds: dict[IntoExpr, Expr] = dict(zip(over[1:], counts, strict=True))
    tp.sink(
        reporter.report,
        *(_all_of(value, bounds) for value in reported.values()),
        *(_at_end(weight, bounds) for weight in updated.values()),
        name="report",
    )


def _loss(
    model: Llama,
    text: Tensor,
    counted: Tensor | None,
    at: tuple[Expr, ...],
    t: Points,
    everywhere: tuple[Expr | slice, ...],
) -> Tensor:
    """The mean cross entropy of the next token, of those that are `counted`, bool [length]; without it, of all.

    `text` is [length + 1] at each point of `at`; `everywhere` are all points of a batch.
    """
    token, following = text.index(0, t.position), text.index(0, t.position + 1)
    logits = model.logits(model.after(token, (*at, t.position), t))
    chances = tp.log_softmax(logits, -1).index(0, following)
    if counted is None:
        return -chances[everywhere].mean()
    counts = counted.index(0, t.position).astype("float32")
    return -(chances * counts)[everywhere].sum() / counts[everywhere].sum()


def _all_of(value: Tensor, bounds: Mapping[IntoExpr, Expr]) -> Tensor:
    """A value at all points of the steps with these bounds: [..., as many as it has of them]."""
    return value[tuple(slice(0, bounds[step.expr]) if step.expr in bounds else step.expr for step in value.domain.steps)]


def _at_end(weight: Tensor, bounds: Mapping[IntoExpr, Expr]) -> Tensor:
    """A parameter after the last update of a report: [layers, ...] if it varies with the layers."""
    first, *others = weight.domain.steps
    ends = (bounds[step.expr] - 1 if step.expr in bounds else slice(0, step.bound_expr) for step in others)
    return weight[(first.expr, *ends)]


class Reporter:
    """The sink of a training program. Its state, the number of reports so far and the figures of the newest, is saved with the run."""

    metrics: Sequence[str]
    parameters: Sequence[str]

    def __init__(self, receive: Receiver, figures: Figures):
        self.receive, self.figures, self.count = receive, figures, 0

    def report(self, *values: np.ndarray, e: int) -> None:
        arrays = {name: np.asarray(value) for name, value in zip((*self.metrics, *self.parameters), values, strict=True)}
        self.count = int(e) + 1
        self.receive(int(e), {name: arrays[name] for name in self.metrics}, {name: arrays[name] for name in self.parameters})

    def state(self) -> Mapping[str, np.ndarray]:
        return {"count": np.asarray(self.count), **{name: np.asarray(value) for name, value in self.figures.items()}}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.count = int(arrays["count"])
        self.figures.update({name: float(arrays[name]) for name in self.figures if name in arrays})


def reports_of(run: tp.Run[Any]) -> int:
    """How many reports a run of a training program has behind it."""
    return int(run.state["function/report/count"])


def first_weights(config: LlamaConfig, seed: int, deviation: float = 0.02) -> dict[str, np.ndarray]:
    """Normally distributed matrices, float32, by the names of `checkpoint.load_weights`; norms are ones.

    The matrices whose results are added to the hidden state have a smaller `deviation`, divided by sqrt(2 * layers).
    """
    random = np.random.default_rng(seed)
    layers, hidden = config.num_hidden_layers, config.hidden_size
    shapes = {name: (layers, *weight.stored_shape) for name, weight in layer_weights(config).items()}
    shapes |= {"final_norm.weight": (hidden,), "head.weight": (hidden, config.vocab_size)}
    if not config.tie_word_embeddings:
        shapes["embedding.weight"] = (config.vocab_size, hidden)
    weights: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        is_added = name in ("attention.output.weight", "mlp.down.weight")
        scale = deviation / (2 * layers) ** 0.5 if is_added else deviation
        ones = name.endswith("norm.weight")
        weights[name] = (np.ones(shape) if ones else random.normal(0.0, scale, shape)).astype(np.float32)
    return weights
