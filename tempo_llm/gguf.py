"""Reading GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3): metadata, and tensors in blocks.

Blocks of Q8_0, Q4_0 and Q4_K are groups of 32 numbers with a scale, and perhaps an offset, so they are quantized matrices of
`tempo_llm.quantized` as they are. Blocks of Q6_K are converted to floats.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tempo_llm.errors import CheckpointError, shown
from tempo_llm.quantized import Arrays, Matrix

MAGIC = b"GGUF"
ALIGNMENT = 32
MOST = 1 << 26  # entries of a list, and bytes of a string, in a file that is not damaged
NUMBERS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9  # kinds of values beside numbers
LARGEST_DEPTH = 4  # of lists in lists


@dataclass(frozen=True)
class Kind:
    """A kind of tensor: its blocks have so many elements in so many bytes."""

    name: str
    elements: int
    size: int
    plain: np.dtype[Any] | None = None  # of the elements, if they are not in blocks
    groups: Callable[[np.ndarray], Arrays] | None = None  # blocks [rows, bytes] as a quantized matrix
    values: Callable[[np.ndarray], np.ndarray] | None = None  # blocks as floats


def q8_0(blocks: np.ndarray) -> Arrays:
    """32 numbers: a float16 scale, then int8."""
    parts = blocks.reshape(len(blocks), -1, 34)
    weight = np.ascontiguousarray(parts[..., 2:]).view(np.int8)
    return {"weight": weight.reshape(len(blocks), -1), "scale": _half(parts[..., :2])}


def q4_0(blocks: np.ndarray) -> Arrays:
    """32 numbers: a float16 scale, then the numbers + 8, two in a byte, 16 apart."""
    parts = blocks.reshape(len(blocks), -1, 18)
    scale = _half(parts[..., :2])
    return {"weight": parts[..., 2:].reshape(len(blocks), -1), "scale": scale, "offset": -8 * scale}


def q4_k(blocks: np.ndarray) -> Arrays:
    """256 numbers in 8 groups: two float16, 8 pairs of 6 bits that multiply them, and the numbers: each 32 bytes hold two groups, in the low
    and in the high bits."""
    parts = blocks.reshape(len(blocks), -1, 144)
    packed = parts[..., 4:16]
    low, high, mixed = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, mixed & 15 | low >> 6 << 4], -1).astype(np.float32)
    offsets = np.concatenate([high & 63, mixed >> 4 | high >> 6 << 4], -1).astype(np.float32)
    pairs = parts[..., 16:].reshape(*parts.shape[:2], 4, 1, 32)
    numbers = np.concatenate([pairs & 15, pairs >> 4], -2)  # [rows, blocks, 4, 2, 32]
    weight = numbers[..., :16] | numbers[..., 16:] << 4
    return {
        "weight": weight.reshape(len(blocks), -1),
        "scale": (scales * _half(parts[..., :2])[..., None]).reshape(len(blocks), -1),
        "offset": (-offsets * _half(parts[..., 2:4])[..., None]).reshape(len(blocks), -1),
    }


def q6_k(blocks: np.ndarray) -> np.ndarray:
    """256 numbers in 16 groups: 4 low bits of each, 2 high bits of each, 16 int8 scales, and a float16 that multiplies these."""
    parts = blocks.reshape(len(blocks), -1, 210)
    outer = parts.shape[:2]
    low = parts[..., :128].reshape(*outer, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & 15
    high = parts[..., 128:192].reshape(*outer, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    numbers = (low.reshape(*outer, 256) | high.reshape(*outer, 256) << 4).astype(np.int8) - 32
    scales = np.ascontiguousarray(parts[..., 192:208]).view(np.int8).astype(np.float32) * _half(parts[..., 208:])[..., None]
    return (numbers.reshape(*outer, 16, 16).astype(np.float32) * scales[..., None]).reshape(len(blocks), -1)


def _half(pairs: np.ndarray) -> np.ndarray:
    """Two bytes each, as float32."""
    return np.ascontiguousarray(pairs).view(np.float16)[..., 0].astype(np.float32)


KINDS: Mapping[int, Kind] = {
    0: Kind("F32", 1, 4, np.dtype("<f4")),
    1: Kind("F16", 1, 2, np.dtype("<f2")),
    2: Kind("Q4_0", 32, 18, groups=q4_0),
    8: Kind("Q8_0", 32, 34, groups=q8_0),
    12: Kind("Q4_K", 256, 144, groups=q4_k),
    14: Kind("Q6_K", 256, 210, values=q6_k),
    30: Kind("BF16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
}
OTHERS: Mapping[int, str] = {  # kinds that are not read
    3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A tensor in the table: its shape, outermost dimension first, and where its bytes begin."""

    shape: tuple[int, ...]
    kind: Kind
    first: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) // self.kind.elements * self.kind.size


