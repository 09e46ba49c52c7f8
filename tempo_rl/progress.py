"""The progress bar of a training run."""

from __future__ import annotations

import math
from types import TracebackType

from tempo_rl.logger import Row


class Progress:
    """A rich progress bar over environment steps, with the latest return. It is drawn only if `visible`."""

    def __init__(self, total: int, visible: bool = True):
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
        self._bar = Bar(*columns, disable=not visible)
        self._task = self._bar.add_task("compiling", total=total, episodic_return="-")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def update(self, row: Row) -> None:
        """Show one iteration's row."""
        self._bar.update(self._task, description="training", completed=row["env_steps"])
        value = row.get("episodic_return", math.nan)
        if not math.isnan(value):
            self._bar.update(self._task, episodic_return=f"{value:.1f}")
