"""Learning from rewards (GRPO): one recurrent program, beside the same as two programs, one that generates and one that trains.

Both sides are Tempo's programs, with the same weights, prompts and uniform numbers, so that their losses agree. One program learns through the
probabilities that writing computed. Of two, the second one gets the texts, and computes them as a whole again, as libraries for training do whose
generator is another system. Each run is a process of its own: seconds an update after the first two, and the greatest memory of the process over
that before its model was loaded.

    python -m benchmarks.rewards [--quick] [--turns N] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.common import Results, arguments, compared, say, show
from tempo_llm.llama import counts, loop_names
from tempo_llm.stacks import windowed_stacks
from tempo_llm.times import Points
from tempo_llm.training.program import Reporter, Traced, learning_model, model_of, update
from tempo_llm.training.recipe import GRPORecipe, load_recipe
from tempo_llm.training.rewards.grpo import SMALLEST, Written, places_of, trace_grpo, write
from tempo_llm.training.rewards.prompts import NOTHING, Prompts
from tempo_llm.training.rewards.reading import STEPS, Reader
from tempo_llm.training.rewards.rewarded import Rewarded

SIDES = ("tempo", "two programs")
SUMS, LONG, LONGEST = "sums, 128 texts of 5 tokens", "128 texts of 48 tokens", "16 texts of 256 tokens"
CASES = {
    SUMS: (),
    LONG: ("new_tokens=48",),
    LONGEST: ("new_tokens=248", "prompts=4", "group=4"),  # with their prompts of 8 tokens, all positions of the model
}  # changes of recipes/grpo_tiny.yaml; the long texts do not end early, and have rewards by the host
WARM = 2  # updates before the clock starts
Losses = list[float]


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.side:
        print(json.dumps(measured(options.side, options.case, options.updates)))
        return
    results = Results("rewards", options)
    for name in CASES:
        updates = 2 if options.quick else 5 if name == LONGEST else 20
        if not results.selects(name) or (options.quick and name != SUMS):
            continue
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for _ in range(options.turns):
            for side in SIDES:
                runs[side].append(in_a_process(side, name, updates))
                say(f"{name}: {side} {1000 * runs[side][-1]['seconds']:.1f} ms an update, {runs[side][-1]['bytes'] / 1e6:.0f} MB")
        figures = {
            f"{what}_per_update": compared({side: [run[key] for run in each] for side, each in runs.items()}, 1.0, 1000)
            for what, key in (("ms", "seconds"), ("cpu_ms", "cpu_seconds"))
        }
        memory = compared({side: [run["bytes"] for run in each] for side, each in runs.items()}, 1e6)
        planned = {side: each[0]["planned"] for side, each in runs.items()}
        largest = compared({side: [max(each.values())] for side, each in planned.items()}, 1e6)
        losses = {side: each[0]["losses"] for side, each in runs.items()}
        difference = float(np.abs(np.subtract(*losses.values())).max())
        show(name, figures["ms_per_update"], "ms/update")
        say(f"  the losses of {len(losses['tempo'])} updates differ by at most {difference:.1e}")
        results.add(
            name,
            updates=updates,
            **figures,
            mb=memory,
            planned_mb=largest,
            planned=planned,
            difference_of_losses=difference,
            losses=losses,
        )
        results.save()
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    for name, kind in (("--side", str), ("--case", str), ("--updates", int)):  # of a process for one run
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)


def in_a_process(side: str, case: str, updates: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.rewards", "--side", side, "--case", case, "--updates", str(updates)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measured(side: str, case: str, updates: int) -> dict[str, Any]:
    """Seconds and CPU seconds of an update (the least), the growth of memory, the plans' peaks, and the losses."""
    import jax

    jax.numpy.zeros(1).block_until_ready()  # with JAX's own memory
    before = peak()
    task = Rewarded(recipe_of(case, updates + WARM), lambda note: None)
    if case != SUMS:
        task.prompts.ends[:] = False
    run = (OneProgram if side == "tempo" else TwoPrograms)(task)
    losses, wall, cpu = [], [], []
    for loss in run.updates():
        losses.append(loss)
        wall.append(time.perf_counter())
        cpu.append(time.process_time())
    seconds, cpu_seconds = (np.diff(each[WARM - 1 :]) for each in (wall, cpu))
    return {
        "seconds": float(seconds.min()), "cpu_seconds": float(cpu_seconds.min()), "bytes": peak() - before, "planned": run.planned,
        "losses": losses,
    }  # fmt: skip


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def recipe_of(case: str, updates: int) -> GRPORecipe:
    recipe = load_recipe("grpo_tiny", [*CASES[case], f"updates={updates}", "report_every=1", "warmup=1"])
    assert isinstance(recipe, GRPORecipe)
    return recipe


