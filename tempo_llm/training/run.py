"""Training: a recipe becomes a program, the program runs report by report, and the run directory receives a model."""

from __future__ import annotations

import bisect
import copy
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.compiling import interruptible
from tempo_core.runs.commands import RecipeError, RunError
from tempo_core.runs.logger import CSVLogger, WandbLogger
from tempo_core.runs.stop import StopRequest
from tempo_llm.checkpoint import load_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.hub import locate
from tempo_llm.model import load
from tempo_llm.plan import COARSE
from tempo_llm.training.card import Figures as CardFigures
from tempo_llm.training.card import card, tokenizer_settings
from tempo_llm.training.evaluation import Measure, completions, exact_by_kind
from tempo_llm.training.finetune import Finetuning
from tempo_llm.training.lessons import Lesson
from tempo_llm.training.program import Arrays, Figures, first_weights, reports_of
from tempo_llm.training.progress import Progress
from tempo_llm.training.recipe import DPORecipe, FinetuneRecipe, GRPORecipe, LearningRecipe, Recipe, TrainRecipe
from tempo_llm.training.rewards.preferring import Preferring
from tempo_llm.training.rewards.rewarded import Rewarded
from tempo_llm.training.rows import Rows
from tempo_llm.training.rundir import Outcome, RunFiles
from tempo_llm.training.task import RowsTask, Task
from tempo_llm.training.text import BEGIN, END, Text, make_text, mixed, packed, read_tokenizer, train_tokenizer


class Prepared(RowsTask):
    """A new model: text, tokenizer, rows of tokens, and the model's configuration."""

    recipe: TrainRecipe

    def __init__(self, recipe: TrainRecipe):
        self.recipe, self.saved_dtype = recipe, recipe.saved_dtype
        self.text: Text = make_text(recipe.text)
        self.start = None if recipe.start is None else locate(recipe.start)
        self.tokenizer = interruptible(
            lambda: train_tokenizer(self.text.training, recipe.vocabulary) if self.start is None else read_tokenizer(self.start)
        )
        self.rows = Rows(interruptible(lambda: packed(self.tokenizer, self.text.training, recipe.length)))
        self.held_out = Rows(interruptible(lambda: packed(self.tokenizer, self.text.held_out, recipe.length)))[: recipe.eval_rows]
        for what, rows in (("training", self.rows), ("held-out", self.held_out)):
            if not len(rows):
                raise RecipeError(
                    f"the {what} text does not fill a row of length={recipe.length} tokens",
                    hint="use more text, or shorter rows: length=64",
                )
        begin, end = self.tokenizer.token_to_id(BEGIN), self.tokenizer.token_to_id(END)
        sizes = {"model_type": "llama", "vocab_size": self.tokenizer.get_vocab_size(), **recipe.model.model_dump()}
        self.config = LlamaConfig.from_values({**sizes, "bos_token_id": begin, "eos_token_id": end}, source="the recipe")
        if self.start is not None:
            self._check_start(LlamaConfig.from_directory(self.start))

    def _check_start(self, config: LlamaConfig) -> None:
        """Raises RecipeError if the model to begin with, of this configuration, has other sizes than the recipe's."""
        for name in (field.name for field in fields(config) if getattr(config, field.name) != getattr(self.config, field.name)):
            size = getattr(config, name)
            raise RecipeError(
                f"the model {self.start} has {name}={size}, but the recipe {getattr(self.config, name)}",
                hint=f"a model is trained on as it is: model.{name}={size}"
                if name in type(self.recipe.model).model_fields
                else None,
            )

    def questions(self) -> list[Lesson]:
        """The held-out lessons that the trained model completes: of each kind, those that fit its context."""
        lessons = mixed(self.text.prompts, len(self.text.prompts))
        room = self.recipe.model.max_position_embeddings
        longest = max((len(self.tokenizer.encode(lesson.completion).ids) for lesson in lessons), default=0)
        fitting = (lesson for lesson in lessons if len(self.tokenizer.encode(lesson.prompt).ids) + longest <= room)
        return list(itertools.islice(fitting, self.recipe.eval_prompts))

    @property
    def files(self) -> dict[str, str]:
        """The files of the tokenizer by name."""
        settings = tokenizer_settings(self.config, self.recipe.text.questions > 0)
        return {"tokenizer.json": self.tokenizer.to_str(pretty=True), "tokenizer_config.json": settings}

    def first_values(self) -> dict[str, np.ndarray]:
        if self.start is not None:
            return load_weights(self.start, self.config, "float32")
        return first_weights(self.config, self.recipe.seed, self.recipe.initial_deviation)

    def card(self, figures: CardFigures) -> str:
        return card(self.recipe, self.config, figures)


