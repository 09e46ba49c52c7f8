"""Entries on disk: bytes by name, in a directory of the user's own, under a limit of size.

Nothing here knows what the bytes mean. An entry is whole and belongs to its name, or it is ignored with a message (logger "tempo").
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from tempo_core.files import write_whole

LOG = logging.getLogger("tempo")
MAGIC = b"tempo-entry-1\n"
_DIGEST = hashlib.sha256().digest_size
_ABANDONED = 3600  # seconds after which a temporary file is one of a process that was killed


@dataclass(eq=False)
class Entries:
    """The entries in the directory `path`, of at most `limit` bytes together: those that were not used for longest are removed.

    Entries are read only if the directory and their files belong to this user, and nobody else may use the directory: what they hold
    may be executed. The directory is made when the first entry is written.
    """

    path: Path
    limit: int
    _refusals: set[str] = field(default_factory=set, init=False)  # what has been logged: each reason once

    def read(self, name: str) -> bytes | None:
        """The content of an entry. None if there is no such entry, or if it is not to be trusted."""
        file = self.path / name
        try:
            if not self._is_private():
                return None
            with open(os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as opened:
                status = os.fstat(opened.fileno())
                if status.st_uid != os.getuid() or status.st_mode & 0o022:
                    self._refuse(f"{file} can be written by others; it is ignored", "remove it")
                    return None
                data = opened.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(f"{file} cannot be read: {error}", "it is compiled anew")
            return None
        checksum, content = data[len(MAGIC) : len(MAGIC) + _DIGEST], data[len(MAGIC) + _DIGEST :]
        if not data.startswith(MAGIC) or checksum != _checksum(name, content):
            self.discard(name, "it is damaged, or not an entry of this name")
            return None
        with contextlib.suppress(OSError):  # another process may have removed it
            os.utime(file)  # it was used now
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write an entry, and remove others if there are too many. A disk that is full or read-only is a message, not an error."""
        size = len(MAGIC) + _DIGEST + len(content)
        if size > self.limit:
            self._refuse(f"an entry of {size:,} bytes is not kept: the cache {self.path} has {self.limit:,}", "raise the limit")
            return
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_private():
                write_whole(self.path / name, MAGIC + _checksum(name, content) + content, mode=0o600)
                self._remove_oldest()
        except OSError as error:
            self._refuse(f"the cache {self.path} cannot be written: {error}", "programs are compiled anew each time")

    def discard(self, name: str, reason: str) -> None:
        """Remove an entry that cannot be used, and say so."""
        LOG.warning("the cache entry %s is ignored: %s. It is removed, and compiled anew", self.path / name, reason)
        with contextlib.suppress(OSError):  # then it is overwritten, or ignored again
            (self.path / name).unlink(missing_ok=True)

    def _is_private(self) -> bool:
        """Whether the directory belongs to this user, and to nobody else. Raises OSError if there is none."""
        if not hasattr(os, "getuid"):
            self._refuse(f"the cache {self.path} is not used: this system does not tell to whom a directory belongs", "")
            return False
        status = os.lstat(self.path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            self._refuse(
                f"the cache {self.path} is not used: it must be a directory that belongs to you alone, because its entries are executed",
                f"chmod 700 {self.path}, or choose another directory",
            )
            return False
        return True

    def _refuse(self, what: str, hint: str) -> None:
        if what not in self._refusals:
            self._refusals.add(what)
            LOG.warning("%s%s", what, f" ({hint})" if hint else "")

    def _remove_oldest(self) -> None:
        """Remove the entries that were not used for longest, until the rest fits; and what killed processes left."""
        files: list[tuple[float, int, str]] = []
        with os.scandir(self.path) as found:
            for each in found:
                try:
                    status = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process has removed it
                if each.name.endswith(".tmp"):
                    if status.st_mtime < time.time() - _ABANDONED:
                        Path(each.path).unlink(missing_ok=True)
                elif stat.S_ISREG(status.st_mode):
                    files.append((status.st_mtime, status.st_size, each.path))
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            Path(path).unlink(missing_ok=True)
            excess -= size


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + content).digest()