def draws_of(recipe: GRPORecipe) -> np.ndarray:
    """Uniform numbers float32 [updates, 1, new tokens, prompts, group]."""
    shape = (recipe.updates, 1, recipe.new_tokens, recipe.prompts, recipe.group)
    return np.random.default_rng(0).random(shape, np.float32)


def judge(rows: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray]:
    """The share of even tokens, on the host."""
    return ((texts % 2 == 0).mean(-1, dtype=np.float32),)


def judge_of(task: Rewarded) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray]] | None:
    return None if task.prompts.ends.any() else judge


class Newest:
    """The losses and the parameters of the newest update."""

    def __init__(self, parameters: Any):
        self.loss, self.parameters = 0.0, parameters

    def receive(self, number: int, metrics: Any, parameters: Any) -> None:
        self.loss = float(np.asarray(metrics["loss"]).mean())
        self.parameters = {name: np.array(value) for name, value in parameters.items()}


class OneProgram:
    """The program of `tempo-llm train`."""

    def __init__(self, task: Rewarded):
        self.task, self.newest = task, Newest({})
        traced = trace_grpo(task.config, task.recipe, task.prompts, self.newest.receive, judge=judge_of(task), has_draws=True)
        self.program = traced.context.compile(traced.bounds, traced.outputs, tp.Config(seed=task.recipe.seed))
        self.planned = {"one program": self.program.plan().peak_device_bytes}

    def updates(self) -> Iterator[float]:
        live = self.program.start({**self.task.inputs(), "draw": draws_of(self.task.recipe)}, by="e")
        for _ in range(self.task.recipe.updates):
            live.advance("e")
            yield self.newest.loss


class TwoPrograms:
    """A program that writes with weights that it is fed, and one that is fed texts with their advantages, and updates weights."""

    def __init__(self, task: Rewarded):
        self.task, self.newest = task, Newest(task.first_values())
        chosen = Prompts(
            *(each[: task.recipe.prompts] for each in (task.prompts.tokens, task.prompts.start, task.prompts.reference)),
            task.prompts.ends,
        )
        writing, learning = trace_drawing(task, chosen), trace_learning(task, self.newest)
        self.writing = writing.context.compile(writing.bounds, writing.outputs)
        self.learning = learning.context.compile(learning.bounds, learning.outputs)
        self.planned = {
            "writing": self.writing.plan().peak_device_bytes,
            "learning": self.learning.plan().peak_device_bytes,
        }

    def updates(self) -> Iterator[float]:
        task, recipe = self.task, self.task.recipe
        inputs, draws = task.inputs(), draws_of(recipe)
        rows = inputs["row"].reshape(recipe.updates, recipe.prompts)
        texts: dict[str, np.ndarray] = {}
        fed = {name: self._feed(texts, name) for name in ("texts", "counted", "advantage")}
        live = self.learning.start({**task.first_values(), **fed}, by="e")
        for number, row in enumerate(rows):
            prompts = {name: array[row] for name, array in task.prompts.inputs().items() if name in self.writing.inputs}
            tokens, rewards = self.writing.run({**prompts, "draw": draws[number, 0], **self.newest.parameters})
            if judge_of(task) is not None:
                (rewards,) = judge(row, np.moveaxis(np.asarray(tokens), 0, -1))
            texts |= self._texts(row, np.moveaxis(np.asarray(tokens), 0, -1), np.asarray(rewards))
            live.advance("e")
            yield self.newest.loss

    def _feed(self, texts: dict[str, np.ndarray], name: str) -> Callable[[int], np.ndarray]:
        """A function of the update, for an input that is requested when the loop reaches it."""
        return lambda e: texts[name]

    def _texts(self, row: np.ndarray, tokens: np.ndarray, rewards: np.ndarray) -> dict[str, np.ndarray]:
        """Whole texts int32 [texts, positions] with what counts of them, and the advantages of texts."""
        recipe, prompts = self.task.recipe, self.task.prompts
        flat = tokens.reshape(-1, recipe.new_tokens)
        whole = np.zeros((len(flat), prompts.width + recipe.new_tokens), np.int32)
        counted = np.zeros((len(flat), whole.shape[1] - 1), np.float32)
        for k, number in enumerate(np.repeat(row, recipe.group)):
            start = prompts.start[number]
            whole[k, :start] = prompts.tokens[number, :start]
            whole[k, start : start + recipe.new_tokens] = np.maximum(flat[k], 0)
            counted[k, start - 1 : start - 1 + recipe.new_tokens] = flat[k] != NOTHING
        centred = rewards - rewards.mean(1, keepdims=True)
        advantage = centred / (np.sqrt(np.square(centred).mean(1, keepdims=True)) + SMALLEST)
        return {"texts": whole, "counted": counted, "advantage": advantage.reshape(-1).astype(np.float32)}


