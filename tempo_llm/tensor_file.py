"""Reading safetensors files, with the errors of the library `safetensors` as a `CheckpointError`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 as a dtype of NumPy, which safetensors needs)
import numpy as np
from safetensors import SafetensorError, safe_open

from tempo_llm.errors import CheckpointError
from tempo_llm.quantized import Dtype, Matrix

DTYPES = ("F64", "F32", "F16", "BF16")
SHAPES = "tempo.quantized"  # of a file's metadata: the shapes of quantized tensors, as JSON
PARTS = (".scale", ".offset")
MOST_READ = 64 * 2**20  # bytes of a file that are in memory


class TensorFile:
    """The tensors of one safetensors file, by name. A damaged file is an error when it is opened, not when a tensor is read.

    A quantized matrix NAME is the tensors NAME, NAME.scale and perhaps NAME.offset, as `tempo_llm.quantized` describes them; its shape
    [..., out, in], or [..., in, out] if it `is_turned`, is in the metadata of the file.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"{self.path} does not exist, or is not a file")
        try:
            self._open()
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{self.path} is damaged, truncated or not a safetensors file: {str(error)[:300]}",
                hint="download or copy it again",
            ) from None
        self._described = self._read_described()
        self._tensors = tuple(self._file.keys())
        parts = {name + part for name in self._described for part in PARTS}
        self._names = tuple(name for name in self._tensors if name not in parts)

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._described:
            return tuple(self._described[name]["shape"])
        return tuple(self._file.get_slice(name).get_shape())

    @property
    def quantized(self) -> tuple[Dtype, int] | None:
        """The dtype and the group of its matrices, if they are quantized. Some matrices are int8 in both."""
        kinds = {(each["dtype"], each["group"]) for each in self._described.values()}
        return min(kinds) if kinds else None  # int4 before int8

    def matrix(self, name: str) -> Matrix | None:
        """The matrix `name` [..., out, in], if it is quantized."""
        if name not in self._described:
            return None
        parts = {"weight": name, "scale": f"{name}.scale", "offset": f"{name}.offset"}
        present = {part: full for part, full in parts.items() if part == "weight" or full in self._tensors}
        described = self._described[name]
        width = described["shape"][-2 if described["turned"] else -1]
        return Matrix({part: self._tensor(full) for part, full in present.items()}, width)

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, in the dtype of the file; a quantized matrix as float32."""
        matrix = self.matrix(name)
        if matrix is not None:
            return matrix.values().swapaxes(-1, -2) if self._described[name]["turned"] else matrix.values()
        dtype = self._file.get_slice(name).get_dtype()
        if dtype not in DTYPES:
            raise CheckpointError(
                f"{self.path}: tensor {name} has dtype {dtype}; supported are {', '.join(DTYPES)}",
                hint="use the float checkpoint of this model, or its GGUF file; `tempo-llm quantize` makes quantized ones",
            )
        return self._tensor(name)

    def _open(self) -> None:
        self._file: Any = safe_open(self.path, framework="numpy")
        self._read = 0  # bytes, since the file was opened

    def _tensor(self, name: str) -> np.ndarray:
        """A tensor of the file. What was read of the file stays in memory while it is open, so it is opened again from time to time."""
        try:
            if self._read > MOST_READ:
                self._open()
            array: np.ndarray = self._file.get_tensor(name)
            self._read += array.nbytes
            return array
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: tensor {name} cannot be read: {str(error)[:300]}", hint="download or copy it again"
            ) from None

    def _read_described(self) -> dict[str, Any]:
        text = (self._file.metadata() or {}).get(SHAPES)
        if text is None:
            return {}
        try:
            described = dict(json.loads(text))
            for name, each in described.items():
                tensors = [name, f"{name}.scale", *([f"{name}.offset"] if each["dtype"] == "int4" else [])]
                shapes = [tuple(self._file.get_slice(tensor).get_shape()) for tensor in tensors]
                shape = tuple(each["shape"])
                *outer, width = (*shape[:-2], shape[-1], shape[-2]) if each["turned"] else shape
                groups = -(-width // each["group"])
                row = groups * each["group"] // (2 if each["dtype"] == "int4" else 1)
                if shapes != [(*outer, row), *[(*outer, groups)] * (len(tensors) - 1)]:
                    raise ValueError(f"{name} has arrays of the shapes {shapes}")
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, SafetensorError, RecursionError) as error:
            raise CheckpointError(
                f"{self.path}: what it says of its quantized tensors does not fit them: {str(error)[:300]}",
                hint="make it again: tempo-llm quantize SOURCE TARGET",
            ) from None
        return described
