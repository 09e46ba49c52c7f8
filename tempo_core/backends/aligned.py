"""Arrays of NumPy where JAX, on a CPU, takes them without a copy: their memory begins at a multiple of 64 bytes, which NumPy's rarely does.

What is copied out of a file that is mapped into memory leaves the memory at once, so that the copy alone is there.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ALIGNMENT = 64  # bytes
PIECE = 16 * 2**20  # bytes of a file that are in memory while it is copied


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array, whose elements have no values yet."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -_address(memory) % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(tuple(shape))


def copied(array: Array, dtype: np.dtype[Any]) -> Array:
    """A copy of an array, converted to `dtype`."""
    copy = empty(array.shape, dtype)
    for part in parts(array):
        np.copyto(copy[part], array[part], casting="unsafe")
    return copy


def parts(array: Array) -> Iterator[Any]:
    """The places of an array in order: all, or of one that is mapped from a file a piece at a time, which leaves the memory after it was used."""
    file = _file(array)
    if file is None:
        yield ...
        return
    rows = max(1, PIECE * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        yield slice(start, start + rows)
        file.madvise(mmap.MADV_DONTNEED)


def read(array: Array) -> Array:
    """An array that is mapped from a file as one in memory, read from the file in one go; any other array as it is."""
    place = _place_in_file(array)
    if place is None:
        return array if _file(array) is None else copied(array, array.dtype)
    values = empty(array.shape, array.dtype)
    with open(place[0], "rb", buffering=0) as file:
        file.seek(place[1])
        view, done = values.reshape(-1).view(np.uint8).data, 0
        while done < values.nbytes:  # a file that was cut short ends the loop
            count = file.readinto(view[done:])
            if not count:
                raise EOFError(f"{place[0]} ends at byte {place[1] + done}")
            done += count
    return values


def write(target: Array, values: Array) -> None:
    """`target[...] = values`; if it is mapped from a file, written to the file in one go."""
    place = _place_in_file(target)
    if place is None or not target.flags.writeable:
        target[...] = values
        if (mapped := _file(target)) is not None:
            mapped.madvise(mmap.MADV_DONTNEED)
        return
    with open(place[0], "r+b", buffering=0) as file:
        file.seek(place[1])
        view, done = np.ascontiguousarray(values, target.dtype).reshape(-1).view(np.uint8).data, 0
        while done < target.nbytes:
            done += file.write(view[done:])


def _place_in_file(array: Array) -> tuple[str, int] | None:
    """The file from which an array is mapped, and the place of its first byte; None for an array without one, or that lies in several pieces."""
    file, base = _file(array), array
    while isinstance(base, np.ndarray) and getattr(base, "filename", None) is None:
        base = base.base  # type: ignore[assignment]
    if file is None or base is None or not array.flags.c_contiguous or not isinstance(base, np.memmap) or not array.nbytes:
        return None
    first = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY
    return str(base.filename), first + _address(array) - _address(np.frombuffer(file, np.uint8))


def is_copied_from_a_file(array: Any) -> bool:
    """Whether JAX would copy an array that is mapped from a file, and so hold the file in memory beside its copy."""
    return isinstance(array, np.ndarray) and _file(array) is not None and _address(array) % ALIGNMENT != 0


def _file(array: Array) -> mmap.mmap | None:
    """The map of a file that an array is a part of; None if there is none, or if it has changes that the file does not get."""
    base: Any = array
    mode = None
    while isinstance(base, np.ndarray) and array.base is not None:
        mode, base = getattr(base, "mode", mode), base.base
    is_shared = isinstance(base, mmap.mmap) and mode in ("r", "r+", "w+") and array.ndim > 0
    return base if is_shared and hasattr(mmap, "MADV_DONTNEED") else None


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
