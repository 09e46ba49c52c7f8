"""What training does on the host after each iteration: log, show, save, and stop where it must."""

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
    """Takes one row an iteration."""

    def log(self, row: Row) -> None: ...
    def close(self) -> None: ...


class TrainingMonitor:
    """Receives an agent's metrics and parameters of each iteration.

    Raises, out of the running program: `Interrupted` after the iteration in which Ctrl-C came, and `RunError` where the loss or
    a parameter is not finite. In both cases the latest good parameters are on disk.
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
        """Write the latest good parameters, unless they are written already."""
        if self.latest is None:
            return
        path = self.run.checkpoint(self.env_steps)
        if not path.exists():
            save_checkpoint(path, Checkpoint(self.latest, self.recipe, self.iterations, self.env_steps))

    def finished(self, iteration: int, metrics: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> None:
        """Log, check, show and save one iteration. After a stop nothing more is taken: late values may still arrive."""
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
        wrong = [] if np.isfinite(row["loss"]) else [f"the loss is {row['loss']}"]
        wrong += [f"the parameter {name} is not finite" for name, value in parameters.items() if not np.isfinite(value).all()]
        if not wrong:
            return
        self.save()
        self._stopped = True
        saved = self.run.checkpoint(self.env_steps)
        kept = f"the last good parameters are in {saved}" if self.latest else "no iteration was good"
        raise RunError(
            f"training diverged in iteration {iteration} (from 0): {wrong[0]}; {kept}",
            hint="a lower learning_rate or max_grad_norm; look at metrics.csv for where it began",
        )


@contextmanager
def finishing_iterations(monitor: TrainingMonitor) -> Iterator[None]:
    """Within, the first Ctrl-C asks the monitor to stop after the iteration; the second stops at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        if monitor.interrupt_requested:
            raise KeyboardInterrupt
        monitor.interrupt_requested = True

    try:
        before = signal.signal(signal.SIGINT, handle)
    except ValueError:  # not in the main thread: signals are not ours
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
