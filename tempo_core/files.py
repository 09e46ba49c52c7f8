"""Files that are whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def refusal(error: OSError, path: Path) -> str:
    """Why a file cannot be written, in a few words."""
    if error.errno == errno.ENOENT and not path.parent.exists():
        return f"there is no directory {path.parent}"
    return error.strerror or str(error)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file under a temporary name beside it, sync it, and rename it. Raises OSError, also where a device or a pipe has that name.

    A process that is killed at any moment leaves the earlier file, and perhaps a temporary one, which the next write of this file
    removes. `mode` holds the permissions of a new file, less the process's umask.
    """
    if path.exists() and not path.is_file():  # a rename would put a file in the place of a device
        raise OSError(errno.EEXIST, "there is something that is no regular file", str(path))
    _remove_left(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(handle, "wb") as file:
            lock(handle)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_left(path: Path) -> None:
    """Remove the temporary files of writers of `path` that were killed."""
    if not path.parent.is_dir():
        return
    start, end = f".{path.name}.", ".tmp"
    for file in path.parent.iterdir():
        if file.name.startswith(start) and file.name.endswith(end):
            numbers = file.name[len(start) : -len(end)].split(".")
            if len(numbers) == 2 and all(map(str.isdecimal, numbers)) and not _is_writing(file, *map(int, numbers)):
                file.unlink(missing_ok=True)


def _is_writing(file: Path, process: int, thread: int) -> bool:
    """Whether a thread may be writing a temporary file now: one of this system, or of another that has locked the file."""
    if fcntl is None:
        return True
    if process == os.getpid():
        return thread in sys._current_frames()  # a killed process may have had this number
    try:
        os.kill(process, 0)
        return True
    except ProcessLookupError:
        pass
    except (OSError, OverflowError):  # the process is another user's
        return True
    try:
        handle = os.open(file, os.O_RDWR)
    except OSError:
        return True
    try:
        return not lock(handle)
    finally:
        os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file until it is closed, also when its process is killed; False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _sync_directory(directory: Path) -> None:
    """Make a rename last. Some systems cannot open a directory."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
