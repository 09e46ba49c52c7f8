"""The work of training on the host after each iteration: log, show and save it, and stop training if needed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import numpy as np

from tempo_rl.checkpoint import Checkpoint, save_checkpoint
from tempo_rl.errors import RunError
from tempo_rl.logger import Row
from tempo_rl.recipe import Recipe
from tempo_rl.rundir import RunDirectory


class Interrupted(Exception):
    """Training stopped after an iteration because the user pressed Ctrl-C."""


class Logger(Protocol):
    """A receiver of one row per iteration."""

    def log(self, row: Row) -> None: ...
    def close(self) -> None: ...


class TrainingMonitor:
    """Receives an agent's metrics and parameters of each iteration.

    It raises two errors, which end the running program: `Interrupted` after the iteration in which the user pressed Ctrl-C, and
    `RunError` if the loss or a parameter is not finite. In both cases the latest good parameters are on disk.
    """

    def __init__(self, recipe: Recipe, run: RunDirectory, loggers: list[Logger], show: Callable[[Row], None]):
        self.recipe, self.run, self._loggers, self._show = recipe, run, loggers, show
        self.iterations = 0
        self.latest: dict[str, np.ndarray] | None = None
        self.times: list[float] = []
        self.interrupt_requested = False
        self._stopped = False
        self._steps = recipe.num_envs * recipe.num_steps

    @property
    def env_steps(self) -> int:
        return self.iterations * self._steps

    def save(self) -> None:
        """Write the latest good parameters, unless they are on disk already."""
        if self.latest is None:
            return
        path = self.run.checkpoint(self.env_steps)
        if not path.exists():
            save_checkpoint(path, Checkpoint(self.latest, self.recipe, self.iterations, self.env_steps))

    def finished(self, iteration: int, metrics: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> None:
        """Log, check, show and save one iteration. After a stop, values that still arrive are ignored."""
        if self._stopped:
            return
        row: Row = {"iteration": iteration, "env_steps": (iteration + 1) * self._steps}
        row = {**row, **{name: float(value) for name, value in metrics.items()}}
        for logger in self._loggers:
            logger.log(row)
        self._require_finite(iteration, row, parameters)
        self.iterations, self.latest = iteration + 1, {name: np.array(value) for name, value in parameters.items()}
        self.times.append(time.perf_counter())
        self._show(row)
        every = self.recipe.save_every
        if every and self.iterations % every == 0:
            self.save()
        if self.interrupt_requested and self.iterations < self.recipe.iterations:
            self.save()
            self._stopped = True
            raise Interrupted

    def _require_finite(self, iteration: int, row: Row, parameters: Mapping[str, np.ndarray]) -> None:
        problems = [] if np.isfinite(row["loss"]) else [f"the loss is {row['loss']}"]
        problems += [f"the parameter {name} is not finite" for name, value in parameters.items() if not np.isfinite(value).all()]
        if not problems:
            return
        self.save()
        self._stopped = True
        path = self.run.checkpoint(self.env_steps)
        rescue = f"the last good parameters are in {path}" if self.latest else "no iteration was good"
        raise RunError(
            f"training diverged in iteration {iteration} (counted from 0): {problems[0]}; {rescue}",
            hint="metrics.csv shows where it began; lower learning_rate or max_grad_norm, for example learning_rate=1e-4",
        )


@contextmanager
def finishing_iterations(monitor: TrainingMonitor) -> Iterator[None]:
    """Inside this context, the first Ctrl-C asks the monitor to stop after the iteration; the second stops at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        if monitor.interrupt_requested:
            raise KeyboardInterrupt
        monitor.interrupt_requested = True

    try:
        before = signal.signal(signal.SIGINT, handle)
    except ValueError:  # this is not the main thread, and only the main thread handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
