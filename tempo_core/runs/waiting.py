"""What a command says while XLA compiles for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tempo_core.compiling import Subject, reporting

MOMENTS = (10.0, 30.0)  # seconds; the first line comes with the first report
EVERY = 60.0  # seconds between further lines


@contextmanager
def announcing(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, a compilation that takes more than two seconds is said: after 2, 10, 30 and 60 seconds, then every minute."""
    due = 0.0

    def hear(subject: Subject, seconds: float | None) -> None:
        nonlocal due
        if seconds is None:
            due = 0.0
        elif seconds >= due:
            say(f"compiling {subject}: {seconds:.0f} s")
            due = next((moment for moment in MOMENTS if moment > seconds), (seconds // EVERY + 1) * EVERY)

    with reporting(hear):
        yield
