"""The lock of a run directory: one process at a time trains in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tempo_core.runs.commands import RunError


@contextmanager
def locked(path: Path, *inside: Path) -> Iterator[None]:
    """Hold a directory for this process alone; it is created, and so are those `inside`. Raises RunError if it is held, or cannot be written."""
    try:
        for directory in (path, *inside):
            directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}", hint="choose another: --out DIR") from error
    try:
        _lock(handle, path)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    """Lock an open file for this process. The system takes the lock away when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
        raise RunError(
            f"another process ({owner or 'on another machine'}) is training in {path} now",
            hint="wait for it, or choose another directory: --out DIR",
        ) from error
    with suppress(OSError):  # the number is for people
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
