"""XLA's compilation in a thread of its own, so that the main thread serves signals while it waits, and reports of long ones.

XLA compiles a program in one call that nothing can stop, in milliseconds or in minutes. Python serves a signal only between two calls of
the main thread. So the main thread does not make this call itself: it waits for it in short turns, and an exception in a signal's handler,
such as KeyboardInterrupt, leaves the wait at once. XLA then goes on in its thread until it is done or the process ends (`leave`). What a
large compilation has freed goes back to the system.
"""

from __future__ import annotations

import atexit
import contextvars
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

LONG = 2.0  # seconds after which a compilation is reported
LARGE = 1.0  # seconds of a compilation after which its memory is given back
TURN = 0.1  # seconds between two looks of the main thread
T = TypeVar("T")
STACK = 16 * 2**20  # bytes; a thread has less than the main thread by default where the main thread's stack has no limit


@dataclass(frozen=True)
class Subject:
    """What XLA compiles: the launch "launch 3 of 5" of a program, the tensors in it in a few words, its operations before optimization."""

    launch: str
    tensors: str = ""
    operations: int = 0

    @property
    def short(self) -> str:
        """`launch 3 of 5, 412 operations`."""
        return f"{self.launch}, {self.operations:,} operations" if self.operations else self.launch

    def __str__(self) -> str:
        """`launch 3 of 5 (policy, loss; 412 operations)`."""
        return f"{self.launch} ({self.tensors}; {self.operations:,} operations)" if self.tensors else self.short


Listener: TypeAlias = Callable[[Subject, float | None], None]
"""Called in the main thread with what is compiled and for how many seconds so far; None when it is over."""

_LISTENERS: list[Listener] = []
_CHECKS: list[Callable[[], None]] = []
_THREADS: list[threading.Thread] = []  # those that the main thread has left behind
_WAITS: list[threading.Thread] = []  # the one that the main thread waits for


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Inside, a compilation that takes longer than `LONG` is reported to the listener, again and again, and to no outer one."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


@contextmanager
def checking(check: Callable[[], None]) -> Iterator[None]:
    """Inside, `check` is called again and again while the main thread waits for XLA. What it raises ends the wait."""
    _CHECKS.append(check)
    try:
        yield
    finally:
        _CHECKS.remove(check)


def is_waiting() -> bool:
    """Whether the main thread waits for XLA now. Handlers of signals ask this."""
    return bool(_WAITS)


def compile_lowered(lowered: Any, subject: Callable[[], Subject]) -> Any:
    """`lowered.compile()`, during which the main thread serves signals; other threads, which get no signals, call it themselves.

    `subject` is called if the compilation takes long. Raises what the compilation raises, and what handlers of signals do.
    """
    began = time.monotonic()
    compiled = interruptible(lowered.compile, subject)
    if time.monotonic() - began >= LARGE:
        give_back()
    return compiled


def give_back() -> None:
    """Let the C library return to the system what XLA's compiler has freed: of a large program 100 MB and more, which glibc would keep."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def interruptible(call: Callable[[], T], subject: Callable[[], Subject] | None = None) -> T:
    """What a call of native code gives that takes seconds and cannot be stopped. It is made as a compilation is; without `subject`, it is
    not reported.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    work = _Work(call)
    try:
        if work.started():
            work.wait(subject)
    except BaseException:
        leave_behind(work.thread)
        raise
    return work.result() if work.is_done else call()


class _Work(Generic[T]):
    """A call in a thread of its own, with the context variables and JAX's options of this thread."""

    def __init__(self, call: Callable[[], T]):
        import jax

        self._call, self._options = call, jax.config.values
        self._end = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.is_done = False  # not if the system gives no thread, or the thread cannot have an option of JAX that is set here
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name="XLA's compiler", daemon=True)

    def started(self) -> bool:
        """Start the thread. False where the system gives none."""
        before = threading.stack_size(STACK)
        try:
            self.thread.start()
        except RuntimeError:
            return False
        finally:
            threading.stack_size(before)
        return True

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                if _has_options(self._options, stack):
                    self.is_done = True
                    self._value = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._end.set()

    def wait(self, subject: Callable[[], Subject] | None) -> None:
        """Wait until the call is over. Reports it while it takes long."""
        began, told = time.monotonic(), None
        try:
            _WAITS.append(self.thread)
            while not self._end.wait(TURN):
                for check in _CHECKS:
                    check()
                seconds = time.monotonic() - began
                if subject is not None and _LISTENERS and seconds >= LONG:
                    told = told or subject()
                    _LISTENERS[-1](told, seconds)
        finally:
            _WAITS.clear()
            if told is not None and _LISTENERS:
                _LISTENERS[-1](told, None)

    def result(self) -> T:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return cast("T", self._value)
        finally:
            del error  # its traceback holds this frame


def _has_options(options: Mapping[str, Any], stack: ExitStack) -> bool:
    """Give this thread the options of JAX that another one has for itself, as in `with jax.default_device(device):`.

    False for an option that only the innermost parts of JAX can set for a thread.
    """
    import jax

    here = jax.config.values
    for name, value in options.items():
        if here.get(name) != value:
            manager = getattr(jax, name.removeprefix("jax_"), None)
            if manager is None:
                return False
            stack.enter_context(manager(value))
    return True


# -- the end of the process -------------------------------------------------------------------------------------------


def leave_behind(thread: threading.Thread) -> None:
    """The end of the process does not wait for a thread that compiles."""
    if not _THREADS:
        atexit.register(_at_exit)  # functions that are registered later run earlier: this one before those of JAX
    _THREADS.append(thread)


def is_left_behind() -> bool:
    """Whether a compilation that nobody waits for still runs."""
    return any(thread.is_alive() for thread in _THREADS)


def leave(status: int) -> None:
    """End the process with this status if a compilation still runs that nobody waits for. Call it after all clean-up.

    The usual end would take apart what XLA's thread uses, and such an end may abort the process.
    """
    if is_left_behind():
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _at_exit() -> None:
    """The end of a process that is no command of ours: `leave` with the status that Python would give; wait where it is unknown."""
    error = getattr(sys, "last_type", None)  # of the exception that ends the process; SystemExit leaves no trace
    if error is not None and not issubclass(error, KeyboardInterrupt):
        leave(1)
    try:
        while error is None and is_left_behind():
            time.sleep(TURN)
    except KeyboardInterrupt:
        pass
    if is_left_behind():  # as Python ends a process after Ctrl-C
        _flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
