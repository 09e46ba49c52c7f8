"""Reading files that a user names: whole files, and prompts, which may also come through a pipe."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import Protocol

PATIENCE = 10.0  # seconds for a writer to open a named pipe
MOST = 2**28  # bytes of prompts: a device or a pipe may have no end
UTF_8 = "utf-8-sig"  # without the mark that some editors write at the beginning of a file
_PART = 2**20
_PAUSE = 0.05


def check_regular(path: Path) -> None:
    """Raises OSError for a named pipe, whose reader would wait, perhaps for ever, and for a device. Directories and absent files pass."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def read_text(path: Path) -> str:
    """The UTF-8 text of a file. Raises OSError, also for what is not a regular file, and UnicodeDecodeError."""
    check_regular(path)
    return path.read_text(encoding=UTF_8)


def read_prompt(path: Path) -> str:
    """The UTF-8 text of a file, or of a pipe, such as the shell's `<(command)`.

    Raises OSError, also for a named pipe that nobody writes into for PATIENCE seconds and for more than MOST bytes, and UnicodeDecodeError.
    """
    if not path.is_fifo():
        with open(path, "rb") as file:
            text = read_bounded(file, str(path)).decode(UTF_8)
        return text.replace("\r\n", "\n").replace("\r", "\n")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, this waits for a writer
    with open(handle, "rb", buffering=0) as file:
        first = _first_bytes(handle, path)
        os.set_blocking(handle, True)
        return read_bounded(file, str(path), first).decode(UTF_8)


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def read_bounded(file: _Reader, name: str, first: bytes = b"") -> bytes:
    """All bytes of a file, behind those that were read first. Raises OSError for more than MOST."""
    content = bytearray(first)
    while part := file.read(_PART):
        content += part
        if len(content) > MOST:
            raise OSError(errno.EFBIG, f"there are more than {MOST >> 20} MiB", name)
    return bytes(content)


def _first_bytes(handle: int, path: Path) -> bytes:
    """What stands in a pipe when somebody writes into it: perhaps nothing yet."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            content = os.read(handle, 2**16)
        except BlockingIOError:  # there is a writer, who has not written yet
            return b""
        if content:
            return content
        if time.monotonic() >= until:
            raise OSError(errno.EPIPE, f"nobody writes into this pipe; waited for {PATIENCE:g} s", str(path))
        time.sleep(_PAUSE)
