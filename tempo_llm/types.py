"""Aliases for the types of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]
IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]
BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
