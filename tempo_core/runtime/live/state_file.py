"""Files of a run's state: safetensors, with JSON beside the arrays. A file is whole, or it is refused.

A process that is killed at any moment leaves the earlier file (`files.py`). A file has a version and a checksum of all that it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import ArgumentError, StateError
from tempo_core.files import refusal, write_whole

FORMAT = "tempo-run-1"
Arrays: TypeAlias = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at a place, which `Run.snapshot` gives: arrays by name, and what JSON holds.

    What the run does later does not change it. So another thread may encode or write it while the run goes on.
    """

    arrays: Arrays
    meta: Mapping[str, object]

    def encoded(self) -> bytes:
        """The content of a file."""
        dtypes = {name: array.dtype.name for name, array in self.arrays.items()}
        shapes = {name: array.shape for name, array in self.arrays.items()}
        data = {name: _bytes(array) for name, array in self.arrays.items()}
        text = json.dumps({**self.meta, "dtypes": dtypes, "shapes": shapes}, sort_keys=True)
        return safetensors.numpy.save(data, {"format": FORMAT, "meta": text, "checksum": _checksum(data, text)})

    def write(self, path: str | Path) -> Path:
        """Write a file, which takes the place of an earlier one when it is complete. Its directory must exist. Raises StateError."""
        target = path_of(path)
        try:
            write_whole(target, self.encoded())
        except OSError as error:
            hint = (
                "an earlier file of this name is as it was" if target.parent.is_dir() else f"os.makedirs({str(target.parent)!r})"
            )
            raise StateError(f"the state cannot be written to {target}: {refusal(error, target)}", hint=hint) from error
        return target

    @classmethod
    def read(cls, path: str | Path) -> Snapshot:
        """What `write` wrote. Raises StateError for a file that is missing, damaged, or of another kind or version."""
        source = path_of(path)
        if not source.is_file():
            raise StateError(f"there is no file {source}", hint="save one first: run.save(path)")
        try:
            content = source.read_bytes()
        except OSError as error:
            raise StateError(f"{source} cannot be read: {error.strerror or error}") from error
        return cls.decoded(content, str(source))

    @classmethod
    def decoded(cls, content: bytes, name: str = "the state") -> Snapshot:
        """What `encoded` gave. `name` says in errors what it is. Raises StateError if it is damaged, or of another kind or version."""
        try:
            data = safetensors.numpy.load(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise StateError(
                f"{name} ({len(content)} bytes) cannot be read: {error}",
                hint="the file is cut off, or not a safetensors file. Resume from an earlier one",
            ) from error
        if header.get("format") != FORMAT:
            raise StateError(
                f"{name} has the format {header.get('format', 'of something else')!r}, not {FORMAT!r}",
                hint="only files that run.save(path) wrote can be resumed",
            )
        if _checksum(data, header["meta"]) != header.get("checksum"):
            raise StateError(f"{name} is damaged: its checksum is not that of its content", hint="resume from an earlier file")
        meta = json.loads(header["meta"])
        arrays = {name: _array(data[name], dtype, meta["shapes"][name]) for name, dtype in meta.pop("dtypes").items()}
        del meta["shapes"]
        return cls(arrays, meta)


def path_of(path: object) -> Path:
    """A path as such. Raises ArgumentError for anything else."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"the state of a run is in a file, and {path!r} is not a path", hint='run.save("run.safetensors")')
    return Path(path)


def digest(array: Any) -> str:
    """A checksum of an array's dtype, shape and content."""
    value = np.ascontiguousarray(array)
    return hashlib.sha256(f"{value.dtype.name}{value.shape}".encode() + value.tobytes()).hexdigest()


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array as bytes: safetensors has no name for some of the dtypes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _array(data: np.ndarray[Any, Any], dtype: str, shape: list[int]) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype) if dtype.startswith(("str", "bytes")) else numpy_dtype(dtype)
    return np.frombuffer(data.tobytes(), kind).reshape(shape).copy()


def _checksum(data: Arrays, text: str) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(data):
        total.update(name.encode())
        total.update(data[name].data)
    return total.hexdigest()