def trace_drawing(task: Rewarded, prompts: Prompts) -> Traced:
    """The program that draws a group of texts behind each prompt. It gives tokens [new tokens, prompts, group] and rewards [prompts, group]."""
    stacks, recipe = windowed_stacks(task.config), task.recipe
    context = tp.Context(*STEPS, *loop_names(stacks))
    with context as steps:
        places, layers = places_of(steps)
        model = model_of(task.config, stacks, [layer for layer, _ in layers], recipe.dtype)
        prompt, start, reference = prompts.traced((places.row,))
        draw = tp.input("draw", (), domain=(places.token, places.row, places.text))
        reader = Reader(model, (), places, prompt, start, task.config.max_position_embeddings)
        written: Written = write(reader, prompts, recipe, draw, reference, tp.zeros((), "int32"), None)
        text = tp.where(written.counts > 0.0, written.token, NOTHING)
        everywhere = (slice(0, places.rows), slice(0, places.texts))
        outputs = [text[(slice(0, places.tokens), *everywhere)], written.reward[everywhere]]
    bounds = {**counts(stacks, layers), **places.bounds(prompts.width, recipe.new_tokens, recipe.prompts, recipe.group)}
    return Traced(context, bounds, outputs)


def trace_learning(task: Rewarded, newest: Newest) -> Traced:
    """The program that updates weights by whole texts, which it is fed for each update e."""
    stacks, recipe = windowed_stacks(task.config), task.recipe
    length = task.prompts.width + recipe.new_tokens
    context = tp.Context("e", "i", "b", "t", *loop_names(stacks))
    with context as ((e, E), (i, I), (b, B), (t, T), *layers):
        count = recipe.prompts * recipe.group
        texts = tp.input("texts", (count, length), "int32", domain=(e,), streamed=True)
        counted = tp.input("counted", (count, length - 1), domain=(e,), streamed=True)
        advantage = tp.input("advantage", (count,), domain=(e,), streamed=True)
        before = model_of(task.config, stacks, [layer for layer, _ in layers], recipe.dtype)
        model, parameters = learning_model(before, task.config, stacks, None, (e, i))
        text = texts.index(0, b)
        token, following = text.index(0, t), text.index(0, t + 1)
        logits = model.logits(model.after(token, (e, i, b, t), Points(t, T))) / recipe.temperature
        log_prob = tp.log_softmax(logits, -1).index(0, following)
        ratio = tp.exp(log_prob - log_prob.detach())
        clipped = tp.clip(ratio, 1 - recipe.clip_range, 1 + recipe.clip_range)
        of_text = advantage.index(0, b)
        cost = -tp.minimum(ratio * of_text, clipped * of_text) * counted.index(0, b).index(0, t)
        loss = (cost[e, i, 0:B, 0:T].sum() / counted.sum()).named("loss")
        update(loss, parameters, recipe, (e, i), (I,), [layer for layer, _ in layers], {}, Reporter(newest.receive, {}))
    return Traced(context, {**counts(stacks, layers), E: recipe.updates, I: 1, B: count, T: length - 1}, [])


if __name__ == "__main__":
    main()
