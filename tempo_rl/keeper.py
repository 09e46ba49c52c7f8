"""Keeps a running program on disk: its newest state every few seconds, numbered checkpoints, and the best one.

`checkpoints/latest.safetensors` is the newest whole iteration that was saved. A numbered checkpoint, or the best one, is another name
of the same file, so that it costs no second copy.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tempo_core as tp
from tempo_core.files import refusal
from tempo_rl.checkpoint import Checkpoint, Numbers, save_checkpoint
from tempo_rl.env.saved import Plain
from tempo_rl.errors import CheckpointError
from tempo_rl.monitor import TrainingMonitor
from tempo_rl.recipe import Recipe
from tempo_rl.rundir import RunDirectory

LEAST, MOST = 1.0, 120.0  # seconds between two states on disk, unless an iteration takes longer
SHARE = 0.02  # of the time, at most, for saving
STRETCH = 0.5  # seconds between two looks at signals, unless an iteration takes longer


class Keeper:
    """Saves the run after an iteration where it is time to. `seconds` are those of training before this process."""

    def __init__(
        self, run: RunDirectory, recipe: Recipe, monitor: TrainingMonitor, clock: Callable[[], float] = time.perf_counter
    ):
        self.run, self.recipe, self.monitor, self._clock = run, recipe, monitor, clock
        self.spaces: Plain | None = None  # of the environment, when it is made
        self.saved = 0  # the iterations of the newest state on disk
        self._copied = 0  # the iterations of the newest state that is on disk, or on its way
        self._writer = ThreadPoolExecutor(1, "checkpoints")
        self._writes: list[Future[None]] = []
        self.best: float | None = None
        self.seconds_before = 0.0
        self._began = self._saved_at = clock()
        self._pause = 0.0  # the first iteration is saved
        self._seconds = 0.0  # of an iteration
        self._before_last: tuple[tp.Snapshot, Numbers] | None = (
            None  # from which a run that is finished goes on to more iterations
        )

    @property
    def seconds(self) -> float:
        """The seconds of the run so far, those before it was resumed included."""
        return self.seconds_before + self._clock() - self._began

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Continue the numbers of a checkpoint."""
        self.saved = self._copied = checkpoint.iterations
        self.best = checkpoint.progress.get("best")
        self.seconds_before = checkpoint.progress.get("seconds", 0.0)

    def count(self) -> int:
        """How many iterations to run before the next look at signals and at the time."""
        every, left = self._every(), self.recipe.iterations - self.monitor.iterations
        count = max(1, int(STRETCH / self._seconds)) if self._seconds else 1
        stops = [every, self.recipe.eval_every or every]
        return max(1, min(count, max(left - 1, 1), *(stop - self.monitor.iterations % stop for stop in stops)))

    def ran(self, count: int, seconds: float) -> None:
        """Note how long some iterations took."""
        self._seconds = seconds / count

    def keep(self, live: tp.Run[Any], at_once: bool = False) -> None:
        """Save the state of the run, if it is time to or `at_once`: then it is on disk afterwards, or else soon.

        The state is copied here, and written in another thread while training goes on. Raises `CheckpointError`, `RunError` or
        `tp.errors.StateError`, also for what could not be written since the last call.
        """
        iterations = self.monitor.iterations
        self.look(live)
        is_last = iterations == self.recipe.iterations
        is_numbered = at_once or is_last or iterations % self._every() == 0
        is_time = not self._is_writing() and self._clock() - self._saved_at >= self._pause
        if iterations > self._copied and (is_numbered or is_time):
            self.wait()
            self._save(live)
        if is_numbered and 0 < iterations == self._copied:
            steps = self.monitor.env_steps
            self._then(lambda: self._number(iterations, steps))
        if at_once or is_last:
            self.wait()

    def look(self, live: tp.Run[Any]) -> None:
        """Copy the state before the last iteration. A state after it would lack what one more iteration needs."""
        if self.monitor.iterations == self.recipe.iterations - 1 and self._before_last is None:
            self._before_last = live.snapshot(), self.monitor.numbers()

    def wait(self) -> None:
        """Wait until all is written that was copied. Raises `CheckpointError` or `RunError` for what could not be written."""
        while self._writes:
            futures.wait(self._writes[:1])
            self._writes.pop(0).result()

    def close(self) -> None:
        """Wait until all is written, or has failed."""
        self._writer.shutdown()

    def _is_writing(self) -> bool:
        return any(not write.done() for write in self._writes)

    def _then(self, write: Callable[[], None]) -> None:
        """Have the thread that writes do this after what it does now."""

        def write_there() -> None:
            try:
                write()
            except CheckpointError:
                self.run.check_there()  # raises the cause, if the whole directory is gone
                raise

        self._writes.append(self._writer.submit(write_there))

    def _every(self) -> int:
        """Iterations between two numbered checkpoints."""
        return self.recipe.save_every or max(1, math.ceil(self.recipe.iterations / 10))

    def _save(self, live: tp.Run[Any]) -> None:
        began, monitor = self._clock(), self.monitor
        assert monitor.latest is not None, "an iteration gave parameters"
        iterations, behind = monitor.iterations, int(monitor.iterations == self.recipe.iterations)
        score = monitor.recent_return
        is_best = score is not None and (self.best is None or score > self.best)
        self.best = score if is_best else self.best
        kept = self._before_last if iterations >= self.recipe.iterations - 1 else None
        snapshot, returns = kept or (live.snapshot(), Numbers())
        progress: Numbers = {
            **monitor.numbers(),
            **returns,
            "best": self.best,
            "seconds": self.seconds,
        }
        steps, latest = monitor.env_steps, dict(monitor.latest)
        checkpoint = Checkpoint(latest, self.recipe, iterations, steps, progress, snapshot, behind, spaces=self.spaces)
        self._copied, copying = iterations, self._clock() - began

        def write() -> None:
            writing = self._clock()
            save_checkpoint(self.run.latest, checkpoint)
            if is_best:
                _name_again(self.run.latest, self.run.best)
            self.saved, self._saved_at = iterations, self._clock()
            self._pause = min(MOST, max(LEAST, (copying + self._saved_at - writing) / SHARE))

        self._then(write)

    def _number(self, iterations: int, env_steps: int) -> None:
        if self.saved != iterations:
            return  # it could not be written, and `latest` is an earlier state
        path = self.run.checkpoint(env_steps)
        if not (path.exists() and path.samefile(self.run.latest)):
            _name_again(self.run.latest, path)
        for old in self.run.numbered_checkpoints()[: -self.recipe.keep]:
            old.unlink(missing_ok=True)


def _name_again(path: Path, name: Path) -> None:
    """Give a file one more name, which takes the place of another file. Raises `CheckpointError`."""
    temporary = name.with_name(f".{name.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # the file system has no links
            shutil.copyfile(path, temporary)
        os.replace(temporary, name)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {name} cannot be written: {refusal(error, name)}") from error
