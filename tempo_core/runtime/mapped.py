"""Advice to the system about memory-mapped files: which parts are read soon, and which need no memory any more."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def release(array: Array) -> None:
    """Let go of the memory of a part of a memory-mapped file; the file has its values. Other arrays stay as they are."""
    _advise(array, "MADV_DONTNEED")


def expect(array: Array) -> None:
    """Let the system begin to read a part of a memory-mapped file."""
    _advise(array, "MADV_WILLNEED")


def _advise(array: Array, advice: str) -> None:
    file: Any = array
    while isinstance(file, np.ndarray) and getattr(file, "mode", "") != "c":  # a copy on write has values that no file has
        file = file.base
    if not isinstance(file, mmap.mmap) or not array.flags.c_contiguous or not hasattr(mmap, advice):
        return
    start = array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE  # pages that have other values too are left alone
    length = start + array.nbytes - first
    if length > 0:
        file.madvise(getattr(mmap, advice), first, length)
