"""The progress of a training run: a bar on a terminal, or a line for each report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType

from tempo_core.compiling import Subject, reporting


class Progress:
    """A rich progress bar over updates, with the loss or the reward, also held out, if `visible`; or else a line for each report, to `say`."""

    def __init__(self, total: int, visible: bool, say: Callable[[str], None], shown: str = "loss"):
        """`shown` is the column of a report that is told, with that of held-out rows."""
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} updates"),
            TextColumn(f"{shown} {{task.fields[figure]}}, held out {{task.fields[held_out]}}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        ]
        self._shown = shown
        self._bar = Bar(*columns, disable=not visible)
        self._say, self._total = None if visible else say, total
        self._before: tuple[float, float] | None = None  # tokens, and when
        self._is_visible, self._stack = visible, ExitStack()
        self._task = self._bar.add_task("training", total=total, figure="-", held_out="-")

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
        self._bar.update(self._task, description="training" if seconds is None else f"compiling {subject.short}: {seconds:.0f} s")

    def update(self, row: Mapping[str, float]) -> None:
        """Show one report."""
        figure, held_out = f"{row[self._shown]:.3f}", f"{row[f'held_out_{self._shown}']:.3f}"
        self._bar.update(self._task, completed=row["update"], figure=figure, held_out=held_out)
        if self._say is not None:
            now = time.perf_counter()
            speed = (
                "" if self._before is None else f", {(row['tokens'] - self._before[0]) / (now - self._before[1]):,.0f} tokens/s"
            )
            self._say(f"{row['update']:,.0f}/{self._total:,} updates, {self._shown} {figure}, held out {held_out}{speed}")
            self._before = row["tokens"], now
