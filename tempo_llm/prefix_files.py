"""Prefixes on disk: a safetensors file each, in a private directory that several processes may share, under a limit of size.

A file is whole and belongs to its name, or it is ignored with a warning (logger "tempo"). Its header holds

    format     FORMAT
    prefix     JSON: the digest of the model, the tokens, and of each array its dtype, shape, reach, and whether it is a state
    checksum   of the text `prefix` and of the arrays

Its name is a digest of `prefix`, so that a header that was damaged, or is of another file, is noticed when it is read, without the arrays.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TypeVar

import ml_dtypes  # noqa: F401  (registers bfloat16 as a dtype of NumPy, which safetensors needs)
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tempo_core.files import lock, refusal, write_whole
from tempo_llm.errors import RequestError
from tempo_llm.prefix import Extent, Kept, Outline, Prefix

LOG = logging.getLogger("tempo")
FORMAT = "tempo-prefix-1"
MOST_HEADER = 100_000_000  # bytes: the limit of safetensors
_FORMATS = "tempo-prefix-"
_NAME = re.compile(r"prefix-[0-9a-f]{64}\.safetensors")
_TEMPORARY = re.compile(rf"\.{_NAME.pattern}\.[\d.]+\.tmp")
_ABANDONED = 3600  # seconds after which a temporary file is one of a process that was killed
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


_T = TypeVar("_T")


class _Header(NamedTuple):
    text: str
    checksum: str
    tokens: tuple[int, ...]
    layers: Mapping[str, Any]  # by name: dtype, shape, reach, is_state
    places: Mapping[str, tuple[int, int]]  # by name: where its bytes begin and end, behind the header


class PrefixFiles:
    """The prefixes of a model in the directory `path`, whose files have at most `most_bytes` together, those of other models included.

    The directory is created, for this user alone. `model` is a digest of all that the arrays depend on besides the tokens, or computes it.
    Raises RequestError for a directory that cannot be created, that belongs to another user, or that others can write.
    """

    def __init__(self, path: Path, most_bytes: int, model: Callable[[], str] | str):
        self.path, self.most_bytes, self._model = Path(path).absolute(), most_bytes, model
        self._headers: dict[str, tuple[tuple[int, int], Outline | None]] = {}  # by file: its time and size, and what it had then
        self._warnings: set[str] = set()  # each is given once
        self._check()
        self._remove_oldest()

    @cached_property
    def model(self) -> str:
        return self._model if isinstance(self._model, str) else self._model()

    def outlines(self) -> dict[str, Outline]:
        """The prefixes of this model, by file. Only the headers of files that are new or changed are read."""
        before, self._headers = self._headers, {}
        for name, status in self._scan():
            stamp = (status.st_mtime_ns, status.st_size)
            header = before.get(name)
            self._headers[name] = header if header is not None and header[0] == stamp else (stamp, self._read(name, _outline))
        return {name: outline for name, (_, outline) in self._headers.items() if outline is not None}

    def load(self, name: str) -> Prefix | None:
        """The prefix of a file, which is used now. None, and a warning, for a file that is damaged; it is removed."""
        prefix = self._read(name, _prefix)
        if prefix is not None:
            self.touch(name)
        return prefix

    def keep(self, prefix: Prefix) -> str:
        """Write a prefix, unless a file covers it; and remove what it covers, and what is above the limit.

        The name of the file that has the prefix now. It is "", and there is a warning, if the directory is full or cannot be written.
        """
        try:
            self._check()
            outlines = self.outlines()
            covering = [name for name, outline in outlines.items() if outline.covers(prefix.outline)]
            if covering:
                self.touch(covering[0])
                return covering[0]
            text = self._text(prefix)
            arrays = {name: kept.array for name, kept in prefix.layers.items()}
            checksum = _checksum(text, {name: array.reshape(-1).view(np.uint8).data for name, array in arrays.items()})
            content = safetensors.numpy.save(arrays, metadata={"format": FORMAT, "prefix": text, "checksum": checksum})
            if len(content) > self.most_bytes:
                self._warn(
                    f"a prompt of {len(content):,} bytes is not kept: the prompt cache {self.path} has {self.most_bytes:,}"
                )
                return ""
            name = _name(text)
            write_whole(self.path / name, content, mode=0o600)
            self._remove(other for other, outline in outlines.items() if prefix.outline.covers(outline))
            self._remove_oldest(newest=name)
            return name
        except RequestError as error:
            self._warn(error.message)
        except OSError as error:
            self._warn(
                f"the prompt cache {self.path} cannot be written: {refusal(error, self.path)}. Prompts are kept in memory only"
            )
        except (SafetensorError, MemoryError) as error:
            self._warn(f"a prompt cannot be written to {self.path}: {error}. It is kept in memory only")
        return ""

    def touch(self, name: str) -> None:
        """Have a file be the one that was used last."""
        with suppress(OSError):  # another process may have removed it
            now = time.time_ns()
            os.utime(self.path / name, ns=(now, now), follow_symlinks=False)
            status = os.lstat(self.path / name)
            if name in self._headers:
                self._headers[name] = ((status.st_mtime_ns, status.st_size), self._headers[name][1])

    # -- the directory ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Create the directory if it is not there. Raises RequestError if it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(self.path)
        except (OSError, ValueError) as error:
            reason = "it is not a directory" if isinstance(error, FileExistsError | NotADirectoryError) else str(error)
            raise RequestError(
                f"the prompt cache {self.path} cannot be used: {reason}", hint="give a directory that you can write, or a new one"
            ) from None
        if not hasattr(os, "getuid"):
            raise RequestError(
                f"the prompt cache {self.path} cannot be used: this system does not tell to whom a directory belongs",
                hint="prompts are kept in memory without a directory",
            )
        if status.st_uid != os.getuid():
            raise RequestError(
                f"the prompt cache {self.path} cannot be used: the directory belongs to another user", hint="give one of your own"
            )
        if status.st_mode & 0o022:
            raise RequestError(
                f"the prompt cache {self.path} cannot be used: other users can write this directory",
                hint=f"chmod 700 {self.path}, or give another directory",
            )

    def _scan(self) -> list[tuple[str, os.stat_result]]:
        """The files of prefixes, of this model or another. What killed processes left is removed."""
        files: list[tuple[str, os.stat_result]] = []
        try:
            with os.scandir(self.path) as found:
                for each in found:
                    try:
                        status = each.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # another process has removed it
                    if _TEMPORARY.fullmatch(each.name):
                        self._remove_abandoned(each.path, status)
                    elif not _NAME.fullmatch(each.name):
                        self._warn(
                            f"the prompt cache {self.path} holds files that are not its own, such as {each.name}; they stay",
                            "foreign",
                        )
                    elif stat.S_ISREG(status.st_mode):
                        files.append((each.name, status))
                    else:
                        self._warn(f"{each.path} is a link or a device, not a file; it is ignored")
        except FileNotFoundError:
            return []  # the next prompt creates it again
        except OSError as error:
            self._warn(f"the prompt cache {self.path} cannot be read: {refusal(error, self.path)}")
        return files

    def _remove_abandoned(self, path: str, status: os.stat_result) -> None:
        """Remove a temporary file that is old and that no process is writing."""
        if status.st_mtime > time.time() - _ABANDONED or not stat.S_ISREG(status.st_mode):
            return
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if lock(handle):
                    os.unlink(path)
            finally:
                os.close(handle)

    def _remove_oldest(self, newest: str = "") -> None:
        """Remove the files that were not used for longest, but not `newest`, until the rest fits."""
        files = sorted(self._scan(), key=lambda file: (file[0] == newest, file[1].st_mtime_ns))
        excess = sum(status.st_size for _, status in files) - self.most_bytes
        for name, status in files:
            if excess <= 0:
                break
            self._remove([name])
            excess -= status.st_size

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)

    def _warn(self, text: str, reason: str | None = None) -> None:
        """Give a warning once for a reason, which is the text if there is no other."""
        if (reason or text) not in self._warnings:
            self._warnings.add(reason or text)
            LOG.warning("%s", text)

    # -- one file -----------------------------------------------------------------------------------------------------

    def _text(self, prefix: Prefix) -> str:
        layers = {
            name: {"dtype": kept.array.dtype.name, "shape": kept.array.shape, "reach": kept.reach, "is_state": kept.is_state}
            for name, kept in prefix.layers.items()
        }
        return json.dumps({"model": self.model, "tokens": prefix.tokens, "layers": layers}, sort_keys=True)

    def _read(self, name: str, parse: Callable[[BinaryIO, str, str], _T | None]) -> _T | None:
        """What `parse` has of a file, its name and this model. None, and a warning, for a file that is not private, and for one that is damaged.

        A damaged file is removed.
        """
        path, model = self.path / name, self.model
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                    self._warn(f"{path} is ignored: it must be a file that belongs to you, and that nobody else can write")
                    return None
                return parse(file, name, model)
        except FileNotFoundError:
            return None  # another process has removed it
        except (OSError, MemoryError) as error:
            self._warn(f"{path} cannot be read, and is ignored: {error}")
        except _DAMAGES as error:
            self._warn(f"{path} is damaged, and is removed: {error}")
            self._remove([name])
        return None


def _name(text: str) -> str:
    return f"prefix-{hashlib.sha256(text.encode()).hexdigest()}.safetensors"


def _checksum(text: str, parts: Mapping[str, memoryview]) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(parts):
        total.update(parts[name])
    return total.hexdigest()


def _header(file: BinaryIO, name: str, model: str) -> _Header | None:
    """The header of a file, which is read up to the arrays. None if it is of another version or model. Raises one of _DAMAGES."""
    size = int.from_bytes(file.read(8), "little")
    content = file.read(size) if size <= MOST_HEADER else b""
    if len(content) < size:
        raise ValueError("its header is not whole")
    tensors = dict(json.loads(content))
    metadata = tensors.pop("__metadata__")
    if metadata["format"] != FORMAT and metadata["format"].startswith(_FORMATS):
        return None
    text = metadata["prefix"]
    if _name(text) != name:
        raise ValueError("its header is not the one of this name")
    values = json.loads(text)
    if values["model"] != model:
        return None
    places = {key: tensors[key]["data_offsets"] for key in values["layers"]}
    if file.tell() + max((end for _, end in places.values()), default=0) != os.fstat(file.fileno()).st_size:
        raise ValueError("it is not as long as its header says")
    return _Header(text, metadata["checksum"], tuple(values["tokens"]), values["layers"], places)


def _outline(file: BinaryIO, name: str, model: str) -> Outline | None:
    """The prefix of a file, without its arrays. None if it is of another version or model. Raises one of _DAMAGES."""
    header = _header(file, name, model)
    if header is None:
        return None
    extents = (Extent(0 if e["is_state"] else e["shape"][0], e["reach"], e["is_state"]) for e in header.layers.values())
    return Outline(header.tokens, frozenset(extents))


def _prefix(file: BinaryIO, name: str, model: str) -> Prefix | None:
    """The prefix of a file. None if it is of another version or model. Raises one of _DAMAGES."""
    header = _header(file, name, model)
    if header is None:
        return None
    data = memoryview(file.read())
    parts = {key: data[start:end] for key, (start, end) in header.places.items()}
    if _checksum(header.text, parts) != header.checksum:
        raise ValueError("its checksum is not that of its content")
    layers = {
        key: Kept(np.frombuffer(parts[key], np.dtype(each["dtype"])).reshape(each["shape"]), each["reach"], each["is_state"])
        for key, each in header.layers.items()
    }
    return Prefix(header.tokens, MappingProxyType(layers))
