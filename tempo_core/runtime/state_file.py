"""Files of a run's state: safetensors, with JSON beside the arrays. A file is whole, or it is refused.

A process that is killed at any moment leaves the earlier file (`files.py`). A file has a version and a checksum of all that it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import StateError
from tempo_core.files import write_whole

FORMAT = "tempo-run-1"
Arrays = Mapping[str, np.ndarray[Any, Any]]


def write(path: Path, arrays: Arrays, meta: Mapping[str, Any]) -> None:
    """Write arrays and what JSON holds to a file, which takes the place of an earlier one when it is complete. Raises StateError."""
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    data = {name: _bytes(array) for name, array in arrays.items()}
    text = json.dumps({**meta, "dtypes": dtypes, "shapes": {name: array.shape for name, array in arrays.items()}}, sort_keys=True)
    content = safetensors.numpy.save(data, {"format": FORMAT, "meta": text, "checksum": _checksum(data, text)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise StateError(
            f"the state cannot be written to {path}: {error}", hint="an earlier file of this name is as it was"
        ) from error


def read(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays and the rest of a file. Raises StateError for a file that is missing, damaged, or of another kind or version."""
    if not path.is_file():
        raise StateError(f"there is no file {path}", hint="run.save(path) writes it")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            data = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise StateError(
            f"{path} ({path.stat().st_size} bytes) cannot be read: {error}",
            hint="the file is truncated, or not a safetensors file; resume from an earlier one",
        ) from error
    if header.get("format") != FORMAT:
        raise StateError(
            f"{path} has the format {header.get('format', 'of something else')!r}, not {FORMAT!r}",
            hint="only files that run.save(path) wrote can be resumed",
        )
    if _checksum(data, header["meta"]) != header.get("checksum"):
        raise StateError(f"{path} is damaged: its checksum is not that of its content", hint="resume from an earlier file")
    meta = json.loads(header["meta"])
    arrays = {name: _array(data[name], dtype, meta["shapes"][name]) for name, dtype in meta.pop("dtypes").items()}
    del meta["shapes"]
    return arrays, meta


def digest(array: Any) -> str:
    """A checksum of an array's dtype, shape and content."""
    value = np.ascontiguousarray(array)
    return hashlib.sha256(f"{value.dtype.name}{value.shape}".encode() + value.tobytes()).hexdigest()


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array as bytes: safetensors has no name for some of the dtypes."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _array(data: np.ndarray[Any, Any], dtype: str, shape: list[int]) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype) if dtype.startswith(("str", "bytes")) else numpy_dtype(dtype)
    return np.frombuffer(data.tobytes(), kind).reshape(shape).copy()


def _checksum(data: Arrays, text: str) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(data):
        total.update(name.encode())
        total.update(data[name].tobytes())
    return total.hexdigest()
