"""The lock of a run directory: one process at a time trains in it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tempo_core.runs.errors import RunError


def lock(handle: int, path: Path) -> None:
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
            f"process {owner or 'of another machine'} trains in {path} now",
            hint="wait for it, or choose another directory: --out DIR",
        ) from error
    with suppress(OSError):  # the number is for people
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
