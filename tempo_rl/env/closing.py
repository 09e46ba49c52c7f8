"""The end of environments and loggers, which may raise or block without a loss of what was done before."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

PATIENCE = 10.0  # seconds for a `close()`

Value = TypeVar("Value")


class Closable(Protocol):
    """Anything that is closed at its end."""

    def close(self) -> None: ...


class TooLongError(Exception):
    """Work that did not end in its time, and goes on in a thread that nobody waits for."""


_THREADS: list[threading.Thread] = []  # those that nobody waits for


def in_time(seconds: float, work: Callable[[], Value], afterwards: Callable[[Value], None] = lambda value: None) -> Value:
    """The value of `work()`, which runs in a thread of its own. Raises `TooLongError` after so many seconds, and what the work raises.

    `afterwards` gets a value that comes too late.
    """
    values, errors = list[Value](), list[BaseException]()
    is_left = threading.Event()

    def run() -> None:
        try:
            values.append(work())
            if is_left.is_set():
                afterwards(values[0])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="work with a limit")
    thread.start()
    try:
        thread.join(seconds)
    finally:
        if thread.is_alive():
            is_left.set()
            _THREADS.append(thread)
    if errors:
        raise errors[0]
    if not values:
        raise TooLongError
    return values[0]


def close_quietly(
    closable: Closable, name: str, say: Callable[[str], None] | None = None, patience: float | None = None, hint: str = ""
) -> None:
    """Close what is called `name`, whatever state it is in. One that raises or blocks is left behind, and one line says so.

    Without `say`, the line goes to the standard error.
    """
    seconds = PATIENCE if patience is None else patience
    try:
        in_time(seconds, closable.close)
        return
    except TooLongError:
        problem = f"close() of {name} has not returned within {seconds:g} s, and is left behind"
    except Exception as error:  # the result, or the error that ended the work, matters more
        problem = f"close() of {name} raised {type(error).__name__}: {error}"
    with suppress(OSError, ValueError):  # the environment may have closed the standard error
        (say or _to_standard_error)(f"note: {problem}{hint}")


def _to_standard_error(text: str) -> None:
    print(text, file=sys.stderr)


def leave(status: int) -> None:
    """End the process with this status if work still runs that nobody waits for. Call it after all clean-up.

    The usual end would wait for it: it closes what is open, joins processes and threads.
    """
    if any(thread.is_alive() for thread in _THREADS):
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)
