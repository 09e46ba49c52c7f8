"""Training: a recipe becomes a program, the program runs, and the run directory receives the results."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NotRequired, TypedDict, TypeVar

import numpy as np

import tempo_core as tp
from tempo_rl.agents import Agent, build_agent
from tempo_rl.agents.base import Arrays
from tempo_rl.compiles import CompileCounter
from tempo_rl.errors import RLError
from tempo_rl.evaluate import Evaluation, evaluate
from tempo_rl.logger import CSVLogger, WandbLogger
from tempo_rl.monitor import Interrupted, Logger, TrainingMonitor, finishing_iterations
from tempo_rl.progress import Progress
from tempo_rl.recipe import Recipe
from tempo_rl.rundir import RunDirectory

Error = TypeVar("Error", bound=BaseException)


class Timing(TypedDict):
    """How long a run took, and how much of it was compiling."""

    env_steps: int
    seconds: float
    compile_seconds: float
    seconds_per_iteration: float | None  # the median
    steps_per_second: float
    compiles: int  # XLA programs
    loads: int  # XLA programs that were not compiled, but came from the cache


class Result(Timing):
    """What `result.json` holds. The returns are those of the greedy evaluation; None where there was none."""

    eval_return_mean: float | None
    eval_return_std: float | None
    versions: dict[str, str | None]
    interrupted: NotRequired[bool]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training run; `result` is the content of result.json."""

    result: Result
    evaluation: Evaluation | None
    interrupted: bool


class _Silent:
    """A monitor for programs that are planned and never run."""

    def finished(self, iteration: int, metrics: Arrays, parameters: Arrays) -> None: ...


def compile_config(recipe: Recipe, cache: str | bool | None = None) -> tp.Config:
    """The compiler's options that a recipe sets. `cache` is the directory of compiled programs, as in `tp.Config`."""
    return tp.Config(seed=recipe.seed, executor=recipe.executor, disable=tuple(recipe.disable), cache=cache)


def plan(
    recipe: Recipe,
    full: bool = False,
    as_json: bool = False,
    picture: Path | None = None,
    cache: str | bool | None = None,
) -> str:
    """The compiled program's plan: schedule, stores, device programs; `full` gives each statement and store its own line.

    `as_json` gives the memory of all tensors and its peaks instead, and `picture` is an .svg of them that is written. Nothing is run.
    """
    agent = build_agent(recipe, _Silent())
    try:
        made = agent.compile(compile_config(recipe, cache)).plan()
        if picture is not None:
            made.draw(picture)
        return made.json() if as_json else made.text(full)
    finally:
        agent.environment.close()


def train(
    recipe: Recipe,
    run: RunDirectory,
    progress: bool = False,
    say: Callable[[str], None] = print,
    show_plan: bool = False,
    cache: str | bool | None = None,
    profile: bool = False,
) -> Outcome:
    """Train as `recipe` says and fill `run`. Raises `RunError` if the loss or a parameter is not finite.

    `cache` is the directory of compiled programs, True for the usual one, None for none.
    With `profile`, the run is profiled: its tables are said, and its flame picture is profile.svg of the run.
    After Ctrl-C the running iteration is finished and saved, and the outcome is marked as interrupted.
    """
    run.write_config(recipe)
    loggers: list[Logger] = [CSVLogger(run.metrics)]
    if recipe.track:
        loggers.append(WandbLogger(recipe, run.path))
    interrupted, compile_seconds, program = False, 0.0, None
    total = recipe.iterations * recipe.num_envs * recipe.num_steps
    began = time.perf_counter()
    with CompileCounter() as compiles, Progress(total, progress) as bar:
        monitor = TrainingMonitor(recipe, run, loggers, bar.update)
        agent = build_agent(recipe, monitor)
        try:
            program, compile_seconds = _compile(agent, compile_config(recipe, cache), compiles, began)
            if show_plan:
                say(program.plan().text())
            with finishing_iterations(monitor):
                if profile:
                    measured = program.profile({})
                    measured.draw(run.profile)
                    say(f"{measured}\nthe flame picture is {run.profile}")
                else:
                    program.run({})
        except Exception as error:
            if cause(error, Interrupted) is None:
                user_error = cause(error, RLError)
                if user_error is None:
                    raise
                raise user_error from error
            interrupted = True
        finally:
            agent.environment.close()
            for logger in loggers:
                logger.close()
    seconds = time.perf_counter() - began
    monitor.save()
    loads = program.loads if program is not None else 0
    timing = _timing(monitor, seconds, compile_seconds + compiles.seconds, compiles.count, loads)
    evaluation = None
    if recipe.eval_episodes and monitor.latest and not interrupted:
        evaluation = evaluate(recipe, monitor.latest, recipe.eval_episodes, recipe.seed, cache)
    result = _result(evaluation, timing, interrupted)
    run.write_result(result)
    return Outcome(result, evaluation, interrupted)


def cause(error: BaseException | None, kind: type[Error]) -> Error | None:
    """`error` if it is of `kind`, else the nearest of its causes that is, else None. A program wraps the errors of its sinks."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _compile(agent: Agent, config: tp.Config, compiles: CompileCounter, began: float) -> tuple[tp.Program, float]:
    """The program, and the seconds of building and compiling it, without those of XLA (which `compiles` counts)."""
    before = compiles.seconds
    program = agent.compile(config)
    return program, time.perf_counter() - began - (compiles.seconds - before)


def _timing(monitor: TrainingMonitor, seconds: float, compile_seconds: float, compiles: int, loads: int) -> Timing:
    lengths = np.diff(monitor.times).tolist()  # seconds from the end of one iteration to the next, so the first is left out
    return {
        "env_steps": monitor.env_steps,
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "seconds_per_iteration": statistics.median(lengths) if lengths else None,
        "steps_per_second": monitor.env_steps / seconds,
        "compiles": compiles,
        "loads": loads,
    }


def _result(evaluation: Evaluation | None, timing: Timing, interrupted: bool) -> Result:
    result: Result = {
        "eval_return_mean": evaluation.mean if evaluation else None,
        "eval_return_std": evaluation.std if evaluation else None,
        **timing,
        "versions": versions(),
    }
    if interrupted:
        result["interrupted"] = True
    return result


def versions() -> dict[str, str | None]:
    """The versions of Python and of the packages for a run; None for a package that is not installed."""
    numbers: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("tempo-dl", "jax", "jaxlib", "numpy", "gymnasium", "islpy", "flax", "wandb"):
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            numbers[name] = None
    return numbers
