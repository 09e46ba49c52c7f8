"""Quantized matrices: int8 and int4 numbers by groups along the inputs, each group with its own scale.

A matrix [..., out, in] is quantized row by row. Groups have `group` elements; a row whose length is not a multiple of `group` is padded.

- int8: numbers from -127 to 127 times a float32 scale. No element is wrong by more than half a scale.
- int4: numbers from 0 to 15, times a float32 scale, plus a float32 offset. The three are chosen by least squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

Dtype = Literal["int8", "int4"]
QUANTIZED: tuple[Dtype, ...] = ("int8", "int4")
GROUP = 32
GROUPS = (16, 32, 64, 128)
ROUNDS = 3  # of least squares
PART = 1 << 22  # elements that are quantized at once
STORED: Mapping[str, Dtype] = {"int8": "int8", "uint8": "int4"}  # what a matrix is, by the dtype of its array

Arrays = dict[str, np.ndarray]  # `weight` and `scale`; `offset` with int4


@dataclass(frozen=True)
class Matrix:
    """A quantized matrix [..., out, width]."""

    arrays: Arrays
    width: int

    @property
    def dtype(self) -> Dtype:
        return "int4" if "offset" in self.arrays else "int8"

    @property
    def group(self) -> int:
        padded = self.arrays["weight"].shape[-1] * (2 if self.dtype == "int4" else 1)
        return padded // self.arrays["scale"].shape[-1]

    def exactly(self, dtype: Dtype) -> Matrix | None:
        """The same matrix in `dtype`, if it has the same elements there. int4 numbers around 0 are int8 numbers too."""
        if dtype == self.dtype:
            return self
        scale = self.arrays["scale"]
        if dtype == "int4" or (self.arrays["offset"] != -8 * scale).any():
            return None
        pairs = self.arrays["weight"].reshape(*scale.shape, -1)
        numbers = np.concatenate([pairs & 15, pairs >> 4], -1).astype(np.int8) - np.int8(8)
        return Matrix({"weight": numbers.reshape(*scale.shape[:-1], -1), "scale": scale}, self.width)

    def values(self) -> np.ndarray:
        return dequantize(self.arrays, self.width)


def part_name(name: str, part: str) -> str:
    """The name of the scales or offsets of a matrix: `mlp.up.scale` for `mlp.up.weight`, and `experts.up_scale` for `experts.up`."""
    return f"{name.removesuffix('weight')}{part}" if name.endswith(".weight") else f"{name}_{part}"


def lengths(dtype: str, n_in: int, group: int) -> dict[str, tuple[int, str]]:
    """The arrays of a matrix with rows of `n_in` elements: the lengths of their rows, and their dtypes."""
    groups = -(-n_in // group)
    if dtype == "int8":
        return {"weight": (groups * group, "int8"), "scale": (groups, "float32")}
    return {"weight": (groups * group // 2, "uint8"), "scale": (groups, "float32"), "offset": (groups, "float32")}


def named(name: str, arrays: Arrays) -> Arrays:
    """The arrays of the matrix `name` by their names."""
    return {name if part == "weight" else part_name(name, part): array for part, array in arrays.items()}


def quantize(matrix: np.ndarray, dtype: Dtype, group: int = GROUP) -> Arrays:
    """A matrix [..., out, in] of floats as `weight` int8 [..., out, in'] or uint8 [..., out, in' / 2], `scale` and `offset` [..., out, groups]."""
    *outer, width = matrix.shape
    groups = -(-width // group)
    rows = matrix.reshape(-1, width)
    at_once = max(1, PART // max(width, 1))
    parts = []
    for first in range(0, len(rows), at_once):
        part = np.ascontiguousarray(
            rows[first : first + at_once], np.float32
        )  # the order in memory is that of sums, which are rounded
        padded = np.ascontiguousarray(np.pad(part, ((0, 0), (0, groups * group - width)), "edge")).reshape(-1, groups, group)
        parts.append(_rounded(padded) if dtype == "int8" else _fitted(padded))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: array.reshape(*outer, array.shape[-1]) for name, array in joined.items()}


def dequantize(arrays: Mapping[str, np.ndarray], width: int) -> np.ndarray:
    """The matrix [..., out, width] of quantized arrays, float32."""
    weight, scale = arrays["weight"], arrays["scale"]
    numbers = weight.reshape(*scale.shape, -1)
    if "offset" in arrays:
        numbers = np.concatenate([numbers & 15, numbers >> 4], -1)
    values = numbers.astype(np.float32) * scale[..., None]
    if "offset" in arrays:
        values += arrays["offset"][..., None]
    return values.reshape(*scale.shape[:-1], -1)[..., :width]


def packed(numbers: np.ndarray) -> np.ndarray:
    """Numbers 0 to 15, [rows, groups, group], two in a byte: [rows, groups * group / 2]."""
    low, high = np.split(numbers.astype(np.uint8), 2, -1)
    return (low | high << 4).reshape(len(numbers), -1)


def _rounded(groups: np.ndarray) -> Arrays:
    largest = np.abs(groups).max(-1)
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    scale = np.where(scale > 0, scale, np.finfo(np.float32).smallest_subnormal)  # of numbers too small to be divided by 127
    numbers = np.clip(np.rint(groups / scale[..., None]), -127, 127).astype(np.int8)
    return {"weight": numbers.reshape(len(numbers), -1), "scale": scale}


def _fitted(groups: np.ndarray) -> Arrays:
    """Numbers, scale and offset in turn: the nearest numbers for a scale and an offset, then the best scale and offset for these numbers.

    A group begins with its smallest and largest element as 0 and 15.
    """
    least, most = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    scale, offset = (most - least) / np.float32(15), least
    mean = groups.mean(-1, keepdims=True)
    for _ in range(ROUNDS):
        numbers = _nearest(groups, scale, offset)
        middle = numbers.mean(-1, keepdims=True)
        spread = ((numbers - middle) ** 2).sum(-1, keepdims=True)
        slope = ((numbers - middle) * (groups - mean)).sum(-1, keepdims=True) / np.where(spread > 0, spread, 1)
        scale = np.where(slope > 0, slope, scale)
        offset = np.where(slope > 0, mean - scale * middle, offset)
    numbers = _nearest(groups, scale, offset)
    return {
        "weight": packed(numbers),
        "scale": scale[..., 0].astype(np.float32),
        "offset": offset[..., 0].astype(np.float32),
    }


def _nearest(groups: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return np.clip(np.rint((groups - offset) / np.where(scale > 0, scale, 1)), 0, 15)
