"""The lock of a run directory: one process at a time trains in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tempo_core.files import lock
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
        if not lock(handle):
            owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise RunError(
                f"another process ({owner or 'on another machine'}) is training in {path} now",
                hint="wait for it, or choose another directory: --out DIR",
            )
        if hasattr(os, "pwrite"):
            with suppress(OSError):  # the number is for people
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
