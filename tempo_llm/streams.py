"""The standard streams of a command: those that its caller closed, and output that cannot be written."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from tempo_llm.errors import RequestError

_closed: set[str] = set()


def open_streams() -> None:
    """Open the streams that the caller closed (`>&-`) at the null device, before another file becomes one of them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            _closed.add(name)


def check_output() -> None:
    """Raises RequestError if there is no standard output: what a command computes would be lost."""
    if "stdout" in _closed:
        raise RequestError("the standard output is closed", hint="write into a file: > FILE")


def drop_output() -> None:
    """Write what is left of the standard output nowhere, so that Python's end does not fail at it too."""
    with suppress(OSError, ValueError, AttributeError):  # it may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explained(error: OSError) -> str:
    """What a file, or the standard output, refused."""
    what = "the output cannot be written" if error.filename is None else f"{error.filename} cannot be used"
    return f"{what}: {error.strerror or error}"
