"""The signals and times that stop training."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tempo_core.compiling import checking, is_waiting

SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Stopped(KeyboardInterrupt):
    """Training stops at once, because of a signal."""

    def __init__(self, signal: signal.Signals):
        super().__init__(signal.name)
        self.signal = signal


class _LeftOut(Stopped):
    """Training stops, and leaves out what it does now."""


def exit_status(error: KeyboardInterrupt) -> int:
    """The exit status of a command that was interrupted: 128 and the number of the signal."""
    return 128 + (error.signal if isinstance(error, Stopped) else signal.SIGINT)


class StopRequest:
    """Why training should stop after the iterations that run now: a signal, or its time is up."""

    def __init__(self, say: Callable[[str], None], seconds: float | None = None):
        self.by_callback = False
        self._say, self._deadline = say, None if seconds is None else time.monotonic() + seconds
        self.signal: signal.Signals | None = None
        self.can_finish = False  # whether iterations run that can be finished and saved
        self.is_saved: Callable[[], bool] = lambda: False  # whether all whole iterations are saved
        self._is_dispensable = False

    @property
    def reason(self) -> str | None:
        if self.signal is not None:
            return self.signal.name
        if self.by_callback:
            return "a callback"
        return "the time limit" if self._deadline is not None and time.monotonic() >= self._deadline else None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the first signal asks to stop after the iteration; the second stops at once.

        So does the first one before iterations run. Where XLA compiles after a signal, and all whole iterations are saved, training stops too.
        """
        try:
            before = {number: signal.signal(number, self._handle) for number in SIGNALS if not _is_left_to_others(number)}
        except ValueError:  # this is not the main thread, and only the main thread handles signals
            yield
            return
        hook, sys.unraisablehook = sys.unraisablehook, lambda lost: self._raise_again(lost, hook)
        try:
            with checking(self._check):
                yield
        finally:
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def dispensable(self) -> Iterator[None]:
        """Inside is work after an iteration, such as its evaluation, that is left out after a signal if XLA compiles for it.

        What follows the `with` runs: it saves the iteration.
        """
        self._is_dispensable = True
        try:
            yield
        except _LeftOut:
            pass
        finally:
            self._is_dispensable = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first, self.signal = self.signal is None, signal.Signals(number)
        if not (is_first and self.can_finish):
            raise Stopped(self.signal)
        if is_waiting():
            self._check()
        work = "ending the evaluation" if self._is_dispensable else "finishing the iteration and saving it"
        self._say(f"{self.signal.name}: {work}; once more stops at once")

    def _check(self) -> None:
        """Stop while XLA compiles, after a signal, if no whole iteration is lost."""
        if self.signal is None:
            return
        if self._is_dispensable:
            raise _LeftOut(self.signal)
        if self.is_saved():
            raise Stopped(self.signal)

    def _raise_again(self, lost: sys.UnraisableHookArgs, hook: Callable[[sys.UnraisableHookArgs], object]) -> None:
        """Python drops what a handler raises where no caller can receive it, such as in a callback of the garbage collector."""
        if not isinstance(lost.exc_value, Stopped):
            hook(lost)
        elif not isinstance(lost.exc_value, _LeftOut):  # `_check` raises that one again
            again = threading.Timer(0.05, _signal, (lost.exc_value.signal,))
            again.daemon = True
            again.start()


def _is_left_to_others(number: signal.Signals) -> bool:
    """Whether the end of a terminal does not concern this process: `nohup` says so."""
    return number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) == signal.SIG_IGN


def _signal(number: signal.Signals) -> None:
    """Send a signal to the main thread, which may wait for something."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:  # not on this system
        signal.raise_signal(number)
