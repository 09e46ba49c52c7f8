"""The standard streams of a command, which an environment may close, or write into without Python's knowledge."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

NUMBERS = {"stdout": 1, "stderr": 2}  # the descriptors


class _Lasting(io.TextIOWrapper):
    """A stream that `close()` only flushes: who prints afterwards, prints."""

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self.flush()


class _Kept:
    """A standard stream with a second descriptor of the same file, which stays open whatever happens to the first one."""

    def __init__(self, name: str, number: int, stream: TextIO):
        self.name, self.number, self.original = name, number, stream
        self.spare = os.dup(number)
        self.place = self.spare  # the file that the descriptor should have: that of another stream, inside of `aside`
        self.screen: TextIO | None = None
        self._streams: list[_Lasting] = []
        setattr(sys, name, self.open())

    def open(self, place: int | None = None) -> TextIO:
        """A new stream on the file of `place`: that which the descriptor should have, if None. It has a descriptor of its own."""
        like = self.original
        lines, is_unbuffered = (bool(getattr(like, name, False)) for name in ("line_buffering", "write_through"))
        file = os.fdopen(os.dup(self.place if place is None else place), "wb", 0 if is_unbuffered else -1)
        stream = _Lasting(file, encoding=like.encoding, errors=like.errors, line_buffering=lines, write_through=is_unbuffered)
        self._streams.append(stream)
        return stream

    def put(self, place: int) -> None:
        """Let the descriptor have the file of `place` from now on, unless somebody else's file has its number."""
        is_ours = _is_same(self.number, self.place)
        self.place = place
        if is_ours is not False:
            os.dup2(place, self.number)

    def mend(self) -> None:
        """Open what was closed."""
        if _is_same(self.number, self.place) is None:
            os.dup2(self.place, self.number)
        if _is_closed(getattr(sys, self.name)):
            setattr(sys, self.name, self.open())

    def end(self) -> None:
        """Give the stream back as it was."""
        for stream in self._streams:
            with suppress(OSError, ValueError):
                stream.detach().close()
        setattr(sys, self.name, self.original)
        os.close(self.spare)


def _is_same(number: int, other: int) -> bool | None:
    """Whether two descriptors are of the same file; None if the first one is closed."""
    try:
        held = os.fstat(number)
    except OSError:
        return None
    return os.path.samestat(held, os.fstat(other))


def _is_closed(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.closed
    except ValueError:  # it has no file any more
        return True


def _has(stream: TextIO, number: int) -> bool:
    """Whether a stream writes to this descriptor."""
    try:
        return stream.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False


_KEPT: dict[str, _Kept] = {}
_RESULTS: list[TextIO] = []  # the standard output of the command, while that of all others goes elsewhere


@contextmanager
def kept() -> Iterator[None]:
    """Inside, nothing closes the standard output and the standard error for long: not `sys.stdout.close()`, and `mend` opens their
    descriptors again. At the end they are as at first.
    """
    if _KEPT:
        yield
        return
    for name, number in NUMBERS.items():
        stream = getattr(sys, name)
        if stream is not None and _has(stream, number):  # neither closed by the caller, nor a test's
            _KEPT[name] = _Kept(name, number, stream)
    try:
        yield
    finally:
        mend()
        for each in _KEPT.values():
            each.end()
        _KEPT.clear()


def mend() -> None:
    """Open the streams that an environment closed. It is called after code that may be an environment's."""
    for each in _KEPT.values():
        with suppress(OSError):
            each.mend()


@contextmanager
def aside() -> Iterator[None]:
    """Inside, all that is written to the standard output goes to the standard error, also by code in C and by other processes."""
    out, errors = _KEPT.get("stdout"), _KEPT.get("stderr")
    mend()
    if out is None or errors is None:
        with _results_on(_RESULTS[-1] if _RESULTS else sys.stdout), redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    out.put(errors.spare)
    try:
        with _results_on(out.open(out.spare)), redirect_stdout(sys.stderr):
            yield
    finally:
        out.put(out.spare)
        mend()


@contextmanager
def _results_on(stream: TextIO) -> Iterator[None]:
    _RESULTS.append(stream)
    try:
        yield
    finally:
        _RESULTS.pop()


def result(text: str) -> None:
    """Print a line to the standard output of the command at once, also inside of `aside`. Raises OSError if nobody reads it."""
    mend()
    stream = _RESULTS[-1] if _RESULTS else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def echo(text: object = "", *, err: bool = False, nl: bool = True, fg: str | None = None) -> None:
    """Print to the standard output, or to the standard error, in a colour on a terminal."""
    import typer

    mend()
    typer.echo(text if fg is None else typer.style(text, fg=fg), err=err, nl=nl)


def screen() -> TextIO:
    """The standard error as a file that no environment closes, for what is drawn while one plays."""
    errors = _KEPT.get("stderr")
    if errors is None:
        return sys.stderr
    errors.screen = errors.screen or errors.open()
    return errors.screen
