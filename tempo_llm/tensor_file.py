"""Reading safetensors files: an 8-byte length, a JSON header, then the raw tensors, mapped into memory without a copy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tempo_llm.errors import CheckpointError

DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
_LENGTH_BYTES = 8


class TensorFile:
    """The tensors of one safetensors file, by name. Damage is found when the file is opened, not when a tensor is read."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"{self.path} does not exist")
        size = self.path.stat().st_size
        header_length = self._header_length(size)
        self._start = _LENGTH_BYTES + header_length
        self._entries = self._read_header(header_length)
        self._check_extent(size)
        self._bytes = np.memmap(self.path, np.uint8, mode="r") if size > self._start else np.empty(self._start, np.uint8)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name]["shape"])

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, in the dtype of the file, as a read-only view of the mapped file."""
        entry = self._entries[name]
        if entry["dtype"] not in DTYPES:
            raise CheckpointError(
                f"{self.path}: tensor {name} has dtype {entry['dtype']}; supported are {', '.join(DTYPES)}",
                hint="quantized weights are not supported: use the float checkpoint of this model",
            )
        begin, end = entry["data_offsets"]
        raw = self._bytes[self._start + begin : self._start + end]
        return raw.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])

    # -- checks -------------------------------------------------------------------------------------------------------

    def _header_length(self, size: int) -> int:
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or _LENGTH_BYTES + length > size:
            raise self._damaged(f"its header does not fit in its {size} bytes")
        return length

    def _read_header(self, length: int) -> dict[str, Mapping[str, Any]]:
        with self.path.open("rb") as file:
            file.seek(_LENGTH_BYTES)
            text = file.read(length)
        try:
            header = json.loads(text)
            return {name: _checked(entry) for name, entry in header.items() if name != "__metadata__"}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise self._damaged(f"its header cannot be read ({error})") from None

    def _check_extent(self, size: int) -> None:
        end = self._start + max((entry["data_offsets"][1] for entry in self._entries.values()), default=0)
        if end > size:
            raise self._damaged(f"its header announces {end} bytes and it has {size}: it is truncated")
        for name, entry in self._entries.items():
            begin, stop = entry["data_offsets"]
            wanted = math.prod(entry["shape"]) * np.dtype(DTYPES.get(entry["dtype"], np.uint8)).itemsize
            if entry["dtype"] in DTYPES and stop - begin != wanted:
                raise self._damaged(f"tensor {name} takes {stop - begin} bytes, its shape and dtype say {wanted}")

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged or not a safetensors file: {what}", hint="download or copy it again")


def _checked(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A header entry with the fields and kinds of values that reading relies on."""
    begin, end = entry["data_offsets"]
    sizes = [begin, end, *entry["shape"]]
    if not isinstance(entry["dtype"], str) or any(not isinstance(n, int) or n < 0 for n in sizes) or begin > end:
        raise ValueError(f"malformed entry {dict(entry)}")
    return entry
