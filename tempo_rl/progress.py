"""The progress bars of a training run, and of an evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from tempo_core.compiling import Subject, reporting
from tempo_core.runs.logger import Row
from tempo_rl.streams import screen

EVERY = 10.0  # seconds between two lines
TURN = 0.1  # seconds between two changes of an evaluation's bar


class Progress:
    """A rich progress bar over environment steps, with the latest return, if `visible`; or else a line every ten seconds, to `say`.

    `compiling` says how many seconds compiling took so far: the speed and the time left do not count them.
    """

    def __init__(
        self,
        total: int,
        visible: bool = True,
        say: Callable[[str], None] | None = None,
        compiling: Callable[[], float] = lambda: 0.0,
    ):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TextColumn("return {task.fields[episodic_return]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        ]
        self._bar = Bar(*columns, disable=not visible, console=Console(file=screen()))  # the result is on the standard output
        self._say, self._total, self._told_at = None if visible else say, total, time.monotonic()
        self._compile_seconds = compiling
        self._last = (0.0, self._told_at - compiling())  # steps, and the seconds without compiling
        self._return = math.nan
        self._shown_at = -math.inf
        self._is_visible, self._stack = visible, ExitStack()
        self._stage = "compiling"
        self._task = self._bar.add_task(self._stage, total=total, episodic_return="-")

    def __enter__(self) -> Progress:
        self._bar.start()
        if self._is_visible:
            self._stack.enter_context(reporting(self._compiling))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
        self._bar.stop()

    def _compiling(self, subject: Subject, seconds: float | None) -> None:
        """Show what XLA compiles, in the place of what the run does."""
        shown = self._stage if seconds is None else f"compiling {subject.short}: {seconds:.0f} s"
        self._bar.update(self._task, description=shown)

    def evaluating(self, ended: int, episodes: int, steps: int) -> None:
        """Show how an evaluation on the way goes on."""
        self._stage = f"evaluating, {ended}/{episodes} episodes"
        now = time.monotonic()
        if now - self._shown_at >= TURN:
            self._shown_at = now
            self._bar.update(self._task, description=self._stage)
        if self._say is not None and now - self._told_at >= EVERY:
            self._say(_evaluation_line(ended, episodes, steps))
            self._told_at = now

    def go_on_from(self, steps: int) -> None:
        """Count from the steps of a run that is resumed."""
        self._last = (steps, self._last[1])

    def update(self, row: Row) -> None:
        """Show one iteration's row."""
        self._stage = "training"
        self._bar.update(self._task, description=self._stage, completed=row["env_steps"])
        value = row.get("episodic_return", math.nan)
        self._return = self._return if math.isnan(value) else value
        now = time.monotonic()
        if self._say is not None and now - self._told_at >= EVERY:
            working = now - self._compile_seconds()
            self._say(self._line(row["env_steps"], working))
            self._told_at, self._last = now, (row["env_steps"], working)
        if not math.isnan(value):
            self._bar.update(self._task, episodic_return=f"{value:.1f}")

    def _line(self, steps: float, now: float) -> str:
        before, then = self._last
        speed = (steps - before) / max(now - then, 1e-9)
        left = (self._total - steps) / max(speed, 1e-9)
        shown = "-" if math.isnan(self._return) else f"{self._return:.1f}"
        return f"{steps:,.0f}/{self._total:,} steps, return {shown}, {speed:,.0f} steps/s, {left:,.0f} s left"


class EvaluationProgress:
    """A rich progress bar over episodes, if `visible`; or else a line every ten seconds, to `say`. It is called as `play` says."""

    def __init__(self, episodes: int, visible: bool = True, say: Callable[[str], None] | None = None):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} episodes, {task.fields[steps]:,} steps"),
            TimeElapsedColumn(),
        ]
        self._bar = Bar(*columns, disable=not visible, console=Console(file=screen()))  # the result is on the standard output
        self._task = self._bar.add_task("evaluating", total=episodes, steps=0)
        self._say, self._is_visible, self._stack = None if visible else say, visible, ExitStack()
        self._shown_at, self._told_at = -math.inf, time.monotonic()

    def __enter__(self) -> EvaluationProgress:
        self._bar.start()
        if self._is_visible:
            self._stack.enter_context(reporting(self._compiling))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
        self._bar.stop()

    def __call__(self, ended: int, episodes: int, steps: int) -> None:
        """Show that so many episodes have ended."""
        now = time.monotonic()
        if now - self._shown_at >= TURN or ended == episodes:
            self._shown_at = now
            self._bar.update(self._task, completed=ended, steps=steps)
        if self._say is not None and now - self._told_at >= EVERY:
            self._say(_evaluation_line(ended, episodes, steps))
            self._told_at = now

    def _compiling(self, subject: Subject, seconds: float | None) -> None:
        shown = "evaluating" if seconds is None else f"compiling {subject.short}: {seconds:.0f} s"
        self._bar.update(self._task, description=shown)


def _evaluation_line(ended: int, episodes: int, steps: int) -> str:
    return f"evaluating: {ended:,}/{episodes:,} episodes ended, {steps:,} steps"