class GgufFile:
    """A GGUF file: `metadata` by key, and the tensors of `entries` by name. A damaged file is an error when it is opened."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._bytes: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise CheckpointError(f"{self.path} does not exist") from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from None
        self._at = 0
        self.metadata: dict[str, object] = {}
        self.entries: dict[str, Entry] = {}
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError, KeyError, IndexError, OverflowError, ZeroDivisionError) as error:
            raise self._damaged(f"its header ends early, or cannot be read: {type(error).__name__} {shown(error, 100)}") from None

    def matrix(self, name: str) -> Matrix | None:
        """The tensor `name` as a quantized matrix, if its blocks are groups of 32 numbers."""
        entry = self.entries[name]
        if entry.kind.groups is None or len(entry.shape) != 2:
            return None
        return Matrix(entry.kind.groups(self._blocks(entry)), entry.shape[-1])

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, as floats."""
        entry = self.entries[name]
        blocks = self._blocks(entry)
        if entry.kind.plain is not None:
            return np.ascontiguousarray(blocks).view(entry.kind.plain).reshape(entry.shape)
        if entry.kind.values is not None:
            return entry.kind.values(blocks).reshape(entry.shape)
        assert entry.kind.groups is not None
        return Matrix(entry.kind.groups(blocks), entry.shape[-1]).values().reshape(entry.shape)

    def _blocks(self, entry: Entry) -> np.ndarray:
        """The bytes of each row."""
        data = np.frombuffer(self._bytes, np.uint8, entry.size, entry.first)
        return data.reshape(math.prod(entry.shape[:-1]), -1)

    def _read_header(self) -> None:
        if self._bytes[:4] != MAGIC:
            raise CheckpointError(f"{self.path} is not a GGUF file: it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in (2, 3):
            hint = "convert the model again, with a current llama.cpp"
            raise CheckpointError(
                f"{self.path} has version {version} of GGUF; versions 2 and 3 are read, little-endian", hint=hint
            )
        tensors, values = self._number("Q"), self._number("Q")
        if max(tensors, values) > MOST:
            raise self._damaged(f"it says that it has {tensors} tensors and {values} values")
        for _ in range(values):
            key = self._text()
            self.metadata[key] = self._value(self._number("I"))
        table = [self._table_row() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._damaged(f"its alignment is {shown(alignment)}")
        start = -(-self._at // alignment) * alignment
        for name, shape, number, offset in table:
            self.entries[name] = self._entry(name, shape, number, start + offset)

    def _entry(self, name: str, shape: tuple[int, ...], number: int, first: int) -> Entry:
        kind = KINDS.get(number)
        if kind is None:
            raise CheckpointError(
                f"{self.path}: the tensor {shown(name)} is of the kind {OTHERS.get(number, number)}, which is not supported; "
                f"the kinds are {', '.join(each.name for each in KINDS.values())}",
                hint="take another file of the model, such as its Q8_0 or Q4_K_M",
            )
        if not shape or shape[-1] % kind.elements:
            raise self._damaged(f"the tensor {shown(name)} has the shape {list(shape)}, but blocks of {kind.elements} elements")
        entry = Entry(shape, kind, first)
        if first + entry.size > len(self._bytes):
            raise self._damaged(f"the tensor {shown(name)} ends at byte {first + entry.size}, but the file at {len(self._bytes)}")
        return entry

    def _table_row(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._text(), self._number("I")
        if dimensions > 4:
            raise self._damaged(f"the tensor {shown(name)} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _number(self, letter: str) -> Any:
        layout = f"<{letter}"
        (number,) = struct.unpack_from(layout, self._bytes, self._at)
        self._at += struct.calcsize(layout)
        return number

    def _text(self) -> str:
        length = self._number("Q")
        if length > min(MOST, len(self._bytes) - self._at):
            raise self._damaged(f"a string at byte {self._at} has {length} bytes")
        self._at += length
        # Tokens of some vocabularies are parts of characters.
        return self._bytes[self._at - length : self._at].decode("utf-8", "surrogateescape")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == TEXT:
            return self._text()
        if kind != LIST:
            return self._number(NUMBERS[kind])
        inner, count = self._number("I"), self._number("Q")
        if count > min(MOST, len(self._bytes) - self._at) or depth > LARGEST_DEPTH:
            raise self._damaged(f"a list at byte {self._at} has {count} entries")
        if inner in NUMBERS:
            layout = f"<{count}{NUMBERS[inner]}"
            numbers: Sequence[Any] = struct.unpack_from(layout, self._bytes, self._at)
            self._at += struct.calcsize(layout)
            return list(numbers)
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged or truncated: {reason}", hint="download or copy it again")