def prepared_for(recipe: Recipe, say: Callable[[str], None]) -> Task:
    """What a recipe leads to. Raises errors of the recipe, its text, its data and its model."""
    if isinstance(recipe, GRPORecipe):
        return Rewarded(recipe, say)
    if isinstance(recipe, DPORecipe):
        return Preferring(recipe, say)
    return Finetuning(recipe, say) if isinstance(recipe, FinetuneRecipe) else Prepared(recipe)


class _Reports:
    """The newest report of the running program. Its `figures`, by columns, are saved with the run, so that a run that goes on has them."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.number, self.metrics, self.parameters = -1, {}, {}  # type: int, Arrays, Arrays
        self.figures: Figures = dict.fromkeys(names, math.nan)

    def known(self, names: Iterable[str]) -> dict[str, float]:
        """The figures of these names of the newest report of this run, or of the one that it goes on with."""
        return {name: self.figures[name] for name in names if math.isfinite(self.figures.get(name, math.nan))}

    def receive(self, number: int, metrics: Arrays, parameters: Arrays) -> None:
        self.number = number
        self.metrics = {name: np.array(value) for name, value in metrics.items()}
        self.parameters = {name: np.array(value) for name, value in parameters.items()}


def compiled(
    prepared: Task,
    receive: Callable[[int, Arrays, Arrays], None],
    options: Mapping[str, Any],
    figures: Figures | None = None,
    form: tuple[str, ...] = (),
) -> tp.Program[list[np.ndarray[Any, np.dtype[Any]]]]:
    """The program of a training run, which hands each report to `receive`. `figures` are saved with the run, and restored with it.

    `form` names choices of the core that are not made.
    """
    recipe, traced = prepared.recipe, prepared.traced(receive, figures)
    disabled = (*traced.loops, *form)
    return traced.context.compile(
        traced.bounds, traced.outputs, tp.Config(seed=recipe.seed, executor=recipe.executor, disable=disabled, **options)
    )


def fitted(prepared: Task, options: Mapping[str, Any]) -> Task:
    """The same with an update in the fewest parts whose program fits under the memory limit, at least `micro_batches` parts.

    Without a limit, nothing changes, and where an update has no parts. If one row at a time is too much, the planner of the core looks for a form
    of that program.
    """
    limit, recipe = tp.Config(memory_limit=options.get("memory_limit")).memory_limit, prepared.recipe
    if limit is None or not isinstance(recipe, LearningRecipe):
        return prepared
    assert isinstance(limit, int), "the configuration makes it a number"
    plain = {**options, "memory_limit": None}

    def in_parts(parts: int) -> Task:
        divided = copy.copy(prepared)
        divided.recipe = recipe.model_copy(update={"micro_batches": parts})
        return divided

    def fits(parts: int) -> bool:
        plan = compiled(in_parts(parts), _Reports().receive, plain, form=("loop",)).plan()
        return plan.bytes <= limit and (plan.peak_device_bytes or plan.peak_host_bytes) <= limit

    fewest, most = recipe.micro_batches, recipe.batch_size
    numbers = [parts for parts in range(fewest, most + 1) if most % parts == 0 and parts % fewest == 0]
    if fits(fewest):
        return prepared
    place = bisect.bisect_left(numbers, True, lo=1, hi=len(numbers) - 1, key=fits) if len(numbers) > 1 else 0
    return in_parts(numbers[place])


def plan(recipe: Recipe, full: bool = False, **options: Any) -> str:
    """The plan of the compiled program. Nothing is run, no weights are read, and without `full` XLA is not asked."""
    whole = compiled(fitted(prepared_for(recipe, lambda note: None), options), _Reports().receive, options).plan()
    return whole.text(True) if full else f"{whole.coarse().text()}  {COARSE}\n"


def train(
    recipe: Recipe,
    run: RunFiles,
    resume: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = print,
    time_limit: float | None = None,
    **options: Any,
) -> Outcome:
    """Train as `recipe` says and fill `run`, or go on with the run that is there.

    `time_limit` is in seconds; `options` are fields of `tempo_core.Config`, such as `cache`. After SIGINT (Ctrl-C), SIGTERM or SIGHUP the
    running report is finished and saved. Raises RunError if the directory cannot be used, or if the loss or a parameter is not finite: the saved
    state and model are then those of the last good report.
    """
    request = StopRequest(say, time_limit)
    with run.locked(), request.listening():
        return _Training(recipe, run, resume, say, request, options).run_all(progress)


class _Training:
    """One call of `train`."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFiles,
        resume: bool,
        say: Callable[[str], None],
        request: StopRequest,
        options: Mapping[str, Any],
    ):
        self.recipe, self.run, self.resume, self.say, self.request, self.options = recipe, run, resume, say, request, options
        # A number of devices is that for training; the other programs share their rows where that is possible and pays.
        self.other_options = {**options, "devices": 1 if options.get("devices", 1) == 1 else "auto"}
        self.prepared = prepared_for(recipe, say)
        if resume:
            run.check_text(self.prepared.digest)
        self.prepared = fitted(self.prepared, options)
        if self.prepared.parts > 1 and self.prepared.recipe != recipe:
            say(f"an update is computed in {self.prepared.parts} parts, to fit in memory")
        self.first = [f"first_{name}" for name in self.prepared.measured_first]
        self.reports = _Reports([*self.prepared.columns, *self.first])
        self.tokens = self.prepared.tokens  # of a report
        self.saved = 0  # reports

    def run_all(self, progress: bool) -> Outcome:
        recipe, reports, began = self.recipe, self.reports, time.perf_counter()
        program = compiled(self.prepared, reports.receive, self.options, reports.figures)
        evaluation = self.prepared.measure(self.other_options)
        live, done = self._started(program)
        if self.prepared.tells_plan:
            self.say(_planned(program))
        if not self.resume:
            self._measure_first(evaluation)
        loggers: list[CSVLogger | WandbLogger] = [CSVLogger(self.run.metrics, done)]
        if recipe.track:
            loggers.append(WandbLogger(recipe.wandb, recipe.model_dump(mode="json"), self.run.path, "update"))
        self.saved = done
        self.request.is_saved = lambda: reports.number < self.saved  # the reports of this run are numbered from 0
        self.request.can_finish = True
        seconds, first = 0.0, done
        try:
            with Progress(recipe.updates, progress, self.say, self.prepared.columns[0]) as bar:
                while done < recipe.reports and self.request.reason is None:
                    before, compiling = time.perf_counter(), program.compile_seconds
                    self._go_on(live)
                    seconds += time.perf_counter() - before - (program.compile_seconds - compiling)
                    done += 1
                    row = self._checked(evaluation)
                    for logger in loggers:
                        logger.log(row)
                    self._save(live)
                    self.saved = done
                    bar.update(row)
        finally:
            for logger in loggers:
                logger.close()
        return self._outcome(program, evaluation, done, seconds, (done - first) * self.tokens, time.perf_counter() - began)

    def _started(self, program: tp.Program[Any]) -> tuple[tp.Run[Any], int]:
        """The run, and the number of reports that it has behind it."""
        inputs = self.prepared.inputs()
        if not self.resume:
            self.run.begin(self.recipe, self.prepared.digest)
            return program.start(inputs, by=self._step), 0
        live = program.resume(self.run.state, inputs)
        done = reports_of(live)
        self.say(f"resumed after update {done * self.recipe.report_every} of {self.recipe.updates}")
        return live, done

    @property
    def _step(self) -> str | None:
        """The step between whose points the run can stop. A single report is no loop."""
        return "e" if self.recipe.reports > 1 else None

    def _go_on(self, live: tp.Run[Any]) -> None:
        """Compute the next report."""
        if self._step is None:
            live.finish()
        else:
            live.advance(self._step)

    def _measure_first(self, measure: Measure) -> None:
        """Figures of the model before the first update, if the task has some."""
        names = self.prepared.measured_first
        if not names:
            return
        values = measure.figures(self.prepared.weights(self.prepared.first_values()))
        self.reports.figures.update({f"first_{name}": values[name] for name in names})
        shown = ", ".join(f"{name.replace('held_out_', 'held-out ')} {values[name]:.3f}" for name in names)
        self.say(f"before the first update: {shown}")

    def _checked(self, measure: Measure) -> dict[str, float]:
        """The row of a report. Raises RunError if a number is not finite."""
        reports, recipe = self.reports, self.recipe
        first = reports.number * recipe.report_every
        losses = reports.metrics["loss"].ravel()
        problems = [f"the loss is {losses[k]} in update {first + k}" for k in range(len(losses)) if not np.isfinite(losses[k])]
        last = first + recipe.report_every - 1
        problems += [
            f"{name} is not finite after update {last}" for name, w in reports.parameters.items() if not np.isfinite(w).all()
        ]
        means = {name: float(values.mean()) for name, values in reports.metrics.items()}
        columns = self.prepared.columns
        if not problems:
            means |= measure.figures(self.prepared.weights(reports.parameters))
            reports.figures.update({name: means[name] for name in columns})
            problems += [
                f"the {name.replace('_', '-', 1).replace('_', ' ')} is {means[name]} after update {last}"
                for name in columns
                if not math.isfinite(means[name])
            ]
        if problems:
            kept = f"{self.run.path} holds the state and the model after update {first - 1}" if first else "nothing was saved"
            raise RunError(
                f"training diverged: {problems[0]} (counted from 0); {kept}",
                hint="lower learning_rate or max_grad_norm, for example learning_rate=1e-4, and train anew",
            )
        return {
            "update": first + recipe.report_every,
            "tokens": (reports.number + 1) * self.tokens,
            **{name: means[name] for name in columns},
            **{name: mean for name, mean in means.items() if name not in columns},
            "learning_rate": float(reports.metrics["learning_rate"].ravel()[-1]),
        }

    def _save(self, live: tp.Run[Any]) -> None:
        self.prepared.save(self.run.model, self.reports.parameters)
        live.save(self.run.state, inputs=False)

    def _outcome(
        self, program: tp.Program[Any], measure: Measure, done: int, seconds: float, tokens: int, total: float
    ) -> Outcome:
        """Evaluate what is saved, and write result.json and the model's card."""
        recipe, prepared = self.recipe, self.prepared
        stopped = self.request.reason if done < recipe.reports else None
        asked = prepared.questions() if stopped is None else []
        kinds: dict[str, tuple[int, int]] = {}
        if done and stopped is None:
            model = load(self.run.model, **self.other_options)
            saved = measure.figures({name: w.astype(np.float32) for name, w in model.generator.weights.items()})
            self.reports.figures.update({name: saved[name] for name in prepared.columns if name in saved})
            kinds = exact_by_kind(asked, completions(model, asked))
        figures, first = self.reports.known(prepared.columns), self.reports.known(self.first)
        loss, held_out_loss = figures.pop("loss", None), figures.pop("held_out_loss", None)
        outcome = Outcome(
            done * recipe.report_every, loss, held_out_loss, tokens / seconds if seconds else 0.0, total,
            program.compiles, program.compile_seconds, stopped,
            sum(right for right, _ in kinds.values()) if kinds else None, len(asked) or None, kinds or None, figures,
            {name.removeprefix("first_"): value for name, value in first.items()},
        )  # fmt: skip
        self.run.write_result(vars(outcome))
        if done and stopped is None:
            prepared.save_weights(self.run.model, _loaded(model), prepared.card(outcome))
        return outcome


def _planned(program: tp.Program[Any]) -> str:
    """The memory of a program, for people."""
    plan = program.plan()
    peaks = {"device": plan.peak_device_bytes, "host": plan.peak_host_bytes}
    told = ", ".join(f"{peak / 1e6:,.1f} MB on the {place}" for place, peak in peaks.items() if peak)
    return f"the plan of the run:\n{plan.memory()}\nat most: about {told}"


def _loaded(model: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(w) for name, w in model.generator.weights.items()}
