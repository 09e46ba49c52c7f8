"""A limit for calls of an environment's code: one that does not return within it ends with an error that names its function.

Each of two means is for what the one before it cannot end:

- A signal to the main thread. Its handler raises `Blocked` there, which ends loops of Python, sleeps, locks and waits for a socket. In
  another thread, Python raises it between two lines.
- The thread that watches says the error, and ends the process: for code in C that does not come back to Python.

Seconds in which the whole process stands still, after Ctrl-Z for example, do not count. Code in C that keeps Python's lock is not ended, for
then no thread of Python runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from tempo_rl.errors import EnvError, own_line

Value = TypeVar("Value")

TIMEOUT = 120.0  # seconds for a call, unless the recipe says otherwise
GRACE = 5.0  # seconds for the exception to end a call; then the process ends
TURN = 0.2  # seconds between two looks at the calls
LONGEST = 1.0  # seconds that one turn counts at most
IDLE = 60.0  # seconds without a call, after which nobody watches
_NUMBER: int | None = getattr(signal, "SIGURG", None)  # a signal that does nothing where nobody handles it; Windows has none


class Blocked(BaseException):
    """Raised inside a call that takes too long. It is not an `Exception`, which code in a loop may catch to try again."""


@dataclass(eq=False)
class _Call:
    """One call that runs now."""

    what: str
    limit: float
    thread: int
    outer: _Call | None
    began: float = 0.0
    is_late: bool = False
    is_over: bool = False

    def late(self) -> _Call | None:
        """The outermost call that is late, of this one and those around it."""
        outermost = None if self.outer is None else self.outer.late()
        return outermost or (self if self.is_late and not self.is_over else None)

    def message(self) -> str:
        return f"{self.what} has not returned within {self.limit:g} s"


HINT = "look for an endless loop or a lock in it. To allow more seconds: env_timeout=600"

_CALLS: dict[int, _Call] = {}  # by thread, the innermost one
_now = 0.0  # seconds on the clock of the watcher
_LAST_WORDS: list[Callable[[str], None]] = []
_LOCK = threading.Lock()
_watcher: _Watcher | None = None


def within(limit: float | None, what: str, call: Callable[[], Value]) -> Value:
    """The value of `call()`; `what` names it, such as "Corridor.step()". No limit if it is None.

    Raises `EnvError` if it does not return within `limit` seconds. If it cannot be interrupted, the process ends with that error.
    """
    if limit is None:
        return call()
    thread = threading.get_ident()
    mine = _Call(what, limit, thread, _CALLS.get(thread), _now)
    _CALLS[thread] = mine
    try:
        _watch()
        return call()
    except Blocked as error:
        mine.is_over = True
        if not mine.is_late:
            raise
        raise EnvError(f"{mine.message()}{own_line(error)}", hint=HINT) from error
    finally:
        mine.is_over = True
        if mine.outer is None:
            _CALLS.pop(thread, None)
        else:
            _CALLS[thread] = mine.outer


@contextmanager
def last_words(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, `say` gets the error before the process ends because of it: to write it into a result."""
    _LAST_WORDS.append(say)
    try:
        yield
    finally:
        _LAST_WORDS.remove(say)


def _watch() -> None:
    """Have a thread that watches, and a handler of the signal. Cheap if both are there."""
    global _watcher
    if _watcher is not None:
        return
    with _LOCK:
        if _watcher is None:
            _handle_signal()
            _watcher = _Watcher()
            _watcher.start()


def _forget_watcher() -> None:
    """Threads do not follow a process into its copy."""
    global _watcher
    _watcher = None
    _CALLS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_watcher)


# -- the first means: an exception inside the call ---------------------------------------------------------------------


def _handle_signal() -> None:
    if _NUMBER is None or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(_NUMBER)
    if getattr(before, "is_of_blocked", False):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        call = _CALLS.get(threading.get_ident())
        if call is not None and call.late() is not None:
            raise Blocked
        if callable(before):
            before(number, frame)

    handle.is_of_blocked = True  # type: ignore[attr-defined]
    signal.signal(_NUMBER, handle)


def _interrupt(call: _Call) -> None:
    call.is_late = True
    if call.thread == threading.main_thread().ident and _NUMBER is not None:
        signal.pthread_kill(call.thread, _NUMBER)
    elif not call.is_over:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(call.thread), ctypes.py_object(Blocked))


# -- the second: the end of the process --------------------------------------------------------------------------------


def _end(call: _Call) -> None:
    """Say the error and end the process, but not one in which a person types: he would lose all that it holds."""
    is_interactive = hasattr(sys, "ps1")
    message = f"{call.message()}, and cannot be interrupted"
    for say in [] if is_interactive else _LAST_WORDS:
        with suppress(Exception):
            say(message)
    with suppress(Exception):
        end = "end the process yourself" if is_interactive else "the process ends here"
        print(f"error: {message}: {end}; what was saved stays\n  hint: {HINT}", file=sys.stderr, flush=True)
    if is_interactive:
        return
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(1)


class _Watcher(threading.Thread):
    """Looks at the calls that run."""

    def __init__(self) -> None:
        super().__init__(name="watches environments", daemon=True)

    def run(self) -> None:
        global _now
        began, busy_at, ended = time.monotonic(), _now, set[_Call]()
        while _now - busy_at < IDLE or not self._ends():
            time.sleep(TURN)
            began, before = time.monotonic(), began
            _now += min(began - before, LONGEST)
            calls = list(_CALLS.values())
            busy_at = _now if calls else busy_at
            for call in _with_outer(calls):
                late = _now - call.began - call.limit
                if call.is_over or late <= 0.0 or call in ended:
                    continue
                if late > GRACE:
                    ended.add(call)
                    _end(call)
                elif call.thread == threading.main_thread().ident or not call.is_late:  # once in other threads
                    _interrupt(call)

    def _ends(self) -> bool:
        """Whether nobody watches from now on."""
        global _watcher
        with _LOCK:
            if _CALLS:
                return False
            _watcher = None
            return True


def _with_outer(calls: list[_Call]) -> Iterator[_Call]:
    """Calls, and those around them."""
    for call in calls:
        around: _Call | None = call
        while around is not None:
            yield around
            around = around.outer
