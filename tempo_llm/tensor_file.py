"""Reading safetensors files, with the errors of the library `safetensors` as a `CheckpointError`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 as a dtype of NumPy, which safetensors needs)
import numpy as np
from safetensors import SafetensorError, safe_open

from tempo_llm.errors import CheckpointError

DTYPES = ("F64", "F32", "F16", "BF16")


class TensorFile:
    """The tensors of one safetensors file, by name. A damaged file is an error when it is opened, not when a tensor is read."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"{self.path} does not exist, or is not a file")
        try:
            self._file: Any = safe_open(self.path, framework="numpy")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{self.path} is damaged, truncated or not a safetensors file: {str(error)[:300]}",
                hint="download or copy it again",
            ) from None
        self._names = tuple(self._file.keys())

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, in the dtype of the file."""
        dtype = self._file.get_slice(name).get_dtype()
        if dtype not in DTYPES:
            raise CheckpointError(
                f"{self.path}: tensor {name} has dtype {dtype}; supported are {', '.join(DTYPES)}",
                hint="quantized weights are not supported: use the float checkpoint of this model",
            )
        try:
            return self._file.get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: tensor {name} cannot be read: {str(error)[:300]}", hint="download or copy it again"
            ) from None
