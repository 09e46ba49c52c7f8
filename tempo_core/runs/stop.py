"""The signals and times that stop training."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StopRequest:
    """Why training should stop after the iterations that run now: a signal, or its time is up."""

    def __init__(self, say: Callable[[str], None], seconds: float | None = None):
        self.by_callback = False
        self._say, self._deadline = say, None if seconds is None else time.monotonic() + seconds
        self.signal: signal.Signals | None = None
        self.can_finish = False  # whether iterations run that can be finished and saved

    @property
    def reason(self) -> str | None:
        if self.signal is not None:
            return self.signal.name
        if self.by_callback:
            return "a callback"
        return "the time limit" if self._deadline is not None and time.monotonic() >= self._deadline else None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the first signal asks to stop after the iteration; the second, or one before iterations run, stops at once."""
        try:
            before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        except ValueError:  # this is not the main thread, and only the main thread handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first, self.signal = self.signal is None, signal.Signals(number)
        if not (is_first and self.can_finish):
            raise KeyboardInterrupt
        self._say(f"{self.signal.name}: finishing the iteration and saving it; once more stops at once")
